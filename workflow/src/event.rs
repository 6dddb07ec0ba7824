//! The events that a run's history is made of.
//!
//! ```text
//!   Started ─ decisions ─ input ─ decisions ─ note ─ input ─ … ─ a last one
//!   (beginning)  (scheduled)  (failure)          (parking)
//! ```
//!
//! An event holds what a reader needs who has only the history: what to run, with what, and how it went. Left out: how events
//! become bytes, which the wire format defines.

mod beginning;
mod failure;
mod parking;
mod performed;
mod record_filter;
mod record_texts;
mod scheduled;
mod timeouts;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use millrun_core::{Cause, RunId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Payload, PayloadError};

pub(crate) use beginning::{Bounds, answer_bytes, is_zero};
pub use beginning::{FormerRun, Origin, Parent, ParentClose, RunTry, Started};
pub use failure::{ActivityFailure, ChildFailure, RunFailure, SignalFailure};
pub use parking::{Nondeterminism, ParkReason};
pub use performed::CommandPerformed;
pub use record_filter::{KeyFilter, RecordFilter};
pub use record_texts::{RECORD_TEXT_BYTES_MAX, RecordTexts};
pub use scheduled::{
    ActivityScheduled, Checkpoint, ChildScheduled, PublishOutcome, PublishScheduled, RawRecord,
    ReceiveScheduled, SignalScheduled, TakenThrough,
};
pub use timeouts::{RunDeadline, RunTimeout, RunTimeouts, StartTimeouts};

/// A name in a history: borrowed from a definition when it is decided, owned when it is read.
pub type Name = Cow<'static, str>;

/// Whether a call with this name may have recorded this value, which may have been recorded before the call had a name.
pub(crate) fn is_same_name(recorded: Option<&str>, called: Option<&str>) -> bool {
    recorded.is_none() || recorded == called
}

/// The number of an operation within its run, in the order in which the code issued them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
/// *Inputs* come from outside the code; *decisions* are what the code made of the input before them; *notes* concern the
/// engine alone. Later releases may add kinds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
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
        #[serde(rename = "retry_at_us")]
        retry_at: Timestamp,
        /// The owner's epoch at this decision, from which later attempt numbers follow.
        epoch: u64,
    },
    /// Note: an attempt began. Recorded only for calls that limit how long an attempt may wait to begin.
    AttemptStarted {
        /// The call.
        operation: OperationId,
        /// The attempt.
        attempt: u32,
    },
    /// Note: a heartbeat of an attempt, with details.
    AttemptHeartbeat {
        /// The call.
        operation: OperationId,
        /// The attempt.
        attempt: u32,
        /// Details for the next attempt, if this one fails.
        details: Payload,
    },
    /// Decision: a timer was started.
    TimerStarted {
        /// The timer.
        operation: OperationId,
        /// When it fires.
        #[serde(rename = "deadline_us")]
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
        /// The run and operation that caused the signal, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Box<Cause>>,
        /// The request under which it was sent, if it has one; a repetition is recognised by it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<Box<str>>,
    },
    /// Input: a signal that an operation of another run, or of this one, has sent. The sender repeats it until it knows that
    /// it is recorded here, so this run [remembers](crate::Limits::senders_len_max) the senders.
    RunSignalReceived {
        /// The run that has sent it, and the operation.
        sender: Box<Cause>,
        /// Its name.
        name: Name,
        /// What it carries.
        value: Payload,
    },
    /// Decision: another instance is to be signalled.
    SignalScheduled(Arc<SignalScheduled>),
    /// Input: the signal is recorded in the history of that instance, or never will be.
    SignalSent {
        /// The operation.
        operation: OperationId,
        /// Whether it was recorded, or why not.
        outcome: Result<(), SignalFailure>,
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
    /// Decision: the child is asked to cancel, and its end is still waited for.
    ChildCancelRequested {
        /// The call.
        operation: OperationId,
        /// Why.
        reason: String,
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
    /// Note: the topic had no room, or is not registered; the value waits for it.
    PublishParked {
        /// Which one.
        operation: OperationId,
    },
    /// Input: the value was published, or was refused, or the outcome is unknown.
    Published {
        /// Which one.
        operation: OperationId,
        /// The outcome, or why it was refused.
        outcome: Result<PublishOutcome, String>,
    },
    /// Decision: a wait for a record of a durable topic.
    ReceiveScheduled(Arc<ReceiveScheduled>),
    /// Input: the record that was waited for.
    RecordReceived {
        /// The wait.
        operation: OperationId,
        /// The record.
        record: Box<RawRecord>,
    },
    /// Decision: a promise was made that is kept or broken from outside.
    PromiseMade {
        /// Which one.
        operation: OperationId,
    },
    /// Input: a promise was kept or broken.
    PromiseSettled {
        /// Which one.
        operation: OperationId,
        /// With a value, or with the text of an error.
        end: Result<Payload, String>,
    },
    /// Decision: the code began again, from this state. The events before it are not needed to bring the code back.
    Checkpointed(Box<Checkpoint>),
    /// Decision: an operation was dropped before it ended.
    OperationCancelled {
        /// Which one.
        operation: OperationId,
    },
    /// Decision: a value that the code took from outside, once.
    ValueRecorded {
        /// Its name, if the code gave it one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Name>,
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
        /// The request under which it was asked for; a repetition is recognised by it.
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
    /// Input: a command of an [entity](crate::Entity) was performed. Its decisions are part of this event, and are not
    /// decided again in a replay; the operations that it began follow.
    CommandPerformed(Box<CommandPerformed>),
    /// Input: a caller asked the run to cancel.
    CancelRequested {
        /// Why.
        reason: String,
        /// Whether the code is shown the reason. Earlier releases did not show it, and a replay of their histories does not.
        is_shown: bool,
    },
    /// Decision, the last: the code gave a value.
    Completed {
        /// The value.
        result: Payload,
    },
    /// Decision, the last: the code ended with an error.
    Failed {
        /// The error.
        error: RunFailure,
    },
    /// Decision, the last: the code ended because it was asked to.
    Cancelled {
        /// The error it ended with.
        error: RunFailure,
    },
    /// Decision, the last: the code continues in another run of the same instance, or has failed and is tried again there.
    ContinuedAsNew {
        /// That run.
        run: RunId,
        /// Its workflow.
        workflow: Name,
        /// Its argument.
        input: Payload,
        /// Why the code failed, if it is [tried again](Started::retried).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<Box<RunFailure>>,
    },
    /// Input, the last: the run was ended from outside, without its code.
    Terminated {
        /// Why.
        reason: String,
    },
    /// Input, the last: the run was out of time, and ended without its code.
    TimedOut {
        /// Which of its timeouts had passed.
        timeout: RunTimeout,
        /// The run in which it is [tried again](Started::retried), if it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<RunId>,
    },
    /// Input, the last: the run was reset from outside, without its code. Another begins with a part of its history.
    Reset {
        /// That run.
        run: RunId,
        /// The last event of this run that the other has as well.
        to: Sequence,
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
    /// Note: from here on the run has the code of this version of the workflow, with which all events before can be replayed.
    /// A replay runs the whole history with the version of the last such event.
    VersionChanged {
        /// The version.
        version: u32,
    },
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
            Self::AttemptStarted { .. } => "AttemptStarted",
            Self::AttemptHeartbeat { .. } => "AttemptHeartbeat",
            Self::TimerStarted { .. } => "TimerStarted",
            Self::TimerFired { .. } => "TimerFired",
            Self::SignalReceived { .. } => "SignalReceived",
            Self::RunSignalReceived { .. } => "RunSignalReceived",
            Self::SignalScheduled(_) => "SignalScheduled",
            Self::SignalSent { .. } => "SignalSent",
            Self::PublishScheduled(_) => "PublishScheduled",
            Self::PublishParked { .. } => "PublishParked",
            Self::Published { .. } => "Published",
            Self::ReceiveScheduled(_) => "ReceiveScheduled",
            Self::RecordReceived { .. } => "RecordReceived",
            Self::PromiseMade { .. } => "PromiseMade",
            Self::PromiseSettled { .. } => "PromiseSettled",
            Self::Checkpointed(_) => "Checkpointed",
            Self::ChildScheduled(_) => "ChildScheduled",
            Self::ChildStarted { .. } => "ChildStarted",
            Self::ChildCancelRequested { .. } => "ChildCancelRequested",
            Self::ChildEnded { .. } => "ChildEnded",
            Self::ContinuedAsNew { .. } => "ContinuedAsNew",
            Self::OperationCancelled { .. } => "OperationCancelled",
            Self::ValueRecorded { .. } => "ValueRecorded",
            Self::Patched { .. } => "Patched",
            Self::UpdateAccepted { .. } => "UpdateAccepted",
            Self::UpdateAnswered { .. } => "UpdateAnswered",
            Self::CommandPerformed(_) => "CommandPerformed",
            Self::CancelRequested { .. } => "CancelRequested",
            Self::Completed { .. } => "Completed",
            Self::Failed { .. } => "Failed",
            Self::Cancelled { .. } => "Cancelled",
            Self::Terminated { .. } => "Terminated",
            Self::TimedOut { .. } => "TimedOut",
            Self::Reset { .. } => "Reset",
            Self::Parked { .. } => "Parked",
            Self::Resumed => "Resumed",
            Self::VersionChanged { .. } => "VersionChanged",
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
            | Self::Terminated { .. }
            | Self::TimedOut { .. }
            | Self::Reset { .. } => true,
            Self::Started(_)
            | Self::ActivityScheduled(_)
            | Self::ActivityCompleted { .. }
            | Self::ActivityFailed { .. }
            | Self::AttemptFailed { .. }
            | Self::AttemptStarted { .. }
            | Self::AttemptHeartbeat { .. }
            | Self::TimerStarted { .. }
            | Self::TimerFired { .. }
            | Self::PublishScheduled(_)
            | Self::PublishParked { .. }
            | Self::Published { .. }
            | Self::ReceiveScheduled(_)
            | Self::RecordReceived { .. }
            | Self::PromiseMade { .. }
            | Self::PromiseSettled { .. }
            | Self::Checkpointed(_)
            | Self::ChildScheduled(_)
            | Self::ChildStarted { .. }
            | Self::ChildCancelRequested { .. }
            | Self::ChildEnded { .. }
            | Self::SignalReceived { .. }
            | Self::RunSignalReceived { .. }
            | Self::SignalScheduled(_)
            | Self::SignalSent { .. }
            | Self::OperationCancelled { .. }
            | Self::ValueRecorded { .. }
            | Self::Patched { .. }
            | Self::UpdateAccepted { .. }
            | Self::UpdateAnswered { .. }
            | Self::CommandPerformed(_)
            | Self::CancelRequested { .. }
            | Self::Parked { .. }
            | Self::Resumed
            | Self::VersionChanged { .. } => false,
        }
    }

    /// Whether it stands in one turn with the event `before` it, whatever it is: as a decision, or as the parking of a run whose code
    /// has not begun.
    #[must_use]
    pub fn goes_with(&self, before: &Self) -> bool {
        self.is_decision() || matches!((before, self), (Self::Started(_), Self::Parked { .. }))
    }

    /// Whether the code decided it, so that a replay must decide it again.
    #[must_use]
    pub fn is_decision(&self) -> bool {
        match self {
            Self::ActivityScheduled(_)
            | Self::TimerStarted { .. }
            | Self::PublishScheduled(_)
            | Self::SignalScheduled(_)
            | Self::ReceiveScheduled(_)
            | Self::PromiseMade { .. }
            | Self::Checkpointed(_)
            | Self::ChildScheduled(_)
            | Self::ChildCancelRequested { .. }
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
            | Self::AttemptStarted { .. }
            | Self::AttemptHeartbeat { .. }
            | Self::TimerFired { .. }
            | Self::PublishParked { .. }
            | Self::Published { .. }
            | Self::RecordReceived { .. }
            | Self::PromiseSettled { .. }
            | Self::ChildStarted { .. }
            | Self::ChildEnded { .. }
            | Self::SignalReceived { .. }
            | Self::RunSignalReceived { .. }
            | Self::SignalSent { .. }
            | Self::UpdateAccepted { .. }
            | Self::CommandPerformed(_)
            | Self::CancelRequested { .. }
            | Self::Terminated { .. }
            | Self::TimedOut { .. }
            | Self::Reset { .. }
            | Self::Parked { .. }
            | Self::Resumed
            | Self::VersionChanged { .. } => false,
        }
    }
}

/// Why an event could not be encoded or decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The bytes are not an event of this version.
    #[error("the record is no event: {0}")]
    Malformed(String),
    /// The kind is not one this version knows.
    #[error("event kind {0} was written by a newer version")]
    UnknownKind(u8),
    /// The record's id or payload is not valid.
    #[error("the record holds an invalid value")]
    Payload(#[from] PayloadError),
}
