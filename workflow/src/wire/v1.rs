//! Version 1: the body of each record is a MessagePack map with short keys, so that a field can
//! be added; the kind stands in the record's header, which belongs to the journal.
//!
//! The kinds are part of the format: numbers are never reused.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrun_core::{InstanceId, Timestamp};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes as Raw;

use crate::event::{
    ActivityFailure, ActivityScheduled, Bounds, Event, EventError, ParkReason, RunFailure, Started,
};
use crate::{Nondeterminism, OperationId, Payload, Retry, TimeoutKind};

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
        Event::ValueRecorded { .. } => VALUE_RECORDED,
        Event::Patched { .. } => PATCHED,
        Event::UpdateAccepted { .. } => UPDATE_ACCEPTED,
        Event::UpdateAnswered { .. } => UPDATE_ANSWERED,
        Event::AttemptHeartbeat { .. } => ATTEMPT_HEARTBEAT,
    }
}

/// Appends the event's body to `out`.
///
/// # Errors
/// Never for events that this crate made; the signature leaves room for a codec that can fail.
pub fn encode(event: &Event, out: &mut Vec<u8>) -> Result<(), EventError> {
    match event {
        Event::Started(started) => write(
            out,
            &StartedBody {
                workflow: Cow::Borrowed(&started.workflow),
                input: raw(&started.input),
                bounds: BoundsWire::of(started.bounds),
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
        Event::TimerFired { operation } | Event::OperationCancelled { operation } => write(
            out,
            &OperationBody {
                operation: operation.get(),
            },
        ),
        Event::SignalReceived { name, value } => write(
            out,
            &SignalBody {
                name: Cow::Borrowed(name),
                value: raw(value),
            },
        ),
        Event::CancelRequested { reason } | Event::Terminated { reason } => write(
            out,
            &ReasonBody {
                reason: Cow::Borrowed(reason),
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
        Event::ValueRecorded { value } => write(out, &RecordedWire::of(value)),
        Event::UpdateAccepted { request, name, input } => write(
            out,
            &UpdateBody {
                request: Cow::Borrowed(request),
                name: Cow::Borrowed(name),
                input: raw(input),
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
        Event::Patched { id } => write(
            out,
            &PatchedBody {
                id: Cow::Borrowed(id),
            },
        ),
    }
}

/// Reads an event back. `opens` is the instance id that the journal keeps with the first record
/// of a run. Payloads share `body`'s memory.
///
/// # Errors
/// When the bytes are no event of this kind, or bytes are left over. Any bytes give a value or
/// an error.
pub fn decode(kind: u8, body: &Bytes, opens: Option<&str>) -> Result<Event, EventError> {
    Ok(match kind {
        STARTED => {
            let id = opens.ok_or_else(|| EventError::Malformed("a first event without an id".into()))?;
            let id = InstanceId::new(id).map_err(|error| EventError::Malformed(error.to_string()))?;
            let StartedBody {
                workflow,
                input,
                bounds,
            } = read(body)?;
            Event::Started(Started {
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
            let SignalBody { name, value } = read(body)?;
            Event::SignalReceived {
                name: Cow::Owned(name.into_owned()),
                value: payload(body, value),
            }
        }
        OPERATION_CANCELLED => Event::OperationCancelled {
            operation: operation(body)?,
        },
        CANCEL_REQUESTED => Event::CancelRequested {
            reason: read::<ReasonBody<'_>>(body)?.reason.into_owned(),
        },
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
        PARKED => Event::Parked {
            reason: read::<ParkedWire<'_>>(body)?.into_event(),
        },
        RESUMED if body.is_empty() => Event::Resumed,
        RESUMED => return Err(EventError::Malformed("bytes left over".into())),
        VALUE_RECORDED => Event::ValueRecorded {
            value: read::<RecordedWire<'_>>(body)?.into_event(body),
        },
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
    // Only at the end of the bytes is there no marker of a further value.
    match IgnoredAny::deserialize(&mut deserializer) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(value),
        Ok(IgnoredAny) | Err(_) => Err(EventError::Malformed("bytes are left over".into())),
    }
}

fn raw(payload: &Payload) -> &Raw {
    Raw::new(payload.as_bytes())
}

/// The payload at `value`, which lies inside `body`, sharing its memory.
fn payload(body: &Bytes, value: &Raw) -> Payload {
    Payload::from_bytes(body.slice_ref(value.as_ref()))
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

#[derive(Serialize, Deserialize)]
struct StartedBody<'a> {
    #[serde(rename = "w", borrow)]
    workflow: Cow<'a, str>,
    #[serde(rename = "i", borrow)]
    input: &'a Raw,
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    bounds: Option<BoundsWire>,
}

/// Bounds that are not the default ones.
#[derive(Serialize, Deserialize)]
struct BoundsWire {
    #[serde(rename = "b")]
    payload_bytes_max: u64,
    #[serde(rename = "o")]
    pending_len_max: u64,
}

impl BoundsWire {
    fn of(bounds: Bounds) -> Option<Self> {
        (bounds != Bounds::DEFAULT).then_some(Self {
            payload_bytes_max: u64::try_from(bounds.payload_bytes_max).unwrap_or(u64::MAX),
            pending_len_max: u64::try_from(bounds.pending_len_max).unwrap_or(u64::MAX),
        })
    }

    fn into_event(self) -> Bounds {
        Bounds {
            payload_bytes_max: usize::try_from(self.payload_bytes_max).unwrap_or(usize::MAX),
            pending_len_max: usize::try_from(self.pending_len_max).unwrap_or(usize::MAX),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct ScheduledBody<'a> {
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "n", borrow)]
    activity: Cow<'a, str>,
    #[serde(
        rename = "q",
        default = "default_queue",
        skip_serializing_if = "is_default_queue",
        borrow
    )]
    queue: Cow<'a, str>,
    #[serde(rename = "i", borrow)]
    input: &'a Raw,
    #[serde(rename = "e")]
    epoch: u64,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    retry: Option<RetryWire>,
    #[serde(rename = "t")]
    start_to_close_us: u64,
    #[serde(rename = "ts", default, skip_serializing_if = "Option::is_none")]
    schedule_to_start_us: Option<u64>,
    #[serde(rename = "tc", default, skip_serializing_if = "Option::is_none")]
    schedule_to_close_us: Option<u64>,
    #[serde(rename = "th", default, skip_serializing_if = "Option::is_none")]
    heartbeat_us: Option<u64>,
}

/// A retry policy that is not the default one.
#[derive(Serialize, Deserialize)]
struct RetryWire {
    #[serde(rename = "n")]
    attempts_max: u32,
    #[serde(rename = "f")]
    first_pause_us: u64,
    #[serde(rename = "m")]
    pause_max_us: u64,
}

fn default_queue() -> Cow<'static, str> {
    Cow::Borrowed(crate::DEFAULT_QUEUE)
}

fn is_default_queue(queue: &str) -> bool {
    queue == crate::DEFAULT_QUEUE
}

/// Microseconds, rounded up: a timeout of a nanosecond must not become one of zero.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

impl<'a> ScheduledBody<'a> {
    fn of(scheduled: &'a ActivityScheduled) -> Self {
        let retry = (scheduled.retry != Retry::exponential()).then_some(RetryWire {
            attempts_max: scheduled.retry.attempts_max,
            first_pause_us: micros(scheduled.retry.first_pause),
            pause_max_us: micros(scheduled.retry.pause_max),
        });
        Self {
            operation: scheduled.operation.get(),
            activity: Cow::Borrowed(&scheduled.activity),
            queue: Cow::Borrowed(&scheduled.queue),
            input: raw(&scheduled.input),
            epoch: scheduled.epoch,
            retry,
            start_to_close_us: micros(scheduled.start_to_close),
            schedule_to_start_us: scheduled.schedule_to_start.map(micros),
            schedule_to_close_us: scheduled.schedule_to_close.map(micros),
            heartbeat_us: scheduled.heartbeat.map(micros),
        }
    }

    fn into_event(self, body: &Bytes) -> ActivityScheduled {
        let retry = self.retry.map_or_else(Retry::exponential, |wire| {
            Retry::exponential()
                .attempts(wire.attempts_max)
                .first_pause(Duration::from_micros(wire.first_pause_us))
                .pause_max(Duration::from_micros(wire.pause_max_us))
        });
        ActivityScheduled {
            operation: OperationId::new(self.operation),
            activity: Cow::Owned(self.activity.into_owned()),
            queue: if is_default_queue(&self.queue) {
                default_queue()
            } else {
                Cow::Owned(self.queue.into_owned())
            },
            input: payload(body, self.input),
            retry,
            start_to_close: Duration::from_micros(self.start_to_close_us),
            schedule_to_start: self.schedule_to_start_us.map(Duration::from_micros),
            schedule_to_close: self.schedule_to_close_us.map(Duration::from_micros),
            heartbeat: self.heartbeat_us.map(Duration::from_micros),
            epoch: self.epoch,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct ValueBody<'a> {
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "a")]
    attempt: u32,
    #[serde(rename = "v", borrow)]
    value: &'a Raw,
}

#[derive(Serialize, Deserialize)]
struct FailureBody<'a> {
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "a")]
    attempt: u32,
    #[serde(rename = "f", borrow)]
    failure: FailureWire<'a>,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    retry_at: Option<u64>,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
}

#[derive(Serialize, Deserialize)]
enum FailureWire<'a> {
    #[serde(rename = "f")]
    Failed {
        #[serde(rename = "e", borrow)]
        error: &'a Raw,
        #[serde(rename = "m", borrow)]
        message: Cow<'a, str>,
    },
    #[serde(rename = "t")]
    TimedOut(TimeoutWire),
    #[serde(rename = "p")]
    Panicked(#[serde(borrow)] Cow<'a, str>),
    #[serde(rename = "u")]
    Unreadable(#[serde(borrow)] Cow<'a, str>),
}

#[derive(Serialize, Deserialize)]
enum TimeoutWire {
    #[serde(rename = "a")]
    StartToClose,
    #[serde(rename = "b")]
    ScheduleToStart,
    #[serde(rename = "c")]
    ScheduleToClose,
    #[serde(rename = "h")]
    Heartbeat,
}

impl TimeoutWire {
    fn of(kind: TimeoutKind) -> Self {
        match kind {
            TimeoutKind::StartToClose => Self::StartToClose,
            TimeoutKind::ScheduleToStart => Self::ScheduleToStart,
            TimeoutKind::ScheduleToClose => Self::ScheduleToClose,
            TimeoutKind::Heartbeat => Self::Heartbeat,
        }
    }

    fn into_event(self) -> TimeoutKind {
        match self {
            Self::StartToClose => TimeoutKind::StartToClose,
            Self::ScheduleToStart => TimeoutKind::ScheduleToStart,
            Self::ScheduleToClose => TimeoutKind::ScheduleToClose,
            Self::Heartbeat => TimeoutKind::Heartbeat,
        }
    }
}

impl<'a> FailureWire<'a> {
    fn of(failure: &'a ActivityFailure) -> Self {
        match failure {
            ActivityFailure::Failed { error, message } => Self::Failed {
                error: raw(error),
                message: Cow::Borrowed(message),
            },
            ActivityFailure::TimedOut(kind) => Self::TimedOut(TimeoutWire::of(*kind)),
            ActivityFailure::Panicked { message } => Self::Panicked(Cow::Borrowed(message)),
            ActivityFailure::Unreadable { message } => Self::Unreadable(Cow::Borrowed(message)),
        }
    }

    fn into_event(self, body: &Bytes) -> ActivityFailure {
        match self {
            Self::Failed { error, message } => ActivityFailure::Failed {
                error: payload(body, error),
                message: message.into_owned(),
            },
            Self::TimedOut(kind) => ActivityFailure::TimedOut(kind.into_event()),
            Self::Panicked(message) => ActivityFailure::Panicked {
                message: message.into_owned(),
            },
            Self::Unreadable(message) => ActivityFailure::Unreadable {
                message: message.into_owned(),
            },
        }
    }
}

#[derive(Serialize, Deserialize)]
struct TimerBody {
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "d")]
    deadline: u64,
}

#[derive(Serialize, Deserialize)]
struct OperationBody {
    #[serde(rename = "o")]
    operation: u32,
}

#[derive(Serialize, Deserialize)]
struct SignalBody<'a> {
    #[serde(rename = "n", borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "v", borrow)]
    value: &'a Raw,
}

#[derive(Serialize, Deserialize)]
enum RecordedWire<'a> {
    #[serde(rename = "v")]
    Value(#[serde(borrow)] &'a Raw),
    #[serde(rename = "e")]
    Error(#[serde(borrow)] Cow<'a, str>),
}

impl<'a> RecordedWire<'a> {
    fn of(value: &'a Result<Payload, String>) -> Self {
        match value {
            Ok(value) => Self::Value(raw(value)),
            Err(message) => Self::Error(Cow::Borrowed(message)),
        }
    }

    fn into_event(self, body: &Bytes) -> Result<Payload, String> {
        match self {
            Self::Value(value) => Ok(payload(body, value)),
            Self::Error(message) => Err(message.into_owned()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct UpdateBody<'a> {
    #[serde(rename = "r", borrow)]
    request: Cow<'a, str>,
    #[serde(rename = "n", borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "i", borrow)]
    input: &'a Raw,
}

#[derive(Serialize, Deserialize)]
struct AnswerBody<'a> {
    #[serde(rename = "r", borrow)]
    request: Cow<'a, str>,
    #[serde(rename = "a", borrow)]
    answer: RecordedWire<'a>,
}

#[derive(Serialize, Deserialize)]
struct PatchedBody<'a> {
    #[serde(rename = "i", borrow)]
    id: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct ReasonBody<'a> {
    #[serde(rename = "r", borrow)]
    reason: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct ResultBody<'a> {
    #[serde(rename = "v", borrow)]
    value: &'a Raw,
}

#[derive(Serialize, Deserialize)]
struct RunFailureBody<'a> {
    #[serde(rename = "e", borrow)]
    error: &'a Raw,
    #[serde(rename = "m", borrow)]
    message: Cow<'a, str>,
    #[serde(rename = "c", default, skip_serializing_if = "std::ops::Not::not")]
    is_cancelled: bool,
}

#[derive(Serialize, Deserialize)]
enum ParkedWire<'a> {
    #[serde(rename = "r")]
    NotRegistered(#[serde(borrow)] Cow<'a, str>),
    #[serde(rename = "p")]
    Panicked {
        #[serde(rename = "m", borrow)]
        message: Cow<'a, str>,
        #[serde(rename = "n")]
        count: u32,
    },
    #[serde(rename = "d")]
    Nondeterminism {
        #[serde(rename = "s")]
        sequence: u64,
        #[serde(rename = "a", borrow)]
        recorded: Cow<'a, str>,
        #[serde(rename = "b", borrow)]
        replayed: Cow<'a, str>,
    },
    #[serde(rename = "s")]
    Stuck(#[serde(borrow)] Cow<'a, str>),
    #[serde(rename = "h")]
    HistoryFull(u64),
}

impl<'a> ParkedWire<'a> {
    fn of(reason: &'a ParkReason) -> Self {
        match reason {
            ParkReason::NotRegistered { workflow } => Self::NotRegistered(Cow::Borrowed(workflow)),
            ParkReason::Panicked { message, count } => Self::Panicked {
                message: Cow::Borrowed(message),
                count: *count,
            },
            ParkReason::Nondeterminism(difference) => Self::Nondeterminism {
                sequence: difference.sequence,
                recorded: Cow::Borrowed(&difference.recorded),
                replayed: Cow::Borrowed(&difference.replayed),
            },
            ParkReason::Stuck { message } => Self::Stuck(Cow::Borrowed(message)),
            ParkReason::HistoryFull { len_max } => Self::HistoryFull(*len_max),
        }
    }

    fn into_event(self) -> ParkReason {
        match self {
            Self::NotRegistered(workflow) => ParkReason::NotRegistered {
                workflow: workflow.into_owned(),
            },
            Self::Panicked { message, count } => ParkReason::Panicked {
                message: message.into_owned(),
                count,
            },
            Self::Nondeterminism {
                sequence,
                recorded,
                replayed,
            } => ParkReason::Nondeterminism(Box::new(Nondeterminism {
                sequence,
                recorded: recorded.into_owned(),
                replayed: replayed.into_owned(),
            })),
            Self::Stuck(message) => ParkReason::Stuck {
                message: message.into_owned(),
            },
            Self::HistoryFull(len_max) => ParkReason::HistoryFull { len_max },
        }
    }
}

#[cfg(test)]
mod tests;
