//! Retry policies of activities and runs.

use std::time::Duration;

use millrun_core::{RunId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{OperationId, micros};

/// A retry policy: pauses that grow up to a cap, a limit on attempts, and one on the time they take.
///
/// The default, [`Retry::exponential`], pauses 100 ms after the first failure, doubles the pause each time up to 60 s, varies
/// each pause by up to a fifth in either direction, and gives up after 20 attempts (about ten minutes).
/// [`coefficient`](Retry::coefficient) changes how fast pauses grow, and an error can [choose the pause
/// itself](crate::TypedError::retry_after).
///
/// ```
/// use std::time::Duration;
/// use millrun_workflow::Retry;
///
/// let retry = Retry::exponential().attempts(5).first_pause(Duration::from_secs(1));
/// assert_eq!(retry.attempts_max(), 5);
/// ```
///
/// A call has one policy, and may have others for [kinds of errors](crate::Call::retry_on).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    pub(crate) attempts_max: u32,
    #[serde(rename = "first_pause_us", with = "micros")]
    pub(crate) first_pause: Duration,
    #[serde(rename = "pause_max_us", with = "micros")]
    pub(crate) pause_max: Duration,
    /// The ratio of each pause to the one before, in percent: 200 doubles it.
    pub(crate) growth_percent: u32,
    #[serde(
        rename = "elapsed_max_us",
        with = "micros::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) elapsed_max: Option<Duration>,
}

impl Retry {
    /// Part of the stored format: a policy without a growth doubles its pauses.
    pub(crate) const DOUBLING: u32 = 200;

    /// The default policy.
    #[must_use]
    pub const fn exponential() -> Self {
        Self {
            attempts_max: 20,
            first_pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(60),
            growth_percent: Self::DOUBLING,
            elapsed_max: None,
        }
    }

    /// One attempt only.
    #[must_use]
    pub const fn never() -> Self {
        Self::exponential().attempts(1)
    }

    /// The number of attempts in all; 0 counts as 1.
    #[must_use]
    pub const fn attempts(mut self, attempts_max: u32) -> Self {
        self.attempts_max = if attempts_max == 0 { 1 } else { attempts_max };
        self
    }

    /// The pause after the first failed attempt.
    #[must_use]
    pub const fn first_pause(mut self, pause: Duration) -> Self {
        self.first_pause = pause;
        self
    }

    /// The longest pause, before it is varied by up to a fifth.
    #[must_use]
    pub const fn pause_max(mut self, pause: Duration) -> Self {
        self.pause_max = pause;
        self
    }

    /// The ratio of each pause to the one before: 2 by default, 1 for pauses that do not grow. From 1 to 100, in hundredths;
    /// a value outside counts as the nearest bound, and NaN as 1.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millrun_workflow::Retry;
    ///
    /// let every_ten_seconds = Retry::exponential().first_pause(Duration::from_secs(10)).coefficient(1.0);
    /// let slowly_growing = Retry::exponential().coefficient(1.5);
    /// assert_ne!(every_ten_seconds, slowly_growing);
    /// ```
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it lies between 1 and 100 there, and hundredths are what is kept"
    )]
    pub const fn coefficient(mut self, coefficient: f64) -> Self {
        // A whole number, since floats may be computed differently on another machine.
        self.growth_percent = if coefficient >= 100.0 {
            10_000
        } else if coefficient > 1.0 {
            (coefficient * 100.0 + 0.5) as u32
        } else {
            100
        };
        self
    }

    /// How long after the call was decided an attempt may still begin: if the next pause would end later, the call fails at
    /// once, with the error of the last attempt. Not limited by default.
    ///
    /// It does not stop the attempt under way; [`schedule_to_close`](crate::Call::schedule_to_close) is a limit that does. An
    /// attempt that a crash cut off is begun again at any time.
    #[must_use]
    pub const fn elapsed_max(mut self, elapsed: Duration) -> Self {
        self.elapsed_max = Some(elapsed);
        self
    }

    /// The same policy in whole microseconds, which are stored.
    pub(crate) fn as_stored(mut self) -> Self {
        let whole =
            |pause: Duration| Duration::from_micros(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
        self.first_pause = whole(self.first_pause);
        self.pause_max = whole(self.pause_max);
        self.elapsed_max = self.elapsed_max.map(whole);
        self
    }

    /// The number of attempts in all.
    #[must_use]
    pub const fn attempts_max(&self) -> u32 {
        self.attempts_max
    }

    /// When the attempt after `failures` failed ones begins, for a call that was decided at `since`; `chosen` is the pause
    /// that the failed attempt asks for. `None` if there is no further attempt.
    pub(crate) fn retry_at(
        &self,
        failures: u32,
        chosen: Option<Duration>,
        (run, operation): (RunId, OperationId),
        since: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let pause = self.pause_after(failures, run, operation)?;
        let retry_at = now + chosen.unwrap_or(pause);
        let is_in_time = self.elapsed_max.is_none_or(|elapsed| retry_at <= since + elapsed);
        is_in_time.then_some(retry_at)
    }

    /// The pause after `failures` failed attempts, or `None` if there is no further attempt.
    ///
    /// The jitter depends only on the step and the count, so that it is the same in a replay.
    #[must_use]
    pub fn pause_after(&self, failures: u32, run: RunId, operation: OperationId) -> Option<Duration> {
        if failures >= self.attempts_max {
            return None;
        }
        let pause = self.plain_pause(failures.saturating_sub(1));
        let seed = (run.bits() ^ (run.bits() >> 64)) & u128::from(u64::MAX);
        let seed = u64::try_from(seed).expect("masked to 64 bits");
        let dice = mix(seed ^ (u64::from(operation.get()) << 32) ^ u64::from(failures));
        let per_mille = 800 + u32::try_from(dice % 401).expect("below 401");
        Some(pause.saturating_mul(per_mille) / 1_000)
    }
}

impl Retry {
    /// The pause after `shorter` shorter ones, before it is varied.
    fn plain_pause(&self, shorter: u32) -> Duration {
        if self.growth_percent == Self::DOUBLING {
            let pause = self
                .first_pause
                .saturating_mul(1_u32.checked_shl(shorter.min(32)).unwrap_or(u32::MAX));
            return pause.min(self.pause_max);
        }
        let (mut pause, pause_max) = (self.first_pause.as_nanos(), self.pause_max.as_nanos());
        for _ in 0..shorter {
            let longer = pause * u128::from(self.growth_percent) / 100;
            // It does not grow any more: the pause is too short for that, or the coefficient is one.
            if pause >= pause_max || longer == pause {
                break;
            }
            pause = longer;
        }
        match u64::try_from(pause) {
            Ok(nanos) => Duration::from_nanos(nanos).min(self.pause_max),
            Err(_) => self
                .pause_max
                .min(self.first_pause.max(Duration::from_nanos(u64::MAX))),
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::exponential()
    }
}

/// SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
pub(crate) const fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrun_core::{Partition, Timestamp};

    fn run() -> RunId {
        RunId::new(Partition::of(b"a"), Timestamp::from_micros(5_000), 9)
    }

    #[test]
    fn pauses_grow_to_the_cap_and_end() {
        let retry = Retry::exponential()
            .attempts(12)
            .pause_max(Duration::from_secs(2));
        let pauses: Vec<_> = (1..12)
            .map(|failures| retry.pause_after(failures, run(), OperationId::new(3)).unwrap())
            .collect();
        for (index, pause) in pauses.iter().enumerate() {
            let plain = Duration::from_millis((100 << index).min(2_000));
            assert!(
                *pause >= plain * 4 / 5 && *pause <= plain * 6 / 5,
                "{index}: {pause:?} for {plain:?}"
            );
        }
        assert_eq!(retry.pause_after(12, run(), OperationId::new(3)), None);
    }

    #[test]
    fn pauses_grow_by_their_coefficient() {
        let cases: [(f64, [u64; 5]); 6] = [
            (1.0, [100, 100, 100, 100, 100]),
            (1.5, [100, 150, 225, 337, 506]),
            (2.0, [100, 200, 400, 800, 1_600]),
            (10.0, [100, 1_000, 2_000, 2_000, 2_000]),
            (-3.0, [100, 100, 100, 100, 100]),
            (f64::NAN, [100, 100, 100, 100, 100]),
        ];
        for (coefficient, expected) in cases {
            let retry = Retry::exponential()
                .pause_max(Duration::from_secs(2))
                .coefficient(coefficient);
            let pauses: Vec<_> = (0..5).map(|shorter| retry.plain_pause(shorter)).collect();
            let expected = expected.map(Duration::from_millis);
            for (pause, expected) in pauses.iter().zip(expected) {
                assert!(
                    expected <= *pause && *pause < expected + Duration::from_millis(1),
                    "{coefficient}: {pause:?} for {expected:?}"
                );
            }
        }
        assert_eq!(Retry::exponential().coefficient(2.0), Retry::exponential());
    }

    #[test]
    fn any_coefficient_ends_soon_and_does_not_overflow() {
        for (first, coefficient) in [
            (1, 1.01),
            (99, 1.01),
            (100, 1.01),
            (0, 3.0),
            (u64::MAX, 100.0),
            (5, 100.0),
        ] {
            let retry = Retry::exponential()
                .first_pause(Duration::from_nanos(first))
                .pause_max(Duration::MAX)
                .coefficient(coefficient);
            let last = retry.plain_pause(u32::MAX);
            assert!(
                last >= Duration::from_nanos(first),
                "{first} by {coefficient}: {last:?}"
            );
        }
    }

    #[test]
    fn a_chosen_pause_goes_before_the_policy_s_own_and_not_beyond_its_limits() {
        let retry = Retry::exponential()
            .attempts(3)
            .elapsed_max(Duration::from_secs(100));
        let (step, now) = ((run(), OperationId::new(1)), Timestamp::from_micros(7));
        let after =
            |failures, seconds| retry.retry_at(failures, Some(Duration::from_secs(seconds)), step, now, now);
        assert_eq!(after(1, 0), Some(now));
        assert_eq!(after(2, 100), Some(now + Duration::from_secs(100)));
        assert_eq!(after(2, 101), None, "there is no time left");
        assert_eq!(after(3, 1), None, "there is no attempt left");
    }

    #[test]
    fn the_jitter_is_the_same_every_time_and_differs_between_steps() {
        let retry = Retry::exponential();
        let pause = |operation| retry.pause_after(1, run(), OperationId::new(operation));
        assert_eq!(pause(1), pause(1));
        assert!((1..20).any(|operation| pause(operation) != pause(0)));
    }

    #[test]
    fn absurd_numbers_do_not_overflow() {
        let retry = Retry::exponential()
            .attempts(u32::MAX)
            .first_pause(Duration::MAX)
            .pause_max(Duration::MAX);
        assert!(
            retry
                .pause_after(u32::MAX - 1, run(), OperationId::new(u32::MAX))
                .is_some()
        );
        assert_eq!(
            Retry::never()
                .attempts(0)
                .pause_after(1, run(), OperationId::new(1)),
            None
        );
    }
}
