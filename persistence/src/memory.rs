//! A journal without a disk: for tests, and for work that may be lost with its process.
//!
//! A batch is durable, in this journal's sense, when `enqueue` returns; with
//! [`MemoryJournal::held`] only when [`MemoryJournal::commit`] says so, which lets a test look at
//! the time between the two.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrun_core::{Bell, Epoch, InstanceId, Offset, Partition, RunId, Sequence};

use crate::batch::{Batch, TurnSpan};
use crate::config::{JournalConfig, Retention};
use crate::error::{EnqueueError, FailureKind, JournalFailure, OpenError, ReadError, SnapshotRefused};
use crate::finished::{Expired, Finished, FinishedIndex, IdHash};
use crate::journal::{Enqueued, Journal, Lane, Progress, RecoveryReport, Refused, Ringing, Stats};
use crate::ledger::Ledger;
use crate::record::{FinishedRun, History, HistoryPage, Snapshot};
use crate::scan;

/// A [`Journal`] in memory. Dropping it loses everything.
#[derive(Debug)]
pub struct MemoryJournal {
    config: JournalConfig,
    is_held: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger<Frames>,
    finished: FinishedIndex<Vec<u8>>,
    expired: Expired,
    /// The snapshots of live runs.
    snapshots: BTreeMap<RunId, Snapshot>,
    retention: Retention,
    dropped: u64,
    /// Runs touched by batches that are queued (only when commits are held).
    touched: Vec<RunId>,
    /// Runs closed by batches that are queued.
    closing: Vec<(TurnSpan, Frames)>,
    enqueued: Offset,
    durable: Offset,
    queued_bytes: usize,
    queued_turns: usize,
    was_full: bool,
    failure: Option<JournalFailure>,
    watchers: Vec<Bell>,
    live_bytes: u64,
    commits: u64,
    turns: u64,
    bytes: u64,
}

/// The frames of one run.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<u8>,
    /// How many of the bytes are durable.
    durable: usize,
}

impl MemoryJournal {
    /// An empty journal in which a batch is durable at once.
    ///
    /// # Errors
    /// When a bound of the configuration makes no sense.
    pub fn new(config: JournalConfig) -> Result<Self, OpenError> {
        config.check()?;
        Ok(Self::with(config, false, Epoch::new(1)))
    }

    /// An empty journal in which a batch waits for [`commit`](Self::commit).
    ///
    /// # Errors
    /// When a bound of the configuration makes no sense.
    pub fn held(config: JournalConfig) -> Result<Self, OpenError> {
        config.check()?;
        Ok(Self::with(config, true, Epoch::new(1)))
    }

    fn with(config: JournalConfig, is_held: bool, epoch: Epoch) -> Self {
        let state = State {
            ledger: Ledger::new(epoch, config.turn_bytes_max),
            finished: FinishedIndex::new(0),
            expired: Expired::new(config.retention.expired_len_max),
            snapshots: BTreeMap::new(),
            retention: config.retention,
            dropped: 0,
            touched: Vec::new(),
            closing: Vec::new(),
            enqueued: Offset::ZERO,
            durable: Offset::ZERO,
            queued_bytes: 0,
            queued_turns: 0,
            was_full: false,
            failure: None,
            watchers: Vec::new(),
            live_bytes: 0,
            commits: 0,
            turns: 0,
            bytes: 0,
        };
        Self {
            config,
            is_held,
            state: Mutex::new(state),
        }
    }

    /// Makes durable what is queued and rings the watchers. Does nothing after a failure.
    pub fn commit(&self) {
        let mut state = self.lock();
        if state.failure.is_none() && state.queued_turns > 0 {
            state.commit();
            let watchers = state.watchers.clone();
            drop(state);
            ring(&watchers);
        }
    }

    /// Fails as a disk would: what is queued is lost, and nothing is taken any more.
    pub fn fail(&self, kind: FailureKind, message: &str) {
        let mut state = self.lock();
        if state.failure.is_none() {
            state.failure = Some(JournalFailure::new(kind, message));
        }
        let watchers = state.watchers.clone();
        drop(state);
        ring(&watchers);
    }

    /// What opening the store after a crash at this moment would find: everything durable, a
    /// higher epoch, and no failure. This journal is left as it is.
    #[must_use]
    pub fn reopened(&self) -> Self {
        let old = self.lock();
        let epoch = old.ledger.newest_epoch().next();
        let journal = Self::with(self.config.clone(), self.is_held, epoch);
        let mut new = journal.lock();
        for finished in old.finished.list(0) {
            new.finished.add(finished.clone());
        }
        let closing = old.closing.iter().map(|(turn, frames)| (turn.run, frames));
        let live = old.ledger.heads().iter().map(|(run, head)| (run, &head.place));
        for (run, frames) in live.chain(closing).filter(|(_, frames)| frames.durable > 0) {
            let durable = &frames.bytes[..frames.durable];
            let last = scan::last_turn(durable).expect("this journal framed them itself");
            let snapshot = old.snapshots.get(&run);
            if let Some(snapshot) = snapshot.filter(|kept| kept.sequence.get() <= u64::from(last.last)) {
                new.snapshots.insert(run, snapshot.clone());
            }
            new.live_bytes += durable.len() as u64;
            new.ledger.restore(
                run,
                last,
                Frames {
                    bytes: durable.to_vec(),
                    durable: durable.len(),
                },
            );
        }
        drop(new);
        journal
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush_and_close(&self) -> Result<(), JournalFailure> {
        let mut state = self.lock();
        match &state.failure {
            Some(failure) if failure.kind() == FailureKind::Closed => return Ok(()),
            Some(failure) => return Err(failure.clone()),
            None => {}
        }
        if state.queued_turns > 0 {
            state.commit();
        }
        state.failure = Some(JournalFailure::closed());
        let watchers = state.watchers.clone();
        drop(state);
        ring(&watchers);
        Ok(())
    }
}

impl State {
    fn admit(&mut self, batch: &Batch, is_held: bool) -> Vec<Refused> {
        let mut refused = Vec::new();
        for (index, turn) in batch.spans().iter().enumerate() {
            let frames = batch.frames(turn);
            let outcome = self.ledger.admit(turn, |stored| {
                stored.bytes.extend_from_slice(frames);
                if !is_held {
                    stored.durable = stored.bytes.len();
                }
            });
            match outcome {
                Ok(closed) => {
                    self.queued_turns += 1;
                    self.queued_bytes += frames.len();
                    self.live_bytes += frames.len() as u64;
                    if turn.closes {
                        self.snapshots.remove(&turn.run);
                    }
                    match closed {
                        Some(stored) => self.closing.push((*turn, stored)),
                        None if is_held => self.touched.push(turn.run),
                        None => {}
                    }
                }
                Err(error) => refused.push(Refused { turn: index, error }),
            }
        }
        refused
    }

    fn commit(&mut self) {
        for run in self.touched.drain(..) {
            if let Some(head) = self.ledger.head_mut(run) {
                head.place.durable = head.place.bytes.len();
            }
        }
        for (turn, frames) in self.closing.drain(..) {
            let bytes = frames.bytes.len() as u64;
            self.live_bytes -= bytes;
            self.finished.add(Finished {
                run: turn.run,
                id: scan::id_hash(&frames.bytes),
                closed_at: turn.time,
                head: turn.last,
                bytes,
                place: frames.bytes,
            });
            while let Some(earliest) = self.finished.earliest()
                && !self.retention.retains(
                    turn.time,
                    earliest.closed_at,
                    self.finished.len(),
                    self.finished.bytes(),
                )
                && let Some(dropped) = self.finished.drop_earliest()
            {
                self.expired.add(dropped.run, dropped.id);
                self.dropped += 1;
            }
        }
        self.commits += 1;
        self.turns += self.queued_turns as u64;
        self.bytes += self.queued_bytes as u64;
        (self.queued_turns, self.queued_bytes) = (0, 0);
        self.was_full = false;
        self.durable = self.enqueued;
    }

    /// The durable frames of a run.
    fn frames(&self, run: RunId) -> Option<&[u8]> {
        let live = || {
            self.ledger
                .head(run)
                .map(|head| &head.place.bytes[..head.place.durable])
        };
        let closing = || {
            let (_, frames) = self.closing.iter().find(|(turn, _)| turn.run == run)?;
            Some(&frames.bytes[..frames.durable])
        };
        let finished = || self.finished.run(run).map(|finished| &finished.place[..]);
        live()
            .or_else(closing)
            .or_else(finished)
            .filter(|frames| !frames.is_empty())
    }

    /// The durable frames of a run, or why there are none.
    fn known_frames(&self, run: RunId) -> Result<&[u8], ReadError> {
        self.frames(run).ok_or_else(|| {
            if self.expired.has_run(run) {
                ReadError::Expired { run }
            } else {
                ReadError::UnknownRun { run }
            }
        })
    }

    /// After a close, reading is refused; after any other failure it goes on.
    fn readable(&self) -> Result<(), JournalFailure> {
        match &self.failure {
            Some(failure) if failure.kind() == FailureKind::Closed => Err(failure.clone()),
            _ => Ok(()),
        }
    }
}

impl Journal for MemoryJournal {
    fn enqueue(&self, batch: &Batch) -> Result<Enqueued, EnqueueError> {
        let (enqueued, ringing) = self.enqueue_and_ring_later(batch)?;
        drop(ringing);
        Ok(enqueued)
    }

    fn enqueue_and_ring_later(&self, batch: &Batch) -> Result<(Enqueued, Ringing), EnqueueError> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(EnqueueError::Failed(failure.clone()));
        }
        let has_room = state.queued_bytes + batch.bytes() <= self.config.batch_bytes_max
            && state.queued_turns + batch.turns() <= self.config.batch_len_max;
        if state.queued_turns > 0 && !has_room {
            state.was_full = true;
            return Err(EnqueueError::Full);
        }
        let turns = state.queued_turns;
        let refused = state.admit(batch, self.is_held);
        if state.queued_turns > turns {
            state.enqueued = state.enqueued.next();
        }
        let offset = state.enqueued;
        let mut bells = Vec::new();
        if !self.is_held && state.queued_turns > 0 {
            state.commit();
            bells.clone_from(&state.watchers);
        }
        Ok((Enqueued { offset, refused }, Ringing::of(bells)))
    }

    fn high_watermark(&self) -> Offset {
        self.lock().durable
    }

    fn failure(&self) -> Option<JournalFailure> {
        self.lock().failure.clone()
    }

    fn watch(&self, bell: Bell) {
        self.lock().watchers.push(bell);
    }

    fn take_over(&self, partitions: &[Partition]) -> Result<Epoch, JournalFailure> {
        let mut state = self.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(state.ledger.take_over(partitions)),
        }
    }

    fn history(&self, run: RunId) -> Result<History, ReadError> {
        let state = self.lock();
        state.readable()?;
        let frames = state.known_frames(run)?;
        let (bytes, max) = (frames.len() as u64, self.config.history_bytes_max);
        if bytes > max {
            return Err(ReadError::TooLong { run, bytes, max });
        }
        let frames = frames.to_vec();
        drop(state);
        scan::history(run, &[(0, frames.into())])
    }

    fn history_page(&self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError> {
        let state = self.lock();
        state.readable()?;
        let frames = state.known_frames(run)?.to_vec();
        drop(state);
        let head = scan::last_turn(&frames).map_or(0, |turn| turn.last);
        Ok(HistoryPage {
            records: scan::page(run, &[(0, frames.into())], after, bytes_max)?,
            head: Sequence::new(u64::from(head)),
        })
    }

    fn put_snapshot(&self, snapshot: Snapshot) -> Result<(), SnapshotRefused> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(SnapshotRefused::Failed(failure.clone()));
        }
        let head = state.ledger.head(snapshot.run).ok_or(SnapshotRefused::NotLive)?;
        let head = Sequence::new(u64::from(head.last));
        if snapshot.sequence > head {
            return Err(SnapshotRefused::Ahead { head });
        }
        let (bytes, max) = (snapshot.bytes.len(), self.config.snapshot_bytes_max);
        if bytes > max {
            return Err(SnapshotRefused::TooLarge { bytes, max });
        }
        state.snapshots.insert(snapshot.run, snapshot);
        Ok(())
    }

    fn delete_snapshot(&self, run: RunId) -> Result<(), JournalFailure> {
        let mut state = self.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => {
                state.snapshots.remove(&run);
                Ok(())
            }
        }
    }

    fn snapshot(&self, run: RunId) -> Result<Option<Snapshot>, ReadError> {
        let state = self.lock();
        state.readable()?;
        Ok(state.snapshots.get(&run).cloned())
    }

    fn finished(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        let state = self.lock();
        state.readable()?;
        let hash = IdHash::of(id.as_str());
        match (state.finished.latest(hash), state.expired.latest(hash)) {
            (Some(finished), _) => Ok(Some(found(finished)).filter(|finished| finished.id == *id)),
            (None, Some(run)) => Err(ReadError::Expired { run }),
            (None, None) => Ok(None),
        }
    }

    fn list_finished(&self, after: Option<RunId>, limit: usize) -> Result<Vec<FinishedRun>, ReadError> {
        let state = self.lock();
        state.readable()?;
        let after = after.and_then(|run| state.finished.number(run));
        let from = after.map_or(0, |number| number + 1);
        Ok(state.finished.list(from).take(limit).map(found).collect())
    }

    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError> {
        let state = self.lock();
        state.readable()?;
        let mut runs: Vec<_> = state.ledger.heads().iter().map(|(run, _)| run).collect();
        runs.sort_unstable();
        let mut report = RecoveryReport {
            finished_runs: state.finished.len(),
            ..RecoveryReport::default()
        };
        for run in runs {
            let Some(frames) = state.frames(run) else { continue };
            let lane = usize::from(run.partition().index()) % lanes.len();
            report.records += scan::visit(run, frames, &mut lanes[lane])?;
            report.live_runs += 1;
            report.bytes += frames.len() as u64;
        }
        progress(Progress {
            bytes_done: report.bytes,
            bytes_total: report.bytes,
            records: report.records,
        });
        Ok(report)
    }

    fn stats(&self) -> Stats {
        let state = self.lock();
        let log_bytes = state.live_bytes + state.finished.bytes();
        Stats {
            live_runs: state.ledger.heads().len() as u64,
            finished_runs: state.finished.len(),
            dropped_runs: state.dropped,
            live_bytes: log_bytes,
            log_bytes,
            queued_bytes: state.queued_bytes as u64,
            commits: state.commits,
            turns: state.turns,
            bytes: state.bytes,
            ..Stats::default()
        }
    }

    fn begin_close(&self) {
        // After a failure there is nothing to flush, and `failure` goes on telling why.
        self.flush_and_close().ok();
    }

    fn is_closed(&self) -> bool {
        self.lock().failure.is_some()
    }

    fn close(&self) -> Result<(), JournalFailure> {
        self.flush_and_close()
    }
}

fn found(finished: &Finished<Vec<u8>>) -> FinishedRun {
    let id = scan::instance_id(&finished.place).expect("this journal framed it itself");
    FinishedRun {
        run: finished.run,
        id,
        closed_at: finished.closed_at,
        head: finished.head,
    }
}

fn ring(watchers: &[Bell]) {
    for bell in watchers {
        bell.ring();
    }
}
