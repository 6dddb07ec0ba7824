//! Values that belong to a mailbox before they are in its queue.
//!
//! ```text
//!   pushed once ──► inflow ──┬─ inlet ──► queue of one mailbox
//!                            └─ inlet ──► queue of another
//! ```
//!
//! Values that many mailboxes must get alike are pushed once, into an [`Inflow`] that all of them read. A mailbox lets in the
//! values that wait there before anything else happens to it: before it is taken from, pushed to, counted or closed. So the
//! order, the counters and the room are the same as if the values had been in its queue all the time.
//!
//! # Invariants
//! - The inflow's lock is taken under a mailbox's, never the other way round.
//! - Each value that waits at an inlet has found room in its mailbox before it was pushed: a push
//!   by another way takes that room back first ([`AndThen::AskAgain`]).

use std::sync::Arc;

/// Where values wait for several mailboxes.
pub(crate) trait Inflow<T>: Send + Sync {
    /// Gives the mailbox `reach.place` the values that have come since its last visit.
    fn pour(&self, reach: &mut Reach, and: AndThen, into: &mut dyn FnMut(Poured<T>));

    /// As [`Inflow::pour`], for the last time.
    fn close(&self, reach: Reach, into: &mut dyn FnMut(Poured<T>));

    /// How many values wait for the mailbox.
    fn waiting(&self, reach: &Reach) -> usize;
}

/// What happens after a mailbox has fetched its values from an inflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AndThen {
    /// The consumer has everything: the next value rings for it.
    Ring,
    /// The mailbox is about to change in another way: before the next value it must be asked for its room again.
    AskAgain,
}

/// Several values in one, as an inflow returns them.
pub(crate) struct Poured<T> {
    pub(crate) value: T,
    /// How many; at least one.
    pub(crate) count: usize,
    /// Their weight in bytes, held until the last of them is finished.
    pub(crate) weight: u32,
}

/// Up to where a mailbox has let values in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The mailbox's place.
    pub(crate) place: usize,
    /// How many parcels of values it has had.
    pub(crate) parcels: u64,
    /// The number of values up to there.
    pub(crate) values: u64,
    /// The weight of all values up to that.
    pub(crate) weight: u64,
    /// Whether the next value after these rings for it.
    pub(crate) is_listed: bool,
}

/// One mailbox's view of an inflow.
pub(super) struct Inlet<T> {
    inflow: Arc<dyn Inflow<T>>,
    reach: Reach,
}

impl<T> Inlet<T> {
    pub(super) fn new(inflow: Arc<dyn Inflow<T>>, reach: Reach) -> Self {
        Self { inflow, reach }
    }

    pub(super) const fn reach(&self) -> &Reach {
        &self.reach
    }

    pub(super) fn waiting(&self) -> usize {
        self.inflow.waiting(&self.reach)
    }

    pub(super) fn pour(&mut self, and: AndThen, into: &mut dyn FnMut(Poured<T>)) {
        self.inflow.pour(&mut self.reach, and, into);
    }

    pub(super) fn close(self, into: &mut dyn FnMut(Poured<T>)) {
        self.inflow.close(self.reach, into);
    }
}
