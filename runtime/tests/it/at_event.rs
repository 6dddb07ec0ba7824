//! Runs as they were at an event of their history.

use std::time::Duration;

use millrun::history::{Fit, Sequence};
use millrun::operating::{DescribedAt, InstanceDescription, InstanceStatus, ResetRefused};
use millrun::workflow::Unanswered;
use millrun::{
    Query, QueryError, RunError, RunHandle, Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_workflow::{Implementation, Limits, Payload};

use crate::support::{Store, described};

const ADD: Signal<u64> = Signal::named("add");
const COUNT: Workflow<u64, u64> = Workflow::named("count");
const SUM: Query<u64, (), u64> = Query::named("sum");

/// 1 Started, 2 and 3 the first two values, 4 the timer that the second one leads to, 5 that it has fired, 6 the last value,
/// 7 Completed.
async fn count(cx: WorkflowContext, begin: u64) -> Result<u64, WorkflowError> {
    let sum = cx.state(begin);
    for number in 0..3 {
        let more = cx.receive(ADD).await?;
        sum.change(|sum| *sum += more);
        if number == 1 {
            cx.sleep(Duration::from_millis(1)).await?;
        }
    }
    Ok(sum.read(|sum| *sum))
}

fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(COUNT.query(SUM, |sum, ()| *sum), count)
}

async fn until(run: &RunHandle<u64>, sequence: u64) -> InstanceDescription {
    described(run, |described| described.sequence.get() == sequence).await
}

async fn fits_at(run: &RunHandle<u64>, event: u64) -> InstanceDescription {
    let DescribedAt { description, fit, .. } = run.at(event).describe().await.unwrap();
    assert_eq!(fit, Fit::Fits { changed_values: 0 }, "at {event}");
    description
}

fn refused<T: std::fmt::Debug>(answer: Result<T, RunError>) -> ResetRefused {
    match answer {
        Err(RunError::NotReset(refused)) => *refused,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn at_each_event_a_run_is_described_and_answers_as_it_did_while_it_lived() {
    let store = Store::new();
    let builder = || with_code(store.open()).configure(|config| config.hot_len_max = 0);
    let runtime = builder().start().await.unwrap();
    let run = runtime.start(COUNT, "c", 1).await.unwrap();
    let mut lived = vec![until(&run, 1).await];
    run.signal(ADD, 10).await.unwrap();
    lived.push(until(&run, 2).await);
    run.signal(ADD, 20).await.unwrap();
    // What the timer does comes by itself: only what it has led to is certain to be seen.
    lived.push(until(&run, 5).await);
    for _ in 0..2 {
        for then in &lived {
            assert_eq!(fits_at(&run, then.sequence.get()).await, *then);
        }
        for (event, sum) in [(1, 1), (2, 11), (3, 31), (4, 31), (5, 31)] {
            assert_eq!(run.at(event).query(SUM, ()).await.unwrap(), sum);
        }
        // Parked, it is shown alike, and that it is parked is shown from then on.
        if lived.len() == 3 {
            run.pause("to look at it").await.unwrap();
            let paused = fits_at(&run, 6).await;
            assert_eq!(paused.status, InstanceStatus::Parked);
            let parked = run.at(6).query(SUM, ()).await;
            assert!(
                matches!(parked, Err(QueryError::Unanswered(Unanswered::Parked(_)))),
                "{parked:?}"
            );
            lived.push(paused);
        }
    }
    // Among the decisions of a turn it is shown behind them.
    for event in [3, 4] {
        let shown = fits_at(&run, event).await;
        assert_eq!(shown.sequence.get(), 4);
        assert!(shown.awaited.is_empty() && shown.pending.len() == 1, "{shown:?}");
    }
    run.resume().await.unwrap();
    run.signal(ADD, 5).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 36);
    let id = run.run_id().unwrap();
    runtime.shutdown().await.unwrap();
    // Of one that has ended, in another process; by the number of the run, and by name.
    let runtime = builder().start().await.unwrap();
    let before = runtime.export_history(id).await.unwrap().to_string();
    for then in &lived {
        let shown = runtime.run_at(id, then.sequence.get()).describe().await.unwrap();
        assert_eq!(shown.description, *then);
    }
    let untyped = runtime.attach_untyped("c").unwrap().at(2);
    let answer = untyped
        .query_untyped(SUM.name(), Payload::encode(&()).unwrap())
        .await
        .unwrap();
    assert_eq!(answer.decode::<u64>().unwrap(), 11);
    let last = runtime
        .attach(COUNT, "c")
        .unwrap()
        .at(8)
        .describe()
        .await
        .unwrap();
    assert_eq!(last.description.status, InstanceStatus::Finished);
    assert_eq!(last.description.ended_at, Some(last.description.last_at));
    assert_eq!(runtime.export_history(id).await.unwrap().to_string(), before);
    assert_eq!(
        (runtime.stats().loads, runtime.stats().hot),
        (0, 0),
        "nobody is woken"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_event_that_is_not_there_is_refused_and_so_is_a_history_that_is_too_long() {
    let builder = with_code(Runtime::volatile());
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(COUNT, "c", 1).await.unwrap();
    run.signal(ADD, 10).await.unwrap();
    until(&run, 2).await;
    let head = Sequence::new(2);
    for to in [0, 3, u64::MAX] {
        let refusal = refused(run.at(to).describe().await);
        let to = Sequence::new(to);
        assert_eq!(refusal, ResetRefused::NoEvent { to, head });
        let unanswered = run.at(to.get()).query(SUM, ()).await;
        assert!(
            matches!(unanswered, Err(QueryError::Run(RunError::NotReset(_)))),
            "{unanswered:?}"
        );
    }
    let nobody = runtime.attach(COUNT, "nobody").unwrap().at(1).describe().await;
    assert!(matches!(nobody, Err(RunError::NotFound)), "{nobody:?}");
    runtime.shutdown().await.unwrap();

    let builder = with_code(Runtime::volatile());
    let builder = builder.configure(|config| config.journal.history_bytes_max = 60);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(COUNT, "c", 1).await.unwrap();
    for _ in 0..2 {
        run.signal(ADD, 10).await.unwrap();
    }
    until(&run, 5).await;
    assert_eq!(fits_at(&run, 1).await.sequence.get(), 1);
    let too_long = run.at(5).describe().await;
    assert!(matches!(too_long, Err(RunError::Read(_))), "{too_long:?}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn before_a_trim_nothing_is_shown_and_behind_it_all_is() {
    const TRIMMED: Workflow<u64, u64> = Workflow::named("trimmed");
    async fn trimmed(cx: WorkflowContext, begin: u64) -> Result<u64, WorkflowError> {
        let sum = cx.state(cx.checkpointed().transpose()?.unwrap_or(begin));
        match cx.receive(ADD).await? {
            0 => return Ok(sum.read(|sum| *sum)),
            more => sum.change(|sum| *sum += more),
        }
        Ok(cx.checkpoint(&sum.read(|sum| *sum)).await?)
    }
    let builder = Runtime::volatile().register(TRIMMED.query(SUM, |sum, ()| *sum), trimmed);
    let builder = builder.configure(|config| config.limits.kept_beginning_every = 4);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(TRIMMED, "t", 0).await.unwrap();
    for _ in 0..20 {
        run.signal(ADD, 1).await.unwrap();
    }
    let head = described(&run, |_| true).await.sequence.get();
    let ResetRefused::Trimmed { first, .. } = refused(run.at(1).describe().await) else {
        panic!("it is all there");
    };
    assert!(first.get() > 1 && first.get() <= head);
    for event in 1..=head {
        let shown = run.at(event).query(SUM, ()).await;
        match event < first.get() {
            true => assert!(
                matches!(shown, Err(QueryError::Run(RunError::NotReset(_)))),
                "{shown:?}"
            ),
            // Each signal is followed by its checkpoint.
            false => assert_eq!(shown.unwrap(), event / 2, "at {event} of {head}"),
        }
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn code_that_does_not_fit_is_told_with_its_difference_and_what_the_history_tells() {
    async fn changed(cx: WorkflowContext, begin: u64) -> Result<u64, WorkflowError> {
        let sum = cx.state(begin);
        sum.change(|sum| *sum += 1);
        let first = cx.receive(ADD).await?;
        cx.sleep(Duration::from_secs(1)).await?;
        Ok(first)
    }
    let store = Store::new();
    let runtime = with_code(store.open()).start().await.unwrap();
    let run = runtime.start(COUNT, "c", 1).await.unwrap();
    for _ in 0..2 {
        run.signal(ADD, 10).await.unwrap();
    }
    until(&run, 5).await;
    let run = run.run_id().unwrap();
    runtime.shutdown().await.unwrap();
    let builder = store.open().register(COUNT.query(SUM, |sum, ()| *sum), changed);
    let runtime = builder.start().await.unwrap();
    let code = Implementation::new(COUNT, changed);
    let exported = runtime.export_history(run).await.unwrap();
    let whole = exported.fit(Some(&code), Limits::default()).unwrap();
    assert!(matches!(whole, Fit::Differs(_)), "{whole:?}");
    assert_eq!(runtime.run_at(run, 1).query(SUM, ()).await.unwrap(), 2);
    let shown = runtime.run_at(run, 5).describe().await.unwrap();
    assert_eq!(shown.fit, whole);
    assert_eq!(shown.description.sequence.get(), 5);
    assert!(!shown.description.is_in_memory && shown.description.awaited.is_empty());
    let unanswered = runtime.run_at(run, 5).query(SUM, ()).await;
    assert!(
        matches!(unanswered, Err(QueryError::Unanswered(Unanswered::Parked(_)))),
        "{unanswered:?}"
    );
    runtime.shutdown().await.unwrap();
    // Without code the history tells what it can.
    let runtime = store.open().start().await.unwrap();
    let shown = runtime.run_at(run, 2).describe().await.unwrap();
    assert!(matches!(shown.fit, Fit::NoCode { .. }), "{:?}", shown.fit);
    assert_eq!(shown.description.status, InstanceStatus::NotRegistered);
    runtime.shutdown().await.unwrap();
}
