//! Mail of another node for a shard.

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
    /// A message. The commit of the sweep that takes it removes it from the store.
    Message {
        /// The number of the mail.
        number: u64,
        /// The partition that it is for, with the epoch under which it was owned when the mail was read. Under any other
        /// epoch the mail is read again.
        owned: (Partition, Epoch),
        message: PartitionMessage,
    },
    /// A request of a caller of that node, with the partition and epoch as above. The request knows where its answer goes.
    Request {
        owned: (Partition, Epoch),
        request: Request,
        /// For a request that is removed from the store when it is read: its place in the mailbox.
        place: Option<MailPlace>,
    },
    /// As [`PartitionMessage::Orphans`]; the partitions had these epochs when the mail was read.
    Orphans {
        parents: Arc<[(Partition, Epoch)]>,
        children: Arc<PartitionSet>,
        awaited: Arc<BTreeSet<(RunId, OperationId)>>,
    },
}

/// A place in the mailbox of a shard, out of a bounded number.
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
    /// The id that it is about, unless it names a run.
    pub(crate) fn instance_id(&self) -> Option<&InstanceId> {
        match self {
            Self::Message { message, .. } => message.instance_id(),
            Self::Request { request, .. } => request.instance_id(),
            Self::Orphans { .. } => None,
        }
    }

    /// Whether a run may begin with it.
    pub(crate) fn begins_run(&self) -> bool {
        match self {
            Self::Message { message, .. } => matches!(message, PartitionMessage::StartChild(_)),
            Self::Request { request, .. } => request.begins_run(),
            Self::Orphans { .. } => false,
        }
    }
}
