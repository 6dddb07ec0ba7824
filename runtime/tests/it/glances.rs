//! Ids of which only the disk knows whether they have finished runs: what is said about one waits, in order, until a
//! reader has looked, and nothing else does.

use std::sync::Arc;

use futures_util::future::join_all;
use millrun::operating::InstanceStatus;
use millrun::store::{JournalConfig, MemoryJournal};
use millrun::{
    ChildError, OnConflict, Runtime, RuntimeConfig, Signal, StartError, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_core::InstanceId;
use millrun_persistence::Journal;

use crate::tapped::Tapped;

const GO: Signal<u64> = Signal::named("go");
const WAIT: Workflow<u64, u64> = Workflow::named("wait");
const PARENT: Workflow<String, u64> = Workflow::named("parent");
const SENDER: Workflow<String, String> = Workflow::named("sender");

async fn wait(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number + cx.receive(GO).await?)
}

async fn parent(cx: WorkflowContext, child: String) -> Result<u64, WorkflowError> {
    match cx.child(WAIT, child, 7).await {
        Ok(value) => Ok(value),
        Err(ChildError::Failed(error)) => Err(WorkflowError::failed(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

async fn sender(cx: WorkflowContext, to: String) -> Result<String, WorkflowError> {
    match cx.signal_instance(WAIT, to, GO, 1).await {
        Ok(()) => Ok("sent".into()),
        Err(error) => Ok(error.to_string()),
    }
}

/// A journal that knows nothing without a read.
fn journal() -> Arc<Tapped> {
    let journal = MemoryJournal::new(JournalConfig::default()).unwrap();
    let tapped = Tapped::new(Arc::new(journal), |journal, batch| journal.enqueue(batch));
    tapped.ask_always();
    tapped
}

/// A runtime that keeps no result at hand.
async fn runtime(journal: &Arc<Tapped>) -> Runtime {
    Runtime::volatile()
        .journal(Arc::clone(journal) as Arc<dyn Journal>)
        .configure(|config: &mut RuntimeConfig| {
            config.result_cache_len_max = 0;
            config.shards_len = 1;
        })
        .register(WAIT, wait)
        .register(PARENT, parent)
        .register(SENDER, sender)
        .start()
        .await
        .unwrap()
}

/// Runs an instance to its end.
async fn finish(runtime: &Runtime, id: &str, number: u64) -> u64 {
    let run = runtime.start(WAIT, id, number).await.unwrap();
    run.signal(GO, 1).await.unwrap();
    run.result().await.unwrap()
}

/// Waits until `reads` reads are held up.
async fn held_up(journal: &Tapped, reads: usize) {
    while journal.waiting_reads() < reads {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_finished_run_that_only_the_disk_knows_is_in_the_way_as_any_other() {
    let journal = journal();
    let runtime = runtime(&journal).await;
    assert_eq!(finish(&runtime, "w", 1).await, 2);
    let refused = runtime
        .start(WAIT, "w", 2)
        .on_conflict(OnConflict::Refuse)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, StartError::AlreadyFinished { .. }),
        "{refused:?}"
    );
    let attached = runtime.start(WAIT, "w", 2).on_conflict(OnConflict::Attach);
    assert_eq!(attached.await.unwrap().result().await.unwrap(), 2);
    let again = runtime
        .start(WAIT, "w", 2)
        .on_conflict(OnConflict::RestartFinished)
        .await
        .unwrap();
    again.signal(GO, 10).await.unwrap();
    assert_eq!(again.result().await.unwrap(), 12);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn of_several_starts_that_wait_for_a_read_the_first_begins_the_run() {
    let journal = journal();
    let runtime = runtime(&journal).await;
    journal.slow_down_id("w");
    let start = |number: u64| {
        let runtime = runtime.clone();
        tokio::spawn(async move {
            let start = runtime.start(WAIT, "w", number);
            let started = start.on_conflict(OnConflict::Refuse).await;
            started.map(|run| run.run_id())
        })
    };
    let first = start(0);
    held_up(&journal, 1).await;
    let others: Vec<_> = (1..5).map(start).collect();
    // What is about another id does not wait.
    assert_eq!(finish(&runtime, "other", 1).await, 2);
    assert!(!first.is_finished());
    journal.let_go();
    let began = first.await.unwrap().unwrap();
    for other in join_all(others).await {
        match other.unwrap() {
            Err(StartError::AlreadyRunning { run }) => assert_eq!(Some(run), began),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(runtime.stats().started, 2);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_said_of_an_id_behind_its_start_comes_to_the_run_that_this_begins() {
    let journal = journal();
    let runtime = runtime(&journal).await;
    journal.slow_down_id("w");
    let starting = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.start(WAIT, "w", 1).await.unwrap() }
    });
    held_up(&journal, 1).await;
    let signalling = tokio::spawn({
        let named = runtime.attach(WAIT, "w").unwrap();
        async move { named.signal(GO, 4).await }
    });
    let sending = runtime.start(SENDER, "s", "w".to_string()).await.unwrap();
    // What was sent before this is in the shard's hands when it has ended.
    assert_eq!(finish(&runtime, "behind", 1).await, 2);
    journal.let_go();
    let run = starting.await.unwrap();
    let signalled = signalling.await.unwrap();
    let sent = sending.result().await.unwrap();
    // The first of the two ends the run; the other may come behind that.
    assert!(
        [2, 5].contains(&run.result().await.unwrap()),
        "{signalled:?}, {sent}"
    );
    assert!(signalled.is_ok() || sent == "sent", "{signalled:?}, {sent}");
    assert!(!sent.contains("there is no instance"), "{sent}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_takes_the_id_of_a_run_that_has_ended_and_is_begun_once() {
    let journal = journal();
    let runtime = runtime(&journal).await;
    assert_eq!(finish(&runtime, "c", 1).await, 2);
    journal.slow_down_id("c");
    let run = runtime.start(PARENT, "p", "c".to_string()).await.unwrap();
    held_up(&journal, 1).await;
    journal.let_go();
    let child = runtime.attach(WAIT, "c").unwrap();
    while child.describe().await.unwrap().status != InstanceStatus::Running {
        tokio::task::yield_now().await;
    }
    child.signal(GO, 3).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 10);
    assert_eq!(runtime.stats().started, 3);
    runtime.shutdown().await.unwrap();
}

/// A parent was cancelled while a reader looked for a former run of its child's id. That it waits no longer overtook
/// the child, which was begun behind it, for nobody, and ran on.
#[tokio::test]
async fn a_child_whose_parent_gives_up_while_its_id_is_read_does_not_run_on() {
    let journal = journal();
    let runtime = runtime(&journal).await;
    assert_eq!(finish(&runtime, "c", 1).await, 2);
    journal.slow_down_id("c");
    let run = runtime.start(PARENT, "p", "c".to_string()).await.unwrap();
    held_up(&journal, 1).await;
    run.cancel("not wanted").await.unwrap();
    assert!(run.result().await.is_err());
    // Behind what the parent has said of its child.
    assert_eq!(finish(&runtime, "behind", 1).await, 2);
    journal.let_go();
    while runtime.stats().started < 4 {
        tokio::task::yield_now().await;
    }
    assert!(runtime.list(None, 10).await.unwrap().is_empty());
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_start_that_waits_for_a_read_is_told_that_its_partition_has_moved() {
    let journal = journal();
    let runtime = runtime(&journal).await;
    journal.slow_down_id("w");
    let starting = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.start(WAIT, "w", 1).await.map(|run| run.run_id()) }
    });
    held_up(&journal, 1).await;
    let partition = InstanceId::new("w").unwrap().partition();
    runtime.partitions().release(&[partition]);
    let refused = starting.await.unwrap().unwrap_err();
    assert!(
        matches!(refused, StartError::Moved { partition: of, .. } if of == partition),
        "{refused:?}"
    );
    assert_eq!(
        runtime.partitions().claim(&[partition]).await.unwrap(),
        [partition]
    );
    // The answer to what was asked before is nobody's.
    journal.let_go();
    assert_eq!(finish(&runtime, "w", 5).await, 6);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn more_starts_than_may_wait_for_reads_wait_outside_and_all_are_answered() {
    let journal = journal();
    let runtime = Runtime::volatile()
        .journal(Arc::clone(&journal) as Arc<dyn Journal>)
        .configure(|config: &mut RuntimeConfig| {
            config.shards_len = 1;
            config.shard_queue_len_max = 4;
            config.loads_in_flight_max = 1;
        })
        .register(WAIT, wait)
        .start()
        .await
        .unwrap();
    journal.slow_down_id("w-0");
    let starts = (0..40).map(|number| {
        let runtime = runtime.clone();
        tokio::spawn(async move {
            let start = runtime.start(WAIT, &format!("w-{}", number % 10), number);
            start.on_conflict(OnConflict::Refuse).await.is_ok()
        })
    });
    let starts: Vec<_> = starts.collect();
    held_up(&journal, 1).await;
    journal.let_go();
    let begun = join_all(starts).await;
    assert_eq!(
        begun.into_iter().filter(|begun| *begun.as_ref().unwrap()).count(),
        10
    );
    assert_eq!(runtime.stats().started, 10);
    runtime.shutdown().await.unwrap();
}
