//! What is said to a shard, and the doors through which.

use std::sync::Arc;

use millrun_broker::mailbox::Mailbox;
use millrun_core::{InstanceId, RunId, Timestamp};
use millrun_workflow::{Event, Name, OperationId, Outcome, ParkReason, Payload};
use tokio::sync::oneshot;

use crate::activity::ActivityReport;
use crate::describe::{InstanceDescription, InstanceSummary};
use crate::{OnConflict, RunError, StartError};

/// Where an answer goes. Sent only when everything it depends on is durable.
pub(crate) type Reply<T, E = RunError> = oneshot::Sender<Result<T, E>>;

/// Which run is meant.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The latest of this instance.
    Id(InstanceId),
    /// This one.
    Run(RunId),
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
    Start(Box<StartRequest>),
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
    List {
        after: Option<InstanceId>,
        len_max: usize,
        reply: Reply<Vec<InstanceSummary>>,
    },

    // From inside: the place was reserved when the command was decided.
    Report(ActivityReport),
    TimerFired {
        run: RunId,
        operation: OperationId,
    },
    ResumeDue {
        run: RunId,
    },
    Loaded {
        run: RunId,
        history: Result<Vec<(Event, Timestamp)>, RunError>,
    },
}

/// A start, complete.
#[derive(Debug)]
pub(crate) struct StartRequest {
    pub(crate) id: InstanceId,
    pub(crate) workflow: Name,
    pub(crate) input: Payload,
    pub(crate) on_conflict: OnConflict,
    pub(crate) reply: Reply<RunId, StartError>,
}

/// What may be said to a run from outside.
#[derive(Clone, Debug)]
pub(crate) enum Tell {
    Signal { name: Name, value: Payload },
    Cancel { reason: String },
    Terminate { reason: String },
    Resume,
}

/// The mailboxes of all shards. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct ShardDoors(Arc<[Mailbox<ShardMessage>]>);

impl ShardDoors {
    pub(crate) fn new(mailboxes: Vec<Mailbox<ShardMessage>>) -> Self {
        Self(mailboxes.into())
    }

    pub(crate) fn all(&self) -> &[Mailbox<ShardMessage>] {
        &self.0
    }

    /// The shard that hosts a partition. Nothing stored depends on this.
    pub(crate) fn of(&self, partition: millrun_core::Partition) -> &Mailbox<ShardMessage> {
        &self.0[usize::from(partition.index()) % self.0.len()]
    }

    pub(crate) fn of_target(&self, target: &Target) -> &Mailbox<ShardMessage> {
        match target {
            Target::Id(id) => self.of(id.partition()),
            Target::Run(run) => self.of(run.partition()),
        }
    }

    /// Sends from inside the runtime, into a reserved place.
    pub(crate) fn push(&self, run: RunId, message: ShardMessage) {
        // Refused only when the runtime has stopped; what was decided is in the journal.
        drop(self.of(run.partition()).push_reserved(message));
    }

    pub(crate) fn report(&self, report: ActivityReport) {
        self.push(report.run, ShardMessage::Report(report));
    }
}
