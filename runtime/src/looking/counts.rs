//! The number of runs of each workflow by status: updated as runs begin, end and are parked, so that a look only reads them.
//!
//! ```text
//!   shard: rows of its own ── once in a sweep, what has changed ──► row of the workflow ──► Runtime::counts
//! ```
//!
//! Invariant: a row's gauge is the sum of what each shard has told last; a shard that ends subtracts its part.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use millrun_workflow::OutcomeKind;

use crate::bulk::BULK;
use crate::code::workflows::{Workflows, is_reserved};
use crate::shared::ShardShared;

/// How many of the user's workflows have a row of their own: the first ones that have runs. The others are counted together;
/// bulks always have a row, and so has each registered version of a workflow with versions.
pub(crate) const WORKFLOWS_COUNTED_MAX: usize = 256;

/// The number of runs, by workflow and status: see [`Runtime::counts`](crate::Runtime::counts).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunCounts {
    /// Each workflow that has had runs since the runtime started, in the order of their names; the first 256.
    pub workflows: Vec<WorkflowCounts>,
    /// All other workflows together; the name is empty. For these, `not_registered` is not counted.
    pub others: WorkflowCounts,
    /// The number of running [bulks](crate::Runtime::bulk).
    pub bulks_running: u64,
}

/// The number of runs of a workflow. The first five are for live runs, counted now; the others for runs that ended since the
/// runtime started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkflowCounts {
    /// The name of the workflow.
    pub workflow: String,
    /// Those that run, or wait for something.
    pub running: u64,
    /// Those whose code does not run, without paused ones.
    pub parked: u64,
    /// Those that are parked because an operator asked for it.
    pub paused: u64,
    /// Those whose start is [delayed](crate::builders::Start::delayed_by), and whose time has not come.
    pub delayed: u64,
    /// All live ones whose workflow, or its version, is not registered.
    pub not_registered: u64,
    /// Those that ended with a value.
    pub completed: u64,
    /// Those that ended with an error.
    pub failed: u64,
    /// Those that ended with their answer to a request to cancel.
    pub cancelled: u64,
    /// Those that were terminated.
    pub terminated: u64,
    /// Those that were out of time.
    pub timed_out: u64,
    /// Those that continued as new.
    pub continued: u64,
}

impl WorkflowCounts {
    /// The number of live runs.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.running + self.parked + self.paused + self.delayed + self.not_registered
    }

    /// Adds those of another version.
    fn add(&mut self, other: &Self) {
        self.running += other.running;
        self.parked += other.parked;
        self.paused += other.paused;
        self.delayed += other.delayed;
        self.not_registered += other.not_registered;
        self.completed += other.completed;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.terminated += other.terminated;
        self.timed_out += other.timed_out;
        self.continued += other.continued;
    }

    /// Whether no run of it is live, and none has ended since the runtime started.
    fn is_empty(&self) -> bool {
        let ended = self.completed + self.failed + self.cancelled + self.terminated;
        self.live() + ended + self.timed_out + self.continued == 0
    }

    fn of(tally: &WorkflowTally, is_registered: bool) -> Self {
        let gauge = |gauge: &AtomicU64| {
            // When a run moves between shards, one of them may not have told its count yet.
            let told = gauge.load(Ordering::Relaxed);
            if told > u64::MAX / 2 { 0 } else { told }
        };
        let ended = |outcome| tally.ended[at(outcome)].load(Ordering::Relaxed);
        let live = gauge(&tally.live);
        let stopped = [&tally.parked, &tally.paused, &tally.delayed].map(gauge);
        let ([parked, paused, delayed], not_registered) = match is_registered {
            true => (stopped, 0),
            false => ([0; 3], live),
        };
        let running = live.saturating_sub(parked + paused + delayed + not_registered);
        Self {
            workflow: tally.workflow.clone(),
            running,
            parked,
            paused,
            delayed,
            not_registered,
            completed: ended(OutcomeKind::Completed),
            failed: ended(OutcomeKind::Failed),
            cancelled: ended(OutcomeKind::Cancelled),
            terminated: ended(OutcomeKind::Terminated),
            timed_out: ended(OutcomeKind::TimedOut),
            continued: ended(OutcomeKind::Continued),
        }
    }
}

/// The place of an outcome in [`WorkflowTally::ended`].
#[inline]
pub(crate) const fn at(outcome: OutcomeKind) -> usize {
    match outcome {
        OutcomeKind::Completed => 0,
        OutcomeKind::Failed => 1,
        OutcomeKind::Cancelled => 2,
        OutcomeKind::Terminated => 3,
        OutcomeKind::Continued => 4,
        OutcomeKind::TimedOut => 5,
    }
}

/// The counts of one version of a workflow, over all shards.
#[derive(Debug, Default)]
pub(crate) struct WorkflowTally {
    workflow: String,
    version: u32,
    pub(crate) live: AtomicU64,
    pub(crate) parked: AtomicU64,
    pub(crate) paused: AtomicU64,
    pub(crate) delayed: AtomicU64,
    pub(crate) ended: [AtomicU64; OutcomeKind::ALL.len()],
}

impl WorkflowTally {
    fn named(workflow: &str, version: u32) -> Arc<Self> {
        Arc::new(Self {
            workflow: workflow.to_owned(),
            version,
            ..Self::default()
        })
    }

    /// The name of the workflow; empty if it is the row of several.
    pub(crate) fn workflow(&self) -> &str {
        &self.workflow
    }

    /// The version of the workflow.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }
}

/// The counts of all workflows.
///
/// Invariant: rows are never removed, and none is added once the limit is reached. So it never changes whether a workflow has
/// a row of its own, and a shard may remember it.
#[derive(Debug)]
pub(crate) struct Tallies {
    /// The rows of bulks and of registered versions, then those of the user's workflows in the order in which they came.
    rows: Mutex<Vec<Arc<WorkflowTally>>>,
    /// The number of rows that exist from the beginning.
    reserved_len: usize,
    others: Arc<WorkflowTally>,
}

impl Tallies {
    /// If a workflow is registered in a version other than 0, each of its versions has a row of its own, whatever the number
    /// of workflows: it must be certain whether a version has live runs.
    pub(crate) fn with_rows_of(workflows: &Workflows) -> Self {
        let versioned = workflows
            .all()
            .filter(|code| workflows.versions_of(code.name()) != [0])
            .map(|code| WorkflowTally::named(code.name(), code.version()));
        let rows: Vec<_> = std::iter::once(WorkflowTally::named(BULK.name(), 0))
            .chain(versioned)
            .collect();
        Self {
            reserved_len: rows.len(),
            rows: Mutex::new(rows),
            others: Arc::default(),
        }
    }

    /// The row of a version of a workflow; `None` if it is counted with the [others](Self::others).
    pub(crate) fn row(&self, workflow: &str, version: u32) -> Option<Arc<WorkflowTally>> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |row: &&Arc<WorkflowTally>| row.workflow == workflow && row.version == version;
        if let Some(row) = rows.iter().find(is_it) {
            return Some(Arc::clone(row));
        }
        if rows.len() >= WORKFLOWS_COUNTED_MAX + self.reserved_len {
            return None;
        }
        let row = WorkflowTally::named(workflow, version);
        rows.push(Arc::clone(&row));
        Some(row)
    }

    /// All rows of workflows of their own.
    pub(crate) fn rows(&self) -> Vec<Arc<WorkflowTally>> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.clone()
    }

    /// The row of the workflows that have none of their own.
    pub(crate) fn others(&self) -> Arc<WorkflowTally> {
        Arc::clone(&self.others)
    }
}

impl ShardShared {
    /// What all shards have told.
    pub(crate) fn counts(&self) -> RunCounts {
        let rows = self.tallies.rows();
        let of = |row: &Arc<WorkflowTally>| {
            let beginning = (row.workflow.as_str(), row.version);
            WorkflowCounts::of(row, self.is_registered(beginning))
        };
        let shown = rows.iter().filter(|row| !is_reserved(&row.workflow));
        let mut by_name: BTreeMap<&str, WorkflowCounts> = BTreeMap::new();
        for row in shown {
            let counts = of(row);
            match by_name.entry(&row.workflow) {
                Entry::Occupied(mut versions) => versions.get_mut().add(&counts),
                Entry::Vacant(first) => drop(first.insert(counts)),
            }
        }
        let is_shown = |counts: &WorkflowCounts| !counts.is_empty();
        let workflows: Vec<_> = by_name.into_values().filter(is_shown).collect();
        let bulks = rows.iter().filter(|row| row.workflow == BULK.name());
        let running = bulks.map(|row| row.live.load(Ordering::Relaxed));
        RunCounts {
            bulks_running: running.sum(),
            workflows,
            others: WorkflowCounts::of(&self.tallies.others, true),
        }
    }
}
