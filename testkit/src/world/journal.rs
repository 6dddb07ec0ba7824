//! The store of a world: a journal in memory whose commits are turns of a part, so that the seed chooses their moments and a
//! crash can come between any two things.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrun::host::{Bell, Host, Next, Part};
use millrun::{InstanceId, RunId, Timestamp};
use millrun_core::{Epoch, Offset, Partition, Sequence};
use millrun_persistence::{
    Batch, Claim, Claimant, EachRead, EnqueueError, Enqueued, FinishedFound, FinishedRun, FinishedSearch,
    Glance, History, HistoryPage, Journal, JournalFailure, Lane, MemoryJournal, Progress, ReadError, Reads,
    RecoveryReport, Resolved, Ringing, SharedStore, Snapshot, SnapshotRefused, Stats, ToRead, TopicStreams,
    TurnRefused, UpkeepNumber, UpkeepUndone,
};

use super::course::WorldLife;

/// The journal of one life.
#[derive(Debug)]
pub(super) struct WorldJournal {
    memory: MemoryJournal,
    life: Arc<WorldLife>,
    /// Whether there may be something to commit.
    is_queued: AtomicBool,
    /// Asks the disk for a commit.
    bell: Bell,
}

impl WorldJournal {
    pub(super) fn new(memory: MemoryJournal, life: Arc<WorldLife>) -> Self {
        Self {
            memory,
            life,
            is_queued: AtomicBool::new(false),
            bell: Bell::new(),
        }
    }

    pub(super) fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// What the next life finds: all that is durable.
    pub(super) fn reopened(&self) -> MemoryJournal {
        self.memory.reopened()
    }

    fn ask_for_commit(&self, offset: Offset) {
        if offset > self.memory.high_watermark() {
            self.is_queued.store(true, Ordering::SeqCst);
            self.bell.ring();
        }
    }

    /// Begins to make durable what is queued: the number of the commit, unless there is nothing or the life ends before.
    fn begin_commit(&self) -> Option<u64> {
        if self.life.is_over() || !self.is_queued.load(Ordering::SeqCst) {
            return None;
        }
        self.life.begin_commit()
    }

    fn end_commit(&self, number: u64) {
        if self.life.is_over() {
            return;
        }
        self.is_queued.store(false, Ordering::SeqCst);
        self.memory.commit();
        self.life.end_commit(number);
    }
}

/// Commits what is queued in a [`WorldJournal`], one commit a turn.
pub(super) struct DiskPart {
    journal: Arc<WorldJournal>,
    host: Arc<dyn Host>,
    /// How long a commit takes at most.
    commit_time_max: Duration,
    /// The commit that is under way, and when it is through.
    begun: Option<(u64, Timestamp)>,
}

impl DiskPart {
    pub(super) fn new(journal: Arc<WorldJournal>, host: Arc<dyn Host>, commit_time_max: Duration) -> Self {
        Self {
            journal,
            host,
            commit_time_max,
            begun: None,
        }
    }

    fn drawn_time(&self) -> Duration {
        match u64::try_from(self.commit_time_max.as_micros()).unwrap_or(u64::MAX) {
            0 => Duration::ZERO,
            micros_max => Duration::from_micros(self.host.random() % micros_max.saturating_add(1).max(1)),
        }
    }
}

impl Part for DiskPart {
    fn turn(&mut self, now: Timestamp, _budget: usize) -> Next {
        if self.begun.is_none() {
            self.begun = self
                .journal
                .begin_commit()
                .map(|number| (number, now + self.drawn_time()));
        }
        let Some((number, due)) = self.begun else {
            return Next::Idle;
        };
        let due = self.journal.life.full_until().unwrap_or(due).max(due);
        if now < due {
            return Next::At(due);
        }
        self.begun = None;
        self.journal.end_commit(number);
        Next::Idle
    }
}

impl Journal for WorldJournal {
    fn batch(&self, turn_bytes_max: usize) -> Batch {
        self.memory.batch(turn_bytes_max)
    }

    fn enqueue(&self, batch: &Batch) -> Result<Enqueued, EnqueueError> {
        let (enqueued, ringing) = self.enqueue_and_ring_later(batch)?;
        drop(ringing);
        Ok(enqueued)
    }

    fn enqueue_and_ring_later(&self, batch: &Batch) -> Result<(Enqueued, Ringing), EnqueueError> {
        if self.life.is_over() {
            // Nobody is there to hear of it.
            return Err(EnqueueError::Full);
        }
        let (enqueued, ringing) = self.memory.enqueue_and_ring_later(batch)?;
        self.ask_for_commit(enqueued.offset);
        Ok((enqueued, ringing))
    }

    fn read_again(&self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused> {
        self.memory.read_again(run, epoch)
    }

    fn high_watermark(&self) -> Offset {
        self.memory.high_watermark()
    }

    fn confirm(&self, queued: Offset) -> Offset {
        self.memory.confirm(queued)
    }

    fn failure(&self) -> Option<JournalFailure> {
        self.memory.failure()
    }

    fn watch(&self, bell: Bell) {
        self.memory.watch(bell);
    }

    fn claim(&self, claim: Claim) {
        self.memory.claim(claim);
    }

    fn take_from(&self, claim: Claim) {
        self.memory.take_from(claim);
    }

    fn release(&self, claimant: &Claimant, partitions: &[Partition]) {
        self.memory.release(claimant, partitions);
    }

    fn take_over(&self, partitions: &[Partition]) -> Result<Epoch, JournalFailure> {
        self.memory.take_over(partitions)
    }

    fn glance(&self, id: &InstanceId) -> Glance {
        self.memory.glance(id)
    }

    fn is_quarantined(&self, run: RunId) -> bool {
        self.memory.is_quarantined(run)
    }

    fn put_snapshot(&self, snapshot: Snapshot) -> Result<(), SnapshotRefused> {
        if self.life.is_over() {
            return Err(SnapshotRefused::Failed(JournalFailure::closed()));
        }
        self.memory.put_snapshot(snapshot)
    }

    fn delete_snapshot(&self, run: RunId) -> Result<(), JournalFailure> {
        if self.life.is_over() {
            return Err(JournalFailure::closed());
        }
        self.memory.delete_snapshot(run)
    }

    fn upkeep(&self, now: Timestamp, done: Bell) -> UpkeepNumber {
        self.memory.upkeep(now, done)
    }

    fn upkept(&self, number: UpkeepNumber) -> Option<Result<(), UpkeepUndone>> {
        self.memory.upkept(number)
    }

    fn topics(&self) -> Option<&dyn TopicStreams> {
        self.memory.topics()
    }

    fn nodes(&self) -> Option<&dyn SharedStore> {
        self.memory.nodes()
    }

    fn stats(&self) -> Stats {
        let mut stats = self.memory.stats();
        stats.is_disk_full = self.life.full_until().is_some();
        stats
    }

    fn begin_close(&self) {
        // What a life that has crashed leaves behind is not flushed.
        if !self.life.is_over() {
            self.memory.begin_close();
        }
    }

    fn is_closed(&self) -> bool {
        self.life.is_over() || self.memory.is_closed()
    }

    fn close(&self) -> Result<(), JournalFailure> {
        if self.life.is_over() {
            return Ok(());
        }
        self.memory.close()
    }
}

impl Reads for WorldJournal {
    fn history(&self, run: RunId) -> Result<History, ReadError> {
        self.memory.history(run)
    }

    fn history_page(&self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError> {
        self.memory.history_page(run, after, bytes_max)
    }

    fn resolve(&self, batch: &Batch) -> Result<Vec<Resolved>, ReadError> {
        self.memory.resolve(batch)
    }

    fn snapshot(&self, run: RunId) -> Result<Option<Snapshot>, ReadError> {
        self.memory.snapshot(run)
    }

    fn read_together(&self, wanted: &[ToRead], bytes_max: usize, each: EachRead<'_>) {
        self.memory.read_together(wanted, bytes_max, each);
    }

    fn finished(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        self.memory.finished(id)
    }

    fn list_finished(&self, after: Option<RunId>, limit: usize) -> Result<Vec<FinishedRun>, ReadError> {
        self.memory.list_finished(after, limit)
    }

    fn find_finished(&self, search: &FinishedSearch, len_max: usize) -> Result<FinishedFound, ReadError> {
        self.memory.find_finished(search, len_max)
    }

    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError> {
        self.memory.recover(lanes, progress)
    }
}
