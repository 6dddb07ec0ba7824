//! How a node gives partitions to nodes that live: a pure machine.
//!
//! ```text
//!   surplus ──► drained: no attempt begins there ──── none is under way ──► given back ──► another node claims it
//!                   │         └── attempts under way at the end of the grace ──► given back, and these are cut
//!                   └── the surplus is gone: a node has died, say ──► attempts begin again
//! ```
//!
//! Invariants: a partition is drained only while there is surplus, and given back after its drain has come to rest or lasted for
//! the grace. Whatever is drained beyond the surplus is resumed at the next look that tells how much that is.

use std::collections::BTreeMap;
use std::time::Duration;

use millrun_core::Partition;

use super::machine::ClusterAction;

/// The partitions that a node drains.
#[derive(Debug)]
pub(super) struct HandOver {
    grace: Duration,
    drained: BTreeMap<Partition, Drain>,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    since: Duration,
    stage: DrainStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainStage {
    /// Attempts may be under way.
    Busy,
    /// No attempt is under way, and everything that attempts have reported is recorded.
    AtRest,
    /// It is given back, and looks may show it as owned until the next flush has landed.
    GivenBack,
}

/// How much a node should give to others, by one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surplus {
    pub(super) len: usize,
    /// Whether further partitions may be drained for it.
    pub(super) may_drain_more: bool,
}

impl HandOver {
    pub(super) fn new(grace: Duration) -> Self {
        Self {
            grace,
            drained: BTreeMap::new(),
        }
    }

    /// Forgets all: the node leaves, and gives everything back.
    pub(super) fn clear(&mut self) {
        self.drained.clear();
    }

    /// A look has shown that this node owns these partitions, in order.
    pub(super) fn note_owned(&mut self, mine: &[Partition]) {
        self.drained
            .retain(|partition, _| mine.binary_search(partition).is_ok());
    }

    /// Whether a partition is drained, and not given back yet.
    pub(super) fn is_draining(&self, partition: Partition) -> bool {
        let drain = self.drained.get(&partition);
        drain.is_some_and(|drain| drain.stage != DrainStage::GivenBack)
    }

    /// These partitions are kept, or were claimed: what was known of them is of an earlier epoch.
    pub(super) fn forget(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.drained.remove(partition);
        }
    }

    /// These partitions are drained from now on.
    pub(super) fn drained(&mut self, now: Duration, partitions: &[Partition]) {
        for partition in partitions {
            self.drained.entry(*partition).or_insert(Drain {
                since: now,
                stage: DrainStage::Busy,
            });
        }
    }

    /// The drains of these partitions have come to rest.
    pub(super) fn at_rest(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            if let Some(drain) = self.drained.get_mut(partition)
                && drain.stage == DrainStage::Busy
            {
                drain.stage = DrainStage::AtRest;
            }
        }
    }

    /// Gives back what has come to rest.
    pub(super) fn turn(&mut self) -> Option<ClusterAction> {
        self.give_back(|drain| drain.stage == DrainStage::AtRest)
    }

    /// Takes how much should be given to others. This node owns `mine`, in order.
    pub(super) fn wanted(
        &mut self,
        now: Duration,
        mine: &[Partition],
        surplus: Surplus,
    ) -> Vec<ClusterAction> {
        let mut actions = Vec::new();
        let excess = self.drained.len().saturating_sub(surplus.len);
        let mut resumed = Vec::new();
        for stage in [DrainStage::Busy, DrainStage::AtRest] {
            let of_stage = self.drained.iter().filter(|(_, drain)| drain.stage == stage);
            let left = excess - resumed.len();
            resumed.extend(of_stage.map(|(partition, _)| *partition).take(left));
        }
        if !resumed.is_empty() {
            resumed.sort_unstable();
            self.forget(&resumed);
            actions.push(ClusterAction::Resume(resumed));
        }
        let grace = self.grace;
        let is_over =
            |drain: &Drain| drain.stage == DrainStage::Busy && now.saturating_sub(drain.since) >= grace;
        actions.extend(self.give_back(is_over));
        let len = surplus.len.saturating_sub(self.drained.len());
        if len > 0 && surplus.may_drain_more {
            let others = mine
                .iter()
                .filter(|partition| !self.drained.contains_key(partition));
            let of = others.copied().collect();
            actions.push(ClusterAction::Drain { len, of });
        }
        actions
    }

    fn give_back(&mut self, is_due: impl Fn(&Drain) -> bool) -> Option<ClusterAction> {
        let mut given = Vec::new();
        for (partition, drain) in &mut self.drained {
            if is_due(drain) {
                drain.stage = DrainStage::GivenBack;
                given.push(*partition);
            }
        }
        (!given.is_empty()).then_some(ClusterAction::Release(given))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);
    const NOW: Duration = Duration::from_secs(1_000);

    fn partitions(indices: impl IntoIterator<Item = u16>) -> Vec<Partition> {
        indices.into_iter().filter_map(Partition::from_index).collect()
    }

    fn surplus(len: usize) -> Surplus {
        Surplus {
            len,
            may_drain_more: true,
        }
    }

    /// A node that owns eight partitions and drains the last three.
    fn draining() -> (HandOver, Vec<Partition>) {
        let (mut hand_over, mine) = (HandOver::new(GRACE), partitions(0..8));
        let drain = ClusterAction::Drain {
            len: 3,
            of: mine.clone(),
        };
        assert_eq!(hand_over.wanted(NOW, &mine, surplus(3)), [drain]);
        hand_over.drained(NOW, &mine[5..]);
        assert_eq!(hand_over.wanted(NOW, &mine, surplus(3)), []);
        assert_eq!(hand_over.turn(), None);
        (hand_over, mine)
    }

    #[test]
    fn what_has_come_to_rest_is_given_back_once() {
        let (mut hand_over, mine) = draining();
        hand_over.at_rest(&mine[6..7]);
        assert_eq!(
            hand_over.turn(),
            Some(ClusterAction::Release(mine[6..7].to_vec()))
        );
        // Its flush has not landed yet.
        hand_over.note_owned(&mine);
        hand_over.at_rest(&mine[6..7]);
        assert_eq!(hand_over.turn(), None);
        assert_eq!(hand_over.wanted(NOW, &mine, surplus(3)), []);
        let left = [&mine[..6], &mine[7..]].concat();
        hand_over.note_owned(&left);
        assert_eq!(hand_over.wanted(NOW, &left, surplus(2)), []);
    }

    #[test]
    fn what_is_busy_at_the_end_of_the_grace_is_given_back_while_there_is_surplus() {
        let (mut hand_over, mine) = draining();
        let early = NOW + GRACE - Duration::from_millis(1);
        assert_eq!(hand_over.wanted(early, &mine, surplus(3)), []);
        hand_over.at_rest(&mine[5..6]);
        assert_eq!(
            hand_over.wanted(NOW + GRACE, &mine, surplus(3)),
            [ClusterAction::Release(mine[6..].to_vec())]
        );
    }

    #[test]
    fn what_is_drained_beyond_the_surplus_is_resumed_and_may_be_drained_again() {
        let (mut hand_over, mine) = draining();
        hand_over.at_rest(&mine[5..6]);
        // What is at rest goes on being given back.
        assert_eq!(
            hand_over.wanted(NOW + GRACE, &mine, surplus(1)),
            [ClusterAction::Resume(mine[6..].to_vec())]
        );
        assert_eq!(
            hand_over.wanted(NOW + GRACE, &mine, surplus(0)),
            [ClusterAction::Resume(mine[5..6].to_vec())]
        );
        assert_eq!(hand_over.turn(), None);
        hand_over.drained(NOW + GRACE, &mine[7..]);
        assert_eq!(hand_over.wanted(NOW + GRACE, &mine, surplus(1)), []);
        let release = ClusterAction::Release(mine[7..].to_vec());
        assert_eq!(hand_over.wanted(NOW + GRACE * 2, &mine, surplus(1)), [release]);
        // Nobody else has claimed it, and this node has it again.
        hand_over.forget(&mine[7..]);
        assert!(hand_over.drained.is_empty());
    }

    /// What was given back is free until it is claimed. If that were no surplus, what is busy would be resumed with each look.
    #[test]
    fn while_others_have_to_claim_the_drains_go_on_and_no_other_begins() {
        let (mut hand_over, mine) = draining();
        let surplus = Surplus {
            len: 5,
            may_drain_more: false,
        };
        assert_eq!(hand_over.wanted(NOW, &mine, surplus), []);
        assert_eq!(hand_over.drained.len(), 3);
    }
}
