//! Freeing what spent values still hold, while nobody is about to push; see `spent`.

use millrun_core::Bell;

use super::spent::Spent;
use super::state::{Door, MailboxState};
use super::{Mailbox, MailboxConfig, MailboxConfigError};
use crate::sync::MutexGuard;

/// How many spent values an idle consumer empties before it looks whether there was another push.
const EMPTIED_AT_ONCE: usize = if cfg!(loom) { 1 } else { 16 };

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

    /// Lets go of the lock. As long as nobody is about to push, what was spent is emptied, a few at a
    /// time; the others stay where a push finds them. Emptying all at once costs more than many pushes: they
    /// would fill the queue meanwhile, and find nothing to take along.
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
