//! Why a runtime has ended: logged once, told to each caller, and awaited by code that holds no handle.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::{Runtime, StartError, StopCause, Workflow, WorkflowContext, WorkflowError};
use millrun_persistence::FailureKind;

use crate::elsewhere::HANGS_AFTER;
use crate::logged::listen_for;

use super::{GO, TALLY, code};

/// The failure whose logging is tested. No other test of this process has one with this text.
const FAILURE: &str = "no space left on the disk of this test";

/// A full disk stopped the runtime, and nothing was logged, awaited or told but "the runtime has stopped". A
/// test asked for the cause's type, which was there, and none read what people read.
#[tokio::test]
async fn a_failure_is_logged_once_with_its_cause_and_can_be_awaited() {
    for shards_len in [1, 3] {
        let errors = listen_for(FAILURE);
        let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
        let builder = code(Runtime::volatile()).journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let builder = builder.configure(|config| config.shards_len = shards_len);
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(TALLY, "t", 1).await.unwrap();
        let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(runtime.stopped())).collect();
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        assert!(runtime.stop_cause().is_none());
        journal.fail(FailureKind::Io(std::io::ErrorKind::StorageFull), FAILURE);
        // Nobody asks the runtime anything meanwhile.
        for waiting in waiting {
            let cause = waiting.await.unwrap();
            assert!(matches!(&cause, StopCause::Journal(_)), "{cause:?}");
            assert!(cause.to_string().contains(FAILURE), "{cause}");
        }
        let error = run.signal(GO, 1).await.unwrap_err();
        assert!(error.to_string().contains(FAILURE), "{error}");
        assert!(matches!(runtime.stopped().await, StopCause::Journal(_)));
        runtime.shutdown().await.unwrap_err();
        drop((run, runtime));
        let logged = errors.lock().unwrap().clone();
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert!(logged[0].contains("the runtime has stopped"), "{logged:?}");
    }
}

/// Of a journal that fails while its only shard is blocked, no shard notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_noticed_while_code_blocks_its_shard() {
    const BLOCKS: Workflow<u64, u64> = Workflow::named("blocks");
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (begins, has_begun) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let blocks = move |_: WorkflowContext, first: u64| {
        let (released, begins) = (Arc::clone(&released), begins.clone());
        async move {
            begins.send(()).unwrap();
            released.lock().unwrap().recv().unwrap_or_default();
            Ok::<_, WorkflowError>(first)
        }
    };
    let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
    let builder = Runtime::volatile().journal(Arc::clone(&journal) as Arc<dyn Journal>);
    let builder = builder.configure(|config| config.turn_warn = Duration::from_millis(20));
    let runtime = builder.register(BLOCKS, blocks).start().await.unwrap();
    let asking = runtime.clone();
    let start = tokio::spawn(async move { asking.start(BLOCKS, "b", 1).await });
    has_begun.recv_timeout(HANGS_AFTER).unwrap();
    journal.fail(FailureKind::Io(std::io::ErrorKind::Other), "the disk is gone");
    let cause = tokio::time::timeout(HANGS_AFTER, runtime.stopped())
        .await
        .unwrap();
    assert!(matches!(cause, StopCause::Journal(_)), "{cause:?}");
    let start = tokio::time::timeout(HANGS_AFTER, start).await.unwrap().unwrap();
    assert!(
        matches!(start, Err(StartError::Stopped(StopCause::Journal(_)))),
        "{start:?}"
    );
    release.send(()).unwrap();
}

#[tokio::test]
async fn whoever_awaits_the_end_does_not_keep_the_runtime_alive() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let stopped = tokio::spawn(runtime.stopped());
    let late = runtime.stopped();
    drop(runtime);
    assert!(matches!(stopped.await.unwrap(), StopCause::Shutdown));
    assert!(matches!(late.await, StopCause::Shutdown));
}
