//! How a run began: the content of its first event.

use std::sync::Arc;

use millrun_core::{Cause, InstanceId, RunId, Sequence, Timestamp, TraceContext};
use serde::{Deserialize, Serialize};

use super::{Name, OperationId, RunDeadline, RunTimeouts, StartTimeouts, TakenThrough};
use crate::ledger::request_bytes;
use crate::{Payload, Retry};

/// How a run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// The workflow's name.
    pub workflow: Name,
    /// The user's id of the instance.
    pub id: InstanceId,
    /// The argument.
    pub input: Payload,
    /// The [version](crate::Workflow::version) of the code that the run began with; 0 if none is recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: u32,
    /// What the run stems from, and further options of its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<Origin>>,
    /// The earliest time that the code sees; its time never goes back then. `None` in histories of releases that showed the
    /// host's time unchanged: a replay does the same.
    #[serde(rename = "not_before_us", default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// The limits that the code sees; set when the run begins.
    pub(crate) bounds: Bounds,
}

impl Started {
    /// The run that called it, if it is a child.
    #[must_use]
    pub fn parent(&self) -> Option<Parent> {
        self.origin.as_ref().and_then(|origin| origin.parent)
    }

    /// The run and operation that caused this run: its parent if it is a child, or a run that had it started from outside, by
    /// a publish or by one of its activities. `None` if unknown.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let origin = self.origin.as_ref()?;
        let parent = origin.parent.map(|parent| Cause {
            run: parent.run,
            operation: parent.operation.get(),
        });
        parent.or(origin.cause)
    }

    /// The same start, with its cause.
    #[must_use]
    pub fn caused_by(mut self, cause: Cause) -> Self {
        self.origin_mut().cause = Some(cause);
        self
    }

    /// The same start, with the trigger and record that started the run.
    #[must_use]
    pub fn triggered_by(mut self, trigger: impl Into<Box<str>>) -> Self {
        self.origin_mut().triggered_by = Some(trigger.into());
        self
    }

    fn origin_mut(&mut self) -> &mut Origin {
        Arc::make_mut(self.origin.get_or_insert_default())
    }

    /// The caller's place in a distributed trace, if it has one.
    #[must_use]
    #[inline]
    pub fn trace(&self) -> Option<&TraceContext> {
        self.origin.as_ref()?.trace.as_ref()
    }

    /// The same start, with the caller's place in a distributed trace.
    #[must_use]
    pub fn traced(mut self, trace: TraceContext) -> Self {
        self.origin_mut().trace = Some(trace);
        self
    }

    /// The same start, with code that begins at that time: until then the run is [parked](crate::ParkReason::Delayed), and
    /// its inputs are recorded.
    #[must_use]
    pub fn delayed_until(mut self, at: Timestamp) -> Self {
        self.origin_mut().start_at = Some(at);
        self
    }

    /// The time before which its code does not begin, if its start was [delayed](Self::delayed_until).
    #[must_use]
    #[inline]
    pub fn start_at(&self) -> Option<Timestamp> {
        self.origin.as_ref()?.start_at
    }

    /// The same start, with a retry policy for the whole run: if it fails, another run of its instance begins in the same
    /// way.
    #[must_use]
    pub fn retried(mut self, retry: Retry) -> Self {
        self.origin_mut().run_try = Some(Box::new(RunTry::first(retry)));
        self
    }

    /// The number and policy of this try, if the run has a [retry policy](Self::retried).
    #[must_use]
    #[inline]
    pub fn run_try(&self) -> Option<&RunTry> {
        self.origin.as_ref()?.run_try.as_deref()
    }

    /// As it is, and out of time when these are over, counted from when the code is to begin: after the
    /// [delay](Self::delayed_until) that it has by now, or at `now`.
    #[must_use]
    pub fn timing_out(mut self, timeouts: StartTimeouts, now: Timestamp) -> Self {
        let begins = self.start_at().map_or(now, |start_at| start_at.max(now));
        if let Some(timeouts) = timeouts.beginning_at(begins) {
            self.origin_mut().timeouts = Some(Box::new(timeouts));
        }
        self
    }

    /// When it is out of time, if that is [bounded](Self::timing_out).
    #[must_use]
    #[inline]
    pub fn timeouts(&self) -> Option<&RunTimeouts> {
        self.origin.as_ref()?.timeouts.as_deref()
    }

    /// When the run is out of time, if it began at `began`.
    pub(crate) fn deadline(&self, began: Timestamp) -> Option<RunDeadline> {
        let began = self.start_at().map_or(began, |start_at| start_at.max(began));
        self.timeouts()?.deadline(began)
    }

    /// When the time of its chain was over, if it is by now.
    pub(crate) fn chain_ended(&self, now: Timestamp) -> Option<Timestamp> {
        self.timeouts()?.chain_ends.filter(|ends| *ends <= now)
    }

    /// Has the time of a run that has the events of another count from now on, as it then begins.
    pub(crate) fn count_anew(&mut self, now: Timestamp) {
        if self.timeouts().is_some_and(|timeouts| timeouts.run.is_some()) {
            let since = self.start_at().map_or(now, |start_at| start_at.max(now));
            if let Some(timeouts) = &mut self.origin_mut().timeouts {
                timeouts.since = Some(since);
            }
        }
    }

    /// The workflow that its instance began as. It differs from the run's own workflow if a former run
    /// [continued](crate::WorkflowContext::continue_as_new) as another.
    #[must_use]
    pub fn began_as(&self) -> &Name {
        let began_as = self.origin.as_ref().and_then(|origin| origin.began_as.as_ref());
        began_as.unwrap_or(&self.workflow)
    }

    /// If the run that this one [continues](Origin::continued) was reset: the event up to which this run has that run's
    /// history.
    #[must_use]
    pub fn reset_to(&self) -> Option<Sequence> {
        self.formers().last().map(|former| former.to)
    }

    /// The former runs whose events it has, if it continues one that was reset.
    pub(crate) fn formers(&self) -> &[FormerRun] {
        self.origin.as_ref().map_or(&[], |origin| &origin.formers)
    }

    /// Makes the beginning of the run that has the events of this one up to `to`.
    pub(crate) fn reset_from(&mut self, run: RunId, to: Sequence) {
        let origin = self.origin_mut();
        origin.continued = Some(run);
        // For events that this run has from an earlier run, the earlier run stays named.
        let earlier = origin.formers.iter().find(|former| former.to >= to);
        let run = earlier.map_or(run, |former| former.run);
        origin.formers.retain(|former| former.to < to);
        origin.formers.push(FormerRun { run, to });
    }

    /// Whether the run's code is shown why it is asked to cancel. Releases that began runs without a
    /// [`not_before`](Self::not_before) did not show it, so the code of such a run decides as before.
    pub(crate) fn shows_reasons(&self) -> bool {
        self.not_before.is_some()
    }

    /// The beginning of a run of this workflow.
    #[must_use]
    pub fn new(workflow: impl Into<Name>, id: InstanceId, input: Payload) -> Self {
        Self {
            workflow: workflow.into(),
            id,
            input,
            version: 0,
            origin: None,
            not_before: Some(Timestamp::EPOCH),
            bounds: Bounds::default(),
        }
    }

    /// The same start, with a signal that waits for the code when it begins: both are in one event.
    #[must_use]
    pub fn with_signal(mut self, name: impl Into<Name>, value: Payload) -> Self {
        self.origin_mut().signals.push((name.into(), value));
        self
    }

    /// The same start, with the request of the signal that it [has](Self::with_signal), by which a repetition is recognised.
    #[must_use]
    pub fn with_signal_request(mut self, request: impl Into<String>) -> Self {
        self.origin_mut().signal_requests.push(request.into());
        self
    }
}

/// Whether a version is zero, which is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_zero(version: &u32) -> bool {
    *version == 0
}

/// What a run stems from, and options that few starts have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The run that called it, if it is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The run that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued: Option<RunId>,
    /// If the run that it [continues](Self::continued) was reset: the former runs whose events it has, in order; of each, the
    /// events behind those of the run before it, up to [`to`](FormerRun::to).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formers: Vec<FormerRun>,
    /// The run and operation that started the instance, if it is no child. A run that continues another takes over its cause.
    /// Runs begun by earlier releases have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The trigger and the record of a durable topic that started the run: the name of the trigger, `/`, and the token of the
    /// record. A run that continues another does not take it over. Runs begun by earlier releases have none, nor has a run
    /// that begins with a signal, whose [request](Self::signal_requests) has the same text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triggered_by: Option<Box<str>>,
    /// The run's place in a distributed trace. Its span is that of the caller; of the call, for a child; the run's own, if
    /// the trace begins with it. A run that continues another takes over its place. Runs begun by earlier releases have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// The workflow of the instance's first run, if that is another one. Runs that were continued by earlier versions do not
    /// have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_as: Option<Name>,
    /// The signals that exist before its code begins: those that the former run had not taken, in the order of their arrival
    /// by name, or [the one](Started::with_signal) that started it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<(Name, Payload)>,
    /// The former run's [answers](crate::ANSWERS_CARRIED_BYTES_MAX) to updates, by request, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<(String, Result<Payload, String>)>,
    /// The operations of other runs whose [signals](crate::SENDERS_CARRIED_LEN_MAX) the former run has recorded, the oldest
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub senders: Vec<Cause>,
    /// The former run's places in durable topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<TakenThrough>,
    /// The requests of [signals](crate::SIGNAL_REQUESTS_LEN_MAX) that the former run has recorded, the oldest first, or that
    /// of the signal that started this run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signal_requests: Vec<String>,
    /// The time before which its code does not begin, if its start was [delayed](Started::delayed_until), or it is another
    /// [try](Self::run_try) after a failure. A run that continues another in any other way has none.
    #[serde(rename = "start_at_us", default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// The number and policy of its try, if it has a [retry policy](Started::retried). A run that continues as new begins
    /// with its first try.
    #[serde(rename = "try", default, skip_serializing_if = "Option::is_none")]
    pub run_try: Option<Box<RunTry>>,
    /// When it is [out of time](Started::timing_out), if that is bounded. A run that continues another, or tries it again, has
    /// the time of the chain that is left, and its own anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Box<RunTimeouts>>,
}

/// A run whose events a later one has, because it was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerRun {
    /// The run.
    pub run: RunId,
    /// The last event of this run that the later run has. If the code sees that event, it was shown anew.
    pub to: Sequence,
}

/// A try of a run with a retry policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunTry {
    /// Its number, from 1.
    pub number: u32,
    /// The retry policy.
    pub retry: Retry,
    /// When the first try began; `None` if this is the first.
    #[serde(rename = "since_us", default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How many of the [signals](Origin::signals) the first try began with; `None` for all. The others came later, and are
    /// only there for one try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals_len: Option<u32>,
}

impl RunTry {
    pub(crate) fn first(retry: Retry) -> Self {
        Self {
            number: 1,
            retry: retry.as_stored(),
            since: None,
            signals_len: None,
        }
    }

    /// The signals that the first try began with.
    pub(crate) fn first_signals<'s>(&self, signals: &'s [(Name, Payload)]) -> &'s [(Name, Payload)] {
        let len = self.signals_len.and_then(|len| usize::try_from(len).ok());
        len.and_then(|len| signals.get(..len)).unwrap_or(signals)
    }

    pub(crate) fn again(&self, since: Timestamp) -> Self {
        Self {
            number: self.number.saturating_add(1),
            since: Some(since),
            ..*self
        }
    }
}

impl Origin {
    /// About how many bytes of signals, answers, senders and requests it carries.
    #[must_use]
    pub fn carried_bytes(&self) -> usize {
        let signals = self
            .signals
            .iter()
            .map(|(name, value)| name.len() + value.len() + 16);
        let answers = self.answers.iter();
        let answers = answers.map(|(request, answer)| answer_bytes(request, answer));
        let requests = self.signal_requests.iter().map(|request| request_bytes(request));
        let carried: usize = signals.chain(answers).chain(requests).sum();
        carried + self.senders.len() * SENDER_BYTES
    }
}

/// How many bytes it takes to name the sender of a signal.
const SENDER_BYTES: usize = 20;

/// About how many bytes an answer takes with its request.
pub(crate) fn answer_bytes(request: &str, answer: &Result<Payload, String>) -> usize {
    let len = match answer {
        Ok(value) => value.len(),
        Err(message) => message.len(),
    };
    request.len() + len + 32
}

/// The run that called a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// That run.
    pub run: RunId,
    /// The call.
    pub operation: OperationId,
    /// What happens to the child when the call or the run ends first.
    pub on_close: ParentClose,
}

/// What happens to a child when its parent does not wait for it any more: because the parent has ended, or has dropped the
/// call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParentClose {
    /// It is asked to cancel.
    #[default]
    Cancel,
    /// It is terminated.
    Terminate,
    /// It goes on.
    Abandon,
}

/// The [limits](crate::Limits) that the code sees. A run keeps those it was started with: changed limits would change what
/// the code decides in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) payload_bytes_max: usize,
    pub(crate) pending_len_max: usize,
}

impl Bounds {
    /// Part of the stored format: a history without bounds has these.
    pub(crate) const DEFAULT: Self = Self {
        payload_bytes_max: 1 << 20,
        pending_len_max: 10_000,
    };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::DEFAULT
    }
}
