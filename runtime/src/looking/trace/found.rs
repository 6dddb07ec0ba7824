//! The beginning and end of a run, read for a trace.

use millrun_core::{InstanceId, RunId, Sequence, Timestamp};
use millrun_workflow::{KeptBeginning, OutcomeKind, Started};

/// The beginning and end of a run, without the events in between.
#[derive(Debug)]
pub(crate) struct TraceBeginning {
    pub(crate) run: RunId,
    pub(crate) id: InstanceId,
    pub(crate) started: Box<Started>,
    /// The kept beginning, if the first events are trimmed, and the event before which they are.
    pub(crate) kept: Option<(Box<KeptBeginning>, Sequence)>,
    /// How it ended, and when, if it has.
    pub(crate) ended: Option<(OutcomeKind, Timestamp)>,
}
