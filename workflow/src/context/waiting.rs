//! The waits for a signal, a condition or the request to cancel, and the signals that have not been taken.

use std::collections::VecDeque;
use std::panic::Location;
use std::task::Waker;

use millrun_core::Timestamp;

use crate::Payload;
use crate::context::scope::Scope;
use crate::event::Name;

/// A wait of the code that is no operation: it is not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// When the first wait for it began.
        since: Timestamp,
        /// Where in the code that wait is.
        at: &'static Location<'static>,
    },
    /// A condition on the run's state.
    Condition {
        /// Since when it waits.
        since: Timestamp,
        /// Where in the code.
        at: &'static Location<'static>,
    },
    /// The request to cancel.
    CancelRequest {
        /// Since when it waits.
        since: Timestamp,
        /// Where in the code.
        at: &'static Location<'static>,
    },
}

/// The waits for the same thing, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    pub(super) waiting: Vec<Waiter>,
    numbered: u64,
}

#[derive(Debug)]
pub(super) struct Waiter {
    number: u64,
    since: Timestamp,
    location: &'static Location<'static>,
    pub(super) scope: Scope,
    pub(super) waker: Waker,
}

impl Waiters {
    /// Keeps a waker; `number` is that of an earlier call for the same wait. A wait that begins is counted in `waits_len`.
    pub(super) fn wait(
        &mut self,
        number: Option<u64>,
        scope: &Scope,
        waker: &Waker,
        location: &'static Location<'static>,
        now: Timestamp,
        waits_len: &mut u32,
    ) -> u64 {
        if let Some(number) = number
            && let Some(at) = self.find(number)
        {
            self.waiting[at].waker.clone_from(waker);
            return number;
        }
        if self.waiting.capacity() == 0 {
            // Usually there is one wait, and there may be a million such runs.
            self.waiting.reserve_exact(1);
        }
        self.numbered += 1;
        self.waiting.push(Waiter {
            number: self.numbered,
            since: now,
            location,
            scope: scope.clone(),
            waker: waker.clone(),
        });
        *waits_len += 1;
        self.numbered
    }

    /// When and where each wait began, in order.
    pub(super) fn since(&self) -> impl Iterator<Item = (Timestamp, &'static Location<'static>)> {
        self.waiting.iter().map(|waiter| (waiter.since, waiter.location))
    }

    /// Ends a wait, and subtracts it from `waits_len`.
    pub(super) fn forget(&mut self, number: u64, waits_len: &mut u32) {
        if let Some(at) = self.find(number) {
            self.waiting.remove(at);
            *waits_len -= 1;
        }
    }

    /// The index of a wait, by binary search: a signal wakes all that wait for it, and each comes here; a linear search by
    /// thousands of them would hold up the shard.
    fn find(&self, number: u64) -> Option<usize> {
        // The numbers are in the order in which the waits began.
        self.waiting
            .binary_search_by_key(&number, |waiter| waiter.number)
            .ok()
    }
}

/// The signals of one name that were not taken, and the waits for more.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) values: VecDeque<Payload>,
    pub(super) waiters: Waiters,
}

/// Inboxes, ordered by name. Most runs have one or two, for which the smallest node of a tree would be eleven times too
/// large.
#[derive(Debug, Default)]
pub(super) struct Inboxes(Vec<(Name, Inbox)>);

impl Inboxes {
    /// The inbox of a name, which is made if need be.
    pub(super) fn of(&mut self, name: &Name) -> &mut Inbox {
        let index = self.find(name).unwrap_or_else(|index| {
            if self.0.capacity() == 0 {
                self.0.reserve_exact(1);
            }
            self.0.insert(index, (name.clone(), Inbox::default()));
            index
        });
        &mut self.0[index].1
    }

    pub(super) fn get_mut(&mut self, name: &Name) -> Option<&mut Inbox> {
        let index = self.find(name).ok()?;
        Some(&mut self.0[index].1)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &(Name, Inbox)> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (Name, Inbox)> {
        self.0.iter_mut()
    }

    fn find(&self, name: &Name) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_keep_their_numbers_and_their_order_when_others_end() {
        let mut waiters = Waiters::default();
        let scope = Scope::default();
        let mut len = 0;
        let wait = |waiters: &mut Waiters, number, second, len: &mut u32| {
            let now = Timestamp::from_micros(second);
            waiters.wait(number, &scope, Waker::noop(), Location::caller(), now, len)
        };
        let begun = (0..6).map(|second| wait(&mut waiters, None, second, &mut len));
        let numbers: Vec<_> = begun.collect();
        assert_eq!(len, 6);
        for ended in [0, 3, 5] {
            waiters.forget(numbers[ended], &mut len);
            waiters.forget(numbers[ended], &mut len);
        }
        for kept in [4, 1, 2] {
            assert_eq!(
                wait(&mut waiters, Some(numbers[kept]), 9, &mut len),
                numbers[kept],
                "polled again, it is the same wait"
            );
        }
        // A wait that ended and begins again comes last.
        assert_ne!(wait(&mut waiters, Some(numbers[0]), 9, &mut len), numbers[0]);
        let since: Vec<_> = waiters.since().map(|(since, _)| since.as_micros()).collect();
        assert_eq!((since, len), (vec![1, 2, 4, 9], 4));
    }
}
