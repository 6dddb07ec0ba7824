//! The action of a bulk, and the runs to which it applies.

use millrun_workflow::Payload;
use serde::{Deserialize, Serialize};

use crate::looking::describe::InstanceStatus;
use crate::looking::find::{RunSearch, RunStatus};

/// What a bulk does to each instance.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BulkAction {
    /// Asks the run to cancel; as [`RunHandle::cancel`](crate::RunHandle::cancel).
    Cancel {
        /// Why.
        reason: String,
    },
    /// Ends the run without asking its code; as [`RunHandle::terminate`](crate::RunHandle::terminate).
    Terminate {
        /// Why.
        reason: String,
    },
    /// Resumes the code of a parked run, also of one that an operator has paused; as
    /// [`RunHandle::resume`](crate::RunHandle::resume). A run that is paused after the bulk has looked at it stays paused.
    Resume,
    /// Sends the instance a signal, once; as [`UntypedHandle::signal_as`](crate::UntypedHandle::signal_as).
    Signal {
        /// The name of the signal.
        name: String,
        /// Its value.
        value: Payload,
    },
    /// Starts another run of a finished instance, with the workflow and the input of its latest run. A run that was trimmed
    /// has no input any more, and counts as a failure.
    StartAgain,
}

/// The kind of action, without its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ActionKind {
    Cancel,
    Terminate,
    Resume,
    Signal,
    StartAgain,
}

impl BulkAction {
    /// Its name for the outside, in lower case and with hyphens.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cancel { .. } => "cancel",
            Self::Terminate { .. } => "terminate",
            Self::Resume => "resume",
            Self::Signal { .. } => "signal",
            Self::StartAgain => "start-again",
        }
    }

    pub(super) fn kind(&self) -> ActionKind {
        match self {
            Self::Cancel { .. } => ActionKind::Cancel,
            Self::Terminate { .. } => ActionKind::Terminate,
            Self::Resume => ActionKind::Resume,
            Self::Signal { .. } => ActionKind::Signal,
            Self::StartAgain => ActionKind::StartAgain,
        }
    }
}

impl ActionKind {
    /// Whether the action applies to a run with this status.
    pub(super) fn applies_to(self, status: InstanceStatus) -> bool {
        match self {
            Self::Cancel | Self::Terminate | Self::Signal => status != InstanceStatus::Finished,
            Self::Resume => status == InstanceStatus::Parked,
            Self::StartAgain => status == InstanceStatus::Finished,
        }
    }

    /// The statuses to which it applies. A run that continued as new is not the latest of its instance, so it is not started
    /// again.
    fn statuses(self) -> &'static [RunStatus] {
        match self {
            Self::Cancel | Self::Terminate | Self::Signal => &[
                RunStatus::Running,
                RunStatus::Parked,
                RunStatus::Paused,
                RunStatus::Delayed,
                RunStatus::NotRegistered,
            ],
            Self::Resume => &[RunStatus::Parked, RunStatus::Paused],
            Self::StartAgain => &[
                RunStatus::Completed,
                RunStatus::Failed,
                RunStatus::Cancelled,
                RunStatus::Terminated,
                RunStatus::TimedOut,
            ],
        }
    }

    /// The search, narrowed to runs to which the action applies; `None` if there can be none.
    pub(super) fn narrowed(self, search: &RunSearch) -> Option<RunSearch> {
        let statuses = self.statuses().iter().copied();
        let statuses: Vec<_> = statuses.filter(|status| search.has(*status)).collect();
        // A search without a status would find all runs.
        (!statuses.is_empty()).then(|| RunSearch {
            statuses,
            ..search.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_narrowed_to_what_the_action_applies_to_and_never_widened() {
        let failed = RunSearch::new().status(RunStatus::Failed);
        assert_eq!(ActionKind::Cancel.narrowed(&failed), None);
        let again = ActionKind::StartAgain.narrowed(&failed);
        assert_eq!(again.unwrap().statuses, [RunStatus::Failed]);
        let parked = ActionKind::Resume.narrowed(&RunSearch::new()).unwrap();
        assert_eq!(parked.statuses, [RunStatus::Parked, RunStatus::Paused]);
        let mixed = failed.status(RunStatus::Running);
        let live = ActionKind::Terminate.narrowed(&mixed).unwrap();
        assert_eq!(live.statuses, [RunStatus::Running]);
    }
}
