//! What runs were told in the present sweep, for as long as a turn of theirs may be refused.
//!
//! ```text
//!   input, signal ──► told ── queued, and the turn taken ──► forgotten
//!                      └───── queued, and the turn refused ──► told again
//! ```
//!
//! Invariant: holds what was told since the last sweep was queued, and so no more than a sweep handles.

use millrun_core::RunId;
use millrun_workflow::{Input, OperationId};

use super::effects::Behalf;
use crate::mail::RunSignal;
use crate::ownership::partition_set::PartitionSet;

/// What runs were told in the present sweep by parts of the runtime and by other runs. What callers from
/// outside asked is not kept: they ask again by themselves.
#[derive(Debug, Default)]
pub(in crate::shard) struct ToldInSweep {
    inputs: Vec<(RunId, Input)>,
    /// What was published to durable topics, which a run may have decided in this sweep: where it decides otherwise, that is
    /// not published.
    appends: Vec<(RunId, OperationId)>,
    /// Signals of runs that were answered, and on behalf of which run.
    signals: Vec<(Behalf, Box<RunSignal>)>,
}

impl ToldInSweep {
    /// A run is told this.
    #[inline]
    pub(in crate::shard) fn note_input(&mut self, run: RunId, input: Input) {
        self.inputs.push((run, input));
    }

    /// Takes back what was noted last.
    #[inline]
    pub(in crate::shard) fn take_last_input(&mut self) -> Option<Input> {
        self.inputs.pop().map(|(_, input)| input)
    }

    /// A run has published to a durable topic.
    pub(in crate::shard) fn note_append(&mut self, run: RunId, operation: OperationId) {
        self.appends.push((run, operation));
    }

    /// Takes back what was published last.
    pub(in crate::shard) fn take_last_append(&mut self) {
        self.appends.pop();
    }

    /// Takes what a run has published, in order.
    pub(in crate::shard) fn take_appends(&mut self, run: RunId) -> Vec<OperationId> {
        let published = self.appends.extract_if(.., |(of, _)| *of == run);
        published.map(|(_, operation)| operation).collect()
    }

    /// Takes what a run was told, in order.
    pub(in crate::shard) fn take_inputs(&mut self, run: RunId) -> Vec<Input> {
        let told = self.inputs.extract_if(.., |(of, _)| *of == run);
        told.map(|(_, input)| input).collect()
    }

    /// A signal was answered on behalf of this run.
    #[inline]
    pub(in crate::shard) fn note_signal(&mut self, of: Behalf, signal: Box<RunSignal>) {
        self.signals.push((of, signal));
    }

    /// Takes the signals that were answered, each with the run on whose behalf.
    pub(in crate::shard) fn take_signals(&mut self) -> Vec<(Behalf, Box<RunSignal>)> {
        std::mem::take(&mut self.signals)
    }

    /// Forgets what runs of these partitions were told. Who has sent them signals, here or elsewhere, sends them again
    /// when the partition begins anew.
    pub(in crate::shard) fn lose(&mut self, lost: &PartitionSet) {
        self.inputs.retain(|(run, _)| !lost.contains(run.partition()));
        self.appends.retain(|(run, _)| !lost.contains(run.partition()));
        self.signals
            .retain(|(_, signal)| !lost.contains(signal.to.partition()));
    }

    /// The sweep is queued, and its turns are taken.
    #[inline]
    pub(in crate::shard) fn clear(&mut self) {
        self.inputs.clear();
        self.appends.clear();
        self.signals.clear();
    }
}
