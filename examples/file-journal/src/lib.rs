//! A journal in a plain file, written against the public API of `millrun-persistence` alone.
//!
//! It shows all that an implementation of [`Journal`] owes, in as few lines as that takes. It passes the contract
//! suite, survives a kill and a power cut at any byte, and runs workflows (`tests/it`).
//!
//! ```text
//!   enqueue ──► conditions ──► queue ──► writer thread ──► line, sync ──► books ──► watermark, bells
//!                (books.rs)                  (lines.rs)                      │
//!   history · finished · recover ◄───────────────────────────────────────────┘ what is durable
//! ```
//!
//! Invariants: what is read is durable; the writer owns the file, and no lock is held while it writes; after a
//! failed write or sync nothing more is written.
//!
//! Left out on purpose: all that is kept stands in memory too, so a store is as large as memory allows, and
//! everything is written anew when it is opened; [`Durability`](millrun_persistence::Durability) is always
//! `Durable`; names of dropped runs are forgotten at a close. Damage to the line that was synced last looks like a
//! line that a crash cut off.

mod books;
mod claims;
mod lines;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use millrun_core::{Bell, Epoch, InstanceId, Offset, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::{
    Batch, Claim, ClaimRefused, Claimant, EnqueueError, Enqueued, FailureKind, FinishedRun, Glance, History,
    HistoryPage, Journal, JournalConfig, JournalFailure, Lane, OwnerTable, Progress, ReadError, Reads,
    Record, RecoveryReport, RefusedTurn, Retention, Ringing, Snapshot, SnapshotRefused, Stats, StoreError,
    TurnRefused, UpkeepNumber, UpkeepUndone, Upkeeps,
};

use crate::books::{Books, Heads};
use crate::claims::Claims;
use crate::lines::{Entry, Lines};

/// A [`Journal`] in a plain file. Dropping it closes it.
pub struct FileJournal {
    config: JournalConfig,
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<JournalState>,
    /// Told of each entry for the writer, and of its end.
    changed: Condvar,
}

struct JournalState {
    heads: Heads,
    books: Books,
    claims: Claims,
    queue: Vec<Entry>,
    queued_turns: usize,
    queued_bytes: usize,
    queued_snapshot_bytes: usize,
    enqueued: Offset,
    durable: Offset,
    commits: u64,
    is_closing: bool,
    is_closed: bool,
    failure: Option<JournalFailure>,
    watchers: Vec<Bell>,
    upkeeps: Upkeeps,
}

impl FileJournal {
    /// Opens the journal in the file at `path`, or makes a new one. Beside it there are `<name>.lock`, and for
    /// a moment `<name>.new`.
    ///
    /// # Errors
    /// When the configuration makes no sense, the journal is open elsewhere, or its file is damaged or cannot
    /// be read or written.
    pub fn open(path: impl AsRef<Path>, config: JournalConfig) -> Result<Self, StoreError> {
        config.check()?;
        let mut books = Books::default();
        let lines = Lines::open(path.as_ref(), |entries| {
            for entry in entries {
                books.enter(entry, &config.retention);
            }
            books.epochs += 1;
            books.entries()
        })?;
        (books.turns, books.dropped) = (0, 0);
        let state = JournalState {
            heads: Heads::new(books.epochs, &books),
            books,
            claims: Claims::default(),
            queue: Vec::new(),
            queued_turns: 0,
            queued_bytes: 0,
            queued_snapshot_bytes: 0,
            enqueued: Offset::ZERO,
            durable: Offset::ZERO,
            commits: 0,
            is_closing: false,
            is_closed: false,
            failure: None,
            watchers: Vec::new(),
            upkeeps: Upkeeps::default(),
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { state, changed });
        let (of_writer, retention) = (Arc::clone(&shared), config.retention);
        let writer = thread::Builder::new()
            .name("file-journal".to_owned())
            .spawn(move || {
                let end = EndOfWriter(of_writer);
                let failure = end.0.write(lines, &retention);
                end.0.lock().failure = Some(failure);
            })
            .map_err(|source| StoreError::Io {
                path: path.as_ref().to_owned(),
                source,
            })?;
        Ok(Self {
            config,
            shared,
            writer: Some(writer),
        })
    }

    /// Gives a claim its epochs, which are counted in the file before it is answered.
    fn begin_claim(
        &self,
        claim: Claim,
        take: impl FnOnce(&mut OwnerTable, &Claim) -> Result<(Vec<(Partition, Epoch)>, Ringing), ClaimRefused>,
    ) {
        let mut state = match self.open_state() {
            Ok(state) => state,
            Err(failure) => return drop(claim.refuse(failure.into())),
        };
        match take(&mut state.heads.owners, &claim) {
            Ok((given, told)) => {
                state.count_epoch(claim.partitions());
                let from = state.enqueued;
                state.claims.push(claim, given, from);
                self.shared.changed.notify_all();
                drop(state);
                drop(told);
            }
            Err(error) => {
                drop(state);
                drop(claim.refuse(error));
            }
        }
    }

    /// The state of a journal that takes something.
    fn open_state(&self) -> Result<MutexGuard<'_, JournalState>, JournalFailure> {
        let state = self.shared.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None if state.is_closing => Err(JournalFailure::closed()),
            None => Ok(state),
        }
    }

    /// The state of a journal that may be read: after a close it may not, after another failure it may.
    fn readable(&self) -> Result<MutexGuard<'_, JournalState>, ReadError> {
        let state = self.shared.lock();
        match &state.failure {
            Some(failure) if failure.kind() == FailureKind::Closed => Err(ReadError::Failed(failure.clone())),
            _ => Ok(state),
        }
    }
}

impl JournalState {
    /// Partitions have new epochs: those of the next opening must be above them.
    fn count_epoch(&mut self, partitions: &[Partition]) {
        self.heads.trust(partitions);
        self.queue.push(Entry::Epochs(1));
        self.enqueued = self.enqueued.next();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is queued until the journal is closed or fails; says which.
    fn write(&self, mut lines: Lines, retention: &Retention) -> JournalFailure {
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() {
                if state.is_closing {
                    return JournalFailure::closed();
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let entries = std::mem::take(&mut state.queue);
            (
                state.queued_turns,
                state.queued_bytes,
                state.queued_snapshot_bytes,
            ) = (0, 0, 0);
            let (offset, upkeep) = (state.enqueued, state.upkeeps.next().map(|(number, _)| number));
            drop(state);
            if let Err(error) = lines.append(&entries) {
                return JournalFailure::new(FailureKind::Io(error.kind()), error.to_string());
            }
            let mut state = self.lock();
            for entry in entries {
                state.books.enter(entry, retention);
            }
            state.durable = offset;
            state.commits += 1;
            let JournalState {
                claims, heads, books, ..
            } = &mut *state;
            // Told under the lock: a loss of what is granted is told behind it.
            let granted = claims.grant(offset, &heads.owners, books);
            let upkept = upkeep.map(|number| state.upkeeps.finish(number, Ok(())));
            self.tell(state);
            drop((granted, upkept));
        }
    }

    /// Rings everybody, without the lock.
    fn tell(&self, state: MutexGuard<'_, JournalState>) {
        let watchers = state.watchers.clone();
        drop(state);
        self.changed.notify_all();
        for watcher in watchers {
            watcher.ring();
        }
    }
}

/// Tells that the writer has ended, also when it has panicked; the file is closed by then.
struct EndOfWriter(Arc<Shared>);

impl Drop for EndOfWriter {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let lost = || JournalFailure::new(FailureKind::WriterLost, "the writer has panicked");
        let failure = state.failure.get_or_insert_with(lost).clone();
        let refused = (state.claims.refuse(&failure), state.upkeeps.fail(&failure));
        state.is_closed = true;
        self.0.tell(state);
        drop(refused);
    }
}

impl fmt::Debug for FileJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("FileJournal")
            .field("stats", &stats)
            .finish_non_exhaustive()
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        self.begin_close();
        let ended = self.writer.take().map(JoinHandle::join);
        drop(ended);
    }
}

impl Journal for FileJournal {
    fn enqueue(&self, batch: &Batch) -> Result<Enqueued, EnqueueError> {
        let mut state = self.open_state()?;
        let has_room = state.queued_bytes + batch.bytes() <= self.config.batch_bytes_max
            && state.queued_turns + batch.turns() <= self.config.batch_len_max;
        if state.queued_turns > 0 && !has_room {
            return Err(EnqueueError::Full);
        }
        let mut refused: Vec<RefusedTurn> = Vec::new();
        let queued = state.queued_turns;
        for group in batch.groups() {
            let rests_on_refused = |turn: usize| {
                let is_before = |last: &RefusedTurn| last.turn + 1 == turn;
                let last = refused.last().filter(|last| is_before(last));
                group.is_tied() && last.is_some_and(|last| last.error != TurnRefused::AlreadyAppended)
            };
            if group
                .turns()
                .next()
                .is_some_and(|(first, _)| rests_on_refused(first))
            {
                let error = || TurnRefused::ReadAgain;
                refused.extend(
                    group
                        .turns()
                        .map(|(turn, _)| RefusedTurn { turn, error: error() }),
                );
                continue;
            }
            let (bytes, max) = (group.bytes(), self.config.turn_bytes_max);
            match state.heads.judge(&group, bytes, max) {
                Ok(()) => {
                    for (_, turn) in group.turns() {
                        let entry = state.heads.admit(&turn);
                        state.queue.push(Entry::Turn(entry));
                        state.queued_turns += 1;
                    }
                    state.queued_bytes += bytes;
                }
                Err(errors) => {
                    for ((turn, view), error) in group.turns().zip(errors) {
                        let error = error.unwrap_or(TurnRefused::ReadAgain);
                        state.heads.mark(view.run(), &error);
                        refused.push(RefusedTurn { turn, error });
                    }
                }
            }
        }
        if state.queued_turns > queued {
            state.enqueued = state.enqueued.next();
            self.shared.changed.notify_all();
        }
        let offset = state.enqueued;
        Ok(Enqueued {
            offset,
            refused,
            topic_appends: Vec::new(),
        })
    }

    fn read_again(&self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused> {
        self.shared.lock().heads.read_again(run, epoch)
    }

    fn high_watermark(&self) -> Offset {
        self.shared.lock().durable
    }

    fn failure(&self) -> Option<JournalFailure> {
        self.shared.lock().failure.clone()
    }

    fn watch(&self, bell: Bell) {
        self.shared.lock().watchers.push(bell);
    }

    fn claim(&self, claim: Claim) {
        self.begin_claim(claim, OwnerTable::claim);
    }

    fn take_from(&self, claim: Claim) {
        self.begin_claim(claim, |owners, claim| Ok(owners.take(claim)));
    }

    fn release(&self, claimant: &Claimant, partitions: &[Partition]) {
        self.shared.lock().heads.owners.release(claimant, partitions);
    }

    fn take_over(&self, partitions: &[Partition]) -> Result<Epoch, JournalFailure> {
        let mut state = self.open_state()?;
        let (epoch, told) = state.heads.owners.take_over(partitions);
        state.count_epoch(partitions);
        self.shared.changed.notify_all();
        drop(state);
        drop(told);
        Ok(epoch)
    }

    fn put_snapshot(&self, snapshot: Snapshot) -> Result<(), SnapshotRefused> {
        let mut state = self.open_state()?;
        let head = state.heads.last(snapshot.run).ok_or(SnapshotRefused::NotLive)?;
        let (bytes, max) = (snapshot.bytes.len(), self.config.snapshot_bytes_max);
        if snapshot.sequence > head {
            return Err(SnapshotRefused::Ahead { head });
        } else if bytes > max {
            return Err(SnapshotRefused::TooLarge { bytes, max });
        } else if state.queued_snapshot_bytes + bytes > max {
            return Err(SnapshotRefused::Full);
        }
        state.queued_snapshot_bytes += bytes;
        let Snapshot { run, sequence, bytes } = snapshot;
        state
            .queue
            .push(Entry::Snapshot(run.bits(), sequence.get(), bytes));
        self.shared.changed.notify_all();
        Ok(())
    }

    fn delete_snapshot(&self, run: RunId) -> Result<(), JournalFailure> {
        self.open_state()?.queue.push(Entry::NoSnapshot(run.bits()));
        self.shared.changed.notify_all();
        Ok(())
    }

    /// An entry, so that what is dropped for it is dropped again when the file is read.
    fn upkeep(&self, now: Timestamp, done: Bell) -> UpkeepNumber {
        let mut state = self.shared.lock();
        let number = state.upkeeps.ask(now, done);
        let told = match (&state.failure, state.is_closing) {
            (Some(failure), _) => {
                let failure = failure.clone();
                state.upkeeps.fail(&failure)
            }
            (None, true) => state.upkeeps.fail(&JournalFailure::closed()),
            (None, false) => {
                state.queue.push(Entry::Upkeep(now.as_micros()));
                Ringing::default()
            }
        };
        drop(state);
        drop(told);
        self.shared.changed.notify_all();
        number
    }

    fn upkept(&self, number: UpkeepNumber) -> Option<Result<(), UpkeepUndone>> {
        self.shared.lock().upkeeps.outcome(number)
    }

    fn stats(&self) -> Stats {
        let state = self.shared.lock();
        let mut stats = Stats::default();
        stats.finished_runs = state.books.finished_len();
        stats.live_runs = state.books.live().count() as u64;
        stats.dropped_runs = state.books.dropped;
        stats.live_bytes = state.books.bytes();
        stats.log_bytes = stats.live_bytes;
        stats.queued_bytes = state.queued_bytes as u64;
        stats.commits = state.commits;
        stats.turns = state.books.turns;
        stats
    }

    fn begin_close(&self) {
        self.shared.lock().is_closing = true;
        self.shared.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }

    fn close(&self) -> Result<(), JournalFailure> {
        self.begin_close();
        let mut state = self.shared.lock();
        while !state.is_closed {
            state = self
                .shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match &state.failure {
            Some(failure) if failure.kind() != FailureKind::Closed => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// The books are in memory, so this asks only when they are not to be read any more.
    fn glance(&self, id: &InstanceId) -> Glance {
        match self.finished(id) {
            Ok(Some(finished)) => Glance::Found(finished),
            Ok(None) => Glance::Absent,
            Err(ReadError::Expired { run }) => Glance::Expired(run),
            Err(_) => Glance::Ask,
        }
    }
}

impl Reads for FileJournal {
    fn history(&self, run: RunId) -> Result<History, ReadError> {
        let state = self.readable()?;
        let (id, bytes, trimmed) = state.books.describe(run)?;
        let max = self.config.history_bytes_max;
        if bytes > max {
            return Err(ReadError::TooLong { run, bytes, max });
        }
        let (records, _) = state.books.history(run)?;
        Ok(History::new(run, id.clone(), records.collect(), trimmed))
    }

    fn history_page(&self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError> {
        let state = self.readable()?;
        let (id, _, trimmed) = state.books.describe(run)?;
        let beginning = trimmed
            .as_ref()
            .map_or(Sequence::new(1), |trimmed| trimmed.before);
        let (records, head) = state.books.history(run)?;
        let (mut page, mut bytes) = (Vec::<Record>::new(), 0);
        for record in records.filter(|record| record.sequence > after) {
            bytes += record.body.len();
            if bytes > bytes_max && !page.is_empty() {
                break;
            }
            page.push(record);
        }
        let begins = page.first().is_some_and(|record| record.sequence == beginning);
        let page = HistoryPage::new(page, head);
        Ok(match begins {
            true => page.with_beginning(id.clone(), trimmed),
            false => page,
        })
    }

    fn snapshot(&self, run: RunId) -> Result<Option<Snapshot>, ReadError> {
        Ok(self.readable()?.books.snapshot(run))
    }

    fn finished(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        self.readable()?.books.finished(id)
    }

    fn list_finished(&self, after: Option<RunId>, limit: usize) -> Result<Vec<FinishedRun>, ReadError> {
        Ok(self.readable()?.books.list_finished(after, limit))
    }

    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError> {
        let state = self.readable()?;
        let mut report = RecoveryReport::default();
        report.finished_runs = state.books.finished_len();
        for run in state.books.live() {
            let lane = usize::from(run.partition().index()) % lanes.len();
            report.live_runs += 1;
            state.books.visit(run, &mut |record| {
                report.records += 1;
                report.bytes += record.body.len() as u64;
                lanes[lane](record);
            });
        }
        progress(Progress {
            bytes_done: report.bytes,
            bytes_total: report.bytes,
            records: report.records,
        });
        Ok(report)
    }
}
