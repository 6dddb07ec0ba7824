//! The acknowledged records of a subscription.

use std::collections::BTreeMap;

/// A set of sequences: all up to one, and ranges behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    through: u64,
    /// First and last of each range. Ranges do not touch each other or `through`.
    ranges: BTreeMap<u64, u64>,
}

impl Acknowledged {
    pub(crate) fn up_to(through: u64) -> Self {
        Self {
            through,
            ranges: BTreeMap::new(),
        }
    }

    /// All up to this one are in the set.
    pub(crate) fn through(&self) -> u64 {
        self.through
    }

    /// How many behind `through` are in the set.
    pub(crate) fn len_behind(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// How many before this one are not in the set.
    pub(crate) fn missing_before(&self, sequence: u64) -> u64 {
        let ranges = self.ranges.range(..sequence);
        let has: u64 = ranges.map(|(first, last)| (last + 1).min(sequence) - first).sum();
        sequence.saturating_sub(self.through + 1).saturating_sub(has)
    }

    pub(crate) fn ranges(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(first, last)| (*first, *last))
    }

    pub(crate) fn has(&self, sequence: u64) -> bool {
        let before = || self.ranges.range(..=sequence).next_back();
        sequence <= self.through || before().is_some_and(|(_, last)| sequence <= *last)
    }

    pub(crate) fn add(&mut self, sequence: u64) {
        self.add_range(sequence, sequence);
    }

    /// Adds all from `first` to `last`.
    pub(crate) fn add_range(&mut self, first: u64, last: u64) {
        if last < first || last <= self.through {
            return;
        }
        let (mut first, mut last) = (first, last);
        if first <= self.through + 1 {
            first = self.through + 1;
        }
        // Ranges that it touches are merged with it.
        while let Some((other_first, other_last)) = self.meeting(first, last) {
            self.ranges.remove(&other_first);
            (first, last) = (first.min(other_first), last.max(other_last));
        }
        if first == self.through + 1 {
            self.through = last;
        } else {
            self.ranges.insert(first, last);
        }
    }

    fn meeting(&self, first: u64, last: u64) -> Option<(u64, u64)> {
        let (other_first, other_last) = self.ranges.range(..=last.saturating_add(1)).next_back()?;
        (*other_last + 1 >= first).then_some((*other_first, *other_last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_set_of_what_was_added(
            through in 0..5_u64,
            added in proptest::collection::vec((1..60_u64, 0..6_u64), 0..40),
        ) {
            let (mut set, mut model) = (Acknowledged::up_to(through), BTreeSet::new());
            model.extend(1..=through);
            for (first, more) in added {
                set.add_range(first, first + more);
                model.extend(first..=first + more);
                for sequence in 1..70 {
                    let before = sequence - 1 - model.range(..sequence).count() as u64;
                    prop_assert_eq!(set.missing_before(sequence), before);
                    prop_assert_eq!(set.has(sequence), model.contains(&sequence));
                }
                let end = (1..).find(|sequence| !model.contains(sequence)).unwrap() - 1;
                prop_assert_eq!(set.through(), end);
                prop_assert_eq!(set.len_behind(), model.range(end + 1..).count() as u64);
                let bounds: Vec<_> = set.ranges().collect();
                prop_assert!(bounds.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
                prop_assert!(bounds.first().is_none_or(|first| first.0 > end + 1));
            }
        }
    }
}
