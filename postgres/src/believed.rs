//! The time by which retention tells the ages of finished runs and of records.
//!
//! ```text
//!   times of turns and records ──► believed time = max(itself, min(that time, limit)) ──► retention
//!   time that the server told, and what has passed since ──► limit = that + age_step_max
//! ```
//!
//! Turns have the time of this host's clock, which may be wrong. A run whose turn has a time that is far from the believed
//! one counts as closed at that: neither does one that closed while the clock was behind expire too early, nor does one
//! that closed while it was ahead keep those behind it for ever. The believed time never goes back.

use std::time::{Duration, Instant};

use millrun_core::Timestamp;

/// A turn's time is as good as the believed one if they differ by no more: threads do not agree to the microsecond.
const NEAR: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(crate) struct BelievedTime {
    /// The latest time that the server has told, and when.
    server: (Timestamp, Instant),
    latest: Timestamp,
    step_max: Duration,
}

impl BelievedTime {
    /// Of a store whose last run has closed at `latest`.
    pub(crate) fn new(server: Timestamp, latest: Timestamp, step_max: Duration) -> Self {
        Self {
            server: (server, Instant::now()),
            latest: latest.min(server + step_max),
            step_max,
        }
    }

    pub(crate) fn told_by_server(&mut self, now: Timestamp) {
        self.server = (now, Instant::now());
    }

    fn limit(&self) -> Timestamp {
        let (told, at) = self.server;
        told + at.elapsed().saturating_add(self.step_max)
    }

    /// A run has closed with a turn of this time, or a record has it. Gives the time that it counts as.
    pub(crate) fn see(&mut self, time: Timestamp) -> Timestamp {
        self.latest = self.latest.max(time.min(self.limit()));
        let off = time.saturating_since(self.latest) + self.latest.saturating_since(time);
        if off <= NEAR { time } else { self.latest }
    }

    /// The present, which an upkeep may have named.
    pub(crate) fn now(&self, asked: Option<Timestamp>) -> Timestamp {
        let asked = asked.unwrap_or(Timestamp::EPOCH);
        self.latest.max(asked.min(self.limit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn hour(hours: u32) -> Timestamp {
        Timestamp::EPOCH + HOUR * hours
    }

    /// The hour that a time counts as, rounded down: the test takes some time.
    fn counts_as(believed: &mut BelievedTime, hours: u32) -> u64 {
        believed.see(hour(hours)).as_micros() / hour(1).as_micros()
    }

    #[test]
    fn a_time_that_is_far_from_the_believed_one_counts_as_that() {
        let mut believed = BelievedTime::new(hour(1_000), hour(990), 6 * HOUR);
        assert_eq!(counts_as(&mut believed, 999), 999);
        // A clock that is behind, and one that is ahead.
        assert_eq!(counts_as(&mut believed, 280), 999);
        assert_eq!(counts_as(&mut believed, 1_004), 1_004);
        assert_eq!(counts_as(&mut believed, 9_000), 1_006);
        assert_eq!(counts_as(&mut believed, 1_001), 1_006);
        believed.told_by_server(hour(1_100));
        assert_eq!(counts_as(&mut believed, 1_100), 1_100);
        assert_eq!(believed.now(None), hour(1_100));
        assert_eq!(believed.now(Some(hour(1_103))), hour(1_103));
        assert!(believed.now(Some(hour(9_000))) < hour(1_107));
        // The clock of the server was set back.
        believed.told_by_server(hour(500));
        assert_eq!(believed.now(Some(hour(800))), hour(1_100));
    }

    #[test]
    fn the_present_of_a_store_is_not_before_its_last_run() {
        let mut believed = BelievedTime::new(hour(1_000), hour(999), 6 * HOUR);
        assert_eq!(counts_as(&mut believed, 10), 999);
        // Nor where that run has closed under a clock which was not to be believed.
        let believed = BelievedTime::new(hour(1_000), hour(9_000), 6 * HOUR);
        assert_eq!(believed.now(None), hour(1_006));
    }
}
