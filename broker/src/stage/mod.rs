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
//! Pushing an envelope to 64 inboxes means 64 times to count it, to lock, to unlock and to count it back, each of which costs
//! as much as reading a small envelope does. So where at least [`INBOXES_MIN`] inboxes of a topic want the same envelopes, a
//! [`Publisher`](crate::Publisher) pushes once, to the topic's stage. When an inbox is read, it fetches everything that it
//! has not had: the open bundle is closed and never changes again, and the inbox holds it with one pointer for all its
//! envelopes. Its reader lends them out without any counting.
//!
//! A stage is an [inflow](crate::mailbox::Inflow) of its inboxes: the order, the counters and the room of an inbox are the
//! same as if it shared nothing. The only difference is when a payload is dropped: with the last of its bundle, by the last
//! inbox that has the bundle.
//!
//! # Who is on it
//! Inboxes on a stage have the policy [`Overflow::Block`](crate::Overflow::Block), room for at least [`CAPACITY_MIN`]
//! envelopes, the topic's name as filter, no group, a payload type, and no tap; the topic does not retain. All other inboxes,
//! and all of them whenever an envelope finds no room in one, are pushed to one by one; so is everything that a
//! [`TopicHandle`](crate::TopicHandle) publishes without a publisher, including questions: their askers want to know at once
//! if no consumer answers.
//!
//! # Room
//! The stage knows up to which envelope and which byte all its inboxes certainly have room. Only when that is reached, the
//! inboxes are asked. Any other use of an inbox's room first withdraws this knowledge, under the inbox's lock, and so does a
//! publisher that begins to wait for room: no other publisher overtakes it.
//!
//! # Seldom
//! If all inboxes have read everything, each of them must be rung, and only envelopes that follow before their readers come
//! make a bundle. So the first envelope is pushed one by one, and so is the next if the inbox that is asked (each in turn)
//! has nothing left of the first.
//!
//! # Who comes and goes
//! Each change of the inboxes begins a generation, and a route belongs to one generation. A publisher with an older route
//! pushes one by one, to the inboxes of that route. An inbox that leaves takes along the envelopes that it has not had; a new
//! inbox gets what is pushed from then on.
//!
//! # Invariants
//! - A bundle is complete when an inbox gets it: no inbox keeps envelopes because more may come.
//! - A bundle holds no more than a quarter of what its smallest inbox may, by count and by bytes, or a
//!   single envelope. Its bytes count in each inbox until that is done with all of it.
//! - The stage holds the envelopes that some inbox has not fetched, and no more than that inbox has room for.
//! - Lock order: a mailbox's lock, then the stage's. No foreign code runs and no envelope is dropped under it.

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

/// The fewest inboxes with equal settings that share bundles; fewer are pushed to one by one.
pub(crate) const INBOXES_MIN: usize = 4;
/// A smaller inbox is pushed to by itself: its bundles would be too small.
pub(crate) const CAPACITY_MIN: usize = 8;
/// The fewest bundles that a full inbox consists of, and so how often its reader makes room while it empties it.
const BUNDLES_MIN: usize = 4;

type Inbox<T> = Mailbox<Delivery<Envelope<T>>>;

/// Where the envelopes of one topic wait for several inboxes.
pub(crate) struct Stage<T> {
    state: Mutex<StageState<T>>,
    /// How many envelopes there have been: written under the lock, and read by inboxes without it.
    pushed: AtomicU64,
    /// Whether the room of the inboxes is known, or being asked for: written under the lock, and read by inboxes without it.
    /// If a thread changes an inbox while this is false, the publisher that asks next sees the change.
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

    /// The inboxes are about to change: publishers of an older generation push nothing any more.
    fn begin_generation(&self, bounds: BundleBounds) -> u64 {
        self.lock().begin_generation(bounds)
    }
}

impl<T: Send + Sync + 'static> Stage<T> {
    /// Makes the inbox get what is pushed from now on; returns its place.
    fn enter(self: &Arc<Self>, inbox: &Inbox<T>) -> usize {
        inbox.open_inlet(Arc::<Self>::clone(self), || self.lock().enter())
    }
}

impl<T: Send + Sync + 'static> Inflow<Delivery<Envelope<T>>> for Stage<T> {
    fn pour(&self, reach: &mut Reach, and: AndThen, into: &mut dyn FnMut(Poured<Delivery<Envelope<T>>>)) {
        let is_done = match and {
            // The next push rings. A push that is not seen here yet rings after this.
            AndThen::Ring => self.waiting(reach) == 0 && reach.is_listed,
            // In this order: a push into room that was known, and is not any more, is seen.
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
