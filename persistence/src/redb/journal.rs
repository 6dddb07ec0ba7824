//! The port, as the journal in a file has it.
//!
//! ```text
//!   enqueue ──► JournalState, under its lock ──► the writer's bell
//!   reads   ──► a moment of the store that fits the state ──► log, closed, recover
//! ```
//!
//! Invariants: the lock is held for no access to a record and for no bell; a read sees only what is
//! durable; what is known from memory to be new costs no access to the store.
//!
//! Left out: opening ([`start`](super::start)), and committing ([`writer`](super::writer)).

use std::sync::MutexGuard;

use millrun_core::{Bell, Epoch, InstanceId, Offset, Partition, RunId, Sequence};

use super::moment::Moment;
use super::state::JournalState;
use super::{RedbJournal, closed, log, recover};
use crate::batch::Batch;
use crate::claim::{Claim, Claimant};
use crate::config::Durability;
use crate::error::{EnqueueError, FailureKind, JournalFailure, ReadError, SnapshotRefused, TurnRefused};
use crate::finished::{Finished, IdHash, Place};
use crate::journal::{Enqueued, Glance, Journal, Lane, Progress, Reads, RecoveryReport, Ringing, Stats};
use crate::record::{FinishedRun, History, HistoryPage, Snapshot};
use crate::{scan, wire};

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
                // The writer may be waiting for more: there will not be more.
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

    /// Nearly all ids that are asked for are new, and the filters say so. Of the others the ids stand in the log, so
    /// that none is found here.
    fn glance(&self, id: &InstanceId) -> Glance {
        if self.reader().is_err() {
            return Glance::Ask;
        }
        let hash = IdHash::of(id.as_str());
        let (lookup, is_damaged) = {
            let state = self.shared.lock();
            let closed = &state.closed;
            if closed.waiting.latest(hash).is_some() || closed.expired(hash).is_some() {
                return Glance::Ask;
            }
            let damaged = &state.damaged;
            let is_damaged = damaged.of_instance(hash).is_some() || damaged.may_be_lost(id).is_some();
            (closed.lookup(), is_damaged)
        };
        if is_damaged || lookup.may_contain(hash.bits()) {
            return Glance::Ask;
        }
        Glance::Absent
    }

    fn is_quarantined(&self, run: RunId) -> bool {
        self.shared.lock().damaged.runs.contains_key(&run)
    }
}

impl Reads for RedbJournal {
    fn history(&self, run: RunId) -> Result<History, ReadError> {
        let (place, end, moment) = self.place(run)?;
        let (bytes, max) = (place.bytes, self.shared.config.journal.history_bytes_max);
        if bytes > max {
            return Err(ReadError::TooLong { run, bytes, max });
        }
        scan::history(run, &log::turns(&moment, run, &place, end)?)
    }

    fn history_page(&self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError> {
        let (place, end, moment) = self.place(run)?;
        let (pieces, head) = log::page(&moment, run, &place, end, (after.get(), bytes_max))?;
        scan::page(run, &pieces, after, bytes_max, Sequence::new(head))
    }

    fn snapshot(&self, run: RunId) -> Result<Option<Snapshot>, ReadError> {
        let (is_live, moment) = self.moment(|state| state.is_live(run))?;
        let row = if is_live { moment.snapshot(run)? } else { None };
        Ok(row.and_then(|row| wire::snapshot::read(run, &row)))
    }

    fn finished(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        let hash = IdHash::of(id.as_str());
        self.reader()?;
        let (lookup, damaged) = {
            let state = self.shared.lock();
            let closed = &state.closed;
            let is_waiting = closed.waiting.latest(hash).is_some() || closed.expired(hash).is_some();
            let damaged = state.damaged.of_instance(hash);
            let damaged = damaged.map(|(run, error)| (run, error.clone()));
            ((!is_waiting).then(|| closed.lookup()), damaged)
        };
        // Nearly all ids that are asked for are new: they cost no access to the store.
        if damaged.is_none() && lookup.is_some_and(|lookup| !lookup.may_contain(hash.bits())) {
            return self.no_run_of(id);
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
        // A run that began after the damaged one took the id when that was free.
        let latest = found.filter(|(_, is_expired)| !is_expired);
        if let Some((run, error)) = damaged
            && latest.is_none_or(|(finished, _)| finished.run <= run)
        {
            return Err(error);
        }
        match (found, expired) {
            (Some((finished, false)), _) => {
                if let Some(quarantined) = self.shared.lock().damaged.runs.get(&finished.run) {
                    return Err(quarantined.error.clone());
                }
                let described = describe(&moment, &finished)?;
                Ok((described.id == *id).then_some(described))
            }
            // What was dropped before it was settled was dropped last, if it is still known by its id.
            (_, Some(run)) | (Some((Finished { run, .. }, true)), None) => Err(ReadError::Expired { run }),
            (None, None) => self.no_run_of(id),
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
            let live = state.wanted(state.live());
            (live, finished_runs, state.live_span(low), damaged)
        })?;
        let host = &*self.shared.host;
        let records = recover::recover(&moment, &live, span, lanes, host, progress)?;
        Ok(RecoveryReport {
            live_runs: live.runs.len() as u64,
            finished_runs,
            records,
            bytes: span.end - span.from,
            elapsed: host.elapsed().saturating_sub(self.opened.at),
            is_repaired: self.opened.is_repaired,
            is_index_rebuilt: self.opened.is_index_rebuilt,
            damaged,
        })
    }
}

impl RedbJournal {
    /// Nothing is known of an instance, so it has no finished run, unless it can be one that is lost.
    fn no_run_of(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        match self.shared.lock().damaged.may_be_lost(id) {
            Some(error) => Err(error.clone()),
            None => Ok(None),
        }
    }

    /// Tells whom it concerns that something is queued, when what this gives is dropped: the writer if it
    /// `rings`, and those who watch where that is all that is waited for.
    fn queued(&self, state: MutexGuard<'_, JournalState>, offset: Offset, rings: bool) -> Ringing {
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

fn describe(store: &Moment, finished: &Finished<Place>) -> Result<FinishedRun, ReadError> {
    Ok(FinishedRun {
        run: finished.run,
        id: log::instance_id(store, finished.run, &finished.place)?,
        closed_at: finished.closed_at,
        head: finished.head,
    })
}
