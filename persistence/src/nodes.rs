//! Nodes: processes that have one store open at a time, each the owner of some partitions.
//!
//! ```text
//!   node a ── flushes ──► marker of a ◄── look ── node b: a stands still
//!                            │                      │ declare_dead(a): waits out a flush of a's, then a writes nothing
//!   partitions of a ◄────────┴──── claim ───────────┘
//! ```
//!
//! A journal over such a store grants a [claim](crate::Journal::claim) to partitions that no living node owns, and refuses
//! those of others as [`Owned`](crate::ClaimRefused::Owned), also where they are to be
//! [taken](crate::Journal::take_from): what another node owns is only had when it has given it back, or was declared dead.
//!
//! Left out: who is dead. The journal tells how far each node has come; a part of the runtime decides by its own clock.

use std::fmt;
use std::sync::Arc;

use millrun_core::Partition;

use crate::error::ReadError;

/// A node of a shared store: a process that has joined it under a name, and a number that no other opening has. A cheap
/// clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey {
    name: Arc<str>,
    number: u64,
}

impl NodeKey {
    /// The node that has joined under this name, with this number.
    #[must_use]
    pub fn new(name: &str, number: u64) -> Self {
        Self {
            name: name.into(),
            number,
        }
    }

    /// The name. A process that joins again under it is another node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the opening.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What a store says of a node that has joined it, and has neither left it nor been declared dead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeSeen {
    /// The node.
    pub node: NodeKey,
    /// Grows with each of its flushes that are durable. Nothing else changes it.
    pub beat: u64,
    /// The partitions that it owns, in order.
    pub partitions: Vec<Partition>,
}

impl NodeSeen {
    /// A node as a store tells of it.
    #[must_use]
    pub fn new(node: NodeKey, beat: u64, partitions: Vec<Partition>) -> Self {
        Self {
            node,
            beat,
            partitions,
        }
    }
}

/// What a store says of all nodes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodesSeen {
    /// The nodes that have joined and not left, in the order of their names.
    pub nodes: Vec<NodeSeen>,
    /// The partitions that none of them owns, in order: any of them may claim these.
    pub free: Vec<Partition>,
}

/// A store that several processes have open at a time. Calls may wait for it, as those of [`Reads`](crate::Reads).
pub trait SharedStore: Send + Sync {
    /// The node that this process is. It is not among those that a [look](Self::look) finds once it has been declared dead.
    fn node(&self) -> &NodeKey;

    /// How far all nodes have come, and who owns which partitions.
    ///
    /// # Errors
    /// When the store could not be read. This says nothing of any node.
    fn look(&self) -> Result<NodesSeen, ReadError>;

    /// A node counts as dead from now on: when this returns, its last flush has landed or never will, it writes nothing any
    /// more, and what it owned is free to be claimed. Nothing changes for a node that has left, or was declared dead before.
    ///
    /// A flush of its that is under way is waited for, for a bounded time; then the session that performs it is ended.
    ///
    /// # Errors
    /// When the store could not be reached: whether the node counts as dead is not known then. Ask again.
    fn declare_dead(&self, node: &NodeKey) -> Result<(), ReadError>;
}
