//! The operations that the code awaits, each with the waker to wake at its end.
//!
//! ```text
//!   issued ──► waiting ── an event ends it ──► resolved ── the code takes it ──► gone
//!                 └─────── the code lets go of it ─────────────────────────────► gone
//! ```
//!
//! Most operations are awaited with the code's root waker, which is not stored for each.

use std::panic::Location;
use std::task::Waker;

use crate::context::scope::Scope;
use crate::event::{ActivityFailure, ChildFailure, PublishOutcome, RawRecord, SignalFailure};
use crate::operations::Operations;
use crate::{OperationId, Payload};

/// The operations that the code has issued and whose results it has not taken.
#[derive(Debug)]
pub(super) struct Slots {
    entries: Operations<WaitSlot>,
    /// The number of unresolved operations.
    waiting_len: usize,
    /// The code's root waker.
    root: Waker,
}

#[derive(Debug)]
struct WaitSlot {
    scope: Scope,
    /// Where the code issued it.
    location: &'static Location<'static>,
    state: WaitSlotState,
}

#[derive(Debug)]
enum WaitSlotState {
    /// `None` stands for the root.
    Waiting(Option<Waker>),
    Resolved(Resolution),
}

/// How an operation ended.
#[derive(Debug)]
pub(crate) enum Resolution {
    Value(Payload),
    Failure(ActivityFailure),
    Child(Result<Payload, ChildFailure>),
    KeptOrBroken(Result<Payload, String>),
    Published(Result<PublishOutcome, String>),
    Record(Box<RawRecord>),
    Signalled(Result<(), SignalFailure>),
    Fired,
}

/// The wakers that an event wakes, in order.
#[derive(Debug)]
pub(crate) enum Wakers {
    Nobody,
    /// The code itself.
    Root,
    One(Waker),
    Many(Vec<Waker>),
}

impl Slots {
    pub(super) fn new(root: Waker) -> Self {
        Self {
            entries: Operations::default(),
            waiting_len: 0,
            root,
        }
    }

    /// Drops all operations, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.waiting_len = 0;
    }

    /// For how many there is memory.
    pub(super) const fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many are not resolved yet.
    pub(super) const fn waiting_len(&self) -> usize {
        self.waiting_len
    }

    /// Whether this one is there and not resolved yet.
    pub(super) fn is_waiting(&self, operation: OperationId) -> bool {
        let slot = self.entries.get(operation);
        slot.is_some_and(|slot| matches!(slot.state, WaitSlotState::Waiting(_)))
    }

    /// All of them, in the order in which they were issued.
    pub(super) fn operations(&self) -> Vec<OperationId> {
        self.entries.iter().map(|(operation, _)| operation).collect()
    }

    /// Where the code issued the unresolved operations, in the order of issue.
    pub(super) fn lines(&self) -> impl Iterator<Item = (OperationId, &'static Location<'static>)> {
        let waiting = self.entries.iter();
        let waiting = waiting.filter(|(_, slot)| matches!(slot.state, WaitSlotState::Waiting(_)));
        waiting.map(|(operation, slot)| (operation, slot.location))
    }

    /// Adds an operation, with the waker to wake at its end.
    #[inline]
    pub(super) fn insert(
        &mut self,
        operation: OperationId,
        scope: Scope,
        waker: &Waker,
        location: &'static Location<'static>,
    ) {
        let slot = WaitSlot {
            scope,
            location,
            state: WaitSlotState::Waiting(unless_root(waker, &self.root)),
        };
        self.entries.insert(operation, slot);
        self.waiting_len += 1;
    }

    /// Takes an operation's resolution, or keeps the waker until there is one.
    #[inline]
    pub(super) fn poll(&mut self, operation: OperationId, waker: &Waker) -> Option<Resolution> {
        let slot = self.entries.get_mut(operation)?;
        match &mut slot.state {
            WaitSlotState::Waiting(Some(kept)) => {
                kept.clone_from(waker);
                None
            }
            WaitSlotState::Waiting(kept @ None) => {
                *kept = unless_root(waker, &self.root);
                None
            }
            WaitSlotState::Resolved(_) => match self.entries.remove(operation)?.state {
                WaitSlotState::Resolved(resolution) => Some(resolution),
                WaitSlotState::Waiting(_) => None,
            },
        }
    }

    /// Drops an operation. Returns whether it had not ended.
    pub(super) fn abandon(&mut self, operation: OperationId) -> bool {
        let slot = self.entries.remove(operation);
        let was_waiting = slot.is_some_and(|slot| matches!(slot.state, WaitSlotState::Waiting(_)));
        self.waiting_len -= usize::from(was_waiting);
        was_waiting
    }

    /// Resolves an operation. Wakes nothing if the code has dropped it.
    pub(super) fn resolve(&mut self, operation: OperationId, resolution: Resolution) -> Wakers {
        let Some(slot) = self.entries.get_mut(operation) else {
            return Wakers::Nobody;
        };
        match std::mem::replace(&mut slot.state, WaitSlotState::Resolved(resolution)) {
            WaitSlotState::Waiting(waker) => {
                self.waiting_len -= 1;
                waker.map_or(Wakers::Root, Wakers::One)
            }
            WaitSlotState::Resolved(_) => Wakers::Nobody,
        }
    }

    /// The wakers of unresolved operations in scopes that a cancel reaches.
    pub(super) fn waiting(&self, is_reached: impl Fn(&Scope) -> bool) -> impl Iterator<Item = Waker> {
        self.entries
            .iter()
            .filter_map(move |(_, slot)| match &slot.state {
                WaitSlotState::Waiting(waker) if is_reached(&slot.scope) => {
                    Some(waker.as_ref().unwrap_or(&self.root).clone())
                }
                WaitSlotState::Waiting(_) | WaitSlotState::Resolved(_) => None,
            })
    }
}

/// The waker to store in a slot: `None` for the root.
fn unless_root(waker: &Waker, root: &Waker) -> Option<Waker> {
    (!waker.will_wake(root)).then(|| waker.clone())
}
