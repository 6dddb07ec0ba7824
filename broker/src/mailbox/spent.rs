//! Values that their consumer has finished with, on their way back to a pusher.
//!
//! ```text
//!   spend ──► in hand ──► mailbox ──► one with each push
//!                │           │
//!                │           ├─► emptied by the consumer when nobody is about to push
//!                │           └─► dropped by a push that they leave no room
//!                └─► emptied beyond a share of the bytes
//! ```
//!
//! A spent value may still hold memory. Freeing memory is cheapest on the thread that has allocated it, so the memory returns
//! to the pusher with the value. While it is in the mailbox it counts towards the bytes, but is never in the way: a push that
//! needs the room evicts it. It stays there only while pushes follow each other: a consumer that finds the queue empty and no
//! pusher waiting begins to empty the spent values, and continues until a push comes.

/// The share of a mailbox's bytes, one part in this many, that a consumer may hold in spent values without counting them.
pub(super) const SPENT_BYTES_SHARE: usize = 8;

/// Spent values: the latest is reused first, and those with a weight before the others.
// The weight is the first field, since every push reads it.
#[repr(C)]
pub(super) struct Spent<T> {
    weight: usize,
    // In separate lists, so that a value is passed in registers on its way in.
    pub(super) values: Vec<T>,
    weights: Vec<u32>,
    pub(super) emptied: Vec<T>,
}

impl<T> Spent<T> {
    pub(super) const fn new() -> Self {
        Self {
            weight: 0,
            values: Vec::new(),
            weights: Vec::new(),
            emptied: Vec::new(),
        }
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.values.len() + self.emptied.len()
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The weight of all of them.
    #[inline]
    pub(super) const fn weight(&self) -> usize {
        self.weight
    }

    #[inline]
    pub(super) fn push(&mut self, value: T, weight: u32) {
        if weight == 0 {
            self.emptied.push(value);
        } else {
            self.weight += weight as usize;
            self.weights.push(weight);
            self.values.push(value);
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        self.pop_heavy().or_else(|| self.emptied.pop())
    }

    #[inline]
    pub(super) fn pop_heavy(&mut self) -> Option<T> {
        self.weight -= self.weights.pop()? as usize;
        self.values.pop()
    }

    /// Takes everything, if it has any weight.
    pub(super) fn take_heavy(&mut self) -> Option<Self> {
        (self.weight != 0).then(|| std::mem::replace(self, Self::new()))
    }

    /// Moves as many values as fit to `other`, which holds at most `len_max`.
    #[inline]
    pub(super) fn move_to(&mut self, other: &mut Self, len_max: usize) {
        if other.is_empty() {
            std::mem::swap(self, other);
        } else {
            self.move_some_to(other, len_max);
        }
    }

    #[cold]
    fn move_some_to(&mut self, other: &mut Self, len_max: usize) {
        let count = len_max.saturating_sub(other.len()).min(self.values.len());
        for (value, weight) in self.values.drain(..count).zip(self.weights.drain(..count)) {
            self.weight -= weight as usize;
            other.push(value, weight);
        }
        let count = len_max.saturating_sub(other.len()).min(self.emptied.len());
        other.emptied.extend(self.emptied.drain(..count));
    }

    /// Frees with `empty` the memory that each value still holds.
    pub(super) fn empty_with(&mut self, empty: fn(&mut T)) {
        self.values.iter_mut().for_each(empty);
        if self.emptied.is_empty() {
            std::mem::swap(&mut self.emptied, &mut self.values);
        } else {
            self.emptied.append(&mut self.values);
        }
        self.weights.clear();
        self.weight = 0;
    }

    /// Each one with its weight.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&T, u32)> {
        let emptied = self.emptied.iter().map(|value| (value, 0));
        self.values
            .iter()
            .zip(self.weights.iter().copied())
            .chain(emptied)
    }
}
