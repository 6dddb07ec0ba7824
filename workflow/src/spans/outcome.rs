//! How operations and runs end, as their spans tell it.

use crate::event::{ChildFailure, PublishOutcome, SignalFailure};
use crate::ledger::OutcomeKind;

/// How a child ended.
pub(super) fn of_child(failure: &ChildFailure) -> String {
    match failure {
        ChildFailure::Failed(failure) | ChildFailure::Cancelled(failure) => failure.message.clone(),
        ChildFailure::Terminated { reason } => format!("terminated: {reason}"),
        ChildFailure::TimedOut(timeout) => format!("exceeded its {timeout} timeout"),
        ChildFailure::NotStarted { message } => format!("not started: {message}"),
    }
}

/// Why a signal was not recorded.
pub(super) fn of_signal(failure: &SignalFailure) -> String {
    match failure {
        SignalFailure::NotFound => "there is no such instance".into(),
        SignalFailure::Finished => "the instance has ended".into(),
        SignalFailure::OtherWorkflow { workflow } => format!("the instance is of the workflow {workflow}"),
        SignalFailure::Quarantined { message } | SignalFailure::Refused { message } => message.clone(),
    }
}

/// What was wrong with a publish, if anything was.
pub(super) fn of_publish(outcome: &Result<PublishOutcome, String>) -> Option<&str> {
    match outcome {
        Ok(PublishOutcome::Taken) => None,
        Ok(PublishOutcome::Unknown) => Some("it is not known whether it was published"),
        Err(message) => Some(message),
    }
}

/// A word for how a run ended.
pub(super) const fn word(outcome: OutcomeKind) -> &'static str {
    match outcome {
        OutcomeKind::Completed => "completed",
        OutcomeKind::Failed => "failed",
        OutcomeKind::Cancelled => "cancelled",
        OutcomeKind::Terminated => "terminated",
        OutcomeKind::TimedOut => "timed-out",
        OutcomeKind::Continued => "continued",
    }
}
