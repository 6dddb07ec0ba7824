//! Durations in a shard, recorded from the first call of [`durations`](crate::Runtime::durations) on.
//!
//! ```text
//!   run ends, attempt is reported ──► measured ── queued, turn taken ──► histograms
//!   sweep queued ──────────────────► in flight ── durable ─────────────► histogram of commits
//! ```
//!
//! Before that call a shard has no [`DurationRecording`], and each place that would record only checks for one. No clock is
//! read: a run's ledger has the time of its beginning and the time when an attempt was due, and a turn has its own time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{RunId, Timestamp};
use millrun_persistence::RefusedTurn;
use millrun_workflow::{Input, Ledger, Pending};
use rustc_hash::FxHashMap;

use super::Shard;
use super::sweeps::Sweeps;
use crate::code::workflows::is_reserved;
use crate::looking::durations::{DurationTallies, DurationTally, NamedTallies};

/// What a shard remembers to record durations of the user's workflows and activities.
#[derive(Debug)]
pub(super) struct DurationRecording {
    tallies: Arc<DurationTallies>,
    /// The time of the present sweep; before the sweep begins, the time of the shard's turn.
    now: Timestamp,
    runs: KnownTallies,
    attempts: KnownTallies,
    /// Durations measured in the present sweep: the run whose turn ended something, the histogram, and the duration.
    measured: Vec<(RunId, Arc<DurationTally>, Duration)>,
    /// The sweeps whose commits are under way: their numbers, and when they were queued.
    in_flight: VecDeque<(u64, Timestamp)>,
}

/// The histograms that a shard has looked up, by name; at most `duration_names_max`.
#[derive(Debug, Default)]
struct KnownTallies(FxHashMap<Box<str>, Arc<DurationTally>>);

impl KnownTallies {
    fn of(&mut self, name: &str, all: &NamedTallies) -> Arc<DurationTally> {
        if let Some(row) = self.0.get(name) {
            return Arc::clone(row);
        }
        let Some(row) = all.row(name) else {
            return Arc::clone(all.others());
        };
        self.0.insert(name.into(), Arc::clone(&row));
        row
    }
}

impl DurationRecording {
    pub(super) fn begin_sweep(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// A run of this workflow ends in the present sweep.
    #[cold]
    pub(super) fn note_end(&mut self, run: RunId, workflow: &str, began_at: Timestamp) {
        if is_reserved(workflow) {
            return;
        }
        let row = self.runs.of(workflow, &self.tallies.runs);
        self.measured
            .push((run, row, self.now.saturating_since(began_at)));
    }

    /// Notes the report of an attempt, before its run is told of it, and returns whether `input` is such a report. If the run
    /// refuses the report, [`take_back`](Self::take_back) removes it.
    #[cold]
    pub(super) fn note_input(&mut self, run: RunId, ledger: &Ledger, input: &Input) -> bool {
        let (Input::ActivityCompleted {
            operation, attempt, ..
        }
        | Input::AttemptFailed {
            operation, attempt, ..
        }) = input
        else {
            return false;
        };
        let Some(Pending::Activity(pending)) = ledger.pending_operation(*operation) else {
            return false;
        };
        if is_reserved(&pending.scheduled.activity) {
            return false;
        }
        let due_at = pending.retry_at.or_else(|| ledger.pending_since(*operation));
        let Some(due_at) = due_at.filter(|_| *attempt > pending.failed_attempt) else {
            return false; // Its attempt was given up before, and counted then.
        };
        let row = self
            .attempts
            .of(&pending.scheduled.activity, &self.tallies.attempts);
        self.measured.push((run, row, self.now.saturating_since(due_at)));
        true
    }

    /// Drops the report that was noted last: its run has refused it, or its turn does not fit the journal.
    pub(super) fn take_back(&mut self) {
        self.measured.pop();
    }

    /// Counts the durations of the present sweep, which has been queued. Those of refused turns are dropped: their runs are
    /// read and told again.
    #[cold]
    fn settle(&mut self, sweeps: &Sweeps, refused: &[RefusedTurn]) {
        let refused_runs: BTreeSet<_> = refused
            .iter()
            .map(|refused| sweeps.turn_at(refused.turn).run())
            .collect();
        for (run, row, took) in self.measured.drain(..) {
            if !refused_runs.contains(&run) {
                row.record(took);
            }
        }
        // A sweep without turns may still carry records of durable topics.
        if sweeps.has_turns() && (refused.is_empty() || refused.len() < sweeps.turns_len()) {
            self.in_flight.push_back((sweeps.present(), self.now));
        }
    }

    /// Counts the commits of the sweeps up to this number, which are durable.
    #[cold]
    fn note_durable(&mut self, durable_len: u64) {
        while let Some((_, queued_at)) = self.in_flight.pop_front_if(|(number, _)| *number <= durable_len) {
            self.tallies.commits.record(self.now.saturating_since(queued_at));
        }
    }
}

impl Shard {
    /// Begins to record if a caller has asked for durations, and sets the time of the shard's turn.
    #[inline]
    pub(super) fn begin_recording(&mut self, now: Timestamp) {
        if !self.shared.durations.is_on() {
            return;
        }
        self.record_at(now);
    }

    #[cold]
    fn record_at(&mut self, now: Timestamp) {
        let recording = self.recording.get_or_insert_with(|| {
            Box::new(DurationRecording {
                tallies: Arc::clone(&self.shared.durations),
                now,
                runs: KnownTallies::default(),
                attempts: KnownTallies::default(),
                measured: Vec::new(),
                in_flight: VecDeque::new(),
            })
        });
        recording.now = now;
    }

    /// Counts the durations of the present sweep, which has been queued, except those of refused turns.
    #[inline]
    pub(super) fn record_queued(&mut self, refused: &[RefusedTurn]) {
        if let Some(recording) = &mut self.recording {
            recording.settle(&self.sweeps, refused);
        }
    }

    /// Counts the commits of sweeps that have become durable.
    #[inline]
    pub(super) fn record_durable(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.note_durable(self.sweeps.durable_len());
        }
    }
}
