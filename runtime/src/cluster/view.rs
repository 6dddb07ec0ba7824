//! What operators see of the nodes of a store.

use std::time::Duration;

use millrun_core::Partition;

/// The nodes that have a store open, as one of them sees them; given by [`Runtime::cluster`](crate::Runtime::cluster).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The name under which this runtime has joined.
    pub name: String,
    /// The number of its opening of the store, which no other opening has.
    pub number: u64,
    /// All nodes that have joined and have neither left nor been declared dead, in the order of their names. Empty until the
    /// store was looked at for the first time.
    pub nodes: Vec<NodeStatus>,
    /// The number of partitions without an owner in that look: runs there stand still until a node claims them.
    pub free_len: usize,
    /// The number of partitions in which this runtime begins no attempt, since it is about to give them to other nodes.
    pub draining_len: usize,
    /// The number of pieces of mail from other nodes that this runtime could not read and has set aside in the store, since
    /// it started.
    pub mail_set_aside_len: u64,
}

/// A node of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// The number of its opening.
    pub number: u64,
    /// Whether it is the runtime that was asked.
    pub is_here: bool,
    /// Whether it claims its share of the partitions by itself. A node that does not has no share.
    pub claims: bool,
    /// How long the node may be silent until the others take it for dead; `None` until it has announced that: then each of
    /// the others goes by its own lease.
    pub lease: Option<Duration>,
    /// The partitions that it owns, in order.
    pub partitions: Vec<Partition>,
}
