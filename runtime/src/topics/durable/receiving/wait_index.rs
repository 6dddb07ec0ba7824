//! Waits for records of one topic, by the keys that they wait for.

use std::hash::BuildHasherDefault;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use millrun_core::{RunId, Sequence, Timestamp};
use millrun_workflow::OperationId;
use rustc_hash::FxHasher;
use xxhash_rust::xxh3::xxh3_64;

use crate::ownership::partition_set::PartitionSet;

/// Which records a wait is for: those with a key, named by its hash, or those of any. Keys with one hash are told apart where
/// the run takes the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    /// Of any key, and of none.
    pub(super) const ANY: Self = Self(0);

    pub(super) fn of(key: Option<&str>) -> Self {
        key.map_or(Self::ANY, |key| Self(xxh3_64(key.as_bytes()).max(1)))
    }
}

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
    by_key: HashMap<KeyHash, WaitsOfKey, BuildHasherDefault<FxHasher>>,
    len: usize,
}

/// Most keys are waited for by one run.
#[derive(Debug)]
struct WaitsOfKey {
    first: RecordWait,
    /// The others.
    #[expect(
        clippy::box_collection,
        reason = "a million keys have none, and pay for a pointer"
    )]
    more: Option<Box<Vec<RecordWait>>>,
}

impl WaitIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lists a wait; one of the same operation makes room for it.
    pub(super) fn insert(&mut self, key: KeyHash, wait: RecordWait) {
        match self.by_key.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(WaitsOfKey {
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
        for (key, waits) in std::mem::take(&mut other.by_key) {
            let more = waits.more.map_or_else(Vec::new, |more| *more);
            for wait in std::iter::once(waits.first).chain(more) {
                let from = match wait.from() {
                    WaitFrom::Behind(place) => place.max(behind),
                    WaitFrom::Since(_) => behind,
                };
                let wait = RecordWait::new(wait.run(), wait.operation(), WaitFrom::Behind(from));
                self.insert(key, wait);
            }
        }
        other.len = 0;
    }

    /// Lists all waits of another.
    pub(super) fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            return std::mem::swap(self, other);
        }
        for (key, waits) in std::mem::take(&mut other.by_key) {
            self.insert(key, waits.first);
            let more = waits.more.map_or_else(Vec::new, |more| *more);
            more.into_iter().for_each(|wait| self.insert(key, wait));
        }
        other.len = 0;
    }

    /// Forgets a wait of this operation.
    pub(super) fn remove(&mut self, key: KeyHash, run: RunId, operation: OperationId) {
        let gone = RecordWait::new(run, operation, WaitFrom::Behind(Sequence::ZERO));
        self.retain_of(key, |wait| !wait.is_of(&gone));
    }

    /// Takes the waits that this record meets: those for its key, and those for any.
    pub(super) fn take_met(
        &mut self,
        key: KeyHash,
        (sequence, time): (Sequence, Timestamp),
        met: &mut Vec<RecordWait>,
    ) {
        let keys = [key, KeyHash::ANY];
        for key in keys.into_iter().take(1 + usize::from(key != KeyHash::ANY)) {
            self.retain_of(key, |wait| {
                let is_met = wait.is_met(sequence, time);
                if is_met {
                    met.push(*wait);
                }
                !is_met
            });
        }
    }

    /// Forgets the waits of runs in these partitions.
    pub(super) fn lose(&mut self, lost: &PartitionSet) {
        let keys: Vec<KeyHash> = self.by_key.keys().copied().collect();
        for key in keys {
            self.retain_of(key, |wait| !lost.contains(wait.run().partition()));
        }
    }

    /// The places from which on their records may stand: the lowest of each kind.
    pub(super) fn lowest(&self) -> (Option<Sequence>, Option<Timestamp>) {
        let (mut behind, mut since) = (None::<Sequence>, None::<Timestamp>);
        for waits in self.by_key.values() {
            for wait in std::iter::once(&waits.first).chain(waits.more.iter().flat_map(|more| more.iter())) {
                match wait.from() {
                    WaitFrom::Behind(of) => behind = Some(behind.map_or(of, |low| low.min(of))),
                    WaitFrom::Since(of) => since = Some(since.map_or(of, |low| low.min(of))),
                }
            }
        }
        (behind, since)
    }

    /// Keeps the waits for this key of which that is said, in their order.
    fn retain_of(&mut self, key: KeyHash, mut is_kept: impl FnMut(&RecordWait) -> bool) {
        let Entry::Occupied(mut entry) = self.by_key.entry(key) else {
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
        if self.by_key.capacity() > 1_024 && self.by_key.len() < self.by_key.capacity() / 8 {
            self.by_key.shrink_to(2 * self.by_key.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::Partition;
    use proptest::prelude::*;

    use super::*;

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

    /// Key 0 stands for any.
    fn hash(key: u8) -> KeyHash {
        KeyHash::of((key > 0).then(|| ["", "a", "b", "c"][usize::from(key)]))
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
                        index.insert(hash(key), wait);
                        list.retain(|(of, listed)| *of != key || !listed.is_of(&wait));
                        list.push((key, wait));
                    }
                    Act::Remove(key, of, operation) => {
                        index.remove(hash(key), run(of), OperationId::new(operation));
                        list.retain(|(listed, wait)| {
                            (*listed, wait.run(), wait.operation()) != (key, run(of), OperationId::new(operation))
                        });
                    }
                    Act::Record(key, sequence, time) => {
                        let place = (Sequence::new(sequence), Timestamp::from_micros(time));
                        let mut met = Vec::new();
                        index.take_met(hash(key), place, &mut met);
                        let is_met = |(of, wait): &(u8, RecordWait)| {
                            let is_far_enough = match wait.from() {
                                WaitFrom::Behind(behind) => sequence > behind.get(),
                                WaitFrom::Since(since) => time >= since.as_micros(),
                            };
                            (*of == key || *of == 0) && is_far_enough
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
