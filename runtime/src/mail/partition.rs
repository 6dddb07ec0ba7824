//! Messages between runs of partitions, wherever the partitions are hosted.
//!
//! Each message is addressed to a partition and goes through the [router](super::Router). On the way to another node it has a
//! wire form (`crate::wire`). No message names a shard or relies on what a process remembers: a partition may move between a
//! message and its answer.
//!
//! A message is lost if either partition is: the run that waits for the answer asks again when its own partition begins anew,
//! and when it hears that the other one has ([`Begun`](PartitionMessage::Begun)). A message may also come late, or twice.
//! That does no harm: it is a request that nobody has begun to work on, or a durable fact that names what it is about (an
//! operation, a child), so that a run ignores it if it has heard of it, or does not wait for it any more. The answer to a
//! signal may change, so it names the [question](Ask) that it answers; and a list of all calls of some partitions holds while
//! these have the epochs that it names.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrun_core::{Cause, Epoch, InstanceId, Partition, RunId, Timestamp, TraceContext};
use millrun_workflow::{
    ChildFailure, Name, OperationId, Outcome, Parent, Payload, SignalFailure, StartTimeouts,
};

use crate::ownership::partition_set::PartitionSet;

/// A request of a run, or a durable fact for a run.
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
    /// The parent does not wait for this child any more.
    CloseChild {
        id: InstanceId,
        parent: RunId,
        operation: OperationId,
    },
    /// The parent asks this child to cancel, and goes on waiting for it.
    CancelChild {
        id: InstanceId,
        parent: RunId,
        operation: OperationId,
        reason: Arc<str>,
    },
    /// A signal that a run sends.
    Signal(Box<RunSignal>),
    /// The outcome of a signal.
    SignalSent {
        run: RunId,
        operation: OperationId,
        outcome: Result<(), SignalFailure>,
        ask: Ask,
    },
    /// These partitions have begun anew: runs elsewhere send their calls there again.
    Begun {
        partitions: Arc<PartitionSet>,
    },
    /// The complete list of the children in some partitions that runs of other partitions wait for; all others are closed.
    Orphans {
        /// The partitions of the waiting runs, in order. The list does not hold for a partition that has another epoch by
        /// now: its runs may wait for more.
        parents: Arc<Vec<(Partition, Epoch)>>,
        children: Arc<PartitionSet>,
        awaited: Arc<BTreeSet<(RunId, OperationId)>>,
    },
}

impl PartitionMessage {
    /// The id that it is about, unless it names a run.
    pub(crate) fn instance_id(&self) -> Option<&InstanceId> {
        match self {
            Self::StartChild(child) => Some(&child.id),
            Self::CloseChild { id, .. } | Self::CancelChild { id, .. } => Some(id),
            Self::Signal(signal) => Some(&signal.to),
            Self::ChildStarted { .. }
            | Self::ChildEnded { .. }
            | Self::SignalSent { .. }
            | Self::Begun { .. }
            | Self::Orphans { .. } => None,
        }
    }

    /// The run that it is about, and the only epoch of its partition under which it may be used; `None` if any. A new kind of
    /// message has to decide here.
    #[inline]
    pub(crate) fn life(&self) -> Option<(RunId, Epoch)> {
        match self {
            // A new life sends the signal again. What refused it before may be gone by then, and the run must be told one
            // outcome only.
            Self::SignalSent { run, ask, .. } => Some((*run, ask.life)),
            // The receiver records it once for each sender.
            Self::Signal(_) => None,
            // Durable facts about a parent's operation, which are taken once, while the operation is pending.
            Self::StartChild(_)
            | Self::ChildStarted { .. }
            | Self::ChildEnded { .. }
            | Self::CloseChild { .. }
            | Self::CancelChild { .. }
            | Self::Begun { .. }
            | Self::Orphans { .. } => None,
        }
    }
}

/// A child to be started, with everything that it needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StartChild {
    pub(crate) parent: Parent,
    pub(crate) id: InstanceId,
    pub(crate) workflow: Name,
    pub(crate) input: Payload,
    /// The earliest time that the child may see, if its parent's time is ahead of the host's.
    pub(crate) not_before: Option<Timestamp>,
    /// Its place in a distributed trace: the span of the call.
    pub(crate) trace: Option<TraceContext>,
    /// How long it may take, if that is bounded.
    pub(crate) timeouts: Option<Box<StartTimeouts>>,
    /// Its run, if it is known to have been started before.
    pub(crate) known: Option<RunId>,
    /// Why it is asked to cancel, if it is.
    pub(crate) cancel: Option<Arc<str>>,
}

/// A signal from a run to an instance, with everything that it needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunSignal {
    /// The run and the operation that send it.
    pub(crate) sender: Cause,
    pub(crate) to: InstanceId,
    /// The workflow that the instance must have begun as.
    pub(crate) workflow: Name,
    pub(crate) name: Name,
    pub(crate) value: Payload,
    /// The sender's call of the child that it is for; an instance that is not this child does not get it.
    pub(crate) child: Option<OperationId>,
    /// Whether it may have been recorded before.
    pub(crate) is_repeated: bool,
    /// Filled in when it is sent.
    pub(crate) ask: Ask,
}

impl RunSignal {
    /// The message that tells the sender the outcome.
    pub(crate) fn answer(&self, outcome: Result<(), SignalFailure>) -> PartitionMessage {
        PartitionMessage::SignalSent {
            run: self.sender.run,
            operation: OperationId::new(self.sender.operation),
            outcome,
            ask: self.ask,
        }
    }
}

/// Numbers the sendings of a signal. Only the answer to the last sending is told to the run: a signal that was refused may be
/// accepted when it is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The life of the shard that sends.
    pub(crate) life: Epoch,
    /// Counted by that shard, for each operation.
    pub(crate) number: u32,
}

/// The end of a child as its parent sees it; `None` if the child continues as new.
pub(crate) fn child_end(outcome: &Outcome) -> Option<Result<Payload, ChildFailure>> {
    match outcome {
        Outcome::Completed(value) => Some(Ok(value.clone())),
        Outcome::Failed(error) => Some(Err(ChildFailure::Failed(error.clone()))),
        Outcome::Cancelled(error) => Some(Err(ChildFailure::Cancelled(error.clone()))),
        Outcome::Terminated(reason) => Some(Err(ChildFailure::Terminated {
            reason: reason.clone(),
        })),
        Outcome::TimedOut(timeout) => Some(Err(ChildFailure::TimedOut(*timeout))),
        Outcome::Continued(_) => None,
    }
}
