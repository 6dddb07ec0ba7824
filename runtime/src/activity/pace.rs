//! Measures how long an activity's code runs until its first await. Short attempts that end there run on the pool's thread,
//! without a task of their own.
//!
//! A task costs about as much as the rest of a step's way through the pool. An activity counts as quick while the moving
//! average of its first polls is low. One that waits, or computes, is not quick, and gets a task, beside which others can
//! run.
//!
//! Reading the clock takes as long as the shortest attempts. So attempts that end at once are measured several at a time: as
//! many as should take no longer than a single one may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Below this average an activity is quick: starting a task would take longer.
const QUICK_NANOS: u32 = 5_000;
/// The value of an attempt that does not end at once. The average also begins here, so that it takes sixteen quick attempts
/// to become quick.
const WAITING_NANOS: u32 = 40_000;
/// The largest value of attempts that are measured together: the average forgets a single slow one within two dozen others.
const SLOWEST_NANOS: u32 = 1_000_000;

/// How many attempts are measured together at most: this many slow ones may run before that is noticed.
const STRETCH_LEN_MAX: u32 = 4;

/// An average that stays for ever.
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
    /// Whether the next attempt may run on the pool's thread.
    pub(super) fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) < QUICK_NANOS
    }

    /// Notes how long the first poll of an attempt took; `None` if the attempt had not ended then.
    pub(super) fn note(&self, took: Option<Duration>) {
        match took {
            Some(took) => self.note_stretch(took, 1),
            None => self.add(WAITING_NANOS, 1),
        }
    }

    /// Notes how long `len` attempts took together that ended at once.
    fn note_stretch(&self, took: Duration, len: u32) {
        let nanos = u32::try_from(took.as_nanos()).map_or(SLOWEST_NANOS, |nanos| nanos.min(SLOWEST_NANOS));
        self.add(nanos / len, len);
    }

    /// Moves the average by `len` attempts of `nanos` each.
    fn add(&self, nanos: u32, len: u32) {
        let moved = |average| (0..len).fold(average, |average, _| average - average / 8 + nanos / 8);
        let next = |average| (average != NEVER_NANOS).then(|| moved(average));
        let _is_given_up = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_err();
    }

    /// How many of its attempts are measured together.
    fn stretch_len_max(&self) -> u32 {
        let average = self.0.load(Ordering::Relaxed).max(1);
        (QUICK_NANOS / average).clamp(1, STRETCH_LEN_MAX)
    }

    /// Gives every later attempt a task.
    pub(super) fn give_up(&self) {
        self.0.store(NEVER_NANOS, Ordering::Relaxed);
    }
}

/// Attempts of one activity that have ended one after the other since the clock was read.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    pace: Option<Arc<Pace>>,
    began_at: Duration,
    len: u32,
    len_max: u32,
    /// Whether something else was done since the clock was read.
    has_lapsed: bool,
}

impl Stretch {
    /// When the clock was last read.
    pub(super) fn began_at(&self) -> Duration {
        self.began_at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether an attempt may be measured together with these.
    pub(super) fn takes(&self, pace: &Arc<Pace>) -> bool {
        self.is_empty() || self.is_of(pace)
    }

    /// Adds an attempt that has ended. Returns whether the clock has to be read now.
    pub(super) fn add(&mut self, pace: &Arc<Pace>) -> bool {
        if self.is_empty() {
            if !self.is_of(pace) {
                self.pace = Some(Arc::clone(pace));
            }
            self.len_max = pace.stretch_len_max();
        }
        self.len += 1;
        self.len >= self.len_max
    }

    /// Notes how long the attempts took, and begins again.
    pub(super) fn end(&mut self, now: Duration) {
        if let Some(pace) = self.pace.as_ref().filter(|_| self.len > 0) {
            pace.note_stretch(now.saturating_sub(self.began_at), self.len);
        }
        self.begin(now);
    }

    /// Begins again, without counting what was done since the clock was read.
    pub(super) fn begin(&mut self, now: Duration) {
        self.began_at = now;
        self.len = 0;
        self.has_lapsed = false;
    }

    /// Notes that something else was done: the clock has to be read before the next attempt.
    pub(super) fn lapse(&mut self) {
        self.len = 0;
        self.has_lapsed = true;
    }

    pub(super) fn has_lapsed(&self) -> bool {
        self.has_lapsed
    }

    fn is_of(&self, pace: &Arc<Pace>) -> bool {
        self.pace.as_ref().is_some_and(|own| Arc::ptr_eq(own, pace))
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

    /// How many attempts of this length a pool runs itself until it notices that they are not quick.
    fn attempts_until_known(nanos: u64) -> u32 {
        let pace = Arc::new(Pace::default());
        (0..100).for_each(|_| pace.note(Some(Duration::from_nanos(200))));
        let (mut stretch, mut now) = (Stretch::default(), Duration::ZERO);
        stretch.begin(now);
        (1..)
            .find(|_| {
                now += Duration::from_nanos(nanos);
                if stretch.add(&pace) {
                    stretch.end(now);
                }
                !pace.is_quick()
            })
            .unwrap_or_default()
    }

    #[test]
    fn attempts_measured_together_are_known_to_be_slow_at_the_end_of_their_stretch() {
        for nanos in [100_000, 1_000_000, 100_000_000] {
            assert_eq!(attempts_until_known(nanos), STRETCH_LEN_MAX, "{nanos} ns each");
        }
        assert!(attempts_until_known(6_000) < 40);
    }

    #[test]
    fn few_are_measured_together_where_they_take_long_and_only_of_one_activity() {
        let (pace, other) = (Arc::new(Pace::default()), Arc::new(Pace::default()));
        assert_eq!(pace.stretch_len_max(), 1);
        (0..100).for_each(|_| pace.note(Some(Duration::from_nanos(2_000))));
        assert_eq!(pace.stretch_len_max(), 2);
        let mut stretch = Stretch::default();
        assert!(stretch.takes(&pace) && stretch.takes(&other));
        assert!(!stretch.add(&pace));
        assert!(stretch.takes(&pace) && !stretch.takes(&other));
        assert!(stretch.add(&pace));
        stretch.end(Duration::from_nanos(2));
        assert!(stretch.takes(&other));
        assert_eq!(pace.stretch_len_max(), 3, "both were quicker");
    }
}
