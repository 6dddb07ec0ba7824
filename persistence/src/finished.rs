//! The finished runs that are retained, in the order in which they closed, in memory.
//!
//! ```text
//!   by_id ──► number ─┐
//!   by_run ─► number ─┴─► order: [ earliest closed … latest closed ]
//!                                        │ drop_earliest (retention)
//!                                        ▼
//!                                 Expired: the last ones that were dropped, by name only
//! ```
//!
//! A run's number says how many runs have closed before it. An instance id is kept as a 64-bit hash; a caller that looks one
//! up reads the id itself from the run's first record.

use std::collections::VecDeque;
use std::num::NonZeroU8;

use millrun_core::{RunId, Sequence, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};
use xxhash_rust::xxh3::xxh3_64;

use crate::numbers::{self, Numbers};
use crate::wire::settled::run_hash;

/// The number of parts of which an index grows one at a time.
const INDEX_PARTS: usize = 16;

#[derive(Debug)]
pub(crate) struct FinishedIndex<P> {
    /// The lists may hold numbers of runs that were removed; those match no run.
    by_run: Numbers,
    by_id: Numbers,
    order: VecDeque<Finished<P>>,
    /// The number of the first in `order`.
    first: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished<P> {
    pub(crate) run: RunId,
    pub(crate) id: IdHash,
    pub(crate) closed_at: Timestamp,
    /// Sequence of the last record.
    pub(crate) head: Sequence,
    /// The kind of the last record; `None` if the record has to be read to know it: the kind is zero, or the store was
    /// written before kinds were kept.
    pub(crate) kind: Option<NonZeroU8>,
    /// Size of the run's records in the log.
    pub(crate) bytes: u64,
    pub(crate) place: P,
}

/// Where a run's records are in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where the run's last turn begins.
    pub(crate) last: u64,
    /// Where the run's first turn began; turns before the log's beginning were moved out of the log.
    pub(crate) first: u64,
    /// Size of its records in bytes.
    pub(crate) bytes: u64,
    pub(crate) id: IdHash,
}

/// A stable hash of an instance id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct IdHash(u64);

impl IdHash {
    pub(crate) fn of(id: &str) -> Self {
        Self::of_bytes(id.as_bytes())
    }

    pub(crate) fn of_bytes(id: &[u8]) -> Self {
        Self(xxh3_64(id))
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

impl<P> FinishedIndex<P> {
    /// An empty index; the next run that closes has the number `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            by_run: Numbers::in_parts(INDEX_PARTS),
            by_id: Numbers::in_parts(INDEX_PARTS),
            order: VecDeque::new(),
            first,
            bytes: 0,
        }
    }

    /// Adds the run that closed last; its instance's id now finds it instead of an earlier run.
    pub(crate) fn add(&mut self, finished: Finished<P>) {
        let (order, first) = (&self.order, self.first);
        let known = |half: u32| at(order, first, numbers::widened(first, half));
        let is_kept = |half: u32| known(half).is_some();
        let half = numbers::lower(self.end());
        let is_run = |other: u32| known(other).is_some_and(|known| known.run == finished.run);
        self.by_run.put(run_hash(finished.run), half, is_run, is_kept);
        let is_id = |other: u32| known(other).is_some_and(|known| known.id == finished.id);
        self.by_id.put(finished.id.bits(), half, is_id, is_kept);
        self.bytes += finished.bytes;
        self.order.push_back(finished);
    }

    /// The earliest closed.
    pub(crate) fn earliest(&self) -> Option<&Finished<P>> {
        self.order.front()
    }

    /// Removes the earliest closed run.
    pub(crate) fn drop_earliest(&mut self) -> Option<Finished<P>> {
        let earliest = self.order.pop_front()?;
        self.bytes -= earliest.bytes;
        self.first += 1;
        Some(earliest)
    }

    /// Removes the earliest runs, those before the number `end`; returns the size of their records.
    pub(crate) fn drop_before(&mut self, end: u64) -> u64 {
        let dropped = end.clamp(self.first, self.end()) - self.first;
        self.first += dropped;
        let dropped = usize::try_from(dropped).expect("no more than are in memory");
        let bytes = self.order.drain(..dropped).map(|finished| finished.bytes).sum();
        self.bytes -= bytes;
        bytes
    }

    pub(crate) fn run(&self, run: RunId) -> Option<&Finished<P>> {
        self.at(self.number(run)?)
    }

    /// The number of a run.
    pub(crate) fn number(&self, run: RunId) -> Option<u64> {
        let half = self.by_run.find(run_hash(run), |half| {
            self.known(half).is_some_and(|finished| finished.run == run)
        })?;
        Some(numbers::widened(self.first, half))
    }

    /// The latest run of an instance, unless another id has the same hash.
    pub(crate) fn latest(&self, id: IdHash) -> Option<&Finished<P>> {
        let half = self.by_id.find(id.bits(), |half| {
            self.known(half).is_some_and(|finished| finished.id == id)
        })?;
        self.known(half)
    }

    /// The runs from the one with this number on, in the order of closing.
    pub(crate) fn list(&self, from: u64) -> impl Iterator<Item = &Finished<P>> {
        let skipped = from.saturating_sub(self.first);
        self.order
            .iter()
            .skip(usize::try_from(skipped).unwrap_or(usize::MAX))
    }

    /// All runs with their numbers, in the order of closing.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u64, &Finished<P>)> {
        (self.first..).zip(&self.order)
    }

    /// The runs before the one with this number, with their numbers, the latest closed first.
    pub(crate) fn back_from(&self, before: u64) -> impl Iterator<Item = (u64, &Finished<P>)> {
        let skipped = self.end().saturating_sub(before.max(self.first));
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let all = self.order.iter().enumerate().rev().skip(skipped);
        all.map(|(at, finished)| (self.first + at as u64, finished))
    }

    pub(crate) fn len(&self) -> u64 {
        self.order.len() as u64
    }

    /// The number of the earliest.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The number of the next run that closes.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory held, estimated from capacities.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let order = self.order.capacity() * size_of::<Finished<P>>();
        order as u64 + self.by_run.memory_bytes() + self.by_id.memory_bytes()
    }

    fn at(&self, number: u64) -> Option<&Finished<P>> {
        at(&self.order, self.first, number)
    }

    /// The run whose number has this lower half.
    fn known(&self, half: u32) -> Option<&Finished<P>> {
        self.at(numbers::widened(self.first, half))
    }
}

/// The run with this number, of those from `first` on.
fn at<P>(order: &VecDeque<Finished<P>>, first: u64, number: u64) -> Option<&Finished<P>> {
    order.get(usize::try_from(number.checked_sub(first)?).ok()?)
}

/// The runs that were dropped last, by name.
#[derive(Debug)]
pub(crate) struct Expired {
    len_max: usize,
    order: VecDeque<(RunId, IdHash)>,
    runs: FxHashSet<RunId>,
    ids: FxHashMap<IdHash, RunId>,
}

impl Expired {
    pub(crate) fn new(len_max: usize) -> Self {
        Self {
            len_max,
            order: VecDeque::new(),
            runs: FxHashSet::default(),
            ids: FxHashMap::default(),
        }
    }

    /// Adds one that was dropped, and forgets the oldest if there are too many.
    pub(crate) fn add(&mut self, run: RunId, id: IdHash) {
        if self.len_max == 0 {
            return;
        }
        self.order.push_back((run, id));
        self.runs.insert(run);
        self.ids.insert(id, run);
        if self.order.len() > self.len_max
            && let Some((run, id)) = self.order.pop_front()
        {
            self.runs.remove(&run);
            if self.ids.get(&id) == Some(&run) {
                self.ids.remove(&id);
            }
        }
    }

    pub(crate) fn has_run(&self, run: RunId) -> bool {
        self.runs.contains(&run)
    }

    /// Notes that a later run of this instance was dropped; that one is remembered elsewhere.
    pub(crate) fn supersede(&mut self, id: IdHash) {
        self.ids.remove(&id);
    }

    /// The run of this instance that was dropped last, among those remembered here.
    pub(crate) fn latest(&self, id: IdHash) -> Option<RunId> {
        self.ids.get(&id).copied()
    }

    /// Memory held, estimated from capacities.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let maps = self.runs.capacity() * (size_of::<RunId>() + 1)
            + self.ids.capacity() * (size_of::<(IdHash, RunId)>() + 1);
        (maps + self.order.capacity() * size_of::<(RunId, IdHash)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrun_core::Partition;

    #[test]
    fn dropping_many_at_once_is_dropping_them_one_by_one() {
        let partition = Partition::from_index(0).unwrap();
        let finished = |number: u64| Finished {
            run: RunId::new(partition, Timestamp::EPOCH, number),
            // Each id has two runs, ten numbers apart.
            id: IdHash::of(&format!("{}", number % 10)),
            closed_at: Timestamp::EPOCH,
            head: Sequence::new(1),
            kind: None,
            bytes: number,
            place: (),
        };
        for end in [0, 3, 5, 7, 12, 17, 20, 25, 30] {
            let (mut many, mut one) = (FinishedIndex::new(5), FinishedIndex::new(5));
            for number in 5..25 {
                many.add(finished(number));
                one.add(finished(number));
            }
            let mut bytes = 0;
            while one.first() < end {
                let Some(dropped) = one.drop_earliest() else { break };
                bytes += dropped.bytes;
            }
            assert_eq!(many.drop_before(end), bytes, "before {end}");
            assert_eq!(
                (many.first(), many.end(), many.bytes()),
                (one.first(), one.end(), one.bytes())
            );
            for number in 0..30 {
                let sought = finished(number);
                assert_eq!(
                    many.run(sought.run),
                    one.run(sought.run),
                    "{number}, before {end}"
                );
                assert_eq!(
                    many.latest(sought.id),
                    one.latest(sought.id),
                    "{number}, before {end}"
                );
            }
        }
    }

    #[test]
    fn a_run_that_has_closed_twice_is_the_later_one_until_that_is_dropped() {
        let closed = |bytes: u64| Finished {
            run: RunId::new(Partition::from_index(0).unwrap(), Timestamp::EPOCH, 1),
            id: IdHash::of("a"),
            closed_at: Timestamp::EPOCH,
            head: Sequence::new(1),
            kind: None,
            bytes,
            place: (),
        };
        let (earlier, later) = (closed(1), closed(2));
        let mut index = FinishedIndex::new(0);
        index.add(earlier);
        index.add(later);
        for dropped in [earlier, later] {
            assert_eq!(index.run(later.run), Some(&later));
            assert_eq!(index.latest(later.id), Some(&later));
            assert_eq!(index.number(later.run), Some(1));
            assert_eq!(index.drop_earliest(), Some(dropped));
        }
        assert_eq!(index.run(later.run), None);
        assert_eq!(index.latest(later.id), None);
    }

    #[test]
    fn only_the_last_dropped_runs_are_remembered() {
        let partition = Partition::from_index(0).unwrap();
        let run = |number| RunId::new(partition, Timestamp::EPOCH, number);
        let mut expired = Expired::new(3);
        for number in 0..10 {
            expired.add(run(number), IdHash::of(if number < 9 { "a" } else { "b" }));
        }
        assert!((0..7).all(|number| !expired.has_run(run(number))));
        assert!((7..10).all(|number| expired.has_run(run(number))));
        assert_eq!(expired.latest(IdHash::of("a")), Some(run(8)));
        assert_eq!(expired.latest(IdHash::of("b")), Some(run(9)));
        let mut none = Expired::new(0);
        none.add(run(1), IdHash::of("a"));
        assert!(!none.has_run(run(1)));
    }
}
