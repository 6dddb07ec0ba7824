//! How a node goes on when the store refuses a claim: a pure machine.
//!
//! ```text
//!   wanted ──► claim of all ── refused ──► claims of its halves, and of theirs ──► one that is refused alone is set aside
//!                  ▲                          │ a pause before each                      │ a warning
//!                  └──── granted ◄────────────┘                                          └──► wanted again behind a pause
//! ```
//!
//! A claim is granted or refused as a whole. One partition that cannot be read, or that another node was quicker to claim, would
//! keep all others of the claim from being owned, and the claim would be made again with each look.
//!
//! Invariants: what is refused is not claimed again at once; a partition that is set aside keeps no other from being claimed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use millrun_core::Partition;

/// The pause behind a claim that was refused.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_millis(250);

/// The first and the longest time for which a partition is set aside that was refused alone.
pub(crate) const ASIDE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// How many claims may be refused one after the other. With one more the fault is not that of a single partition: all that is
/// wanted is claimed anew, behind a pause as for a partition that is set aside.
const REFUSED_LEN_MAX: u32 = 24;

/// What a refusal has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Less is claimed next.
    Halved,
    /// This partition is set aside.
    SetAside(Partition),
    /// Nothing is claimed for now.
    Paused,
}

/// What is claimed next.
#[derive(Debug, Default)]
pub(crate) struct ClaimPace {
    /// Parts of claims that were refused, each to be claimed by itself.
    halves: VecDeque<Vec<Partition>>,
    /// Until when partitions are not claimed, and for how long they were set aside.
    aside: BTreeMap<Partition, (Duration, Duration)>,
    /// The claims that were refused since one was granted.
    refused: u32,
    /// For how long nothing is claimed when that are too many.
    pause: Duration,
    /// Nothing is claimed before.
    not_before: Duration,
}

impl ClaimPace {
    /// Of the partitions that are wanted, in order, those that may be: none if it is too early for any claim.
    pub(crate) fn allowed(&mut self, now: Duration, mut wanted: Vec<Partition>) -> Vec<Partition> {
        if now < self.not_before {
            return Vec::new();
        }
        wanted.retain(|partition| self.aside.get(partition).is_none_or(|(until, _)| now >= *until));
        wanted
    }

    /// What is to be claimed at once of the partitions that are allowed.
    pub(crate) fn next(&mut self, allowed: Vec<Partition>) -> Vec<Partition> {
        if allowed.is_empty() {
            // Halves are kept: what was refused may be this node's until its next flush has landed.
            return allowed;
        }
        while let Some(mut half) = self.halves.pop_front() {
            // Others may have been quicker.
            half.retain(|partition| allowed.binary_search(partition).is_ok());
            if !half.is_empty() {
                return half;
            }
        }
        allowed
    }

    /// A claim was granted.
    pub(crate) fn granted(&mut self, partitions: &[Partition]) {
        (self.refused, self.pause) = (0, Duration::ZERO);
        for partition in partitions {
            self.aside.remove(partition);
        }
    }

    /// A claim was refused. `spread`, below 4, makes the pauses of nodes differ, which want the same otherwise again and again.
    pub(crate) fn refused(&mut self, now: Duration, partitions: Vec<Partition>, spread: u32) -> Refusal {
        let spread_of = |pause: Duration| pause + pause * spread / 8;
        self.refused += 1;
        self.not_before = now + spread_of(REFUSED_PAUSE);
        if self.refused > REFUSED_LEN_MAX {
            self.halves.clear();
            self.pause = (self.pause * 2).clamp(ASIDE.0, ASIDE.1);
            (self.refused, self.not_before) = (0, now + spread_of(self.pause));
            return Refusal::Paused;
        }
        if let [alone] = partitions[..] {
            let former = self.aside.get(&alone).map_or(Duration::ZERO, |(_, pause)| *pause);
            let pause = (former * 2).clamp(ASIDE.0, ASIDE.1);
            self.aside.insert(alone, (now + spread_of(pause), pause));
            return Refusal::SetAside(alone);
        }
        let (first, second) = partitions.split_at(partitions.len() / 2);
        self.halves.push_front(second.to_vec());
        self.halves.push_front(first.to_vec());
        Refusal::Halved
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn partitions(indices: impl IntoIterator<Item = u16>) -> Vec<Partition> {
        indices.into_iter().filter_map(Partition::from_index).collect()
    }

    /// Claims until all is owned or set aside, of a store that grants nothing with one of these. Gives what is owned, the number
    /// of claims, and what was set aside.
    fn claim(wanted: &[Partition], bad: &[Partition]) -> (BTreeSet<Partition>, usize, Vec<Partition>) {
        let (mut pace, mut owned, mut now) = (ClaimPace::default(), BTreeSet::new(), Duration::ZERO);
        let (mut claims, mut aside) = (0, Vec::new());
        while owned.len() + aside.len() < wanted.len() {
            let free = wanted
                .iter()
                .filter(|free| !owned.contains(*free))
                .copied()
                .collect();
            let allowed = pace.allowed(now, free);
            now += Duration::from_millis(10);
            let claimed = pace.next(allowed);
            if claimed.is_empty() {
                continue;
            }
            claims += 1;
            assert!(claims < 100);
            if claimed.iter().any(|partition| bad.contains(partition)) {
                if let Refusal::SetAside(alone) = pace.refused(now, claimed, 0) {
                    aside.push(alone);
                }
            } else {
                pace.granted(&claimed);
                owned.extend(claimed);
            }
        }
        (owned, claims, aside)
    }

    #[test]
    fn a_partition_that_is_always_refused_keeps_no_other_from_being_owned() {
        let wanted = partitions(0..512);
        for bad in [0, 255, 256, 511] {
            let bad = partitions([bad]);
            let (owned, claims, aside) = claim(&wanted, &bad);
            assert_eq!((owned.len(), aside), (511, bad));
            assert!(claims < 20, "{claims}");
        }
        let bad = partitions([3, 400]);
        let (owned, _, aside) = claim(&wanted, &bad);
        assert_eq!((owned.len(), aside), (510, bad));
    }

    #[test]
    fn what_was_refused_is_claimed_again_behind_pauses_that_grow() {
        let (mut pace, bad) = (ClaimPace::default(), partitions([7]));
        let mut now = Duration::ZERO;
        for pause in [5, 10, 20, 40, 60, 60] {
            assert_eq!(pace.allowed(now, bad.clone()), bad);
            assert_eq!(pace.refused(now, bad.clone(), 0), Refusal::SetAside(bad[0]));
            now += Duration::from_secs(pause);
            assert!(
                pace.allowed(now - Duration::from_millis(1), bad.clone())
                    .is_empty()
            );
        }
        pace.granted(&bad);
        assert_eq!(pace.refused(now, bad.clone(), 3), Refusal::SetAside(bad[0]));
        assert!(
            pace.allowed(now + ASIDE.0, bad.clone()).is_empty(),
            "another node tries first"
        );
        assert_eq!(pace.allowed(now + ASIDE.0 * 11 / 8, bad.clone()), bad);
    }

    /// No single partition is at fault where all claims are refused: a server that reads nothing, say.
    #[test]
    fn claims_that_are_all_refused_are_not_halved_for_ever() {
        let wanted = partitions(0..1_024);
        let (mut pace, mut now, mut claims) = (ClaimPace::default(), Duration::ZERO, 0);
        let minute = Duration::from_secs(60);
        while now < 10 * minute {
            let allowed = pace.allowed(now, wanted.clone());
            if !allowed.is_empty() {
                let claimed = pace.next(allowed);
                pace.refused(now, claimed, 0);
                claims += 1;
            }
            now += REFUSED_PAUSE;
        }
        assert!(claims < 500, "{claims}");
    }
}
