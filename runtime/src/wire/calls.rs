//! Requests of callers of one node to runs of another, and the answers: MessagePack maps, like the messages of runs, with
//! kinds of their own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrun_core::{Cause, Epoch, InstanceId, RunId, Timestamp, TraceContext};
use millrun_workflow::{
    InputRefused, OperationId, Outcome, ParkReason, Payload, ResetPoint, ResetRefused, Retry, StartTimeouts,
    Unanswered,
};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::MessageError;
use crate::mail::{
    Changed, CommandRefused, CommandRequest, Described, EntityRequest, FirstRequest, Latest, OnDisk,
    Question, Replies, Reply, Request, ResetOrder, Standing, StartDelay, StartDetails, StartFollowing,
    StartRequest, StartWith, StartedRun, Target, Tell, UpdateAnswer, UpdateRefused, UpdateRequest, Wake,
};
use crate::{OnConflict, QueryError, RunError, StartError};

pub(super) const REQUEST: u8 = 64;
pub(super) const ANSWER: u8 = 65;

/// A request of a caller of another node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MailedRequest {
    /// The node that asks, and the number of its question.
    #[serde(rename = "n")]
    pub(crate) node: u64,
    #[serde(rename = "q")]
    pub(crate) question: u64,
    #[serde(rename = "w")]
    what: AskedBody,
}

/// An answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MailedAnswer {
    #[serde(rename = "q")]
    pub(crate) question: u64,
    #[serde(rename = "a")]
    pub(crate) answer: AnswerToNode,
}

#[derive(Debug, Serialize, Deserialize)]
enum AskedBody {
    #[serde(rename = "s")]
    Start(AskedStart),
    /// A start that follows this run.
    #[serde(rename = "f")]
    StartFollowing(AskedStart, u128),
    #[serde(rename = "t")]
    Tell(TargetBody, TellBody),
    #[serde(rename = "r")]
    Await(TargetBody),
    #[serde(rename = "d")]
    Describe(TargetBody),
    #[serde(rename = "q")]
    Query(TargetBody, String, ByteBuf),
    #[serde(rename = "u")]
    Update(TargetBody, String, String, ByteBuf),
    #[serde(rename = "c")]
    Command(AskedCommand),
    /// A start with a request. The question about that request has the next number.
    #[serde(rename = "b")]
    StartWith(AskedStart, FirstBody),
    #[serde(rename = "w")]
    Watch(TargetBody),
}

#[derive(Debug, Serialize, Deserialize)]
enum FirstBody {
    #[serde(rename = "s")]
    Signal {
        #[serde(rename = "n")]
        name: String,
        #[serde(rename = "v")]
        value: ByteBuf,
        #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
        #[serde(rename = "b", default)]
        is_by_name: bool,
    },
    /// The request, the name and the input.
    #[serde(rename = "u")]
    Update(String, String, ByteBuf),
}

#[derive(Debug, Serialize, Deserialize)]
enum TargetBody {
    /// The latest run of an instance. If a workflow is named, the instance must have begun as that.
    #[serde(rename = "i")]
    Latest(String, Option<String>),
    #[serde(rename = "r")]
    Run(u128),
}

#[derive(Debug, Serialize, Deserialize)]
struct AskedStart {
    #[serde(rename = "i")]
    id: String,
    #[serde(rename = "w")]
    workflow: String,
    #[serde(rename = "p")]
    input: ByteBuf,
    #[serde(rename = "c")]
    on_conflict: ConflictBody,
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    cause: Option<(u128, u32)>,
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    triggered_by: Option<String>,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    delay: Option<DelayBody>,
    #[serde(rename = "y", default, skip_serializing_if = "Option::is_none")]
    retry: Option<Retry>,
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    timeouts: Option<StartTimeouts>,
}

/// In microseconds.
#[derive(Debug, Serialize, Deserialize)]
enum DelayBody {
    #[serde(rename = "b")]
    By(u64),
    #[serde(rename = "u")]
    Until(u64),
}

#[derive(Debug, Serialize, Deserialize)]
enum ConflictBody {
    #[serde(rename = "a")]
    Attach,
    #[serde(rename = "r")]
    Refuse,
    #[serde(rename = "f")]
    RestartFinished,
    #[serde(rename = "x")]
    RestartFailed,
    #[serde(rename = "t")]
    TerminateRunning,
}

#[derive(Debug, Serialize, Deserialize)]
enum TellBody {
    #[serde(rename = "s")]
    Signal {
        #[serde(rename = "n")]
        name: String,
        #[serde(rename = "v")]
        value: ByteBuf,
        #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
        cause: Option<(u128, u32)>,
        #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
        #[serde(rename = "b", default)]
        is_by_name: bool,
    },
    #[serde(rename = "c")]
    Cancel(String),
    #[serde(rename = "t")]
    Terminate(String),
    #[serde(rename = "p")]
    Pause(String),
    #[serde(rename = "e")]
    EndPromise(u32, Result<ByteBuf, String>),
    #[serde(rename = "r")]
    Resume,
    /// The instance, the run that begins, and the point to which the latest run is reset.
    #[serde(rename = "b")]
    Reset(String, u128, Box<ResetPoint>),
}

#[derive(Debug, Serialize, Deserialize)]
struct AskedCommand {
    #[serde(rename = "i")]
    id: String,
    #[serde(rename = "w")]
    workflow: String,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "p")]
    input: ByteBuf,
}

/// The answer for a caller.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AnswerToNode {
    /// The run that a start led to, whether the start has begun it, and whether it is known to be of the right workflow.
    #[serde(rename = "s")]
    Start(Result<(u128, bool, bool), StartErrorBody>),
    #[serde(rename = "t")]
    Tell(Result<(), RunErrorBody>),
    #[serde(rename = "r")]
    Standing(Result<StandingBody, RunErrorBody>),
    /// The run, the epoch of its partition, and whether it is parked. Its history tells the rest.
    #[serde(rename = "d")]
    Describe(Result<(u128, u64, bool), RunErrorBody>),
    #[serde(rename = "q")]
    Query(Result<ByteBuf, QueryErrorBody>),
    #[serde(rename = "u")]
    Update(Result<Result<ByteBuf, String>, UpdateRefusedBody>),
    #[serde(rename = "c")]
    Command(Result<ByteBuf, CommandRefusedBody>),
    /// The run is watched; `Changed` follows when it makes progress.
    #[serde(rename = "w")]
    Watched(Result<(), RunErrorBody>),
    #[serde(rename = "g")]
    Changed,
    /// There is no answer: the answer to the other question of the mail says why.
    #[serde(rename = "o")]
    Dropped,
    /// The shard that had the question has dropped it, as a shard does that fails: it has to be asked again.
    #[serde(rename = "m")]
    AskAgain,
    /// The partition has another owner, or will have one: that has to be asked.
    #[serde(rename = "l")]
    Moved,
    /// The question cannot be handled, for this reason.
    #[serde(rename = "x")]
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StandingBody {
    #[serde(rename = "c")]
    Continued(u128),
    #[serde(rename = "p")]
    Parked(ParkReason),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StartErrorBody {
    #[serde(rename = "m")]
    TooManyLive(usize),
    #[serde(rename = "r")]
    AlreadyRunning(u128),
    #[serde(rename = "f")]
    AlreadyFinished(u128),
    #[serde(rename = "n")]
    NotRetained(u128),
    #[serde(rename = "w")]
    OtherWorkflow(String, String),
    #[serde(rename = "t")]
    Turn(String),
    #[serde(rename = "l")]
    NotReplaced(RunErrorBody),
    #[serde(rename = "x")]
    Other(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RunErrorBody {
    #[serde(rename = "n")]
    NotFound,
    #[serde(rename = "e")]
    Expired,
    #[serde(rename = "f")]
    Finished,
    #[serde(rename = "w")]
    OtherWorkflow(String, String),
    #[serde(rename = "t")]
    Turn(String),
    #[serde(rename = "h")]
    History(String),
    #[serde(rename = "g")]
    ReservedName(String),
    #[serde(rename = "r")]
    Refused(RefusedBody),
    #[serde(rename = "b")]
    NotReset(Box<ResetRefused>),
    #[serde(rename = "x")]
    Other(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RefusedBody {
    #[serde(rename = "s")]
    TooManySignals(usize),
    #[serde(rename = "r")]
    Rejected(ByteBuf, String),
    #[serde(rename = "u")]
    UnknownUpdate(String),
    #[serde(rename = "c")]
    UnknownCommand(String),
    #[serde(rename = "p")]
    CommandPanicked(String),
    #[serde(rename = "a")]
    Act(String),
    #[serde(rename = "e")]
    Ending,
    #[serde(rename = "n")]
    NoState,
    #[serde(rename = "v")]
    ValidatorPanicked(String),
    #[serde(rename = "l")]
    TooLarge(usize, usize),
    #[serde(rename = "h")]
    HistoryFull(u64),
    #[serde(rename = "k")]
    StillParked(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum QueryErrorBody {
    #[serde(rename = "u")]
    Unknown(String),
    #[serde(rename = "n")]
    NoState,
    #[serde(rename = "p")]
    Panicked(String),
    #[serde(rename = "k")]
    Parked(String),
    #[serde(rename = "r")]
    Run(RunErrorBody),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum UpdateRefusedBody {
    #[serde(rename = "p")]
    Parked(ParkReason),
    #[serde(rename = "r")]
    Run(RunErrorBody),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum CommandRefusedBody {
    #[serde(rename = "s")]
    Start(StartErrorBody),
    #[serde(rename = "r")]
    Run(RunErrorBody),
}

/// The asker of a request whose rest cannot be read.
#[derive(Debug, Deserialize)]
pub(super) struct Asker {
    #[serde(rename = "n")]
    pub(super) node: u64,
    #[serde(rename = "q")]
    pub(super) question: u64,
}

/// The question of an answer whose rest cannot be read.
#[derive(Debug, Deserialize)]
pub(super) struct AnsweredQuestion {
    #[serde(rename = "q")]
    pub(super) question: u64,
}

/// The bytes of a request of this node, with this number; `None` for a request that stays within a process.
///
/// # Errors
/// [`MessageError::TooLong`].
pub(crate) fn encode_request(
    node: u64,
    question: u64,
    request: &Request,
) -> Result<Option<Vec<u8>>, MessageError> {
    let Some(what) = AskedBody::of(request) else {
        return Ok(None);
    };
    let request = MailedRequest { node, question, what };
    write(REQUEST, &request).map(Some)
}

/// The bytes of an update for a run that a start has led to.
///
/// # Errors
/// [`MessageError::TooLong`].
pub(crate) fn encode_update(
    node: u64,
    question: u64,
    run: u128,
    update: &UpdateRequest,
) -> Result<Vec<u8>, MessageError> {
    let (request, name) = (update.request.clone(), update.name.to_string());
    let what = AskedBody::Update(TargetBody::Run(run), request, name, bytes_of(&update.input));
    write(REQUEST, &MailedRequest { node, question, what })
}

/// The bytes of a request, under another number.
///
/// # Errors
/// [`MessageError::Body`] if they are not those of a request.
pub(crate) fn renumbered(request: &Bytes, question: u64) -> Result<Vec<u8>, MessageError> {
    let body = request.slice(request.len().min(2)..);
    let request: MailedRequest = super::v1::read(&body)?;
    write(REQUEST, &MailedRequest { question, ..request })
}

/// The bytes of an answer. An answer that is too long is replaced by one that says so.
pub(crate) fn encode_answer(question: u64, answer: AnswerToNode) -> Vec<u8> {
    let answered = MailedAnswer { question, answer };
    write(ANSWER, &answered).unwrap_or_else(|error| {
        let answer = AnswerToNode::Failed(format!("its answer cannot be mailed: {error}"));
        // This short answer cannot fail to encode.
        write(ANSWER, &MailedAnswer { question, answer }).unwrap_or_default()
    })
}

fn write(kind: u8, body: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    let bytes = super::v1::write(kind, body)?;
    super::check_len(bytes.len())?;
    Ok(bytes)
}

fn bytes_of(payload: &Payload) -> ByteBuf {
    ByteBuf::from(payload.as_bytes())
}

fn payload_of(bytes: ByteBuf) -> Payload {
    Payload::from_bytes(Bytes::from(bytes.into_vec()))
}

fn cause_bits(cause: &Cause) -> (u128, u32) {
    (cause.run.bits(), cause.operation)
}

fn run_of(bits: u128) -> Result<RunId, MessageError> {
    super::v1::run_id(bits)
}

fn cause_of((run, operation): (u128, u32)) -> Result<Cause, MessageError> {
    let run = run_of(run)?;
    Ok(Cause { run, operation })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl AskedBody {
    fn of(request: &Request) -> Option<Self> {
        Some(match request {
            Request::Start(start) => Self::Start(AskedStart::of(start)),
            Request::StartFollowing(after) => {
                Self::StartFollowing(AskedStart::of(&after.start), after.run.bits())
            }
            Request::Tell { target, what, .. } => Self::Tell(TargetBody::of(target), TellBody::of(what)?),
            Request::Await { target, .. } => Self::Await(TargetBody::of(target)),
            Request::Describe { target, .. } => Self::Describe(TargetBody::of(target)),
            Request::Query { target, question, .. } => Self::Query(
                TargetBody::of(target),
                question.name.to_string(),
                bytes_of(&question.value),
            ),
            Request::Update { target, request, .. } => Self::Update(
                TargetBody::of(target),
                request.request.clone(),
                request.name.to_string(),
                bytes_of(&request.input),
            ),
            Request::Command(command) => Self::Command(AskedCommand {
                id: command.id.as_str().to_owned(),
                workflow: command.workflow.to_string(),
                request: command.command.request.as_deref().map(str::to_owned),
                name: command.command.name.to_string(),
                input: bytes_of(&command.command.input),
            }),
            Request::StartWith(with) => {
                Self::StartWith(AskedStart::of(&with.start), FirstBody::of(&with.with))
            }
            Request::Watch { target, .. } => Self::Watch(TargetBody::of(target)),
            Request::List { .. } | Request::Find(_) | Request::Append(_) => return None,
        })
    }
}

impl MailedRequest {
    /// Whether it may be repeated: it changes nothing, or has a name by which a repetition is recognised.
    pub(crate) fn is_question(&self) -> bool {
        match self.what {
            AskedBody::Await(_)
            | AskedBody::Describe(_)
            | AskedBody::Query(..)
            | AskedBody::Update(..)
            | AskedBody::Watch(_) => true,
            AskedBody::Start(_)
            | AskedBody::StartWith(..)
            | AskedBody::StartFollowing(..)
            | AskedBody::Tell(..)
            | AskedBody::Command(_) => false,
        }
    }

    /// The number of its answers.
    pub(crate) fn answers(&self) -> usize {
        match self.what {
            AskedBody::StartWith(..) => 2,
            _ => 1,
        }
    }

    /// The question whose answer removes the mail, even if another answer is still to come: a start is answered when it is
    /// durable, and the update that came with it is then repeated by its name, for the run that has begun.
    pub(crate) fn enough(&self) -> Option<u64> {
        matches!(self.what, AskedBody::StartWith(_, FirstBody::Update(..))).then_some(self.question)
    }

    /// The request as a shard takes it, with the channels for its answers.
    ///
    /// # Errors
    /// When it contains an impossible value.
    pub(crate) fn into_request(self, replies: &impl Replies) -> Result<Request, MessageError> {
        let question = self.question;
        Ok(match self.what {
            AskedBody::Start(start) => Request::Start(start.into_start(replies.of(question))?),
            AskedBody::StartFollowing(start, run) => Request::StartFollowing(Box::new(StartFollowing {
                run: run_of(run)?,
                start: start.into_start(replies.of(question))?,
            })),
            AskedBody::Tell(target, what) => Request::Tell {
                target: target.into_target()?,
                what: what.into_tell()?,
                reply: replies.of(question),
            },
            AskedBody::Await(target) => Request::Await {
                target: target.into_target()?,
                reply: replies.of(question),
            },
            AskedBody::Describe(target) => Request::Describe {
                target: target.into_target()?,
                wake: Wake::Never,
                reply: replies.of(question),
            },
            AskedBody::Query(target, name, value) => Request::Query {
                target: target.into_target()?,
                question: Question {
                    name: name.into(),
                    value: payload_of(value),
                },
                reply: replies.of(question),
            },
            AskedBody::Update(target, request, name, input) => Request::Update {
                target: target.into_target()?,
                request: UpdateRequest {
                    request,
                    name: name.into(),
                    input: payload_of(input),
                },
                reply: replies.of(question),
            },
            AskedBody::Command(command) => Request::Command(Box::new(CommandRequest {
                id: InstanceId::new(&command.id)?,
                workflow: command.workflow.into(),
                command: EntityRequest {
                    request: command.request.map(Into::into),
                    name: command.name.into(),
                    input: payload_of(command.input),
                },
                reply: replies.of(question),
            })),
            AskedBody::StartWith(start, first) => Request::StartWith(Box::new(StartWith {
                start: start.into_start(replies.of(question))?,
                with: first.into_first(replies, question.wrapping_add(1)),
            })),
            AskedBody::Watch(target) => Request::Watch {
                target: target.into_target()?,
                reply: replies.of(question),
            },
        })
    }
}

impl FirstBody {
    fn of(first: &FirstRequest) -> Self {
        match first {
            FirstRequest::Signal {
                name,
                value,
                request,
                is_by_name,
                reply: _,
            } => Self::Signal {
                name: name.to_string(),
                value: bytes_of(value),
                request: request.as_deref().map(str::to_owned),
                is_by_name: *is_by_name,
            },
            FirstRequest::Update { update, reply: _ } => Self::Update(
                update.request.clone(),
                update.name.to_string(),
                bytes_of(&update.input),
            ),
        }
    }

    fn into_first(self, replies: &impl Replies, question: u64) -> FirstRequest {
        match self {
            Self::Signal {
                name,
                value,
                request,
                is_by_name,
            } => FirstRequest::Signal {
                name: name.into(),
                value: payload_of(value),
                request: request.map(Into::into),
                is_by_name,
                reply: replies.of(question),
            },
            Self::Update(request, name, input) => FirstRequest::Update {
                update: UpdateRequest {
                    request,
                    name: name.into(),
                    input: payload_of(input),
                },
                reply: replies.of(question),
            },
        }
    }
}

impl TargetBody {
    fn of(target: &Target) -> Self {
        match target {
            Target::Latest(latest) => Self::Latest(
                latest.id.as_str().to_owned(),
                latest.workflow.as_ref().map(ToString::to_string),
            ),
            Target::Run(run) => Self::Run(run.bits()),
        }
    }

    fn into_target(self) -> Result<Target, MessageError> {
        Ok(match self {
            Self::Latest(id, workflow) => Target::Latest(Arc::new(Latest {
                id: InstanceId::new(&id)?,
                workflow: workflow.map(Into::into),
            })),
            Self::Run(run) => Target::Run(run_of(run)?),
        })
    }
}

impl AskedStart {
    fn of(start: &StartRequest) -> Self {
        let details = start.details.as_deref();
        let delay = details
            .and_then(|details| details.delay)
            .map(|delay| match delay {
                StartDelay::By(pause) => DelayBody::By(micros(pause)),
                StartDelay::Until(at) => DelayBody::Until(at.as_micros()),
            });
        Self {
            id: start.id.as_str().to_owned(),
            workflow: start.workflow.to_string(),
            input: bytes_of(&start.input),
            on_conflict: match start.on_conflict {
                OnConflict::Attach => ConflictBody::Attach,
                OnConflict::Refuse => ConflictBody::Refuse,
                OnConflict::RestartFinished => ConflictBody::RestartFinished,
                OnConflict::RestartFailed => ConflictBody::RestartFailed,
                OnConflict::TerminateRunning => ConflictBody::TerminateRunning,
            },
            cause: details.and_then(|details| details.cause.as_ref()).map(cause_bits),
            triggered_by: details.and_then(|details| details.triggered_by.as_deref().map(str::to_owned)),
            trace: details.and_then(|details| details.trace.as_ref().map(ToString::to_string)),
            delay,
            retry: details.and_then(|details| details.retry),
            timeouts: details.and_then(|details| details.timeouts),
        }
    }

    fn into_start(self, reply: Reply<StartedRun, StartError>) -> Result<StartRequest, MessageError> {
        let trace = self.trace.map(|trace| trace.parse::<TraceContext>());
        let details = StartDetails {
            cause: self.cause.map(cause_of).transpose()?,
            triggered_by: self.triggered_by.map(Into::into),
            trace: trace.transpose().map_err(super::v1::malformed)?,
            delay: self.delay.map(|delay| match delay {
                DelayBody::By(pause) => StartDelay::By(Duration::from_micros(pause)),
                DelayBody::Until(at) => StartDelay::Until(Timestamp::from_micros(at)),
            }),
            retry: self.retry,
            timeouts: self.timeouts,
        };
        Ok(StartRequest {
            id: InstanceId::new(&self.id)?,
            workflow: self.workflow.into(),
            input: payload_of(self.input),
            details: details.says_something().then(|| Box::new(details)),
            on_conflict: match self.on_conflict {
                ConflictBody::Attach => OnConflict::Attach,
                ConflictBody::Refuse => OnConflict::Refuse,
                ConflictBody::RestartFinished => OnConflict::RestartFinished,
                ConflictBody::RestartFailed => OnConflict::RestartFailed,
                ConflictBody::TerminateRunning => OnConflict::TerminateRunning,
            },
            reply,
            end: None,
        })
    }
}

impl TellBody {
    fn of(what: &Tell) -> Option<Self> {
        Some(match what {
            Tell::Signal {
                name,
                value,
                cause,
                request,
                is_by_name,
            } => Self::Signal {
                name: name.to_string(),
                value: bytes_of(value),
                cause: cause.as_deref().map(cause_bits),
                request: request.as_deref().map(str::to_owned),
                is_by_name: *is_by_name,
            },
            Tell::Cancel { reason } => Self::Cancel(reason.clone()),
            Tell::Terminate { reason } => Self::Terminate(reason.clone()),
            Tell::Pause { reason } => Self::Pause(reason.clone()),
            Tell::EndPromise { operation, end } => {
                Self::EndPromise(operation.get(), end.as_ref().map(bytes_of).map_err(Clone::clone))
            }
            Tell::Reset(order) => Self::Reset(
                order.id.as_str().to_owned(),
                order.next.bits(),
                Box::new(order.point.clone()),
            ),
            Tell::Resume => Self::Resume,
            // Other nodes are not asked to deliver records.
            Tell::RecordReceived { .. } => return None,
        })
    }

    fn into_tell(self) -> Result<Tell, MessageError> {
        Ok(match self {
            Self::Signal {
                name,
                value,
                cause,
                request,
                is_by_name,
            } => Tell::Signal {
                name: name.into(),
                value: payload_of(value),
                cause: cause.map(cause_of).transpose()?.map(Box::new),
                request: request.map(Into::into),
                is_by_name,
            },
            Self::Cancel(reason) => Tell::Cancel { reason },
            Self::Terminate(reason) => Tell::Terminate { reason },
            Self::Pause(reason) => Tell::Pause { reason },
            Self::EndPromise(operation, end) => Tell::EndPromise {
                operation: OperationId::new(operation),
                end: end.map(payload_of),
            },
            Self::Reset(id, next, point) => Tell::Reset(Box::new(ResetOrder {
                id: InstanceId::new(&id)?,
                next: run_of(next)?,
                point: *point,
            })),
            Self::Resume => Tell::Resume,
        })
    }
}

impl AnswerToNode {
    pub(crate) fn start(answer: &Result<StartedRun, StartError>) -> Self {
        let answer = answer.as_ref();
        Self::Start(
            answer
                .map(|started| (started.run.bits(), started.is_begun, started.is_checked))
                .map_err(StartErrorBody::of),
        )
    }

    pub(crate) fn tell(answer: &Result<(), RunError>) -> Self {
        Self::Tell(answer.as_ref().copied().map_err(RunErrorBody::of))
    }

    pub(crate) fn watched(answer: &Result<Changed, RunError>) -> Self {
        Self::Watched(answer.as_ref().map(|_| ()).map_err(RunErrorBody::of))
    }

    /// For an ended run: the store has the outcome.
    pub(crate) fn standing(answer: &Result<Standing, RunError>) -> Self {
        Self::Standing(match answer {
            Ok(Standing::Ended(Outcome::Continued(next))) => Ok(StandingBody::Continued(next.bits())),
            Ok(Standing::Ended(_)) => Err(RunErrorBody::NotFound),
            Ok(Standing::Parked(reason)) => Ok(StandingBody::Parked(reason.clone())),
            Err(error) => Err(RunErrorBody::of(error)),
        })
    }

    /// The rest is in the run's history; `epoch` gives the epoch of a run's partition.
    pub(crate) fn describe(answer: &Result<Described, RunError>, epoch: impl Fn(RunId) -> Epoch) -> Self {
        Self::Describe(match answer {
            Ok(Described::InMemory(description)) => match description.ended_at {
                Some(_) => Err(RunErrorBody::NotFound),
                None => Ok((
                    description.run.bits(),
                    epoch(description.run).get(),
                    description.parked.is_some(),
                )),
            },
            Ok(Described::OnDisk(on_disk)) => {
                Ok((on_disk.run.bits(), on_disk.epoch.get(), on_disk.is_parked))
            }
            Err(error) => Err(RunErrorBody::of(error)),
        })
    }

    pub(crate) fn query(answer: &Result<Payload, QueryError>) -> Self {
        Self::Query(answer.as_ref().map(bytes_of).map_err(QueryErrorBody::of))
    }

    pub(crate) fn update(answer: &Result<UpdateAnswer, UpdateRefused>) -> Self {
        Self::Update(match answer {
            Ok(answer) => Ok(answer.as_ref().map(bytes_of).map_err(Clone::clone)),
            Err(UpdateRefused::Parked(reason)) => Err(UpdateRefusedBody::Parked(reason.clone())),
            Err(UpdateRefused::Run(error)) => Err(UpdateRefusedBody::Run(RunErrorBody::of(error))),
        })
    }

    pub(crate) fn command(answer: &Result<Payload, CommandRefused>) -> Self {
        Self::Command(match answer {
            Ok(answer) => Ok(bytes_of(answer)),
            Err(CommandRefused::Start(error)) => Err(CommandRefusedBody::Start(StartErrorBody::of(error))),
            Err(CommandRefused::Run(error)) => Err(CommandRefusedBody::Run(RunErrorBody::of(error))),
        })
    }
}

pub(crate) fn start_answer(
    answer: Result<(u128, bool, bool), StartErrorBody>,
) -> Result<Result<StartedRun, StartError>, MessageError> {
    Ok(match answer {
        Ok((run, is_begun, is_checked)) => Ok(StartedRun {
            run: run_of(run)?,
            is_begun,
            is_checked,
        }),
        Err(error) => Err(error.into_error()?),
    })
}

pub(crate) fn standing_answer(
    answer: Result<StandingBody, RunErrorBody>,
) -> Result<Result<Standing, RunError>, MessageError> {
    Ok(match answer {
        Ok(StandingBody::Continued(next)) => Ok(Standing::Ended(Outcome::Continued(run_of(next)?))),
        Ok(StandingBody::Parked(reason)) => Ok(Standing::Parked(reason)),
        Err(error) => Err(error.into_error()),
    })
}

pub(crate) fn described_answer(
    answer: Result<(u128, u64, bool), RunErrorBody>,
) -> Result<Result<Described, RunError>, MessageError> {
    Ok(match answer {
        Ok((run, epoch, is_parked)) => Ok(Described::OnDisk(OnDisk {
            run: run_of(run)?,
            epoch: Epoch::new(epoch),
            is_parked,
        })),
        Err(error) => Err(error.into_error()),
    })
}

pub(crate) fn query_answer(answer: Result<ByteBuf, QueryErrorBody>) -> Result<Payload, QueryError> {
    answer.map(payload_of).map_err(QueryErrorBody::into_error)
}

pub(crate) fn update_answer(
    answer: Result<Result<ByteBuf, String>, UpdateRefusedBody>,
) -> Result<UpdateAnswer, UpdateRefused> {
    match answer {
        Ok(answer) => Ok(answer.map(payload_of)),
        Err(UpdateRefusedBody::Parked(reason)) => Err(UpdateRefused::Parked(reason)),
        Err(UpdateRefusedBody::Run(error)) => Err(error.into_error().into()),
    }
}

pub(crate) fn command_answer(
    answer: Result<ByteBuf, CommandRefusedBody>,
) -> Result<Result<Payload, CommandRefused>, MessageError> {
    Ok(match answer {
        Ok(answer) => Ok(payload_of(answer)),
        Err(CommandRefusedBody::Start(error)) => Err(error.into_error()?.into()),
        Err(CommandRefusedBody::Run(error)) => Err(error.into_error().into()),
    })
}

impl StartErrorBody {
    fn of(error: &StartError) -> Self {
        match error {
            StartError::TooManyLive { len_max } => Self::TooManyLive(*len_max),
            StartError::AlreadyRunning { run } => Self::AlreadyRunning(run.bits()),
            StartError::AlreadyFinished { run } => Self::AlreadyFinished(run.bits()),
            StartError::NotRetained { run } => Self::NotRetained(run.bits()),
            StartError::OtherWorkflow { expected, workflow } => {
                Self::OtherWorkflow(expected.to_string(), workflow.clone())
            }
            StartError::Turn(cause) => Self::Turn(cause.clone()),
            StartError::NotReplaced(error) => Self::NotReplaced(RunErrorBody::of(error)),
            error => Self::Other(error.to_string()),
        }
    }

    fn into_error(self) -> Result<StartError, MessageError> {
        Ok(match self {
            Self::TooManyLive(len_max) => StartError::TooManyLive { len_max },
            Self::AlreadyRunning(run) => StartError::AlreadyRunning { run: run_of(run)? },
            Self::AlreadyFinished(run) => StartError::AlreadyFinished { run: run_of(run)? },
            Self::NotRetained(run) => StartError::NotRetained { run: run_of(run)? },
            Self::OtherWorkflow(expected, workflow) => StartError::OtherWorkflow {
                expected: expected.into(),
                workflow,
            },
            Self::Turn(cause) => StartError::Turn(cause),
            Self::NotReplaced(error) => StartError::NotReplaced(Box::new(error.into_error())),
            Self::Other(message) => StartError::Elsewhere { message },
        })
    }
}

impl RunErrorBody {
    fn of(error: &RunError) -> Self {
        match error {
            RunError::NotFound => Self::NotFound,
            RunError::Expired => Self::Expired,
            RunError::Finished => Self::Finished,
            RunError::OtherWorkflow { expected, workflow } => {
                Self::OtherWorkflow(expected.to_string(), workflow.clone())
            }
            RunError::Turn(cause) => Self::Turn(cause.clone()),
            RunError::History(cause) => Self::History(cause.clone()),
            RunError::ReservedName { workflow } => Self::ReservedName(workflow.clone()),
            RunError::NotReset(refused) => Self::NotReset(refused.clone()),
            RunError::Refused(refused) => {
                RefusedBody::of(refused).map_or_else(|| Self::Other(error.to_string()), Self::Refused)
            }
            error => Self::Other(error.to_string()),
        }
    }

    pub(crate) fn into_error(self) -> RunError {
        match self {
            Self::NotFound => RunError::NotFound,
            Self::Expired => RunError::Expired,
            Self::Finished => RunError::Finished,
            Self::OtherWorkflow(expected, workflow) => RunError::OtherWorkflow {
                expected: expected.into(),
                workflow,
            },
            Self::Turn(cause) => RunError::Turn(cause),
            Self::History(cause) => RunError::History(cause),
            Self::ReservedName(workflow) => RunError::ReservedName { workflow },
            Self::NotReset(refused) => RunError::NotReset(refused),
            Self::Refused(refused) => RunError::Refused(refused.into_refused()),
            Self::Other(message) => RunError::Elsewhere { message },
        }
    }

    pub(crate) fn answer(answer: Result<(), Self>) -> Result<(), RunError> {
        answer.map_err(Self::into_error)
    }
}

impl RefusedBody {
    fn of(refused: &InputRefused) -> Option<Self> {
        Some(match refused {
            InputRefused::TooManySignals { len_max } => Self::TooManySignals(*len_max),
            InputRefused::Rejected { error, message } => Self::Rejected(bytes_of(error), message.clone()),
            InputRefused::UnknownUpdate { name } => Self::UnknownUpdate(name.clone()),
            InputRefused::UnknownCommand { name } => Self::UnknownCommand(name.clone()),
            InputRefused::CommandPanicked(message) => Self::CommandPanicked(message.clone()),
            InputRefused::Act(cause) => Self::Act(cause.clone()),
            InputRefused::Ending => Self::Ending,
            InputRefused::NoState => Self::NoState,
            InputRefused::ValidatorPanicked(message) => Self::ValidatorPanicked(message.clone()),
            InputRefused::TooLarge { bytes, bytes_max } => Self::TooLarge(*bytes, *bytes_max),
            InputRefused::HistoryFull { len_max } => Self::HistoryFull(*len_max),
            InputRefused::StillParked(cause) => Self::StillParked(cause.clone()),
            _ => return None,
        })
    }

    fn into_refused(self) -> InputRefused {
        match self {
            Self::TooManySignals(len_max) => InputRefused::TooManySignals { len_max },
            Self::Rejected(error, message) => InputRefused::Rejected {
                error: payload_of(error),
                message,
            },
            Self::UnknownUpdate(name) => InputRefused::UnknownUpdate { name },
            Self::UnknownCommand(name) => InputRefused::UnknownCommand { name },
            Self::CommandPanicked(message) => InputRefused::CommandPanicked(message),
            Self::Act(cause) => InputRefused::Act(cause),
            Self::Ending => InputRefused::Ending,
            Self::NoState => InputRefused::NoState,
            Self::ValidatorPanicked(message) => InputRefused::ValidatorPanicked(message),
            Self::TooLarge(bytes, bytes_max) => InputRefused::TooLarge { bytes, bytes_max },
            Self::HistoryFull(len_max) => InputRefused::HistoryFull { len_max },
            Self::StillParked(cause) => InputRefused::StillParked(cause),
        }
    }
}

impl QueryErrorBody {
    fn of(error: &QueryError) -> Self {
        match error {
            QueryError::Unanswered(Unanswered::Unknown { name }) => Self::Unknown(name.clone()),
            QueryError::Unanswered(Unanswered::NoState) => Self::NoState,
            QueryError::Unanswered(Unanswered::Panicked(message)) => Self::Panicked(message.clone()),
            QueryError::Unanswered(Unanswered::Parked(cause)) => Self::Parked(cause.clone()),
            QueryError::Run(error) => Self::Run(RunErrorBody::of(error)),
            error => Self::Run(RunErrorBody::Other(error.to_string())),
        }
    }

    fn into_error(self) -> QueryError {
        match self {
            Self::Unknown(name) => Unanswered::Unknown { name }.into(),
            Self::NoState => Unanswered::NoState.into(),
            Self::Panicked(message) => Unanswered::Panicked(message).into(),
            Self::Parked(cause) => Unanswered::Parked(cause).into(),
            Self::Run(error) => error.into_error().into(),
        }
    }
}
