//! What is said to shards, and the doors through which.
//!
//! ```text
//!   clients ──────────── Request, with the way of its answer ─┐  waits for room
//!                                                             ├──► door ──► mailbox of a shard
//!   runs, through the router ─────── PartitionMessage ────────┤  place reserved
//!   timers, topics, pools, readers ─ LocalMessage ────────────┘  place reserved
//!   pools ─── reports ──► topic of the shard ──► inbox
//! ```
//!
//! A door is found by the partition that a run or an id belongs to. Nothing stored, and nothing that runs tell each
//! other, depends on which shard hosts a partition. The place of each message of a run or a part was reserved when the
//! command behind it was decided, so that none waits for room.

mod doors;
mod local;
mod partition;
mod request;
mod router;
mod target;

pub(crate) use doors::{ShardDoor, ShardDoors};
pub(crate) use local::{Load, LocalMessage, Story};
pub(crate) use partition::{Ask, PartitionMessage, RunSignal, StartChild, child_end};
pub(crate) use request::{
    Changed, FirstRequest, Question, Reply, Request, Standing, StartRequest, StartWith, StartedRun, Tell,
    UpdateAnswer, UpdateRefused, UpdateReply, UpdateRequest,
};
pub(crate) use router::Router;
pub(crate) use target::{Latest, Target, check_workflow};

/// What lies in the mailbox of a shard.
#[derive(Debug)]
pub(crate) enum ShardMessage {
    Request(Request),
    Partition(PartitionMessage),
    Local(LocalMessage),
}

impl From<PartitionMessage> for ShardMessage {
    fn from(message: PartitionMessage) -> Self {
        Self::Partition(message)
    }
}

impl From<LocalMessage> for ShardMessage {
    fn from(message: LocalMessage) -> Self {
        Self::Local(message)
    }
}

impl ShardMessage {
    /// Whether a run may begin with this.
    pub(crate) fn begins_run(&self) -> bool {
        matches!(
            self,
            Self::Request(Request::Start(_) | Request::StartWith(_))
                | Self::Partition(PartitionMessage::StartChild(_))
        )
    }
}
