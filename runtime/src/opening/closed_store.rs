//! A store that no process has open, looked at without changing a byte of its file.
//!
//! ```text
//!   file ──► journal that keeps in memory what it writes ──► runtime without code ──► find, describe, why, history
//! ```
//!
//! Invariants: what a run waits for is not done, and what would change something is refused; so that all that is told
//! is what the file says.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use millrun_core::{Host, InstanceIdError, RunId, Sequence};
use millrun_persistence::StoreConfig;
use millrun_workflow::{Payload, RunFailure};

use crate::error::ResultError;
use crate::looking::counts::RunCounts;
use crate::looking::describe::InstanceDescription;
use crate::looking::find::{RunCursor, RunSearch, RunsPage};
use crate::looking::pages::HistoryPage;
use crate::looking::why::Why;
use crate::opening::recovery::StartupReport;
use crate::upkeep::StoreHandle;
use crate::{OpenError, RunError, Runtime, RuntimeBuilder, UntypedHandle};

/// A store that no process has open: its runs are found, described and explained, and not a byte of its file is
/// changed. It works on a file and in a folder without permission to write, also after a crash: what its repair writes
/// stays in memory, and beyond 256 MiB in a temporary file.
///
/// No code is at hand, so nothing goes on: timers do not fire, no attempt is made, and a run that waits for a signal
/// or a condition is shown as running without saying for what, which stands in its code alone. Every workflow passes
/// for registered. While it is open, the file is locked together with others who only read it: a program that opens
/// the store meanwhile is [refused](millrun_persistence::StoreError::AlreadyOpen). It ends with its last handle.
///
/// ```
/// use millrun::operating::{RunSearch, RunStatus};
/// use millrun::store::ClosedStore;
/// # use millrun::{Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
/// # const CONFIRMED: Signal<u64> = Signal::named("confirmed");
/// # const ORDER: Workflow<(), u64> = Workflow::named("order");
/// # async fn order(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
/// #     Ok(cx.receive(CONFIRMED).await?)
/// # }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("app.redb");
/// # let runtime = Runtime::open(&path).register(ORDER, order).start().await?;
/// # runtime.start(ORDER, "order-1", ()).await?;
/// # runtime.start(ORDER, "order-2", ()).await?.signal(CONFIRMED, 5).await?;
/// # runtime.attach(ORDER, "order-2")?.result().await?;
/// # runtime.shutdown().await?;
/// let store = ClosedStore::open(&path).await?;
/// let live = store.find(&RunSearch::new().status(RunStatus::Running), None, 10).await?;
/// assert_eq!(live.runs[0].id.as_str(), "order-1");
/// let result = store.attach("order-2")?.result().await?;
/// assert_eq!(result.decode::<u64>()?, 5);
/// assert!(store.upkeep().verify().await?.damaged.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ClosedStore {
    runtime: Runtime,
}

impl fmt::Debug for ClosedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClosedStore").finish_non_exhaustive()
    }
}

impl ClosedStore {
    /// Opens the store at `path` to read it. That takes as long as opening it for writing: the log is read and
    /// checked.
    ///
    /// # Errors
    /// [`StoreError::AlreadyOpen`](crate::store::StoreError::AlreadyOpen) when a process has it: ask that one.
    /// [`StoreError::Corrupted`](crate::store::StoreError::Corrupted) when it is damaged as a whole: it can be
    /// [salvaged](crate::store::salvage). [`StoreError::Io`](crate::store::StoreError::Io) also when its repair changes
    /// more than [`READ_ONLY_BYTES_MAX`](crate::store::READ_ONLY_BYTES_MAX) bytes and there is no room for a temporary
    /// file. There are others, as of [`RuntimeBuilder::start`].
    ///
    /// # Cancel safety
    /// Dropping the future lets go of the file.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        Self::open_with(path, StoreConfig::default()).await
    }

    /// As [`open`](Self::open), with other bounds than the default ones. Those that count are
    /// [`cache_bytes_max`](StoreConfig::cache_bytes_max) and [`changed_bytes_max`](StoreConfig::changed_bytes_max), the
    /// memory for pages as they are in the file and for those that a repair has changed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    /// As [`open`](Self::open).
    pub async fn open_with(path: impl Into<PathBuf>, bounds: StoreConfig) -> Result<Self, OpenError> {
        Self::open_on(path.into(), bounds, None).await
    }

    /// As [`open_with`](Self::open_with), on this host, if there is one.
    pub(crate) async fn open_on(
        path: PathBuf,
        bounds: StoreConfig,
        host: Option<Arc<dyn Host>>,
    ) -> Result<Self, OpenError> {
        let builder = RuntimeBuilder::reading(path).configure(|config| config.store = bounds);
        let builder = match host {
            Some(host) => builder.host(host),
            None => builder,
        };
        let runtime = builder.start().await?;
        Ok(Self { runtime })
    }

    /// The runtime over it, for what takes one: the router of millrun-http, say. It has no code; starts, signals,
    /// queries and whatever else needs code or changes something are refused with
    /// [`StopCause::ReadOnly`](crate::StopCause::ReadOnly).
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// What was found when it was opened: how much is alive, what is damaged, whether the file had to be repaired.
    #[must_use]
    pub fn report(&self) -> &StartupReport {
        self.runtime.startup_report()
    }

    /// Its runs, as [`Runtime::find`].
    ///
    /// # Errors
    /// As of [`Runtime::find`].
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn find(
        &self,
        filter: &RunSearch,
        after: Option<RunCursor>,
        len_max: usize,
    ) -> Result<RunsPage, RunError> {
        self.runtime.find(filter, after, len_max).await
    }

    /// How many runs of each workflow are live, and what they do. How many have ended is told by
    /// [`report`](Self::report) of all workflows together.
    #[must_use]
    pub fn counts(&self) -> RunCounts {
        self.runtime.counts()
    }

    /// A page of the history of a run, as [`Runtime::history`].
    ///
    /// # Errors
    /// As of [`Runtime::history`].
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn history(
        &self,
        run: RunId,
        after: Sequence,
        len_max: usize,
    ) -> Result<HistoryPage, RunError> {
        self.runtime.history(run, after, len_max).await
    }

    /// A handle to the latest run of an instance: to describe it, to ask why it does not go on, for its result. The
    /// result of a run that has not ended is waited for until the store is let go of; [`result`](Self::result) does not
    /// wait.
    ///
    /// # Errors
    /// When `id` is no instance id.
    pub fn attach(&self, id: &str) -> Result<UntypedHandle, InstanceIdError> {
        self.runtime.attach_untyped(id)
    }

    /// What the history of a run tells about it, as [`Runtime::describe_run`].
    ///
    /// # Errors
    /// As of [`Runtime::describe_run`].
    pub async fn describe_run(&self, run: RunId) -> Result<InstanceDescription, RunError> {
        self.runtime.describe_run(run).await
    }

    /// Why a run does not go on, as far as its history and those of its children tell; as [`Runtime::why_run`].
    ///
    /// # Errors
    /// As of [`Runtime::why_run`].
    pub async fn why_run(&self, run: RunId) -> Result<Why, RunError> {
        self.runtime.why_run(run).await
    }

    /// With what a run has ended; `None` if it has not. A run that went on in another has the result of that.
    ///
    /// # Errors
    /// When there is no such run, or it ended without a value.
    pub async fn result(&self, run: RunId) -> Result<Option<Payload>, ResultError<RunFailure>> {
        let described = self.describe_run(run).await.map_err(ResultError::Run)?;
        if described.ended_at.is_none() {
            return Ok(None);
        }
        self.runtime.attach_described(&described).result().await.map(Some)
    }

    /// To verify, copy and export it, as of a store that is open.
    #[must_use]
    pub fn upkeep(&self) -> StoreHandle {
        self.runtime.store().expect("it was opened by its path")
    }
}
