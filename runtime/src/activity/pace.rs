//! How long an activity's code runs before its first await, measured: what ends there at once, and
//! soon, is run where it arrives and gets no task of its own.
//!
//! A task costs about as much as the rest of a step's way through the pool. An activity is taken to
//! be quick while the moving average of its first polls says so; one that waits for something, or
//! computes, is not, and has its task, beside which others run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Below this average an activity is quick: starting a task would take longer.
const QUICK_NANOS: u32 = 5_000;
/// What an attempt that does not end at once counts as; also where the average begins, so that it
/// takes sixteen quick attempts to be quick.
const WAITING_NANOS: u32 = 40_000;
/// What a single attempt counts as at most: the average forgets it within two dozen others.
const SLOWEST_NANOS: u32 = 1_000_000;

/// An average that stays.
const NEVER_NANOS: u32 = u32::MAX;

/// The moving average over about eight attempts, in nanoseconds.
#[derive(Debug)]
pub(super) struct Pace(AtomicU32);

impl Default for Pace {
    fn default() -> Self {
        Self(AtomicU32::new(WAITING_NANOS))
    }
}

impl Pace {
    /// Whether the next attempt may be run where it arrives.
    pub(super) fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) < QUICK_NANOS
    }

    /// Notes how long the first poll of an attempt took; `None` if the attempt had not ended then.
    pub(super) fn note(&self, took: Option<Duration>) {
        let nanos = took.map_or(WAITING_NANOS, |took| {
            u32::try_from(took.as_nanos()).map_or(SLOWEST_NANOS, |nanos| nanos.min(SLOWEST_NANOS))
        });
        let next = |average| (average != NEVER_NANOS).then(|| average - average / 8 + nanos / 8);
        let _is_given_up = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_err();
    }

    /// It has a task from now on, always.
    pub(super) fn give_up(&self) {
        self.0.store(NEVER_NANOS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_some_quick_attempts_to_be_quick_and_few_others_to_be_no_more() {
        let pace = Pace::default();
        let soon = Some(Duration::from_nanos(200));
        let quick_after = (1..).find(|_| {
            pace.note(soon);
            pace.is_quick()
        });
        assert_eq!(quick_after, Some(16));
        (0..100).for_each(|_| pace.note(soon));
        pace.note(Some(Duration::from_secs(100)));
        assert!(!pace.is_quick(), "one that computes");
        let quick_again = (1..).find(|_| {
            pace.note(soon);
            pace.is_quick()
        });
        assert!(
            quick_again.is_some_and(|attempts| attempts < 30),
            "{quick_again:?}"
        );
        pace.note(None);
        assert!(!pace.is_quick(), "one that waits");
        pace.give_up();
        (0..100).for_each(|_| pace.note(soon));
        assert!(!pace.is_quick(), "never again");
    }
}
