//! The clock by which a store measures how long ago its runs have closed.
//!
//! ```text
//!   times of closing turns ──► believed time = max(itself, min(turn's time, limit)) ──► retention
//!   monotonic clock ──────────────────────────────────────────────► limit ─┘
//!        limit = time believed at the opening + age_step_max + 2 x (time since the opening)
//! ```
//!
//! Turns carry the time of the wall clock, which may be wrong for as long as a store is open: a clock that was 30 days ahead
//! during a single opening made all results expire, and freed their ids. So the trusted time, which is kept in the store,
//! follows the wall clock with limits: by [`age_step_max`](crate::Retention::age_step_max) at each opening, and at twice the
//! speed of the monotonic clock from then on. After a long pause it catches up that way.
//!
//! A run whose turn has a time far from the trusted one counts as closed at the trusted time: so a run that closed while the
//! clock was behind does not expire at once when the clock is right again, and one that closed while it was ahead does not
//! keep later runs forever.
//!
//! Invariant: the trusted time never goes back; after a crash it is at most [`STORE_EVERY`] behind.

use std::time::Duration;

use millrun_core::Timestamp;

/// A turn's time is taken as it is if it differs from the trusted one by at most this: threads and shards do not agree to the
/// microsecond.
const NEAR: Duration = Duration::from_secs(60);

/// By how much the trusted time may be ahead of the stored one.
const STORE_EVERY: Duration = Duration::from_secs(60);

/// How much faster than the monotonic clock the trusted time may advance.
const PACE_MAX: u32 = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct AgeClock {
    step_max: Duration,
    /// The trusted time and the host's elapsed time, when the journal was opened or saw its first run close.
    base: Option<(Timestamp, Duration)>,
    now: Timestamp,
    stored: Timestamp,
    /// Whether the time of each turn is trusted, as long as it is not above that of the last turn.
    is_reading: bool,
    /// The time must be stored with the next commit, however little it has advanced.
    is_wanted: bool,
}

impl AgeClock {
    /// The clock before a store is read that has `stored` such a time.
    pub(crate) fn reading(step_max: Duration, stored: Option<Timestamp>) -> Self {
        Self {
            step_max,
            base: stored.map(|stored| (stored, Duration::ZERO)),
            now: Timestamp::EPOCH,
            stored: stored.unwrap_or(Timestamp::EPOCH),
            is_reading: true,
            is_wanted: false,
        }
    }

    /// All runs in the store have been [seen](Self::see); `newest` is the time of the latest one, if others closed before
    /// what was seen.
    pub(crate) fn opened(&mut self, newest: Option<Timestamp>, elapsed: Duration) {
        self.is_reading = false;
        let known = self.base.map(|(stored, _)| stored).or(newest);
        self.now = self.now.max(known.unwrap_or(Timestamp::EPOCH));
        self.base = (self.now > Timestamp::EPOCH).then_some((self.now, elapsed));
    }

    /// Whether the store had stored such a time.
    pub(crate) fn is_known(&self) -> bool {
        self.base.is_some()
    }

    /// A run has closed, with a turn of this time. Returns the time at which it counts as closed.
    pub(crate) fn see(&mut self, closed_at: Timestamp, elapsed: Duration) -> Timestamp {
        let limit = match self.base {
            Some((stored, _)) if self.is_reading => stored,
            None if self.is_reading => Timestamp::MAX,
            Some((base, since)) => {
                base + (self.step_max).saturating_add(elapsed.saturating_sub(since).saturating_mul(PACE_MAX))
            }
            None => {
                self.base = Some((closed_at, elapsed));
                closed_at
            }
        };
        self.now = self.now.max(closed_at.min(limit));
        let off = closed_at.saturating_since(self.now) + self.now.saturating_since(closed_at);
        if off <= NEAR { closed_at } else { self.now }
    }

    /// The trusted time.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// The time that was trusted when the store was last open, or that of its latest run.
    pub(crate) fn known(&self) -> Timestamp {
        self.now.max(self.stored)
    }

    /// Has the trusted time stored with the next commit. Returns whether it is not stored yet.
    pub(crate) fn want_stored(&mut self) -> bool {
        self.is_wanted = self.now > self.stored;
        self.is_wanted
    }

    /// The trusted time, if it should be stored again.
    pub(crate) fn next_to_store(&mut self) -> Option<Timestamp> {
        let is_wanted = std::mem::take(&mut self.is_wanted);
        let is_due = is_wanted || self.now.saturating_since(self.stored) >= STORE_EVERY;
        is_due.then(|| {
            self.stored = self.now;
            self.now
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn hour(hours: u32) -> Timestamp {
        Timestamp::EPOCH + HOUR * hours
    }

    /// A clock of a store whose trusted time is this hour, with 6 hours for each opening.
    fn opened(stored: u32) -> AgeClock {
        let mut clock = AgeClock::reading(6 * HOUR, Some(hour(stored)));
        clock.opened(None, 50 * HOUR);
        clock
    }

    #[test]
    fn an_opening_believes_so_many_hours_and_twice_those_that_pass() {
        let mut clock = opened(1_000);
        assert_eq!(clock.see(hour(1_720), 50 * HOUR), hour(1_006));
        assert_eq!(clock.see(hour(1_720), 60 * HOUR), hour(1_026));
        assert_eq!(clock.see(hour(1_027), 61 * HOUR), hour(1_027));
        assert_eq!(clock.now(), hour(1_027));
    }

    #[test]
    fn a_clock_that_goes_right_is_believed_and_a_long_pause_is_made_up_for() {
        let mut clock = opened(1_000);
        for passed in 0..100 {
            assert_eq!(
                clock.see(hour(1_000 + passed), (50 + passed) * HOUR),
                hour(1_000 + passed)
            );
        }
        let mut clock = opened(1_000);
        let mut passed = 0;
        while clock.see(hour(1_720 + passed), (50 + passed) * HOUR) != hour(1_720 + passed) {
            passed += 1;
        }
        assert_eq!(
            passed, 714,
            "720 hours off less the 6, at an hour more for each that passes"
        );
    }

    #[test]
    fn what_closes_while_the_clock_is_behind_counts_as_closed_when_it_was() {
        let mut clock = opened(1_000);
        assert_eq!(clock.see(hour(280), 50 * HOUR), hour(1_000));
        assert_eq!(clock.now(), hour(1_000));
    }

    #[test]
    fn a_new_store_believes_its_first_run_and_one_without_such_a_time_its_newest() {
        let mut clock = AgeClock::reading(6 * HOUR, None);
        clock.opened(None, HOUR);
        assert_eq!(clock.see(hour(1_000), 2 * HOUR), hour(1_000));
        assert_eq!(clock.see(hour(2_000), 2 * HOUR), hour(1_006));
        let mut clock = AgeClock::reading(6 * HOUR, None);
        assert_eq!(clock.see(hour(900), HOUR), hour(900));
        clock.opened(Some(hour(800)), HOUR);
        assert_eq!(clock.see(hour(2_000), HOUR), hour(906));
    }

    #[test]
    fn what_is_read_again_counts_as_before() {
        let mut clock = AgeClock::reading(6 * HOUR, Some(hour(1_006)));
        for (closed_at, counts) in [(990, 990), (1_720, 1_006), (280, 1_006), (1_005, 1_006)] {
            assert_eq!(clock.see(hour(closed_at), HOUR), hour(counts));
        }
    }

    #[test]
    fn it_is_stored_each_minute_of_its_own() {
        let mut clock = opened(1_000);
        assert_eq!(clock.next_to_store(), None);
        clock.see(hour(1_000) + Duration::from_secs(59), 51 * HOUR);
        assert_eq!(clock.next_to_store(), None);
        clock.see(hour(1_001), 51 * HOUR);
        assert_eq!(clock.next_to_store(), Some(hour(1_001)));
        assert_eq!(clock.next_to_store(), None);
    }
}
