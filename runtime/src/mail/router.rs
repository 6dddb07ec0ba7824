//! The router: delivers a message of a run to the host of the partition that the message is for.
//!
//! A message to a partition of this process is moved into the mailbox of a shard as it is. One to a partition that it does not
//! own goes, in its wire form, through the store to the node that does: a sender names a partition only.
//!
//! A message whose partition is lost before it is handled is lost with it: whoever owns the partition next says that it has
//! begun anew, to all nodes, and is asked again.

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
    /// The ways to partitions of these shards, and of other nodes.
    pub(crate) fn new(local: ShardDoors, mail: Option<Arc<MailDesk>>) -> Self {
        Self { local, mail }
    }

    /// Brings a message to a partition. Never waits: its place is reserved.
    pub(crate) fn send(&self, to: Partition, message: PartitionMessage) {
        match &self.mail {
            Some(mail) if !mail.is_here(to) => mail.post(to, &message),
            _ => self.local.of(to).push_reserved(message),
        }
    }

    /// Brings a message that is for several partitions to all of them in this process: once to each shard that hosts some.
    pub(crate) fn send_to_each(&self, to: &PartitionSet, message: impl Fn() -> PartitionMessage) {
        for (index, door) in self.local.all().iter().enumerate() {
            if to.iter().any(|partition| self.local.index_of(partition) == index) {
                door.push_reserved(message());
            }
        }
    }

    /// Brings a message to all other nodes.
    pub(crate) fn send_to_nodes(&self, message: impl Fn() -> PartitionMessage) {
        if let Some(mail) = &self.mail {
            mail.post_to_others(&message());
        }
    }

    /// Brings a message that is for partitions which one shard has begun anew to that shard, wherever it is. If some of them
    /// have moved on since, their owner asks for it.
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
