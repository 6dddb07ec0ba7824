//! How a run began, and what it stems from: what stands in its first event.

use std::sync::Arc;

use millrun_core::{Cause, InstanceId, RunId, Sequence, Timestamp, TraceContext};
use serde::{Deserialize, Serialize};

use super::{Name, OperationId, TakenThrough};
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
    /// The [version](crate::Workflow::version) of the code that the run began with: 0 if it records none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: u32,
    /// What it stems from, if not from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Arc<Origin>>,
    /// The earliest time that the code is shown, which then never goes back. `None` in histories of releases
    /// that showed the host's time as it was: a replay shows the same.
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

    /// The run that caused it, and the operation: of its parent if it is a child, or of a run that had it
    /// started from outside, by what it published or by one of its activities. `None` if nobody said so.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let origin = self.origin.as_ref()?;
        let parent = origin.parent.map(|parent| Cause {
            run: parent.run,
            operation: parent.operation.get(),
        });
        parent.or(origin.cause)
    }

    /// As it is, with what caused it.
    #[must_use]
    pub fn caused_by(mut self, cause: Cause) -> Self {
        self.origin_mut().cause = Some(cause);
        self
    }

    /// The same start, with the trigger and the record that had the run started.
    #[must_use]
    pub fn triggered_by(mut self, trigger: impl Into<Box<str>>) -> Self {
        self.origin_mut().triggered_by = Some(trigger.into());
        self
    }

    fn origin_mut(&mut self) -> &mut Origin {
        Arc::make_mut(self.origin.get_or_insert_default())
    }

    /// The place in a distributed trace of what had the run started, if that said one.
    #[must_use]
    #[inline]
    pub fn trace(&self) -> Option<&TraceContext> {
        self.origin.as_ref()?.trace.as_ref()
    }

    /// As it is, with the place in a distributed trace of what has it started.
    #[must_use]
    pub fn traced(mut self, trace: TraceContext) -> Self {
        self.origin_mut().trace = Some(trace);
        self
    }

    /// As it is, with code that begins at that time: until then the run is
    /// [parked](crate::ParkReason::Delayed), and its inputs are recorded.
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

    /// As it is, tried again by this policy if it fails: from the same beginning, in another run of its instance.
    #[must_use]
    pub fn retried(mut self, retry: Retry) -> Self {
        self.origin_mut().run_try = Some(Box::new(RunTry::first(retry)));
        self
    }

    /// Which try this is, if the run is [tried again](Self::retried) when it fails.
    #[must_use]
    #[inline]
    pub fn run_try(&self) -> Option<&RunTry> {
        self.origin.as_ref()?.run_try.as_deref()
    }

    /// The workflow that its instance began as: another than the run's own if a former run
    /// [continued](crate::WorkflowContext::continue_as_new) as another.
    #[must_use]
    pub fn began_as(&self) -> &Name {
        let began_as = self.origin.as_ref().and_then(|origin| origin.began_as.as_ref());
        began_as.unwrap_or(&self.workflow)
    }

    /// The event of the run that it [continues](Origin::continued) up to which it has that one's history, if that was reset.
    #[must_use]
    pub fn reset_to(&self) -> Option<Sequence> {
        self.formers().last().map(|former| former.to)
    }

    /// The runs whose events it has, if it goes on from one that was reset.
    pub(crate) fn formers(&self) -> &[FormerRun] {
        self.origin.as_ref().map_or(&[], |origin| &origin.formers)
    }

    /// The beginning of the run that has the events of this one up to `to`.
    pub(crate) fn reset_from(&mut self, run: RunId, to: Sequence) {
        let origin = self.origin_mut();
        origin.continued = Some(run);
        // Of events that this run has from another, that one is still the run.
        let earlier = origin.formers.iter().find(|former| former.to >= to);
        let run = earlier.map_or(run, |former| former.run);
        origin.formers.retain(|former| former.to < to);
        origin.formers.push(FormerRun { run, to });
    }

    /// Whether the run's code is shown why it is asked to cancel. The releases that began runs without a
    /// [`not_before`](Self::not_before) did not, and what such a run decides stays what it was.
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

    /// As it is, with a signal that waits for the code when it begins: there is no history that has
    /// the one without the other.
    #[must_use]
    pub fn with_signal(mut self, name: impl Into<Name>, value: Payload) -> Self {
        self.origin_mut().signals.push((name.into(), value));
        self
    }

    /// As it is, with the request under which the signal was sent that it [has](Self::with_signal): the run knows a
    /// repetition by it.
    #[must_use]
    pub fn with_signal_request(mut self, request: impl Into<String>) -> Self {
        self.origin_mut().signal_requests.push(request.into());
        self
    }
}

/// Whether a version is the one that is not written down.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_zero(version: &u32) -> bool {
    *version == 0
}

/// What a run stems from, and what few starts say beside an input.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The run that called it, if it is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The run that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued: Option<RunId>,
    /// The runs whose events it has as its own, if the run that it [continues](Self::continued) was reset: of each those up to
    /// the [event](FormerRun::to) that is named, behind those of the one before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formers: Vec<FormerRun>,
    /// The run, and the operation of it, that had the instance started, if it is no child. A run that
    /// continues another has that one's. Runs begun by earlier releases do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The trigger and the record of a durable topic that had the run started: the name of the trigger, `/`, and the
    /// token of the record. A run that continues another does not have that one's. Runs begun by earlier releases do
    /// not say, nor does one that begins with a signal, whose [request](Self::signal_requests) says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triggered_by: Option<Box<str>>,
    /// The place in a distributed trace of what had it started: the span there is that of the caller, of the call if it
    /// is a child, and the run's own if its trace begins with it. A run that continues another has that one's. Runs
    /// begun by earlier releases do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// The workflow that the first run of the instance was of, if this one is of another. Runs that were
    /// continued by earlier versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_as: Option<Name>,
    /// The signals that are there before its code begins: those that the former run had not taken, in
    /// the order of their arrival by name, or [the one](Started::with_signal) that started it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<(Name, Payload)>,
    /// What the former run [had answered](crate::ANSWERS_CARRIED_BYTES_MAX) to updates, by request, the
    /// oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<(String, Result<Payload, String>)>,
    /// The operations of other runs of which the former run [has had signals](crate::SENDERS_CARRIED_LEN_MAX), the
    /// oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub senders: Vec<Cause>,
    /// How far the former run has come in durable topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<TakenThrough>,
    /// The requests under which the former run [has had signals](crate::SIGNAL_REQUESTS_LEN_MAX), the oldest
    /// first, or that of the signal that started it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signal_requests: Vec<String>,
    /// The time before which its code does not begin, if its start was [delayed](Started::delayed_until), or it tries one that
    /// failed [again](Self::run_try). Another that continues a run has no such time.
    #[serde(rename = "start_at_us", default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// Which try it is, if it is [tried again](Started::retried) when it fails. A run that the code continues in begins
    /// with its first one.
    #[serde(rename = "try", default, skip_serializing_if = "Option::is_none")]
    pub run_try: Option<Box<RunTry>>,
}

/// A run of which a later one has events, because it was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerRun {
    /// The run.
    pub run: RunId,
    /// The last event that the later run has of it. If the code is shown that event, it was shown it anew.
    pub to: Sequence,
}

/// Which try a run is of those that its start allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunTry {
    /// Its number, from 1.
    pub number: u32,
    /// How often it is tried, and with which pauses.
    pub retry: Retry,
    /// When the first try began; `None` if this is the first.
    #[serde(rename = "since_us", default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How many of the [signals](Origin::signals) are those that the first try began with; all if it says nothing. The others
    /// came since, and are there for one try.
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

    /// Those of the signals of a run that the first try began with.
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
    /// What becomes of the child when the call or the run ends before it.
    pub on_close: ParentClose,
}

/// What becomes of a child when nobody waits for it any more: its parent has ended, or has dropped
/// the call.
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

/// The [limits](crate::Limits) that the code sees: a run keeps those it was started with, or
/// changing them would change what the code decides in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    pub(crate) payload_bytes_max: usize,
    pub(crate) pending_len_max: usize,
}

impl Bounds {
    /// Part of the stored format: a history that names no bounds has these.
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
