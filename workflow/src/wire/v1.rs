//! Version 1: the body of each record is a MessagePack map with short keys, so that a field can be added; the kind is in the
//! record's header, which belongs to the journal.
//!
//! The kinds are part of the format: numbers are never reused.

mod bearing;
mod body;
mod commands;
mod family;
mod kept;
mod outside;
mod parts;
mod receiving;
mod signalling;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use millrun_core::{InstanceId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes as Raw;

use crate::OperationId;
use crate::event::{Bounds, Event, EventError, PublishOutcome, RunFailure, Started};
use crate::ledger::OutcomeKind;

pub(crate) use bearing::{Bearing, bearing};
use family::{
    CauseWire, ChildBody, ChildCancelBody, ChildEndWire, ChildEndedBody, ChildStartedBody, ContinuedBody,
    ErrorWire, OriginWire, ResetWire, RunTimeoutWire, TimedOutBody, run_id,
};
pub(crate) use kept::{KeptParts, Noted, decode_kept, encode_kept};

use commands::CommandBody;
use outside::{CheckpointBody, PublishBody, PublishedBody, SettledBody};
use parts::{RecordedWire, payload, raw};
use receiving::{ReceiveBody, ReceivedBody};
use signalling::{RunSignalBody, SignalScheduledBody, SignalSentBody};

use body::{
    AnswerBody, AttemptBody, BoundsWire, FailureBody, FailureWire, OperationBody, ParkedWire, PatchedBody,
    ReasonBody, ResultBody, RunFailureBody, ScheduledBody, SignalBody, StartedBody, TimerBody, UpdateBody,
    ValueBody, ValueRecordedBody, VersionBody,
};

const STARTED: u8 = 1;
const ACTIVITY_SCHEDULED: u8 = 2;
const ACTIVITY_COMPLETED: u8 = 3;
const ACTIVITY_FAILED: u8 = 4;
const ATTEMPT_FAILED: u8 = 5;
const TIMER_STARTED: u8 = 6;
const TIMER_FIRED: u8 = 7;
const SIGNAL_RECEIVED: u8 = 8;
const OPERATION_CANCELLED: u8 = 9;
const CANCEL_REQUESTED: u8 = 10;
const COMPLETED: u8 = 11;
const FAILED: u8 = 12;
const CANCELLED: u8 = 13;
const TERMINATED: u8 = 14;
const PARKED: u8 = 15;
const RESUMED: u8 = 16;
const VALUE_RECORDED: u8 = 17;
const PATCHED: u8 = 18;
const UPDATE_ACCEPTED: u8 = 19;
const UPDATE_ANSWERED: u8 = 20;
const ATTEMPT_HEARTBEAT: u8 = 21;
const CHILD_SCHEDULED: u8 = 22;
const CHILD_STARTED: u8 = 23;
const CHILD_ENDED: u8 = 24;
const CONTINUED_AS_NEW: u8 = 25;
const PUBLISH_SCHEDULED: u8 = 26;
const PUBLISH_PARKED: u8 = 27;
const PUBLISHED: u8 = 28;
const PROMISE_MADE: u8 = 29;
const PROMISE_SETTLED: u8 = 30;
const CHECKPOINTED: u8 = 31;
const ATTEMPT_STARTED: u8 = 32;
const SIGNAL_SCHEDULED: u8 = 33;
const SIGNAL_SENT: u8 = 34;
const RUN_SIGNAL_RECEIVED: u8 = 35;
const RECEIVE_SCHEDULED: u8 = 36;
const RECORD_RECEIVED: u8 = 37;
const COMMAND_PERFORMED: u8 = 40;
const VERSION_CHANGED: u8 = 41;
const TIMED_OUT: u8 = 42;
const CHILD_CANCEL_REQUESTED: u8 = 43;

/// The kind of an event, for the record's header.
#[must_use]
pub fn kind(event: &Event) -> u8 {
    match event {
        Event::Started(_) => STARTED,
        Event::ActivityScheduled(_) => ACTIVITY_SCHEDULED,
        Event::ActivityCompleted { .. } => ACTIVITY_COMPLETED,
        Event::ActivityFailed { .. } => ACTIVITY_FAILED,
        Event::AttemptFailed { .. } => ATTEMPT_FAILED,
        Event::TimerStarted { .. } => TIMER_STARTED,
        Event::TimerFired { .. } => TIMER_FIRED,
        Event::SignalReceived { .. } => SIGNAL_RECEIVED,
        Event::OperationCancelled { .. } => OPERATION_CANCELLED,
        Event::CancelRequested { .. } => CANCEL_REQUESTED,
        Event::Completed { .. } => COMPLETED,
        Event::Failed { .. } => FAILED,
        Event::Cancelled { .. } => CANCELLED,
        Event::Terminated { .. } => TERMINATED,
        Event::Parked { .. } => PARKED,
        Event::Resumed => RESUMED,
        Event::VersionChanged { .. } => VERSION_CHANGED,
        Event::ValueRecorded { .. } => VALUE_RECORDED,
        Event::Patched { .. } => PATCHED,
        Event::UpdateAccepted { .. } => UPDATE_ACCEPTED,
        Event::UpdateAnswered { .. } => UPDATE_ANSWERED,
        Event::AttemptHeartbeat { .. } => ATTEMPT_HEARTBEAT,
        Event::ChildScheduled(_) => CHILD_SCHEDULED,
        Event::ChildStarted { .. } => CHILD_STARTED,
        Event::ChildCancelRequested { .. } => CHILD_CANCEL_REQUESTED,
        Event::ChildEnded { .. } => CHILD_ENDED,
        Event::TimedOut { next: None, .. } => TIMED_OUT,
        Event::ContinuedAsNew { .. } | Event::Reset { .. } | Event::TimedOut { .. } => CONTINUED_AS_NEW,
        Event::PublishScheduled(_) => PUBLISH_SCHEDULED,
        Event::PublishParked { .. } => PUBLISH_PARKED,
        Event::Published { .. } => PUBLISHED,
        Event::PromiseMade { .. } => PROMISE_MADE,
        Event::PromiseSettled { .. } => PROMISE_SETTLED,
        Event::Checkpointed(_) => CHECKPOINTED,
        Event::AttemptStarted { .. } => ATTEMPT_STARTED,
        Event::SignalScheduled(_) => SIGNAL_SCHEDULED,
        Event::SignalSent { .. } => SIGNAL_SENT,
        Event::RunSignalReceived { .. } => RUN_SIGNAL_RECEIVED,
        Event::CommandPerformed(_) => COMMAND_PERFORMED,
        Event::ReceiveScheduled(_) => RECEIVE_SCHEDULED,
        Event::RecordReceived { .. } => RECORD_RECEIVED,
    }
}

/// The kind of a run's last event, for this outcome.
#[must_use]
pub const fn kind_of_outcome(outcome: OutcomeKind) -> u8 {
    match outcome {
        OutcomeKind::Completed => COMPLETED,
        OutcomeKind::Failed => FAILED,
        OutcomeKind::Cancelled => CANCELLED,
        OutcomeKind::Terminated => TERMINATED,
        OutcomeKind::TimedOut => TIMED_OUT,
        OutcomeKind::Continued => CONTINUED_AS_NEW,
    }
}

/// The outcome of a run whose last event has this kind; `None` if the kind does not end a run.
#[must_use]
pub fn outcome_of_kind(kind: u8) -> Option<OutcomeKind> {
    let mut all = OutcomeKind::ALL.into_iter();
    all.find(|outcome| kind_of_outcome(*outcome) == kind)
}

/// Whether an event of this kind stops or resumes the code of its run.
#[must_use]
pub const fn may_park(kind: u8) -> bool {
    matches!(kind, PARKED | RESUMED)
}

/// Appends the event's body to `out`.
///
/// # Errors
/// Never for events that this crate made; the signature allows for a codec that can fail.
pub fn encode(event: &Event, out: &mut Vec<u8>) -> Result<(), EventError> {
    match event {
        Event::Started(started) => write(
            out,
            &StartedBody {
                workflow: Cow::Borrowed(&started.workflow),
                input: raw(&started.input),
                version: started.version,
                not_before: started.not_before.map(Timestamp::as_micros),
                bounds: BoundsWire::of(started.bounds),
                origin: started.origin.as_deref().map(OriginWire::of),
            },
        ),
        Event::ChildScheduled(scheduled) => write(out, &ChildBody::of(scheduled)),
        Event::ChildStarted { operation, run } => write(
            out,
            &ChildStartedBody {
                operation: operation.get(),
                run: run.bits(),
            },
        ),
        Event::ChildCancelRequested { operation, reason } => write(
            out,
            &ChildCancelBody {
                operation: operation.get(),
                reason: Cow::Borrowed(reason),
            },
        ),
        Event::ChildEnded { operation, end } => write(
            out,
            &ChildEndedBody {
                operation: operation.get(),
                end: ChildEndWire::of(end),
            },
        ),
        Event::ContinuedAsNew {
            run,
            workflow,
            input,
            failed,
        } => write(
            out,
            &ContinuedBody {
                run: run.bits(),
                workflow: Cow::Borrowed(workflow),
                input: raw(input),
                failed: failed.as_deref().map(ErrorWire::of),
                reset: None,
                timed_out: None,
            },
        ),
        Event::Reset { run, to, reason } => write(
            out,
            &ContinuedBody {
                run: run.bits(),
                workflow: Cow::Borrowed(""),
                input: Raw::new(&[]),
                failed: None,
                reset: Some(ResetWire {
                    to: to.get(),
                    reason: Cow::Borrowed(reason),
                }),
                timed_out: None,
            },
        ),
        Event::TimedOut { timeout, next: None } => write(
            out,
            &TimedOutBody {
                timeout: RunTimeoutWire::of(*timeout),
            },
        ),
        Event::TimedOut {
            timeout,
            next: Some(run),
        } => write(
            out,
            &ContinuedBody {
                run: run.bits(),
                workflow: Cow::Borrowed(""),
                input: Raw::new(&[]),
                failed: None,
                reset: None,
                timed_out: Some(RunTimeoutWire::of(*timeout)),
            },
        ),
        Event::ActivityScheduled(scheduled) => write(out, &ScheduledBody::of(scheduled)),
        Event::ActivityCompleted {
            operation,
            attempt,
            result,
        } => write(
            out,
            &ValueBody {
                operation: operation.get(),
                attempt: *attempt,
                value: raw(result),
            },
        ),
        Event::ActivityFailed {
            operation,
            attempt,
            failure,
        } => write(
            out,
            &FailureBody {
                operation: operation.get(),
                attempt: *attempt,
                failure: FailureWire::of(failure),
                retry_at: None,
                epoch: None,
            },
        ),
        Event::AttemptFailed {
            operation,
            attempt,
            failure,
            retry_at,
            epoch,
        } => write(
            out,
            &FailureBody {
                operation: operation.get(),
                attempt: *attempt,
                failure: FailureWire::of(failure),
                retry_at: Some(retry_at.as_micros()),
                epoch: Some(*epoch),
            },
        ),
        Event::TimerStarted { operation, deadline } => write(
            out,
            &TimerBody {
                operation: operation.get(),
                deadline: deadline.as_micros(),
            },
        ),
        Event::PublishScheduled(scheduled) => write(out, &PublishBody::of(scheduled)),
        Event::Published { operation, outcome } => write(
            out,
            &PublishedBody {
                operation: operation.get(),
                error: outcome.as_ref().err().map(|error| Cow::Borrowed(error.as_str())),
                is_unknown: *outcome == Ok(PublishOutcome::Unknown),
            },
        ),
        Event::ReceiveScheduled(scheduled) => write(out, &ReceiveBody::of(scheduled)),
        Event::RecordReceived { operation, record } => write(out, &ReceivedBody::of(*operation, record)),
        Event::PromiseSettled { operation, end } => write(
            out,
            &SettledBody {
                operation: operation.get(),
                end: RecordedWire::of(end),
            },
        ),
        Event::Checkpointed(checkpoint) => write(out, &CheckpointBody::of(checkpoint)),
        Event::TimerFired { operation }
        | Event::PublishParked { operation }
        | Event::PromiseMade { operation }
        | Event::OperationCancelled { operation } => write(
            out,
            &OperationBody {
                operation: operation.get(),
            },
        ),
        Event::SignalReceived {
            name,
            value,
            cause,
            request,
        } => write(
            out,
            &SignalBody {
                name: Cow::Borrowed(name),
                value: raw(value),
                cause: cause.as_deref().copied().map(CauseWire::of),
                request: request.as_deref().map(Cow::Borrowed),
            },
        ),
        Event::RunSignalReceived { sender, name, value } => write(
            out,
            &RunSignalBody {
                sender: CauseWire::of(**sender),
                name: Cow::Borrowed(name),
                value: raw(value),
            },
        ),
        Event::SignalScheduled(scheduled) => write(out, &SignalScheduledBody::of(scheduled)),
        Event::SignalSent { operation, outcome } => write(out, &SignalSentBody::of(*operation, outcome)),
        Event::CancelRequested { reason, is_shown } => write(
            out,
            &ReasonBody {
                reason: Cow::Borrowed(reason),
                is_shown: *is_shown,
            },
        ),
        Event::Terminated { reason } => write(
            out,
            &ReasonBody {
                reason: Cow::Borrowed(reason),
                is_shown: false,
            },
        ),
        Event::Completed { result } => write(out, &ResultBody { value: raw(result) }),
        Event::Failed { error } | Event::Cancelled { error } => write(
            out,
            &RunFailureBody {
                error: raw(&error.error),
                message: Cow::Borrowed(&error.message),
                is_cancelled: error.is_cancelled,
            },
        ),
        Event::Parked { reason } => write(out, &ParkedWire::of(reason)),
        Event::Resumed => Ok(()),
        Event::VersionChanged { version } => write(out, &VersionBody { version: *version }),
        Event::ValueRecorded { name, value } => write(out, &ValueRecordedBody::of(name.as_deref(), value)),
        Event::UpdateAccepted { request, name, input } => write(
            out,
            &UpdateBody {
                request: Cow::Borrowed(request),
                name: Cow::Borrowed(name),
                input: raw(input),
            },
        ),
        Event::AttemptStarted { operation, attempt } => write(
            out,
            &AttemptBody {
                operation: operation.get(),
                attempt: *attempt,
            },
        ),
        Event::AttemptHeartbeat {
            operation,
            attempt,
            details,
        } => write(
            out,
            &ValueBody {
                operation: operation.get(),
                attempt: *attempt,
                value: raw(details),
            },
        ),
        Event::UpdateAnswered { request, answer } => write(
            out,
            &AnswerBody {
                request: Cow::Borrowed(request),
                answer: RecordedWire::of(answer),
            },
        ),
        Event::CommandPerformed(performed) => write(out, &CommandBody::of(performed)),
        Event::Patched { id } => write(
            out,
            &PatchedBody {
                id: Cow::Borrowed(id),
            },
        ),
    }
}

/// Decodes an event. `opens` is the instance id that the journal keeps with the first record of a run. Payloads share
/// `body`'s memory.
///
/// # Errors
/// When the bytes are not an event of this kind, or bytes are left over. Any bytes give a value or an error.
pub fn decode(kind: u8, body: &Bytes, opens: Option<&str>) -> Result<Event, EventError> {
    Ok(match kind {
        STARTED => {
            let id = opens.ok_or_else(|| EventError::Malformed("a first event without an id".into()))?;
            let id = InstanceId::new(id).map_err(|error| EventError::Malformed(error.to_string()))?;
            let StartedBody {
                workflow,
                input,
                version,
                not_before,
                bounds,
                origin,
            } = read(body)?;
            Event::Started(Started {
                version,
                origin: origin.map(|origin| origin.into_event(body)).transpose()?,
                not_before: not_before.map(Timestamp::from_micros),
                bounds: bounds.map_or(Bounds::DEFAULT, BoundsWire::into_event),
                ..Started::new(workflow.into_owned(), id, payload(body, input))
            })
        }
        ACTIVITY_SCHEDULED => {
            Event::ActivityScheduled(Arc::new(read::<ScheduledBody<'_>>(body)?.into_event(body)))
        }
        ACTIVITY_COMPLETED => {
            let ValueBody {
                operation,
                attempt,
                value,
            } = read(body)?;
            let (operation, result) = (OperationId::new(operation), payload(body, value));
            Event::ActivityCompleted {
                operation,
                attempt,
                result,
            }
        }
        ACTIVITY_FAILED => {
            let FailureBody {
                operation,
                attempt,
                failure,
                ..
            } = read(body)?;
            let (operation, failure) = (OperationId::new(operation), failure.into_event(body));
            Event::ActivityFailed {
                operation,
                attempt,
                failure,
            }
        }
        ATTEMPT_FAILED => {
            let FailureBody {
                operation,
                attempt,
                failure,
                retry_at,
                epoch,
            } = read(body)?;
            let missing = || EventError::Malformed("a failed attempt without its next time".into());
            Event::AttemptFailed {
                operation: OperationId::new(operation),
                attempt,
                failure: failure.into_event(body),
                retry_at: Timestamp::from_micros(retry_at.ok_or_else(missing)?),
                epoch: epoch.ok_or_else(missing)?,
            }
        }
        TIMER_STARTED => {
            let TimerBody { operation, deadline } = read(body)?;
            let (operation, deadline) = (OperationId::new(operation), Timestamp::from_micros(deadline));
            Event::TimerStarted { operation, deadline }
        }
        TIMER_FIRED => Event::TimerFired {
            operation: operation(body)?,
        },
        SIGNAL_RECEIVED => {
            let SignalBody {
                name,
                value,
                cause,
                request,
            } = read(body)?;
            let cause = cause.map(CauseWire::into_event).transpose()?;
            Event::SignalReceived {
                name: Cow::Owned(name.into_owned()),
                value: payload(body, value),
                cause: cause.map(Box::new),
                request: request.map(|request| request.into()),
            }
        }
        OPERATION_CANCELLED => Event::OperationCancelled {
            operation: operation(body)?,
        },
        CANCEL_REQUESTED => {
            let ReasonBody { reason, is_shown } = read(body)?;
            let reason = reason.into_owned();
            Event::CancelRequested { reason, is_shown }
        }
        COMPLETED => Event::Completed {
            result: payload(body, read::<ResultBody<'_>>(body)?.value),
        },
        FAILED => Event::Failed {
            error: run_failure(body)?,
        },
        CANCELLED => Event::Cancelled {
            error: run_failure(body)?,
        },
        TERMINATED => Event::Terminated {
            reason: read::<ReasonBody<'_>>(body)?.reason.into_owned(),
        },
        TIMED_OUT => Event::TimedOut {
            timeout: read::<TimedOutBody>(body)?.timeout.into_event(),
            next: None,
        },
        PARKED => Event::Parked {
            reason: read::<ParkedWire<'_>>(body)?.into_event(),
        },
        VERSION_CHANGED => Event::VersionChanged {
            version: read::<VersionBody>(body)?.version,
        },
        RESUMED if body.is_empty() => Event::Resumed,
        RESUMED => return Err(EventError::Malformed("bytes left over".into())),
        VALUE_RECORDED => {
            let (name, value) = read::<ValueRecordedBody<'_>>(body)?.into_event(body)?;
            Event::ValueRecorded { name, value }
        }
        UPDATE_ACCEPTED => {
            let UpdateBody { request, name, input } = read(body)?;
            Event::UpdateAccepted {
                request: request.into_owned(),
                name: Cow::Owned(name.into_owned()),
                input: payload(body, input),
            }
        }
        UPDATE_ANSWERED => {
            let AnswerBody { request, answer } = read(body)?;
            Event::UpdateAnswered {
                request: request.into_owned(),
                answer: answer.into_event(body),
            }
        }
        PATCHED => Event::Patched {
            id: Cow::Owned(read::<PatchedBody<'_>>(body)?.id.into_owned()),
        },
        ATTEMPT_STARTED => {
            let AttemptBody { operation, attempt } = read(body)?;
            let operation = OperationId::new(operation);
            Event::AttemptStarted { operation, attempt }
        }
        ATTEMPT_HEARTBEAT => {
            let ValueBody {
                operation,
                attempt,
                value,
            } = read(body)?;
            let (operation, details) = (OperationId::new(operation), payload(body, value));
            Event::AttemptHeartbeat {
                operation,
                attempt,
                details,
            }
        }
        CHILD_SCHEDULED => Event::ChildScheduled(Arc::new(read::<ChildBody<'_>>(body)?.into_event(body)?)),
        CHILD_STARTED => {
            let ChildStartedBody { operation, run } = read(body)?;
            let (operation, run) = (OperationId::new(operation), run_id(run)?);
            Event::ChildStarted { operation, run }
        }
        CHILD_CANCEL_REQUESTED => {
            let ChildCancelBody { operation, reason } = read(body)?;
            Event::ChildCancelRequested {
                operation: OperationId::new(operation),
                reason: reason.into_owned(),
            }
        }
        CHILD_ENDED => {
            let ChildEndedBody { operation, end } = read(body)?;
            Event::ChildEnded {
                operation: OperationId::new(operation),
                end: end.into_event(body),
            }
        }
        CONTINUED_AS_NEW => {
            let ContinuedBody {
                run,
                workflow,
                input,
                failed,
                reset,
                timed_out,
            } = read(body)?;
            if let Some(timeout) = timed_out {
                return Ok(Event::TimedOut {
                    timeout: timeout.into_event(),
                    next: Some(run_id(run)?),
                });
            }
            if let Some(ResetWire { to, reason }) = reset {
                return Ok(Event::Reset {
                    run: run_id(run)?,
                    to: Sequence::new(to),
                    reason: reason.into_owned(),
                });
            }
            Event::ContinuedAsNew {
                run: run_id(run)?,
                workflow: Cow::Owned(workflow.into_owned()),
                input: payload(body, input),
                failed: failed.map(|failed| Box::new(failed.into_event(body))),
            }
        }
        PUBLISH_SCHEDULED => {
            Event::PublishScheduled(Arc::new(read::<PublishBody<'_>>(body)?.into_event(body)))
        }
        PUBLISH_PARKED => Event::PublishParked {
            operation: operation(body)?,
        },
        PUBLISHED => {
            let PublishedBody {
                operation,
                error,
                is_unknown,
            } = read(body)?;
            let outcome = if is_unknown {
                PublishOutcome::Unknown
            } else {
                PublishOutcome::Taken
            };
            Event::Published {
                operation: OperationId::new(operation),
                outcome: error.map_or(Ok(outcome), |error| Err(error.into_owned())),
            }
        }
        RECEIVE_SCHEDULED => Event::ReceiveScheduled(Arc::new(read::<ReceiveBody<'_>>(body)?.into_event())),
        RECORD_RECEIVED => {
            let (operation, record) = read::<ReceivedBody<'_>>(body)?.into_event(body)?;
            Event::RecordReceived { operation, record }
        }
        PROMISE_MADE => Event::PromiseMade {
            operation: operation(body)?,
        },
        PROMISE_SETTLED => {
            let SettledBody { operation, end } = read(body)?;
            Event::PromiseSettled {
                operation: OperationId::new(operation),
                end: end.into_event(body),
            }
        }
        SIGNAL_SCHEDULED => {
            let scheduled = read::<SignalScheduledBody<'_>>(body)?.into_event(body)?;
            Event::SignalScheduled(Arc::new(scheduled))
        }
        SIGNAL_SENT => {
            let (operation, outcome) = read::<SignalSentBody<'_>>(body)?.into_event();
            Event::SignalSent { operation, outcome }
        }
        RUN_SIGNAL_RECEIVED => {
            let RunSignalBody { sender, name, value } = read(body)?;
            Event::RunSignalReceived {
                sender: Box::new(sender.into_event()?),
                name: Cow::Owned(name.into_owned()),
                value: payload(body, value),
            }
        }
        COMMAND_PERFORMED => Event::CommandPerformed(read::<CommandBody<'_>>(body)?.into_event(body)),
        CHECKPOINTED => Event::Checkpointed(read::<CheckpointBody<'_>>(body)?.into_event(body)),
        unknown => return Err(EventError::UnknownKind(unknown)),
    })
}

fn write<T: Serialize>(out: &mut Vec<u8>, body: &T) -> Result<(), EventError> {
    rmp_serde::encode::write_named(out, body).map_err(|error| EventError::Malformed(error.to_string()))
}

fn read<'a, T: Deserialize<'a>>(body: &'a Bytes) -> Result<T, EventError> {
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(body.as_ref());
    let value =
        T::deserialize(&mut deserializer).map_err(|error| EventError::Malformed(error.to_string()))?;
    // Reading a further value fails with "no marker" only at the end of the bytes. A bool is read because it is nothing but a
    // marker; reading a list would also read its entries, and miss an error in them.
    match bool::deserialize(&mut deserializer) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(value),
        Ok(_) | Err(_) => Err(EventError::Malformed("bytes are left over".into())),
    }
}

fn operation(body: &Bytes) -> Result<OperationId, EventError> {
    Ok(OperationId::new(read::<OperationBody>(body)?.operation))
}

fn run_failure(body: &Bytes) -> Result<RunFailure, EventError> {
    let RunFailureBody {
        error,
        message,
        is_cancelled,
    } = read(body)?;
    Ok(RunFailure {
        error: payload(body, error),
        message: message.into_owned(),
        is_cancelled,
    })
}

#[cfg(test)]
mod tests;
