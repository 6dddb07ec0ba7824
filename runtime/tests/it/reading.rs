//! Reads that take long: callers that want something else do not wait for them.

use std::sync::Arc;

use millrun::operating::InstanceStatus;
use millrun::{
    OpenError, RunError, RunHandle, Runtime, RuntimeConfig, Signal, Workflow, WorkflowContext, WorkflowError,
};
use millrun_persistence::{Journal, JournalConfig, MemoryJournal};

use crate::tapped::Tapped;

const GO: Signal<u64> = Signal::named("go");
const WAIT: Workflow<(), u64> = Workflow::named("wait");

async fn wait(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    Ok(cx.receive(GO).await? + cx.receive(GO).await?)
}

fn journal() -> Arc<Tapped> {
    let journal = MemoryJournal::new(JournalConfig::default()).unwrap();
    Tapped::new(Arc::new(journal), |journal, batch| journal.enqueue(batch))
}

/// A runtime that keeps no instance in memory, and reads `readers_len` histories at once.
async fn runtime(journal: &Arc<Tapped>, readers_len: usize) -> Runtime {
    Runtime::volatile()
        .journal(Arc::clone(journal) as Arc<dyn Journal>)
        .configure(|config: &mut RuntimeConfig| {
            config.hot_len_max = 0;
            config.result_cache_len_max = 0;
            config.readers_len = readers_len;
        })
        .register(WAIT, wait)
        .start()
        .await
        .unwrap()
}

/// Waits until `reads` reads are held up.
async fn held_up(journal: &Tapped, reads: usize) {
    while journal.waiting_reads() < reads {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_history_that_is_read_slowly_holds_up_no_other() {
    let journal = journal();
    let runtime = runtime(&journal, 2).await;
    let mut runs = Vec::new();
    for number in 0..20 {
        let run = runtime.start(WAIT, &format!("w-{number}"), ()).await.unwrap();
        run.signal(GO, number).await.unwrap();
        runs.push(run);
    }
    let (slow, others) = runs.split_first().unwrap();
    journal.slow_down(slow.run_id().unwrap());
    let waking = {
        let slow = slow.clone();
        tokio::spawn(async move {
            slow.signal(GO, 100).await.unwrap();
            slow.result().await.unwrap()
        })
    };
    held_up(&journal, 1).await;
    for (number, run) in (1..).zip(others) {
        run.signal(GO, 100).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 100 + number);
        let described = run.describe().await.unwrap();
        assert_eq!(described.status, InstanceStatus::Finished);
    }
    assert_eq!(runtime.list_finished(None, 100).await.unwrap().len(), 19);
    assert!(!waking.is_finished());
    journal.let_go();
    assert_eq!(waking.await.unwrap(), 100);
    assert_eq!(runtime.list_finished(None, 100).await.unwrap().len(), 20);
    runtime.shutdown().await.unwrap();
}

/// Many runs that are woken at once are read together. One of them takes long.
#[tokio::test]
async fn among_many_histories_that_wait_one_that_is_read_slowly_holds_up_no_other() {
    let journal = journal();
    let runtime = runtime(&journal, 2).await;
    let mut runs = Vec::new();
    for number in 0..40 {
        let run = runtime.start(WAIT, &format!("w-{number}"), ()).await.unwrap();
        run.signal(GO, number).await.unwrap();
        runs.push(run);
    }
    let waking = |run: &RunHandle<u64>| {
        let run = run.clone();
        tokio::spawn(async move {
            run.signal(GO, 100).await.unwrap();
            run.result().await.unwrap()
        })
    };
    // Two readers, and a history for each: all others wait.
    let ids: Vec<_> = runs.iter().map(|run| run.run_id().unwrap()).collect();
    for slow in &ids[..3] {
        journal.slow_down(*slow);
    }
    let (first, second) = (waking(&runs[0]), waking(&runs[1]));
    held_up(&journal, 2).await;
    let third = waking(&runs[2]);
    let others: Vec<_> = runs[3..].iter().map(waking).collect();
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    journal.let_go_of(ids[0]);
    journal.let_go_of(ids[1]);
    for (number, other) in (3..).zip(others) {
        assert_eq!(other.await.unwrap(), 100 + number);
    }
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (100, 101));
    assert!(!third.is_finished());
    journal.let_go();
    assert_eq!(third.await.unwrap(), 102);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_finds_all_readers_busy_is_read_when_one_is_free() {
    let journal = journal();
    let runtime = runtime(&journal, 3).await;
    let mut runs = Vec::new();
    for number in 0..8 {
        let run = runtime.start(WAIT, &format!("w-{number}"), ()).await.unwrap();
        run.signal(GO, number).await.unwrap();
        journal.slow_down(run.run_id().unwrap());
        runs.push(run);
    }
    let waking: Vec<_> = runs
        .into_iter()
        .map(|run| {
            tokio::spawn(async move {
                run.signal(GO, 10).await.unwrap();
                run.result().await.unwrap()
            })
        })
        .collect();
    held_up(&journal, 3).await;
    // Requests that need no reader are taken meanwhile.
    let other = runtime.start(WAIT, "other", ()).await.unwrap();
    assert_eq!(journal.waiting_reads(), 3, "one for each reader");
    journal.let_go();
    for (number, waking) in (0..).zip(waking) {
        assert_eq!(waking.await.unwrap(), 10 + number);
    }
    other.signal(GO, 1).await.unwrap();
    runtime.shutdown().await.unwrap();
}

/// The story: such a run was listed as parked and not counted. When it was read again, or its shard went, one was taken
/// from the count, which then stood at 18,446,744,073,709,551,615.
#[tokio::test]
async fn a_run_whose_history_cannot_be_read_is_counted_as_parked_once() {
    let mut config = JournalConfig::default();
    config.history_bytes_max = 64;
    let journal = MemoryJournal::new(config).unwrap();
    let journal = Tapped::new(Arc::new(journal), |journal, batch| journal.enqueue(batch));
    let runtime = runtime(&journal, 1).await;
    let run = runtime.start(WAIT, "unread", ()).await.unwrap();
    for _ in 0..3 {
        let refused = run.signal(GO, 1).await;
        assert!(matches!(refused, Err(RunError::Read(_))), "{refused:?}");
        assert_eq!(runtime.stats().parked, 1);
    }
    let listed = runtime.list(None, 10).await.unwrap();
    assert_eq!(listed[0].status, InstanceStatus::Parked);
    runtime.shutdown().await.unwrap();
    assert_eq!(runtime.stats().parked, 0);
}

#[tokio::test]
async fn no_readers_and_too_many_are_refused() {
    for readers_len in [0, 65] {
        let builder = Runtime::volatile().configure(|config| config.readers_len = readers_len);
        match builder.start().await {
            Err(OpenError::Config { field, .. }) => assert_eq!(field, "readers_len"),
            other => panic!("{readers_len}: {other:?}"),
        }
    }
}

/// On a store that several processes share, the owner of a run may have been replaced when it is asked about it.
#[tokio::test]
async fn an_answer_that_rests_on_no_turn_waits_until_it_is_confirmed() {
    let journal = journal();
    let runtime = runtime(&journal, 1).await;
    let run = runtime.start(WAIT, "asked", ()).await.unwrap();
    journal.confirm_behind(1);
    let describing = {
        let run = run.clone();
        tokio::spawn(async move { run.describe().await.unwrap().status })
    };
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!describing.is_finished());
    // Bringing the run back waits like an answer, so only what is under way is held up.
    journal.confirm_behind(0);
    let other = runtime.start(WAIT, "other", ()).await.unwrap();
    assert_eq!(describing.await.unwrap(), InstanceStatus::Running);
    for run in [run, other] {
        run.signal(GO, 1).await.unwrap();
        run.signal(GO, 2).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
    }
    runtime.shutdown().await.unwrap();
}
