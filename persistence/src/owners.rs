//! Who owns each partition, and under which epoch.
//!
//! ```text
//!             claim                    take_from, by another
//!   (free) ───────────► owned, epoch e ─────────────────────► owned, epoch e + 1 (the former one is told)
//!     ▲                   │        ▲
//!     └──── release ──────┘        └── claim, by the same owner: epoch e + 1
//! ```
//!
//! A pure machine. Invariants: a partition's epoch only grows; no turn is taken under any epoch but the current one; a free
//! partition has no current epoch, unless it was never owned.

use millrun_core::{Epoch, Partition};

use crate::claim::{Absentee, Claim, ClaimNews, ClaimRefused, Claimant};
use crate::journal::Ringing;

/// The epoch of a partition that was released: no owner ever gets it.
const NOBODY: Epoch = Epoch::new(u64::MAX);

/// The owners and epochs of all partitions: a part that each implementation of [`Journal`](crate::Journal) needs.
#[derive(Debug)]
pub struct OwnerTable {
    /// The epoch under which turns are taken now.
    current: Vec<Epoch>,
    /// The latest epoch that was given out.
    latest: Vec<Epoch>,
    owners: Vec<Absentee>,
    newest: Epoch,
}

impl OwnerTable {
    /// A table in which every partition is free. The epochs that are given out are above `epoch`, unless another owner
    /// [was heard of](Self::heard). It must be above all epochs of earlier openings: for example [`Epoch::of`] with zero takeovers.
    #[must_use]
    pub fn new(epoch: Epoch) -> Self {
        let len = usize::from(Partition::COUNT);
        Self {
            current: vec![epoch; len],
            latest: vec![epoch; len],
            owners: vec![Absentee::default(); len],
            newest: epoch,
        }
    }

    /// Whether turns under this epoch are taken.
    ///
    /// # Errors
    /// The latest epoch that was given out, if it is another one or was given back.
    #[inline]
    pub fn check(&self, partition: Partition, epoch: Epoch) -> Result<(), Epoch> {
        let index = usize::from(partition.index());
        if epoch == self.current[index] {
            Ok(())
        } else {
            Err(self.latest[index])
        }
    }

    /// The highest epoch of any partition.
    #[must_use]
    pub fn newest(&self) -> Epoch {
        self.newest
    }

    /// The store reports an epoch that a partition has had under an owner elsewhere: epochs that are given out here are above
    /// it, and [come after](Epoch::since) it.
    ///
    /// The number of an opening counts all takings before it. If the other owner, of an earlier opening, has taken the partition since, the epochs
    /// that are given out here continue the other owner's. [`take_over`](Self::take_over) gives several
    /// partitions one epoch, and so promises only that it is above.
    ///
    /// ```
    /// # use millrun_core::{Bell, Epoch, Partition};
    /// # use millrun_persistence::{Claimant, Owner, OwnerTable};
    /// let mut owners = OwnerTable::new(Epoch::of(1, 0));
    /// let partition = Partition::from_index(3).expect("it is below 1,024");
    /// owners.heard(partition, Epoch::of(2, 5));
    /// let claimant = Claimant::new(Owner::new(1), Bell::new());
    /// let (given, _) = owners.take(&claimant.claim(vec![partition], Vec::new()));
    /// assert_eq!(given, [(partition, Epoch::of(2, 6))]);
    /// ```
    pub fn heard(&mut self, partition: Partition, epoch: Epoch) {
        let latest = &mut self.latest[usize::from(partition.index())];
        let has_given_none = latest.takeover() == 0;
        let counts_it = latest.opening() >= epoch.opening().saturating_add(epoch.takeover());
        if epoch > *latest || (has_given_none && !counts_it) {
            *latest = epoch;
        }
        self.newest = self.newest.max(epoch);
    }

    /// Gives a claim its partitions, each under a higher epoch than before, unless other owners have some of them. Other
    /// parts of the same owner are told of their losses when the [`Ringing`] is dropped.
    ///
    /// # Errors
    /// [`ClaimRefused::Owned`]: nothing has changed then.
    pub fn claim(&mut self, claim: &Claim) -> Result<(Vec<(Partition, Epoch)>, Ringing), ClaimRefused> {
        let owner = claim.claimant().owner();
        let of_others = claim.partitions().iter().copied().filter(|partition| {
            let present = self.owner(*partition);
            present.is_some_and(|present| present.owner() != owner)
        });
        let partitions: Vec<_> = of_others.collect();
        if partitions.is_empty() {
            Ok(self.take(claim))
        } else {
            Err(ClaimRefused::Owned { partitions })
        }
    }

    /// As [`claim`](Self::claim), but also from other owners, which are told.
    pub fn take(&mut self, claim: &Claim) -> (Vec<(Partition, Epoch)>, Ringing) {
        let mut ringing = Ringing::default();
        let taken = claim.partitions().iter().map(|partition| {
            let epoch = self.latest[usize::from(partition.index())].next();
            let told = self.give(*partition, epoch, Some(claim.claimant()));
            ringing.add(told);
            (*partition, epoch)
        });
        (taken.collect(), ringing)
    }

    /// Takes partitions without an owner, under one epoch: they stay free to be claimed. Their owners are told when the
    /// [`Ringing`] is dropped.
    pub fn take_over(&mut self, partitions: &[Partition]) -> (Epoch, Ringing) {
        let latest = |partition: &Partition| self.latest[usize::from(partition.index())];
        let epoch = partitions.iter().map(latest).max().unwrap_or(self.newest).next();
        let mut ringing = Ringing::default();
        for partition in partitions {
            ringing.add(self.give(*partition, epoch, None));
        }
        (epoch, ringing)
    }

    fn give(&mut self, partition: Partition, epoch: Epoch, to: Option<&Claimant>) -> Ringing {
        let index = usize::from(partition.index());
        let former = self.owner(partition);
        (self.current[index], self.latest[index]) = (epoch, epoch);
        self.newest = self.newest.max(epoch);
        self.owners[index] = to.map(Claimant::downgrade).unwrap_or_default();
        match former {
            Some(former) if to.is_none_or(|to| !to.is_same(&former)) => former.tell(ClaimNews::Lost {
                partition,
                current: epoch,
            }),
            Some(_) | None => Ringing::default(),
        }
    }

    /// Frees the partitions in the list that this claimant owns: nothing is taken under their epochs any more.
    pub fn release(&mut self, claimant: &Claimant, partitions: &[Partition]) {
        for partition in partitions {
            let present = self.owner(*partition);
            if present.is_some_and(|present| present.is_same(claimant)) {
                self.free(*partition);
            }
        }
    }

    /// Frees the partitions that are still owned under these epochs.
    pub fn give_back(&mut self, partitions: &[(Partition, Epoch)]) {
        for (partition, epoch) in partitions {
            if self.check(*partition, *epoch).is_ok() {
                self.free(*partition);
            }
        }
    }

    fn free(&mut self, partition: Partition) {
        let index = usize::from(partition.index());
        self.current[index] = NOBODY;
        self.owners[index] = Absentee::default();
    }

    /// The part that owns a partition, unless that part has been dropped.
    #[must_use]
    pub fn owner(&self, partition: Partition) -> Option<Claimant> {
        self.owners[usize::from(partition.index())].claimant()
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::Bell;

    use super::*;
    use crate::claim::Owner;

    /// Regression: a partition went to a node that had joined earlier, and back to one that had joined in between. Both gave an
    /// attempt the same number.
    #[test]
    fn whoever_takes_a_partition_elsewhere_comes_after_all_that_had_it() {
        let partition = Partition::from_index(3).unwrap();
        let mut dice = 1_u64;
        let mut below = |max: usize| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(dice >> 33).unwrap() % max
        };
        let owners = Owner::new(1);
        let claim = || Claimant::new(owners, Bell::new()).claim(vec![partition], Vec::new());
        for _ in 0..200 {
            let (mut opening, mut nodes) = (0, Vec::new());
            let mut given: Vec<Epoch> = Vec::new();
            for _ in 0..40 {
                if nodes.is_empty() || below(3) == 0 {
                    let last = given.last().copied().unwrap_or(Epoch::ZERO);
                    opening = (opening + 1).max(last.opening() + last.takeover().max(1));
                    nodes.push(OwnerTable::new(Epoch::of(opening, 0)));
                }
                let index = below(nodes.len());
                let node = &mut nodes[index];
                if let Some(last) = given.last() {
                    node.heard(partition, *last);
                }
                let (taken, _) = node.take(&claim());
                let [(_, epoch)] = taken[..] else { panic!() };
                for before in &given {
                    let latest = given.last().unwrap();
                    assert!(epoch > *before, "{given:?} {epoch:?}");
                    assert!(
                        latest == before || epoch.since(*before) > latest.since(*before),
                        "{given:?} {epoch:?}"
                    );
                    assert!(epoch.since(*before) > 0);
                }
                given.push(epoch);
            }
        }
    }
}
