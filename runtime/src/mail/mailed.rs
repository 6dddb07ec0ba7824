//! What another node has mailed to a shard.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrun_core::{Epoch, InstanceId, Partition, RunId};
use millrun_workflow::OperationId;

use super::{PartitionMessage, Request};
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
    /// A request of a caller of that node, which has the way of its answer; with the partition that it is for, and the epoch
    /// as above.
    Request {
        owned: (Partition, Epoch),
        request: Request,
        /// Of one that goes from the store when it is read.
        place: Option<MailPlace>,
    },
    /// As [`PartitionMessage::Orphans`], of partitions that had these epochs when this was read.
    Orphans {
        parents: Arc<[(Partition, Epoch)]>,
        children: Arc<PartitionSet>,
        awaited: Arc<BTreeSet<(RunId, OperationId)>>,
    },
}

/// The place of a message in the mailbox of a shard, among those that are bounded.
#[derive(Debug)]
pub(crate) struct MailPlace(Arc<AtomicUsize>);

impl MailPlace {
    pub(crate) fn new(taken: &Arc<AtomicUsize>) -> Self {
        taken.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(taken))
    }
}

impl Drop for MailPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Mailed {
    /// The id that it is about, if it names no run.
    pub(crate) fn instance_id(&self) -> Option<&InstanceId> {
        match self {
            Self::Message { message, .. } => message.instance_id(),
            Self::Request { request, .. } => request.instance_id(),
            Self::Orphans { .. } => None,
        }
    }

    /// Whether a run may begin with this.
    pub(crate) fn begins_run(&self) -> bool {
        match self {
            Self::Message { message, .. } => matches!(message, PartitionMessage::StartChild(_)),
            Self::Request { request, .. } => request.begins_run(),
            Self::Orphans { .. } => false,
        }
    }
}
