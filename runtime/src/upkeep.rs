//! An operator's operations on the file of a running runtime.
//!
//! ```text
//!   backup, export, verify ──► one at a time ──► a thread of its own ──► the answer
//!   begin_compact, upkeep ──► the journal's writer, which rings for the second
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrun_core::{Bell, Next, Part, PartExit, Placement, SpawnError, Timestamp};
use millrun_persistence::{BackupError, Exported, Journal, ReadError, RedbJournal, UpkeepUndone, Verified};
use tokio::sync::{Notify, SemaphorePermit, oneshot};

use crate::StopCause;
use crate::inner::Inner;
use crate::opening::own_store::OwnStore;

/// Why an operation on a store was not performed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpkeepError {
    /// The copy was not made.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The store cannot be read at all.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Not all upkeep that was due has been done.
    #[error(transparent)]
    Undone(#[from] UpkeepUndone),
    /// The operating system refused a thread for it.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The runtime has stopped. A file that was being written is incomplete and not at its final path.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

/// The store of a running runtime, for its operator; from [`Runtime::store`](crate::Runtime::store). A cheap
/// clone; it keeps the runtime alive.
///
/// Operations that read the whole store do so on a thread of their own, while the runtime continues, one at a time: others
/// wait for their turn.
///
/// ```
/// use millrun::Runtime;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let runtime = Runtime::open(directory.path().join("app.redb")).start().await?;
/// let store = runtime.store().expect("it was opened by path");
/// assert!(store.path().ends_with("app.redb"));
/// assert!(store.verify().await?.damaged.is_empty());
/// store.backup(directory.path().join("backup.redb")).await?;
/// store.export(directory.path().join("histories.ndjson")).await?;
/// store.upkeep().await?;
/// store.begin_compact();
/// runtime.shutdown().await?;
///
/// // A backup is a store.
/// let restored = Runtime::open(directory.path().join("backup.redb")).start().await?;
/// # restored.shutdown().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// Dropping a method's future gives up its answer; an operation that has begun continues.
#[derive(Clone)]
pub struct StoreHandle {
    inner: Arc<Inner>,
}

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreHandle").finish_non_exhaustive()
    }
}

impl StoreHandle {
    /// The store of a runtime that has a file.
    pub(crate) fn of(inner: &Arc<Inner>) -> Option<Self> {
        let inner = Arc::clone(inner);
        inner.store.is_some().then_some(Self { inner })
    }

    fn own(&self) -> &OwnStore {
        self.inner.store.as_ref().expect("seen when the handle was made")
    }

    /// The store's file, with the path that was given to [`Runtime::open`](crate::Runtime::open).
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.own().path
    }

    /// The format of the store's file; 0 when the store has been closed.
    #[must_use]
    pub fn format(&self) -> u32 {
        self.own().journal.format().unwrap_or(0)
    }

    /// Reads and checks every record of the store; as [`RedbJournal::verify`](crate::store::RedbJournal::verify). Damage is
    /// in the result.
    ///
    /// # Errors
    /// When the store cannot be read at all, or the runtime has stopped.
    pub async fn verify(&self) -> Result<Verified, UpkeepError> {
        self.perform(|journal| Ok(journal.verify()?)).await
    }

    /// Writes a copy of the store's present state to `path`; as [`RedbJournal::backup`](crate::store::RedbJournal::backup).
    /// The copy is a store: to restore it, put it in the place of the lost one.
    ///
    /// # Errors
    /// When there is a file at `path`, the store cannot be read or the copy not written, or the runtime has
    /// stopped.
    pub async fn backup(&self, path: impl Into<PathBuf>) -> Result<(), UpkeepError> {
        let path = path.into();
        self.perform(move |journal| Ok(journal.backup(path)?)).await
    }

    /// Writes all histories as lines of JSON to `path`, from which [`import`](crate::store::import) makes a store; as
    /// [`RedbJournal::export`](crate::store::RedbJournal::export).
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    pub async fn export(&self, path: impl Into<PathBuf>) -> Result<Exported, UpkeepError> {
        let path = path.into();
        self.perform(move |journal| Ok(journal.export(path)?)).await
    }

    /// Asks for free space at the end of the file to be given back to the file system, and returns at once; as
    /// [`RedbJournal::begin_compact`](crate::store::RedbJournal::begin_compact). Commits wait meanwhile. Does nothing for a
    /// [read-only](crate::store::ClosedStore) store.
    pub fn begin_compact(&self) {
        if self.inner.shared.is_read_only {
            return;
        }
        self.own().journal.begin_compact();
    }

    /// Does all upkeep of the store that is due now, and that otherwise happens gradually as runs finish: when this returns,
    /// finished runs beyond [`Retention`](crate::store::Retention) are dropped, the [`Archive`](crate::store::Archive) has
    /// first got what it should, and the index of finished runs and the log are as small as upkeep makes them. A program in
    /// which few runs finish should call it from time to time, so that old data is dropped.
    ///
    /// Runs continue meanwhile. If they produce new work for it as fast as it is done, it takes longer.
    ///
    /// # Errors
    /// When the archive cannot be written, something is damaged that would have to be dropped, or the runtime has stopped.
    pub async fn upkeep(&self) -> Result<(), UpkeepError> {
        if self.inner.shared.is_read_only {
            return Err(StopCause::ReadOnly.into());
        }
        let own = self.own();
        let _place = self.place().await?;
        let (bell, finished) = (Bell::new(), Arc::new(Notify::new()));
        let rung = Arc::clone(&finished);
        bell.connect(move || rung.notify_one());
        let number = own.journal.upkeep(self.inner.shared.host.now(), bell);
        loop {
            if let Some(upkept) = own.journal.upkept(number) {
                return Ok(upkept?);
            }
            let rung = self.inner.stop.unless_over(Box::pin(finished.notified())).await;
            if rung.is_none() {
                return Err(self.inner.stop_cause().into());
            }
        }
    }

    /// Waits until no other operation on the store is running.
    async fn place(&self) -> Result<SemaphorePermit<'_>, UpkeepError> {
        let running = &self.own().running;
        match self.inner.stop.unless_over(Box::pin(running.acquire())).await {
            Some(Ok(_)) if self.inner.stop.is_closing() => Err(StopCause::Shutdown.into()),
            Some(Ok(place)) => Ok(place),
            Some(Err(_)) | None => Err(self.inner.stop_cause().into()),
        }
    }

    /// Runs an operation on the store on a thread.
    async fn perform<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RedbJournal) -> Result<T, UpkeepError> + Send + 'static,
    ) -> Result<T, UpkeepError> {
        let own = self.own();
        let _place = self.place().await?;
        let (reply, answer) = oneshot::channel();
        let journal = Arc::clone(&own.journal);
        let work = UpkeepWork(Some(Box::new(move || drop(reply.send(work(&journal))))));
        let on_exit = Box::new(|exit: PartExit| tracing::debug!(?exit, "an upkeep of the store has ended"));
        let host = &self.inner.shared.host;
        let _part = host.spawn_part("upkeep", Placement::Thread, Bell::new(), Box::new(work), on_exit)?;
        match self.inner.stop.unless_over(answer).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) | None => Err(self.inner.stop_cause().into()),
        }
    }
}

/// A part that has a single turn.
struct UpkeepWork(Option<Box<dyn FnOnce() + Send>>);

impl fmt::Debug for UpkeepWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpkeepWork")
    }
}

impl Part for UpkeepWork {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        if let Some(work) = self.0.take() {
            work();
        }
        Next::Stop
    }
}
