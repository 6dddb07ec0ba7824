//! The time by which retention judges the age of finished runs and of records.
//!
//! ```text
//!   times of turns and records ──► believed time = max(itself, min(that time, limit)) ──► retention
//!   time that the server told, and what has passed since ──► limit = that + age_step_max
//! ```
//!
//! Turns carry the time of this host's clock, which may be wrong. A run whose turn has a time far from the believed time
//! counts as closed at the believed time. So a run that closed while the clock was behind does not expire too early, and one
//! that closed while it was ahead does not keep later runs for ever. The believed time never goes back.

use std::time::{Duration, Instant};

use millrun_core::Timestamp;

/// Up to this difference a turn's time is accepted: clocks of threads do not agree to the microsecond.
const NEAR: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub(crate) struct BelievedTime {
    /// The latest time from the server, and when it came.
    server: (Timestamp, Instant),
    latest: Timestamp,
    step_max: Duration,
}

impl BelievedTime {
    /// For a store whose last run closed at `latest`.
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

    /// Takes the time of a turn that closes a run, or of a record. Returns the time that it counts as.
    pub(crate) fn see(&mut self, time: Timestamp) -> Timestamp {
        self.latest = self.latest.max(time.min(self.limit()));
        let off = time.saturating_since(self.latest) + self.latest.saturating_since(time);
        if off <= NEAR { time } else { self.latest }
    }

    /// The present time; an upkeep may have named one.
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

    /// The hour that a time counts as; rounded down, since the test itself takes some time.
    fn counts_as(believed: &mut BelievedTime, hours: u32) -> u64 {
        believed.see(hour(hours)).as_micros() / hour(1).as_micros()
    }

    #[test]
    fn a_time_that_is_far_from_the_believed_one_counts_as_that() {
        let mut believed = BelievedTime::new(hour(1_000), hour(990), 6 * HOUR);
        assert_eq!(counts_as(&mut believed, 999), 999);
        // One clock that is behind, and one that is ahead.
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
        // Also if the last run closed under a wrong clock.
        let believed = BelievedTime::new(hour(1_000), hour(9_000), 6 * HOUR);
        assert_eq!(believed.now(None), hour(1_006));
    }
}
