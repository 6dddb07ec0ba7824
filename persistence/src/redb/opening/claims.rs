//! Claims to partitions of an open store.
//!
//! ```text
//!   claim ──► epochs, at once ──► waits for the commit of what was queued before ──► reader of claims (a part)
//!                                                                                        │ log, filtered
//!   news  ◄── granted: those that are still owned ◄──────────────────────────────────── folds
//! ```
//!
//! The part is started by the first claim on an open store; a claim that comes with the [opening](super::start) is answered
//! there. While the part reads, nobody holds the state's lock, and nobody knows the epochs yet: what it reads of a partition
//! is complete, unless the partition is lost meanwhile.

use std::sync::{Arc, Weak};

use millrun_core::{Bell, Epoch, Next, Part, Partition, Placement, Timestamp};

use super::claim_queue::PendingClaim;
use super::recover;
use crate::claim::{Claim, ClaimRefused, Owned, PartitionReport};
use crate::error::{FailureKind, JournalFailure, ReadError};
use crate::journal::{RecoveryReport, Ringing};
use crate::redb::RedbJournal;
use crate::redb::shared::JournalShared;
use crate::redb::state::JournalState;

impl JournalState {
    /// What a claim finds in the partitions that are still owned under these epochs, and the damage there or damage that
    /// cannot be attributed to a run.
    pub(in crate::redb) fn claimed(&self, given: &[(Partition, Epoch)]) -> (Vec<Owned>, RecoveryReport) {
        let mut found = vec![None; usize::from(Partition::COUNT)];
        for (partition, epoch) in given {
            if self.conditions.owners.check(*partition, *epoch).is_ok() {
                found[usize::from(partition.index())] = Some(PartitionReport::default());
            }
        }
        let mut report = RecoveryReport {
            finished_runs: self.finished.len(),
            ..RecoveryReport::default()
        };
        for (run, head) in self.conditions.heads().iter() {
            if let Some(part) = &mut found[usize::from(run.partition().index())] {
                part.live_runs += 1;
                part.records += u64::from(head.last);
                report.live_runs += 1;
                report.records += u64::from(head.last);
            }
        }
        for error in self.damaged.list() {
            if let ReadError::Damaged { run: Some(run), .. } = &error {
                let Some(part) = &mut found[usize::from(run.partition().index())] else {
                    continue;
                };
                part.damaged.push(error.clone());
            }
            report.damaged.push(error);
        }
        let owned = given.iter().filter_map(|(partition, epoch)| {
            let report = found[usize::from(partition.index())].take()?;
            Some(Owned::new(*partition, *epoch, report))
        });
        (owned.collect(), report)
    }
}

impl RedbJournal {
    /// Gives a claim its epochs; its answer comes from the part that reads.
    pub(in crate::redb) fn begin_claim(&self, claim: Claim, takes: bool) {
        let mut state = self.shared.lock();
        if let Err(failure) = state.check_open() {
            drop(state);
            return drop(claim.refuse(ClaimRefused::Failed(failure)));
        }
        let (given, told) = match state.own(&claim, takes) {
            Ok(taken) => taken,
            Err(error) => {
                drop(state);
                return drop(claim.refuse(error));
            }
        };
        let from = state.open.offset;
        state
            .claims
            .waiting
            .push_back(PendingClaim { claim, given, from });
        let (reader, is_new) = match &state.claims.reader {
            Some(bell) => (bell.clone(), false),
            None => {
                let bell = Bell::new();
                // Rung after each commit, and when the journal ends.
                state.watchers.push(bell.clone());
                state.claims.reader = Some(bell.clone());
                (bell, true)
            }
        };
        drop(state);
        drop(told);
        // There may be nothing left to commit; otherwise the writer does not wait for more.
        self.shared.bell.ring();
        reader.ring();
        if is_new {
            self.spawn_reader(reader);
        }
    }

    fn spawn_reader(&self, bell: Bell) {
        let reader = ClaimReader(Arc::downgrade(&self.shared));
        let shared = Arc::downgrade(&self.shared);
        let gone = move |message: String| {
            let Some(shared) = shared.upgrade() else { return };
            let mut state = shared.lock();
            // The next claim starts another part.
            state.claims.reader = None;
            let failure = JournalFailure::new(FailureKind::WriterLost, message);
            let told = state.claims.refuse(&failure);
            drop(state);
            drop(told);
        };
        let ended = gone.clone();
        let spawned = self.shared.host.spawn_part(
            "millrun-claims",
            Placement::Thread,
            bell,
            Box::new(reader),
            Box::new(move |exit| ended(format!("what reads for claims has ended: {exit:?}"))),
        );
        if let Err(error) = spawned {
            gone(error.to_string());
        }
    }
}

/// Reads the live runs of claimed partitions, and answers the claims.
#[derive(Debug)]
struct ClaimReader(Weak<JournalShared>);

impl ClaimReader {
    fn answer(shared: &JournalShared, pending: PendingClaim) -> Ringing {
        let PendingClaim { mut claim, given, .. } = pending;
        let began = shared.host.elapsed();
        let read = shared.store().map_err(ReadError::Failed).and_then(|store| {
            let (live, span, moment) = {
                let state = shared.lock();
                let moment = store.moment()?;
                let low = moment.opened()?.low;
                let live = state.live_of(&given);
                let span = state.span_of(live.iter().copied(), low);
                (state.wanted(live), span, moment)
            };
            if live.runs.is_empty() || claim.folds().is_empty() {
                return Ok(0);
            }
            recover::fold(&moment, &live, span, claim.folds())?;
            Ok(span.end - span.from)
        });
        let mut state = shared.lock();
        match read {
            Ok(bytes) => {
                let (owned, mut report) = state.claimed(&given);
                report.bytes = bytes;
                report.elapsed = shared.host.elapsed().saturating_sub(began);
                // Told under the lock: a later loss of any of them is told after it.
                claim.grant(owned, report)
            }
            Err(error) => {
                state.conditions.owners.give_back(&given);
                claim.refuse(ClaimRefused::Unreadable(error))
            }
        }
    }
}

impl Part for ClaimReader {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        let Some(shared) = self.0.upgrade() else {
            return Next::Stop;
        };
        let pending = {
            let mut state = shared.lock();
            if let Some(failure) = state.failure.clone() {
                let told = state.claims.refuse(&failure);
                drop(state);
                drop(told);
                return Next::Stop;
            }
            let written = state.written;
            state.claims.next(written)
        };
        match pending {
            Some(pending) => {
                drop(Self::answer(&shared, pending));
                Next::Again
            }
            None => Next::Idle,
        }
    }
}
