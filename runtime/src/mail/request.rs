//! Requests of clients to a shard. Each knows where its answer goes.

use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Cause, Epoch, InstanceId, Partition, RunId, Sequence, Timestamp, TraceContext};
use millrun_persistence::TopicNumber;
use millrun_workflow::{
    Name, OperationId, Outcome, ParkReason, Payload, RawRecord, ResetPoint, Retry, StartTimeouts, Started,
};
use tokio::sync::oneshot;

use super::command::{CommandRefused, CommandReply, CommandRequest};
use super::reply::{CallerReply, Reply};
use super::target::Target;
use crate::looking::find::{RunSearch, RunSummary};
use crate::operating::{InstanceDescription, InstanceSummary};
use crate::shard::StartKey;
use crate::topics::durable::publish::{Appended, DurablePublishError};
use crate::wire::MessageError;
use crate::wire::calls::{self, AnswerToNode, RunErrorBody};
use crate::{OnConflict, QueryError, RunError, StartError, StopCause};

/// A request of a client to a shard. Each waits for room in the shard's mailbox.
#[derive(Debug)]
pub(crate) enum Request {
    Start(StartRequest),
    StartWith(Box<StartWith>),
    StartFollowing(Box<StartFollowing>),
    Tell {
        target: Target,
        what: Tell,
        reply: Reply<()>,
    },
    Await {
        target: Target,
        reply: Reply<Standing>,
    },
    Describe {
        target: Target,
        wake: Wake,
        reply: Reply<Described>,
    },
    /// Asks to be told when the run makes progress.
    Watch {
        target: Target,
        reply: Reply<Changed>,
    },
    Query {
        target: Target,
        question: Question,
        reply: Reply<Payload, QueryError>,
    },
    Update {
        target: Target,
        request: UpdateRequest,
        reply: UpdateReply,
    },
    List {
        after: Option<InstanceId>,
        len_max: usize,
        reply: Reply<Vec<InstanceSummary>>,
    },
    Find(Box<FindLive>),
    /// A record for a durable topic.
    Append(Box<AppendRequest>),
    Command(Box<CommandRequest>),
}

/// Where the answer goes to a request that another node was asked.
#[derive(Debug)]
pub(crate) enum PendingReply {
    Start(Reply<StartedRun, StartError>),
    Tell(Reply<()>),
    Standing(Reply<Standing>),
    Describe(Reply<Described>),
    Query(Reply<Payload, QueryError>),
    Update(UpdateReply),
    Command(CommandReply),
    Watch(Reply<Changed>),
    /// The run is being watched.
    Watching(oneshot::Sender<()>),
}

impl PendingReply {
    /// Whether no caller waits for the answer any more.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Start(reply) => reply.is_closed(),
            Self::Tell(reply) => reply.is_closed(),
            Self::Standing(reply) => reply.is_closed(),
            Self::Describe(reply) => reply.is_closed(),
            Self::Query(reply) => reply.is_closed(),
            Self::Update(reply) => reply.is_closed(),
            Self::Command(reply) => reply.is_closed(),
            Self::Watch(reply) => reply.is_closed(),
            Self::Watching(told) => told.is_closed(),
        }
    }

    /// Gives another node's answer to the caller.
    ///
    /// # Errors
    /// When it answers another kind of request, or cannot be read. The caller is told so.
    pub(crate) fn answer(self, answer: AnswerToNode) -> Result<(), MessageError> {
        match (self, answer) {
            (Self::Start(reply), AnswerToNode::Start(answer)) => reply.send(calls::start_answer(answer)?),
            (Self::Tell(reply), AnswerToNode::Tell(answer)) => reply.send(RunErrorBody::answer(answer)),
            (Self::Standing(reply), AnswerToNode::Standing(answer)) => {
                reply.send(calls::standing_answer(answer)?)
            }
            (Self::Describe(reply), AnswerToNode::Describe(answer)) => {
                reply.send(calls::described_answer(answer)?)
            }
            (Self::Query(reply), AnswerToNode::Query(answer)) => reply.send(calls::query_answer(answer)),
            (Self::Update(reply), AnswerToNode::Update(answer)) => reply.send(calls::update_answer(answer)),
            (Self::Command(reply), AnswerToNode::Command(answer)) => {
                reply.send(calls::command_answer(answer)?)
            }
            (Self::Watch(reply), AnswerToNode::Watched(Err(error))) => reply.send(Err(error.into_error())),
            (Self::Watching(told), AnswerToNode::Changed) => drop(told.send(())),
            // The start, which was asked together with it, tells the caller why.
            (_, AnswerToNode::Dropped) => {}
            (reply, AnswerToNode::Failed(message)) => reply.fail(message),
            (reply, _) => reply.fail("it has answered another question".to_owned()),
        }
        Ok(())
    }

    /// Tells the caller that the other node cannot handle the request.
    pub(crate) fn fail(self, message: String) {
        let error = RunError::Elsewhere {
            message: message.clone(),
        };
        match self {
            Self::Start(reply) => reply.send(Err(StartError::Elsewhere { message })),
            Self::Tell(reply) => reply.send(Err(error)),
            Self::Standing(reply) => reply.send(Err(error)),
            Self::Describe(reply) => reply.send(Err(error)),
            Self::Query(reply) => reply.send(Err(error.into())),
            Self::Update(reply) => reply.send(Err(error.into())),
            Self::Command(reply) => reply.send(Err(error.into())),
            Self::Watch(reply) => reply.send(Err(error)),
            // The caller looks again.
            Self::Watching(told) => drop(told),
        }
    }
}

/// A caller's record for a durable topic.
#[derive(Debug)]
pub(crate) struct AppendRequest {
    pub(crate) topic: TopicNumber,
    pub(crate) partition: Partition,
    pub(crate) id: Option<u128>,
    /// The header and the payload in one allocation: it is freed by the shard, and not by the thread that made it.
    pub(crate) body: Vec<u8>,
    pub(crate) payload_len: usize,
    /// Records that follow it in the same batch, each like `body`.
    pub(crate) more: Vec<Vec<u8>>,
    /// The record is appended only if this is the last record of this topic, which only the partition's owner writes.
    pub(crate) unless_changed: Option<(TopicNumber, Sequence)>,
    pub(crate) reply: Reply<Appended, DurablePublishError>,
}

/// A search for live runs.
#[derive(Debug)]
pub(crate) struct FindLive {
    pub(crate) filter: Arc<RunSearch>,
    /// Only runs that began before this one.
    pub(crate) before: Option<StartKey>,
    pub(crate) len_max: usize,
    pub(crate) reply: Reply<FoundLive>,
}

/// The latest live runs of a shard that match a search, the latest first.
#[derive(Debug)]
pub(crate) struct FoundLive {
    pub(crate) runs: Vec<RunSummary>,
    /// Where the search stopped, if there may be more: all runs that began then or later were examined.
    pub(crate) reached: Option<StartKey>,
}

/// The state of a run, as told to callers that wait for its result.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    Ended(Outcome),
    Parked(ParkReason),
}

/// Whether a run that is only on disk is brought into memory before it is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    Never,
    First,
}

/// What a shard knows of a run that is to be described.
#[derive(Debug)]
pub(crate) enum Described {
    InMemory(Box<InstanceDescription>),
    OnDisk(OnDisk),
}

/// A run that is only on disk: a reader describes it from its history, together with what only its shard knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnDisk {
    pub(crate) run: RunId,
    /// The epoch under which its shard owns it.
    pub(crate) epoch: Epoch,
    pub(crate) is_parked: bool,
}

impl Request {
    /// Whether it asks for something that is known without the run's code, and changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        match self {
            Self::Await { .. }
            | Self::Describe { .. }
            | Self::Watch { .. }
            | Self::List { .. }
            | Self::Find(_) => true,
            Self::Start(_)
            | Self::StartWith(_)
            | Self::StartFollowing(_)
            | Self::Tell { .. }
            | Self::Query { .. }
            | Self::Update { .. }
            | Self::Append(_)
            | Self::Command(_) => false,
        }
    }

    /// The partition that it is for; `None` if it is for all.
    #[inline]
    pub(crate) fn partition(&self) -> Option<Partition> {
        match self {
            Self::Start(start) => Some(start.id.partition()),
            Self::StartWith(with) => Some(with.start.id.partition()),
            Self::StartFollowing(after) => Some(after.start.id.partition()),
            Self::Tell { target, .. }
            | Self::Await { target, .. }
            | Self::Describe { target, .. }
            | Self::Watch { target, .. }
            | Self::Query { target, .. }
            | Self::Update { target, .. } => Some(target.partition()),
            Self::Append(append) => Some(append.partition),
            Self::Command(command) => Some(command.id.partition()),
            Self::List { .. } | Self::Find(_) => None,
        }
    }

    /// Whether a caller of another node waits for the answer.
    pub(crate) fn is_of_node(&self) -> bool {
        let asked = match self {
            Self::Start(start) => start.reply.asked_by(),
            Self::StartFollowing(after) => after.start.reply.asked_by(),
            Self::Tell { reply, .. } => reply.asked_by(),
            Self::Await { reply, .. } => reply.asked_by(),
            Self::Describe { reply, .. } => reply.asked_by(),
            Self::Query { reply, .. } => reply.asked_by(),
            Self::Update { reply, .. } => reply.asked_by(),
            Self::Command(command) => command.reply.asked_by(),
            Self::StartWith(with) => with.start.reply.asked_by(),
            Self::Watch { reply, .. } => reply.asked_by(),
            Self::List { .. } | Self::Find(_) | Self::Append(_) => None,
        };
        asked.is_some()
    }

    /// Whether it may be repeated: it changes nothing, or has a name by which a repetition is recognised.
    pub(crate) fn may_be_repeated(&self) -> bool {
        self.only_reads() || matches!(self, Self::Query { .. } | Self::Update { .. })
    }

    /// Whether a run may begin with it.
    pub(crate) fn begins_run(&self) -> bool {
        matches!(
            self,
            Self::Start(_) | Self::StartWith(_) | Self::StartFollowing(_)
        )
    }

    /// The id that it is about, unless it names a run.
    pub(crate) fn instance_id(&self) -> Option<&InstanceId> {
        let target = match self {
            Self::Start(start) => return Some(&start.id),
            Self::StartWith(with) => return Some(&with.start.id),
            Self::StartFollowing(after) => return Some(&after.start.id),
            Self::Command(command) => return Some(&command.id),
            Self::Tell { target, .. }
            | Self::Await { target, .. }
            | Self::Describe { target, .. }
            | Self::Watch { target, .. }
            | Self::Query { target, .. }
            | Self::Update { target, .. } => target,
            Self::List { .. } | Self::Find(_) | Self::Append(_) => return None,
        };
        match target {
            Target::Latest(latest) => Some(&latest.id),
            Target::Run(_) => None,
        }
    }

    /// The channels for the answers, if another node may be asked this; otherwise the request.
    #[expect(clippy::result_large_err, reason = "the request itself comes back")]
    pub(crate) fn into_replies(self) -> Result<Vec<PendingReply>, Self> {
        let reply = match self {
            Self::StartWith(with) => {
                let told = match with.with {
                    FirstRequest::Signal { reply, .. } => PendingReply::Tell(reply),
                    FirstRequest::Update { reply, .. } => PendingReply::Update(reply),
                };
                return Ok(vec![PendingReply::Start(with.start.reply), told]);
            }
            Self::Start(start) => PendingReply::Start(start.reply),
            Self::StartFollowing(after) => PendingReply::Start(after.start.reply),
            Self::Tell { reply, .. } => PendingReply::Tell(reply),
            Self::Await { reply, .. } => PendingReply::Standing(reply),
            Self::Describe { reply, .. } => PendingReply::Describe(reply),
            Self::Query { reply, .. } => PendingReply::Query(reply),
            Self::Update { reply, .. } => PendingReply::Update(reply),
            Self::Command(command) => PendingReply::Command(command.reply),
            Self::Watch { reply, .. } => PendingReply::Watch(reply),
            other @ (Self::List { .. } | Self::Find(_) | Self::Append(_)) => return Err(other),
        };
        Ok(vec![reply])
    }

    /// The update that comes with a start, if the update has a name.
    pub(crate) fn update_of_start(&self) -> Option<UpdateRequest> {
        match self {
            Self::StartWith(with) => match &with.with {
                FirstRequest::Update { update, .. } => Some(update.clone()),
                FirstRequest::Signal { .. } => None,
            },
            _ => None,
        }
    }

    /// Tells the caller why no other node can be asked.
    pub(crate) fn fail(self, message: &str) {
        for reply in self.into_replies().into_iter().flatten() {
            reply.fail(message.to_owned());
        }
    }

    /// Tells the caller that the partition has another owner, with the name of that node if it is known.
    pub(crate) fn refuse_moved(self, partition: Partition, owner: Option<Arc<str>>) {
        let not_started = || StartError::Moved {
            partition,
            owner: owner.clone(),
        };
        let error = || RunError::Moved {
            partition,
            owner: owner.clone(),
        };
        // It is no error if a caller has gone.
        match self {
            Self::Start(start) => start.reply.send(Err(not_started())),
            Self::StartWith(with) => {
                with.start.reply.send(Err(not_started()));
                match with.with {
                    FirstRequest::Signal { reply, .. } => reply.send(Err(error())),
                    FirstRequest::Update { reply, .. } => reply.send(Err(error().into())),
                }
            }
            Self::StartFollowing(after) => {
                after.start.reply.send(Err(not_started()));
            }
            Self::Tell { reply, .. } => reply.send(Err(error())),
            Self::Await { reply, .. } => reply.send(Err(error())),
            Self::Describe { reply, .. } => reply.send(Err(error())),
            Self::Watch { reply, .. } => reply.send(Err(error())),
            Self::Query { reply, .. } => reply.send(Err(error().into())),
            Self::Update { reply, .. } => reply.send(Err(error().into())),
            Self::Command(command) => {
                command.reply.send(Err(CommandRefused::from(error())));
            }
            Self::Append(append) => {
                append.reply.send(Err(DurablePublishError::Moved { partition }));
            }
            Self::List { reply, .. } => drop(reply),
            Self::Find(find) => drop(find),
        }
    }
}

/// A start, with everything that it needs.
#[derive(Debug)]
pub(crate) struct StartRequest {
    pub(crate) id: InstanceId,
    pub(crate) workflow: Name,
    pub(crate) input: Payload,
    pub(crate) details: Option<Box<StartDetails>>,
    pub(crate) on_conflict: OnConflict,
    pub(crate) reply: Reply<StartedRun, StartError>,
    /// Where the end of a run that begins with this is told, if a caller may wait for it.
    pub(crate) end: Option<CallerReply<Standing>>,
}

/// What few starts have: a cause, a trace, a delay, retries.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartDetails {
    pub(crate) cause: Option<Cause>,
    /// The trigger on a durable topic, and the record, if a trigger starts the run.
    pub(crate) triggered_by: Option<Box<str>>,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) delay: Option<StartDelay>,
    /// How the run is tried again when it fails.
    pub(crate) retry: Option<Retry>,
    /// How long the run may take, and its chain.
    pub(crate) timeouts: Option<StartTimeouts>,
}

impl StartDetails {
    /// Whether anything is set.
    pub(crate) fn says_something(&self) -> bool {
        let Self {
            cause,
            triggered_by,
            trace,
            delay,
            retry,
            timeouts,
        } = self;
        let stems = cause.is_some() || triggered_by.is_some() || trace.is_some();
        stems || delay.is_some() || retry.is_some() || timeouts.is_some()
    }
}

/// When the code of a run with a delayed start begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StartDelay {
    By(Duration),
    Until(Timestamp),
}

impl StartDetails {
    /// Adds the details to a run's beginning, at this time.
    pub(crate) fn said_of(self, mut started: Started, now: Timestamp) -> Started {
        let begins_at = self.delay.map(|delay| match delay {
            StartDelay::By(pause) => now + pause,
            StartDelay::Until(at) => at,
        });
        // A delay that is over does not count.
        if let Some(at) = begins_at.filter(|at| *at > now) {
            started = started.delayed_until(at);
        }
        if let Some(timeouts) = self.timeouts {
            started = started.timing_out(timeouts, now);
        }
        if let Some(retry) = self.retry {
            started = started.retried(retry);
        }
        if let Some(cause) = self.cause {
            started = started.caused_by(cause);
        }
        if let Some(trigger) = self.triggered_by {
            started = started.triggered_by(trigger);
        }
        match self.trace {
            Some(trace) => started.traced(trace),
            None => started,
        }
    }
}

/// A start with a request. If the instance has a live run, the request goes to that.
#[derive(Debug)]
pub(crate) struct StartWith {
    pub(crate) start: StartRequest,
    pub(crate) with: FirstRequest,
}

/// A start that ends the live run of its instance, with the request that it brings, if any.
#[derive(Debug)]
pub(crate) struct Replacement {
    pub(crate) start: StartRequest,
    pub(crate) with: Option<FirstRequest>,
}

/// A start that follows one particular run; `on_conflict` is ignored.
#[derive(Debug)]
pub(crate) struct StartFollowing {
    pub(crate) start: StartRequest,
    /// The run that has to be the latest of the instance, and finished.
    pub(crate) run: RunId,
}

/// The request that comes with a start, and where its outcome is told.
#[derive(Debug)]
pub(crate) enum FirstRequest {
    Signal {
        name: Name,
        value: Payload,
        /// The name of the request, if the signal has one.
        request: Option<Box<str>>,
        /// Whether it is sent by name only, with a value of any type.
        is_by_name: bool,
        reply: Reply<()>,
    },
    /// If a new run refuses this, it is not started, and the start's reply is dropped.
    Update {
        update: UpdateRequest,
        reply: UpdateReply,
    },
}

/// The run that a start led to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartedRun {
    pub(crate) run: RunId,
    /// Whether this start has begun it.
    pub(crate) is_begun: bool,
    /// Whether it is known to be a run of the workflow that was asked for.
    pub(crate) is_checked: bool,
}

impl StartedRun {
    /// A run that this start has begun.
    pub(crate) const fn begun(run: RunId) -> Self {
        Self {
            run,
            is_begun: true,
            is_checked: true,
        }
    }

    /// A run that existed.
    pub(crate) const fn attached(run: RunId, is_checked: bool) -> Self {
        Self {
            run,
            is_begun: false,
            is_checked,
        }
    }
}

/// A question about a run's state.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) name: Name,
    pub(crate) value: Payload,
}

/// A request to change a run's state.
#[derive(Clone, Debug)]
pub(crate) struct UpdateRequest {
    pub(crate) request: String,
    pub(crate) name: Name,
    pub(crate) input: Payload,
}

/// What an update was answered: a value, or why it could not be performed.
pub(crate) type UpdateAnswer = Result<Payload, String>;

/// Where the answer to an update goes.
pub(crate) type UpdateReply = Reply<UpdateAnswer, UpdateRefused>;

/// Why an update has no answer.
#[derive(Clone, Debug)]
pub(crate) enum UpdateRefused {
    /// It is recorded, and waits for the run's code.
    Parked(ParkReason),
    Run(RunError),
}

impl From<RunError> for UpdateRefused {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<StopCause> for UpdateRefused {
    fn from(cause: StopCause) -> Self {
        Self::Run(cause.into())
    }
}

/// Completes when a run makes progress. It is dropped if the shard fails.
pub(crate) type Changed = oneshot::Receiver<()>;

/// What a caller wants an instance to be reset to.
#[derive(Clone, Debug)]
pub(crate) struct ResetOrder {
    pub(crate) id: InstanceId,
    /// The new run. The caller chooses it, so that a repeated order is recognised.
    pub(crate) next: RunId,
    pub(crate) point: ResetPoint,
}

/// An order to a run from outside.
#[derive(Clone, Debug)]
pub(crate) enum Tell {
    Signal {
        name: Name,
        value: Payload,
        cause: Option<Box<Cause>>,
        /// The name of the request, if the signal has one.
        request: Option<Box<str>>,
        /// Whether it is sent by name only: the type of its value is checked if the workflow declares the signal.
        is_by_name: bool,
    },
    Cancel {
        reason: String,
    },
    Terminate {
        reason: String,
    },
    Pause {
        reason: String,
    },
    EndPromise {
        operation: OperationId,
        end: Result<Payload, String>,
    },
    /// Resets the instance: it continues in another run, which begins with a part of this one's history.
    Reset(Box<ResetOrder>),
    /// A record of a durable topic that the run waits for.
    RecordReceived {
        operation: OperationId,
        record: Box<RawRecord>,
    },
    Resume,
}
