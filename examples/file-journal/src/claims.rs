//! Claims to partitions: answered by the writer when all that was queued before is durable.

use std::collections::BTreeMap;

use millrun_core::{Epoch, Offset, Partition};
use millrun_persistence::{
    Claim, ClaimRefused, JournalFailure, Owned, OwnerTable, PartitionReport, RecoveryReport, Ringing,
};

use crate::books::Books;

/// The claims that wait for their answers, in order.
#[derive(Default)]
pub(crate) struct Claims(Vec<Pending>);

/// A claim that has its epochs.
struct Pending {
    claim: Claim,
    given: Vec<(Partition, Epoch)>,
    /// It can be answered when this is durable.
    from: Offset,
}

impl Claims {
    pub(crate) fn push(&mut self, claim: Claim, given: Vec<(Partition, Epoch)>, from: Offset) {
        self.0.push(Pending { claim, given, from });
    }

    /// Grants what can be granted.
    pub(crate) fn grant(&mut self, durable: Offset, owners: &OwnerTable, books: &Books) -> Ringing {
        let mut ringing = Ringing::default();
        let waiting = self.0.iter().position(|pending| pending.from > durable);
        for mut pending in self.0.drain(..waiting.unwrap_or(self.0.len())) {
            let (owned, report) = pending.fold(owners, books);
            ringing.add(pending.claim.grant(owned, report));
        }
        ringing
    }

    /// There will be no more answers.
    pub(crate) fn refuse(&mut self, failure: &JournalFailure) -> Ringing {
        let mut ringing = Ringing::default();
        for pending in self.0.drain(..) {
            ringing.add(pending.claim.refuse(ClaimRefused::Failed(failure.clone())));
        }
        ringing
    }
}

impl Pending {
    /// Feeds the live runs of the partitions that are still owned to the folds.
    fn fold(&mut self, owners: &OwnerTable, books: &Books) -> (Vec<Owned>, RecoveryReport) {
        let owned = self.given.iter();
        let owned = owned.filter(|(partition, epoch)| owners.check(*partition, *epoch).is_ok());
        let mut parts: BTreeMap<_, _> = owned
            .map(|(partition, epoch)| (*partition, (*epoch, PartitionReport::default())))
            .collect();
        let mut report = RecoveryReport::default();
        report.finished_runs = books.finished_len();
        let folds = self.claim.folds();
        for (number, run) in books.live().enumerate() {
            let partition = run.partition();
            let Some((_, part)) = parts.get_mut(&partition) else {
                continue;
            };
            part.live_runs += 1;
            report.live_runs += 1;
            let fold = usize::from(partition.index()).checked_rem(folds.len());
            books.visit(run, &mut |record| {
                part.records += 1;
                report.records += 1;
                report.bytes += record.body.len() as u64;
                if let Some(fold) = fold {
                    folds[fold].record(number, record);
                }
            });
        }
        let owned = parts.into_iter();
        let owned = owned.map(|(partition, (epoch, report))| Owned::new(partition, epoch, report));
        (owned.collect(), report)
    }
}
