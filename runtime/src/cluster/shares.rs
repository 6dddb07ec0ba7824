//! Which node should own which partitions.
//!
//! ```text
//!   nodes that claim, in order: a │ b │ c        quota: what they own and what is free / 3, the first ones one more
//!   owned:                      900 │ 0 │ 0        a gives back what is above its quota, a bounded number at a time
//!   free:                       124                b takes the first of them, up to its quota, c the next
//! ```
//!
//! A node that does not claim by itself has no quota, and what it owns is not counted. A partition that has been free for
//! long may be claimed by any node, whatever the quotas: the node that should have claimed it does not.
//!
//! These are pure functions of one look at the store. Nodes that see the same want different partitions, so their claims
//! seldom collide; where they do, the store grants one.

use millrun_core::Partition;
use millrun_persistence::{NodeKey, NodeSeen, NodesSeen};

/// The most partitions that a node gives back at a time: runs there stand still until the partitions are claimed.
pub(crate) const HANDED_OVER_MAX: usize = 128;

/// The nodes that claim by themselves, in the order in which they are seen, each with the number of partitions that it should
/// own.
fn quotas(seen: &NodesSeen) -> Vec<(&NodeSeen, usize)> {
    let claiming: Vec<_> = seen.nodes.iter().filter(|node| node.claims()).collect();
    let len = claiming.len();
    let owned: usize = claiming.iter().map(|node| node.partitions.len()).sum();
    let all = owned + seen.free.len();
    let more = all.checked_rem(len).unwrap_or(0);
    let quotas = claiming.into_iter().enumerate();
    let quotas = quotas.map(|(index, node)| (node, all / len + usize::from(index < more)));
    quotas.collect()
}

/// The free partitions that this node should claim.
pub(crate) fn to_claim(me: &NodeKey, seen: &NodesSeen) -> Vec<Partition> {
    let mut free = &seen.free[..];
    for (node, quota) in quotas(seen) {
        let lacking = quota.saturating_sub(node.partitions.len()).min(free.len());
        let (share, rest) = free.split_at(lacking);
        if node.node == *me {
            return share.to_vec();
        }
        free = rest;
    }
    Vec::new()
}

/// The partitions of `left`, which have been free for long, in the order in which this node should claim them. Nodes begin at
/// different ones.
pub(crate) fn to_take_up(me: &NodeKey, seen: &NodesSeen, left: &[Partition]) -> Vec<Partition> {
    let quotas = quotas(seen);
    let Some(place) = quotas.iter().position(|(node, _)| node.node == *me) else {
        return Vec::new();
    };
    let begin = left.len() * place / quotas.len();
    let (before, behind) = left.split_at(begin);
    let mut wanted: Vec<_> = behind
        .iter()
        .chain(before)
        .copied()
        .take(HANDED_OVER_MAX)
        .collect();
    wanted.sort_unstable();
    wanted
}

/// The nodes that claim by themselves and own less than they should.
pub(crate) fn lacking(seen: &NodesSeen) -> impl Iterator<Item = &NodeKey> {
    let lacking = quotas(seen).into_iter();
    let lacking = lacking.filter(|(node, quota)| node.partitions.len() < *quota);
    lacking.map(|(node, _)| &node.node)
}

/// How many partitions this node should give to other nodes at a time, not counting shunned nodes.
pub(crate) fn surplus_len(me: &NodeKey, seen: &NodesSeen, is_shunned: impl Fn(&NodeKey) -> bool) -> usize {
    let quotas = quotas(seen);
    let lacking: usize = quotas
        .iter()
        .filter(|(node, _)| !is_shunned(&node.node))
        .map(|(node, quota)| quota.saturating_sub(node.partitions.len()))
        .sum();
    let Some((mine, quota)) = quotas.iter().find(|(node, _)| node.node == *me) else {
        return 0;
    };
    let surplus = mine.partitions.len().saturating_sub(*quota);
    surplus.min(lacking).min(HANDED_OVER_MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use std::time::Duration;

    use millrun_persistence::NodeTerms;

    use super::*;

    fn all() -> Vec<Partition> {
        (0..Partition::COUNT).filter_map(Partition::from_index).collect()
    }

    fn key(number: u64) -> NodeKey {
        NodeKey::new(&format!("n{number:03}"), number)
    }

    fn seen(owned: &[usize]) -> NodesSeen {
        let mut seen = NodesSeen::default();
        let mut left = all().into_iter();
        for (number, len) in (0..).zip(owned) {
            let partitions = left.by_ref().take(*len).collect();
            let node = NodeSeen::new(key(number), 0, partitions);
            seen.nodes
                .push(node.with_terms(NodeTerms::new(Duration::from_secs(5), true)));
        }
        seen.free = left.collect();
        seen
    }

    /// What a node gives back if none of its partitions is busy. `left_len` partitions have been free for long.
    fn to_release(
        me: &NodeKey,
        seen: &NodesSeen,
        left_len: usize,
        is_shunned: impl Fn(&NodeKey) -> bool,
    ) -> Vec<Partition> {
        if seen.free.len() > left_len {
            return Vec::new();
        }
        let len = surplus_len(me, seen, is_shunned);
        let mine = seen.nodes.iter().find(|node| node.node == *me);
        let mine = mine.map_or(&[][..], |node| &node.partitions);
        mine[mine.len() - len..].to_vec()
    }

    /// Lets all nodes act on one look.
    fn step(seen: &mut NodesSeen) -> usize {
        let before = seen.clone();
        let mut moved = 0;
        for node in &mut seen.nodes {
            let claimed = to_claim(&node.node, &before);
            let released = to_release(&node.node, &before, 0, |_| false);
            assert!(claimed.is_empty() || released.is_empty());
            moved += claimed.len() + released.len();
            seen.free.retain(|free| !claimed.contains(free));
            node.partitions.retain(|owned| !released.contains(owned));
            node.partitions.extend(claimed);
            node.partitions.sort_unstable();
            seen.free.extend(released);
        }
        seen.free.sort_unstable();
        moved
    }

    #[test]
    fn the_only_node_claims_all() {
        assert_eq!(to_claim(&key(0), &seen(&[0])), all());
        assert!(to_release(&key(0), &seen(&[1_024]), 0, |_| false).is_empty());
        assert!(to_claim(&key(7), &seen(&[0])).is_empty(), "it is not among them");
    }

    #[test]
    fn nodes_that_see_the_same_claim_each_free_partition_once() {
        for owned in [&[0, 0, 0][..], &[500, 0, 0, 100], &[1, 2, 3, 4, 5], &[0; 100]] {
            let seen = seen(owned);
            let mut claimed = BTreeSet::new();
            for node in &seen.nodes {
                for partition in to_claim(&node.node, &seen) {
                    assert!(claimed.insert(partition));
                }
            }
            assert_eq!(claimed.into_iter().collect::<Vec<_>>(), seen.free, "{owned:?}");
        }
    }

    #[test]
    fn shares_become_even_and_then_nothing_moves() {
        for owned in [
            &[1_024, 0][..],
            &[900, 0, 0],
            &[0, 0, 1_000],
            &[0; 100],
            &[10; 100],
            &[342, 341, 341],
        ] {
            let mut seen = seen(owned);
            let mut rounds = 0;
            while step(&mut seen) > 0 {
                rounds += 1;
                assert!(rounds < 30, "{owned:?} does not come to rest");
            }
            assert!(seen.free.is_empty());
            let lens = seen.nodes.iter().map(|node| node.partitions.len());
            let (least, most) = (lens.clone().min().unwrap(), lens.max().unwrap());
            assert!(most - least <= 1, "{owned:?}: {least} to {most}");
        }
    }

    #[test]
    fn a_bounded_number_is_given_back_at_a_time() {
        assert_eq!(
            to_release(&key(0), &seen(&[1_024, 0]), 0, |_| false).len(),
            HANDED_OVER_MAX
        );
        assert_eq!(to_release(&key(0), &seen(&[600, 424]), 0, |_| false).len(), 88);
        assert!(to_release(&key(0), &seen(&[600, 424]), 0, |node| *node == key(1)).is_empty());
        // The free partitions are enough for the other node.
        assert!(to_release(&key(0), &seen(&[512, 200]), 0, |_| false).is_empty());
        // Unless they cannot be claimed.
        assert_eq!(
            to_release(&key(0), &seen(&[1_000, 0, 20]), 4, |_| false).len(),
            HANDED_OVER_MAX
        );
    }

    /// Regression: a process that had only joined had a share; others gave partitions back for it, and no node claimed them.
    #[test]
    fn a_node_that_does_not_claim_has_no_share() {
        for terms in [None, Some(NodeTerms::new(Duration::from_secs(5), false))] {
            let mut seen = seen(&[1_000, 0, 0]);
            seen.nodes[1].terms = terms;
            assert!(to_claim(&key(1), &seen).is_empty());
            assert!(to_release(&key(1), &seen, 0, |_| false).is_empty());
            assert_eq!(to_claim(&key(2), &seen).len(), 24);
            while step(&mut seen) > 0 {}
            let lens: Vec<_> = seen.nodes.iter().map(|node| node.partitions.len()).collect();
            assert_eq!(lens, [512, 0, 512]);
        }
        // What the program told it to claim stays with it.
        let mut seen = seen(&[500, 100, 0]);
        seen.nodes[1].terms = None;
        while step(&mut seen) > 0 {}
        let lens: Vec<_> = seen.nodes.iter().map(|node| node.partitions.len()).collect();
        assert_eq!(lens, [462, 100, 462]);
    }

    #[test]
    fn what_is_left_is_taken_up_by_nodes_that_begin_at_different_places() {
        let seen = seen(&[300, 300, 300]);
        let left = &seen.free;
        let mut taken = BTreeSet::new();
        for number in 0..3 {
            let wanted = to_take_up(&key(number), &seen, left);
            assert!(wanted.is_sorted() && wanted.len() == left.len().min(HANDED_OVER_MAX));
            taken.extend(wanted);
        }
        assert_eq!(taken.into_iter().collect::<Vec<_>>(), *left);
        let many = &all()[..900];
        let first = |number| to_take_up(&key(number), &seen, many)[0];
        assert_eq!([first(0), first(1), first(2)], [many[0], many[300], many[600]]);
        assert!(to_take_up(&key(7), &seen, many).is_empty());
    }
}
