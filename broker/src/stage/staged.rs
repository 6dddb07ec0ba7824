//! The stage as a publisher's route knows it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::state::StageState;
use super::{Inbox, Stage};
use crate::envelope::Envelope;
use crate::sync::{MutexGuard, Ordering};

/// The inboxes on a stage in one generation, and the other targets of the topic's envelopes.
pub(crate) struct Staged<T> {
    stage: Arc<Stage<T>>,
    generation: u64,
    /// By place.
    inboxes: Box<[Option<Inbox<T>>]>,
    /// The targets of the route that are not on the stage.
    others: Box<[usize]>,
}

impl<T> Staged<T> {
    pub(super) const fn new(
        stage: Arc<Stage<T>>,
        generation: u64,
        inboxes: Box<[Option<Inbox<T>>]>,
        others: Box<[usize]>,
    ) -> Self {
        Self {
            stage,
            generation,
            inboxes,
            others,
        }
    }

    /// Whether all targets of the route are on the stage.
    #[inline]
    pub(crate) fn has_all(&self) -> bool {
        self.others.is_empty()
    }

    /// Which are not.
    pub(crate) fn others(&self) -> &[usize] {
        &self.others
    }
}

impl<T: Send + Sync + 'static> Staged<T> {
    /// Gives all inboxes the envelope and returns how many these are. It comes back if one of them has no room, or if the
    /// inboxes have changed.
    #[inline]
    pub(crate) fn try_push(&self, envelope: Arc<Envelope<T>>) -> Result<usize, Arc<Envelope<T>>> {
        let Some(mut state) = self.lock_with_room(1, u64::from(envelope.mailbox_weight())) else {
            return Err(envelope);
        };
        state.push(envelope);
        Ok(self.release(state))
    }

    /// As [`Staged::try_push`], with all or none of these.
    pub(crate) fn try_push_all(
        &self,
        envelopes: Vec<Arc<Envelope<T>>>,
    ) -> Result<usize, Vec<Arc<Envelope<T>>>> {
        let weights = envelopes
            .iter()
            .map(|envelope| u64::from(envelope.mailbox_weight()));
        let count = envelopes.len();
        let Some(mut state) = self.lock_with_room(count, weights.sum()) else {
            return Err(envelopes);
        };
        envelopes.into_iter().for_each(|envelope| state.push(envelope));
        Ok(self.release(state) * count)
    }

    #[inline]
    fn lock_with_room(&self, count: usize, weight: u64) -> Option<MutexGuard<'_, StageState<T>>> {
        let state = self.stage.lock();
        if state.generation() != self.generation {
            return None;
        }
        if state.is_read() {
            return self.lock_unless_idle(state, count, weight);
        }
        if state.has_room(count, weight) {
            return Some(state);
        }
        self.find_room(state, count, weight)
    }

    /// If all inboxes have fetched everything pushed here, asks one of them whether its reader has finished with it: then
    /// sharing a single envelope gains nothing.
    #[cold]
    fn lock_unless_idle<'a>(
        &'a self,
        mut state: MutexGuard<'a, StageState<T>>,
        count: usize,
        weight: u64,
    ) -> Option<MutexGuard<'a, StageState<T>>> {
        let spokesman = state.next_spokesman();
        drop(state);
        if count == 1 && self.inboxes[spokesman].as_ref()?.is_empty() {
            return None;
        }
        let state = self.stage.lock();
        if state.generation() != self.generation {
            return None;
        }
        if state.has_room(count, weight) {
            return Some(state);
        }
        self.find_room(state, count, weight)
    }

    /// Asks all inboxes for room. Meanwhile other threads may push, take and wait.
    #[cold]
    fn find_room<'a>(
        &'a self,
        state: MutexGuard<'a, StageState<T>>,
        count: usize,
        weight: u64,
    ) -> Option<MutexGuard<'a, StageState<T>>> {
        let withdrawn = state.withdrawn();
        let needed = state.room_for(count, weight);
        self.stage.knows_room.store(true, Ordering::Release);
        drop(state);
        let mut found = (u64::MAX, u64::MAX);
        for inbox in self.inboxes.iter().flatten() {
            let (values, weight) = inbox.room_at_inlet()?;
            if values < needed.0 || weight < needed.1 {
                return None;
            }
            found = (found.0.min(values), found.1.min(weight));
        }
        let mut state = self.stage.lock();
        if state.withdrawn() != withdrawn {
            return None;
        }
        state.grant(found);
        // Other threads may have used it up.
        state.has_room(count, weight).then_some(state)
    }

    /// Releases the lock and rings for the inboxes that must learn of the push.
    #[inline]
    fn release(&self, mut state: MutexGuard<'_, StageState<T>>) -> usize {
        let inboxes = state.inboxes();
        self.stage.pushed.store(state.values(), Ordering::Release);
        let listed = state.take_listed();
        drop(state);
        let mut panicked = None;
        for inbox in listed
            .into_iter()
            .filter_map(|place| self.inboxes[place].as_ref())
        {
            // Bells and wakers may be the user's own. The inboxes are not listed any more: one that is not rung now would
            // never be rung.
            let called = catch_unwind(AssertUnwindSafe(|| inbox.call_to_inlet()));
            panicked = panicked.or(called.err());
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        inboxes
    }
}
