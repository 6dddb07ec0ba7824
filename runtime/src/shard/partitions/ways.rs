//! Where a shard sends messages: to its own runs, and to other partitions.
//!
//! Invariant: no send waits: each message has its place reserved.

use std::sync::Arc;

use millrun_core::{Partition, RunId};

use crate::cluster::mail_desk::MailDesk;
use crate::mail::{LocalMessage, PartitionMessage, Router, ShardDoors};
use crate::ownership::partition_set::PartitionSet;

/// The place of a shard among the others, and its ways to them.
#[derive(Debug)]
pub(in crate::shard) struct Ways {
    /// The number of this shard.
    index: usize,
    /// The doors of all shards.
    doors: ShardDoors,
    /// The ways to other partitions.
    router: Router,
}

impl Ways {
    pub(in crate::shard) fn new(doors: ShardDoors, index: usize, mail: Option<Arc<MailDesk>>) -> Self {
        let router = Router::new(doors.clone(), mail);
        Self { index, doors, router }
    }

    /// The number of this shard.
    #[inline]
    pub(in crate::shard) fn index(&self) -> usize {
        self.index
    }

    /// The doors of all shards, for a task that tells a run something later.
    pub(in crate::shard) fn doors(&self) -> ShardDoors {
        self.doors.clone()
    }

    /// The partitions that this shard hosts in its runtime, whether or not the runtime owns them.
    pub(in crate::shard) fn here(&self) -> PartitionSet {
        let is_here = |partition: &Partition| self.doors.index_of(*partition) == self.index;
        PartitionSet::all().iter().filter(is_here).collect()
    }

    /// The partitions of the other shards.
    pub(in crate::shard) fn elsewhere(&self) -> PartitionSet {
        let is_elsewhere = |partition: &Partition| self.doors.index_of(*partition) != self.index;
        PartitionSet::all().iter().filter(is_elsewhere).collect()
    }

    /// Sends a run of this shard a message, which is handled in a later turn.
    #[inline]
    pub(in crate::shard) fn tell(&self, run: RunId, message: LocalMessage) {
        self.doors.push(run, message);
    }

    /// Sends a message to a partition.
    #[inline]
    pub(in crate::shard) fn send(&self, to: Partition, message: PartitionMessage) {
        self.router.send(to, message);
    }

    /// Sends a message to several partitions: once to each shard that hosts some.
    pub(in crate::shard) fn send_to_each(&self, to: &PartitionSet, message: impl Fn() -> PartitionMessage) {
        self.router.send_to_each(to, message);
    }

    /// Sends a message to all other nodes.
    pub(in crate::shard) fn send_to_nodes(&self, message: impl Fn() -> PartitionMessage) {
        self.router.send_to_nodes(message);
    }

    /// Sends a message to the shard that has [begun](Router::send_to_begun) these partitions anew.
    pub(in crate::shard) fn send_to_begun(
        &self,
        begun: &PartitionSet,
        message: impl Fn() -> PartitionMessage,
    ) {
        self.router.send_to_begun(begun, message);
    }
}
