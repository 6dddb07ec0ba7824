//! A journal in one file, on redb.
//!
//! ```text
//!   RedbJournal ──► Shared { State (open buffer, ledger, finished runs), watermark }
//!        │ reads                       ▲
//!        ▼                             │ seals, commits, publishes
//!      Store (redb) ◄───────────── Writer (a part on its own thread)
//!        │
//!        ▼
//!   Disk: ZeroAhead ─► FileDisk
//! ```
//!
//! Invariants: the log is the truth, and everything else is rebuilt from it; only the writer
//! writes; redb's names do not leave this folder.

mod backend;
mod convoy;
mod disk;
mod lanes;
mod log;
mod open;
mod rebuild;
mod recover;
mod settle;
mod shared;
mod state;
mod store;
mod upkeep;
mod writer;
mod zero_ahead;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Bell, Epoch, Host, InstanceId, Offset, Partition, Placement, RunId};

pub use self::disk::{Disk, FileDisk};
#[cfg(feature = "fuzz")]
pub(crate) use self::log::walk as walk_row;
use self::rebuild::Place;
use self::shared::Shared;
use self::state::State;
use self::store::{Snapshot, Store};
pub use self::upkeep::{BackupError, Verified};
use self::writer::Writer;
use crate::batch::Batch;
use crate::config::{Durability, JournalConfig};
use crate::error::{EnqueueError, FailureKind, JournalFailure, OpenError, ReadError};
use crate::finished::Finished;
use crate::journal::{Enqueued, Journal, Lane, Progress, RecoveryReport, Stats};
use crate::record::{FinishedRun, History};
use crate::scan;

/// A [`Journal`] in one file.
///
/// Dropping it begins to close it; [`close`](Journal::close) also waits, and tells whether that
/// went well.
#[derive(Debug)]
pub struct RedbJournal {
    shared: Arc<Shared>,
    opened: Opened,
}

/// What opening found.
#[derive(Clone, Copy, Debug)]
struct Opened {
    at: Duration,
    is_repaired: bool,
}

impl RedbJournal {
    /// Opens the store at `path`, or creates it if there is no file, and starts its writer on
    /// `host`. Returns when everything about runs is known; their records are handed out by
    /// [`recover`](Journal::recover).
    ///
    /// # Errors
    /// See [`OpenError`]. A second journal on the same file gets [`OpenError::AlreadyOpen`] at once.
    pub fn open(
        path: impl AsRef<Path>,
        config: JournalConfig,
        host: Arc<dyn Host>,
    ) -> Result<Self, OpenError> {
        config.check()?;
        let (path, at) = (path.as_ref(), host.elapsed());
        let store = open::open_path(path, &config, &*host)?;
        Self::start(store, path, config, host, at)
    }

    /// Opens the store on a disk of the caller's, or creates it if the disk is empty.
    ///
    /// # Errors
    /// See [`OpenError`]; the path in it is `name`.
    pub fn open_disk(
        disk: Arc<dyn Disk>,
        name: &str,
        config: JournalConfig,
        host: Arc<dyn Host>,
    ) -> Result<Self, OpenError> {
        config.check()?;
        let (path, at) = (Path::new(name), host.elapsed());
        let store = open::open_disk(disk, path, &config, &*host)?;
        Self::start(store, path, config, host, at)
    }

    fn start(
        store: Store,
        path: &Path,
        config: JournalConfig,
        host: Arc<dyn Host>,
        at: Duration,
    ) -> Result<Self, OpenError> {
        let failed = |failure: JournalFailure| open::failed(&failure, path);
        let opens = store.count_open().map_err(failed)?;
        let rebuilt = store
            .snapshot()
            .and_then(|moment| rebuild::rebuild(&moment, config.retention, store.lanes()));
        let rebuilt = rebuilt.map_err(failed)?;
        // Epochs of this opening are above all that earlier ones gave out: the count is durable.
        let epoch = Epoch::new(opens << 32);
        let opened = Opened {
            at,
            is_repaired: store.is_repaired,
        };
        let store = Arc::new(store);
        let state = State::new(&config, epoch, rebuilt);
        let shared = Arc::new(Shared::new(config, Arc::clone(&host), state, Arc::clone(&store)));
        let writer = Writer::new(Arc::clone(&shared), store);
        let ended = Arc::clone(&shared);
        host.spawn_part(
            "millrun-journal",
            Placement::Thread,
            shared.bell.clone(),
            Box::new(writer),
            Box::new(move |exit| ended.writer_ended(&exit)),
        )?;
        Ok(Self { shared, opened })
    }

    /// The store, unless the journal was closed.
    fn reader(&self) -> Result<Arc<Store>, JournalFailure> {
        self.shared.store()
    }

    /// Reads again if turns were moved while `read` was looking for them.
    fn settled<T>(&self, read: impl Fn() -> Result<T, ReadError>) -> Result<T, ReadError> {
        loop {
            let low = self.shared.lock().low;
            match read() {
                Err(ReadError::Damaged { .. }) if self.shared.lock().low != low => {}
                outcome => return outcome,
            }
        }
    }
}

fn describe(store: &Snapshot, finished: Finished<Place>) -> Result<FinishedRun, ReadError> {
    let Finished {
        run,
        closed_at,
        head,
        place,
        ..
    } = finished;
    let id = log::instance_id(store, run, &place)?;
    Ok(FinishedRun {
        run,
        id,
        closed_at,
        head,
    })
}

impl Journal for RedbJournal {
    fn enqueue(&self, batch: &Batch) -> Result<Enqueued, EnqueueError> {
        let mut state = self.shared.lock();
        let (enqueued, rings) = match state.enqueue(batch) {
            Ok(taken) => taken,
            Err(error) => {
                drop(state);
                // The writer may be waiting for more: there will not be more.
                self.shared.bell.ring();
                return Err(error);
            }
        };
        if self.shared.config.durability == Durability::Durable {
            drop(state);
        } else {
            self.shared.publish(enqueued.offset);
            let watchers = state.watchers.clone();
            drop(state);
            for bell in watchers {
                bell.ring();
            }
        }
        if rings {
            self.shared.bell.ring();
        }
        Ok(enqueued)
    }

    fn high_watermark(&self) -> Offset {
        self.shared.watermark()
    }

    fn failure(&self) -> Option<JournalFailure> {
        self.shared.failure()
    }

    fn watch(&self, bell: Bell) {
        self.shared.lock().watchers.push(bell);
    }

    fn take_over(&self, partitions: &[Partition]) -> Result<Epoch, JournalFailure> {
        let mut state = self.shared.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None if state.is_closing => Err(JournalFailure::closed()),
            None => Ok(state.take_over(partitions)),
        }
    }

    fn history(&self, run: RunId) -> Result<History, ReadError> {
        let store = self.reader()?;
        self.settled(|| {
            let (place, bounds) = {
                let state = self.shared.lock();
                if let Some(damage) = state.damaged.runs.get(&run) {
                    return Err(damage.clone());
                }
                let place = state.durable_place(run).ok_or(ReadError::UnknownRun { run })?;
                (place, (state.low, state.durable_end()))
            };
            scan::history(run, &log::turns(&store.snapshot()?, run, &place, bounds)?)
        })
    }

    fn finished(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        let store = self.reader()?;
        self.settled(|| {
            let moment = store.snapshot()?;
            let latest = self.shared.lock().finished().latest(id).copied();
            let described = latest.map(|finished| describe(&moment, finished)).transpose()?;
            Ok(described.filter(|finished| finished.id == *id))
        })
    }

    fn list_finished(&self, after: Option<RunId>, limit: usize) -> Result<Vec<FinishedRun>, ReadError> {
        let store = self.reader()?;
        self.settled(|| {
            let moment = store.snapshot()?;
            let listed: Vec<_> = self
                .shared
                .lock()
                .finished()
                .list(after)
                .take(limit)
                .copied()
                .collect();
            listed
                .into_iter()
                .map(|finished| describe(&moment, finished))
                .collect()
        })
    }

    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError> {
        let store = self.reader()?;
        let (live, finished_runs, low, end, damaged) = {
            let state = self.shared.lock();
            let finished_runs = state.finished().len() as u64;
            (
                state.live(),
                finished_runs,
                state.low,
                state.durable_end(),
                state.damaged.list(),
            )
        };
        let host = &*self.shared.host;
        let records = recover::recover(&store.snapshot()?, &live, (low, end), lanes, host, progress)?;
        Ok(RecoveryReport {
            live_runs: live.len() as u64,
            finished_runs,
            records,
            bytes: end - low,
            elapsed: host.elapsed().saturating_sub(self.opened.at),
            is_repaired: self.opened.is_repaired,
            damaged,
        })
    }

    fn stats(&self) -> Stats {
        let file_bytes = self.reader().map_or(0, |store| store.file_bytes());
        Stats {
            file_bytes,
            ..self.shared.lock().stats()
        }
    }

    fn begin_close(&self) {
        self.shared.begin_close();
    }

    fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    fn close(&self) -> Result<(), JournalFailure> {
        self.shared.begin_close();
        self.shared.join();
        match self.failure() {
            Some(failure) if failure.kind() != FailureKind::Closed => Err(failure),
            _ => Ok(()),
        }
    }
}

impl Drop for RedbJournal {
    fn drop(&mut self) {
        self.shared.begin_close();
    }
}
