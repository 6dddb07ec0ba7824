//! Values in order; the first one is stored inline.
//!
//! ```text
//!   push ──► first ──┐
//!     │              ├──► taken as a whole
//!     └──► buffer ───┘
//! ```
//!
//! A consumer that keeps up finds one value at a time. That value is stored among the mailbox's own fields: no buffer and no
//! other memory is touched, and a mailbox that never holds more has no buffer.
//!
//! # Invariant
//! - What is in place comes before all that is in the buffer.

use std::collections::VecDeque;

use super::slot::Slot;

pub(super) struct Queue<T> {
    first: Option<Slot<T>>,
    buffer: VecDeque<Slot<T>>,
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Self {
            first: None,
            buffer: VecDeque::new(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.buffer.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.buffer.is_empty()
    }

    /// Adds a value; true if it is the only one.
    #[inline]
    pub(super) fn push_back(&mut self, slot: Slot<T>) -> bool {
        let is_only = self.is_empty();
        if is_only {
            self.first = Some(slot);
        } else {
            self.buffer.push_back(slot);
        }
        is_only
    }

    pub(super) fn push_front(&mut self, slot: Slot<T>) {
        if let Some(second) = self.first.replace(slot) {
            self.buffer.push_front(second);
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Slot<T>> {
        if self.first.is_some() {
            return self.first.take();
        }
        self.buffer.pop_front()
    }

    /// Removes the first value for which the check holds.
    pub(super) fn remove_first(&mut self, is_such: impl Fn(&Slot<T>) -> bool) -> Option<Slot<T>> {
        if self.first.as_ref().is_some_and(&is_such) {
            return self.first.take();
        }
        let position = self.buffer.iter().position(is_such)?;
        self.buffer.remove(position)
    }

    /// Moves everything here, where nothing is, and leaves this queue's buffer there.
    #[inline]
    pub(super) fn take_all(&mut self, other: &mut Self) {
        self.first = other.first.take();
        if !other.buffer.is_empty() {
            std::mem::swap(&mut self.buffer, &mut other.buffer);
        }
    }

    /// Moves everything from `other` to the front.
    pub(super) fn put_in_front(&mut self, other: &mut Self) {
        if let Some(slot) = self.first.take() {
            self.buffer.push_front(slot);
        }
        other.buffer.append(&mut self.buffer);
        std::mem::swap(self, other);
    }

    /// Whether [`Queue::take_all`] would leave no buffer behind.
    #[inline]
    pub(super) fn needs_buffer_for(&self, other: &Self) -> bool {
        self.buffer.capacity() == 0 && !other.buffer.is_empty()
    }

    pub(super) fn has_buffer(&self) -> bool {
        self.buffer.capacity() != 0
    }

    /// Exchanges the buffer for another one. Both are empty.
    pub(super) fn swap_buffer(&mut self, other: &mut VecDeque<Slot<T>>) {
        std::mem::swap(&mut self.buffer, other);
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        self.first.into_iter().chain(self.buffer).map(|slot| slot.value)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::mailbox::slot::Share;

    #[derive(Clone, Debug)]
    enum Step {
        PushBack,
        PushFront,
        PopFront,
        RemoveFirst(u32),
        TakeAll,
        PutInFront,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::PushBack),
            1 => Just(Step::PushFront),
            2 => Just(Step::PopFront),
            1 => (1..4_u32).prop_map(Step::RemoveFirst),
            1 => Just(Step::TakeAll),
            1 => Just(Step::PutInFront),
        ]
    }

    fn slot(value: u32) -> Slot<u32> {
        Slot {
            value,
            share: Share::of(value),
        }
    }

    proptest! {
        #[test]
        fn it_keeps_the_order_of_a_plain_queue(steps in prop::collection::vec(step(), 0..60)) {
            let (mut queue, mut hand) = (Queue::new(), Queue::new());
            let (mut model, mut model_hand) = (VecDeque::new(), VecDeque::new());
            for (value, step) in (0_u32..).zip(steps) {
                match step {
                    Step::PushBack => {
                        prop_assert_eq!(queue.push_back(slot(value)), model.is_empty());
                        model.push_back(value);
                    }
                    Step::PushFront => {
                        queue.push_front(slot(value));
                        model.push_front(value);
                    }
                    Step::PopFront => {
                        let popped = hand.pop_front().map(|slot| slot.value);
                        prop_assert_eq!(popped, model_hand.pop_front());
                    }
                    Step::RemoveFirst(divisor) => {
                        let removed = queue.remove_first(|slot| slot.value % divisor == 0);
                        let position = model.iter().position(|value| value % divisor == 0);
                        let expected = position.and_then(|position| model.remove(position));
                        prop_assert_eq!(removed.map(|slot| slot.value), expected);
                    }
                    Step::TakeAll => {
                        if model_hand.is_empty() {
                            hand.take_all(&mut queue);
                            std::mem::swap(&mut model, &mut model_hand);
                        }
                    }
                    Step::PutInFront => {
                        queue.put_in_front(&mut hand);
                        model_hand.append(&mut model);
                        std::mem::swap(&mut model, &mut model_hand);
                        prop_assert!(hand.is_empty());
                    }
                }
                prop_assert_eq!((queue.len(), hand.len()), (model.len(), model_hand.len()));
                prop_assert_eq!(queue.is_empty(), model.is_empty());
            }
            prop_assert_eq!(queue.into_values().collect::<Vec<_>>(), Vec::from(model));
            prop_assert_eq!(hand.into_values().collect::<Vec<_>>(), Vec::from(model_hand));
        }
    }
}
