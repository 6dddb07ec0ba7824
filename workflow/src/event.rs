//! The facts a run's history is made of, and the wishes that follow from them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{InstanceId, RunId, Timestamp};

use crate::{Payload, PayloadError, Retry, TimeoutKind, kind};

/// A name in a history: borrowed from a definition when it is decided, owned when it is read.
pub type Name = Cow<'static, str>;

/// The number of an operation within its run, in the order in which the code issued them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(u32);

impl OperationId {
    /// Wraps a number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// One entry of a history: something that happened, never refused afterwards.
///
/// *Inputs* come from outside the code and are followed by the *decisions* the code made of
/// them; *notes* concern the engine alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Input: the run began.
    Started(Started),
    /// Decision: an activity was called.
    ActivityScheduled(Arc<ActivityScheduled>),
    /// Input: an activity gave a value.
    ActivityCompleted {
        /// The call.
        operation: OperationId,
        /// Which attempt gave it.
        attempt: u32,
        /// The value.
        result: Payload,
    },
    /// Input: an activity failed for good.
    ActivityFailed {
        /// The call.
        operation: OperationId,
        /// The last attempt.
        attempt: u32,
        /// What happened to it.
        failure: ActivityFailure,
    },
    /// Note: an attempt failed, and another follows.
    AttemptFailed {
        /// The call.
        operation: OperationId,
        /// The attempt that failed.
        attempt: u32,
        /// What happened to it.
        failure: ActivityFailure,
        /// When the next one begins.
        retry_at: Timestamp,
        /// The owner's epoch when this was decided, from which later attempt numbers follow.
        epoch: u64,
    },
    /// Note: an attempt said how far it is.
    AttemptHeartbeat {
        /// The call.
        operation: OperationId,
        /// The attempt.
        attempt: u32,
        /// What the next attempt is to know, should this one fail.
        details: Payload,
    },
    /// Decision: a timer was started.
    TimerStarted {
        /// The timer.
        operation: OperationId,
        /// When it fires.
        deadline: Timestamp,
    },
    /// Input: a timer fired.
    TimerFired {
        /// The timer.
        operation: OperationId,
    },
    /// Input: a signal arrived.
    SignalReceived {
        /// Its name.
        name: Name,
        /// What it carries.
        value: Payload,
    },
    /// Decision: a child was asked for.
    ChildScheduled(Arc<ChildScheduled>),
    /// Note: the child runs.
    ChildStarted {
        /// The call.
        operation: OperationId,
        /// Its run.
        run: RunId,
    },
    /// Input: the child ended, or could not be started.
    ChildEnded {
        /// The call.
        operation: OperationId,
        /// How.
        end: Result<Payload, ChildFailure>,
    },
    /// Decision: a value is to be published to a topic.
    PublishScheduled(Arc<PublishScheduled>),
    /// Note: the topic had no room; the value waits for it.
    PublishParked {
        /// Which one.
        operation: OperationId,
    },
    /// Input: the value was published, or could not be.
    Published {
        /// Which one.
        operation: OperationId,
        /// Why it could not be.
        outcome: Result<(), String>,
    },
    /// Decision: a promise was made that is settled from outside.
    PromiseMade {
        /// Which one.
        operation: OperationId,
    },
    /// Input: a promise was settled.
    PromiseSettled {
        /// Which one.
        operation: OperationId,
        /// With a value, or with the text of an error.
        end: Result<Payload, String>,
    },
    /// Decision: the code began again, from this state. What stands before it is not needed to
    /// bring the code back.
    Checkpointed(Box<Checkpoint>),
    /// Decision: an operation was dropped before it ended.
    OperationCancelled {
        /// Which one.
        operation: OperationId,
    },
    /// Decision: a value that the code took from the world, once.
    ValueRecorded {
        /// The value; or why it could not be encoded.
        value: Result<Payload, String>,
    },
    /// Decision: the code took the new way of a change.
    Patched {
        /// The name of the change.
        id: Name,
    },
    /// Input: an update was let in.
    UpdateAccepted {
        /// The id under which it was asked for, by which a repetition is known.
        request: String,
        /// Its name.
        name: Name,
        /// Its argument.
        input: Payload,
    },
    /// Decision: an update was performed.
    UpdateAnswered {
        /// The id under which it was asked for.
        request: String,
        /// The answer; or why it could not be decoded, performed or encoded.
        answer: Result<Payload, String>,
    },
    /// Input: somebody asked the run to cancel.
    CancelRequested {
        /// Why.
        reason: String,
    },
    /// Decision, the last: the code gave a value.
    Completed {
        /// The value.
        result: Payload,
    },
    /// Decision, the last: the code gave an error.
    Failed {
        /// The error.
        error: RunFailure,
    },
    /// Decision, the last: the code ended because it was asked to.
    Cancelled {
        /// The error it ended with.
        error: RunFailure,
    },
    /// Decision, the last: the code goes on in another run of the same instance.
    ContinuedAsNew {
        /// That run.
        run: RunId,
        /// Its workflow.
        workflow: Name,
        /// Its argument.
        input: Payload,
    },
    /// Input, the last: the run was ended from outside, without its code.
    Terminated {
        /// Why.
        reason: String,
    },
    /// Note: from here on inputs are recorded without running the code.
    Parked {
        /// Why.
        reason: ParkReason,
    },
    /// Note: the code was brought back, and takes up the inputs recorded since.
    Resumed,
}

impl Event {
    /// The name of the variant, for people.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Started(_) => "Started",
            Self::ActivityScheduled(_) => "ActivityScheduled",
            Self::ActivityCompleted { .. } => "ActivityCompleted",
            Self::ActivityFailed { .. } => "ActivityFailed",
            Self::AttemptFailed { .. } => "AttemptFailed",
            Self::AttemptHeartbeat { .. } => "AttemptHeartbeat",
            Self::TimerStarted { .. } => "TimerStarted",
            Self::TimerFired { .. } => "TimerFired",
            Self::SignalReceived { .. } => "SignalReceived",
            Self::PublishScheduled(_) => "PublishScheduled",
            Self::PublishParked { .. } => "PublishParked",
            Self::Published { .. } => "Published",
            Self::PromiseMade { .. } => "PromiseMade",
            Self::PromiseSettled { .. } => "PromiseSettled",
            Self::Checkpointed(_) => "Checkpointed",
            Self::ChildScheduled(_) => "ChildScheduled",
            Self::ChildStarted { .. } => "ChildStarted",
            Self::ChildEnded { .. } => "ChildEnded",
            Self::ContinuedAsNew { .. } => "ContinuedAsNew",
            Self::OperationCancelled { .. } => "OperationCancelled",
            Self::ValueRecorded { .. } => "ValueRecorded",
            Self::Patched { .. } => "Patched",
            Self::UpdateAccepted { .. } => "UpdateAccepted",
            Self::UpdateAnswered { .. } => "UpdateAnswered",
            Self::CancelRequested { .. } => "CancelRequested",
            Self::Completed { .. } => "Completed",
            Self::Failed { .. } => "Failed",
            Self::Cancelled { .. } => "Cancelled",
            Self::Terminated { .. } => "Terminated",
            Self::Parked { .. } => "Parked",
            Self::Resumed => "Resumed",
        }
    }

    /// Whether nothing can follow it.
    #[must_use]
    pub fn is_last(&self) -> bool {
        match self {
            Self::Completed { .. }
            | Self::Failed { .. }
            | Self::Cancelled { .. }
            | Self::ContinuedAsNew { .. }
            | Self::Terminated { .. } => true,
            Self::Started(_)
            | Self::ActivityScheduled(_)
            | Self::ActivityCompleted { .. }
            | Self::ActivityFailed { .. }
            | Self::AttemptFailed { .. }
            | Self::AttemptHeartbeat { .. }
            | Self::TimerStarted { .. }
            | Self::TimerFired { .. }
            | Self::PublishScheduled(_)
            | Self::PublishParked { .. }
            | Self::Published { .. }
            | Self::PromiseMade { .. }
            | Self::PromiseSettled { .. }
            | Self::Checkpointed(_)
            | Self::ChildScheduled(_)
            | Self::ChildStarted { .. }
            | Self::ChildEnded { .. }
            | Self::SignalReceived { .. }
            | Self::OperationCancelled { .. }
            | Self::ValueRecorded { .. }
            | Self::Patched { .. }
            | Self::UpdateAccepted { .. }
            | Self::UpdateAnswered { .. }
            | Self::CancelRequested { .. }
            | Self::Parked { .. }
            | Self::Resumed => false,
        }
    }

    /// Whether the code decided it, so that a replay must decide it again.
    #[must_use]
    pub(crate) fn is_decision(&self) -> bool {
        match self {
            Self::ActivityScheduled(_)
            | Self::TimerStarted { .. }
            | Self::PublishScheduled(_)
            | Self::PromiseMade { .. }
            | Self::Checkpointed(_)
            | Self::ChildScheduled(_)
            | Self::ContinuedAsNew { .. }
            | Self::OperationCancelled { .. }
            | Self::ValueRecorded { .. }
            | Self::Patched { .. }
            | Self::UpdateAnswered { .. }
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::Cancelled { .. } => true,
            Self::Started(_)
            | Self::ActivityCompleted { .. }
            | Self::ActivityFailed { .. }
            | Self::AttemptFailed { .. }
            | Self::AttemptHeartbeat { .. }
            | Self::TimerFired { .. }
            | Self::PublishParked { .. }
            | Self::Published { .. }
            | Self::PromiseSettled { .. }
            | Self::ChildStarted { .. }
            | Self::ChildEnded { .. }
            | Self::SignalReceived { .. }
            | Self::UpdateAccepted { .. }
            | Self::CancelRequested { .. }
            | Self::Terminated { .. }
            | Self::Parked { .. }
            | Self::Resumed => false,
        }
    }
}

/// How a run began.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    /// The workflow's name.
    pub workflow: Name,
    /// The user's id of the instance.
    pub id: InstanceId,
    /// The argument.
    pub input: Payload,
    /// What it stems from, if not from outside.
    pub origin: Option<Box<Origin>>,
    /// The limits that the code sees; set when the run begins.
    pub(crate) bounds: Bounds,
}

/// What a run stems from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// The run that called it, if it is a child.
    pub parent: Option<Parent>,
    /// The run that it continues.
    pub continued: Option<RunId>,
    /// The signals that are there before its code begins: those that the former run had not taken, in
    /// the order of their arrival by name, or [the one](Started::with_signal) that started it.
    pub signals: Vec<(Name, Payload)>,
}

/// The run that called a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParentClose {
    /// It is asked to cancel.
    #[default]
    Cancel,
    /// It is terminated.
    Terminate,
    /// It goes on.
    Abandon,
}

/// A call of a child workflow, complete enough to start it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildScheduled {
    /// The call.
    pub operation: OperationId,
    /// The workflow's name.
    pub workflow: Name,
    /// The id of the instance.
    pub id: InstanceId,
    /// The argument.
    pub input: Payload,
    /// What becomes of it when nobody waits any more.
    pub on_close: ParentClose,
}

/// A value to be published, complete enough to do so.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishScheduled {
    /// The publish.
    pub operation: OperationId,
    /// The topic.
    pub topic: Name,
    /// The value.
    pub value: Payload,
}

/// All that is needed to bring the code back from here on.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The state that the code begins with.
    pub state: Payload,
    /// The signals that had not been taken, in the order of their arrival by name.
    pub signals: Vec<(Name, Payload)>,
    /// How many operations the code had issued.
    pub operations_len: u32,
    /// How many random numbers the code had drawn.
    pub random_len: u64,
    /// Whether no input waits to be taken up behind it: only then can a replay begin here.
    pub is_whole: bool,
}

/// Why a child gave no value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChildFailure {
    /// It ended with an error of its own.
    Failed(RunFailure),
    /// It was asked to cancel, and ended with this error.
    Cancelled(RunFailure),
    /// It was ended from outside.
    Terminated {
        /// Why.
        reason: String,
    },
    /// It was not started, or its result is not retained any more.
    NotStarted {
        /// Why.
        message: String,
    },
}

impl Started {
    /// The run that called it, if it is a child.
    #[must_use]
    pub fn parent(&self) -> Option<Parent> {
        self.origin.as_ref().and_then(|origin| origin.parent)
    }

    /// The beginning of a run of this workflow.
    #[must_use]
    pub fn new(workflow: impl Into<Name>, id: InstanceId, input: Payload) -> Self {
        Self {
            workflow: workflow.into(),
            id,
            input,
            origin: None,
            bounds: Bounds::default(),
        }
    }

    /// As it is, with a signal that waits for the code when it begins: there is no history that has
    /// the one without the other.
    #[must_use]
    pub fn with_signal(mut self, name: impl Into<Name>, value: Payload) -> Self {
        let origin = self.origin.get_or_insert_default();
        origin.signals.push((name.into(), value));
        self
    }
}

/// The [limits](crate::Limits) that the code sees: a run keeps those it was started with, or
/// changing them would change what the code decides in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// A call of an activity, complete enough to run it.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivityScheduled {
    /// The call.
    pub operation: OperationId,
    /// The activity's name.
    pub activity: Name,
    /// The task queue it waits in.
    pub queue: Name,
    /// The argument.
    pub input: Payload,
    /// When to try again.
    pub retry: Retry,
    /// When to try again after an error of a certain [kind](crate::ErrorKind), by its name.
    pub retry_on: Option<Box<[(Name, Retry)]>>,
    /// How long one attempt may take.
    pub start_to_close: Duration,
    /// How long an attempt may wait in its queue, if that is limited.
    pub schedule_to_start: Option<Duration>,
    /// How long all attempts and their pauses may take together, if that is limited.
    pub schedule_to_close: Option<Duration>,
    /// How long an attempt may be silent, if that is limited.
    pub heartbeat: Option<Duration>,
    /// The owner's epoch when it was decided, from which later attempt numbers follow.
    pub epoch: u64,
}

impl ActivityScheduled {
    /// When to try again after an error of this kind; `None` if never.
    pub(crate) fn retry_of(&self, kind: Option<&str>, is_retryable: bool) -> Option<&Retry> {
        let by_kind = self.retry_on.iter().flatten();
        let by_kind = kind.and_then(|kind| by_kind.into_iter().find(|(name, _)| name == kind));
        // What the call says of a kind goes before what the error says of itself.
        by_kind
            .map(|(_, retry)| retry)
            .or_else(|| is_retryable.then_some(&self.retry))
    }
}

/// What happened to an attempt that gave no value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ActivityFailure {
    /// It ended with an error of its own.
    Failed {
        /// The encoded error.
        error: Payload,
        /// The error's text, for people.
        message: String,
    },
    /// It ran out of time.
    TimedOut(TimeoutKind),
    /// It panicked.
    Panicked {
        /// With this message.
        message: String,
    },
    /// Its result or its error could not be encoded, or its input not decoded.
    Unreadable {
        /// The reason.
        message: String,
    },
}

impl ActivityFailure {
    /// The name of its [kind](crate::ErrorKind); `own` is that of the activity's own error.
    pub(crate) fn kind<'a>(&self, own: Option<&'a str>) -> Option<&'a str> {
        match self {
            Self::Failed { .. } => own,
            Self::TimedOut(TimeoutKind::StartToClose | TimeoutKind::Heartbeat) => Some(kind::TIMED_OUT),
            Self::Panicked { .. } => Some(kind::PANICKED),
            Self::TimedOut(TimeoutKind::ScheduleToStart | TimeoutKind::ScheduleToClose)
            | Self::Unreadable { .. } => None,
        }
    }
}

impl fmt::Display for ActivityFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { message, .. } => f.write_str(message),
            Self::TimedOut(kind) => write!(f, "exceeded its {kind} timeout"),
            Self::Panicked { message } => write!(f, "panicked: {message}"),
            Self::Unreadable { message } => f.write_str(message),
        }
    }
}

/// The error a run ended with.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFailure {
    /// The encoded error; empty of meaning if the code never ran.
    pub error: Payload,
    /// The error's text, for people.
    pub message: String,
    /// Whether it is the answer to a request to cancel.
    pub is_cancelled: bool,
}

/// Why a run's code does not run at the moment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ParkReason {
    /// No workflow of this name is registered.
    NotRegistered {
        /// The name.
        workflow: String,
    },
    /// The code panicked; it is brought back after a pause, until the limit is reached.
    Panicked {
        /// The panic's message.
        message: String,
        /// How many times in a row.
        count: u32,
    },
    /// The code does not fit the history.
    Nondeterminism(Box<Nondeterminism>),
    /// The code awaits something that neither an operation nor a signal will wake, or was touched
    /// from outside, or does not come to rest.
    Stuck {
        /// What was seen.
        message: String,
    },
    /// Somebody paused it.
    Paused {
        /// Why.
        reason: String,
    },
    /// The history is twice as long as [`Limits::history_len_max`](crate::Limits::history_len_max).
    /// The run goes on when that is raised.
    HistoryFull {
        /// How many events were too many.
        len_max: u64,
    },
}

impl fmt::Display for ParkReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegistered { workflow } => write!(f, "no workflow named {workflow:?} is registered"),
            Self::Panicked { message, count } => {
                write!(f, "the workflow panicked ({count} in a row): {message}")
            }
            Self::Nondeterminism(difference) => difference.fmt(f),
            Self::Stuck { message } => f.write_str(message),
            Self::Paused { reason } => write!(f, "it was paused: {reason}"),
            Self::HistoryFull { len_max } => write!(
                f,
                "the history has {len_max} events: raise the limit, and let the code end runs earlier"
            ),
        }
    }
}

/// Where the code and the history part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the code does not fit the history: at event {sequence} the history has {recorded}, the code made {replayed}"
)]
pub struct Nondeterminism {
    /// The sequence of the first event that differs.
    pub sequence: u64,
    /// What the history holds there.
    pub recorded: String,
    /// What the code did instead.
    pub replayed: String,
}

impl Nondeterminism {
    /// The difference in two columns, for a terminal.
    ///
    /// ```
    /// use millrun_workflow::Nondeterminism;
    ///
    /// let difference = Nondeterminism {
    ///     sequence: 2,
    ///     recorded: "call of charge".into(),
    ///     replayed: "timer".into(),
    /// };
    /// assert_eq!(
    ///     difference.columns(),
    ///     "  event | recorded       | replayed\n      2 | call of charge | timer\n",
    /// );
    /// ```
    #[must_use]
    pub fn columns(&self) -> String {
        let width = self.recorded.chars().count().max("recorded".len());
        format!(
            "  event | {:width$} | replayed\n{:>7} | {:width$} | {}\n",
            "recorded", self.sequence, self.recorded, self.replayed
        )
    }
}

/// Why a value could not be taken into a history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The bytes are no event of this version.
    #[error("the record is no event: {0}")]
    Malformed(String),
    /// The kind is not one this version knows.
    #[error("event kind {0} was written by a newer version")]
    UnknownKind(u8),
    /// The record's id or payload is not valid.
    #[error("the record holds an invalid value")]
    Payload(#[from] PayloadError),
}
