//! Values that their consumer has spent, on their way back to a pusher.
//!
//! ```text
//!   spend ──► in hand ──► mailbox ──► one with each push
//!                │           │
//!                │           ├─► emptied by the consumer when nobody is about to push
//!                │           └─► dropped by a push that they leave no room
//!                └─► emptied beyond a share of the bytes
//! ```
//!
//! A spent value may still hold on to memory. What a thread has allocated it also frees at the least
//! cost, so that memory goes back to the pusher with the value. While it lies in the mailbox it counts
//! for the bytes, and is in nobody's way: a push that needs the room takes it. It lies there for no
//! longer than pushes follow upon each other: a consumer that finds the queue empty and nobody in the
//! line empties what there is.

use millrun_core::Bell;

use super::state::{Door, State};
use super::{Mailbox, MailboxConfig, MailboxConfigError};
use crate::sync::MutexGuard;

/// The consumer may have one part in so many of the bytes of its mailbox in spent values in hand,
/// where they are not counted.
pub(crate) const SPENT_BYTES_SHARE: usize = 8;

/// Spent values, the latest to be taken first, and what each still weighs.
pub(super) struct Spent<T> {
    // Apart from each other, so that a value goes from register to register on its way in.
    values: Vec<T>,
    weights: Vec<u32>,
    weight: usize,
}

impl<T> Spent<T> {
    pub(super) const fn new() -> Self {
        Self {
            values: Vec::new(),
            weights: Vec::new(),
            weight: 0,
        }
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.values.len()
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The weight of all of them.
    #[inline]
    pub(super) const fn weight(&self) -> usize {
        self.weight
    }

    #[inline]
    pub(super) fn push(&mut self, value: T, weight: u32) {
        self.weight += weight as usize;
        self.weights.push(weight);
        self.values.push(value);
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        self.weight -= self.weights.pop()? as usize;
        self.values.pop()
    }

    /// Takes everything, if that weighs anything.
    pub(super) fn take_heavy(&mut self) -> Option<Self> {
        (self.weight != 0).then(|| std::mem::replace(self, Self::new()))
    }

    /// Moves as many as there is place for to `other`, which holds at most `len_max`.
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
        let count = len_max.saturating_sub(other.len()).min(self.len());
        for (value, weight) in self.values.drain(..count).zip(self.weights.drain(..count)) {
            self.weight -= weight as usize;
            other.push(value, weight);
        }
    }

    /// Has `empty` take from each what it still weighs.
    fn empty_with(&mut self, empty: fn(&mut T)) {
        for (value, weight) in self.values.iter_mut().zip(&mut self.weights) {
            if std::mem::take(weight) != 0 {
                empty(value);
            }
        }
        self.weight = 0;
    }

    /// Each one with its weight.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&T, u32)> {
        self.values.iter().zip(self.weights.iter().copied())
    }
}

impl<T> Mailbox<T> {
    /// As [`Mailbox::weighed`]. `empty` takes from a spent value what it still weighs; it frees memory
    /// and does nothing else that could be noticed.
    ///
    /// # Errors
    /// When a bound of the configuration is zero.
    pub(crate) fn lending(
        config: MailboxConfig,
        weigh: fn(&T) -> usize,
        empty: fn(&mut T),
        bell: Bell,
    ) -> Result<Self, MailboxConfigError> {
        Self::build(config, Some(weigh), Some(empty), bell)
    }

    #[inline]
    pub(super) fn empty(&self, value: &mut T) {
        if let Some(empty) = self.0.empty {
            empty(value);
        }
    }

    /// Takes from these values what they still weigh.
    #[cold]
    pub(super) fn empty_all(&self, spent: &mut Spent<T>) {
        if let Some(empty) = self.0.empty {
            spent.empty_with(empty);
        }
    }

    /// Lets go of the lock. If nobody is about to push, what was spent is emptied.
    #[cold]
    pub(super) fn settle(&self, mut state: MutexGuard<'_, State<T>>) {
        if !state.is_idle() {
            return;
        }
        let Some(mut spent) = state.spent.take_heavy() else {
            return;
        };
        drop(state);
        self.empty_all(&mut spent);
        let mut state = self.lock();
        if state.door == Door::Open && state.spent.is_empty() {
            std::mem::swap(&mut state.spent, &mut spent);
        }
        drop(state);
    }
}
