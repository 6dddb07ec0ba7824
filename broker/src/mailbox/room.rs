//! Whether there is room, and which pushers are told of it.
//!
//! ```text
//!   has_room:  queue ─ seems full ─► what is left in the hand ─ still ─► heavy spent values go
//!   room made: pushers ─ by order of arrival, as many as are entitled ─► woken without the lock
//! ```
//!
//! Invariants: in the common case one check of the state under the lock is enough; evicted values are dropped, and entitled
//! pushers woken, after the lock is released; no other pusher is woken.
//!
//! Left out: the line of waiting pushers, see the state, and waiting itself, see `push`.

use super::Mailbox;
use super::spent::Spent;
use super::state::{MailboxState, StillAsking, WakeList};
use crate::sync::{MutexGuard, Ordering};

impl<T> Mailbox<T> {
    /// Whether one more value fits after those of the pushers that wait ahead of it. The hand is checked only if the mailbox
    /// seems full without that. If spent values are in the way, they are put into `evicted`, to be dropped when the lock is
    /// released.
    #[inline]
    pub(super) fn has_room(
        &self,
        state: &mut MailboxState<T>,
        ahead: usize,
        weight: u32,
        evicted: &mut Option<Spent<T>>,
    ) -> bool {
        state.has_room(&self.0.limits, ahead, weight)
            || self.has_room_after_all(state, ahead, weight, evicted)
    }

    #[cold]
    pub(super) fn has_room_after_all(
        &self,
        state: &mut MailboxState<T>,
        ahead: usize,
        weight: u32,
        evicted: &mut Option<Spent<T>>,
    ) -> bool {
        if state.hand_places != 0 || state.hand_weight != 0 {
            self.look_at_hand(state);
            if state.has_room(&self.0.limits, ahead, weight) {
                return true;
            }
        }
        if state.spent.weight() == 0 || state.places + state.hand_places + ahead >= self.0.limits.capacity {
            return false;
        }
        *evicted = state.spent.take_heavy();
        state.has_room(&self.0.limits, ahead, weight)
    }

    pub(super) fn look_at_hand(&self, state: &mut MailboxState<T>) {
        state.hand_places = self.0.left.places.load(Ordering::Relaxed);
        state.hand_weight = self.0.left.weight.load(Ordering::Relaxed);
    }

    /// Wakes all pushers that are entitled to the present room.
    pub(super) fn announce_room(&self) {
        let mut state = self.lock();
        self.look_at_hand(&mut state);
        if !state.waiting.is_empty() {
            self.wake_entitled(state);
        }
    }

    /// Releases the lock when there may be room for other pushers, or none waits.
    #[inline]
    pub(super) fn let_go(&self, state: MutexGuard<'_, MailboxState<T>>) {
        if !state.waiting.is_empty() {
            self.wake_entitled(state);
        } else if state.spent.weight() != 0 {
            self.empty_while_idle(state);
        }
    }

    #[cold]
    fn wake_entitled<'a>(&'a self, mut state: MutexGuard<'a, MailboxState<T>>) {
        let mut woken = WakeList::new();
        loop {
            let left = state.take_entitled(&self.0.limits, &mut woken);
            self.0
                .asking
                .store(left != StillAsking::Nobody, Ordering::Relaxed);
            drop(state);
            woken.wake_all();
            if left != StillAsking::Entitled {
                return;
            }
            state = self.lock();
        }
    }
}
