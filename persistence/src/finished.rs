//! The index of finished runs that are retained, in memory.
//!
//! ```text
//!   by_id ──► number ─┐
//!   by_run ─► number ─┴─► order: [ earliest closed … latest closed ]
//! ```
//!
//! Bounded by [`Retention`]: adding a run takes out those that are past a bound.

use std::collections::VecDeque;

use millrun_core::{InstanceId, RunId, Timestamp};
use rustc_hash::FxHashMap;

use crate::config::Retention;
use crate::record::FinishedRun;

#[derive(Debug)]
pub(crate) struct FinishedIndex<P> {
    retention: Retention,
    by_run: FxHashMap<RunId, u64>,
    by_id: FxHashMap<InstanceId, u64>,
    order: VecDeque<Finished<P>>,
    /// The number of the first in `order`.
    first: u64,
    bytes: u64,
    dropped: u64,
}

#[derive(Debug)]
pub(crate) struct Finished<P> {
    pub(crate) run: FinishedRun,
    /// Size of the run's records in the log.
    pub(crate) bytes: u64,
    pub(crate) place: P,
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
        self.by_run.insert(finished.run.run, number);
        self.by_id.insert(finished.run.id.clone(), number);
        self.bytes += finished.bytes;
        self.order.push_back(finished);
    }

    /// Takes out the earliest closed runs until all bounds hold at `now`.
    pub(crate) fn trim(&mut self, now: Timestamp) {
        while let Some(earliest) = self.order.front() {
            let age = now.saturating_since(earliest.run.closed_at);
            let is_retained = age <= self.retention.age_max
                && self.order.len() <= self.retention.len_max
                && self.bytes <= self.retention.bytes_max;
            if is_retained {
                return;
            }
            self.drop_earliest();
        }
    }

    fn drop_earliest(&mut self) {
        let Some(earliest) = self.order.pop_front() else {
            return;
        };
        self.by_run.remove(&earliest.run.run);
        if self.by_id.get(&earliest.run.id) == Some(&self.first) {
            self.by_id.remove(&earliest.run.id);
        }
        self.bytes -= earliest.bytes;
        self.first += 1;
        self.dropped += 1;
    }

    pub(crate) fn run(&self, run: RunId) -> Option<&Finished<P>> {
        self.at(*self.by_run.get(&run)?)
    }

    pub(crate) fn latest(&self, id: &InstanceId) -> Option<&Finished<P>> {
        self.at(*self.by_id.get(id)?)
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

    fn at(&self, number: u64) -> Option<&Finished<P>> {
        self.order
            .get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}
