//! The counts of a shard's runs by workflow, told once in a sweep: see [`counts`](crate::looking::counts).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun_workflow::OutcomeKind;
use rustc_hash::FxHashMap;

use super::census::tell_change;
use super::entry::{Parking, WorkflowName};
use crate::looking::counts::{self, WorkflowTally};
use crate::shared::ShardShared;

/// The counts of one shard.
#[derive(Debug)]
pub(in crate::shard) struct Rows {
    shared: Arc<ShardShared>,
    rows: Vec<WorkflowRow>,
    /// By workflow name: the rows of its versions.
    by_name: FxHashMap<Box<str>, Vec<(u32, usize)>>,
    /// The row that was used last; the next use is often the same.
    last: usize,
    /// The rows that have changed since they were told.
    changed: Vec<usize>,
    /// The shared row of workflows that have none of their own, if there are any.
    others: Option<usize>,
}

/// The counts of one version of a workflow.
#[derive(Debug)]
struct WorkflowRow {
    name: WorkflowName,
    shared: Arc<WorkflowTally>,
    live: usize,
    parked: usize,
    paused: usize,
    delayed: usize,
    told_live: u64,
    told_parked: u64,
    told_paused: u64,
    told_delayed: u64,
    /// Counted since the row was last told.
    ended: [u64; OutcomeKind::ALL.len()],
    is_changed: bool,
}

impl Rows {
    pub(super) fn new(shared: Arc<ShardShared>) -> Self {
        Self {
            shared,
            rows: Vec::new(),
            by_name: FxHashMap::default(),
            last: 0,
            changed: Vec::new(),
            others: None,
        }
    }

    /// The row of a workflow, marked as changed.
    #[inline]
    fn row(&mut self, name: &WorkflowName) -> &mut WorkflowRow {
        let at = match self.rows.get(self.last) {
            Some(row) if row.name.is_counted_as(name) => self.last,
            _ => self.find(name),
        };
        let row = &mut self.rows[at];
        if !std::mem::replace(&mut row.is_changed, true) {
            self.changed.push(at);
        }
        row
    }

    fn find(&mut self, name: &WorkflowName) -> usize {
        if let Some(at) = self.place_of(name.as_str(), name.version()) {
            self.last = at;
            return at;
        }
        if let Some(others) = self.others {
            return others;
        }
        if let Some(shared) = self.shared.tallies.row(name.as_str(), name.version()) {
            self.last = self.add(name.clone(), shared);
            return self.last;
        }
        // All rows are taken. This shard may still get runs of a workflow whose row another shard has requested, so it takes
        // in all of those rows before it counts the rest together.
        for shared in self.shared.tallies.rows() {
            if self.place_of(shared.workflow(), shared.version()).is_none() {
                let name = WorkflowName::new(shared.workflow().to_owned().into(), shared.version(), None);
                self.add(name, shared);
            }
        }
        let others = self.shared.tallies.others();
        let others = self.push(WorkflowName::Known(""), others);
        self.others = Some(others);
        others
    }

    fn place_of(&self, workflow: &str, version: u32) -> Option<usize> {
        let mut versions = self.by_name.get(workflow)?.iter();
        versions.find_map(|(of, at)| (*of == version).then_some(*at))
    }

    /// Adds a row for a workflow. Returns its place.
    fn add(&mut self, name: WorkflowName, shared: Arc<WorkflowTally>) -> usize {
        let (key, version) = (name.as_str().into(), name.version());
        let at = self.push(name, shared);
        self.by_name.entry(key).or_default().push((version, at));
        at
    }

    fn push(&mut self, name: WorkflowName, shared: Arc<WorkflowTally>) -> usize {
        self.rows.push(WorkflowRow {
            name,
            shared,
            live: 0,
            parked: 0,
            paused: 0,
            delayed: 0,
            told_live: 0,
            told_parked: 0,
            told_paused: 0,
            told_delayed: 0,
            ended: [0; OutcomeKind::ALL.len()],
            is_changed: false,
        });
        self.rows.len() - 1
    }

    #[inline]
    pub(super) fn enter(&mut self, name: &WorkflowName) {
        self.row(name).live += 1;
    }

    #[inline]
    pub(super) fn leave(&mut self, name: &WorkflowName) {
        self.row(name).live -= 1;
    }

    #[inline]
    pub(super) fn note_end(&mut self, name: &WorkflowName, outcome: OutcomeKind) {
        let row = self.row(name);
        row.live -= 1;
        row.ended[counts::at(outcome)] += 1;
    }

    /// Undoes the count of an end that was refused after it had been told.
    pub(super) fn take_back_end(&mut self, name: &WorkflowName, outcome: OutcomeKind) {
        let row = self.row(name);
        row.shared.ended[counts::at(outcome)].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn note_parking(&mut self, name: &WorkflowName, from: Parking, to: Parking) {
        let row = self.row(name);
        match from {
            Parking::Runs => {}
            Parking::Parked => row.parked -= 1,
            Parking::Paused => row.paused -= 1,
            Parking::Delayed => row.delayed -= 1,
        }
        match to {
            Parking::Runs => {}
            Parking::Parked => row.parked += 1,
            Parking::Paused => row.paused += 1,
            Parking::Delayed => row.delayed += 1,
        }
    }

    /// Adds the changes to the shared rows.
    #[inline]
    pub(super) fn tell(&mut self) {
        while let Some(at) = self.changed.pop() {
            self.rows[at].tell();
        }
    }

    /// Subtracts this shard's live runs from the shared rows.
    pub(super) fn withdraw(&mut self) {
        for row in &mut self.rows {
            (row.live, row.parked, row.paused, row.delayed) = (0, 0, 0, 0);
            row.tell();
        }
        self.changed.clear();
    }
}

impl WorkflowRow {
    fn tell(&mut self) {
        self.is_changed = false;
        tell_change(&mut self.told_live, self.live, &self.shared.live);
        tell_change(&mut self.told_parked, self.parked, &self.shared.parked);
        tell_change(&mut self.told_paused, self.paused, &self.shared.paused);
        tell_change(&mut self.told_delayed, self.delayed, &self.shared.delayed);
        for (count, counter) in self.ended.iter_mut().zip(&self.shared.ended) {
            add(std::mem::take(count), counter);
        }
    }
}

#[inline]
fn add(count: u64, counter: &AtomicU64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
