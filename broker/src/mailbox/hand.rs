//! The batch a consumer has taken and not finished.

use std::collections::VecDeque;
use std::fmt;

use super::Mailbox;
use super::state::{Door, Slot};
use crate::sync::Ordering;

/// The values taken from a [`Mailbox`] at once: an iterator that hands them out in order.
///
/// Dropping it puts what it has not handed out back to the front of the queue and rings, so that
/// neither a panic nor a kill in the middle of a batch loses anything. The value handed out last
/// belongs to the one who got it.
///
/// # Ordering
/// The rest goes back in front of everything that was pushed since.
#[must_use = "dropping the hand puts everything back"]
pub struct InHand<T> {
    mailbox: Mailbox<T>,
    rest: VecDeque<Slot<T>>,
    /// Whether this is the hand that the mailbox waits for; an empty hand is not.
    is_out: bool,
    places: usize,
    weight: usize,
    /// Places handed out since those who wait last heard of it.
    unannounced: usize,
}

impl<T> InHand<T> {
    pub(super) fn take(mailbox: &Mailbox<T>) -> Self {
        let mut hand = Self {
            mailbox: mailbox.clone(),
            rest: VecDeque::new(),
            is_out: false,
            places: 0,
            weight: 0,
            unannounced: 0,
        };
        hand.pick_up();
        hand
    }

    fn pick_up(&mut self) {
        let mut state = self.mailbox.lock();
        if state.hand_out {
            state.missed = true;
        } else if !state.queue.is_empty() {
            let spare = std::mem::take(&mut state.spare);
            self.rest = std::mem::replace(&mut state.queue, spare);
            self.is_out = true;
            self.places = std::mem::take(&mut state.places);
            self.weight = std::mem::take(&mut state.weight);
            state.hand_out = true;
            state.hand_places = self.places;
            state.hand_weight = self.weight;
            state.taken += self.rest.len() as u64;
            self.show();
        }
    }

    /// Puts everything back, as dropping the hand does, and takes all that is queued then.
    pub fn refill(&mut self) {
        self.put_down();
        self.pick_up();
    }

    /// Tells those who wait for room what has been handed out so far, without waiting for a
    /// quarter of the capacity to add up. Call it before awaiting something with values in hand.
    pub fn announce(&mut self) {
        if self.unannounced > 0 {
            self.unannounced = 0;
            self.mailbox.announce_room();
        }
    }

    /// As [`InHand::announce`], but does nothing as long as nobody has begun to wait.
    pub(crate) fn announce_to_waiting(&mut self) {
        if self.mailbox.0.asking.load(Ordering::Relaxed) {
            self.announce();
        }
    }

    /// How many values are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Publishes what is left, for pushers that find the mailbox full and for the counters. A late
    /// view of it only makes the mailbox look fuller than it is.
    fn show(&self) {
        let left = &self.mailbox.0.left;
        left.places.store(self.places, Ordering::Relaxed);
        left.weight.store(self.weight, Ordering::Relaxed);
        left.values.store(self.rest.len(), Ordering::Relaxed);
    }
}

impl<T> Iterator for InHand<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let slot = self.rest.pop_front()?;
        if !slot.share.is_reserved() {
            self.places -= 1;
            self.weight -= slot.share.weight();
            self.unannounced += 1;
        }
        self.show();
        if self.rest.is_empty() || self.unannounced * 4 >= self.mailbox.capacity() {
            self.announce();
        }
        Some(slot.value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rest.len(), Some(self.rest.len()))
    }
}

impl<T> Drop for InHand<T> {
    fn drop(&mut self) {
        self.put_down();
    }
}

impl<T> InHand<T> {
    pub(crate) fn put_down(&mut self) {
        if !std::mem::take(&mut self.is_out) {
            return;
        }
        self.unannounced = 0;
        let mailbox = &self.mailbox;
        let mut dropped = VecDeque::new();
        let mut state = mailbox.lock();
        let returned = !self.rest.is_empty();
        if state.door == Door::Discarding {
            state.discarded += self.rest.len() as u64;
            state.taken -= self.rest.len() as u64;
            std::mem::swap(&mut dropped, &mut self.rest);
        } else if returned {
            state.taken -= self.rest.len() as u64;
            state.places += self.places;
            state.weight += self.weight;
            let mut newer = std::mem::take(&mut state.queue);
            self.rest.append(&mut newer);
            state.queue = std::mem::replace(&mut self.rest, newer);
        }
        state.spare = std::mem::take(&mut self.rest);
        state.hand_out = false;
        state.hand_places = 0;
        state.hand_weight = 0;
        let left = &mailbox.0.left;
        left.places.store(0, Ordering::Relaxed);
        left.weight.store(0, Ordering::Relaxed);
        left.values.store(0, Ordering::Relaxed);
        let missed = std::mem::take(&mut state.missed);
        let ring = missed || (returned && !state.queue.is_empty());
        mailbox.wake_entitled(state);
        drop(dropped);
        if ring {
            mailbox.0.bell.ring();
        }
    }
}

impl<T> fmt::Debug for InHand<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InHand")
            .field("left", &self.rest.len())
            .finish_non_exhaustive()
    }
}
