//! The index of finished runs that are retained, in memory.
//!
//! ```text
//!   by_id ──► number ─┐
//!   by_run ─► number ─┴─► order: [ earliest closed … latest closed ]
//! ```
//!
//! Bounded by [`Retention`], which the owner applies with [`FinishedIndex::trim`]. An instance id is
//! kept as a 64-bit hash; whoever looks one up reads the id itself from the run's first record.

use std::collections::VecDeque;

use millrun_core::{InstanceId, RunId, Sequence, Timestamp};
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::Retention;

#[derive(Debug)]
pub(crate) struct FinishedIndex<P> {
    retention: Retention,
    by_run: FxHashMap<RunId, u64>,
    by_id: FxHashMap<IdHash, u64>,
    order: VecDeque<Finished<P>>,
    /// The number of the first in `order`.
    first: u64,
    bytes: u64,
    dropped: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished<P> {
    pub(crate) run: RunId,
    pub(crate) id: IdHash,
    pub(crate) closed_at: Timestamp,
    /// Sequence of the last record.
    pub(crate) head: Sequence,
    /// Size of the run's records in the log.
    pub(crate) bytes: u64,
    pub(crate) place: P,
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
}

impl<P> FinishedIndex<P> {
    pub(crate) fn new(retention: Retention) -> Self {
        Self {
            retention,
            by_run: FxHashMap::default(),
            by_id: FxHashMap::default(),
            order: VecDeque::new(),
            first: 0,
            bytes: 0,
            dropped: 0,
        }
    }

    /// Adds a run that has closed, the latest so far.
    pub(crate) fn add(&mut self, finished: Finished<P>) {
        let number = self.first + self.order.len() as u64;
        self.by_run.insert(finished.run, number);
        self.by_id.insert(finished.id, number);
        self.bytes += finished.bytes;
        self.order.push_back(finished);
    }

    /// Takes out the earliest closed runs until all bounds hold at `now`; `dropped` gets each.
    pub(crate) fn trim(&mut self, now: Timestamp, mut dropped: impl FnMut(&Finished<P>)) {
        while let Some(earliest) = self.order.front() {
            let age = now.saturating_since(earliest.closed_at);
            let is_retained = age <= self.retention.age_max
                && self.order.len() <= self.retention.len_max
                && self.bytes <= self.retention.bytes_max;
            if is_retained {
                return;
            }
            let Some(earliest) = self.order.pop_front() else {
                return;
            };
            self.forget(&earliest);
            dropped(&earliest);
        }
    }

    fn forget(&mut self, earliest: &Finished<P>) {
        self.by_run.remove(&earliest.run);
        if self.by_id.get(&earliest.id) == Some(&self.first) {
            self.by_id.remove(&earliest.id);
        }
        self.bytes -= earliest.bytes;
        self.first += 1;
        self.dropped += 1;
    }

    pub(crate) fn run(&self, run: RunId) -> Option<&Finished<P>> {
        self.at(*self.by_run.get(&run)?)
    }

    pub(crate) fn run_mut(&mut self, run: RunId) -> Option<&mut Finished<P>> {
        let index = self.by_run.get(&run)?.checked_sub(self.first)?;
        self.order.get_mut(usize::try_from(index).ok()?)
    }

    /// The latest run of the instance, unless another id has the same hash.
    pub(crate) fn latest(&self, id: &InstanceId) -> Option<&Finished<P>> {
        self.at(*self.by_id.get(&IdHash::of(id.as_str()))?)
    }

    /// The retained runs behind `after` in the order of closing.
    pub(crate) fn list(&self, after: Option<RunId>) -> impl Iterator<Item = &Finished<P>> {
        let skipped = after
            .and_then(|run| self.by_run.get(&run))
            .map_or(0, |number| number + 1 - self.first);
        self.order
            .iter()
            .skip(usize::try_from(skipped).unwrap_or(usize::MAX))
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Memory held, estimated from capacities.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let maps = self.by_run.capacity() * (size_of::<(RunId, u64)>() + 1)
            + self.by_id.capacity() * (size_of::<(IdHash, u64)>() + 1);
        (maps + self.order.capacity() * size_of::<Finished<P>>()) as u64
    }

    fn at(&self, number: u64) -> Option<&Finished<P>> {
        self.order
            .get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}
