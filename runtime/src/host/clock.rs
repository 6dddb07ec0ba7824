//! The time of day, made monotonic.

use std::time::{Duration, Instant, SystemTime};

use millrun_core::Timestamp;

/// The wall clock as it was when the host started, plus what a monotonic clock has counted since.
///
/// So time never runs backwards within one process. The price: when the machine's clock is set
/// while the process runs, this one does not follow until the process is started again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    started_at: Timestamp,
    base: Instant,
}

/// The longest single wait. Tokio's timer wheel ends after about two years; whoever waits looks
/// at the clock again afterwards.
const WAIT_MAX: Duration = Duration::from_secs(365 * 86_400);

impl Clock {
    /// Reads the wall clock, for the only time.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is where the host gets the time from"
    )]
    pub(super) fn start() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            started_at: Timestamp::EPOCH + since_epoch,
            base: Instant::now(),
        }
    }

    /// Since the host started.
    pub(super) fn elapsed(self) -> Duration {
        self.base.elapsed()
    }

    /// Rounded down to a microsecond, so that a deadline is due only when it has been reached.
    pub(super) fn now(self) -> Timestamp {
        let micros = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        Timestamp::from_micros(self.started_at.as_micros().saturating_add(micros))
    }

    /// The moment at which [`Clock::now`] becomes `deadline`, or [`WAIT_MAX`] from now if that is
    /// sooner.
    pub(super) fn instant(self, deadline: Timestamp) -> Instant {
        let ahead = deadline.saturating_since(self.started_at);
        self.base + ahead.min(self.elapsed() + WAIT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_shows_less_than_before() {
        let clock = Clock::start();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn a_deadline_at_the_end_of_time_has_a_moment() {
        let clock = Clock::start();
        assert!(clock.instant(Timestamp::MAX) > clock.instant(clock.now()));
        assert!(clock.instant(Timestamp::EPOCH) <= clock.base);
    }
}
