//! The inputs that runs were given in the present sweep, kept while a turn of theirs may be refused.
//!
//! ```text
//!   input, signal ──► told ── queued, and the turn taken ──► forgotten
//!                      └───── queued, and the turn refused ──► told again
//! ```
//!
//! Invariant: holds the inputs since the last sweep was queued, and so no more than one sweep handles.

use millrun_core::RunId;
use millrun_workflow::{Input, OperationId};

use super::effects::Behalf;
use crate::mail::RunSignal;
use crate::ownership::partition_set::PartitionSet;

/// The inputs that runs got in the present sweep from parts of the runtime and from other runs. Requests of outside callers
/// are not kept: the callers ask again.
#[derive(Debug, Default)]
pub(in crate::shard) struct ToldInSweep {
    inputs: Vec<(RunId, Input)>,
    /// Publishes to durable topics. After a refused turn the run is told again only if it still decides to publish.
    appends: Vec<(RunId, OperationId)>,
    /// Signals of runs that were answered, each with the run on whose behalf.
    signals: Vec<(Behalf, Box<RunSignal>)>,
}

impl ToldInSweep {
    /// Notes an input of a run.
    #[inline]
    pub(in crate::shard) fn note_input(&mut self, run: RunId, input: Input) {
        self.inputs.push((run, input));
    }

    /// Takes back the input that was noted last.
    #[inline]
    pub(in crate::shard) fn take_last_input(&mut self) -> Option<Input> {
        self.inputs.pop().map(|(_, input)| input)
    }

    /// Notes that a run has published to a durable topic.
    pub(in crate::shard) fn note_append(&mut self, run: RunId, operation: OperationId) {
        self.appends.push((run, operation));
    }

    /// Takes back the publish that was noted last.
    pub(in crate::shard) fn take_last_append(&mut self) {
        self.appends.pop();
    }

    /// Takes the publishes of a run, in order.
    pub(in crate::shard) fn take_appends(&mut self, run: RunId) -> Vec<OperationId> {
        let published = self.appends.extract_if(.., |(of, _)| *of == run);
        published.map(|(_, operation)| operation).collect()
    }

    /// Takes the inputs of a run, in order.
    pub(in crate::shard) fn take_inputs(&mut self, run: RunId) -> Vec<Input> {
        let told = self.inputs.extract_if(.., |(of, _)| *of == run);
        told.map(|(_, input)| input).collect()
    }

    /// Notes a signal that was answered on behalf of this run.
    #[inline]
    pub(in crate::shard) fn note_signal(&mut self, of: Behalf, signal: Box<RunSignal>) {
        self.signals.push((of, signal));
    }

    /// Takes the answered signals, each with the run on whose behalf.
    pub(in crate::shard) fn take_signals(&mut self) -> Vec<(Behalf, Box<RunSignal>)> {
        std::mem::take(&mut self.signals)
    }

    /// Forgets the inputs of runs in these partitions. The senders of their signals, here or elsewhere, send them again when
    /// the partition begins anew.
    pub(in crate::shard) fn lose(&mut self, lost: &PartitionSet) {
        self.inputs.retain(|(run, _)| !lost.contains(run.partition()));
        self.appends.retain(|(run, _)| !lost.contains(run.partition()));
        self.signals
            .retain(|(_, signal)| !lost.contains(signal.to.partition()));
    }

    /// Forgets everything: the sweep is queued, and its turns are taken.
    #[inline]
    pub(in crate::shard) fn clear(&mut self) {
        self.inputs.clear();
        self.appends.clear();
        self.signals.clear();
    }
}
