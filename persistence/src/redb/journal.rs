//! The implementation of the port by the journal in a file.
//!
//! ```text
//!   enqueue ──► JournalState, under its lock ──► the writer's bell
//! ```
//!
//! Invariant: the lock is never held while a record is read or a bell rings.
//!
//! Left out: opening ([`start`](super::opening::start)), committing ([`writer`](super::commit::writer)), and calls that may
//! wait for the disk ([`reading`](super::reading)).

use std::sync::MutexGuard;

use millrun_core::{Bell, Epoch, InstanceId, Offset, Partition, RunId, Sequence, Timestamp};

use super::RedbJournal;
use super::state::JournalState;
use crate::batch::Batch;
use crate::claim::{Claim, Claimant};
use crate::config::Durability;
use crate::error::{EnqueueError, FailureKind, JournalFailure, SnapshotRefused, TurnRefused};
use crate::finished::IdHash;
use crate::journal::{Enqueued, Glance, Journal, Ringing, Stats};
use crate::record::Snapshot;
use crate::topics::TopicStreams;
use crate::upkeep::{UpkeepNumber, UpkeepUndone};

impl Journal for RedbJournal {
    fn enqueue(&self, batch: &Batch) -> Result<Enqueued, EnqueueError> {
        let (enqueued, ringing) = self.enqueue_and_ring_later(batch)?;
        drop(ringing);
        Ok(enqueued)
    }

    fn enqueue_and_ring_later(&self, batch: &Batch) -> Result<(Enqueued, Ringing), EnqueueError> {
        let batch = batch.sealed();
        let mut state = self.shared.lock();
        let (enqueued, rings) = match state.enqueue(&batch) {
            Ok(taken) => taken,
            Err(error) => {
                drop(state);
                // The writer may be waiting for more turns, and none will come.
                self.shared.bell.ring();
                return Err(error);
            }
        };
        let ringing = self.queued(state, enqueued.offset, rings);
        Ok((enqueued, ringing))
    }

    fn read_again(&self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused> {
        self.shared.lock().read_again(run, epoch)
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

    fn claim(&self, claim: Claim) {
        self.begin_claim(claim, false);
    }

    fn take_from(&self, claim: Claim) {
        self.begin_claim(claim, true);
    }

    fn release(&self, claimant: &Claimant, partitions: &[Partition]) {
        self.shared.lock().release(claimant, partitions);
    }

    fn take_over(&self, partitions: &[Partition]) -> Result<Epoch, JournalFailure> {
        let mut state = self.shared.lock();
        state.check_open()?;
        let (epoch, told, rings) = state.take_over(partitions);
        let offset = state.open.offset;
        drop(self.queued(state, offset, rings));
        drop(told);
        Ok(epoch)
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

    fn upkeep(&self, now: Timestamp, done: Bell) -> UpkeepNumber {
        let mut state = self.shared.lock();
        let number = state.upkeeps.ask(now, done);
        let told = match state.check_open() {
            Ok(()) => Ringing::default(),
            Err(failure) => state.upkeeps.fail(&failure),
        };
        drop(state);
        drop(told);
        self.shared.bell.ring();
        number
    }

    fn upkept(&self, number: UpkeepNumber) -> Option<Result<(), UpkeepUndone>> {
        self.shared.lock().upkeeps.outcome(number)
    }

    fn topics(&self) -> Option<&dyn TopicStreams> {
        Some(self)
    }

    fn stats(&self) -> Stats {
        Stats {
            file_bytes: self.shared.file_bytes(),
            compacted_bytes: self.shared.compacted_bytes(),
            is_disk_full: self.shared.is_disk_full(),
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

    /// Nearly all ids that are asked for are new, and the filters show that. For retained runs (also those that wait to be
    /// settled) memory has only a hash of the id; the id itself is in the log, and a client that may choose ids can create
    /// two with one hash. So no retained run is found here. A dropped run is only known by its hash, here and in the store.
    fn glance(&self, id: &InstanceId) -> Glance {
        if self.reader().is_err() {
            return Glance::Ask;
        }
        let hash = IdHash::of(id.as_str());
        let (lookup, expired, is_damaged) = {
            let state = self.shared.lock();
            let closed = &state.finished;
            if closed.waiting.latest(hash).is_some() || state.unwritten_of(hash).is_some() {
                return Glance::Ask;
            }
            let damaged = &state.damaged;
            let is_damaged = damaged.of_instance(hash).is_some() || damaged.may_be_lost(id).is_some();
            (closed.lookup(), closed.expired(hash), is_damaged)
        };
        if is_damaged || lookup.may_contain(hash) {
            return Glance::Ask;
        }
        expired.map_or(Glance::Absent, Glance::Expired)
    }

    fn is_quarantined(&self, run: RunId) -> bool {
        self.shared.lock().damaged.runs.contains_key(&run)
    }
}

impl RedbJournal {
    /// When the returned value is dropped, tells that something is queued: the writer if it `rings`, and the watchers where
    /// queueing is all that they wait for.
    pub(super) fn queued(&self, state: MutexGuard<'_, JournalState>, offset: Offset, rings: bool) -> Ringing {
        let mut bells = Vec::new();
        if self.shared.config.journal.durability != Durability::Durable {
            self.shared.publish(offset);
            bells.clone_from(&state.watchers);
        }
        drop(state);
        if rings {
            bells.push(self.shared.bell.clone());
        }
        Ringing::of(bells)
    }
}
