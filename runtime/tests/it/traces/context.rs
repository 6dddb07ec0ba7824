//! The place in a distributed trace that a start names stands in the run's first event, and reaches all that the run
//! has done for it.

use std::sync::{Arc, Mutex};

use millrun::broker::{Envelope, Headers, Inbox, SubscriptionConfig};
use millrun::workflow::{Cause, SpanId, TraceContext, TraceId};
use millrun::{
    Activity, ActivityContext, ActivityError, OnConflict, OpenError, RunId, Runtime, RuntimeBuilder,
    RuntimeConfig, Topic, Workflow, WorkflowContext, WorkflowError,
};
use tokio::sync::mpsc;

use crate::support::Store;

const PLACED: Topic<u64> = Topic::named("orders.placed");
const ORDER: Workflow<u64, u64> = Workflow::named("order");
const PARCEL: Workflow<u64, u64> = Workflow::named("parcel");
const LABEL: Workflow<u64, u64> = Workflow::named("label");
const PRINT: Activity<u64, u64> = Activity::named("print");

const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn caller() -> TraceContext {
    HEADER.parse().unwrap()
}

async fn order(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.publish(PLACED, number).await?;
    Ok(number)
}

async fn parcel(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let number = cx.call(PRINT, number).await?;
    let label = cx.child(LABEL, "label", number).await?;
    if label < 3 {
        return Ok(cx.continue_as_new(PARCEL, label + 1).await?);
    }
    Ok(label)
}

async fn label(_: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

/// What attempts are told: their call, their number, and their place in a trace.
type Attempts = Arc<Mutex<Vec<(Cause, u32, Option<TraceContext>)>>>;

fn builder(store: &Store, attempts: &Attempts) -> RuntimeBuilder {
    let attempts = Arc::clone(attempts);
    let print = move |cx: ActivityContext, number: u64| {
        let told = (cx.cause(), cx.attempt(), cx.trace());
        attempts.lock().unwrap().push(told);
        async move { Ok::<_, ActivityError>(number) }
    };
    store
        .bare()
        .register(ORDER, order)
        .register(PARCEL, parcel)
        .register(LABEL, label)
        .register(PRINT, print)
        .topic(PLACED)
}

async fn trace_of(runtime: &Runtime, id: &str) -> (RunId, Option<TraceContext>) {
    let handle = runtime.attach_untyped(id).unwrap();
    let described = handle.describe().await.unwrap();
    (described.run, described.trace)
}

/// An order publishes, which starts a parcel; that calls an activity, has a child, and goes on in another run.
#[tokio::test]
async fn a_trace_goes_from_a_start_over_topics_activities_children_and_runs_that_go_on() {
    let (store, attempts) = (Store::new(), Attempts::default());
    let runtime = builder(&store, &attempts).start().await.unwrap();
    let config = SubscriptionConfig::default();
    let placed: Inbox<Envelope<u64>> = runtime.broker().subscribe(PLACED.name(), config).unwrap();
    let trigger = runtime
        .on(PLACED)
        .start(PARCEL, |placed| ("parcel".into(), *placed.payload()))
        .unwrap();
    let order = runtime.start(ORDER, "order", 2).traced(caller()).await.unwrap();
    assert_eq!(order.result().await.unwrap(), 2);
    while trigger.handled() == 0 {
        tokio::task::yield_now().await;
    }
    let parcel = runtime.attach(PARCEL, "parcel").unwrap();
    assert_eq!(parcel.result().await.unwrap(), 3);

    let order = order.run_id().unwrap();
    let operation = |run, operation| caller().at_operation(Cause { run, operation });
    let envelope = placed.take().next().expect("the order was placed");
    assert_eq!(envelope.trace(), Some(operation(order, 1)));
    assert_eq!(trace_of(&runtime, "order").await, (order, Some(caller())));
    // The run that goes on is where the first one was.
    let (last, trace) = trace_of(&runtime, "parcel").await;
    assert_eq!(trace, envelope.trace());
    let attempts = attempts.lock().unwrap().clone();
    let [first, second] = [0, 1].map(|number| attempts[number].0.run);
    assert!(first != second && second == last);
    for (call, _, trace) in attempts {
        assert_eq!(trace, Some(caller().at_operation(call)));
        assert_ne!(trace.unwrap().span_id(), caller().span_id());
    }
    // A second child of that id attaches to nothing: the first one has ended and another begins.
    assert_eq!(trace_of(&runtime, "label").await.1, Some(operation(last, 2)));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn attempts_of_one_call_have_one_place_also_after_a_restart() {
    let (store, attempts) = (Store::new(), Attempts::default());
    let (told, mut begun) = mpsc::unbounded_channel();
    let waits = {
        let attempts = Arc::clone(&attempts);
        move |cx: ActivityContext, _: u64| {
            attempts
                .lock()
                .unwrap()
                .push((cx.cause(), cx.attempt(), cx.trace()));
            told.send(()).unwrap();
            std::future::pending::<Result<u64, ActivityError>>()
        }
    };
    let mut config = RuntimeConfig::default();
    config.shutdown_grace = std::time::Duration::ZERO;
    let runtime = store
        .bare()
        .config(config)
        .register(PARCEL, parcel)
        .register(PRINT, waits);
    let runtime = runtime.start().await.unwrap();
    runtime.start(PARCEL, "parcel", 3).traced(caller()).await.unwrap();
    begun.recv().await.unwrap();
    runtime.shutdown().await.unwrap();
    drop(runtime);

    let runtime = builder(&store, &attempts).start().await.unwrap();
    let parcel = runtime.attach(PARCEL, "parcel").unwrap();
    assert_eq!(parcel.result().await.unwrap(), 3);
    let attempts = attempts.lock().unwrap().clone();
    let [(call, 1, first), (same, again, second)] = attempts[..] else {
        panic!("{attempts:?}");
    };
    assert!(again > 1 && call == same);
    assert_eq!((first, second), (Some(caller().at_operation(call)), first));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_start_that_attaches_leaves_the_trace_of_the_run_alone_and_one_without_has_none() {
    let (store, attempts) = (Store::new(), Attempts::default());
    let runtime = builder(&store, &attempts).start().await.unwrap();
    runtime.start(PARCEL, "parcel", 3).await.unwrap();
    runtime.start(PARCEL, "parcel", 3).traced(caller()).await.unwrap();
    assert_eq!(trace_of(&runtime, "parcel").await.1, None);
    let parcel = runtime.attach(PARCEL, "parcel").unwrap();
    assert_eq!(parcel.result().await.unwrap(), 3);
    assert_eq!(attempts.lock().unwrap()[0].2, None);
    assert_eq!(trace_of(&runtime, "label").await.1, None);
    let again = runtime.start(PARCEL, "parcel", 3).traced(caller());
    let again = again.on_conflict(OnConflict::RestartFinished).await.unwrap();
    assert_eq!(again.result().await.unwrap(), 3);
    assert_eq!(trace_of(&runtime, "parcel").await.1, Some(caller()));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_program_of_its_own_hands_a_trace_to_a_trigger() {
    let (store, attempts) = (Store::new(), Attempts::default());
    let runtime = builder(&store, &attempts).start().await.unwrap();
    let trigger = runtime
        .on(PLACED)
        .start(LABEL, |placed| ("label".into(), *placed.payload()))
        .unwrap();
    let topic = runtime.broker().topic::<u64>(PLACED.name()).unwrap();
    topic
        .publish_with(Headers::new().trace(caller()), 1)
        .await
        .unwrap();
    while trigger.handled() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(trace_of(&runtime, "label").await.1, Some(caller()));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_share_of_the_runs_begins_a_trace_of_its_own_which_their_ids_decide() {
    let traced = async |per_million: u32| {
        let (store, attempts) = (Store::new(), Attempts::default());
        let mut config = RuntimeConfig::default();
        config.traced_per_million = per_million;
        let runtime = builder(&store, &attempts).config(config).start().await.unwrap();
        let mut chosen = 0;
        for number in 0..400 {
            let id = number.to_string();
            runtime.start(LABEL, &id, number).await.unwrap();
            let (run, trace) = trace_of(&runtime, &id).await;
            let share = SpanId::of_run(run).bits() % 1_000_000;
            assert_eq!(trace.is_some(), share < u64::from(per_million));
            if let Some(trace) = trace {
                assert_eq!(trace, TraceContext::beginning_with(run));
                assert_eq!(
                    (trace.trace_id(), trace.is_sampled()),
                    (TraceId::of_run(run), true)
                );
                chosen += 1;
            }
        }
        // A caller decides for its own runs.
        let unrecorded: TraceContext = HEADER.replace("-01", "-00").parse().unwrap();
        runtime
            .start(LABEL, "unrecorded", 1)
            .traced(unrecorded)
            .await
            .unwrap();
        assert_eq!(trace_of(&runtime, "unrecorded").await.1, Some(unrecorded));
        runtime.shutdown().await.unwrap();
        chosen
    };
    assert_eq!((traced(0).await, traced(1_000_000).await), (0, 400));
    let half = traced(500_000).await;
    assert!((100..300).contains(&half), "{half}");
    let mut config = RuntimeConfig::default();
    config.traced_per_million = 1_000_001;
    let refused = Runtime::volatile().config(config).start().await;
    assert!(matches!(
        refused,
        Err(OpenError::Config {
            field: "traced_per_million",
            ..
        })
    ));
}
