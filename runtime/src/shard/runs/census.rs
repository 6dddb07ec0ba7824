//! The counts of a shard's runs, and their sum over all shards in the shared counters.
//!
//! ```text
//!   a run comes, ends, goes ──► counted here ──► told once in a sweep, before its answers leave ──► Counters
//! ```
//!
//! Invariants: a run is live from when it is taken in until it has ended or is dropped, and is counted once. A shared counter
//! of live or hot runs is the sum of what each shard has told last; a shard that ends subtracts its share.

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

/// The counts of one shard.
#[derive(Debug)]
pub(in crate::shard) struct Census {
    shared: Arc<ShardShared>,
    live_len: usize,
    /// How many of the live runs are children.
    children_len: usize,
    /// Runs started since the shared counters were last updated. `finished` and `events` count in the same way.
    started: u64,
    finished: u64,
    events: u64,
    /// The counts of each workflow.
    rows: Rows,
    /// The runs that are parked, in the order in which they began.
    parked: BTreeSet<StartKey>,
    /// The number of live runs, and of runs with code in memory, as last added to the shared counters.
    told_live: u64,
    told_hot: u64,
    /// Runs for which a warning was logged that their histories cannot be trimmed.
    untrimmed: FxHashSet<RunId>,
}

/// How many runs a shard remembers in `untrimmed`.
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

    /// Counts a live run that has begun, was recovered, or has not ended after all.
    #[inline]
    pub(in crate::shard) fn enter(&mut self, workflow: &WorkflowName, is_child: bool) {
        self.rows.enter(workflow);
        self.live_len += 1;
        self.children_len += usize::from(is_child);
    }

    /// Counts out a run that has left the shard, or is not live any more.
    #[inline]
    pub(in crate::shard) fn leave(&mut self, entry: &Entry) {
        self.rows.leave(&entry.workflow);
        self.live_len -= 1;
        self.children_len -= usize::from(entry.parent().is_some());
    }

    /// Counts a run whose first turn is recorded.
    #[inline]
    pub(in crate::shard) fn note_start(&mut self) {
        self.started += 1;
    }

    /// Counts events that are recorded.
    #[inline]
    pub(in crate::shard) fn note_events(&mut self, len: usize) {
        self.events += len as u64;
    }

    /// Counts the end of a run whose last turn is recorded.
    #[inline]
    pub(in crate::shard) fn note_end(&mut self, entry: &Entry, outcome: OutcomeKind) {
        self.rows.note_end(&entry.workflow, outcome);
        self.live_len -= 1;
        self.children_len -= usize::from(entry.parent().is_some());
        self.finished += 1;
    }

    /// Undoes the count of a start whose turn was refused after the shared counters had it.
    pub(in crate::shard) fn take_back_start(&self) {
        self.counters().started.fetch_sub(1, Ordering::Relaxed);
    }

    /// Undoes the count of an end whose turn was refused after the shared counters had it.
    pub(in crate::shard) fn take_back_end(&mut self, workflow: &WorkflowName, outcome: OutcomeKind) {
        self.counters().finished.fetch_sub(1, Ordering::Relaxed);
        self.rows.take_back_end(workflow, outcome);
    }

    /// Sets whether a run's code runs; [`Parking::Runs`] also for a run that leaves.
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

    /// Counts a run under the version of its workflow that it has now. Returns whether that is another version than before.
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

    /// The parked runs that began before this one, the latest first; all of them for `None`.
    pub(in crate::shard) fn parked_before(&self, before: Option<StartKey>) -> impl Iterator<Item = StartKey> {
        let before = before.map_or(Bound::Unbounded, Bound::Excluded);
        self.parked.range((Bound::Unbounded, before)).rev().copied()
    }

    /// Counts the read of a history.
    pub(in crate::shard) fn note_load(&self) {
        self.counters().loads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a history that has become long.
    pub(in crate::shard) fn note_long_history(&self) {
        self.counters().long_histories.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a run's history could not be trimmed, since what is kept of it is too large. Returns whether that is news,
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

    /// Adds the counts to the shared counters, before a caller gets an answer that depends on them.
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

    /// Updates the shared number of runs with code in memory.
    #[inline]
    pub(in crate::shard) fn tell_hot(&mut self, len: usize) {
        tell_change(&mut self.told_hot, len, &self.shared.counters.hot);
    }

    /// Removes this shard's live runs from the shared counters: its successor counts its runs anew.
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

/// Adds the difference to the number that was told last.
#[inline]
pub(super) fn tell_change(told: &mut u64, len: usize, counter: &AtomicU64) {
    let len = len as u64;
    if len != *told {
        // Wraps if there are fewer, which subtracts.
        let more = len.wrapping_sub(std::mem::replace(told, len));
        counter.fetch_add(more, Ordering::Relaxed);
    }
}
