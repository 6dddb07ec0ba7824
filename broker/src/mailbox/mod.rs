//! A bounded queue beside its consumer, which it rings for.
//!
//! ```text
//!   push ──► [ queue ] ──swap──► in hand ──► handled one by one
//!     │         ▲                   │
//!     │ (first) └── unhandled rest ─┘ when the guard is dropped early
//!     └──► Bell
//! ```
//!
//! A consumer that only borrows its values may leave their memory in the mailbox for a pusher: at most as many spent values
//! as fit the mailbox wait there, as many more are in the consumer's hand, and each push reuses one. The memory that they
//! still hold counts towards the bytes, except for a share of it in the hand.
//!
//! Only the push that finds the queue empty rings the [`Bell`]; the consumer then takes the whole
//! queue at once and handles it in order. Between the two there is one short lock and, once its
//! buffers have grown, no allocation.
//!
//! # Invariants
//! - What is queued plus what is in hand never exceeds the capacity, except for what was pushed
//!   with a [reserved](Mailbox::push_reserved) place, which is counted apart.
//! - Values come out in the order in which they went in, by whichever pusher.
//! - Pushers that wait for room get in by order of arrival; none overtakes another.
//! - A value is lost only by [`Mailbox::close_discarding`]: a consumer that panics, is killed or is
//!   replaced with values in hand gives them back to the front of the queue.
//! - No lock is held while a waker, a bell or a destructor of a value runs.
//! - What many mailboxes share is let in, under the lock, before anything else happens to one of them: see
//!   `inlet.rs`.
//!
//! It leaves out on purpose a second consumer: while one batch is in hand, a second [`take`](Mailbox::take) gets nothing; the
//! bell rings when the first hand is put down.

mod any;
mod at_inlet;
mod config;
mod emptying;
mod hand;
mod inlet;
#[cfg(test)]
#[cfg(loom)]
mod loom;
mod push;
mod queue;
mod room;
mod slot;
mod spent;
mod state;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use millrun_core::Bell;

pub(crate) use any::AnyMailbox;
pub use config::{MailboxConfig, MailboxConfigError, MailboxStats};
pub use hand::InHand;
pub(crate) use hand::Refilled;
pub use push::{Closed, Push, PushBatch, TryPushBatchError, TryPushError};

pub(crate) use inlet::{AndThen, Inflow, Poured, Reach};
pub(crate) use push::PushPlace;

use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use spent::Spent;
use state::{Door, Limits, MailboxState};

/// A bounded queue with a bell. A cheap clone; all clones are the same mailbox.
///
/// # Ordering
/// Values are handed out in the order in which their pushes took effect. Two pushes of one task,
/// the second begun after the first returned, keep their order.
pub struct Mailbox<T>(Arc<MailboxInner<T>>);

/// The fields that a push and a take need are together at the front, right after the counters of the `Arc`: a thread that
/// walks through thousands of mailboxes waits for memory once for each cache line. The fields that the consumer reads with
/// each value are at the end, apart from those that pushers write.
#[repr(C)]
struct MailboxInner<T> {
    limits: Limits,
    /// The consumer only borrows its values, and gives them back; assumed until it is seen to do otherwise.
    is_borrowed_from: AtomicBool,
    bell: Bell,
    /// Its last fields are seldom used.
    state: Mutex<MailboxState<T>>,
    weigh: Option<fn(&T) -> usize>,
    /// Frees the memory that a spent value still holds.
    empty: Option<fn(&mut T)>,
    /// A pusher waits for room and has not been woken yet: a hint for the consumer that makes room. Written under the lock.
    asking: AtomicBool,
    left: Left,
    /// What follows in memory is on another cache line.
    _apart: [u64; 6],
}

/// What the hand still holds. Only the owner of the hand writes here, and only a pusher that finds the mailbox full reads.
struct Left {
    places: AtomicUsize,
    weight: AtomicUsize,
    values: AtomicUsize,
}

impl<T> Mailbox<T> {
    /// A mailbox whose values have no weight: only [`MailboxConfig::capacity`] bounds it.
    ///
    /// # Errors
    /// When a bound of the configuration is zero.
    pub fn new(config: MailboxConfig, bell: Bell) -> Result<Self, MailboxConfigError> {
        Self::build(config, None, None, bell)
    }

    /// A mailbox that is bounded in bytes too: `weigh` returns how many bytes a value holds.
    ///
    /// `weigh` is called once per push, before any lock is taken. A value heavier than [`MailboxConfig::bytes_max`] is
    /// accepted when the mailbox holds nothing else.
    ///
    /// # Errors
    /// When a bound of the configuration is zero.
    pub fn weighed(
        config: MailboxConfig,
        weigh: fn(&T) -> usize,
        bell: Bell,
    ) -> Result<Self, MailboxConfigError> {
        Self::build(config, Some(weigh), None, bell)
    }

    fn build(
        config: MailboxConfig,
        weigh: Option<fn(&T) -> usize>,
        empty: Option<fn(&mut T)>,
        bell: Bell,
    ) -> Result<Self, MailboxConfigError> {
        config.check()?;
        Ok(Self(Arc::new(MailboxInner {
            limits: Limits {
                capacity: config.capacity,
                bytes_max: if weigh.is_some() {
                    config.bytes_max
                } else {
                    usize::MAX
                },
            },
            is_borrowed_from: AtomicBool::new(empty.is_some()),
            bell,
            state: Mutex::new(MailboxState::new()),
            weigh,
            empty,
            asking: AtomicBool::new(false),
            left: Left {
                places: AtomicUsize::new(0),
                weight: AtomicUsize::new(0),
                values: AtomicUsize::new(0),
            },
            _apart: [0; 6],
        })))
    }

    /// Puts a value in, and waits for room while the mailbox is full.
    ///
    /// # Errors
    /// [`Closed`] returns the value when the mailbox is closed now or later.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, the value is not pushed (and is dropped), and its place in the line of
    /// waiting pushers goes to the next.
    pub fn push(&self, value: T) -> Push<'_, T> {
        Push::new(self, value)
    }

    /// Puts a value in if there is room now.
    ///
    /// # Errors
    /// [`TryPushError::Full`] or [`TryPushError::Closed`], both with the value. If pushers wait, the mailbox counts as full
    /// up to the room that they are entitled to.
    pub fn try_push(&self, value: T) -> Result<(), TryPushError<T>> {
        let weight = self.weigh(&value);
        self.try_push_weighed(value, weight, None)
    }

    /// As [`Mailbox::try_push`], for a known weight. If `spent` is given and empty, it gets a value that the consumer has
    /// [spent](InHand::spend), if there is one.
    #[inline]
    pub(crate) fn try_push_weighed(
        &self,
        value: T,
        weight: u32,
        spent: Option<&mut Option<T>>,
    ) -> Result<(), TryPushError<T>> {
        let mut state = self.lock();
        if state.door != Door::Open {
            return Err(TryPushError::Closed(value));
        }
        state.let_in(AndThen::AskAgain);
        let ahead = state.waiting.len();
        if !state.has_room(&self.0.limits, ahead, weight) {
            return self.push_after_all(state, value, weight);
        }
        let first = state.enqueue(value, weight);
        if let Some(spent @ None) = spent {
            *spent = state.spent.pop();
        }
        self.release(state, first);
        Ok(())
    }

    #[cold]
    fn push_after_all(
        &self,
        state: MutexGuard<'_, MailboxState<T>>,
        value: T,
        weight: u32,
    ) -> Result<(), TryPushError<T>> {
        // Dropped after the lock.
        let mut evicted = None;
        let mut state = state;
        let ahead = state.waiting.len();
        if !self.has_room_after_all(&mut state, ahead, weight, &mut evicted) {
            state.refused += 1;
            return Err(TryPushError::Full(value));
        }
        let first = state.enqueue(value, weight);
        self.release(state, first);
        Ok(())
    }

    /// Puts all values in, in order, taking whatever room there is each time some appears.
    ///
    /// # Ordering
    /// Values of one batch keep their order; those of other pushers may come between them.
    ///
    /// # Errors
    /// [`Closed`] returns the values that were not pushed.
    ///
    /// # Cancel safety
    /// Values put in before the future is dropped stay in, the others are dropped.
    pub fn push_batch(&self, values: Vec<T>) -> PushBatch<'_, T> {
        PushBatch::new(self, values)
    }

    /// Puts in as many values as there is room for now, from the front.
    ///
    /// # Errors
    /// The values that did not fit, in order, with the reason.
    pub fn try_push_batch(&self, values: Vec<T>) -> Result<(), TryPushBatchError<T>> {
        let weighed = values.into_iter().map(|value| (self.weigh(&value), value));
        let mut rest = weighed.collect::<Vec<_>>().into_iter();
        let mut next = rest.next();
        let mut evicted = None;
        let mut state = self.lock();
        let closed = state.door != Door::Open;
        let mut first = false;
        if !closed {
            state.let_in(AndThen::AskAgain);
            let ahead = state.waiting.len();
            while let Some((weight, value)) = next.take() {
                if !self.has_room(&mut state, ahead, weight, &mut evicted) {
                    state.refused += 1;
                    next = Some((weight, value));
                    break;
                }
                first |= state.enqueue(value, weight);
                next = rest.next();
            }
        }
        self.release(state, first);
        let Some((_, value)) = next else { return Ok(()) };
        let rest = std::iter::once(value)
            .chain(rest.map(|(_, value)| value))
            .collect();
        Err(if closed {
            TryPushBatchError::Closed(rest)
        } else {
            TryPushBatchError::Full(rest)
        })
    }

    /// Pushes a value whose place was reserved elsewhere: it neither waits nor is it refused for lack of room, and does not
    /// count towards the capacity. It keeps its order among all values.
    ///
    /// # Errors
    /// [`Closed`] gives the value back.
    pub fn push_reserved(&self, value: T) -> Result<(), Closed<T>> {
        let mut state = self.lock();
        if state.door != Door::Open {
            return Err(Closed(value));
        }
        state.let_in(AndThen::AskAgain);
        let first = state.enqueue_reserved(value);
        self.release(state, first);
        Ok(())
    }

    /// Pushes a value, and makes room by removing the oldest queued values, which are added to `displaced`. Values in hand
    /// are not removed: if they fill the mailbox, `value` itself is displaced. Reserved values are kept.
    ///
    /// # Errors
    /// [`Closed`] gives the value back.
    pub fn push_displacing(&self, value: T, displaced: &mut Vec<T>) -> Result<(), Closed<T>> {
        let weight = self.weigh(&value);
        let mut evicted = None;
        let mut state = self.lock();
        if state.door != Door::Open {
            return Err(Closed(value));
        }
        state.let_in(AndThen::AskAgain);
        while !self.has_room(&mut state, 0, weight, &mut evicted) {
            let Some(oldest) = state.displace() else {
                state.displaced += 1;
                drop(state);
                displaced.push(value);
                return Ok(());
            };
            displaced.push(oldest);
        }
        let first = state.enqueue(value, weight);
        self.release(state, first);
        Ok(())
    }

    /// Takes everything that is queued. The hand is empty if nothing is, or if another hand of this mailbox is still out; in
    /// that case the bell rings when that one is put down.
    ///
    /// Waiting pushers are woken as values are taken from the hand, in steps of a quarter
    /// of the capacity, so that each wakes up to a batch of room.
    pub fn take(&self) -> InHand<T> {
        InHand::take(self)
    }

    /// A hand that has taken nothing yet.
    pub(crate) fn empty_hand(&self) -> InHand<T> {
        InHand::empty(self)
    }

    /// Returns a value that was handed out to the front, whether or not there is room, and rings.
    ///
    /// # Errors
    /// The value, if the mailbox is closed and discards.
    pub fn give_back(&self, value: T) -> Result<(), T> {
        let weight = self.weigh(&value);
        let mut state = self.lock();
        if state.door == Door::Discarding {
            return Err(value);
        }
        state.let_in(AndThen::AskAgain);
        state.enqueue_front(value, weight);
        self.release(state, true);
        Ok(())
    }

    /// Refuses pushes from now on; waiting pushers get their values back, and queued values can still be taken. Rings, so
    /// that the consumer notices.
    pub fn close(&self) {
        self.shut(Door::Draining);
    }

    /// As [`close`](Self::close), and removes what is queued, which is returned in order. Values in hand stay there, but the
    /// rest of them is dropped when the hand is put down.
    pub fn close_discarding(&self) -> Vec<T> {
        self.shut(Door::Discarding);
        let queue = self.lock().discard();
        queue.into_values().collect()
    }

    fn shut(&self, door: Door) {
        let (waiting, consumer, _spent) = {
            let mut state = self.lock();
            state.close_inlet();
            state.door = state.door.max(door);
            (
                std::mem::take(&mut state.waiting),
                state.consumer.take(),
                std::mem::replace(&mut state.spent, Spent::new()),
            )
        };
        for waiter in waiting {
            if let Some(waker) = waiter.waker {
                waker.wake();
            }
        }
        self.call(consumer);
    }

    /// How many values are queued or in hand, reserved ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.len() + state.at_inlet() + self.0.left.values.load(Ordering::Relaxed)
    }

    /// Whether nothing is queued or in hand.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether pushes are refused. There may be values left to take.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().door != Door::Open
    }

    /// Whether nothing is left and nothing can come any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let state = self.lock();
        state.door != Door::Open && state.queue.is_empty() && self.0.left.values.load(Ordering::Relaxed) == 0
    }

    /// The most values that may be queued and in hand.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.limits.capacity
    }

    /// Both bounds.
    pub(crate) fn bounds(&self) -> MailboxConfig {
        let Limits { capacity, bytes_max } = self.0.limits;
        MailboxConfig { capacity, bytes_max }
    }

    /// Whether the consumer is known to only borrow, so that values that it has [spent](InHand::spend) come back.
    #[inline]
    pub(crate) fn is_borrowed_from(&self) -> bool {
        self.0.is_borrowed_from.load(Ordering::Relaxed)
    }

    /// The bell that rings when the mailbox stops being empty.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.0.bell
    }

    /// Whether both are the same mailbox.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Calls `emptied` whenever a hand is put down and nothing is queued, in place of any former function.
    pub(crate) fn watch(&self, emptied: Arc<dyn Fn() + Send + Sync>) {
        let former = self.lock().watch.replace(emptied);
        drop(former);
    }

    /// What has happened so far.
    #[must_use]
    pub fn stats(&self) -> MailboxStats {
        let state = self.lock();
        let at_inlet = state.at_inlet();
        let queued = state.len() + at_inlet;
        MailboxStats {
            pushed: state.pushed + at_inlet as u64,
            pushed_reserved: state.pushed_reserved,
            taken: state.taken - self.0.left.values.load(Ordering::Relaxed) as u64,
            refused: state.refused,
            displaced: state.displaced,
            discarded: state.discarded,
            waits: state.waits,
            queued,
            in_hand: self.0.left.values.load(Ordering::Relaxed),
            hand_out: state.hand_out,
            waiting: state.waiting.len(),
            len_max: state.len_max.max(queued),
        }
    }

    /// Releases the lock and, if the queue was empty, rings the consumer.
    #[inline]
    fn release(&self, mut state: MutexGuard<'_, MailboxState<T>>, first: bool) {
        if first {
            let consumer = state.consumer.take();
            drop(state);
            self.call(consumer);
        }
    }

    fn call(&self, consumer: Option<Waker>) {
        self.0.bell.ring_after_lock();
        if let Some(consumer) = consumer {
            consumer.wake();
        }
    }

    #[inline]
    fn weigh(&self, value: &T) -> u32 {
        self.0
            .weigh
            .map_or(0, |weigh| u32::try_from(weigh(value)).unwrap_or(u32::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState<T>> {
        lock(&self.0.state)
    }
}

/// No foreign code runs while the state is being changed, so a panic leaves it consistent.
impl<T> std::panic::UnwindSafe for Mailbox<T> {}

/// As above.
impl<T> std::panic::RefUnwindSafe for Mailbox<T> {}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("capacity", &self.0.limits.capacity)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
