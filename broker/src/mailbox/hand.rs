//! The batch a consumer has taken and not finished.

use std::fmt;
use std::task::{Poll, Waker};

use super::inlet::AndThen;
use super::queue::Queue;
use super::slot::{Share, Slot};
use super::spent::{SPENT_BYTES_SHARE, Spent};
use super::state::{Door, MailboxState};
use super::{Left, Mailbox};
use crate::sync::{Ordering, fence};

/// The values taken from a [`Mailbox`] at once: an iterator that hands them out in order.
///
/// If it is dropped, it returns the values that it has not handed out to the front of the queue and rings, so that neither a
/// panic nor a kill in the middle of a batch loses anything. The last value that was handed out belongs to the consumer.
///
/// # Ordering
/// The rest returns to the queue before everything that was pushed since.
#[must_use = "dropping the hand puts everything back"]
pub struct InHand<T> {
    mailbox: Mailbox<T>,
    held: HandContent<T>,
}

struct HandContent<T> {
    rest: Queue<T>,
    /// Whether this is the hand that the mailbox waits for; an empty hand is not.
    is_out: bool,
    places: usize,
    weight: usize,
    /// How many more values than slots are left: some slots hold several, and the one that was begun is not counted as a slot
    /// any more.
    extra: usize,
    /// How many more values are handed out before waiting pushers are told.
    until_announced: usize,
    /// A quarter of the capacity.
    announce_every: usize,
    /// Returned to the pushers when the hand is put down.
    spent: Spent<T>,
    /// How many spent values may be kept, and their total weight. Read once: the mailbox's bounds are on a cache line that
    /// pushers write.
    spent_len_max: usize,
    spent_bytes_max: usize,
    /// How the consumer reads, as the pushers were last told.
    borrows: Option<bool>,
}

impl<T> InHand<T> {
    pub(super) fn empty(mailbox: &Mailbox<T>) -> Self {
        let bounds = mailbox.bounds();
        let announce_every = bounds.capacity.div_ceil(4);
        let held = HandContent {
            rest: Queue::new(),
            is_out: false,
            places: 0,
            weight: 0,
            extra: 0,
            until_announced: announce_every,
            announce_every,
            spent: Spent::new(),
            spent_len_max: bounds.capacity,
            spent_bytes_max: bounds.bytes_max / SPENT_BYTES_SHARE,
            borrows: None,
        };
        Self {
            mailbox: mailbox.clone(),
            held,
        }
    }

    pub(super) fn take(mailbox: &Mailbox<T>) -> Self {
        let mut hand = Self::empty(mailbox);
        hand.held.pick_up(&mut mailbox.lock(), &mailbox.0.left);
        hand
    }

    /// Returns everything to the queue, as dropping the hand does, and then takes all that is queued.
    pub fn refill(&mut self) {
        self.refill_or(|_| ());
    }

    /// As [`InHand::refill`]. If there is nothing, `waker` is called when there is, or when nothing can come any more.
    pub(crate) fn poll_refill(&mut self, waker: &Waker) -> Poll<Refilled> {
        let mut outcome = Poll::Ready(Refilled::Some);
        let mut stale = None;
        self.refill_or(|state| {
            if state.door != Door::Open && state.queue.is_empty() && !state.hand_out {
                outcome = Poll::Ready(Refilled::Finished);
                return;
            }
            outcome = Poll::Pending;
            if !state.consumer.as_ref().is_some_and(|held| held.will_wake(waker)) {
                stale = state.consumer.replace(waker.clone());
            }
        });
        drop(stale);
        outcome
    }

    /// Takes what is queued under one lock, or runs `when_empty` under it.
    #[inline]
    fn refill_or(&mut self, when_empty: impl FnOnce(&mut MailboxState<T>)) {
        let mailbox = &self.mailbox;
        let was_out = self.held.is_out;
        let mut state = mailbox.lock();
        let dropped = if was_out {
            self.held
                .lay_down(&mut state, &mailbox.0.left, mailbox.capacity())
        } else {
            None
        };
        self.held.pick_up(&mut state, &mailbox.0.left);
        let (mut watch, mut ended) = (None, false);
        if self.held.rest.is_empty() {
            ended = self.held.spent.weight() != 0;
            when_empty(&mut state);
            if was_out && state.watch.is_some() {
                watch.clone_from(&state.watch);
            }
        }
        mailbox.let_go(state);
        drop(dropped);
        if ended {
            // The spent values for which the mailbox had no place.
            self.mailbox.empty_all(&mut self.held.spent);
        }
        if let Some(emptied) = watch {
            emptied();
        }
    }

    /// Tells waiting pushers at once how much has been handed out so far, and not only after a quarter of the capacity. Call
    /// it before awaiting something with values in hand.
    pub fn announce(&mut self) {
        self.held.until_announced = self.held.announce_every;
        // Either this sees that a pusher asks for room, or the pusher, after asking, sees what is left.
        fence(Ordering::SeqCst);
        self.announce_to_waiting();
    }

    /// As [`InHand::announce`], but may overlook a pusher that begins to wait right now.
    #[inline]
    pub(crate) fn announce_to_waiting(&self) {
        if self.mailbox.0.asking.load(Ordering::Relaxed) {
            self.mailbox.announce_room();
        }
    }

    /// Keeps a value that the consumer has finished with, but that may still hold memory, for the next pusher; see
    /// [`Mailbox::try_push_weighed`]. Values beyond the mailbox's capacity are dropped, values beyond [a
    /// share](SPENT_BYTES_SHARE) of its bytes are emptied.
    // On the path of each value that is borrowed, where a call would be measurable.
    #[inline(always)]
    pub(crate) fn spend(&mut self, value: T, weight: u32) {
        let held = &mut self.held;
        if held.spent.len() >= held.spent_len_max {
            return;
        }
        if held.spent.weight() + weight as usize > held.spent_bytes_max {
            return self.spend_emptied(value);
        }
        held.spent.push(value, weight);
    }

    #[cold]
    #[inline(never)]
    fn spend_emptied(&mut self, mut value: T) {
        self.mailbox.empty(&mut value);
        self.held.spent.push(value, 0);
    }

    /// Tells the pushers whether the consumer only borrows its values, and [gives them back](InHand::spend).
    #[inline]
    pub(crate) fn reads_by_borrowing(&mut self, borrows: bool) {
        if self.held.borrows != Some(borrows) {
            self.show_borrowing(borrows);
        }
    }

    /// Pushers read this flag with each push, so it is only written when it changes.
    #[cold]
    fn show_borrowing(&mut self, borrows: bool) {
        self.held.borrows = Some(borrows);
        let shown = &self.mailbox.0.is_borrowed_from;
        if shown.load(Ordering::Relaxed) != borrows {
            shown.store(borrows, Ordering::Relaxed);
        }
    }

    /// How many values are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.len() == 0
    }

    /// The next value. A slot with several values is begun by this: the first of them is handed out, each further one is
    /// counted by [`InHand::count_out`], and [`InHand::let_go`] gets its weight when all of them are finished.
    /// [`InHand::put_back`] returns a slot that was begun.
    #[inline]
    pub(crate) fn next_or_begin(&mut self) -> Option<T> {
        let slot = self.held.rest.pop_front()?;
        if slot.share.is_several() {
            self.held.extra += 1;
            self.count_out();
            return Some(slot.value);
        }
        if !slot.share.is_reserved() {
            self.held.places -= 1;
            self.held.weight -= slot.share.weight();
            self.held.until_announced -= 1;
        }
        self.held.show(&self.mailbox.0.left);
        if self.held.until_announced == 0 || self.is_empty() {
            self.announce();
        }
        Some(slot.value)
    }

    /// Counts one more handed-out value of the slot that was begun.
    #[inline]
    pub(crate) fn count_out(&mut self) {
        self.held.extra -= 1;
        self.held.places -= 1;
        self.held.until_announced -= 1;
        self.held.show(&self.mailbox.0.left);
        if self.held.until_announced == 0 || self.is_empty() {
            self.announce();
        }
    }

    /// All values of the slot that was begun are finished. Pushers that wait for their bytes are told with the next
    /// [announcement](InHand::announce), or when the hand is put down.
    pub(crate) fn let_go(&mut self, weight: u32) {
        self.held.weight -= weight as usize;
        self.held.show(&self.mailbox.0.left);
    }

    /// Ends a slot of this weight that was begun, and returns the values that were not handed out to the front, each with its
    /// own weight.
    pub(crate) fn put_back(&mut self, weight: u32, rest: impl DoubleEndedIterator<Item = (T, u32)>) {
        self.held.weight -= weight as usize;
        for (value, weight) in rest.rev() {
            self.held.extra -= 1;
            self.held.weight += weight as usize;
            self.held.rest.push_front(Slot {
                value,
                share: Share::of(weight),
            });
        }
        self.held.show(&self.mailbox.0.left);
    }
}

impl<T> Iterator for InHand<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.next_or_begin()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl<T> Drop for InHand<T> {
    fn drop(&mut self) {
        self.put_down();
    }
}

impl<T> InHand<T> {
    pub(crate) fn put_down(&mut self) {
        if !self.held.is_out {
            return;
        }
        let mailbox = &self.mailbox;
        let mut state = mailbox.lock();
        let returned = !self.held.rest.is_empty();
        let dropped = self
            .held
            .lay_down(&mut state, &mailbox.0.left, mailbox.capacity());
        self.held.leave_buffers(&mut state);
        let missed = std::mem::take(&mut state.missed);
        let call = missed || (returned && !state.queue.is_empty());
        let consumer = if call { state.consumer.take() } else { None };
        let watch = if state.queue.is_empty() {
            state.watch.clone()
        } else {
            None
        };
        mailbox.let_go(state);
        drop(dropped);
        if let Some(emptied) = watch {
            emptied();
        }
        if call {
            mailbox.call(consumer);
        }
    }
}

impl<T> HandContent<T> {
    #[inline]
    fn len(&self) -> usize {
        self.rest.len() + self.extra
    }

    /// Takes the queue, and leaves an empty one in its place.
    #[inline]
    fn pick_up(&mut self, state: &mut MailboxState<T>, left: &Left) {
        if state.hand_out {
            state.missed = true;
            return;
        }
        state.let_in(AndThen::Ring);
        if !state.queue.is_empty() {
            if self.rest.needs_buffer_for(&state.queue) {
                self.take_buffers(state);
            }
            self.rest.take_all(&mut state.queue);
            self.is_out = true;
            self.places = std::mem::take(&mut state.places);
            self.weight = std::mem::take(&mut state.weight);
            state.hand_out = true;
            state.hand_places = self.places;
            state.hand_weight = self.weight;
            self.extra = std::mem::take(&mut state.extra);
            state.len_max = state.len_max.max(self.len());
            state.taken += self.len() as u64;
            self.show(left);
        }
    }

    /// Ends the turn of this hand. Returns the rest to the queue, or to the caller, which drops it outside of the lock, if
    /// the mailbox discards.
    #[inline]
    fn lay_down(&mut self, state: &mut MailboxState<T>, left: &Left, capacity: usize) -> Option<Queue<T>> {
        let dropped = if self.rest.is_empty() && self.weight == 0 {
            None
        } else {
            self.return_rest(state, left)
        };
        if !self.spent.is_empty() {
            self.spent.move_to(&mut state.spent, capacity);
        }
        state.hand_out = false;
        state.hand_places = 0;
        state.hand_weight = 0;
        self.is_out = false;
        self.until_announced = self.announce_every;
        dropped
    }

    #[cold]
    fn return_rest(&mut self, state: &mut MailboxState<T>, left: &Left) -> Option<Queue<T>> {
        state.taken -= self.len() as u64;
        let dropped = if state.door == Door::Discarding {
            state.discarded += self.len() as u64;
            Some(std::mem::replace(&mut self.rest, Queue::new()))
        } else {
            state.places += self.places;
            state.weight += self.weight;
            state.extra += self.extra;
            state.queue.put_in_front(&mut self.rest);
            None
        };
        self.places = 0;
        self.weight = 0;
        self.extra = 0;
        self.show(left);
        dropped
    }

    /// A new hand takes over the buffers of the one before.
    #[cold]
    fn take_buffers(&mut self, state: &mut MailboxState<T>) {
        self.rest.swap_buffer(&mut state.spare);
        if state.spent.is_empty() && self.spent.is_empty() {
            // The buffer that a pusher has emptied.
            std::mem::swap(&mut state.spent, &mut self.spent);
        }
    }

    /// Leaves the buffer for the next hand.
    fn leave_buffers(&mut self, state: &mut MailboxState<T>) {
        if self.rest.has_buffer() && state.spare.capacity() == 0 {
            self.rest.swap_buffer(&mut state.spare);
        }
    }

    /// Publishes how much is left, for pushers that find the mailbox full and for the counters. A stale value only makes the
    /// mailbox look fuller than it is.
    #[inline]
    fn show(&self, left: &Left) {
        left.places.store(self.places, Ordering::Relaxed);
        left.weight.store(self.weight, Ordering::Relaxed);
        left.values.store(self.len(), Ordering::Relaxed);
    }
}

/// The result of [`InHand::poll_refill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refilled {
    /// Something.
    Some,
    /// Nothing, now and forever.
    Finished,
}

impl<T> fmt::Debug for InHand<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InHand")
            .field("left", &self.len())
            .finish_non_exhaustive()
    }
}
