//! Messages to shards, and the doors through which they come.
//!
//! ```text
//!   clients ──────────── Request, with the way of its answer ─┐  waits for room
//!                                                             ├──► door ──► mailbox of a shard
//!   runs, through the router ─────── PartitionMessage ────────┤  place reserved
//!   other nodes, through the store ─ Mailed ──────────────────┤  as much as the part that reads it has in hand
//!   timers, topics, pools, readers ─ LocalMessage ────────────┘  place reserved
//!   pools ─── reports ──► topic of the shard ──► inbox
//!   readers ─ Answered ──► mailbox of its own: messages that wait for an answer may block the other one
//! ```
//!
//! The door of a message is found by the partition of its run or id. Nothing stored, and no message between runs, depends on
//! which shard hosts a partition. The place of each message of a run or a part was reserved when the command behind it was
//! decided, so that none waits for room.

mod command;
mod doors;
mod finished;
mod gathered;
mod local;
mod mailed;
mod partition;
mod reply;
mod request;
mod router;
mod target;

pub(crate) use command::{CommandRefused, CommandReply, CommandRequest, EntityRequest};
pub(crate) use doors::{ShardDoor, ShardDoors};
pub(crate) use finished::{
    Answered, AskFinished, EndedChild, FinishedReads, Found, ResetReading, ResetReads,
};
pub(crate) use gathered::{GatheredAnswer, GatheredAnswers};
pub(crate) use local::{Load, LoadToReset, LocalMessage, ReadToReset, Story};
pub(crate) use mailed::{MailPlace, Mailed};
pub(crate) use partition::{Ask, PartitionMessage, RunSignal, StartChild, child_end};
pub(crate) use reply::{AskedBy, CallerReply, MailToAnswer, Replies, RepliesToNode, Reply};
pub(crate) use request::{
    AppendRequest, Changed, Described, FindLive, FirstRequest, FoundLive, OnDisk, PendingReply, Question,
    Replacement, Request, ResetOrder, Standing, StartDelay, StartDetails, StartFollowing, StartRequest,
    StartWith, StartedRun, Tell, UpdateAnswer, UpdateRefused, UpdateReply, UpdateRequest, Wake,
};
pub(crate) use router::Router;
pub(crate) use target::{Latest, Target, check_workflow};

use millrun_core::InstanceId;

/// A message in the mailbox of a shard.
#[derive(Debug)]
pub(crate) enum ShardMessage {
    Request(Request),
    Partition(PartitionMessage),
    Local(LocalMessage),
    /// Mail of another node.
    Mailed(Box<Mailed>),
}

impl From<Request> for ShardMessage {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
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

impl From<Mailed> for ShardMessage {
    fn from(mailed: Mailed) -> Self {
        Self::Mailed(Box::new(mailed))
    }
}

impl ShardMessage {
    /// The id that it is about, unless it names a run: what happens depends on the latest run of the id.
    pub(crate) fn instance_id(&self) -> Option<&InstanceId> {
        match self {
            Self::Request(request) => request.instance_id(),
            Self::Partition(message) => message.instance_id(),
            Self::Mailed(mailed) => mailed.instance_id(),
            Self::Local(_) => None,
        }
    }

    /// Whether a run may begin with it.
    pub(crate) fn begins_run(&self) -> bool {
        match self {
            Self::Request(request) => request.begins_run(),
            Self::Partition(message) => matches!(message, PartitionMessage::StartChild(_)),
            Self::Mailed(mailed) => mailed.begins_run(),
            Self::Local(_) => false,
        }
    }
}
