//! The router: delivers a message of a run to the host of the partition that the message is for.
//!
//! Today that is always a shard of this process, and a message is moved into its mailbox as it is. A message
//! to another process would be written in its wire form by a door of another kind, here and nowhere else: a
//! sender names a partition only.

use millrun_core::Partition;

use super::{PartitionMessage, ShardDoors};
use crate::ownership::partition_set::PartitionSet;

/// The ways to all partitions. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Router {
    local: ShardDoors,
}

impl Router {
    /// The ways to partitions that are all hosted by these shards.
    pub(crate) fn new(local: ShardDoors) -> Self {
        Self { local }
    }

    /// Brings a message to a partition. Never waits: its place is reserved.
    pub(crate) fn send(&self, to: Partition, message: PartitionMessage) {
        self.local.of(to).push_reserved(message);
    }

    /// Brings a message that is for several partitions to all of them: once to each shard that hosts some.
    pub(crate) fn send_to_each(&self, to: &PartitionSet, message: impl Fn() -> PartitionMessage) {
        for (index, door) in self.local.all().iter().enumerate() {
            if to.iter().any(|partition| self.local.index_of(partition) == index) {
                door.push_reserved(message());
            }
        }
    }
}
