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
use std::time::Duration;

use millrun_core::{Bell, Offset, Partition, Timestamp};

use crate::error::ReadError;
use crate::mail::NodeMail;

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

/// What a node says of itself, for the others to go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeTerms {
    /// How long it may write nothing until the others take it for dead.
    pub lease: Duration,
    /// Whether it claims its share of the partitions by itself. One that does not has no share.
    pub claims: bool,
}

impl NodeTerms {
    /// The terms of a node that is taken for dead when it has written nothing for this lease.
    #[must_use]
    pub const fn new(lease: Duration, claims: bool) -> Self {
        Self { lease, claims }
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
    /// What it says of itself; `None` until it has said anything.
    pub terms: Option<NodeTerms>,
}

impl NodeSeen {
    /// A node as a store tells of it, which has said nothing of itself.
    #[must_use]
    pub fn new(node: NodeKey, beat: u64, partitions: Vec<Partition>) -> Self {
        Self {
            node,
            beat,
            partitions,
            terms: None,
        }
    }

    /// The same, with what it says of itself.
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

    /// Says this of this node to all others, in the place of what it said before.
    ///
    /// # Errors
    /// When the store could not be reached: whether the others are told is not known then. Say it again.
    fn announce(&self, terms: NodeTerms) -> Result<(), ReadError>;

    /// Asks for a flush by which the others know that this node lives, and gives its offset. By itself the journal makes such
    /// flushes until this is called for the first time, and none from then on: the caller, who is to call it several times in
    /// a lease, says that it lives too. Never waits.
    fn beat(&self) -> Offset;

    /// How far all nodes have come, and who owns which partitions.
    ///
    /// # Errors
    /// When the store could not be read. This says nothing of any node.
    fn look(&self) -> Result<NodesSeen, ReadError>;

    /// The time of day of the server that keeps the store, asked of it now; `None`, as by default, if there is none that all nodes
    /// could go by: then the clock of each counts.
    ///
    /// # Errors
    /// When the store could not be asked.
    fn time(&self) -> Result<Option<Timestamp>, ReadError> {
        Ok(None)
    }

    /// A node counts as dead from now on: when this returns, its last flush has landed or never will, it writes nothing any
    /// more, and what it owned is free to be claimed. Nothing changes for a node that has left, or was declared dead before.
    ///
    /// A flush of its that is under way is waited for, for a bounded time; then the session that performs it is ended.
    ///
    /// # Errors
    /// When the store could not be reached: whether the node counts as dead is not known then. Ask again.
    fn declare_dead(&self, node: &NodeKey) -> Result<(), ReadError>;

    /// Has this bell rung when another node has told that it has left: what it owned is free. By default it never rings; a caller
    /// [looks](Self::look) all the same.
    fn watch(&self, bell: Bell) {
        drop(bell);
    }

    /// The mail between nodes; `None`, as by default, for a store that has none: what one node has for another then waits until
    /// one node owns both.
    fn mail(&self) -> Option<&dyn NodeMail> {
        None
    }
}
