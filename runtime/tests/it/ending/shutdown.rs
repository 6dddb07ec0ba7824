//! Shutting down: within one bound, on any executor, and with a report of what was left behind.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use millrun::host::{HostConfig, TokioHost};
use millrun::store::{Journal, JournalConfig, MemoryJournal, RedbJournal};
use millrun::{
    OpenError, ResultError, RunError, Runtime, StartError, StopCause, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_persistence::{Disk, FileDisk};
use millrun_testkit::{SimConfig, SimHost};
use tokio::runtime::Builder;

use crate::elsewhere::{Executor, HANGS_AFTER, on_thread};
use crate::support::Store;
use crate::tapped::Tapped;

use super::{GO, TALLY, code};

/// A shutdown that a plain thread awaited panicked: it used a timer of tokio's where there was none.
#[test]
fn a_shutdown_may_be_awaited_anywhere_also_while_nobody_drives_the_host() {
    for executor in Executor::ALL {
        let tokio = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let tokio = tokio.unwrap();
        let runtime = tokio.block_on(code(Runtime::volatile()).start()).unwrap();
        let (report, runtime) = on_thread("shutdown", move || {
            (executor.block_on(runtime.shutdown()), runtime)
        });
        assert!(report.unwrap().left_behind.is_empty());
        assert!(matches!(runtime.stop_cause(), Some(StopCause::Shutdown)));

        // Nobody drives this one: its shard does not run, and says so.
        let tokio = Builder::new_current_thread().enable_all().build().unwrap();
        let builder = code(Runtime::volatile()).configure(|config| {
            config.shutdown_grace = Duration::from_millis(1);
            config.shutdown_wait_max = Duration::from_millis(50);
        });
        let runtime = tokio.block_on(builder.start()).unwrap();
        let (report, runtime) = on_thread("shutdown of one that nobody drives", move || {
            (executor.block_on(runtime.shutdown()), runtime)
        });
        let left: Vec<_> = report.unwrap().left_behind;
        assert!(
            left.iter()
                .any(|left| left.part == "shard 0" && left.run.is_none()),
            "{left:?}"
        );
        on_thread("drop", move || drop(runtime));
    }
}

/// Workflow code that blocked its shard held a shutdown up for a minute, which then reported that all was
/// well; the callers that had started the run, or asked the shard, were never answered. Our tests shut down a shard
/// that was stuck in a seeded world, where nothing can be in its hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_names_the_code_that_blocks_and_answers_its_callers() {
    const BLOCKS: Workflow<u64, u64> = Workflow::named("blocks");
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (begins, has_begun) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let blocks = move |cx: WorkflowContext, first: u64| {
        let (released, begins) = (Arc::clone(&released), begins.clone());
        async move {
            let more = cx.receive(GO).await?;
            begins.send(()).unwrap();
            released.lock().unwrap().recv().unwrap_or_default();
            Ok::<_, WorkflowError>(first + more)
        }
    };
    for turn_warn in [Duration::from_secs(1), Duration::ZERO] {
        let builder = code(Runtime::volatile()).register(BLOCKS, blocks.clone());
        let runtime = builder.configure(|config| {
            config.turn_warn = turn_warn;
            config.shutdown_grace = Duration::from_millis(1);
            config.shutdown_wait_max = Duration::from_millis(200);
        });
        let runtime = runtime.start().await.unwrap();
        let run = runtime.start(BLOCKS, "b", 1).await.unwrap();
        let other = runtime.start(TALLY, "other", 1).await.unwrap();
        let in_turn = tokio::spawn({
            let run = run.clone();
            async move { run.signal(GO, 1).await }
        });
        has_begun.recv_timeout(HANGS_AFTER).unwrap();
        let results = [run.clone(), other.clone()].map(|run| tokio::spawn(async move { run.result().await }));
        let queued = tokio::spawn({
            let other = other.clone();
            async move { other.signal(GO, 1).await }
        });
        let told_end = tokio::spawn({
            let id = run.run_id();
            async move { (run.result().await, id) }
        });
        let closing = runtime.clone();
        let report = tokio::time::timeout(HANGS_AFTER, closing.shutdown()).await;
        let left = report.expect("the shutdown hangs").unwrap().left_behind;
        let (result, id) = tokio::time::timeout(HANGS_AFTER, told_end)
            .await
            .unwrap()
            .unwrap();
        assert!(
            left.iter().any(|left| left.part == "shard 0" && left.run == id),
            "{left:?}"
        );
        assert!(matches!(
            result,
            Err(ResultError::Run(RunError::Stopped(StopCause::Shutdown)))
        ));
        for result in results {
            let result = tokio::time::timeout(HANGS_AFTER, result).await.unwrap().unwrap();
            assert!(matches!(
                result,
                Err(ResultError::Run(RunError::Stopped(StopCause::Shutdown)))
            ));
        }
        for told in [in_turn, queued] {
            let told = tokio::time::timeout(HANGS_AFTER, told).await.unwrap().unwrap();
            assert!(
                matches!(told, Err(RunError::Stopped(StopCause::Shutdown))),
                "{told:?}"
            );
        }
        release.send(()).unwrap();
    }
}

/// A disk that did not answer took each of a shutdown's waits to its end, one after the other: 90 s. In virtual
/// time the whole takes as long as the one bound says, and no longer.
#[test]
fn a_shutdown_on_a_disk_that_does_not_answer_takes_no_longer_than_its_bound() {
    for wait_max in [Duration::from_secs(20), Duration::from_secs(60)] {
        let world = SimHost::new(SimConfig::seeded(16));
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
        let journal = Tapped::new(journal, |journal, batch| journal.enqueue(batch));
        let builder = code(Runtime::volatile()).host(world.host());
        let builder = builder.journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let builder = builder.configure(|config| config.shutdown_wait_max = wait_max);
        let (took, stopped, start) = world
            .block_on(async {
                let host = world.host();
                let runtime = builder.start().await.unwrap();
                journal.hang();
                let asking = runtime.clone();
                let mut start = Box::pin(async move { asking.start(TALLY, "t", 1).await });
                assert!(futures_util::poll!(&mut start).is_pending());
                let began = host.elapsed();
                let stopped = runtime.shutdown().await;
                (host.elapsed() - began, stopped, start.await)
            })
            .unwrap();
        assert!(
            took <= wait_max + Duration::from_millis(10),
            "{took:?} of {wait_max:?}"
        );
        assert!(
            matches!(&stopped, Err(StopCause::Part { part, .. }) if &**part == "journal"),
            "{stopped:?}"
        );
        assert!(
            matches!(start, Err(StartError::Stopped(StopCause::Shutdown))),
            "{start:?}"
        );
    }
}

#[tokio::test]
async fn a_shutdown_whose_bound_leaves_no_time_behind_the_grace_is_refused() {
    let builder = Runtime::volatile().configure(|config| {
        config.shutdown_grace = Duration::from_secs(10);
        config.shutdown_wait_max = Duration::from_secs(10);
    });
    let error = builder.start().await.unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Config {
                field: "shutdown_wait_max",
                ..
            }
        ),
        "{error}"
    );
}

/// A file whose syncs do not return while it hangs.
#[derive(Debug)]
struct HangingDisk {
    file: FileDisk,
    hangs: Arc<(Mutex<bool>, Condvar)>,
}

impl Disk for HangingDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        let (hangs, released) = &*self.hangs;
        drop(
            released
                .wait_while(hangs.lock().unwrap(), |hangs| *hangs)
                .unwrap(),
        );
        self.file.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_on_a_disk_whose_sync_does_not_return_ends_and_answers_everybody() {
    let store = Store::new();
    let hangs: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let disk = HangingDisk {
        file: FileDisk::create(&store.path()).unwrap(),
        hangs: Arc::clone(&hangs),
    };
    let owner = TokioHost::spawn(HostConfig::default()).await.unwrap();
    let config = JournalConfig::default();
    let journal = RedbJournal::open_disk(Arc::new(disk), "store", config, owner.host()).unwrap();
    let builder = code(Runtime::volatile())
        .host(owner.host())
        .journal(Arc::new(journal));
    let builder = builder.configure(|config| {
        config.shutdown_grace = Duration::from_millis(1);
        config.shutdown_wait_max = Duration::from_millis(100);
    });
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(TALLY, "t", 1).await.unwrap();
    *hangs.0.lock().unwrap() = true;
    let asking = runtime.clone();
    let start = tokio::spawn(async move { asking.start(TALLY, "u", 1).await });
    let result = tokio::spawn(async move { run.result().await });
    while runtime.stats().started < 2 {
        tokio::task::yield_now().await;
    }
    let stopped = tokio::time::timeout(HANGS_AFTER, runtime.shutdown())
        .await
        .unwrap();
    assert!(
        matches!(&stopped, Err(StopCause::Part { part, .. }) if &**part == "journal"),
        "{stopped:?}"
    );
    let start = tokio::time::timeout(HANGS_AFTER, start).await.unwrap().unwrap();
    assert!(
        matches!(start, Err(StartError::Stopped(StopCause::Shutdown))),
        "{start:?}"
    );
    let result = tokio::time::timeout(HANGS_AFTER, result).await.unwrap().unwrap();
    assert!(
        matches!(
            result,
            Err(ResultError::Run(RunError::Stopped(StopCause::Shutdown)))
        ),
        "{result:?}"
    );
    *hangs.0.lock().unwrap() = false;
    hangs.1.notify_all();
    owner.shutdown(HANGS_AFTER).await.unwrap();
}
