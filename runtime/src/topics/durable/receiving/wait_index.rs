//! The waits for records of one topic, by their filters.
//!
//! ```text
//!   hash of a filter ─► places ─► firsts: one wait for each hash, side by side
//!        └─────────────► others, of the few hashes that several waits have, by run and operation
//! ```
//!
//! A million waits with different keys take 36 bytes each, and a slot of the table.

use std::collections::BTreeMap;

use hashbrown::HashTable;
use millrun_core::{RunId, Sequence, Timestamp};
use millrun_workflow::OperationId;
use rustc_hash::FxHashMap;

use super::selector::{FilteredRecord, LookedAt, Selector, SelectorHash};
use crate::ownership::partition_set::PartitionSet;

/// From which record on a wait can be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFrom {
    /// Behind this record.
    Behind(Sequence),
    /// Appended at this time or later.
    Since(Timestamp),
}

/// Marks a time in the word that holds either a sequence or a time.
const SINCE: u64 = 1 << 63;

/// The halves of a word: stored separately, so that an entry has no padding.
fn halves(word: u64) -> [u32; 2] {
    let bytes = word.to_be_bytes();
    let [a, b, c, d, e, f, g, h] = bytes;
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

fn word([high, low]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// An operation of a run that waits for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordWait {
    run: [[u32; 2]; 2],
    operation: u32,
    /// A sequence, or a marked time; neither comes close to 63 bits.
    from: [u32; 2],
}

impl RecordWait {
    pub(super) fn new(run: RunId, operation: OperationId, from: WaitFrom) -> Self {
        let [high, low] = [64, 0].map(|shift| (run.bits() >> shift) & u128::from(u64::MAX));
        let half = |bits| halves(u64::try_from(bits).expect("it was masked"));
        let from = match from {
            WaitFrom::Behind(sequence) => sequence.get().min(SINCE - 1),
            WaitFrom::Since(time) => time.as_micros().min(SINCE - 1) | SINCE,
        };
        Self {
            run: [half(high), half(low)],
            operation: operation.get(),
            from: halves(from),
        }
    }

    pub(super) fn run(&self) -> RunId {
        let [high, low] = self.run.map(|half| u128::from(word(half)));
        RunId::from_bits(high << 64 | low).expect("it was made of a run")
    }

    pub(super) fn operation(&self) -> OperationId {
        OperationId::new(self.operation)
    }

    pub(super) fn from(&self) -> WaitFrom {
        let from = word(self.from);
        match from & SINCE {
            0 => WaitFrom::Behind(Sequence::new(from)),
            _ => WaitFrom::Since(Timestamp::from_micros(from & !SINCE)),
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

/// The index of one topic's waits.
#[derive(Debug, Default)]
pub(super) struct WaitIndex {
    /// For each hash, the index of its first wait in `firsts`.
    places: HashTable<u32>,
    firsts: Vec<FirstWait>,
    others: FxHashMap<SelectorHash, BTreeMap<(RunId, OperationId), WaitFrom>>,
    len: usize,
    /// Everything that the filters of these waits look at; perhaps more, after waits were removed.
    looked_at: LookedAt,
}

#[derive(Debug)]
struct FirstWait {
    hash: [u32; 2],
    wait: RecordWait,
}

impl FirstWait {
    fn hash(&self) -> SelectorHash {
        SelectorHash::from_bits(word(self.hash))
    }
}

impl WaitIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Lists a wait, in place of a former one of the same operation.
    pub(super) fn insert(&mut self, selector: &Selector, wait: RecordWait) {
        self.looked_at.note(selector);
        self.insert_by(selector.hash(), wait);
    }

    fn insert_by(&mut self, hash: SelectorHash, wait: RecordWait) {
        if let Some(place) = self.place_of(hash) {
            let first = &mut self.firsts[place].wait;
            if first.is_of(&wait) {
                *first = wait;
                return;
            }
            let others = self.others.entry(hash).or_default();
            let replaced = others.insert((wait.run(), wait.operation()), wait.from());
            self.len += usize::from(replaced.is_none());
            return;
        }
        let place = u32::try_from(self.firsts.len()).expect("memory ends before 32 bits of waits");
        self.firsts.push(FirstWait {
            hash: halves(hash.bits()),
            wait,
        });
        let firsts = &self.firsts;
        self.places
            .insert_unique(hash.bits(), place, |place| hash_at(firsts, *place));
        self.len += 1;
    }

    fn place_of(&self, hash: SelectorHash) -> Option<usize> {
        let is_there = |place: &u32| hash_at(&self.firsts, *place) == hash.bits();
        self.places
            .find(hash.bits(), is_there)
            .map(|place| *place as usize)
    }

    /// Adds all waits of another index, each for records behind this one, whatever their times are.
    pub(super) fn append_behind(&mut self, other: &mut Self, behind: Sequence) {
        self.append_each(other, |wait| {
            let from = match wait.from() {
                WaitFrom::Behind(place) => place.max(behind),
                WaitFrom::Since(_) => behind,
            };
            RecordWait::new(wait.run(), wait.operation(), WaitFrom::Behind(from))
        });
    }

    /// Adds all waits of another index.
    pub(super) fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            return std::mem::swap(self, other);
        }
        self.append_each(other, |wait| wait);
    }

    fn append_each(&mut self, other: &mut Self, change: impl Fn(RecordWait) -> RecordWait) {
        let mut other = std::mem::take(other);
        self.looked_at.append(&mut other.looked_at);
        for first in &other.firsts {
            self.insert_by(first.hash(), change(first.wait));
        }
        for (hash, others) in other.others {
            for ((run, operation), from) in others {
                self.insert_by(hash, change(RecordWait::new(run, operation, from)));
            }
        }
    }

    /// Removes the wait of this operation. Returns whether it was listed.
    pub(super) fn remove(&mut self, hash: SelectorHash, run: RunId, operation: OperationId) -> bool {
        let Some(place) = self.place_of(hash) else {
            return false;
        };
        let gone = RecordWait::new(run, operation, WaitFrom::Behind(Sequence::ZERO));
        if self.firsts[place].wait.is_of(&gone) {
            self.remove_first(hash, place);
            return true;
        }
        let Some(others) = self.others.get_mut(&hash) else {
            return false;
        };
        let was_here = others.remove(&(run, operation)).is_some();
        self.len -= usize::from(was_here);
        if others.is_empty() {
            self.others.remove(&hash);
        }
        was_here
    }

    /// Takes the waits that this record meets.
    pub(super) fn take_met(
        &mut self,
        filtered: &FilteredRecord<'_>,
        (sequence, time): (Sequence, Timestamp),
        met: &mut Vec<RecordWait>,
    ) {
        let mut lent = LentLooks::of(self);
        let LentLooks { index, looked_at } = &mut lent;
        for hash in looked_at.hashes(filtered) {
            index.retain_of(hash, |wait| {
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
        let hashes: Vec<SelectorHash> = self.firsts.iter().map(FirstWait::hash).collect();
        for hash in hashes {
            self.retain_of(hash, |wait| !lost.contains(wait.run().partition()));
        }
    }

    /// The places from which records may be needed: the lowest of each kind.
    pub(super) fn lowest(&self) -> (Option<Sequence>, Option<Timestamp>) {
        let (mut behind, mut since) = (None::<Sequence>, None::<Timestamp>);
        let firsts = self.firsts.iter().map(|first| first.wait.from());
        for from in firsts.chain(self.others.values().flat_map(BTreeMap::values).copied()) {
            match from {
                WaitFrom::Behind(of) => behind = Some(behind.map_or(of, |low| low.min(of))),
                WaitFrom::Since(of) => since = Some(since.map_or(of, |low| low.min(of))),
            }
        }
        (behind, since)
    }

    /// Keeps the waits with this hash for which `is_kept` holds.
    fn retain_of(&mut self, hash: SelectorHash, mut is_kept: impl FnMut(&RecordWait) -> bool) {
        let Some(place) = self.place_of(hash) else {
            return;
        };
        if let Some(others) = self.others.get_mut(&hash) {
            let before = others.len();
            others.retain(|(run, operation), from| is_kept(&RecordWait::new(*run, *operation, *from)));
            self.len -= before - others.len();
            if others.is_empty() {
                self.others.remove(&hash);
            }
        }
        if !is_kept(&self.firsts[place].wait) {
            self.remove_first(hash, place);
        }
    }

    /// Removes the first wait with this hash, at this index. Another wait with the hash becomes the first.
    fn remove_first(&mut self, hash: SelectorHash, place: usize) {
        self.len -= 1;
        if let Some(others) = self.others.get_mut(&hash)
            && let Some(((run, operation), from)) = others.pop_first()
        {
            self.firsts[place].wait = RecordWait::new(run, operation, from);
            if others.is_empty() {
                self.others.remove(&hash);
            }
            return;
        }
        let is_here = |of: &u32| *of as usize == place;
        if let Ok(entry) = self.places.find_entry(hash.bits(), is_here) {
            entry.remove();
        }
        self.firsts.swap_remove(place);
        if let Some(moved) = self.firsts.get(place) {
            let was_at = self.firsts.len();
            let of_moved = self
                .places
                .find_mut(moved.hash().bits(), |of| *of as usize == was_at);
            *of_moved.expect("each first wait has its place in the table") =
                u32::try_from(place).expect("places have 32 bits");
        }
        // The memory of a million waits is given back when they are gone.
        let len = self.firsts.len();
        if self.firsts.capacity() > 1_024 && len < self.firsts.capacity() / 8 {
            self.firsts.shrink_to(2 * len);
            let firsts = &self.firsts;
            self.places.shrink_to(2 * len, |place| hash_at(firsts, *place));
        }
    }
}

/// Lends out the parts that an index looks at, and returns them even after a panic: without them, no record would meet the
/// index's waits any more.
struct LentLooks<'a> {
    index: &'a mut WaitIndex,
    looked_at: LookedAt,
}

impl<'a> LentLooks<'a> {
    fn of(index: &'a mut WaitIndex) -> Self {
        let looked_at = std::mem::take(&mut index.looked_at);
        Self { index, looked_at }
    }
}

impl Drop for LentLooks<'_> {
    fn drop(&mut self) {
        // Without a wait there is nothing to look at.
        if !self.index.is_empty() {
            self.index.looked_at = std::mem::take(&mut self.looked_at);
        }
    }
}

fn hash_at(firsts: &[FirstWait], place: u32) -> u64 {
    firsts[place as usize].hash().bits()
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

    /// Key 0 stands for any, 3 for those that begin with `a`.
    fn selector(key: u8) -> Selector {
        let key = match key {
            0 => None,
            3 => Some(KeyFilter::StartsWith("a".into())),
            key => Some(KeyFilter::Is(KEYS[usize::from(key)].into())),
        };
        let correlation = None;
        Selector::of(&RecordFilter { key, correlation })
    }

    /// Whether a wait for the first key accepts a record with the second.
    fn is_for(waited: u8, key: u8) -> bool {
        waited == 0 || (waited == 3 && (key == 1 || key == 2)) || (waited == key && key != 3)
    }

    fn header(key: u8) -> StoredHeader<&'static str> {
        StoredHeader {
            key: (key > 0).then(|| KEYS[usize::from(key)]),
            ..StoredHeader::default()
        }
    }

    /// Regression: after a panic in a comparison the index had lost the parts that it looks at, so that no record met its
    /// waits any more.
    #[test]
    fn waits_are_met_behind_a_panic() {
        let mut index = WaitIndex::default();
        let wait = RecordWait::new(run(1), OperationId::new(1), WaitFrom::Behind(Sequence::ZERO));
        index.insert(&selector(1), wait);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _lent = LentLooks::of(&mut index);
            panic!("a record was compared");
        }));
        assert!(panicked.is_err());
        let mut met = Vec::new();
        let place = (Sequence::new(1), Timestamp::EPOCH);
        index.take_met(&FilteredRecord::of(&header(1)), place, &mut met);
        assert_eq!(met, [wait]);
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
                        let order = |wait: &RecordWait| (wait.run, wait.operation, wait.from);
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
                prop_assert_eq!(index.places.len(), index.firsts.len());
                prop_assert!(index.others.values().all(|others| !others.is_empty()));
                let behind = list.iter().filter_map(|(_, wait)| match wait.from() {
                    WaitFrom::Behind(behind) => Some(behind),
                    WaitFrom::Since(_) => None,
                });
                prop_assert_eq!(index.lowest().0, behind.min());
            }
        }
    }
}
