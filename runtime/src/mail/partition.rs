//! What the runs of partitions tell each other, wherever these are hosted.
//!
//! Each message is addressed to a partition and goes through the [router](super::Router). It has a wire form
//! (`crate::wire`), which it has on the way to another node. No message names a shard
//! or relies on what a process remembers: who hosts a partition may change between a message and its answer.
//!
//! A message may be lost with either partition: the run that waits for its answer asks again when its own partition
//! begins anew, and when the other one says that it has ([`Begun`](PartitionMessage::Begun)). And it may come late, or
//! twice: it is a request that nobody has begun to work on, or a fact that was durable before it was sent and names
//! what it is about (an operation, a child), so that a run which has heard of it, or waits for it no longer, passes it
//! over. The answer to a signal, which may change, names the [question](Ask) that it answers; and what is said about all
//! calls of partitions holds as long as these have the epochs that are named with them.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrun_core::{Cause, Epoch, InstanceId, Partition, RunId, Timestamp, TraceContext};
use millrun_workflow::{ChildFailure, Name, OperationId, Outcome, Parent, Payload, SignalFailure};

use crate::ownership::partition_set::PartitionSet;

/// A request of a run, or a durable fact for one.
#[derive(Debug, PartialEq)]
pub(crate) enum PartitionMessage {
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
    /// A signal that a run sends.
    Signal(Box<RunSignal>),
    /// What became of it.
    SignalSent {
        run: RunId,
        operation: OperationId,
        outcome: Result<(), SignalFailure>,
        ask: Ask,
    },
    /// These partitions have begun anew: what is waited for there is asked for again.
    Begun {
        partitions: Arc<PartitionSet>,
    },
    /// Of the children in some partitions of runs in others, these are waited for, and no others.
    Orphans {
        /// The partitions of the runs that wait, in order. Nothing of this holds for one that has another epoch by now: its
        /// runs may wait for more.
        parents: Arc<Vec<(Partition, Epoch)>>,
        children: Arc<PartitionSet>,
        awaited: Arc<BTreeSet<(RunId, OperationId)>>,
    },
}

impl PartitionMessage {
    /// The id that it is about, if it names no run.
    pub(crate) fn instance_id(&self) -> Option<&InstanceId> {
        match self {
            Self::StartChild(child) => Some(&child.id),
            Self::CloseChild { id, .. } => Some(id),
            Self::Signal(signal) => Some(&signal.to),
            Self::ChildStarted { .. }
            | Self::ChildEnded { .. }
            | Self::SignalSent { .. }
            | Self::Begun { .. }
            | Self::Orphans { .. } => None,
        }
    }

    /// The run that it is about, and the only epoch of its partition under which that may believe it; `None` if it may
    /// under any. A new kind of message has to decide here.
    #[inline]
    pub(crate) fn life(&self) -> Option<(RunId, Epoch)> {
        match self {
            // A life that begins asks again: what refused the signal before may not be in its way any more, and its
            // run is told one thing.
            Self::SignalSent { run, ask, .. } => Some((*run, ask.life)),
            // Recorded once, by its sender.
            Self::Signal(_) => None,
            // Durable facts about a parent's operation: taken once, while it is pending.
            Self::StartChild(_)
            | Self::ChildStarted { .. }
            | Self::ChildEnded { .. }
            | Self::CloseChild { .. }
            | Self::Begun { .. }
            | Self::Orphans { .. } => None,
        }
    }
}

/// A child to be started, complete.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StartChild {
    pub(crate) parent: Parent,
    pub(crate) id: InstanceId,
    pub(crate) workflow: Name,
    pub(crate) input: Payload,
    /// The earliest time that it is shown, if its parent's time is ahead of the host's.
    pub(crate) not_before: Option<Timestamp>,
    /// Its place in a distributed trace: that of the call.
    pub(crate) trace: Option<TraceContext>,
    /// Its run, if it is known to have been started before.
    pub(crate) known: Option<RunId>,
}

/// A signal from a run to an instance, complete.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunSignal {
    /// The run and the operation that send it.
    pub(crate) sender: Cause,
    pub(crate) to: InstanceId,
    /// The workflow that the instance must have begun as.
    pub(crate) workflow: Name,
    pub(crate) name: Name,
    pub(crate) value: Payload,
    /// Whether it may have been recorded before.
    pub(crate) is_repeated: bool,
    /// Written when it is sent.
    pub(crate) ask: Ask,
}

impl RunSignal {
    /// Tells the run that has sent it what became of it.
    pub(crate) fn answer(&self, outcome: Result<(), SignalFailure>) -> PartitionMessage {
        PartitionMessage::SignalSent {
            run: self.sender.run,
            operation: OperationId::new(self.sender.operation),
            outcome,
            ask: self.ask,
        }
    }
}

/// Which of several times a run has asked: only the answer to the last is told to it, since one that was refused and
/// is sent again may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Of the shard that asks.
    pub(crate) life: Epoch,
    /// Counted by that shard, for each operation.
    pub(crate) number: u32,
}

/// What a run's end is to its parent; `None` if it goes on.
pub(crate) fn child_end(outcome: &Outcome) -> Option<Result<Payload, ChildFailure>> {
    match outcome {
        Outcome::Completed(value) => Some(Ok(value.clone())),
        Outcome::Failed(error) => Some(Err(ChildFailure::Failed(error.clone()))),
        Outcome::Cancelled(error) => Some(Err(ChildFailure::Cancelled(error.clone()))),
        Outcome::Terminated(reason) => Some(Err(ChildFailure::Terminated {
            reason: reason.clone(),
        })),
        Outcome::Continued(_) => None,
    }
}
