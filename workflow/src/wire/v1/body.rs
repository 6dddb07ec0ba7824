//! The bodies of version 1, as serde sees them: short keys; default values are left out.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use millrun_core::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_bytes::Bytes as Raw;

use super::family::{CauseWire, OriginWire};
use super::parts::{RecordedWire, payload, raw};
use crate::event::{ActivityFailure, ActivityScheduled, Bounds, EventError, Name, ParkReason, is_zero};
use crate::{Nondeterminism, OperationId, Payload, Retry, TimeoutKind};

#[derive(Serialize, Deserialize)]
pub(super) struct StartedBody<'a> {
    #[serde(rename = "w", borrow)]
    pub(super) workflow: Cow<'a, str>,
    #[serde(rename = "i", borrow)]
    pub(super) input: &'a Raw,
    /// The version of the code; ignored by releases without versions.
    #[serde(rename = "v", default, skip_serializing_if = "is_zero")]
    pub(super) version: u32,
    /// Left out by releases that showed the code the host's time unchanged.
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub(super) not_before: Option<u64>,
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    pub(super) bounds: Option<BoundsWire>,
    #[serde(rename = "o", borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<OriginWire<'a>>,
}

/// Bounds other than the default.
#[derive(Serialize, Deserialize)]
pub(super) struct BoundsWire {
    #[serde(rename = "b")]
    pub(super) payload_bytes_max: u64,
    #[serde(rename = "o")]
    pub(super) pending_len_max: u64,
}

impl BoundsWire {
    pub(super) fn of(bounds: Bounds) -> Option<Self> {
        (bounds != Bounds::DEFAULT).then_some(Self {
            payload_bytes_max: u64::try_from(bounds.payload_bytes_max).unwrap_or(u64::MAX),
            pending_len_max: u64::try_from(bounds.pending_len_max).unwrap_or(u64::MAX),
        })
    }

    pub(super) fn into_event(self) -> Bounds {
        Bounds {
            payload_bytes_max: usize::try_from(self.payload_bytes_max).unwrap_or(usize::MAX),
            pending_len_max: usize::try_from(self.pending_len_max).unwrap_or(usize::MAX),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ScheduledBody<'a> {
    #[serde(rename = "o")]
    pub(super) operation: u32,
    #[serde(rename = "n", borrow)]
    pub(super) activity: Cow<'a, str>,
    /// If it is not the default one.
    #[serde(
        rename = "q",
        borrow,
        default,
        deserialize_with = "text",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) queue: Option<Cow<'a, str>>,
    #[serde(rename = "i", borrow)]
    pub(super) input: &'a Raw,
    #[serde(rename = "e")]
    pub(super) epoch: u64,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub(super) retry: Option<RetryWire>,
    #[serde(rename = "k", borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub(super) retry_on: Vec<RetryOnWire<'a>>,
    #[serde(rename = "t")]
    pub(super) start_to_close_us: u64,
    #[serde(rename = "ts", default, skip_serializing_if = "Option::is_none")]
    pub(super) schedule_to_start_us: Option<u64>,
    #[serde(rename = "tc", default, skip_serializing_if = "Option::is_none")]
    pub(super) schedule_to_close_us: Option<u64>,
    #[serde(rename = "th", default, skip_serializing_if = "Option::is_none")]
    pub(super) heartbeat_us: Option<u64>,
}

/// A text that may be left out. It is borrowed: serde borrows a text by itself, but not an optional one.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    let Text(text) = Text::deserialize(deserializer)?;
    Ok(Some(text))
}

/// A retry policy other than the default.
#[derive(Serialize, Deserialize)]
pub(super) struct RetryWire {
    #[serde(rename = "n")]
    pub(super) attempts_max: u32,
    #[serde(rename = "f")]
    pub(super) first_pause_us: u64,
    #[serde(rename = "m")]
    pub(super) pause_max_us: u64,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub(super) elapsed_max_us: Option<u64>,
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    pub(super) growth_percent: Option<u32>,
}

/// The policy for errors of one kind.
#[derive(Serialize, Deserialize)]
pub(super) struct RetryOnWire<'a> {
    #[serde(rename = "k", borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(rename = "r")]
    pub(super) retry: RetryWire,
}

impl RetryWire {
    pub(super) fn of(retry: &Retry) -> Self {
        Self {
            attempts_max: retry.attempts_max,
            first_pause_us: micros(retry.first_pause),
            pause_max_us: micros(retry.pause_max),
            elapsed_max_us: retry.elapsed_max.map(micros),
            growth_percent: (retry.growth_percent != Retry::DOUBLING).then_some(retry.growth_percent),
        }
    }

    pub(super) fn into_event(self) -> Retry {
        let mut retry = Retry::exponential()
            .attempts(self.attempts_max)
            .first_pause(Duration::from_micros(self.first_pause_us))
            .pause_max(Duration::from_micros(self.pause_max_us));
        // The range that `Retry::coefficient` gives.
        retry.growth_percent = self
            .growth_percent
            .map_or(Retry::DOUBLING, |percent| percent.clamp(100, 10_000));
        let elapsed_max = self.elapsed_max_us.map(Duration::from_micros);
        elapsed_max.map_or(retry, |elapsed| retry.elapsed_max(elapsed))
    }
}

/// Microseconds, rounded up: a timeout of a nanosecond must not become one of zero.
pub(super) fn micros(duration: Duration) -> u64 {
    let below_a_second = u64::from(duration.subsec_nanos().div_ceil(1_000));
    let seconds = duration.as_secs().saturating_mul(1_000_000);
    seconds.saturating_add(below_a_second)
}

impl<'a> ScheduledBody<'a> {
    pub(super) fn of(scheduled: &'a ActivityScheduled) -> Self {
        let retry = &scheduled.retry;
        let retry = (*retry != Retry::exponential()).then(|| RetryWire::of(retry));
        let retry_on = scheduled.retry_on.as_deref().map_or_else(Vec::new, |policies| {
            let policies = policies.iter();
            let policies = policies.map(|(kind, retry)| RetryOnWire {
                kind: Cow::Borrowed(kind),
                retry: RetryWire::of(retry),
            });
            policies.collect()
        });
        let queue: &str = &scheduled.queue;
        Self {
            operation: scheduled.operation.get(),
            activity: Cow::Borrowed(&scheduled.activity),
            queue: (queue != crate::DEFAULT_QUEUE).then_some(Cow::Borrowed(queue)),
            input: raw(&scheduled.input),
            epoch: scheduled.epoch,
            retry,
            retry_on,
            start_to_close_us: micros(scheduled.start_to_close),
            schedule_to_start_us: scheduled.schedule_to_start.map(micros),
            schedule_to_close_us: scheduled.schedule_to_close.map(micros),
            heartbeat_us: scheduled.heartbeat.map(micros),
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> ActivityScheduled {
        let retry = self.retry.map_or_else(Retry::exponential, RetryWire::into_event);
        let retry_on = self.retry_on.into_iter();
        let retry_on = retry_on.map(|wire| (Cow::Owned(wire.kind.into_owned()), wire.retry.into_event()));
        let retry_on: Box<[_]> = retry_on.collect();
        ActivityScheduled {
            operation: OperationId::new(self.operation),
            activity: Cow::Owned(self.activity.into_owned()),
            queue: match self.queue {
                Some(queue) if queue != crate::DEFAULT_QUEUE => Cow::Owned(queue.into_owned()),
                _ => Cow::Borrowed(crate::DEFAULT_QUEUE),
            },
            input: payload(body, self.input),
            retry,
            retry_on: (!retry_on.is_empty()).then_some(retry_on),
            start_to_close: Duration::from_micros(self.start_to_close_us),
            schedule_to_start: self.schedule_to_start_us.map(Duration::from_micros),
            schedule_to_close: self.schedule_to_close_us.map(Duration::from_micros),
            heartbeat: self.heartbeat_us.map(Duration::from_micros),
            epoch: self.epoch,
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ValueBody<'a> {
    #[serde(rename = "o")]
    pub(super) operation: u32,
    #[serde(rename = "a")]
    pub(super) attempt: u32,
    #[serde(rename = "v", borrow)]
    pub(super) value: &'a Raw,
}

#[derive(Serialize, Deserialize)]
pub(super) struct FailureBody<'a> {
    #[serde(rename = "o")]
    pub(super) operation: u32,
    #[serde(rename = "a")]
    pub(super) attempt: u32,
    #[serde(rename = "f", borrow)]
    pub(super) failure: FailureWire<'a>,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub(super) retry_at: Option<u64>,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<u64>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum FailureWire<'a> {
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
pub(super) enum TimeoutWire {
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
    pub(super) fn of(kind: TimeoutKind) -> Self {
        match kind {
            TimeoutKind::StartToClose => Self::StartToClose,
            TimeoutKind::ScheduleToStart => Self::ScheduleToStart,
            TimeoutKind::ScheduleToClose => Self::ScheduleToClose,
            TimeoutKind::Heartbeat => Self::Heartbeat,
        }
    }

    pub(super) fn into_event(self) -> TimeoutKind {
        match self {
            Self::StartToClose => TimeoutKind::StartToClose,
            Self::ScheduleToStart => TimeoutKind::ScheduleToStart,
            Self::ScheduleToClose => TimeoutKind::ScheduleToClose,
            Self::Heartbeat => TimeoutKind::Heartbeat,
        }
    }
}

impl<'a> FailureWire<'a> {
    pub(super) fn of(failure: &'a ActivityFailure) -> Self {
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

    pub(super) fn into_event(self, body: &Bytes) -> ActivityFailure {
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
pub(super) struct TimerBody {
    #[serde(rename = "o")]
    pub(super) operation: u32,
    #[serde(rename = "d")]
    pub(super) deadline: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct OperationBody {
    #[serde(rename = "o")]
    pub(super) operation: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct AttemptBody {
    #[serde(rename = "o")]
    pub(super) operation: u32,
    #[serde(rename = "a")]
    pub(super) attempt: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SignalBody<'a> {
    #[serde(rename = "n", borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(rename = "v", borrow)]
    pub(super) value: &'a Raw,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub(super) cause: Option<CauseWire>,
    #[serde(
        rename = "r",
        borrow,
        default,
        deserialize_with = "text",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) request: Option<Cow<'a, str>>,
}

/// As [`RecordedWire`], with a name.
#[derive(Serialize, Deserialize)]
pub(super) struct ValueRecordedBody<'a> {
    #[serde(rename = "v", borrow, default, skip_serializing_if = "Option::is_none")]
    value: Option<&'a Raw>,
    #[serde(
        rename = "e",
        borrow,
        default,
        deserialize_with = "text",
        skip_serializing_if = "Option::is_none"
    )]
    error: Option<Cow<'a, str>>,
    #[serde(
        rename = "n",
        borrow,
        default,
        deserialize_with = "text",
        skip_serializing_if = "Option::is_none"
    )]
    name: Option<Cow<'a, str>>,
}

impl<'a> ValueRecordedBody<'a> {
    pub(super) fn of(name: Option<&'a str>, value: &'a Result<Payload, String>) -> Self {
        Self {
            value: value.as_ref().ok().map(raw),
            error: value
                .as_ref()
                .err()
                .map(|message| Cow::Borrowed(message.as_str())),
            name: name.map(Cow::Borrowed),
        }
    }

    pub(super) fn into_event(
        self,
        body: &Bytes,
    ) -> Result<(Option<Name>, Result<Payload, String>), EventError> {
        let value = match (self.value, self.error) {
            (Some(value), None) => Ok(payload(body, value)),
            (None, Some(message)) => Err(message.into_owned()),
            (Some(_), Some(_)) | (None, None) => {
                let message = "a record is of a value or of an error";
                return Err(EventError::Malformed(message.into()));
            }
        };
        Ok((self.name.map(|name| Cow::Owned(name.into_owned())), value))
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct UpdateBody<'a> {
    #[serde(rename = "r", borrow)]
    pub(super) request: Cow<'a, str>,
    #[serde(rename = "n", borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(rename = "i", borrow)]
    pub(super) input: &'a Raw,
}

#[derive(Serialize, Deserialize)]
pub(super) struct AnswerBody<'a> {
    #[serde(rename = "r", borrow)]
    pub(super) request: Cow<'a, str>,
    #[serde(rename = "a", borrow)]
    pub(super) answer: RecordedWire<'a>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct PatchedBody<'a> {
    #[serde(rename = "i", borrow)]
    pub(super) id: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ReasonBody<'a> {
    #[serde(rename = "r", borrow)]
    pub(super) reason: Cow<'a, str>,
    #[serde(rename = "s", default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_shown: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ResultBody<'a> {
    #[serde(rename = "v", borrow)]
    pub(super) value: &'a Raw,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RunFailureBody<'a> {
    #[serde(rename = "e", borrow)]
    pub(super) error: &'a Raw,
    #[serde(rename = "m", borrow)]
    pub(super) message: Cow<'a, str>,
    #[serde(rename = "c", default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_cancelled: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct VersionBody {
    #[serde(rename = "v")]
    pub(super) version: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) enum ParkedWire<'a> {
    #[serde(rename = "r")]
    NotRegistered(#[serde(borrow)] Cow<'a, str>),
    /// As [`NotRegistered`](Self::NotRegistered), with versions.
    #[serde(rename = "v")]
    NoVersion {
        #[serde(rename = "w", borrow)]
        workflow: Cow<'a, str>,
        #[serde(rename = "v", default, skip_serializing_if = "is_zero")]
        version: u32,
        #[serde(rename = "r", default, skip_serializing_if = "Vec::is_empty")]
        registered: Vec<u32>,
    },
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
    #[serde(rename = "u")]
    Paused(#[serde(borrow)] Cow<'a, str>),
    #[serde(rename = "l")]
    Delayed(u64),
}

impl<'a> ParkedWire<'a> {
    pub(super) fn of(reason: &'a ParkReason) -> Self {
        match reason {
            ParkReason::NotRegistered {
                workflow,
                version: 0,
                registered,
            } if registered.is_empty() => Self::NotRegistered(Cow::Borrowed(workflow)),
            ParkReason::NotRegistered {
                workflow,
                version,
                registered,
            } => Self::NoVersion {
                workflow: Cow::Borrowed(workflow),
                version: *version,
                registered: registered.clone(),
            },
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
            ParkReason::Paused { reason } => Self::Paused(Cow::Borrowed(reason)),
            ParkReason::Delayed { until } => Self::Delayed(until.as_micros()),
        }
    }

    pub(super) fn into_event(self) -> ParkReason {
        match self {
            Self::NotRegistered(workflow) => ParkReason::NotRegistered {
                workflow: workflow.into_owned(),
                version: 0,
                registered: Vec::new(),
            },
            Self::NoVersion {
                workflow,
                version,
                registered,
            } => ParkReason::NotRegistered {
                workflow: workflow.into_owned(),
                version,
                registered,
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
            Self::Paused(reason) => ParkReason::Paused {
                reason: reason.into_owned(),
            },
            Self::Delayed(until) => ParkReason::Delayed {
                until: Timestamp::from_micros(until),
            },
        }
    }
}
