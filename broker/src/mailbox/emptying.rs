//! Frees the memory that spent values still hold, while no push is about to come; see `spent`.

use millrun_core::Bell;

use super::spent::Spent;
use super::state::{Door, MailboxState};
use super::{Mailbox, MailboxConfig, MailboxConfigError};
use crate::sync::MutexGuard;

/// How many spent values an idle consumer empties before it checks for another push.
const EMPTIED_AT_ONCE: usize = if cfg!(loom) { 1 } else { 16 };

impl<T> Mailbox<T> {
    /// As [`Mailbox::weighed`]. `empty` frees the memory that a spent value still holds; it must have no other visible
    /// effect.
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

    /// Frees the memory that these values still hold.
    #[cold]
    pub(super) fn empty_all(&self, spent: &mut Spent<T>) {
        if let Some(empty) = self.0.empty {
            spent.empty_with(empty);
        }
    }

    /// Releases the lock. As long as no push is about to come, spent values are emptied, a few at a time; the others stay
    /// where a push finds them. Emptying all at once costs more than many pushes, which would meanwhile fill the queue and
    /// find no value to reuse.
    #[cold]
    pub(super) fn empty_while_idle<'a>(&'a self, mut state: MutexGuard<'a, MailboxState<T>>) {
        while state.is_idle() && state.spent.weight() != 0 {
            if state.spent.values.len() <= EMPTIED_AT_ONCE {
                return self.empty_rest(state);
            }
            let mut some: [_; EMPTIED_AT_ONCE] = std::array::from_fn(|_| state.spent.pop_heavy());
            drop(state);
            if let Some(empty) = self.0.empty {
                some.iter_mut().flatten().for_each(empty);
            }
            state = self.lock();
            if state.door != Door::Open {
                drop(state);
                return;
            }
            state.spent.emptied.extend(some.into_iter().flatten());
        }
    }

    fn empty_rest(&self, mut state: MutexGuard<'_, MailboxState<T>>) {
        let mut spent = std::mem::replace(&mut state.spent, Spent::new());
        drop(state);
        self.empty_all(&mut spent);
        let mut state = self.lock();
        if state.door == Door::Open && state.spent.is_empty() {
            std::mem::swap(&mut state.spent, &mut spent);
        }
        drop(state);
    }
}
