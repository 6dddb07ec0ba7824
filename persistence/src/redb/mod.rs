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

mod archive;
mod backend;
mod closed;
mod convoy;
mod disk;
mod filter;
mod frames;
mod guard;
mod index;
mod kept;
mod lanes;
mod log;
mod moment;
mod open;
mod rebuild;
mod recover;
mod segment;
mod settle;
mod settler;
mod shared;
mod snapshots;
mod state;
mod store;
mod tables;
mod transfer;
mod upkeep;
mod writer;
mod zero_ahead;

use std::path::Path;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use millrun_core::{Bell, Epoch, Host, InstanceId, Offset, Partition, Placement, RunId, Sequence};

use self::archive::Archiver;
use self::closed::{ClosedRuns, Trim};
pub use self::disk::{Disk, FileDisk};
#[cfg(feature = "fuzz")]
pub(crate) use self::frames::walk as walk_row;
use self::index::Index;
use self::moment::Moment;
use self::rebuild::{Known, Rebuilt};
use self::shared::Shared;
use self::state::State;
use self::store::Store;
pub use self::transfer::{Exported, ImportError, Imported, import};
pub use self::upkeep::{BackupError, Verified};
use self::writer::Writer;
use crate::batch::Batch;
use crate::config::{Durability, JournalConfig};
use crate::error::{EnqueueError, FailureKind, JournalFailure, OpenError, ReadError, SnapshotRefused};
use crate::finished::{Finished, IdHash, Place};
use crate::fold::{Fold, Nothing};
use crate::heads::Heads;
use crate::journal::{Enqueued, Journal, Lane, Progress, RecoveryReport, Ringing, Stats};
use crate::record::{FinishedRun, History, HistoryPage, Snapshot};
use crate::{scan, wire};

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
    is_index_rebuilt: bool,
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

    /// As [`open`](Self::open) and then [`recover`](Journal::recover), in one pass over the log: all
    /// that is read is handed to `folds`, and what has ended is taken back. The records of a run all
    /// go to the fold `run.partition().index() % folds.len()`, from a thread of its own if there are
    /// several. At the end the folds hold what they made of live runs, and of no other.
    ///
    /// The report counts the records of live runs, and the bytes of the whole log. `progress` is
    /// called a few times a second at most, and counts all records.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// # Panics
    /// When `folds` is empty.
    pub fn open_folding(
        path: impl AsRef<Path>,
        config: JournalConfig,
        host: Arc<dyn Host>,
        folds: &mut [&mut dyn Fold],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Self, RecoveryReport), OpenError> {
        assert!(!folds.is_empty(), "somebody must fold the records");
        config.check()?;
        let (path, at) = (path.as_ref(), host.elapsed());
        let store = open::open_path(path, &config, &*host)?;
        let mut reported = host.elapsed();
        let mut now_and_then = |so_far: Progress| {
            if so_far.bytes_done == so_far.bytes_total
                || host.elapsed().saturating_sub(reported) >= recover::PROGRESS_EVERY
            {
                reported = host.elapsed();
                progress(so_far);
            }
        };
        let read = Read::of(&store, &config, folds, &mut now_and_then);
        let read = read.map_err(|failure| open::failed(&failure, path))?;
        let (records, bytes) = (
            read.live_records(),
            read.rebuilt.end.saturating_sub(read.rebuilt.low),
        );
        let journal = Self::start_with(store, path, config, Arc::clone(&host), at, read)?;
        let report = {
            let state = journal.shared.lock();
            let stats = state.stats();
            RecoveryReport {
                live_runs: stats.live_runs,
                finished_runs: stats.finished_runs,
                records,
                bytes,
                elapsed: host.elapsed().saturating_sub(at),
                is_repaired: journal.opened.is_repaired,
                is_index_rebuilt: journal.opened.is_index_rebuilt,
                damaged: state.damaged.list(),
            }
        };
        Ok((journal, report))
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
        let mut nothing: Vec<_> = (0..store.lanes()).map(|_| Nothing).collect();
        let mut folds: Vec<_> = nothing.iter_mut().map(|fold| fold as &mut dyn Fold).collect();
        let read = Read::of(&store, &config, &mut folds, &mut |_| {});
        let read = read.map_err(|failure| open::failed(&failure, path))?;
        Self::start_with(store, path, config, host, at, read)
    }

    fn start_with(
        store: Store,
        path: &Path,
        config: JournalConfig,
        host: Arc<dyn Host>,
        at: Duration,
        read: Read,
    ) -> Result<Self, OpenError> {
        let failed = |failure: JournalFailure| open::failed(&failure, path);
        let Read {
            opens,
            is_index_rebuilt,
            rebuilt,
            closed,
            gone,
            rows,
        } = read;
        let snapshots = store.moment().and_then(|moment| moment.snapshots());
        let snapshots = snapshots.map_err(failed)?;
        // Epochs of this opening are above all that earlier ones gave out: the count is durable.
        let epoch = Epoch::new(opens << 32);
        let opened = Opened {
            at,
            is_repaired: store.is_repaired,
            is_index_rebuilt,
        };
        let store = Arc::new(store);
        let state = State::new(&config, epoch, rebuilt, closed, gone, snapshots);
        let shared = Arc::new(Shared::new(config, Arc::clone(&host), state, Arc::clone(&store)));
        let writer = Writer::new(Arc::clone(&shared), store, rows);
        let ended = Arc::clone(&shared);
        host.spawn_part(
            "millrun-journal",
            Placement::Thread,
            shared.bell.clone(),
            Box::new(writer),
            Box::new(move |exit| ended.writer_ended(&exit)),
        )?;
        if let Some(archive) = shared.config.archive.clone() {
            let bell = Bell::new();
            // Rung after each commit, and when the journal ends.
            shared.lock().watchers.push(bell.clone());
            let archiver = Archiver::new(archive, Arc::downgrade(&shared));
            host.spawn_part(
                "millrun-archive",
                Placement::Thread,
                bell,
                Box::new(archiver),
                Box::new(|_| {}),
            )?;
        }
        Ok(Self { shared, opened })
    }

    /// The store, unless the journal was closed.
    fn reader(&self) -> Result<Arc<Store>, JournalFailure> {
        self.shared.store()
    }

    /// Tells whom it concerns that something is queued, when what this gives is dropped: the writer if it
    /// `rings`, and those who watch where that is all that is waited for.
    fn queued(&self, state: MutexGuard<'_, State>, offset: Offset, rings: bool) -> Ringing {
        let mut bells = Vec::new();
        if self.shared.config.durability != Durability::Durable {
            self.shared.publish(offset);
            bells.clone_from(&state.watchers);
        }
        drop(state);
        if rings {
            bells.push(self.shared.bell.clone());
        }
        Ringing::of(bells)
    }

    /// Something of the state, and a moment of the store that fits it.
    fn moment<T>(&self, read: impl FnOnce(&State) -> T) -> Result<(T, Moment), JournalFailure> {
        let store = self.reader()?;
        let state = self.shared.lock();
        let moment = store.moment()?;
        Ok((read(&state), moment))
    }

    /// The same, for what depends on where the log begins in that moment: it may be one commit ahead.
    fn moment_from<T>(&self, read: impl FnOnce(&State, u64) -> T) -> Result<(T, Moment), JournalFailure> {
        let store = self.reader()?;
        let state = self.shared.lock();
        let moment = store.moment()?;
        let low = moment.opened()?.low;
        Ok((read(&state, low), moment))
    }

    /// Where a run stands, and the moment for which that holds.
    fn place(&self, run: RunId) -> Result<(Place, u64, Moment), ReadError> {
        let ((known, lookup, end, is_expired), moment) = self.moment(|state| {
            let known = match state.damaged.runs.get(&run) {
                Some(damage) => Err(damage.clone()),
                None => Ok(state.durable_place(run)),
            };
            (
                known,
                state.closed.lookup(),
                state.durable_end(),
                state.closed.is_expired(run),
            )
        })?;
        if let Some(place) = known? {
            return Ok((place, end, moment));
        }
        match lookup.run(&moment, run)? {
            Some(found) if !found.is_expired => Ok((found.finished.place, end, moment)),
            Some(_) => Err(ReadError::Expired { run }),
            None if is_expired => Err(ReadError::Expired { run }),
            None => Err(ReadError::UnknownRun { run }),
        }
    }
}

impl RedbJournal {
    /// The id of a run's instance.
    fn instance_id(&self, run: RunId) -> Result<InstanceId, ReadError> {
        let (place, _, moment) = self.place(run)?;
        log::instance_id(&moment, run, &place)
    }
}

/// Everything that a store says when it is opened.
struct Read {
    /// How often it has been opened.
    opens: u64,
    is_index_rebuilt: bool,
    /// What stands in its log.
    rebuilt: Rebuilt,
    /// Finished runs.
    closed: ClosedRuns,
    /// Those that were dropped while turns of theirs are kept.
    gone: Vec<RunId>,
    /// The rows of the index.
    rows: settler::Rows,
}

impl Read {
    fn of(
        store: &Store,
        config: &JournalConfig,
        folds: &mut [&mut dyn Fold],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, JournalFailure> {
        let opens = store.count_open()?;
        let (index, is_index_rebuilt) = sound_index(store)?;
        let moment = store.moment()?;
        let known = if index.is_begun {
            Known::Before(index.settled.position)
        } else {
            Known::Nothing
        };
        let mut rebuilt = rebuild::rebuild_folding(&moment, known, folds, progress)?;
        let mut kept = std::mem::take(&mut rebuilt.kept);
        index.remove_retained(&moment, &mut kept)?;
        let mut gone: Vec<_> = kept.into_iter().collect();
        gone.sort_unstable();
        let mut closed = ClosedRuns::new(config.retention, index.settled, index.first);
        if config.archive.is_some() {
            closed.archive(index.archived);
        }
        let low = rebuilt.low;
        for finished in std::mem::take(&mut rebuilt.closed) {
            closed.waiting.add(finished);
            let mut dropped = |dropped: &Finished<Place>| {
                if dropped.place.first < low {
                    gone.push(dropped.run);
                }
            };
            while let Trim::Load(number) = closed.trim(finished.closed_at, &mut dropped) {
                closed.load(closed::row(&moment, number));
            }
        }
        Ok(Self {
            opens,
            is_index_rebuilt,
            rebuilt,
            closed,
            gone,
            rows: index.rows,
        })
    }

    /// How many records live runs have: their sequences have no gaps.
    fn live_records(&self) -> u64 {
        let live = self.rebuilt.live.iter().flat_map(Heads::iter);
        live.map(|(_, live)| u64::from(live.turn.last)).sum()
    }
}

/// What is settled. A damaged index is thrown away, and says so.
fn sound_index(store: &Store) -> Result<(Index, bool), JournalFailure> {
    match Index::read(&store.moment()?) {
        Ok(index) => Ok((index, false)),
        Err(ReadError::Damaged { .. }) => {
            store.forget_index()?;
            Ok((Index::read(&store.moment()?)?, true))
        }
        Err(error) => Err(error.into()),
    }
}

fn describe(store: &Moment, finished: &Finished<Place>) -> Result<FinishedRun, ReadError> {
    Ok(FinishedRun {
        run: finished.run,
        id: log::instance_id(store, finished.run, &finished.place)?,
        closed_at: finished.closed_at,
        head: finished.head,
    })
}

impl Journal for RedbJournal {
    fn enqueue(&self, batch: &Batch) -> Result<Enqueued, EnqueueError> {
        let (enqueued, ringing) = self.enqueue_and_ring_later(batch)?;
        drop(ringing);
        Ok(enqueued)
    }

    fn enqueue_and_ring_later(&self, batch: &Batch) -> Result<(Enqueued, Ringing), EnqueueError> {
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
        let ringing = self.queued(state, enqueued.offset, rings);
        Ok((enqueued, ringing))
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
        state.check_open()?;
        let (epoch, rings) = state.take_over(partitions);
        let offset = state.open.offset;
        drop(self.queued(state, offset, rings));
        Ok(epoch)
    }

    fn history(&self, run: RunId) -> Result<History, ReadError> {
        let (place, end, moment) = self.place(run)?;
        let (bytes, max) = (place.bytes, self.shared.config.history_bytes_max);
        if bytes > max {
            return Err(ReadError::TooLong { run, bytes, max });
        }
        scan::history(run, &log::turns(&moment, run, &place, end)?)
    }

    fn history_page(&self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError> {
        let (place, end, moment) = self.place(run)?;
        let (pieces, head) = log::page(&moment, run, &place, end, (after.get(), bytes_max))?;
        Ok(HistoryPage {
            records: scan::page(run, &pieces, after, bytes_max)?,
            head: Sequence::new(head),
        })
    }

    fn put_snapshot(&self, snapshot: Snapshot) -> Result<(), SnapshotRefused> {
        let outcome = self.shared.lock().put_snapshot(snapshot);
        self.shared.bell.ring();
        outcome
    }

    fn delete_snapshot(&self, run: RunId) -> Result<(), JournalFailure> {
        let mut state = self.shared.lock();
        state.check_open()?;
        state.snapshots.remove(run);
        drop(state);
        self.shared.bell.ring();
        Ok(())
    }

    fn snapshot(&self, run: RunId) -> Result<Option<Snapshot>, ReadError> {
        let (is_live, moment) = self.moment(|state| state.is_live(run))?;
        let row = if is_live { moment.snapshot(run)? } else { None };
        Ok(row.and_then(|row| wire::snapshot::read(run, &row)))
    }

    fn finished(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        let hash = IdHash::of(id.as_str());
        self.reader()?;
        let lookup = {
            let state = self.shared.lock();
            let closed = &state.closed;
            let is_waiting = closed.waiting.latest(hash).is_some() || closed.expired(hash).is_some();
            (!is_waiting).then(|| closed.lookup())
        };
        // Nearly all ids that are asked for are new: they cost no access to the store.
        if lookup.is_some_and(|lookup| !lookup.may_contain(hash.bits())) {
            return Ok(None);
        }
        let ((waiting, lookup, expired), moment) = self.moment(|state| {
            let closed = &state.closed;
            let waiting = closed.waiting.latest(hash).copied();
            (waiting, closed.lookup(), closed.expired(hash))
        })?;
        let found = match waiting {
            Some(finished) => Some((finished, false)),
            None => lookup
                .id(&moment, hash)?
                .map(|found| (found.finished, found.is_expired)),
        };
        match (found, expired) {
            (Some((finished, false)), _) => {
                let described = describe(&moment, &finished)?;
                Ok((described.id == *id).then_some(described))
            }
            (Some((Finished { run, .. }, true)), _) | (None, Some(run)) => Err(ReadError::Expired { run }),
            (None, None) => Ok(None),
        }
    }

    fn list_finished(&self, after: Option<RunId>, limit: usize) -> Result<Vec<FinishedRun>, ReadError> {
        let ((lookup, waiting, settled_end, first, damaged), moment) = self.moment(|state| {
            let closed = &state.closed;
            let from = after.and_then(|run| closed.waiting.number(run));
            let waiting: Vec<_> = closed
                .waiting
                .list(from.map_or(0, |number| number + 1))
                .take(limit)
                .copied()
                .collect();
            let lookup = from.is_none().then(|| closed.lookup());
            let damaged: Vec<_> = state.damaged.runs.keys().copied().collect();
            (lookup, waiting, closed.settled.end, closed.first(), damaged)
        })?;
        let mut listed = Vec::new();
        if let Some(lookup) = lookup {
            let found = after.map(|run| lookup.run(&moment, run)).transpose()?.flatten();
            let from = found.map_or(first, |found| found.number + 1).max(first);
            closed::each(&moment, (from, settled_end), &mut |_, finished| {
                if listed.len() < limit && !damaged.contains(&finished.run) {
                    listed.push(finished);
                }
                listed.len() < limit
            })?;
        }
        let missing = limit - listed.len();
        listed.extend(waiting.into_iter().take(missing));
        listed
            .iter()
            .map(|finished| describe(&moment, finished))
            .collect()
    }

    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError> {
        let ((live, finished_runs, span, damaged), moment) = self.moment_from(|state, low| {
            let damaged = state.damaged.list();
            let finished_runs = state.closed.len();
            (state.live(), finished_runs, state.live_span(low), damaged)
        })?;
        let host = &*self.shared.host;
        let records = recover::recover(&moment, &live, span, lanes, host, progress)?;
        Ok(RecoveryReport {
            live_runs: live.len() as u64,
            finished_runs,
            records,
            bytes: span.end - span.from,
            elapsed: host.elapsed().saturating_sub(self.opened.at),
            is_repaired: self.opened.is_repaired,
            is_index_rebuilt: self.opened.is_index_rebuilt,
            damaged,
        })
    }

    fn stats(&self) -> Stats {
        Stats {
            file_bytes: self.shared.file_bytes(),
            compacted_bytes: self.shared.compacted_bytes(),
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
