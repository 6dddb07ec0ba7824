//! What is said to a shard, and the doors through which.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrun_broker::mailbox::{Mailbox, MailboxConfig};
use millrun_broker::{Broker, Envelope, Inbox, SubscribeError, SubscriptionConfig, TopicHandle};
use millrun_core::{Bell, Cause, Epoch, InstanceId, Partition, RunId, Timestamp};
use millrun_workflow::{
    ChildFailure, Event, KeptBeginning, Name, OperationId, Outcome, Parent, ParkReason, Payload,
    PublishOutcome,
};
use tokio::sync::oneshot;

use super::life::Load;
use crate::activity::{ActivityReport, ActivityReports};
use crate::claims::shard_of;
use crate::describe::{InstanceDescription, InstanceSummary};
use crate::{OnConflict, QueryError, RunError, StartError, StopCause};

/// Where an answer goes. Sent only when everything it depends on is durable.
pub(crate) type Reply<T, E = RunError> = oneshot::Sender<Result<T, E>>;

/// Which run is meant.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The latest of an instance. Behind a pointer, so that messages stay as small as most need.
    Latest(Arc<Latest>),
    /// This one.
    Run(RunId),
}

/// An instance, which must have begun as that workflow if one is named.
#[derive(Debug)]
pub(crate) struct Latest {
    pub(crate) id: InstanceId,
    pub(crate) workflow: Option<&'static str>,
}

/// Refuses what is meant for an instance that began as another workflow.
pub(crate) fn check_workflow(expected: &Name, began_as: &str) -> Result<(), RunError> {
    // Most names stand in the program once.
    if std::ptr::eq(&**expected, began_as) || expected == began_as {
        return Ok(());
    }
    Err(RunError::OtherWorkflow {
        expected: expected.clone(),
        workflow: began_as.to_owned(),
    })
}

/// How a run stands, to those who wait for its result.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    Ended(Outcome),
    Parked(ParkReason),
}

#[derive(Debug)]
pub(crate) enum ShardMessage {
    // From outside: each waits for room in the mailbox.
    Start(StartRequest),
    StartWith(Box<StartWith>),
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
        reply: Reply<InstanceDescription>,
    },
    /// Somebody wants to be told when the run goes on.
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

    // From inside: the place was reserved when the command was decided.
    TimerFired {
        run: RunId,
        operation: OperationId,
        /// Of the shard that had set the timer.
        life: Epoch,
    },
    ResumeDue {
        run: RunId,
        life: Epoch,
    },
    StartChild(Box<StartChild>),
    ChildStarted {
        run: RunId,
        operation: OperationId,
        child: RunId,
    },
    ChildEnded {
        run: RunId,
        operation: OperationId,
        end: Result<Payload, ChildFailure>,
    },
    /// Nobody waits for this child any more.
    CloseChild {
        id: InstanceId,
        parent: RunId,
        operation: OperationId,
    },
    /// A shard has begun anew: the children that are waited for there are asked for again.
    Begun {
        shard: usize,
    },
    /// A shard has begun, or another one has: of the children of its runs, it knows that these are waited for.
    Orphans {
        shard: usize,
        awaited: Arc<BTreeSet<(RunId, OperationId)>>,
    },
    PublishParked {
        run: RunId,
        operation: OperationId,
    },
    Published {
        run: RunId,
        operation: OperationId,
        outcome: Result<PublishOutcome, String>,
        /// The topic, if others may wait for it behind this one.
        topic: Option<Name>,
    },
    AttemptStarted {
        run: RunId,
        operation: OperationId,
        attempt: u32,
    },
    Heartbeat {
        run: RunId,
        operation: OperationId,
        attempt: u32,
        details: Payload,
    },
    /// The answer to a [`Load`].
    Loaded {
        load: Load,
        /// `None` if the reader failed before it had read it.
        history: Option<Result<Story, RunError>>,
    },
}

/// What a run is brought back from.
#[derive(Debug)]
pub(crate) struct Story {
    /// What was kept of the events before, if that is not all of them.
    pub(crate) kept: Option<Box<KeptBeginning>>,
    pub(crate) events: Vec<(Event, Timestamp)>,
}

impl ShardMessage {
    /// Whether a run may begin with this.
    pub(crate) fn begins_run(&self) -> bool {
        matches!(self, Self::Start(_) | Self::StartWith(_) | Self::StartChild(_))
    }
}

/// A start, complete.
#[derive(Debug)]
pub(crate) struct StartRequest {
    pub(crate) id: InstanceId,
    pub(crate) workflow: Name,
    pub(crate) input: Payload,
    pub(crate) cause: Option<Box<Cause>>,
    pub(crate) on_conflict: OnConflict,
    pub(crate) reply: Reply<StartedRun, StartError>,
    /// Where the end of a run that begins with this is told.
    pub(crate) end: Reply<Standing>,
}

/// A start that brings a request, which goes to the run that is there if there is one.
#[derive(Debug)]
pub(crate) struct StartWith {
    pub(crate) start: StartRequest,
    pub(crate) with: FirstRequest,
}

/// What a start brings, and where it is said what became of that.
#[derive(Debug)]
pub(crate) enum FirstRequest {
    Signal {
        name: Name,
        value: Payload,
        reply: Reply<()>,
    },
    /// A run that begins is not started if it refuses this: the start's reply is dropped then.
    Update {
        update: UpdateRequest,
        reply: UpdateReply,
    },
}

/// A child to be started, complete.
#[derive(Clone, Debug)]
pub(crate) struct StartChild {
    pub(crate) parent: Parent,
    pub(crate) id: InstanceId,
    pub(crate) workflow: Name,
    pub(crate) input: Payload,
    /// The earliest time that it is shown, if its parent's time is ahead of the host's.
    pub(crate) not_before: Option<Timestamp>,
    /// Its run, if it is known to have been started before.
    pub(crate) known: Option<RunId>,
    /// The finished run of its id that was looked at, and is not this child. Another one may have finished
    /// since: asked for twice, the child itself.
    pub(crate) looked_at: Option<RunId>,
}

/// The run that a start led to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartedRun {
    pub(crate) run: RunId,
    /// Whether it is known to be a run of the workflow that was asked for.
    pub(crate) is_checked: bool,
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

impl From<StopCause> for UpdateRefused {
    fn from(cause: StopCause) -> Self {
        Self::Run(cause.into())
    }
}

/// Tells that a run has gone on, once; dropped, it tells that nobody knows.
pub(crate) type Changed = oneshot::Receiver<()>;

/// What may be said to a run from outside.
#[derive(Clone, Debug)]
pub(crate) enum Tell {
    Signal {
        name: Name,
        value: Payload,
        cause: Option<Box<Cause>>,
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
    Settle {
        operation: OperationId,
        end: Result<Payload, String>,
    },
    Resume,
}

/// The ways into all shards. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct ShardDoors(Arc<[ShardDoor]>);

/// The ways into one shard.
#[derive(Debug)]
pub(crate) struct ShardDoor {
    /// Requests from outside, and what has its place reserved.
    pub(crate) mailbox: Mailbox<ShardMessage>,
    /// Reports of activities come through this topic.
    reports: TopicHandle<ActivityReports>,
    /// Where they arrive.
    pub(crate) inbox: Inbox<Envelope<ActivityReports>>,
}

impl ShardDoor {
    fn new(broker: &Broker, index: usize, len_max: usize) -> Result<Self, SubscribeError> {
        let config = MailboxConfig {
            capacity: len_max,
            ..MailboxConfig::default()
        };
        let mailbox = Mailbox::new(config, Bell::new())?;
        let name = format!("millrun.reports.{index}");
        let subscription = SubscriptionConfig {
            name: format!("shard {index}"),
            inbox: config,
            ..SubscriptionConfig::default()
        };
        let inbox = broker.subscribe(&name, subscription)?;
        let bell = mailbox.bell().clone();
        inbox.bell().connect(move || bell.ring());
        let reports = broker.topic(&name)?;
        Ok(Self {
            mailbox,
            reports,
            inbox,
        })
    }

    pub(crate) fn close_discarding(&self) {
        drop(self.mailbox.close_discarding());
        self.inbox.close_discarding();
    }
}

impl ShardDoors {
    pub(crate) fn new(broker: &Broker, shards_len: usize, len_max: usize) -> Result<Self, SubscribeError> {
        (0..shards_len)
            .map(|index| ShardDoor::new(broker, index, len_max))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    pub(crate) fn all(&self) -> &[ShardDoor] {
        &self.0
    }

    /// Refuses all requests from now on; those that wait are answered with why the runtime stops.
    pub(crate) fn close_discarding(&self) {
        self.0.iter().for_each(ShardDoor::close_discarding);
    }

    /// The number of the shard that hosts a partition.
    pub(crate) fn index_of(&self, partition: Partition) -> usize {
        shard_of(partition, self.0.len())
    }

    /// The shard that hosts a partition. Nothing stored depends on this.
    pub(crate) fn of(&self, partition: Partition) -> &ShardDoor {
        &self.0[self.index_of(partition)]
    }

    pub(crate) fn of_target(&self, target: &Target) -> &ShardDoor {
        match target {
            Target::Latest(latest) => self.of(latest.id.partition()),
            Target::Run(run) => self.of(run.partition()),
        }
    }

    /// Sends from inside the runtime, into a reserved place.
    pub(crate) fn push(&self, run: RunId, message: ShardMessage) {
        self.push_to(run.partition(), message);
    }

    /// As [`push`](Self::push), to whoever hosts a partition.
    pub(crate) fn push_to(&self, partition: Partition, message: ShardMessage) {
        // Refused only when the runtime has stopped; what was decided is in the journal.
        drop(self.of(partition).mailbox.push_reserved(message));
    }

    /// Publishes how an attempt went; waits for room in the shard's inbox.
    pub(crate) async fn report(&self, report: ActivityReport) {
        let shard = self.index_of(report.run.partition());
        self.report_to(shard, report.into()).await;
    }

    /// As [`report`](Self::report), several to the same shard.
    pub(crate) async fn report_to(&self, shard: usize, reports: ActivityReports) {
        // A shard that is gone does not wait for it; the attempt is made again after the restart.
        drop(self.0[shard].reports.publish(reports).await);
    }

    /// Publishes how attempts went, in order, as far as there is room. The rest is given back.
    pub(crate) fn try_report(&self, reports: &mut Vec<ActivityReport>) -> Vec<(usize, ActivityReports)> {
        let shard_of = |report: &ActivityReport| self.index_of(report.run.partition());
        let mut refused: Vec<(usize, ActivityReports)> = Vec::new();
        for (shard, reports) in ActivityReports::of(reports, self.0.len(), shard_of) {
            // Behind one that was refused, so that order is kept.
            if refused.last().is_some_and(|(full, _)| *full == shard) {
                refused.push((shard, reports));
            } else if let Err(error) = self.0[shard].reports.try_publish(reports) {
                let reports = error.into_refused().into_payload();
                // Whoever else subscribed to the topic has the envelope too.
                let reports = reports.unwrap_or_else(|envelope| envelope.payload().clone());
                refused.push((shard, reports));
            }
        }
        refused
    }
}
