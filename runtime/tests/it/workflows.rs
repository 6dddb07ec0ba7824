//! Starts, results, signals, timers, cancelling: what a workflow and its caller say to each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrun::store::MemoryJournal;
use millrun::workflow::Either;
use millrun::{
    OnConflict, ResultError, RunError, Runtime, Signal, StartError, Workflow, WorkflowContext, WorkflowError,
};

use millrun_persistence::JournalConfig;

use crate::support::{DOUBLE, QUADRUPLE, Store, described};
use crate::tapped::Tapped;

const APPROVED: Signal<String> = Signal::named("approved");
const WAIT: Workflow<u64, String> = Workflow::named("wait");
const COLLECT: Workflow<usize, Vec<String>> = Workflow::named("collect");
const CLEAN_UP: Workflow<u64, u64> = Workflow::named("clean-up");
const FAN_OUT: Workflow<u64, u64> = Workflow::named("fan-out");

/// Waits for an approval, at most `patience_ms` milliseconds.
async fn wait(cx: WorkflowContext, patience_ms: u64) -> Result<String, WorkflowError> {
    match cx
        .race(cx.receive(APPROVED), cx.sleep(Duration::from_millis(patience_ms)))
        .await
    {
        Either::Left(approval) => Ok(approval?),
        Either::Right(slept) => slept.map(|()| "too late".to_string()).map_err(Into::into),
    }
}

async fn collect(cx: WorkflowContext, len: usize) -> Result<Vec<String>, WorkflowError> {
    let mut all = Vec::new();
    for _ in 0..len {
        all.push(cx.receive(APPROVED).await?);
    }
    Ok(all)
}

/// Waits until it is cancelled, then does one last thing.
async fn clean_up(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let waited = cx.sleep(Duration::from_secs(3_600)).await;
    let doubled = cx.shielded().call(DOUBLE, number).await?;
    assert_eq!(doubled, number * 2);
    waited?;
    Ok(doubled)
}

async fn fan_out(cx: WorkflowContext, width: u64) -> Result<u64, WorkflowError> {
    let mut sum = 0;
    for doubled in cx
        .join_all((0..width).map(|number| cx.call(DOUBLE, number)))
        .await
    {
        sum += doubled?;
    }
    Ok(sum)
}

async fn started(store: &Store) -> Runtime {
    let builder = store.open().register(WAIT, wait).register(COLLECT, collect);
    builder
        .register(CLEAN_UP, clean_up)
        .register(FAN_OUT, fan_out)
        .start()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_workflow_runs_to_its_result_on_one_thread() {
    let store = Store::new();
    let runtime = started(&store).await;
    let run = runtime.start(QUADRUPLE, "q-1", 5).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 20);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_workflows_run_to_their_results_on_several_threads() {
    let store = Store::new();
    let runtime = started(&store).await;
    let mut tasks = Vec::new();
    for number in 0..1_000_u64 {
        let runtime = runtime.clone();
        tasks.push(tokio::spawn(async move {
            let run = runtime
                .start(QUADRUPLE, &format!("q-{number}"), number)
                .await
                .unwrap();
            assert_eq!(run.result().await.unwrap(), number * 4);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let stats = runtime.stats();
    assert_eq!((stats.started, stats.finished, stats.live), (1_000, 1_000, 0));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_volatile_runtime_runs_workflows_too() {
    let store = Store::new();
    let runtime = Runtime::volatile()
        .register(DOUBLE, crate::support::double)
        .register(QUADRUPLE, crate::support::quadruple)
        .start()
        .await
        .unwrap();
    let run = runtime.start(QUADRUPLE, "q", 1).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 4);
    assert!(!store.path().exists());
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn several_shards_share_the_instances() {
    let store = Store::new();
    let runtime = store
        .open()
        .configure(|config| config.shards_len = 3)
        .start()
        .await
        .unwrap();
    for number in 0..50 {
        let run = runtime
            .start(QUADRUPLE, &format!("q-{number}"), number)
            .await
            .unwrap();
        assert_eq!(run.result().await.unwrap(), number * 4);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_fan_out_gives_all_results_in_order() {
    let store = Store::new();
    let runtime = started(&store).await;
    let run = runtime.start(FAN_OUT, "f", 1_000).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 999 * 1_000);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_signal_wins_against_a_timer_and_the_timer_against_silence() {
    let store = Store::new();
    let runtime = started(&store).await;
    let approved = runtime.start(WAIT, "approved", 3_600_000).await.unwrap();
    approved.signal(APPROVED, "yes".into()).await.unwrap();
    assert_eq!(approved.result().await.unwrap(), "yes");
    let ignored = runtime.start(WAIT, "ignored", 1).await.unwrap();
    assert_eq!(ignored.result().await.unwrap(), "too late");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn signals_arrive_in_order_and_none_is_lost() {
    let store = Store::new();
    let runtime = started(&store).await;
    let run = runtime.start(COLLECT, "c", 100).await.unwrap();
    for number in 0..100 {
        run.signal(APPROVED, number.to_string()).await.unwrap();
    }
    let expected: Vec<_> = (0..100).map(|number: u64| number.to_string()).collect();
    assert_eq!(run.result().await.unwrap(), expected);
    assert!(matches!(
        run.signal(APPROVED, "late".into()).await,
        Err(RunError::Finished)
    ));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn signals_sent_at_once_become_durable_together_and_stay_in_order() {
    let batches = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&batches);
    let journal = MemoryJournal::new(JournalConfig::default()).unwrap();
    let journal = Tapped::new(Arc::new(journal), move |journal, batch| {
        counter.fetch_add(u64::from(!batch.is_empty()), Ordering::SeqCst);
        journal.enqueue(batch)
    });
    let builder = Runtime::volatile().register(COLLECT, collect);
    let runtime = builder.journal(journal).start().await.unwrap();
    let run = runtime.start(COLLECT, "c", 500).await.unwrap();
    let before = batches.load(Ordering::SeqCst);
    // The futures are polled in their order, so that is the order of the requests.
    let sent = (0..500_u64).map(|number| run.signal(APPROVED, number.to_string()));
    for answer in futures_util::future::join_all(sent).await {
        answer.unwrap();
    }
    let batches = batches.load(Ordering::SeqCst) - before;
    assert!(batches <= 20, "{batches} batches");
    let expected: Vec<_> = (0..500_u64).map(|number| number.to_string()).collect();
    assert_eq!(run.result().await.unwrap(), expected);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn starting_twice_attaches_or_is_refused_as_asked() {
    let store = Store::new();
    let runtime = started(&store).await;
    let first = runtime.start(WAIT, "w", 3_600_000).await.unwrap();
    let again = runtime.start(WAIT, "w", 1).await.unwrap();
    assert_eq!(again.run_id(), first.run_id());
    let refused = runtime
        .start(WAIT, "w", 1)
        .on_conflict(OnConflict::Refuse)
        .await
        .unwrap_err();
    assert!(matches!(refused, StartError::AlreadyRunning { run } if Some(run) == first.run_id()));
    let other = runtime.start(QUADRUPLE, "w", 1).await.unwrap_err();
    assert!(
        matches!(other, StartError::OtherWorkflow { expected, workflow } if expected == "quadruple" && workflow == "wait")
    );

    first.signal(APPROVED, "yes".into()).await.unwrap();
    assert_eq!(first.result().await.unwrap(), "yes");
    let finished = runtime.start(WAIT, "w", 1).await.unwrap();
    assert_eq!(
        (finished.run_id(), finished.result().await.unwrap()),
        (first.run_id(), "yes".into())
    );
    let refused = runtime
        .start(WAIT, "w", 1)
        .on_conflict(OnConflict::Refuse)
        .await
        .unwrap_err();
    assert!(matches!(refused, StartError::AlreadyFinished { .. }));
    let anew = runtime
        .start(WAIT, "w", 1)
        .on_conflict(OnConflict::RestartFinished)
        .await
        .unwrap();
    assert_ne!(anew.run_id(), first.run_id());
    assert_eq!(anew.result().await.unwrap(), "too late");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_run_cleans_up_first() {
    let store = Store::new();
    let runtime = started(&store).await;
    let run = runtime.start(CLEAN_UP, "c", 21).await.unwrap();
    run.cancel("no longer needed").await.unwrap();
    run.cancel("asking twice is asking once")
        .await
        .unwrap_or_default();
    let error = run.result().await.unwrap_err();
    assert!(matches!(&error, ResultError::Cancelled(_)), "{error}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_terminated_run_ends_at_once() {
    let store = Store::new();
    let runtime = started(&store).await;
    let run = runtime.start(CLEAN_UP, "c", 21).await.unwrap();
    run.terminate("operator").await.unwrap();
    let error = run.result().await.unwrap_err();
    assert!(matches!(error, ResultError::Terminated { reason } if reason == "operator"));
    assert!(matches!(run.terminate("again").await, Err(RunError::Finished)));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_a_run_waits_for_can_be_seen() {
    let store = Store::new();
    let runtime = started(&store).await;
    let run = runtime.start(WAIT, "w", 3_600_000).await.unwrap();
    let description = described(&run, |_| true).await;
    assert!(description.awaits("approved"), "{description:?}");
    assert_eq!(description.pending.len(), 1);
    assert_eq!(description.workflow, "wait");
    let listed = runtime.list(None, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(Some(listed[0].run), run.run_id());
    let behind = runtime.list(Some(&listed[0].id), 10).await.unwrap();
    assert!(behind.is_empty());
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn bad_ids_and_values_are_refused_with_a_reason() {
    let store = Store::new();
    let runtime = started(&store).await;
    assert!(matches!(
        runtime.start(QUADRUPLE, "", 1).await,
        Err(StartError::Id(_))
    ));
    assert!(matches!(
        runtime.start(QUADRUPLE, &"x".repeat(256), 1).await,
        Err(StartError::Id(_))
    ));
    const ECHO: Workflow<String, String> = Workflow::named("echo");
    let large = runtime.start(ECHO, "e", "x".repeat(2 << 20)).await.unwrap_err();
    assert!(matches!(
        large,
        StartError::TooLarge {
            bytes_max: 1_048_576,
            ..
        }
    ));
    let unknown = runtime.attach(QUADRUPLE, "nobody").unwrap();
    assert!(matches!(
        unknown.result().await,
        Err(ResultError::Run(RunError::NotFound))
    ));
    assert!(matches!(unknown.describe().await, Err(RunError::NotFound)));
    runtime.shutdown().await.unwrap();
}
