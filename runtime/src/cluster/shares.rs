//! Who of several nodes should own which partitions.
//!
//! ```text
//!   nodes in order: a │ b │ c        quota: 1,024 / 3, the first ones one more
//!   owned:        900 │ 0 │ 0        a gives back what is above its quota, a bounded number at a time
//!   free:         124                b takes the first of them, up to its quota, c the next
//! ```
//!
//! Pure functions of one look at the store. Nodes that see the same want different partitions, so their claims seldom meet;
//! where they do, the store grants one.

use millrun_core::Partition;
use millrun_persistence::{NodeKey, NodesSeen};

/// The most partitions that a node gives back to others at a time: runs there stand still until they are claimed.
pub(crate) const HANDED_OVER_MAX: usize = 128;

/// How many partitions each node should own, in the order in which they are seen.
fn quotas(len: usize) -> impl Iterator<Item = usize> {
    let all = usize::from(Partition::COUNT);
    let more = all.checked_rem(len).unwrap_or(0);
    (0..len).map(move |index| all / len + usize::from(index < more))
}

/// The free partitions that this node should claim.
pub(crate) fn to_claim(me: &NodeKey, seen: &NodesSeen) -> Vec<Partition> {
    let mut free = &seen.free[..];
    for (node, quota) in seen.nodes.iter().zip(quotas(seen.nodes.len())) {
        let lacking = quota.saturating_sub(node.partitions.len()).min(free.len());
        let (share, rest) = free.split_at(lacking);
        if node.node == *me {
            return share.to_vec();
        }
        free = rest;
    }
    Vec::new()
}

/// The partitions of this node that it should give back for others to claim.
pub(crate) fn to_release(me: &NodeKey, seen: &NodesSeen) -> Vec<Partition> {
    // What is free is claimed first: it stands still until then.
    if !seen.free.is_empty() {
        return Vec::new();
    }
    let nodes = || seen.nodes.iter().zip(quotas(seen.nodes.len()));
    let lacking: usize = nodes()
        .map(|(node, quota)| quota.saturating_sub(node.partitions.len()))
        .sum();
    let mine = nodes().find(|(node, _)| node.node == *me);
    let Some((mine, quota)) = mine else {
        return Vec::new();
    };
    let surplus = mine.partitions.len().saturating_sub(quota);
    let len = surplus.min(lacking).min(HANDED_OVER_MAX);
    mine.partitions[mine.partitions.len() - len..].to_vec()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use millrun_persistence::NodeSeen;

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
            seen.nodes.push(NodeSeen::new(key(number), 0, partitions));
        }
        seen.free = left.collect();
        seen
    }

    /// What all nodes do by one look.
    fn step(seen: &mut NodesSeen) -> usize {
        let before = seen.clone();
        let mut moved = 0;
        for node in &mut seen.nodes {
            let claimed = to_claim(&node.node, &before);
            let released = to_release(&node.node, &before);
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
        assert!(to_release(&key(0), &seen(&[1_024])).is_empty());
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
        assert_eq!(to_release(&key(0), &seen(&[1_024, 0])).len(), HANDED_OVER_MAX);
        assert_eq!(to_release(&key(0), &seen(&[600, 424])).len(), 88);
        // What is free is enough for the other.
        assert!(to_release(&key(0), &seen(&[512, 200])).is_empty());
    }
}
