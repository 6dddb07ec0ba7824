//! What is said to shards, and the doors through which.
//!
//! ```text
//!   clients ──────────── Request, with the way of its answer ─┐  waits for room
//!                                                             ├──► door ──► mailbox of a shard
//!   runs, timers, pools, readers ─── PartitionMessage ────────┘  place reserved
//!   pools ─── reports ──► topic of the shard ──► inbox
//! ```
//!
//! A door is found by the partition that a run or an id belongs to. Nothing stored depends on which shard hosts a
//! partition.

mod doors;
mod partition;
mod request;
mod target;

pub(crate) use doors::{ShardDoor, ShardDoors};
pub(crate) use partition::{Ask, Load, PartitionMessage, RunSignal, StartChild, Story, child_end};
pub(crate) use request::{
    Changed, FirstRequest, Question, Reply, Request, Standing, StartRequest, StartWith, StartedRun, Tell,
    UpdateAnswer, UpdateRefused, UpdateReply, UpdateRequest,
};
pub(crate) use target::{Latest, Target, check_workflow};

/// What lies in the mailbox of a shard.
#[derive(Debug)]
pub(crate) enum ShardMessage {
    Request(Request),
    Partition(PartitionMessage),
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
