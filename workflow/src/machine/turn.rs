//! What goes into the machine and what comes out of it.

use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Cause, RunId, Sequence, Timestamp};

use super::spare::Spare;
use crate::event::{
    ActivityFailure, ActivityScheduled, ChildFailure, ChildScheduled, Event, Name, ParkReason,
    PublishOutcome, PublishScheduled, RawRecord, ReceiveScheduled, SignalFailure, SignalScheduled, Started,
};
use crate::ledger::Outcome;
use crate::{OperationId, Payload, PayloadError, WrongType};

/// What the world says while an input is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// The epoch in which the run's partition is owned.
    pub epoch: u64,
}

/// What one input made of an instance. The events become durable first; only then are the
/// commands performed.
#[derive(Debug, Default, PartialEq)]
#[must_use]
pub struct Turn {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// What is to be done about it, in order.
    pub commands: Vec<Command>,
    /// What is worth being kept, in the place of the events before this turn or beside them, once the turn is
    /// durable: the fold of the history up to the event with this sequence, as a [`KeptBeginning`](crate::KeptBeginning) reads it back. The owner of the
    /// turn may drop it.
    pub kept: Option<(Sequence, Vec<u8>)>,
    /// When the first events of the turn were recorded, if that was before: of a run that [begins](crate::Instance::begin_reset) with
    /// a part of another's history. Those behind them are recorded with the turn, and so are all of any other turn.
    pub recorded: Vec<Timestamp>,
    pub(super) spare: Spare,
}

/// Something the world is asked to do, once the events of its turn are durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Run an activity and report how the attempt went.
    RunActivity {
        /// The call.
        scheduled: Arc<ActivityScheduled>,
        /// The number of the attempt.
        attempt: u32,
        /// What the last heartbeat of an earlier attempt said.
        details: Option<Box<Payload>>,
        /// Until when the attempt must begin, if the call has a schedule-to-start timeout.
        start_by: Option<Timestamp>,
    },
    /// Tell an activity to stop; nobody waits for its report.
    CancelActivity {
        /// The call.
        operation: OperationId,
        /// The task queue it is in.
        queue: Name,
    },
    /// Publish a value, and report [`Input::PublishParked`] if there is no room for it, and
    /// [`Input::Published`].
    Publish {
        /// What.
        scheduled: Arc<PublishScheduled>,
        /// Whether a former owner of the run may have published it, which left no word of that.
        is_repeated: bool,
    },
    /// Forget a value that waits to be published.
    CancelPublish {
        /// Which one.
        operation: OperationId,
    },
    /// Look for a record of a durable topic, and report [`Input::RecordReceived`] with the first that fits.
    Receive {
        /// Which.
        scheduled: Arc<ReceiveScheduled>,
        /// When the run began: without a place to begin behind, the record was appended since then.
        run_began: Timestamp,
    },
    /// Forget that a record of a durable topic is waited for.
    CancelReceive(Arc<ReceiveScheduled>),
    /// Signal another instance until it is known what became of that, and report [`Input::SignalSent`].
    SendSignal {
        /// What, and to which instance.
        scheduled: Arc<SignalScheduled>,
        /// Whether a former owner of the run may have sent it.
        is_repeated: bool,
    },
    /// Nobody waits for what becomes of a signal any more: it is not sent again.
    CancelSignal {
        /// Which one.
        operation: OperationId,
    },
    /// Start a child, and report [`Input::ChildStarted`] and [`Input::ChildEnded`].
    StartChild {
        /// The call.
        scheduled: Arc<ChildScheduled>,
        /// The child's run, if it is known to have started: then its end is asked for.
        run: Option<RunId>,
        /// Why it is asked to cancel once it runs, if it is.
        cancel: Option<Arc<str>>,
    },
    /// Ask a child to cancel that was started before, or is being started. Its end is still waited for.
    CancelChild {
        /// The call.
        scheduled: Arc<ChildScheduled>,
        /// Why.
        reason: Arc<str>,
    },
    /// Do with a child what its call says: nobody waits for its end.
    CloseChild(Arc<ChildScheduled>),
    /// Go on in this run, which begins in the same commit.
    ContinueAsNew {
        /// The run.
        run: RunId,
        /// Its beginning.
        started: Box<Started>,
    },
    /// Report [`Input::TimerFired`] at the deadline, not before.
    StartTimer {
        /// The timer, or the call whose next attempt or whose end is due then. A call may have
        /// two timers at once, with different deadlines.
        operation: OperationId,
        /// When.
        deadline: Timestamp,
    },
    /// Forget a timer.
    CancelTimer {
        /// The timer.
        operation: OperationId,
        /// Its deadline.
        deadline: Timestamp,
    },
    /// Report [`Input::Resume`] at this time.
    ResumeAt {
        /// When.
        at: Timestamp,
    },
    /// Report [`Input::TimeOut`] at this time, not before.
    TimeOutAt {
        /// When.
        at: Timestamp,
    },
    /// Forget the time at which the run would have been out of time.
    CancelTimeOut {
        /// When that was.
        at: Timestamp,
    },
    /// The code does not run until it is resumed: tell the callers that wait for the result.
    Park(ParkReason),
    /// The run has ended: tell the callers that wait for the result.
    Close(Outcome),
}

/// What may be told to an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A signal arrived.
    Signal {
        /// Its name.
        name: Name,
        /// What it carries.
        value: Payload,
        /// The run, and the operation of it, that had it sent, if that is known.
        cause: Option<Box<Cause>>,
        /// An id of the sender's choice of 1 to 255 bytes: told twice under the same, it is recorded once.
        request: Option<Box<str>>,
    },
    /// A signal arrived that an operation of another run, or of this one, has sent: told twice, it is recorded once.
    RunSignal {
        /// That run, and the operation.
        sender: Box<Cause>,
        /// Its name.
        name: Name,
        /// What it carries.
        value: Payload,
    },
    /// What became of a signal that the run has sent.
    SignalSent {
        /// Which one.
        operation: OperationId,
        /// Whether it is recorded, or why not.
        outcome: Result<(), SignalFailure>,
    },
    /// An attempt of an activity gave a value.
    ActivityCompleted {
        /// The call.
        operation: OperationId,
        /// Which attempt.
        attempt: u32,
        /// The value.
        result: Payload,
    },
    /// An attempt of an activity failed.
    AttemptFailed {
        /// The call.
        operation: OperationId,
        /// Which attempt.
        attempt: u32,
        /// What happened.
        failure: ActivityFailure,
        /// Whether another attempt may help, unless the call has a policy for this kind of error.
        is_retryable: bool,
        /// The [kind](crate::TypedError::kind) of the activity's own error, if it has one.
        kind: Option<Box<str>>,
        /// The [pause](crate::TypedError::retry_after) that the activity's own error asks for, if it does.
        retry_after: Option<Duration>,
    },
    /// An attempt of an activity has begun. Worth an event only if the call
    /// [limits](crate::Call::schedule_to_start) how long one may wait for that: whether it has been
    /// kept is then known also after a crash.
    AttemptStarted {
        /// The call.
        operation: OperationId,
        /// Which attempt.
        attempt: u32,
    },
    /// An attempt of an activity says how far it is. Each is an event: a pool passes
    /// on a few heartbeats per timeout, not every one.
    Heartbeat {
        /// The call.
        operation: OperationId,
        /// Which attempt.
        attempt: u32,
        /// What the next attempt is to know, should this one fail.
        details: Payload,
    },
    /// A child runs.
    ChildStarted {
        /// The call.
        operation: OperationId,
        /// Its run.
        run: RunId,
    },
    /// A child ended, or could not be started.
    ChildEnded {
        /// The call.
        operation: OperationId,
        /// How.
        end: Result<Payload, ChildFailure>,
    },
    /// A value waits for room in its topic.
    PublishParked {
        /// Which one.
        operation: OperationId,
    },
    /// A value was published, or could not be, or nobody knows.
    Published {
        /// Which one.
        operation: OperationId,
        /// Whether it was, or why it could not be.
        outcome: Result<PublishOutcome, String>,
    },
    /// There is a record of a durable topic for which the run waits.
    RecordReceived {
        /// The wait.
        operation: OperationId,
        /// The record.
        record: Box<RawRecord>,
    },
    /// A promise is kept or broken.
    EndPromise {
        /// Which one.
        operation: OperationId,
        /// With a value, or with the text of an error.
        end: Result<Payload, String>,
    },
    /// An operator wants the code not to run for a while.
    Pause {
        /// Why.
        reason: String,
    },
    /// A deadline passed.
    TimerFired {
        /// The timer, or the call whose next attempt or whose end is due.
        operation: OperationId,
    },
    /// A caller asks for a change of the run's [state](crate::State). The answer is an
    /// [`Event::UpdateAnswered`] with the same request, of this turn; of a later one only if the
    /// run is parked by it.
    Update {
        /// The id of the request, of 1 to [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX) bytes: asked
        /// again under the same id, an update is not performed again.
        request: String,
        /// Its name.
        name: Name,
        /// Its argument.
        input: Payload,
    },
    /// A caller has an [entity](crate::Entity) perform a command. Its [answer](crate::Instance::take_command_answer) is
    /// there at once.
    Command {
        /// The id of the request, if it has one, of 1 to [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX) bytes: asked again
        /// under the same id, a command is not performed again.
        request: Option<Box<str>>,
        /// Its name.
        name: Name,
        /// Its argument.
        input: Payload,
    },
    /// A caller asks the run to cancel. An [entity](crate::Entity) ends by it, when nothing that it has begun is to go on
    /// but timers.
    Cancel {
        /// Why.
        reason: String,
    },
    /// An operator ends the run, without its code.
    Terminate {
        /// Why.
        reason: String,
    },
    /// The run is out of time: its [deadline](crate::Ledger::deadline) has passed. It ends without its code.
    TimeOut,
    /// An operator has the instance go on in another run, which begins with a part of this one's history. This one ends without
    /// its code.
    Reset {
        /// That run.
        run: RunId,
        /// The last event of this run that the other has as well.
        to: Sequence,
        /// Why.
        reason: String,
    },
    /// The code shall run again.
    Resume,
    /// The run was brought back with code of another [version](crate::Workflow::version) than its own, which fits its history: from now on
    /// that is its code. Nothing happens if it was brought back with its own.
    ChangeVersion,
}

/// Why an input changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputRefused {
    /// The run has ended.
    #[error("the run has ended")]
    Closed,
    /// It came late or twice: the operation has ended, or another attempt is under way.
    #[error("the report is out of date")]
    Stale,
    /// The run has as many unread signals as one may have.
    #[error("the run has {len_max} unread signals, its limit: it must take some first")]
    TooManySignals {
        /// The limit, `signals_len_max`.
        len_max: usize,
    },
    /// The update was performed before, under the same request: this is its answer.
    #[error("the update was performed before")]
    Answered {
        /// The answer; or why it could not be decoded, performed or encoded.
        answer: Result<Payload, String>,
    },
    /// The update's validator said no.
    #[error("the update was rejected: {message}")]
    Rejected {
        /// The encoded error.
        error: Payload,
        /// The error's text, for people.
        message: String,
    },
    /// The workflow has no update of this name.
    #[error("the workflow has no update named {name:?}")]
    UnknownUpdate {
        /// The name.
        name: String,
    },
    /// The workflow is no [entity](crate::Entity) with a command of this name.
    #[error("the workflow has no command named {name:?}")]
    UnknownCommand {
        /// The name.
        name: String,
    },
    /// The handler of the command panicked, with this message: nothing was recorded.
    #[error("the command panicked: {0}")]
    CommandPanicked(String),
    /// What the command has decided cannot be recorded or done, for this reason, so that nothing was.
    #[error("the command cannot be performed: {0}")]
    Act(String),
    /// The entity is being deleted: what it has begun is waited for.
    #[error("the entity is being deleted")]
    Ending,
    /// The run has no state of the update's type, or not yet.
    #[error("the run has no state of the update's type")]
    NoState,
    /// The update's argument, or the value of a signal that the workflow [declares](crate::AnsweringWorkflow::signal),
    /// is not of the type that the code takes.
    #[error(transparent)]
    WrongType(WrongType),
    /// What the update's validator said could not be encoded.
    #[error("the rejection of the update could not be encoded")]
    Payload(#[source] PayloadError),
    /// The update's validator panicked, with this message.
    #[error("the update's validator panicked: {0}")]
    ValidatorPanicked(String),
    /// A name or a request id is empty or longer than [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX).
    #[error("a name has 1 to {} bytes, this one has {bytes}", crate::NAME_BYTES_MAX)]
    Name {
        /// Its size.
        bytes: usize,
    },
    /// The value is larger than a payload may be.
    #[error("the value has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit, `payload_bytes_max`.
        bytes_max: usize,
    },
    /// The history is as long as one may be.
    #[error(
        "the history has {len_max} events, its limit: its code must make a checkpoint or continue as new"
    )]
    HistoryFull {
        /// The limit, `history_len_max`.
        len_max: u64,
    },
    /// The code cannot be brought back: the reason still holds.
    #[error("the run stays parked: {0}")]
    StillParked(String),
}
