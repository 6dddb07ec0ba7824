//! Giving an envelope to many inboxes with one push.
//!
//! ```text
//!                 ┌──────────────── stage ────────────────┐
//!   publish ────► │ bundle ─ bundle ─ bundle ─ [ open … ] │
//!      │          └────┬────────┬──────────────────┬──────┘
//!      │               │        │                  │ closed by the first inbox that comes for it
//!      │               ▼        ▼                  ▼
//!      │           inbox 1   inbox 2            inbox 3 …
//!      └─(those that have read everything are rung for)─▲
//! ```
//!
//! Pushing an envelope to 64 inboxes means 64 times to count it, to lock, to unlock and to count it
//! back, each of which costs as much as reading a small envelope does. So where at least
//! [`INBOXES_MIN`] inboxes of a topic want the same, a [`Publisher`](crate::Publisher) pushes once, to
//! the topic's stage. An inbox that is looked at comes for what it has not had, as a whole: the open
//! bundle is closed, never to change again, and the inbox holds on to it with one pointer for all its
//! envelopes. Its reader lends them out without any counting.
//!
//! A stage is an [inflow](crate::mailbox::Inflow) of its inboxes: to the order, the counters and the
//! room of an inbox it makes no difference that others share its envelopes. What differs is when a
//! payload is dropped: with the last of its bundle, by the last inbox that has the bundle.
//!
//! # Who is on it
//! Inboxes that wait for room ([`Overflow::Block`](crate::Overflow::Block)), of at least
//! [`CAPACITY_MIN`] envelopes, whose filter is the topic's name, of no group, typed, and not
//! tapped; on a topic that does not retain. All others, and all of them whenever an envelope finds no room
//! in one, are pushed to one by one; so is what a [`TopicHandle`](crate::TopicHandle) publishes without a publisher,
//! questions among them: their askers want to know at once if nobody answers.
//!
//! # Room
//! The stage knows up to which envelope and which byte all its inboxes have room for certain. Only when
//! that is reached, the inboxes are asked. Whatever else takes room of an inbox first takes
//! back what the stage knows, under the inbox's lock, and so does a publisher that begins to wait for room:
//! nobody overtakes him.
//!
//! # Seldom
//! If all inboxes have read everything, each of them has to be rung for, and only envelopes that follow
//! before their readers come make a bundle. So the first one is pushed one by one, and so is the next
//! if the inbox that is asked, each in turn, has nothing left of that.
//!
//! # Who comes and goes
//! Each change of the inboxes begins a generation, and a route is of one generation. A publisher with
//! an older route pushes one by one, to the inboxes that its route names. An inbox that leaves takes along
//! what it has not had; one that comes gets what is pushed from then on.
//!
//! # Invariants
//! - A bundle is complete when an inbox gets it: nobody holds on to envelopes because more may come.
//! - A bundle holds no more than a quarter of what its smallest inbox may, by count and by bytes, or a
//!   single envelope. Its bytes count in each inbox until that is done with all of it.
//! - The stage holds what some inbox has not come for, and no more than that inbox has room for.
//! - Locks: a mailbox's, then the stage's. No code of others runs and no envelope is dropped under it.

mod cast;
#[cfg(all(test, loom))]
mod loom;
#[cfg(test)]
mod scene;
mod staged;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;

pub(crate) use cast::{Cast, Staging};
pub(crate) use staged::Staged;

use crate::delivery::{Bundle, Delivery};
use crate::envelope::Envelope;
use crate::mailbox::{AndThen, Inflow, Mailbox, Poured, Reach};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, lock};
use state::{BundleBounds, StageState};

/// The fewest inboxes with the same wishes that share bundles; fewer are pushed to one by one.
pub(crate) const INBOXES_MIN: usize = 4;
/// A smaller inbox is pushed to by itself: there would be little in a bundle.
pub(crate) const CAPACITY_MIN: usize = 8;
/// The fewest bundles that a full inbox consists of, and so how often its reader makes room while it empties
/// it.
const BUNDLES_MIN: usize = 4;

type Inbox<T> = Mailbox<Delivery<Envelope<T>>>;

/// Where the envelopes of one topic wait for several inboxes.
pub(crate) struct Stage<T> {
    state: Mutex<StageState<T>>,
    /// How many envelopes there have been: written under the lock, and read by inboxes without it.
    pushed: AtomicU64,
    /// Whether the room of the inboxes is known, or being asked for: written under the lock, and read by
    /// inboxes without it. A thread that changes an inbox while it says no is seen by the publisher that asks.
    knows_room: AtomicBool,
}

impl<T> Stage<T> {
    fn new() -> Self {
        Self {
            state: Mutex::new(StageState::new()),
            pushed: AtomicU64::new(0),
            knows_room: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, StageState<T>> {
        lock(&self.state)
    }

    /// The inboxes are going to change: publishers of an older generation push nothing any more.
    fn begin_generation(&self, bounds: BundleBounds) -> u64 {
        self.lock().begin_generation(bounds)
    }
}

impl<T: Send + Sync + 'static> Stage<T> {
    /// Has the inbox get what is pushed from now on; gives its place.
    fn enter(self: &Arc<Self>, inbox: &Inbox<T>) -> usize {
        inbox.open_inlet(Arc::<Self>::clone(self), || self.lock().enter())
    }
}

impl<T: Send + Sync + 'static> Inflow<Delivery<Envelope<T>>> for Stage<T> {
    fn pour(&self, reach: &mut Reach, and: AndThen, into: &mut dyn FnMut(Poured<Delivery<Envelope<T>>>)) {
        let is_done = match and {
            // The next push rings. One that is not seen here yet does so after this.
            AndThen::Ring => self.waiting(reach) == 0 && reach.is_listed,
            // In this order: what was pushed into room that was known, and is no more, is seen.
            AndThen::AskAgain => !self.knows_room.load(Ordering::Acquire) && self.waiting(reach) == 0,
        };
        if is_done {
            return;
        }
        let mut state = self.lock();
        state.pour(reach, &mut |bundle| into(poured(bundle)));
        match and {
            AndThen::Ring => state.list(reach),
            AndThen::AskAgain => {
                state.withdraw();
                self.knows_room.store(false, Ordering::Release);
            }
        }
    }

    fn close(&self, mut reach: Reach, into: &mut dyn FnMut(Poured<Delivery<Envelope<T>>>)) {
        let mut state = self.lock();
        state.pour(&mut reach, &mut |bundle| into(poured(bundle)));
        state.leave(reach.place);
    }

    fn waiting(&self, reach: &Reach) -> usize {
        let missing = self.pushed.load(Ordering::Acquire).saturating_sub(reach.values);
        usize::try_from(missing).expect("they found room in an inbox")
    }
}

fn poured<T>(bundle: Arc<Bundle<Envelope<T>>>) -> Poured<Delivery<Envelope<T>>> {
    Poured {
        count: bundle.len(),
        weight: bundle.weight(),
        value: Delivery::Bundled(bundle),
    }
}
