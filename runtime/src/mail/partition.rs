//! What runs, timers, pools and readers tell the runs of a partition.
//!
//! The place of each message was reserved when the command behind it was decided, so that none waits for room.
//!
//! # Lives
//!
//! ```text
//!   shard, life 1 ── Load ──► reader ── Loaded, for life 1 ──► mailbox ──► shard, life 2: discarded
//!                                                                └ outlives the shard
//! ```
//!
//! A shard that fails leaves its mailbox to its successor, and with it the answers to what it had asked
//! other parts. An answer says how things stood when it was made. The shard that asked has kept still until
//! it came; the successor has not, and may have gone on before the answer gets to it. So an answer that only
//! holds as long as nobody moves names the life that asked, and no other life gets to see it.
//!
//! Everything else that comes is for any life: either a request that nobody has begun to work on, or a fact
//! that was durable before it was sent and names what it is about (an operation, an attempt, a child), so
//! that a run which has heard of it, or waits for it no longer, passes it over.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrun_core::{Cause, Epoch, InstanceId, RunId, Timestamp};
use millrun_workflow::{
    ChildFailure, Event, KeptBeginning, Name, OperationId, Outcome, Parent, Payload, PublishOutcome,
    SignalFailure,
};

use crate::RunError;
use crate::partition_set::PartitionSet;

/// A fact that is durable, or an answer that another part owes.
#[derive(Debug)]
pub(crate) enum PartitionMessage {
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
        parents: Arc<PartitionSet>,
        children: Arc<PartitionSet>,
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

/// A request for the history of a run, and the life of the shard that waits for it: the epoch of the run's
/// partition, which no two lives of a shard share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) run: RunId,
    pub(crate) life: Epoch,
}

impl PartitionMessage {
    /// The run that it is about, and the only life of its shard that may believe it; `None` if any may. A new
    /// kind of message has to decide here.
    #[inline]
    pub(crate) fn life(&self) -> Option<(RunId, Epoch)> {
        match self {
            // A history is what the run was when it was read.
            Self::Loaded { load, .. } => Some((load.run, load.life)),
            // A life that begins sets its timers anew, and begins at once what is due: an attempt that was due
            // for its predecessor too would be started twice under one number.
            Self::TimerFired { run, life, .. } | Self::ResumeDue { run, life } => Some((*run, *life)),
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
            // What a topic did with a value does not depend on the shard that handed it over.
            Self::PublishParked { .. } | Self::Published { .. } => None,
            // About an attempt, by its number.
            Self::AttemptStarted { .. } | Self::Heartbeat { .. } => None,
        }
    }
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

/// A signal from a run to an instance, complete.
#[derive(Clone, Debug)]
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
