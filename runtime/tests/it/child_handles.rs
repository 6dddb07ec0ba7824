//! Handles to children: signals and requests to cancel reach the child they are for, and nobody else.

use millrun::operating::PendingDescription;
use millrun::workflow::{ParentClose, SignalInstanceError};
use millrun::{
    ChildError, OnConflict, ResultError, Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext,
    WorkflowError,
};

use crate::support::{Store, described};

const PARCEL: Workflow<u64, u64> = Workflow::named("parcel");
const METER: Workflow<u64, u64> = Workflow::named("meter");
const ORDER: Workflow<Order, String> = Workflow::named("order");
const GO: Signal<u64> = Signal::named("go");
const NEXT: Signal<()> = Signal::named("next");

/// What an order does with its parcel: the number, what is sent to it, whether it is cancelled then, whether the order waits
/// for a signal before.
type Order = (u64, Vec<u64>, bool, bool);

/// Waits for a signal, or comes back when it is cancelled.
async fn parcel(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    match number {
        0 => Ok(0),
        _ => Ok(number + cx.receive(GO).await?),
    }
}

/// Sums two signals a run, until there are ten.
async fn meter(cx: WorkflowContext, sum: u64) -> Result<u64, WorkflowError> {
    let sum = sum + cx.receive(GO).await? + cx.receive(GO).await?;
    if sum >= 100 {
        return Ok(sum);
    }
    Ok(cx.continue_as_new(METER, sum).await?)
}

fn parcel_id(number: u64) -> String {
    format!("parcel-{number}")
}

async fn order(
    cx: WorkflowContext,
    (number, values, is_cancelled, waits): Order,
) -> Result<String, WorkflowError> {
    let parcel = cx.child(PARCEL, parcel_id(number), number).start()?;
    if waits {
        cx.receive(NEXT).await?;
    }
    let mut told = Vec::new();
    for value in values {
        told.push(match parcel.signal(GO, value).await {
            Ok(()) => "told",
            Err(SignalInstanceError::Finished) => "ended",
            Err(SignalInstanceError::NotFound) => "not there",
            Err(error) => return Err(error.into()),
        });
    }
    if is_cancelled {
        parcel.cancel("recalled");
    }
    let ended = match parcel.await {
        Ok(value) => format!("parcel {value}"),
        Err(ChildError::WasCancelled(error)) => format!("cancelled: {error}"),
        Err(ChildError::NotStarted { .. }) => "not started".into(),
        Err(error) => return Err(error.into()),
    };
    Ok(format!("{}, {ended}", told.join(" ")))
}

fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(PARCEL, parcel)
        .register(METER, meter)
        .register(ORDER, order)
        .configure(|config| config.shards_len = 3)
}

async fn open(store: &Store) -> Runtime {
    with_code(store.bare()).start().await.unwrap()
}

async fn ordered(runtime: &Runtime, id: &str, order: Order) -> String {
    let run = runtime.start(ORDER, id, order).await.unwrap();
    run.result().await.unwrap()
}

/// The signal is decided in the turn in which the child is, and sent together with it, to whichever shard that is.
#[tokio::test]
async fn a_signal_that_is_sent_with_the_start_is_recorded_behind_the_beginning() {
    for hot_len_max in [100_000, 0] {
        let store = Store::new();
        let builder = with_code(store.bare()).configure(|config| config.hot_len_max = hot_len_max);
        let runtime = builder.start().await.unwrap();
        for number in 1..=20 {
            let ended = ordered(&runtime, &format!("o-{number}"), (number, vec![5], false, false)).await;
            assert_eq!(ended, format!("told, parcel {}", number + 5));
        }
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_child_that_has_ended_is_told_nothing_and_its_end_is_kept() {
    let store = Store::new();
    let runtime = open(&store).await;
    let run = runtime
        .start(ORDER, "o", (0, vec![5, 6], true, true))
        .await
        .unwrap();
    let parcel = runtime.attach(PARCEL, &parcel_id(0)).unwrap();
    described(&run, |run| run.pending.is_empty()).await;
    assert_eq!(parcel.result().await.unwrap(), 0);
    run.signal(NEXT, ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "ended ended, parcel 0");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_is_cancelled_before_it_has_begun_and_while_it_waits() {
    for waits in [false, true] {
        let store = Store::new();
        let runtime = open(&store).await;
        let run = runtime.start(ORDER, "o", (7, vec![], true, waits)).await.unwrap();
        if waits {
            described(&run, |run| {
                matches!(&run.pending[..], [PendingDescription::Child { run: Some(_), .. }])
            })
            .await;
            run.signal(NEXT, ()).await.unwrap();
        }
        let ended = run.result().await.unwrap();
        assert!(
            ended.ends_with("the run was asked to cancel: recalled"),
            "{ended}"
        );
        let parcel = runtime.attach(PARCEL, &parcel_id(7)).unwrap();
        assert!(matches!(parcel.result().await, Err(ResultError::Cancelled(_))));
        runtime.shutdown().await.unwrap();
    }
}

/// An instance that has the child's id, before it or behind it, gets neither signals nor requests to cancel.
#[tokio::test]
async fn a_signal_by_a_handle_is_for_the_child_alone() {
    let store = Store::new();
    let runtime = open(&store).await;
    let stranger = runtime.start(PARCEL, &parcel_id(3), 3).await.unwrap();
    let ended = ordered(&runtime, "early", (3, vec![5], true, false)).await;
    assert_eq!(ended, "not there, not started");
    stranger.signal(GO, 1).await.unwrap();
    assert_eq!(stranger.result().await.unwrap(), 4);

    let run = runtime
        .start(ORDER, "late", (0, vec![5], true, true))
        .await
        .unwrap();
    let child = runtime.attach(PARCEL, &parcel_id(0)).unwrap();
    described(&run, |run| run.pending.is_empty()).await;
    assert_eq!(child.result().await.unwrap(), 0);
    let stranger = runtime
        .start(PARCEL, &parcel_id(0), 8)
        .on_conflict(OnConflict::RestartFinished);
    let stranger = stranger.await.unwrap();
    run.signal(NEXT, ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "not there, parcel 0");
    stranger.signal(GO, 1).await.unwrap();
    assert_eq!(stranger.result().await.unwrap(), 9);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_that_continues_as_new_is_told_in_its_latest_run() {
    const READER: Workflow<bool, String> = Workflow::named("reader");
    async fn reader(cx: WorkflowContext, is_cancelled: bool) -> Result<String, WorkflowError> {
        let meter = cx.child(METER, "meter", 0).start()?;
        for _ in 0..if is_cancelled { 5 } else { 10 } {
            meter.signal(GO, 10).await?;
        }
        if is_cancelled {
            meter.cancel("enough");
        }
        Ok(match meter.await {
            Ok(sum) => sum.to_string(),
            Err(error) => error.to_string(),
        })
    }
    for (is_cancelled, expected) in [(false, "100"), (true, "the child was cancelled")] {
        let store = Store::new();
        let builder = with_code(store.bare()).register(READER, reader);
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(READER, "r", is_cancelled).await.unwrap();
        let ended = run.result().await.unwrap();
        assert!(ended.starts_with(expected), "{ended}");
        runtime.shutdown().await.unwrap();
    }
}

/// Regression: the request to cancel waited for the child's run, which went on in another one meanwhile, and was lost.
#[tokio::test]
async fn a_child_that_continues_as_new_while_it_is_read_is_cancelled_in_its_next_run() {
    const BOTH: Workflow<String, String> = Workflow::named("both");
    async fn both(cx: WorkflowContext, id: String) -> Result<String, WorkflowError> {
        let meter = cx.child(METER, id, 0).start()?;
        let control = meter.control();
        // All of it in one turn.
        let signals = cx.join(meter.signal(GO, 10), meter.signal(GO, 10));
        let ((first, second), is_asked) = cx.join(signals, async { control.cancel("enough") }).await;
        first?;
        second?;
        assert!(is_asked);
        Ok(match meter.await {
            Ok(sum) => sum.to_string(),
            Err(error) => error.to_string(),
        })
    }
    let store = Store::new();
    let builder = with_code(store.bare()).register(BOTH, both);
    let builder = builder.configure(|config| config.hot_len_max = 0);
    let runtime = builder.start().await.unwrap();
    for number in 0..10 {
        let id = format!("meter-{number}");
        let run = runtime
            .start(BOTH, &format!("both-{number}"), id.clone())
            .await
            .unwrap();
        let ended = run.result().await.unwrap();
        assert!(ended.starts_with("the child was cancelled"), "{ended}");
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_whose_handle_is_dropped_goes_on_if_it_is_abandoned() {
    const SENDER: Workflow<(), String> = Workflow::named("sender");
    async fn sender(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        let parcel = cx.child(PARCEL, parcel_id(4), 4).on_close(ParentClose::Abandon);
        let parcel = parcel.start()?;
        let control = parcel.control();
        drop(parcel);
        let is_asked = control.cancel("nobody waits for it");
        control.signal(GO, 1).await?;
        Ok(format!("{} {is_asked}", control.id()))
    }
    let store = Store::new();
    let builder = with_code(store.bare()).register(SENDER, sender);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(SENDER, "s", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "parcel-4 false");
    let parcel = runtime.attach(PARCEL, &parcel_id(4)).unwrap();
    assert_eq!(parcel.result().await.unwrap(), 5);
    runtime.shutdown().await.unwrap();
}
