//! The bodies of events that tie runs to each other: children, and runs that continue others.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrun_core::{Cause, InstanceId, RunId, Sequence, SpanId, Timestamp, TraceContext, TraceId};
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes as Raw};

use super::body::{RetryWire, micros};
use super::parts::{RecordedWire, payload, raw};
use super::receiving::TakenWire;
use super::signalling::{senders_of_bytes, senders_to_bytes};
use crate::event::{
    ChildFailure, ChildScheduled, EventError, FormerRun, Origin, Parent, ParentClose, RunFailure, RunTimeout,
    RunTimeouts, RunTry, StartTimeouts,
};
use crate::{OperationId, Payload};

/// The run with these bits.
pub(super) fn run_id(bits: u128) -> Result<RunId, EventError> {
    RunId::from_bits(bits).ok_or_else(|| EventError::Malformed("a run of no partition".into()))
}

#[derive(Serialize, Deserialize)]
pub(super) struct OriginWire<'a> {
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    parent: Option<ParentWire>,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    continued: Option<u128>,
    #[serde(rename = "e", default, skip_serializing_if = "Vec::is_empty")]
    formers: Vec<(u128, u64)>,
    #[serde(rename = "b", borrow, default, skip_serializing_if = "Option::is_none")]
    began_as: Option<Cow<'a, str>>,
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    cause: Option<CauseWire>,
    #[serde(rename = "g", borrow, default, skip_serializing_if = "Option::is_none")]
    triggered_by: Option<Cow<'a, str>>,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    trace: Option<TraceWire>,
    #[serde(rename = "s", borrow, default, skip_serializing_if = "Vec::is_empty")]
    signals: Vec<(Cow<'a, str>, &'a Raw)>,
    #[serde(rename = "a", borrow, default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<(Cow<'a, str>, RecordedWire<'a>)>,
    #[serde(rename = "r", default, skip_serializing_if = "no_bytes")]
    senders: ByteBuf,
    #[serde(rename = "q", default, skip_serializing_if = "Vec::is_empty")]
    signal_requests: Vec<Cow<'a, str>>,
    #[serde(rename = "d", borrow, default, skip_serializing_if = "Vec::is_empty")]
    taken: Vec<TakenWire<'a>>,
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    start_at: Option<u64>,
    #[serde(rename = "y", default, skip_serializing_if = "Option::is_none")]
    run_try: Option<RunTryWire>,
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    timeouts: Option<RunTimeoutsWire>,
}

/// When a run is out of time, in microseconds.
#[derive(Serialize, Deserialize)]
struct RunTimeoutsWire {
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    run: Option<u64>,
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    chain_ends: Option<u64>,
}

impl RunTimeoutsWire {
    fn of(timeouts: &RunTimeouts) -> Self {
        Self {
            run: timeouts.run.map(micros),
            since: timeouts.since.map(Timestamp::as_micros),
            chain_ends: timeouts.chain_ends.map(Timestamp::as_micros),
        }
    }

    fn into_event(self) -> Box<RunTimeouts> {
        Box::new(RunTimeouts {
            run: self.run.map(Duration::from_micros),
            since: self.since.map(Timestamp::from_micros),
            chain_ends: self.chain_ends.map(Timestamp::from_micros),
        })
    }
}

/// How long a child may take, in microseconds.
#[derive(Serialize, Deserialize)]
struct StartTimeoutsWire {
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    run: Option<u64>,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    chain: Option<u64>,
}

/// Which timeout of a run passed.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) enum RunTimeoutWire {
    #[serde(rename = "r")]
    Run,
    #[serde(rename = "c")]
    Chain,
}

impl RunTimeoutWire {
    pub(super) fn of(timeout: RunTimeout) -> Self {
        match timeout {
            RunTimeout::Run => Self::Run,
            RunTimeout::Chain => Self::Chain,
        }
    }

    pub(super) fn into_event(self) -> RunTimeout {
        match self {
            Self::Run => RunTimeout::Run,
            Self::Chain => RunTimeout::Chain,
        }
    }
}

/// The end of a run that was out of time, and is not tried again.
#[derive(Serialize, Deserialize)]
pub(super) struct TimedOutBody {
    #[serde(rename = "t")]
    pub(super) timeout: RunTimeoutWire,
}

#[derive(Serialize, Deserialize)]
struct RunTryWire {
    #[serde(rename = "n")]
    number: u32,
    #[serde(rename = "r")]
    retry: RetryWire,
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    signals_len: Option<u32>,
}

impl RunTryWire {
    fn of(run_try: &RunTry) -> Self {
        Self {
            number: run_try.number,
            retry: RetryWire::of(&run_try.retry),
            since: run_try.since.map(Timestamp::as_micros),
            signals_len: run_try.signals_len,
        }
    }

    fn into_event(self) -> Box<RunTry> {
        Box::new(RunTry {
            number: self.number,
            retry: self.retry.into_event(),
            since: self.since.map(Timestamp::from_micros),
            signals_len: self.signals_len,
        })
    }
}

pub(super) fn no_bytes(bytes: &ByteBuf) -> bool {
    bytes.is_empty()
}

#[derive(Serialize, Deserialize)]
pub(super) struct CauseWire {
    #[serde(rename = "r")]
    run: u128,
    #[serde(rename = "o")]
    operation: u32,
}

impl CauseWire {
    pub(super) fn of(cause: Cause) -> Self {
        Self {
            run: cause.run.bits(),
            operation: cause.operation,
        }
    }

    pub(super) fn into_event(self) -> Result<Cause, EventError> {
        Ok(Cause {
            run: run_id(self.run)?,
            operation: self.operation,
        })
    }
}

#[derive(Serialize, Deserialize)]
struct TraceWire {
    #[serde(rename = "t")]
    trace: u128,
    #[serde(rename = "s")]
    span: u64,
    #[serde(rename = "f")]
    flags: u8,
}

impl TraceWire {
    fn of(trace: &TraceContext) -> Self {
        Self {
            trace: trace.trace_id().bits(),
            span: trace.span_id().bits(),
            flags: trace.flags(),
        }
    }

    fn into_event(self) -> Result<TraceContext, EventError> {
        let zero = || EventError::Malformed("a trace or a span without an id".into());
        let trace = TraceId::from_bits(self.trace).ok_or_else(zero)?;
        let span = SpanId::from_bits(self.span).ok_or_else(zero)?;
        Ok(TraceContext::new(trace, span, self.flags))
    }
}

#[derive(Serialize, Deserialize)]
struct ParentWire {
    #[serde(rename = "r")]
    run: u128,
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "c")]
    on_close: CloseWire,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum CloseWire {
    #[serde(rename = "c")]
    Cancel,
    #[serde(rename = "t")]
    Terminate,
    #[serde(rename = "a")]
    Abandon,
}

impl CloseWire {
    fn of(on_close: ParentClose) -> Self {
        match on_close {
            ParentClose::Cancel => Self::Cancel,
            ParentClose::Terminate => Self::Terminate,
            ParentClose::Abandon => Self::Abandon,
        }
    }

    fn into_event(self) -> ParentClose {
        match self {
            Self::Cancel => ParentClose::Cancel,
            Self::Terminate => ParentClose::Terminate,
            Self::Abandon => ParentClose::Abandon,
        }
    }
}

impl<'a> OriginWire<'a> {
    pub(super) fn of(origin: &'a Origin) -> Self {
        let signals = origin.signals.iter();
        let answers = origin.answers.iter();
        Self {
            parent: origin.parent.map(|parent| ParentWire {
                run: parent.run.bits(),
                operation: parent.operation.get(),
                on_close: CloseWire::of(parent.on_close),
            }),
            continued: origin.continued.map(RunId::bits),
            formers: origin
                .formers
                .iter()
                .map(|former| (former.run.bits(), former.to.get()))
                .collect(),
            cause: origin.cause.map(CauseWire::of),
            triggered_by: origin.triggered_by.as_deref().map(Cow::Borrowed),
            trace: origin.trace.as_ref().map(TraceWire::of),
            began_as: origin.began_as.as_deref().map(Cow::Borrowed),
            signals: signals
                .map(|(name, value)| (Cow::Borrowed(&**name), raw(value)))
                .collect(),
            answers: answers
                .map(|(request, answer)| (Cow::Borrowed(&**request), RecordedWire::of(answer)))
                .collect(),
            taken: origin.taken.iter().map(TakenWire::of).collect(),
            senders: ByteBuf::from(senders_to_bytes(&origin.senders)),
            signal_requests: origin
                .signal_requests
                .iter()
                .map(|request| Cow::Borrowed(&**request))
                .collect(),
            start_at: origin.start_at.map(Timestamp::as_micros),
            run_try: origin.run_try.as_deref().map(RunTryWire::of),
            timeouts: origin.timeouts.as_deref().map(RunTimeoutsWire::of),
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> Result<Arc<Origin>, EventError> {
        let parent = self.parent.map(|parent| {
            Ok::<_, EventError>(Parent {
                run: run_id(parent.run)?,
                operation: OperationId::new(parent.operation),
                on_close: parent.on_close.into_event(),
            })
        });
        let signals = self.signals.into_iter();
        let answers = self.answers.into_iter();
        let formers = self.formers.into_iter().map(|(run, to)| {
            let (run, to) = (run_id(run)?, Sequence::new(to));
            Ok(FormerRun { run, to })
        });
        Ok(Arc::new(Origin {
            parent: parent.transpose()?,
            continued: self.continued.map(run_id).transpose()?,
            formers: formers.collect::<Result<_, EventError>>()?,
            cause: self.cause.map(CauseWire::into_event).transpose()?,
            triggered_by: self.triggered_by.map(|trigger| trigger.into()),
            trace: self.trace.map(TraceWire::into_event).transpose()?,
            began_as: self.began_as.map(|name| Cow::Owned(name.into_owned())),
            signals: signals
                .map(|(name, value)| (Cow::Owned(name.into_owned()), payload(body, value)))
                .collect(),
            answers: answers
                .map(|(request, answer)| (request.into_owned(), answer.into_event(body)))
                .collect(),
            taken: self.taken.into_iter().map(TakenWire::into_event).collect(),
            senders: senders_of_bytes(&self.senders)?,
            signal_requests: self.signal_requests.into_iter().map(Cow::into_owned).collect(),
            start_at: self.start_at.map(Timestamp::from_micros),
            run_try: self.run_try.map(RunTryWire::into_event),
            timeouts: self.timeouts.map(RunTimeoutsWire::into_event),
        }))
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ChildBody<'a> {
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "w", borrow)]
    workflow: Cow<'a, str>,
    #[serde(rename = "n", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "i", borrow)]
    input: &'a Raw,
    #[serde(rename = "c")]
    on_close: CloseWire,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    not_before: Option<u64>,
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    timeouts: Option<StartTimeoutsWire>,
}

impl<'a> ChildBody<'a> {
    pub(super) fn of(scheduled: &'a ChildScheduled) -> Self {
        Self {
            operation: scheduled.operation.get(),
            workflow: Cow::Borrowed(&scheduled.workflow),
            id: Cow::Borrowed(scheduled.id.as_str()),
            input: raw(&scheduled.input),
            on_close: CloseWire::of(scheduled.on_close),
            not_before: scheduled.not_before.map(Timestamp::as_micros),
            timeouts: scheduled.timeouts.as_deref().map(|timeouts| StartTimeoutsWire {
                run: timeouts.run.map(micros),
                chain: timeouts.chain.map(micros),
            }),
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> Result<ChildScheduled, EventError> {
        let id = InstanceId::new(&self.id).map_err(|error| EventError::Malformed(error.to_string()))?;
        Ok(ChildScheduled {
            operation: OperationId::new(self.operation),
            workflow: Cow::Owned(self.workflow.into_owned()),
            id,
            input: payload(body, self.input),
            on_close: self.on_close.into_event(),
            not_before: self.not_before.map(Timestamp::from_micros),
            timeouts: self.timeouts.map(|timeouts| {
                Box::new(StartTimeouts {
                    run: timeouts.run.map(Duration::from_micros),
                    chain: timeouts.chain.map(Duration::from_micros),
                })
            }),
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ChildStartedBody {
    #[serde(rename = "o")]
    pub(super) operation: u32,
    #[serde(rename = "r")]
    pub(super) run: u128,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ChildCancelBody<'a> {
    #[serde(rename = "o")]
    pub(super) operation: u32,
    #[serde(rename = "r", borrow)]
    pub(super) reason: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ChildEndedBody<'a> {
    #[serde(rename = "o")]
    pub(super) operation: u32,
    #[serde(rename = "e", borrow)]
    pub(super) end: ChildEndWire<'a>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum ChildEndWire<'a> {
    #[serde(rename = "v")]
    Value(#[serde(borrow)] &'a Raw),
    #[serde(rename = "f")]
    Failed(#[serde(borrow)] ErrorWire<'a>),
    #[serde(rename = "c")]
    Cancelled(#[serde(borrow)] ErrorWire<'a>),
    #[serde(rename = "t")]
    Terminated(#[serde(borrow)] Cow<'a, str>),
    #[serde(rename = "x")]
    TimedOut(RunTimeoutWire),
    #[serde(rename = "n")]
    NotStarted(#[serde(borrow)] Cow<'a, str>),
}

#[derive(Serialize, Deserialize)]
pub(super) struct ErrorWire<'a> {
    #[serde(rename = "e", borrow)]
    error: &'a Raw,
    #[serde(rename = "m", borrow)]
    message: Cow<'a, str>,
    #[serde(rename = "c", default, skip_serializing_if = "std::ops::Not::not")]
    is_cancelled: bool,
}

impl<'a> ErrorWire<'a> {
    pub(super) fn of(failure: &'a RunFailure) -> Self {
        Self {
            error: raw(&failure.error),
            message: Cow::Borrowed(&failure.message),
            is_cancelled: failure.is_cancelled,
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> RunFailure {
        RunFailure {
            error: payload(body, self.error),
            message: self.message.into_owned(),
            is_cancelled: self.is_cancelled,
        }
    }
}

impl<'a> ChildEndWire<'a> {
    pub(super) fn of(end: &'a Result<Payload, ChildFailure>) -> Self {
        match end {
            Ok(value) => Self::Value(raw(value)),
            Err(ChildFailure::Failed(failure)) => Self::Failed(ErrorWire::of(failure)),
            Err(ChildFailure::Cancelled(failure)) => Self::Cancelled(ErrorWire::of(failure)),
            Err(ChildFailure::Terminated { reason }) => Self::Terminated(Cow::Borrowed(reason)),
            Err(ChildFailure::TimedOut(timeout)) => Self::TimedOut(RunTimeoutWire::of(*timeout)),
            Err(ChildFailure::NotStarted { message }) => Self::NotStarted(Cow::Borrowed(message)),
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> Result<Payload, ChildFailure> {
        match self {
            Self::Value(value) => Ok(payload(body, value)),
            Self::Failed(error) => Err(ChildFailure::Failed(error.into_event(body))),
            Self::Cancelled(error) => Err(ChildFailure::Cancelled(error.into_event(body))),
            Self::Terminated(reason) => Err(ChildFailure::Terminated {
                reason: reason.into_owned(),
            }),
            Self::TimedOut(timeout) => Err(ChildFailure::TimedOut(timeout.into_event())),
            Self::NotStarted(message) => Err(ChildFailure::NotStarted {
                message: message.into_owned(),
            }),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ContinuedBody<'a> {
    #[serde(rename = "r")]
    pub(super) run: u128,
    #[serde(rename = "w", borrow)]
    pub(super) workflow: Cow<'a, str>,
    #[serde(rename = "i", borrow)]
    pub(super) input: &'a Raw,
    #[serde(rename = "f", borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<ErrorWire<'a>>,
    #[serde(rename = "e", borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) reset: Option<ResetWire<'a>>,
    /// Which timeout passed, of a run that is tried again for that. It has no workflow and no input either.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub(super) timed_out: Option<RunTimeoutWire>,
}

/// How a run was reset. It is stored in the event of a run that continues as new, without a workflow and an input: releases
/// that do not know resets read that the run continues in another, which is true.
#[derive(Serialize, Deserialize)]
pub(super) struct ResetWire<'a> {
    #[serde(rename = "t")]
    pub(super) to: u64,
    #[serde(rename = "m", borrow)]
    pub(super) reason: Cow<'a, str>,
}
