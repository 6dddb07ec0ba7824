//! Claims to partitions of a journal in memory: answered as soon as nothing is queued.

use std::collections::BTreeMap;

use millrun_core::{Epoch, Partition, RunId};

use super::state::MemoryState;
use crate::claim::{Claim, ClaimRefused, Owned, PartitionReport};
use crate::error::ReadError;
use crate::fold::Fold;
use crate::journal::{Lane, RecoveryReport, Ringing};
use crate::record::RecordView;
use crate::scan;
use crate::wire::v1;

/// A claim that has its epochs, and waits until the turns queued before it are durable.
#[derive(Debug)]
pub(super) struct WaitingClaim {
    claim: Claim,
    given: Vec<(Partition, Epoch)>,
}

impl MemoryState {
    /// Gives a claim its epochs, and its answer as soon as that can be given.
    pub(super) fn claim(&mut self, claim: Claim, takes: bool) -> Ringing {
        if let Some(failure) = self.failure.clone() {
            return claim.refuse(ClaimRefused::Failed(failure));
        }
        let taken = if takes {
            Ok(self.conditions.owners.take(&claim))
        } else {
            self.conditions.owners.claim(&claim)
        };
        let (given, mut ringing) = match taken {
            Ok(taken) => taken,
            Err(error) => return claim.refuse(error),
        };
        self.conditions.trust(claim.partitions());
        self.claims.push(WaitingClaim { claim, given });
        ringing.add(self.answer_claims());
        ringing
    }

    /// Answers the waiting claims if all that was queued is durable; refuses them after a failure.
    pub(super) fn answer_claims(&mut self) -> Ringing {
        let mut ringing = Ringing::default();
        if self.claims.is_empty() || self.is_queued() && self.failure.is_none() {
            return ringing;
        }
        for WaitingClaim { mut claim, given } in std::mem::take(&mut self.claims) {
            let answered = match self.failure.clone() {
                Some(failure) => claim.refuse(ClaimRefused::Failed(failure)),
                None => match self.recover_claimed(&given, claim.folds()) {
                    Ok((owned, report)) => claim.grant(owned, report),
                    Err(error) => {
                        self.conditions.owners.give_back(&given);
                        claim.refuse(ClaimRefused::Unreadable(error))
                    }
                },
            };
            ringing.add(answered);
        }
        ringing
    }

    /// Feeds the live runs of those partitions that are still owned under these epochs to `folds`.
    fn recover_claimed(
        &self,
        given: &[(Partition, Epoch)],
        folds: &mut [Box<dyn Fold>],
    ) -> Result<(Vec<Owned>, RecoveryReport), ReadError> {
        let owners = &self.conditions.owners;
        let owned = given
            .iter()
            .filter(|(partition, epoch)| owners.check(*partition, *epoch).is_ok());
        let mut found: BTreeMap<Partition, PartitionReport> = owned
            .map(|(partition, _)| (*partition, PartitionReport::default()))
            .collect();
        let heads = self.conditions.heads().iter().map(|(run, _)| run);
        let mut runs: Vec<RunId> = heads.filter(|run| found.contains_key(&run.partition())).collect();
        runs.sort_unstable();
        let mut report = RecoveryReport {
            finished_runs: self.finished.len(),
            ..RecoveryReport::default()
        };
        let mut numbers = vec![0; folds.len()];
        for run in runs {
            let (Some(frames), Some(part)) = (self.live_frames(run), found.get_mut(&run.partition())) else {
                continue;
            };
            let mut frames = frames.to_vec();
            v1::seal_all(&mut frames);
            let lane = usize::from(run.partition().index())
                .checked_rem(folds.len())
                .unwrap_or(0);
            if let Some(fold) = folds.get_mut(lane) {
                let number: usize = numbers[lane];
                numbers[lane] += 1;
                let mut visit = |record: RecordView<'_>| fold.record(number, record);
                scan::visit(run, &frames, &mut (&mut visit as Lane<'_>))?;
            }
            let records = self.conditions.head(run).map_or(0, |head| u64::from(head.last));
            part.live_runs += 1;
            part.records += records;
            report.live_runs += 1;
            report.records += records;
            report.bytes += frames.len() as u64;
        }
        let owned = given.iter().filter_map(|(partition, epoch)| {
            let report = found.remove(partition)?;
            Some(Owned::new(*partition, *epoch, report))
        });
        Ok((owned.collect(), report))
    }
}
