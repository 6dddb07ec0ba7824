//! Waits for records of one topic, by what they are for.

use std::hash::BuildHasherDefault;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use millrun_core::{RunId, Sequence, Timestamp};
use millrun_workflow::OperationId;
use rustc_hash::FxHasher;

use super::selector::{FilteredRecord, LookedAt, Selector, SelectorHash};
use crate::ownership::partition_set::PartitionSet;

/// From where on a record meets a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFrom {
    /// Behind this record.
    Behind(Sequence),
    /// Appended at this time or later.
    Since(Timestamp),
}

/// An operation of a run that waits for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordWait {
    /// The bits of the run, in halves, so that a million of these have no holes.
    run: [u64; 2],
    from: u64,
    operation: u32,
    is_since: bool,
}

impl RecordWait {
    pub(super) fn new(run: RunId, operation: OperationId, from: WaitFrom) -> Self {
        let bits = run.bits().to_be_bytes();
        let half = |at: usize| {
            let half = bits[at..].first_chunk().expect("16 bytes have two halves");
            u64::from_be_bytes(*half)
        };
        let (from, is_since) = match from {
            WaitFrom::Behind(sequence) => (sequence.get(), false),
            WaitFrom::Since(time) => (time.as_micros(), true),
        };
        Self {
            run: [half(0), half(8)],
            from,
            operation: operation.get(),
            is_since,
        }
    }

    pub(super) fn run(&self) -> RunId {
        let bits = u128::from(self.run[0]) << 64 | u128::from(self.run[1]);
        RunId::from_bits(bits).expect("it was made of a run")
    }

    pub(super) fn operation(&self) -> OperationId {
        OperationId::new(self.operation)
    }

    pub(super) fn from(&self) -> WaitFrom {
        match self.is_since {
            true => WaitFrom::Since(Timestamp::from_micros(self.from)),
            false => WaitFrom::Behind(Sequence::new(self.from)),
        }
    }

    fn is_met(&self, sequence: Sequence, time: Timestamp) -> bool {
        match self.from() {
            WaitFrom::Behind(behind) => sequence > behind,
            WaitFrom::Since(since) => time >= since,
        }
    }

    fn is_of(&self, other: &Self) -> bool {
        (self.run, self.operation) == (other.run, other.operation)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct WaitIndex {
    by_hash: HashMap<SelectorHash, AlikeWaits, BuildHasherDefault<FxHasher>>,
    len: usize,
    /// All that the filters of these waits look at; more, when waits have gone.
    looked_at: LookedAt,
}

/// Waits by one filter: for most, one run.
#[derive(Debug)]
struct AlikeWaits {
    first: RecordWait,
    /// The others.
    #[expect(
        clippy::box_collection,
        reason = "a million filters have none, and pay for a pointer"
    )]
    more: Option<Box<Vec<RecordWait>>>,
}

impl WaitIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Lists a wait; one of the same operation makes room for it.
    pub(super) fn insert(&mut self, selector: &Selector, wait: RecordWait) {
        self.looked_at.note(selector);
        self.insert_by(selector.hash(), wait);
    }

    fn insert_by(&mut self, hash: SelectorHash, wait: RecordWait) {
        match self.by_hash.entry(hash) {
            Entry::Vacant(vacant) => {
                vacant.insert(AlikeWaits {
                    first: wait,
                    more: None,
                });
                self.len += 1;
            }
            Entry::Occupied(mut waits) => {
                let waits = waits.get_mut();
                let others = waits.more.iter_mut().flat_map(|more| more.iter_mut());
                let mut all = std::iter::once(&mut waits.first).chain(others);
                match all.find(|listed| listed.is_of(&wait)) {
                    Some(listed) => *listed = wait,
                    None => {
                        waits.more.get_or_insert_default().push(wait);
                        self.len += 1;
                    }
                }
            }
        }
    }

    /// Lists all waits of another, each for records behind this one, whatever their times are.
    pub(super) fn append_behind(&mut self, other: &mut Self, behind: Sequence) {
        self.looked_at.append(&mut other.looked_at);
        for (hash, waits) in std::mem::take(&mut other.by_hash) {
            let more = waits.more.map_or_else(Vec::new, |more| *more);
            for wait in std::iter::once(waits.first).chain(more) {
                let from = match wait.from() {
                    WaitFrom::Behind(place) => place.max(behind),
                    WaitFrom::Since(_) => behind,
                };
                let wait = RecordWait::new(wait.run(), wait.operation(), WaitFrom::Behind(from));
                self.insert_by(hash, wait);
            }
        }
        other.len = 0;
    }

    /// Lists all waits of another.
    pub(super) fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            return std::mem::swap(self, other);
        }
        self.looked_at.append(&mut other.looked_at);
        for (hash, waits) in std::mem::take(&mut other.by_hash) {
            self.insert_by(hash, waits.first);
            let more = waits.more.map_or_else(Vec::new, |more| *more);
            more.into_iter().for_each(|wait| self.insert_by(hash, wait));
        }
        other.len = 0;
    }

    /// Forgets the wait of this operation. Whether it was here.
    pub(super) fn remove(&mut self, hash: SelectorHash, run: RunId, operation: OperationId) -> bool {
        let before = self.len;
        let gone = RecordWait::new(run, operation, WaitFrom::Behind(Sequence::ZERO));
        self.retain_of(hash, |wait| !wait.is_of(&gone));
        self.len < before
    }

    /// Takes the waits that this record meets.
    pub(super) fn take_met(
        &mut self,
        filtered: &FilteredRecord<'_>,
        (sequence, time): (Sequence, Timestamp),
        met: &mut Vec<RecordWait>,
    ) {
        let looked_at = std::mem::take(&mut self.looked_at);
        for hash in looked_at.hashes(filtered) {
            self.retain_of(hash, |wait| {
                let is_met = wait.is_met(sequence, time);
                if is_met {
                    met.push(*wait);
                }
                !is_met
            });
        }
        if !self.is_empty() {
            self.looked_at = looked_at;
        }
    }

    /// Forgets the waits of runs in these partitions.
    pub(super) fn lose(&mut self, lost: &PartitionSet) {
        let hashes: Vec<SelectorHash> = self.by_hash.keys().copied().collect();
        for hash in hashes {
            self.retain_of(hash, |wait| !lost.contains(wait.run().partition()));
        }
    }

    /// The places from which on their records may stand: the lowest of each kind.
    pub(super) fn lowest(&self) -> (Option<Sequence>, Option<Timestamp>) {
        let (mut behind, mut since) = (None::<Sequence>, None::<Timestamp>);
        for waits in self.by_hash.values() {
            for wait in std::iter::once(&waits.first).chain(waits.more.iter().flat_map(|more| more.iter())) {
                match wait.from() {
                    WaitFrom::Behind(of) => behind = Some(behind.map_or(of, |low| low.min(of))),
                    WaitFrom::Since(of) => since = Some(since.map_or(of, |low| low.min(of))),
                }
            }
        }
        (behind, since)
    }

    /// Keeps the waits by this filter of which that is said, in their order.
    fn retain_of(&mut self, hash: SelectorHash, mut is_kept: impl FnMut(&RecordWait) -> bool) {
        let Entry::Occupied(mut entry) = self.by_hash.entry(hash) else {
            return;
        };
        let waits = entry.get_mut();
        let keeps_first = is_kept(&waits.first);
        self.len -= usize::from(!keeps_first);
        if let Some(more) = &mut waits.more {
            let before = more.len();
            more.retain(|wait| is_kept(wait));
            self.len -= before - more.len();
            if !keeps_first && !more.is_empty() {
                waits.first = more.remove(0);
                if more.is_empty() {
                    waits.more = None;
                }
                return;
            }
            if more.is_empty() {
                waits.more = None;
            }
        }
        if !keeps_first {
            entry.remove();
        }
        // What a million waits have taken is given back when they are gone.
        if self.by_hash.capacity() > 1_024 && self.by_hash.len() < self.by_hash.capacity() / 8 {
            self.by_hash.shrink_to(2 * self.by_hash.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::Partition;
    use millrun_workflow::{KeyFilter, RecordFilter};
    use proptest::prelude::*;

    use super::*;
    use crate::topics::durable::stored::StoredHeader;

    fn run(number: u8) -> RunId {
        RunId::new(Partition::of(&[number]), Timestamp::EPOCH, u64::from(number))
    }

    #[derive(Clone, Debug)]
    enum Act {
        Insert(u8, u8, u32, u64, bool),
        Remove(u8, u8, u32),
        Record(u8, u64, u64),
        Lose(u8),
        Append,
        AppendBehind(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        let key = 0..4_u8;
        prop_oneof![
            4 => (key.clone(), 0..6_u8, 1..3_u32, 0..9_u64, any::<bool>())
                .prop_map(|(key, run, operation, from, is_since)| Act::Insert(key, run, operation, from, is_since)),
            1 => (key.clone(), 0..6_u8, 1..3_u32).prop_map(|(key, run, operation)| Act::Remove(key, run, operation)),
            3 => (key, 0..9_u64, 0..9_u64).prop_map(|(key, sequence, time)| Act::Record(key, sequence, time)),
            1 => (0..6_u8).prop_map(Act::Lose),
            1 => Just(Act::Append),
            1 => (0..9_u64).prop_map(Act::AppendBehind),
        ]
    }

    const KEYS: [&str; 4] = ["", "a", "ab", "b"];

    /// Key 0 stands for any, 3 for those that begin with an `a`.
    fn selector(key: u8) -> Selector {
        let key = match key {
            0 => None,
            3 => Some(KeyFilter::StartsWith("a".into())),
            key => Some(KeyFilter::Is(KEYS[usize::from(key)].into())),
        };
        let correlation = None;
        Selector::of(&RecordFilter { key, correlation })
    }

    /// Whether a wait for that key is for a record of this one.
    fn is_for(waited: u8, key: u8) -> bool {
        waited == 0 || (waited == 3 && (key == 1 || key == 2)) || (waited == key && key != 3)
    }

    fn header(key: u8) -> StoredHeader<&'static str> {
        StoredHeader {
            key: (key > 0).then(|| KEYS[usize::from(key)]),
            ..StoredHeader::default()
        }
    }

    proptest! {
        #[test]
        fn a_record_takes_the_waits_that_a_list_has(acts in proptest::collection::vec(act(), 0..80)) {
            let (mut index, mut list) = (WaitIndex::default(), Vec::<(u8, RecordWait)>::new());
            for act in acts {
                match act {
                    Act::Insert(key, of, operation, from, is_since) => {
                        let from = match is_since {
                            true => WaitFrom::Since(Timestamp::from_micros(from)),
                            false => WaitFrom::Behind(Sequence::new(from)),
                        };
                        let wait = RecordWait::new(run(of), OperationId::new(operation), from);
                        prop_assert_eq!((wait.run(), wait.from()), (run(of), from));
                        index.insert(&selector(key), wait);
                        list.retain(|(of, listed)| *of != key || !listed.is_of(&wait));
                        list.push((key, wait));
                    }
                    Act::Remove(key, of, operation) => {
                        let was_here = index.remove(selector(key).hash(), run(of), OperationId::new(operation));
                        let before = list.len();
                        list.retain(|(listed, wait)| {
                            (*listed, wait.run(), wait.operation()) != (key, run(of), OperationId::new(operation))
                        });
                        prop_assert_eq!(was_here, list.len() < before);
                    }
                    Act::Record(key, sequence, time) => {
                        let place = (Sequence::new(sequence), Timestamp::from_micros(time));
                        let mut met = Vec::new();
                        index.take_met(&FilteredRecord::of(&header(key)), place, &mut met);
                        let is_met = |(of, wait): &(u8, RecordWait)| {
                            let is_far_enough = match wait.from() {
                                WaitFrom::Behind(behind) => sequence > behind.get(),
                                WaitFrom::Since(since) => time >= since.as_micros(),
                            };
                            is_for(*of, key) && is_far_enough
                        };
                        let mut expected: Vec<_> = list.iter().filter(|one| is_met(one)).map(|(_, wait)| *wait).collect();
                        list.retain(|one| !is_met(one));
                        let order = |wait: &RecordWait| (wait.run, wait.operation, wait.from, wait.is_since);
                        met.sort_by_key(order);
                        expected.sort_by_key(order);
                        prop_assert_eq!(met, expected);
                    }
                    Act::Lose(of) => {
                        let lost: PartitionSet = [run(of).partition()].into_iter().collect();
                        index.lose(&lost);
                        list.retain(|(_, wait)| !lost.contains(wait.run().partition()));
                    }
                    Act::Append => {
                        let mut whole = WaitIndex::default();
                        whole.append(&mut index);
                        prop_assert!(index.is_empty());
                        index = whole;
                    }
                    Act::AppendBehind(behind) => {
                        let mut whole = WaitIndex::default();
                        whole.append_behind(&mut index, Sequence::new(behind));
                        prop_assert!(index.is_empty());
                        index = whole;
                        for (_, wait) in &mut list {
                            let place = match wait.from() {
                                WaitFrom::Behind(place) => place.get().max(behind),
                                WaitFrom::Since(_) => behind,
                            };
                            let from = WaitFrom::Behind(Sequence::new(place));
                            *wait = RecordWait::new(wait.run(), wait.operation(), from);
                        }
                    }
                }
                prop_assert_eq!(index.len, list.len());
                let behind = list.iter().filter_map(|(_, wait)| match wait.from() {
                    WaitFrom::Behind(behind) => Some(behind),
                    WaitFrom::Since(_) => None,
                });
                prop_assert_eq!(index.lowest().0, behind.min());
            }
        }
    }
}
