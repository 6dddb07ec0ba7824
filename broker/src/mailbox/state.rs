//! What the mailbox's lock protects: the queue, the line of waiting pushers, the counters.
//!
//! Plain data: every method runs under the lock and calls no foreign code.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::inlet::{AndThen, Inlet, Poured};
use super::queue::Queue;
use super::slot::{Share, Slot};
use super::spent::Spent;

pub(super) struct Limits {
    pub(super) capacity: usize,
    pub(super) bytes_max: usize,
}

/// Which values may still come in and go out; it only ever moves down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Door {
    Open,
    Draining,
    Discarding,
}

/// A pusher that waits for room. `waker` is `None` when it has been woken and has not come back yet: it keeps its place in
/// the line.
pub(super) struct Waiter {
    pub(super) ticket: u64,
    pub(super) weight: u32,
    pub(super) waker: Option<Waker>,
}

/// In order of use: the fields that each push and each take touch, then those for a consumer that borrows, then the seldom
/// used ones.
#[repr(C)]
pub(super) struct MailboxState<T> {
    pub(super) door: Door,
    pub(super) hand_out: bool,
    /// A consumer came to take while another hand was out.
    pub(super) missed: bool,
    /// Places and weight of the queued values.
    pub(super) places: usize,
    pub(super) weight: usize,
    /// Places and weight of the values in hand, at most: values that were handed out since are not subtracted.
    pub(super) hand_places: usize,
    pub(super) hand_weight: usize,
    pub(super) queue: Queue<T>,
    /// How many more values than slots are queued: some slots hold several.
    pub(super) extra: usize,
    /// Where values may wait that are not in the queue yet.
    pub(super) inlet: Option<Box<Inlet<T>>>,
    /// The consumer's task, if it waits for values by polling.
    pub(super) consumer: Option<Waker>,
    pub(super) pushed: u64,
    pub(super) taken: u64,
    pub(super) len_max: usize,
    /// Called when a hand is put down and nothing is queued.
    pub(super) watch: Option<Arc<dyn Fn() + Send + Sync>>,
    pub(super) waiting: VecDeque<Waiter>,
    /// Values that the consumer has finished with, on their way back to a pusher.
    pub(super) spent: Spent<T>,
    /// The buffer that the next hand leaves behind.
    pub(super) spare: VecDeque<Slot<T>>,
    next_ticket: u64,
    pub(super) pushed_reserved: u64,
    pub(super) refused: u64,
    pub(super) displaced: u64,
    pub(super) discarded: u64,
    pub(super) waits: u64,
}

impl<T> MailboxState<T> {
    pub(super) fn new() -> Self {
        Self {
            door: Door::Open,
            hand_out: false,
            missed: false,
            places: 0,
            weight: 0,
            hand_places: 0,
            hand_weight: 0,
            queue: Queue::new(),
            extra: 0,
            inlet: None,
            consumer: None,
            pushed: 0,
            taken: 0,
            len_max: 0,
            watch: None,
            waiting: VecDeque::new(),
            spent: Spent::new(),
            spare: VecDeque::new(),
            next_ticket: 0,
            pushed_reserved: 0,
            refused: 0,
            displaced: 0,
            discarded: 0,
            waits: 0,
        }
    }

    /// How many values are in the queue.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.extra
    }

    /// How many values wait at the inlet.
    pub(super) fn at_inlet(&self) -> usize {
        self.inlet.as_ref().map_or(0, |inlet| inlet.waiting())
    }

    /// Lets in the values that wait at the inlet, so that whatever is done next comes after them.
    #[inline]
    pub(super) fn let_in(&mut self, and: AndThen) {
        if self.inlet.is_some() {
            self.let_in_from_inlet(and);
        }
    }

    #[inline(never)]
    fn let_in_from_inlet(&mut self, and: AndThen) {
        if let Some(mut inlet) = self.inlet.take() {
            inlet.pour(and, &mut |poured| self.append_several(poured));
            self.inlet = Some(inlet);
        }
    }

    /// Lets in the values that wait at the inlet for the last time.
    pub(super) fn close_inlet(&mut self) {
        if let Some(inlet) = self.inlet.take() {
            inlet.close(&mut |poured| self.append_several(poured));
        }
    }

    fn append_several(&mut self, poured: Poured<T>) {
        let Poured { value, count, weight } = poured;
        self.places += count;
        self.weight += weight as usize;
        self.pushed += count as u64;
        self.extra += count - 1;
        self.queue.push_back(Slot {
            value,
            share: Share::several(weight),
        });
    }

    /// Whether a value fits after those of the first `ahead` waiting pushers.
    #[inline]
    pub(super) fn has_room(&self, limits: &Limits, ahead: usize, weight: u32) -> bool {
        let used = self.places + self.hand_places;
        if used + ahead >= limits.capacity {
            return false;
        }
        if ahead == 0 {
            let held = self.weight + self.hand_weight + self.spent.weight();
            return held.saturating_add(weight as usize) <= limits.bytes_max || used == 0;
        }
        self.has_room_behind(limits, ahead, weight)
    }

    /// The rest of [`MailboxState::has_room`], for a pusher that has others ahead.
    #[cold]
    #[inline(never)]
    fn has_room_behind(&self, limits: &Limits, ahead: usize, weight: u32) -> bool {
        if limits.bytes_max == usize::MAX {
            return true;
        }
        let before: usize = self
            .waiting
            .iter()
            .take(ahead)
            .map(|waiter| waiter.weight as usize)
            .sum();
        let held = self.weight + self.hand_weight + self.spent.weight();
        held.saturating_add(before).saturating_add(weight as usize) <= limits.bytes_max
    }

    /// Adds a value; true if the queue was empty.
    #[inline]
    pub(super) fn enqueue(&mut self, value: T, weight: u32) -> bool {
        self.places += 1;
        self.weight += weight as usize;
        self.pushed += 1;
        self.queue.push_back(Slot {
            value,
            share: Share::of(weight),
        })
    }

    /// Puts a value back that was handed out.
    pub(super) fn enqueue_front(&mut self, value: T, weight: u32) {
        self.places += 1;
        self.weight += weight as usize;
        self.taken -= 1;
        self.queue.push_front(Slot {
            value,
            share: Share::of(weight),
        });
    }

    /// Adds a value that takes none of the capacity; true if the queue was empty.
    pub(super) fn enqueue_reserved(&mut self, value: T) -> bool {
        self.pushed_reserved += 1;
        self.queue.push_back(Slot {
            value,
            share: Share::RESERVED,
        })
    }

    /// Removes the oldest queued value that has no reserved place.
    pub(super) fn displace(&mut self) -> Option<T> {
        let slot = self
            .queue
            .remove_first(|slot| !slot.share.is_reserved() && !slot.share.is_several())?;
        self.places -= 1;
        self.weight -= slot.share.weight();
        self.displaced += 1;
        Some(slot.value)
    }

    /// Whether no push and no take is about to come, as far as can be seen.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.hand_out && self.waiting.is_empty()
    }

    /// Empties the queue.
    pub(super) fn discard(&mut self) -> Queue<T> {
        self.places = 0;
        self.weight = 0;
        self.discarded += self.len() as u64;
        self.extra = 0;
        std::mem::replace(&mut self.queue, Queue::new())
    }

    /// Joins the end of the line.
    pub(super) fn join_line(&mut self, weight: u32, waker: Waker) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waits += 1;
        self.waiting.push_back(Waiter {
            ticket,
            weight,
            waker: Some(waker),
        });
        ticket
    }

    /// The position of a ticket in the line. Tickets grow along the line.
    pub(super) fn position(&self, ticket: u64) -> Option<usize> {
        self.waiting
            .binary_search_by_key(&ticket, |waiter| waiter.ticket)
            .ok()
    }

    /// Takes the wakers of the pushers that are entitled to the present room, as many as fit the list, and returns whether
    /// any are left.
    pub(super) fn take_entitled(&mut self, limits: &Limits, woken: &mut WakeList) -> StillAsking {
        let used = self.places + self.hand_places;
        let mut held = self.weight + self.hand_weight;
        for (ahead, waiter) in self.waiting.iter_mut().enumerate() {
            held = held.saturating_add(waiter.weight as usize);
            if used + ahead >= limits.capacity || (held > limits.bytes_max && used + ahead > 0) {
                return if waiter.waker.is_some() {
                    StillAsking::Others
                } else {
                    StillAsking::Nobody
                };
            }
            if woken.is_full() {
                return StillAsking::Entitled;
            }
            if let Some(waker) = waiter.waker.take() {
                woken.add(waker);
            }
        }
        StillAsking::Nobody
    }
}

/// Which pushers still wait unwoken once the present room has been announced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StillAsking {
    Nobody,
    /// Some for which there is no room.
    Others,
    /// Some for which there is room: they are next.
    Entitled,
}

/// Wakers to be called once the lock is released, without an allocation.
pub(super) struct WakeList {
    wakers: [Option<Waker>; Self::LEN],
    len: usize,
}

impl WakeList {
    const LEN: usize = 16;

    pub(super) fn new() -> Self {
        Self {
            wakers: [const { None }; Self::LEN],
            len: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.len == Self::LEN
    }

    fn add(&mut self, waker: Waker) {
        self.wakers[self.len] = Some(waker);
        self.len += 1;
    }

    pub(super) fn wake_all(&mut self) {
        for waker in self.wakers[..self.len].iter_mut().filter_map(Option::take) {
            waker.wake();
        }
        self.len = 0;
    }
}
