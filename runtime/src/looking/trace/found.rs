//! How a run began and ended, as a reader finds it for a trace.

use millrun_core::{InstanceId, RunId, Sequence, Timestamp};
use millrun_workflow::{KeptBeginning, OutcomeKind, Started};

/// How a run began and ended, without what is between.
#[derive(Debug)]
pub(crate) struct TraceBeginning {
    pub(crate) run: RunId,
    pub(crate) id: InstanceId,
    pub(crate) started: Box<Started>,
    /// What is kept of its first events, if they are trimmed, and before which event they are.
    pub(crate) kept: Option<(Box<KeptBeginning>, Sequence)>,
    /// How it ended, and when, if it has.
    pub(crate) ended: Option<(OutcomeKind, Timestamp)>,
}
