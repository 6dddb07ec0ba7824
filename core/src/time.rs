//! Points in time.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point in time: microseconds since the Unix epoch.
///
/// A `Timestamp` comes from a [`Host`](crate::Host) or from a recorded event, never from the
/// system clock directly, so that a test can move it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);
    /// Later than every time that occurs.
    pub const MAX: Self = Self(u64::MAX);

    /// The time `micros` microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`Timestamp::MAX`]; anything below a microsecond is rounded up, so that a
    /// deadline is never early.
    fn add(self, duration: Duration) -> Self {
        let of_seconds = duration.as_secs().saturating_mul(1_000_000);
        let of_rest = u64::from(duration.subsec_nanos().div_ceil(1_000));
        Self(self.0.saturating_add(of_seconds).saturating_add(of_rest))
    }
}

impl fmt::Display for Timestamp {
    /// Seconds since the epoch with six decimals: `1700000000.000250`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_never_early() {
        let start = Timestamp::from_micros(10);
        assert_eq!(start + Duration::from_nanos(1), Timestamp::from_micros(11));
        assert_eq!(start + Duration::MAX, Timestamp::MAX);
    }

    #[test]
    fn time_does_not_run_backwards() {
        let (early, late) = (Timestamp::from_micros(1), Timestamp::from_micros(5));
        assert_eq!(late.saturating_since(early), Duration::from_micros(4));
        assert_eq!(early.saturating_since(late), Duration::ZERO);
    }
}
