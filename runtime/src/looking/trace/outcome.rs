//! What became of operations, in words.

use millrun_workflow::{ChildFailure, EntityAnswer, Payload, PublishOutcome, SignalFailure};

use super::links::TraceOutcome;

/// The outcome of a command that a run sent to an entity.
pub(super) fn of_command(answer: &Payload) -> TraceOutcome {
    match answer.decode::<EntityAnswer>() {
        Ok(EntityAnswer::Given(_)) => TraceOutcome::Done,
        Ok(EntityAnswer::Rejected(_)) => TraceOutcome::Failed("the command was rejected".to_owned()),
        Err(error) => TraceOutcome::Unknown(error.to_string()),
    }
}

pub(super) fn of_child(end: &Result<Payload, ChildFailure>) -> TraceOutcome {
    TraceOutcome::Failed(match end {
        Ok(_) => return TraceOutcome::Done,
        Err(ChildFailure::Failed(failure)) => failure.message.clone(),
        Err(ChildFailure::Cancelled(_)) => return TraceOutcome::Cancelled,
        Err(ChildFailure::Terminated { reason }) => format!("terminated: {reason}"),
        Err(ChildFailure::TimedOut(timeout)) => format!("exceeded its {timeout} timeout"),
        Err(ChildFailure::NotStarted { message }) => format!("not started: {message}"),
        Err(other) => format!("{other:?}"),
    })
}

pub(super) fn of_signal(outcome: &Result<(), SignalFailure>) -> TraceOutcome {
    TraceOutcome::Failed(match outcome {
        Ok(()) => return TraceOutcome::Done,
        Err(SignalFailure::NotFound) => "there is no such instance".to_owned(),
        Err(SignalFailure::Finished) => "the instance has ended".to_owned(),
        Err(SignalFailure::OtherWorkflow { workflow }) => {
            format!("the instance is of the workflow {workflow}")
        }
        Err(SignalFailure::Quarantined { message } | SignalFailure::Refused { message }) => message.clone(),
        Err(other) => format!("{other:?}"),
    })
}

pub(super) fn of_publish(outcome: &Result<PublishOutcome, String>) -> TraceOutcome {
    match outcome {
        Ok(PublishOutcome::Taken) => TraceOutcome::Done,
        Ok(PublishOutcome::Unknown) => {
            TraceOutcome::Unknown("the process ended as it was published".to_owned())
        }
        Err(why) => TraceOutcome::Failed(why.clone()),
    }
}
