//! What another node has mailed to a shard.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrun_core::{Epoch, Partition, RunId};
use millrun_workflow::OperationId;

use super::PartitionMessage;
use crate::ownership::partition_set::PartitionSet;

/// Mail that was read for a shard.
#[derive(Debug)]
pub(crate) enum Mailed {
    /// A message, which goes from the store with the sweep that takes it.
    Message {
        /// The number of the mail.
        number: u64,
        /// The partition that it is for, and the epoch under which that was owned when it was read: under any other it is read
        /// again.
        owned: (Partition, Epoch),
        message: PartitionMessage,
    },
    /// As [`PartitionMessage::Orphans`], of partitions that had the epochs named there when this was read.
    Orphans {
        parents: Arc<PartitionSet>,
        children: Arc<PartitionSet>,
        awaited: Arc<BTreeSet<(RunId, OperationId)>>,
    },
}

impl Mailed {
    /// The message, if it is one.
    pub(crate) fn message(&self) -> Option<&PartitionMessage> {
        match self {
            Self::Message { message, .. } => Some(message),
            Self::Orphans { .. } => None,
        }
    }
}
