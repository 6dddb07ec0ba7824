//! Opens a journal: reads what its store holds, and starts the parts that work on it.
//!
//! ```text
//!   open (the file) ──► Store ──► count ──► index ──► log ──► Read ──► JournalState ──► writer, archiver
//!                                        or anew       └─► folds
//! ```
//!
//! Invariants: an opening is durably counted before any of its epochs is used, so its epochs are above all earlier ones; a
//! damaged index is rebuilt from the log; no part is started before everything is read.
//!
//! Left out: which files are stores ([`open`](super::open)), and how the log is read ([`rebuild`](super::rebuild)).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Bell, Epoch, Host, Partition, Placement, RunId, Timestamp};

use super::rebuild::{self, KnownFinished, Rebuilt};
use super::{open, recover};
use crate::claim::Claim;
use crate::error::{JournalFailure, ReadError, StoreError};
use crate::finished::{Finished, Place};
use crate::fold::{Fold, NoFold};
use crate::heads;
use crate::journal::Progress;
use crate::record::RecordView;
use crate::redb::commit::archive::Archiver;
use crate::redb::commit::queued;
use crate::redb::commit::writer::Writer;
use crate::redb::config::RedbConfig;
use crate::redb::database::moment::StoreMoment;
use crate::redb::database::store::Store;
use crate::redb::file::disk::Disk;
use crate::redb::finished::age::AgeClock;
use crate::redb::finished::finished_runs::{self, FinishedRuns, TrimStep};
use crate::redb::finished::index::Index;
use crate::redb::finished::settler;
use crate::redb::shared::JournalShared;
use crate::redb::state::JournalState;
use crate::redb::{Opened, RedbJournal};
use crate::scan;

impl RedbJournal {
    /// Opens the store at `path`, or creates it if there is no file, and starts its writer on `host`. Returns when the state
    /// of all runs is known; [`recover`](crate::Reads::recover) hands out their records.
    ///
    /// # Errors
    /// See [`StoreError`]. A second journal on the same file gets [`StoreError::AlreadyOpen`] at once.
    pub fn open(
        path: impl AsRef<Path>,
        config: impl Into<RedbConfig>,
        host: Arc<dyn Host>,
    ) -> Result<Self, StoreError> {
        let config = config.into();
        config.check()?;
        let (path, at) = (path.as_ref(), host.elapsed());
        let store = open::open_path(path, &config.store, &*host)?;
        Self::start(store, path, config, host, at)
    }

    /// As [`open`](Self::open), with a claim that is answered when this returns, in one pass over the log: the records of its
    /// partitions are handed to its folds, and those of ended runs are taken back. With several folds each is fed from its
    /// own thread. When the claim is granted, the folds hold what they have built from live runs, and from no others.
    ///
    /// The report counts the bytes of the whole log. `progress` is called at most a few times a second, and counts all
    /// records.
    ///
    /// # Errors
    /// As [`open`](Self::open); the claim is then refused.
    pub fn open_claiming(
        path: impl AsRef<Path>,
        config: impl Into<RedbConfig>,
        host: Arc<dyn Host>,
        claim: Claim,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, StoreError> {
        let config = config.into();
        config.check()?;
        let (path, at) = (path.as_ref(), host.elapsed());
        let store = open::open_path(path, &config.store, &*host)?;
        Self::start_claiming(store, (path, at), config, host, claim, progress)
    }

    /// As [`open_claiming`](Self::open_claiming), for a store that no process has open, without changing a byte of its file:
    /// what opening it writes (the repair of a store that was not closed, a rebuilt index of finished runs) and all that is
    /// appended stays in memory, or beyond [`changed_bytes_max`](crate::StoreConfig::changed_bytes_max) in a temporary file,
    /// and is lost with the journal. Neither the file nor its folder needs to be writable. Retention drops nothing and
    /// nothing is archived, whatever the configuration says; an appended record is acknowledged, but not durable.
    ///
    /// The file is locked together with other readers: a process that wants to open it for writing meanwhile gets
    /// [`StoreError::AlreadyOpen`].
    ///
    /// # Errors
    /// As [`open`](Self::open); [`StoreError::Foreign`] for a file in which no store has been made yet. A missing file is
    /// [`StoreError::Io`]: none is created.
    pub fn open_read_only(
        path: impl AsRef<Path>,
        config: impl Into<RedbConfig>,
        host: Arc<dyn Host>,
        claim: Claim,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, StoreError> {
        let config = config.into().for_reading();
        config.check()?;
        let (path, at) = (path.as_ref(), host.elapsed());
        let store = open::open_path_read_only(path, &config.store, &*host)?;
        Self::start_claiming(store, (path, at), config, host, claim, progress)
    }

    fn start_claiming(
        store: Store,
        (path, at): (&Path, Duration),
        config: RedbConfig,
        host: Arc<dyn Host>,
        mut claim: Claim,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, StoreError> {
        let mut reported = host.elapsed();
        let mut now_and_then = |so_far: Progress| {
            if so_far.bytes_done == so_far.bytes_total
                || host.elapsed().saturating_sub(reported) >= recover::PROGRESS_EVERY
            {
                reported = host.elapsed();
                progress(so_far);
            }
        };
        let has_folds = !claim.folds().is_empty();
        let mut shares = ClaimShare::all(&mut claim, store.lanes());
        let mut folds: Vec<_> = shares.iter_mut().map(|share| share as &mut dyn Fold).collect();
        let read = Read::of(&store, &config, &mut folds, &mut now_and_then);
        if has_folds {
            claim.put_folds(shares.into_iter().map(|share| share.fold).collect());
        }
        let read = read.map_err(|failure| open::failed(&failure, path))?;
        let bytes = read.rebuilt.end.saturating_sub(read.rebuilt.low);
        let journal = Self::start_with(store, path, config, Arc::clone(&host), at, read)?;
        let mut state = journal.shared.lock();
        let told = match state.own(&claim, false) {
            Ok((given, _)) => {
                let (owned, mut report) = state.claimed(&given);
                report.bytes = bytes;
                report.elapsed = host.elapsed().saturating_sub(at);
                report.is_repaired = journal.opened.is_repaired;
                report.is_index_rebuilt = journal.opened.is_index_rebuilt;
                claim.grant(owned, report)
            }
            Err(error) => claim.refuse(error),
        };
        drop(state);
        drop(told);
        Ok(journal)
    }

    /// Opens the store on a disk that the caller provides, or creates it if the disk is empty.
    ///
    /// # Errors
    /// See [`StoreError`]; the path in it is `name`.
    pub fn open_disk(
        disk: Arc<dyn Disk>,
        name: &str,
        config: impl Into<RedbConfig>,
        host: Arc<dyn Host>,
    ) -> Result<Self, StoreError> {
        let config = config.into();
        config.check()?;
        let (path, at) = (Path::new(name), host.elapsed());
        let store = open::open_disk(disk, path, &config.store, &*host)?;
        Self::start(store, path, config, host, at)
    }

    fn start(
        store: Store,
        path: &Path,
        config: RedbConfig,
        host: Arc<dyn Host>,
        at: Duration,
    ) -> Result<Self, StoreError> {
        let mut nothing: Vec<_> = (0..store.lanes()).map(|_| NoFold).collect();
        let mut folds: Vec<_> = nothing.iter_mut().map(|fold| fold as &mut dyn Fold).collect();
        let read = Read::of(&store, &config, &mut folds, &mut |_| {});
        let read = read.map_err(|failure| open::failed(&failure, path))?;
        Self::start_with(store, path, config, host, at, read)
    }

    fn start_with(
        store: Store,
        path: &Path,
        config: RedbConfig,
        host: Arc<dyn Host>,
        at: Duration,
        read: Read,
    ) -> Result<Self, StoreError> {
        let failed = |failure: JournalFailure| open::failed(&failure, path);
        let Read {
            opens,
            newest,
            is_index_rebuilt,
            rebuilt,
            mut closed,
            gone,
            rows,
            trim_turns,
            trims_archived,
        } = read;
        let snapshots = store.moment().and_then(|moment| moment.snapshots());
        let snapshots = snapshots.map_err(failed)?;
        let topics = store.moment().and_then(|moment| moment.topics());
        let topics = topics.map_err(failed)?;
        closed.age.opened(newest, host.elapsed());
        // Epochs of this opening are above all that earlier ones gave out: the count is durable.
        let epoch = Epoch::new(opens << 32);
        let opened = Opened {
            at,
            is_repaired: store.is_repaired,
            is_index_rebuilt,
            number: store.number,
        };
        let store = Arc::new(store);
        let mut state = JournalState::new(&config.journal, epoch, rebuilt, closed, gone, snapshots, topics);
        if config.store.archive.is_some() {
            state.archive_trims(trims_archived, &trim_turns);
        }
        let shared = Arc::new(JournalShared::new(
            config,
            Arc::clone(&host),
            state,
            Arc::clone(&store),
        ));
        let writer = Writer::new(Arc::clone(&shared), store, rows);
        let ended = Arc::clone(&shared);
        host.spawn_part(
            "millrun-journal",
            Placement::Thread,
            shared.bell.clone(),
            Box::new(writer),
            Box::new(move |exit| ended.writer_ended(&exit)),
        )?;
        if let Some(archive) = shared.config.store.archive.clone() {
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
}

/// Drops what retention does not keep at `now`; `gone` gets the dropped runs that have turns kept outside of the log, which
/// begins at `low`.
fn drop_expired(
    closed: &mut FinishedRuns,
    now: Timestamp,
    (moment, low): (&StoreMoment, u64),
    gone: &mut Vec<RunId>,
) {
    let mut dropped = |dropped: &Finished<Place>| {
        if dropped.place.first < low {
            gone.push(dropped.run);
        }
    };
    while let TrimStep::Load(number) = closed.trim(now, &mut dropped) {
        closed.load(finished_runs::row(moment, number));
    }
}

/// Hands a fold of a claim the records of the claimed partitions, and of no others, while a store is opened.
struct ClaimShare {
    /// Which partitions are claimed, by their index.
    is_claimed: Arc<[bool]>,
    fold: Box<dyn Fold>,
}

impl ClaimShare {
    /// One for each fold of a claim; if it has none, `lanes` shares without a fold.
    fn all(claim: &mut Claim, lanes: usize) -> Vec<Self> {
        let mut is_claimed = vec![false; usize::from(Partition::COUNT)];
        for partition in claim.partitions() {
            is_claimed[usize::from(partition.index())] = true;
        }
        let is_claimed: Arc<[bool]> = is_claimed.into();
        let mut folds = claim.take_folds();
        if folds.is_empty() {
            folds.extend((0..lanes).map(|_| Box::new(NoFold) as Box<dyn Fold>));
        }
        let share = |fold| Self {
            is_claimed: Arc::clone(&is_claimed),
            fold,
        };
        folds.into_iter().map(share).collect()
    }
}

impl Fold for ClaimShare {
    fn record(&mut self, number: usize, record: RecordView<'_>) {
        if self.is_claimed[usize::from(record.run.partition().index())] {
            self.fold.record(number, record);
        }
    }

    fn forget(&mut self, number: usize) {
        self.fold.forget(number);
    }
}

/// Everything that is read when a store is opened.
struct Read {
    /// How often it has been opened.
    opens: u64,
    /// When the latest settled run closed, if there is no other source for the time.
    newest: Option<Timestamp>,
    is_index_rebuilt: bool,
    /// What its log holds.
    rebuilt: Rebuilt,
    /// Finished runs.
    closed: FinishedRuns,
    /// Runs that were dropped while some of their turns are kept.
    gone: Vec<RunId>,
    /// The rows of the index.
    rows: settler::IndexRows,
    /// The turns that have trimmed runs and whose trimmed records are all still there,
    trim_turns: Vec<queued::TrimTurn>,
    /// and the position in the log below which they are archived.
    trims_archived: u64,
}

impl Read {
    fn of(
        store: &Store,
        config: &RedbConfig,
        folds: &mut [&mut dyn Fold],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, JournalFailure> {
        let opens = store.count_open()?;
        let (index, is_index_rebuilt) = sound_index(store)?;
        let moment = store.moment()?;
        let known = if index.is_begun {
            KnownFinished::Before(index.settled.position)
        } else {
            KnownFinished::Nothing
        };
        let mut rebuilt = rebuild::rebuild_folding(&moment, known, folds, progress)?;
        let mut kept = std::mem::take(&mut rebuilt.kept);
        index.remove_retained(&moment, &mut kept)?;
        let mut gone: Vec<_> = kept.into_iter().collect();
        gone.append(&mut rebuilt.superseded);
        let trims_archived = moment.trims_archived()?;
        let trim_turns = std::mem::take(&mut rebuilt.trim_turns);
        let is_held =
            |trim: &queued::TrimTurn| config.store.archive.is_some() && trim.position >= trims_archived;
        let dead = trim_turns
            .iter()
            .filter(|trim| !is_held(trim) && trim.before.first < rebuilt.low);
        gone.extend(dead.map(|trim| trim.run));
        gone.sort_unstable();
        gone.dedup();
        let mut closed = FinishedRuns::new(config.journal.retention, index.settled, index.first);
        closed.outlines = index.outlines;
        closed.age = AgeClock::reading(config.journal.retention.age_step_max, moment.aged()?);
        if config.store.archive.is_some() {
            closed.archive(index.archived);
        }
        forget_dropped(&mut rebuilt, &closed, &moment);
        end_settled(&mut rebuilt, folds, &closed, &moment);
        let lookup = closed.lookup();
        rebuilt
            .damaged
            .name(|run| Some(lookup.run(&moment, run).ok()??.finished.id));
        let low = rebuilt.low;
        for mut finished in std::mem::take(&mut rebuilt.closed) {
            finished.closed_at = closed.age.see(finished.closed_at, Duration::ZERO);
            closed.waiting.add(finished);
            let now = closed.age.now();
            drop_expired(&mut closed, now, (&moment, low), &mut gone);
        }
        // Runs that were dropped for their age when the store was last open do not come back.
        let known = closed.age.known();
        drop_expired(&mut closed, known, (&moment, low), &mut gone);
        let newest = newest_settled(&closed, &moment);
        Ok(Self {
            opens,
            newest,
            is_index_rebuilt,
            rebuilt,
            closed,
            gone,
            rows: index.rows,
            trim_turns,
            trims_archived,
        })
    }
}

/// When the latest settled run closed, for a store that was written before the time for ages was stored.
fn newest_settled(closed: &FinishedRuns, moment: &StoreMoment) -> Option<Timestamp> {
    let last = closed
        .settled
        .end
        .checked_sub(1)
        .filter(|_| !closed.age.is_known())?;
    // If it cannot be read, retention will report that.
    let row = finished_runs::row(moment, last).ok()?;
    row.last().map(|(_, finished)| finished.closed_at)
}

/// Forgets damaged runs that retention has dropped: what is left of them in the log belongs to no run. A run that the index
/// does not know was damaged before it could be settled, and is kept.
fn forget_dropped(rebuilt: &mut Rebuilt, closed: &FinishedRuns, moment: &StoreMoment) {
    let (lookup, settled) = (closed.lookup(), closed.settled.position);
    rebuilt.damaged.retain(|run, quarantined| {
        let is_settled = quarantined.closes.is_some_and(|position| position < settled);
        !is_settled || !matches!(lookup.run(moment, run), Ok(Some(found)) if found.is_expired)
    });
}

/// Removes runs that seem to be live but have finished according to the index: the record that closes them is damaged. Only
/// looked for if there is damage.
fn end_settled(
    rebuilt: &mut Rebuilt,
    folds: &mut [&mut dyn Fold],
    closed: &FinishedRuns,
    moment: &StoreMoment,
) {
    if rebuilt.damaged.is_empty() {
        return;
    }
    let lookup = closed.lookup();
    for (heads, fold) in rebuilt.live.iter_mut().zip(folds) {
        let runs: Vec<_> = heads.iter().map(|(run, _)| run).collect();
        for run in runs {
            let (Ok(Some(found)), Some(number)) = (lookup.run(moment, run), heads.find(run)) else {
                continue;
            };
            heads.remove(number);
            fold.forget(heads::index_of(number));
            if !found.is_expired {
                let Finished { place, id, .. } = found.finished;
                let error = scan::damaged(
                    run,
                    place.last,
                    &"the record that closes it is missing or damaged",
                );
                rebuilt.damaged.quarantine(run, error, Some(id));
            }
        }
    }
}

/// What is settled. A damaged index is deleted; the flag tells so.
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
