//! A closed store, which no process has open: looks at it without changing a byte of its file.
//!
//! ```text
//!   file ──► journal that keeps in memory what it writes ──► runtime without code ──► find, describe, why, history
//! ```
//!
//! Invariants: operations that runs wait for are not performed, and changes are refused; so everything shown is what the file
//! says.

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

/// A store that no process has open: its runs are found, described and explained, and not a byte of its file is changed. It
/// needs no permission to write the file or its folder, also after a crash: what the repair writes stays in memory, and
/// beyond 256 MiB in a temporary file.
///
/// There is no code, so nothing continues: timers do not fire, no attempt is made, and a run that waits for a signal or a
/// condition is shown as running without the reason, which only its code knows. Every workflow counts as registered. While it
/// is open, the file is locked for shared reading: a program that opens the store meanwhile is
/// [refused](millrun_persistence::StoreError::AlreadyOpen). It is closed with its last handle.
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
    /// [`StoreError::AlreadyOpen`](crate::store::StoreError::AlreadyOpen) when a process has it open: ask that process.
    /// [`StoreError::Corrupted`](crate::store::StoreError::Corrupted) when the whole store is damaged: it can be
    /// [salvaged](crate::store::salvage). [`StoreError::Io`](crate::store::StoreError::Io) also when its repair changes more
    /// than [`READ_ONLY_BYTES_MAX`](crate::store::READ_ONLY_BYTES_MAX) bytes and there is no room for a temporary file.
    /// Others as for [`RuntimeBuilder::start`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the file.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        Self::open_with(path, StoreConfig::default()).await
    }

    /// As [`open`](Self::open), with other bounds than the defaults. Only [`cache_bytes_max`](StoreConfig::cache_bytes_max)
    /// and [`changed_bytes_max`](StoreConfig::changed_bytes_max) apply: the memory for unchanged pages of the file, and for
    /// those that a repair has changed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    /// As [`open`](Self::open).
    pub async fn open_with(path: impl Into<PathBuf>, bounds: StoreConfig) -> Result<Self, OpenError> {
        Self::open_on(path.into(), bounds, None).await
    }

    /// As [`open_with`](Self::open_with), on this host, if one is given.
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

    /// The runtime over it, for code that needs one: the router of millrun-http, say. It has no code; starts, signals,
    /// queries and everything else that needs code or changes something are refused with
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

    /// How many runs of each workflow are live, by status. The number of ended runs, of all workflows together, is in the
    /// [`report`](Self::report).
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

    /// A handle to the latest run of an instance, to describe it or to get its result. The result of a run that has not ended
    /// is waited for until the store is closed; [`result`](Self::result) does not wait.
    ///
    /// # Errors
    /// When `id` is no instance id.
    pub fn attach(&self, id: &str) -> Result<UntypedHandle, InstanceIdError> {
        self.runtime.attach_untyped(id)
    }

    /// The description of a run from its history, as [`Runtime::describe_run`].
    ///
    /// # Errors
    /// As of [`Runtime::describe_run`].
    pub async fn describe_run(&self, run: RunId) -> Result<InstanceDescription, RunError> {
        self.runtime.describe_run(run).await
    }

    /// Why a run makes no progress, as far as its history and those of its children show; as [`Runtime::why_run`].
    ///
    /// # Errors
    /// As of [`Runtime::why_run`].
    pub async fn why_run(&self, run: RunId) -> Result<Why, RunError> {
        self.runtime.why_run(run).await
    }

    /// The result of a run; `None` if it has not ended. A run that continued as new has the result of the last run.
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

    /// To verify, copy and export it, as for an open store.
    #[must_use]
    pub fn upkeep(&self) -> StoreHandle {
        self.runtime.store().expect("it was opened by its path")
    }
}
