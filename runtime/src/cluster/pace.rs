//! How a node continues when the store refuses a claim: a pure machine.
//!
//! ```text
//!   wanted ──► claim of all ── refused ──► claims of its halves, and of theirs ──► one that is refused alone is set aside
//!                  ▲                          │ a pause before each                      │ a warning
//!                  └──── granted ◄────────────┘                                          └──► wanted again behind a pause
//! ```
//!
//! A claim is granted or refused as a whole. One partition that cannot be read, or that another node has claimed first, would
//! keep the other partitions of the claim from being owned, and the same claim would be repeated after each look.
//!
//! Invariants: a refused claim is not repeated at once; a partition that is set aside keeps no other from being claimed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use millrun_core::Partition;

/// The pause after a refused claim.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_millis(250);

/// How long a partition is set aside that was refused alone: first and longest time.
pub(crate) const ASIDE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// How many claims may be refused in a row. With one more, no single partition is at fault: everything that is wanted is
/// claimed anew, after a pause as long as for a partition that is set aside.
const REFUSED_LEN_MAX: u32 = 24;

/// What follows from a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A smaller claim is made next.
    Halved,
    /// This partition is set aside.
    SetAside(Partition),
    /// Nothing is claimed for now.
    Paused,
}

/// Decides what is claimed next.
#[derive(Debug, Default)]
pub(crate) struct ClaimPace {
    /// Halves of refused claims, each to be claimed by itself.
    halves: VecDeque<Vec<Partition>>,
    /// Partitions that are set aside: until when, and for how long.
    aside: BTreeMap<Partition, (Duration, Duration)>,
    /// How many claims were refused since one was granted.
    refused: u32,
    /// How long nothing is claimed after too many refusals.
    pause: Duration,
    /// No claim is made before this time.
    not_before: Duration,
}

impl ClaimPace {
    /// The wanted partitions that may be claimed now, in order; none if it is too early for any claim.
    pub(crate) fn allowed(&mut self, now: Duration, mut wanted: Vec<Partition>) -> Vec<Partition> {
        if now < self.not_before {
            return Vec::new();
        }
        wanted.retain(|partition| self.aside.get(partition).is_none_or(|(until, _)| now >= *until));
        wanted
    }

    /// The partitions of the next claim, out of the allowed ones.
    pub(crate) fn next(&mut self, allowed: Vec<Partition>) -> Vec<Partition> {
        if allowed.is_empty() {
            // The halves are kept: what was refused may belong to this node until its next flush has landed.
            return allowed;
        }
        while let Some(mut half) = self.halves.pop_front() {
            // Another node may have claimed some meanwhile.
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

    /// Takes the refusal of a claim. `spread`, below 4, makes the pauses of nodes differ: otherwise they would collide again
    /// and again.
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

    /// Claims until all is owned or set aside, from a store that grants no claim with one of `bad`. Returns what is owned,
    /// the number of claims, and what was set aside.
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

    /// If all claims are refused, no single partition is at fault: the server reads nothing, say.
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
