//! A store in a temporary directory, and definitions that several tests use.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrun::host::Host;
use millrun::store::MemoryJournal;
use millrun::{
    Activity, ActivityContext, ActivityError, RunError, RunHandle, Runtime, RuntimeBuilder, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_testkit::SimHost;
use tempfile::TempDir;
use tracing::{Dispatch, Subscriber};

pub(crate) const DOUBLE: Activity<u64, u64> = Activity::named("double");
pub(crate) const QUADRUPLE: Workflow<u64, u64> = Workflow::named("quadruple");

pub(crate) async fn double(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    Ok(number * 2)
}

pub(crate) async fn quadruple(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let twice = cx.call(DOUBLE, number).await?;
    Ok(cx.call(DOUBLE, twice).await?)
}

/// A store that is gone with the test.
pub(crate) struct Store {
    directory: TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("store.redb")
    }

    /// A builder without code.
    pub(crate) fn bare(&self) -> RuntimeBuilder {
        Runtime::open(self.path())
    }

    /// A builder that has the common definitions.
    pub(crate) fn open(&self) -> RuntimeBuilder {
        self.bare()
            .register(DOUBLE, double)
            .register(QUADRUPLE, quadruple)
    }
}

/// Runs a script in a seeded world, which crashes after `steps` steps or when the script has ended. Whether it had.
pub(crate) fn cut_off(sim: &SimHost, steps: u64, script: impl Future<Output = ()> + Send + 'static) -> bool {
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    let script = async move {
        script.await;
        ended.store(true, Ordering::Relaxed);
    };
    let script = sim.host().spawn("script", Box::pin(script));
    let mut left = steps;
    let _stop = sim.run_until(|| {
        left = left.saturating_sub(1);
        left == 0 || has_ended.load(Ordering::Relaxed)
    });
    sim.crash();
    drop(script);
    has_ended.load(Ordering::Relaxed)
}

/// Makes durable what is queued in a journal that is held, every few milliseconds.
pub(crate) async fn committer(host: Arc<dyn Host>, journal: Arc<MemoryJournal>) {
    loop {
        host.sleep_until(host.now() + Duration::from_millis(3)).await;
        journal.commit();
    }
}

/// A second subscriber of the process, for as long as this is kept. While there is only one, tracing asks the thread
/// that comes first to an event whether it wants it, which may be that of another test, and remembers the answer
/// for all threads.
pub(crate) fn beside(subscriber: impl Subscriber + Send + Sync) -> Dispatch {
    Dispatch::new(subscriber)
}

/// Asks until the description is as wanted. Each question is answered in a turn of the instance,
/// so no time needs to pass between two.
pub(crate) async fn described<O, E>(
    run: &RunHandle<O, E>,
    is_wanted: impl Fn(&millrun::operating::InstanceDescription) -> bool,
) -> millrun::operating::InstanceDescription {
    loop {
        match run.describe_awake().await {
            Ok(description) if is_wanted(&description) => return description,
            Ok(_) | Err(RunError::NotFound) => tokio::task::yield_now().await,
            Err(error) => panic!("the run cannot be described: {error}"),
        }
    }
}
