//! The router delivers a message of a run to the host of the message's partition.
//!
//! A message to a partition of this process is moved into the mailbox of a shard. A message to a partition of another node
//! goes through the store, in its wire form. The sender names a partition only.
//!
//! A message is lost if its partition is lost before the message is handled. The partition's next owner tells all nodes that
//! it has begun anew, and is asked again.

use std::sync::Arc;

use millrun_core::Partition;

use super::{PartitionMessage, ShardDoors};
use crate::cluster::mail_desk::MailDesk;
use crate::ownership::partition_set::PartitionSet;

/// The ways to all partitions. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    local: ShardDoors,
    /// The way to other nodes, if there may be any.
    mail: Option<Arc<MailDesk>>,
}

impl Router {
    /// A router to the partitions of these shards, and of other nodes.
    pub(crate) fn new(local: ShardDoors, mail: Option<Arc<MailDesk>>) -> Self {
        Self { local, mail }
    }

    /// Sends a message to a partition. Never waits: its place is reserved.
    pub(crate) fn send(&self, to: Partition, message: PartitionMessage) {
        match &self.mail {
            Some(mail) if !mail.is_here(to) => mail.post(to, &message),
            _ => self.local.of(to).push_reserved(message),
        }
    }

    /// Sends a message for several partitions to those of them in this process: once to each shard that hosts some.
    pub(crate) fn send_to_each(&self, to: &PartitionSet, message: impl Fn() -> PartitionMessage) {
        for (index, door) in self.local.all().iter().enumerate() {
            if to.iter().any(|partition| self.local.index_of(partition) == index) {
                door.push_reserved(message());
            }
        }
    }

    /// Sends a message to all other nodes.
    pub(crate) fn send_to_nodes(&self, message: impl Fn() -> PartitionMessage) {
        if let Some(mail) = &self.mail {
            mail.post_to_others(&message());
        }
    }

    /// Sends a message to the shard that has begun these partitions anew, wherever it is. If some of them have moved on
    /// since, their new owner asks for the message.
    pub(crate) fn send_to_begun(&self, begun: &PartitionSet, message: impl Fn() -> PartitionMessage) {
        match &self.mail {
            Some(mail) if !begun.iter().any(|partition| mail.is_here(partition)) => {
                if let Some(first) = begun.iter().next() {
                    mail.post(first, &message());
                }
            }
            _ => self.send_to_each(begun, message),
        }
    }
}
