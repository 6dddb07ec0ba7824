//! A set of partitions, as bits.

use millrun_core::Partition;

const WORDS: usize = Partition::COUNT as usize / 64;

/// Some of the partitions, in 128 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionSet([u64; WORDS]);

impl PartitionSet {
    /// All partitions.
    pub(crate) fn all() -> Self {
        Self([u64::MAX; WORDS])
    }

    pub(crate) fn insert(&mut self, partition: Partition) {
        let index = usize::from(partition.index());
        self.0[index / 64] |= 1 << (index % 64);
    }

    #[inline]
    pub(crate) fn contains(&self, partition: Partition) -> bool {
        let index = usize::from(partition.index());
        self.0[index / 64] & 1 << (index % 64) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The partitions in it, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Partition> {
        let all = (0..Partition::COUNT).filter_map(Partition::from_index);
        all.filter(|partition| self.contains(*partition))
    }
}

impl FromIterator<Partition> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = Partition>>(partitions: I) -> Self {
        let mut set = Self::default();
        partitions.into_iter().for_each(|partition| set.insert(partition));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_put_in_and_nothing_else() {
        let indices = [0, 1, 63, 64, 700, 1_023];
        let partitions = || indices.iter().filter_map(|index| Partition::from_index(*index));
        let set: PartitionSet = partitions().collect();
        assert!(set.iter().eq(partitions()));
        assert!(!set.is_empty() && PartitionSet::default().is_empty());
        let others = (0..Partition::COUNT).filter(|index| !indices.contains(index));
        assert!(
            !others
                .filter_map(Partition::from_index)
                .any(|other| set.contains(other))
        );
    }
}
