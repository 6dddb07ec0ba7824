//! What is counted of a shard's runs, and told by the counters that all shards share.
//!
//! ```text
//!   a run comes, ends, goes ──► counted here ──► told once in a sweep, before its answers leave ──► Counters
//! ```
//!
//! Invariants: a run is live from when it is taken in until it has ended or is let go of, and is counted as live once.
//! A counter of live or hot runs holds what each shard has told last; a shard that goes takes its share back.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun_core::RunId;
use millrun_workflow::OutcomeKind;
use rustc_hash::FxHashSet;

use super::entry::{Entry, Parking, WorkflowName};
use super::start_order::StartKey;
use super::tally::Rows;
use crate::shared::{Counters, ShardShared};

/// The numbers of one shard.
#[derive(Debug)]
pub(in crate::shard) struct Census {
    shared: Arc<ShardShared>,
    live_len: usize,
    /// How many of the live runs are children.
    children_len: usize,
    /// Runs started since the shared counters were last updated.
    started: u64,
    finished: u64,
    events: u64,
    /// Of each workflow.
    rows: Rows,
    /// The runs that are parked, by when they began.
    parked: BTreeSet<StartKey>,
    /// How many live runs, and runs with their code in memory, it has told of.
    told_live: u64,
    told_hot: u64,
    /// Runs whose histories are not trimmed because what is kept of them is too large.
    untrimmed: FxHashSet<RunId>,
}

/// How many runs a shard remembers of which it has told that their histories are not trimmed.
const UNTRIMMED_LEN_MAX: usize = 1_024;

impl Census {
    pub(in crate::shard) fn new(shared: Arc<ShardShared>) -> Self {
        Self {
            rows: Rows::new(Arc::clone(&shared)),
            parked: BTreeSet::new(),
            shared,
            live_len: 0,
            children_len: 0,
            started: 0,
            finished: 0,
            events: 0,
            told_live: 0,
            told_hot: 0,
            untrimmed: FxHashSet::default(),
        }
    }

    fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    #[inline]
    pub(in crate::shard) fn live_len(&self) -> usize {
        self.live_len
    }

    #[inline]
    pub(in crate::shard) fn has_children(&self) -> bool {
        self.children_len > 0
    }

    /// A live run is here from now on: it begins, was recovered, or has not ended after all.
    #[inline]
    pub(in crate::shard) fn enter(&mut self, workflow: &WorkflowName, is_child: bool) {
        self.rows.enter(workflow);
        self.live_len += 1;
        self.children_len += usize::from(is_child);
    }

    /// A live run is not here any more, or not live.
    #[inline]
    pub(in crate::shard) fn leave(&mut self, entry: &Entry) {
        self.rows.leave(&entry.workflow);
        self.live_len -= 1;
        self.children_len -= usize::from(entry.parent().is_some());
    }

    /// The first turn of a run is recorded.
    #[inline]
    pub(in crate::shard) fn note_start(&mut self) {
        self.started += 1;
    }

    /// So many events are recorded.
    #[inline]
    pub(in crate::shard) fn note_events(&mut self, len: usize) {
        self.events += len as u64;
    }

    /// The last turn of a run is recorded.
    #[inline]
    pub(in crate::shard) fn note_end(&mut self, entry: &Entry, outcome: OutcomeKind) {
        self.rows.note_end(&entry.workflow, outcome);
        self.live_len -= 1;
        self.children_len -= usize::from(entry.parent().is_some());
        self.finished += 1;
    }

    /// The first turn of a run was refused, after it had been told of.
    pub(in crate::shard) fn take_back_start(&self) {
        self.counters().started.fetch_sub(1, Ordering::Relaxed);
    }

    /// The last turn of a run was refused, after it had been told of.
    pub(in crate::shard) fn take_back_end(&mut self, workflow: &WorkflowName, outcome: OutcomeKind) {
        self.counters().finished.fetch_sub(1, Ordering::Relaxed);
        self.rows.take_back_end(workflow, outcome);
    }

    /// Whether a run's code runs has changed, or the run is not here any more.
    #[inline]
    pub(in crate::shard) fn set_parking(&mut self, entry: &mut Entry, parking: Parking) {
        if parking != entry.parking {
            self.change_parking(entry, parking);
        }
    }

    fn change_parking(&mut self, entry: &mut Entry, parking: Parking) {
        let before = std::mem::replace(&mut entry.parking, parking);
        self.rows.note_parking(&entry.workflow, before, parking);
        let key = StartKey::of(entry.run);
        if !parking.is_parked() {
            if self.parked.remove(&key) {
                self.counters().parked.fetch_sub(1, Ordering::Relaxed);
            }
        } else if self.parked.insert(key) {
            self.counters().parked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The version of its workflow that a run has, which is counted there from now on. Whether that is another than before.
    pub(in crate::shard) fn set_version(&mut self, entry: &mut Entry, version: u32) -> bool {
        if entry.workflow.version() == version {
            return false;
        }
        let workflow = entry.workflow.with_version(version);
        let former = std::mem::replace(&mut entry.workflow, workflow);
        self.rows.leave(&former);
        self.rows.note_parking(&former, entry.parking, Parking::Runs);
        self.rows.enter(&entry.workflow);
        self.rows
            .note_parking(&entry.workflow, Parking::Runs, entry.parking);
        true
    }

    /// The runs that are parked and began before this one, the latest first; all if there is none.
    pub(in crate::shard) fn parked_before(&self, before: Option<StartKey>) -> impl Iterator<Item = StartKey> {
        let before = before.map_or(Bound::Unbounded, Bound::Excluded);
        self.parked.range((Bound::Unbounded, before)).rev().copied()
    }

    /// The history of a run was read.
    pub(in crate::shard) fn note_load(&self) {
        self.counters().loads.fetch_add(1, Ordering::Relaxed);
    }

    /// A history has become long.
    pub(in crate::shard) fn note_long_history(&self) {
        self.counters().long_histories.fetch_add(1, Ordering::Relaxed);
    }

    /// A run's history could not be trimmed, since what is kept of it is too large. Says whether that is the first time,
    /// as far as is remembered.
    #[cold]
    pub(in crate::shard) fn note_untrimmed(&mut self, run: RunId) -> bool {
        if self.untrimmed.len() >= UNTRIMMED_LEN_MAX {
            self.untrimmed.clear();
        }
        let is_first = self.untrimmed.insert(run);
        if is_first {
            self.counters()
                .untrimmed_histories
                .fetch_add(1, Ordering::Relaxed);
        }
        is_first
    }

    /// Adds up what was counted, before anybody gets an answer that depends on it.
    #[inline]
    pub(in crate::shard) fn tell(&mut self) {
        let counters = &self.shared.counters;
        for (count, counter) in [
            (&mut self.started, &counters.started),
            (&mut self.finished, &counters.finished),
            (&mut self.events, &counters.events),
        ] {
            if *count > 0 {
                counter.fetch_add(std::mem::take(count), Ordering::Relaxed);
            }
        }
        tell_change(&mut self.told_live, self.live_len, &counters.live);
        self.rows.tell();
    }

    /// Tells how many runs have their code in memory.
    #[inline]
    pub(in crate::shard) fn tell_hot(&mut self, len: usize) {
        tell_change(&mut self.told_hot, len, &self.shared.counters.hot);
    }

    /// Removes this shard's live runs from the shared counters: the shard that takes its place counts its runs anew.
    pub(in crate::shard) fn withdraw(&mut self) {
        let parked_len = std::mem::take(&mut self.parked).len();
        self.rows.withdraw();
        self.live_len = 0;
        self.tell();
        self.tell_hot(0);
        let parked = &self.counters().parked;
        parked.fetch_sub(parked_len as u64, Ordering::Relaxed);
    }
}

/// Adds what is more, or less, than when it was told last.
#[inline]
pub(super) fn tell_change(told: &mut u64, len: usize, counter: &AtomicU64) {
    let len = len as u64;
    if len != *told {
        // Wraps if there are fewer.
        let more = len.wrapping_sub(std::mem::replace(told, len));
        counter.fetch_add(more, Ordering::Relaxed);
    }
}
