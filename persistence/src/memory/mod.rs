//! A journal without a disk: for tests, and for work that may be lost with its process.
//!
//! A batch is durable, in this journal's sense, when `enqueue` returns; with
//! [`MemoryJournal::held`] only when [`MemoryJournal::commit`] says so, which lets a test look at
//! the time between the two.
//!
//! No record is read back from a disk here, so this journal's [batches](Journal::batch) leave checksums out. Frames are kept
//! with or without them, as they came; a read adds them first, in a copy.

mod claims;
mod retained;
mod searching;
mod state;
mod together;
mod topics;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use millrun_core::{Bell, Epoch, InstanceId, Offset, Partition, RunId, Sequence, Timestamp};

use self::state::MemoryState;
use self::together::Copied;
use crate::batch::Batch;
use crate::claim::{Claim, Claimant};
use crate::config::JournalConfig;
use crate::error::{
    EnqueueError, FailureKind, JournalFailure, ReadError, SnapshotRefused, StoreError, TurnRefused,
};
use crate::journal::{Enqueued, Glance, Journal, Lane, Progress, Reads, RecoveryReport, Ringing, Stats};
use crate::record::{FinishedRun, History, HistoryPage, Snapshot};
use crate::scan;
use crate::search::{FinishedFound, FinishedSearch};
use crate::together::{EachRead, ToRead};
use crate::topics::TopicStreams;
use crate::upkeep::{UpkeepNumber, UpkeepUndone};
use crate::wire::v1;

/// How many finished runs are indexed under their own ids before other threads get the lock.
const INDEXED_AT_A_TIME: u64 = 256;

/// A [`Journal`] in memory. Dropping it loses everything.
#[derive(Debug)]
pub struct MemoryJournal {
    config: JournalConfig,
    is_held: bool,
    state: Mutex<MemoryState>,
}

impl MemoryJournal {
    /// An empty journal in which a batch is durable at once.
    ///
    /// # Errors
    /// When a bound of the configuration makes no sense.
    pub fn new(config: JournalConfig) -> Result<Self, StoreError> {
        config.check()?;
        Ok(Self::with(config, false, Epoch::new(1)))
    }

    /// An empty journal in which a batch waits for [`commit`](Self::commit).
    ///
    /// # Errors
    /// When a bound of the configuration makes no sense.
    pub fn held(config: JournalConfig) -> Result<Self, StoreError> {
        config.check()?;
        Ok(Self::with(config, true, Epoch::new(1)))
    }

    fn with(config: JournalConfig, is_held: bool, epoch: Epoch) -> Self {
        let state = MemoryState::new(&config, is_held, epoch);
        Self {
            config,
            is_held,
            state: Mutex::new(state),
        }
    }

    /// Makes durable what is queued and rings the watchers. Does nothing after a failure.
    pub fn commit(&self) {
        let mut state = self.lock();
        if state.failure.is_none() && state.is_queued() {
            state.commit();
            let answered = (state.answer_claims(), state.see_to_upkeep());
            let watchers = state.watchers.clone();
            drop(state);
            drop(answered);
            ring(&watchers);
        }
    }

    /// Fails as a disk would: what is queued is lost, and nothing is taken any more.
    pub fn fail(&self, kind: FailureKind, message: &str) {
        let mut state = self.lock();
        if state.failure.is_none() {
            state.failure = Some(JournalFailure::new(kind, message));
        }
        let answered = (state.answer_claims(), state.see_to_upkeep());
        let watchers = state.watchers.clone();
        drop(state);
        drop(answered);
        ring(&watchers);
    }

    /// What opening the store after a crash at this moment would find: everything durable, a higher epoch, and no failure.
    /// This journal is not changed.
    #[must_use]
    pub fn reopened(&self) -> Self {
        let old = self.lock();
        let epoch = old.conditions.owners.newest().next();
        let journal = Self::with(self.config.clone(), self.is_held, epoch);
        journal.lock().take_over_durable(&old);
        journal
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state, with this run indexed if it has finished.
    fn lock_for(&self, run: RunId) -> MutexGuard<'_, MemoryState> {
        self.lock_indexed(|state| state.has_durable_frames(run))
    }

    /// Locks the state, with all runs indexed that have finished by now, unless that is not wanted any more.
    fn lock_indexed(&self, is_unwanted: impl Fn(&MemoryState) -> bool) -> MutexGuard<'_, MemoryState> {
        let mut state = self.lock();
        let end = state.finished.end();
        while !is_unwanted(&state) && !state.finished.index_runs(end, INDEXED_AT_A_TIME) {
            drop(state);
            // Otherwise this thread would take the lock again before a waiting thread has woken up.
            thread::yield_now();
            state = self.lock();
        }
        state
    }

    fn flush_and_close(&self) -> Result<(), JournalFailure> {
        let mut state = self.lock();
        match &state.failure {
            Some(failure) if failure.kind() == FailureKind::Closed => return Ok(()),
            Some(failure) => return Err(failure.clone()),
            None => {}
        }
        if state.is_queued() {
            state.commit();
        }
        state.failure = Some(JournalFailure::closed());
        let answered = (state.answer_claims(), state.see_to_upkeep());
        let watchers = state.watchers.clone();
        drop(state);
        drop(answered);
        ring(&watchers);
        Ok(())
    }
}

impl Journal for MemoryJournal {
    fn batch(&self, turn_bytes_max: usize) -> Batch {
        Batch::unsealed(turn_bytes_max)
    }

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
            && state.queued_len + batch.turns() + batch.topic_records() <= self.config.batch_len_max;
        if state.is_queued() && !has_room {
            state.was_full = true;
            return Err(EnqueueError::Full);
        }
        let queued = state.queued_len;
        let refused = state.admit(batch);
        let topic_appends = if batch.topic_records() > 0 {
            state.append_to_topics(batch, &refused)
        } else {
            Vec::new()
        };
        if state.queued_len > queued {
            state.enqueued = state.enqueued.next();
        }
        let offset = state.enqueued;
        let mut bells = Vec::new();
        if !self.is_held && state.is_queued() {
            state.commit();
            bells.clone_from(&state.watchers);
        }
        let enqueued = Enqueued {
            offset,
            refused,
            topic_appends,
        };
        Ok((enqueued, Ringing::of(bells)))
    }

    fn read_again(&self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused> {
        self.lock().conditions.read_again(run, epoch)
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

    fn claim(&self, claim: Claim) {
        let told = self.lock().claim(claim, false);
        drop(told);
    }

    fn take_from(&self, claim: Claim) {
        let told = self.lock().claim(claim, true);
        drop(told);
    }

    fn release(&self, claimant: &Claimant, partitions: &[Partition]) {
        self.lock().conditions.owners.release(claimant, partitions);
    }

    fn take_over(&self, partitions: &[Partition]) -> Result<Epoch, JournalFailure> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let (epoch, told) = state.conditions.owners.take_over(partitions);
        state.conditions.trust(partitions);
        drop(state);
        drop(told);
        Ok(epoch)
    }

    fn put_snapshot(&self, snapshot: Snapshot) -> Result<(), SnapshotRefused> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(SnapshotRefused::Failed(failure.clone()));
        }
        let head = state
            .conditions
            .head(snapshot.run)
            .ok_or(SnapshotRefused::NotLive)?;
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

    fn upkeep(&self, now: Timestamp, done: Bell) -> UpkeepNumber {
        let mut state = self.lock();
        let number = state.upkeeps.ask(now, done);
        let told = state.see_to_upkeep();
        drop(state);
        drop(told);
        number
    }

    fn upkept(&self, number: UpkeepNumber) -> Option<Result<(), UpkeepUndone>> {
        self.lock().upkeeps.outcome(number)
    }

    fn topics(&self) -> Option<&dyn TopicStreams> {
        Some(self)
    }

    fn stats(&self) -> Stats {
        let state = self.lock();
        let log_bytes = state.live_bytes + state.finished.bytes();
        Stats {
            live_runs: state.conditions.heads().len() as u64,
            finished_runs: state.finished.len(),
            dropped_runs: state.dropped,
            live_bytes: log_bytes,
            log_bytes,
            queued_bytes: state.queued_bytes as u64,
            topics: state.topics.table.named_len() as u64,
            topic_bytes: state.topics.table.bytes(),
            commits: state.commits,
            turns: state.turns,
            bytes: state.bytes,
            ..Stats::default()
        }
    }

    fn begin_close(&self) {
        // After a failure there is nothing to flush, and `failure` keeps the reason.
        self.flush_and_close().ok();
    }

    fn is_closed(&self) -> bool {
        self.lock().failure.is_some()
    }

    fn close(&self) -> Result<(), JournalFailure> {
        self.flush_and_close()
    }

    /// Answers `Ask` only when it is closed or has failed.
    fn glance(&self, id: &InstanceId) -> Glance {
        match self.finished(id) {
            Ok(Some(finished)) => Glance::Found(finished),
            Ok(None) => Glance::Absent,
            Err(ReadError::Expired { run }) => Glance::Expired(run),
            Err(_) => Glance::Ask,
        }
    }
}

impl Reads for MemoryJournal {
    fn history(&self, run: RunId) -> Result<History, ReadError> {
        let state = self.lock_for(run);
        state.readable()?;
        let frames = state.known_frames(run)?;
        let (bytes, max) = (frames.len() as u64, self.config.history_bytes_max);
        if bytes > max {
            return Err(ReadError::TooLong { run, bytes, max });
        }
        let mut frames = frames.to_vec();
        drop(state);
        v1::seal_all(&mut frames);
        scan::history(run, &[(0, frames.into())])
    }

    fn history_page(&self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError> {
        let state = self.lock_for(run);
        state.readable()?;
        let (frames, head) = together::page(state.known_frames(run)?, after, bytes_max);
        let mut frames = frames.to_vec();
        drop(state);
        v1::seal_all(&mut frames);
        scan::page(run, &[(0, frames.into())], after, bytes_max, head)
    }

    /// Copies everything under one lock, and decodes it without the lock.
    fn read_together(&self, wanted: &[ToRead], bytes_max: usize, each: EachRead<'_>) {
        let is_at_hand = |state: &MemoryState| {
            wanted.iter().all(|wanted| match wanted {
                ToRead::History(run) | ToRead::Page { run, .. } => state.has_durable_frames(*run),
                ToRead::Snapshot(_) | ToRead::Finished(_) => true,
            })
        };
        let state = self.lock_indexed(is_at_hand);
        let (copies, max) = (
            &mut Vec::with_capacity(wanted.len()),
            self.config.history_bytes_max,
        );
        let mut left = bytes_max;
        for wanted in wanted {
            let copied = together::copy(&state, wanted, left, max);
            if let Some(Ok(copied)) = &copied {
                left = left.saturating_sub(copied.bytes());
            }
            copies.push(copied);
        }
        drop(state);
        for (index, copied) in copies.drain(..).enumerate() {
            if let Some(copied) = copied {
                each(index, copied.and_then(Copied::decode));
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
        state.finished_of(id)
    }

    fn list_finished(&self, after: Option<RunId>, limit: usize) -> Result<Vec<FinishedRun>, ReadError> {
        let state = match after {
            Some(_) => self.lock_indexed(|_| false),
            None => self.lock(),
        };
        state.readable()?;
        let after = after.and_then(|run| state.finished.number(run));
        let from = after.map_or(0, |number| number + 1);
        let listed = state.finished.list(from).take(limit);
        Ok(listed.map(|(close, frames)| close.found(frames)).collect())
    }

    fn find_finished(&self, search: &FinishedSearch, len_max: usize) -> Result<FinishedFound, ReadError> {
        self.search_finished(search, len_max)
    }

    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError> {
        let state = self.lock();
        state.readable()?;
        let mut runs: Vec<_> = state.conditions.heads().iter().map(|(run, _)| run).collect();
        runs.sort_unstable();
        let mut report = RecoveryReport {
            finished_runs: state.finished.len(),
            ..RecoveryReport::default()
        };
        for run in runs {
            let Some(frames) = state.live_frames(run) else {
                continue;
            };
            let lane = usize::from(run.partition().index()) % lanes.len();
            let mut frames = frames.to_vec();
            v1::seal_all(&mut frames);
            report.records += scan::visit(run, &frames, &mut lanes[lane])?;
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
}

fn ring(watchers: &[Bell]) {
    for bell in watchers {
        bell.ring();
    }
}

#[cfg(test)]
mod tests;
