//! Nodes: processes that have one store open at the same time, each the owner of some partitions.
//!
//! ```text
//!   node a ── flushes ──► marker of a ◄── look ── node b: a stands still
//!                            │                      │ declare_dead(a): waits out a flush of a's, then a writes nothing
//!   partitions of a ◄────────┴──── claim ───────────┘
//! ```
//!
//! A journal over such a store grants a [claim](crate::Journal::claim) to partitions that no living node owns, and refuses
//! other partitions as [`Owned`](crate::ClaimRefused::Owned), also where they are to be [taken](crate::Journal::take_from): a
//! partition of another node is only available once that node has given it back or was declared dead.
//!
//! Left out: which node is dead. The journal reports the beats of each node; a part of the runtime decides by its own clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Bell, Offset, Partition, Timestamp};

use crate::error::ReadError;
use crate::mail::NodeMail;

/// A node of a shared store: a process that has joined it under a name, with a number that no other opening has. A cheap
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

/// What a node announces about itself to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeTerms {
    /// How long the node may write nothing before the others take it for dead.
    pub lease: Duration,
    /// Whether the node claims its share of the partitions by itself. A node that does not has no share.
    pub claims: bool,
}

impl NodeTerms {
    /// The terms of a node that counts as dead when it has written nothing for this lease.
    #[must_use]
    pub const fn new(lease: Duration, claims: bool) -> Self {
        Self { lease, claims }
    }
}

/// What a store knows of a node that has joined it, and has neither left nor been declared dead.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeSeen {
    /// The node.
    pub node: NodeKey,
    /// Grows with each durable flush of the node. Nothing else changes it.
    pub beat: u64,
    /// The partitions that it owns, in order.
    pub partitions: Vec<Partition>,
    /// What the node has announced; `None` before its first announcement.
    pub terms: Option<NodeTerms>,
}

impl NodeSeen {
    /// A node as a store reports it, without an announcement.
    #[must_use]
    pub fn new(node: NodeKey, beat: u64, partitions: Vec<Partition>) -> Self {
        Self {
            node,
            beat,
            partitions,
            terms: None,
        }
    }

    /// The same node, with its announcement.
    #[must_use]
    pub fn with_terms(mut self, terms: NodeTerms) -> Self {
        self.terms = Some(terms);
        self
    }

    /// Whether it claims its share of the partitions by itself.
    #[must_use]
    pub fn claims(&self) -> bool {
        self.terms.is_some_and(|terms| terms.claims)
    }
}

/// What a store knows of all nodes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodesSeen {
    /// The nodes that have joined and not left, in the order of their names.
    pub nodes: Vec<NodeSeen>,
    /// The partitions that no node owns, in order: any node may claim them.
    pub free: Vec<Partition>,
}

/// A store that several processes have open at a time. Calls may wait for it, as those of [`Reads`](crate::Reads).
pub trait SharedStore: Send + Sync {
    /// The node that this process is. Once it has been declared dead, a [look](Self::look) does not return it.
    fn node(&self) -> &NodeKey;

    /// Announces these terms of this node to all others, in place of the previous ones.
    ///
    /// # Errors
    /// When the store could not be reached: the others may or may not see the terms. Announce them again.
    fn announce(&self, terms: NodeTerms) -> Result<(), ReadError>;

    /// Asks for a flush that shows the others that this node lives, and returns its offset. The journal makes such flushes by
    /// itself until the first call, and none from then on: the caller must then call this several times in each lease. Never
    /// waits.
    fn beat(&self) -> Offset;

    /// The beats of all nodes, and the owner of each partition.
    ///
    /// # Errors
    /// When the store could not be read. This says nothing about any node.
    fn look(&self) -> Result<NodesSeen, ReadError>;

    /// The time of day of the server that keeps the store, read now; `None`, as by default, if there is no clock that all
    /// nodes share: then each node's own clock counts.
    ///
    /// # Errors
    /// When the server could not be asked.
    fn time(&self) -> Result<Option<Timestamp>, ReadError> {
        Ok(None)
    }

    /// Makes a node count as dead: when this returns, its last flush has either landed or never will, it writes nothing any
    /// more, and its partitions are free to be claimed. Nothing changes for a node that has left, or was declared dead
    /// before.
    ///
    /// A flush of that node that is under way is waited for, for a bounded time; then the database session that performs it
    /// is ended.
    ///
    /// # Errors
    /// When the store could not be reached: the node may or may not count as dead. Call it again.
    fn declare_dead(&self, node: &NodeKey) -> Result<(), ReadError>;

    /// Rings this bell when another node says that it has left: its partitions are free. By default it never rings; a caller
    /// must [look](Self::look) from time to time anyway.
    fn watch(&self, bell: Bell) {
        drop(bell);
    }

    /// The mail between nodes; `None`, as by default, for a store that has none: messages between nodes then wait until one
    /// node owns both partitions.
    fn mail(&self) -> Option<&dyn NodeMail> {
        None
    }
}
