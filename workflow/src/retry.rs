//! When to try an activity again.

use std::time::Duration;

use millrun_core::{RunId, Timestamp};

use crate::OperationId;

/// A retry policy: pauses that grow up to a cap, a limit on attempts, and one on the time they take.
///
/// The default, [`Retry::exponential`], pauses 100 ms after the first failure, doubles each time
/// up to 60 s, varies each pause by up to a fifth in either direction, and gives up after 20
/// attempts (about ten minutes).
///
/// ```
/// use std::time::Duration;
/// use millrun_workflow::Retry;
///
/// let retry = Retry::exponential().attempts(5).first_pause(Duration::from_secs(1));
/// assert_eq!(retry.attempts_max(), 5);
/// ```
///
/// A call has one, and may have others for [some errors](crate::Call::retry_on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    pub(crate) attempts_max: u32,
    pub(crate) first_pause: Duration,
    pub(crate) pause_max: Duration,
    pub(crate) elapsed_max: Option<Duration>,
}

impl Retry {
    /// The default policy.
    #[must_use]
    pub const fn exponential() -> Self {
        Self {
            attempts_max: 20,
            first_pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(60),
            elapsed_max: None,
        }
    }

    /// One attempt only.
    #[must_use]
    pub const fn never() -> Self {
        Self::exponential().attempts(1)
    }

    /// How many attempts there are in all; 0 counts as 1.
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

    /// How long after the call was decided an attempt may still begin: if the next pause would end
    /// later, the call fails at once, with the error of the last attempt. Not limited by default.
    ///
    /// The attempt under way is not stopped by it; see
    /// [`schedule_to_close`](crate::Call::schedule_to_close) for a limit that does that. An attempt
    /// that a crash cut off is begun again whatever the time.
    #[must_use]
    pub const fn elapsed_max(mut self, elapsed: Duration) -> Self {
        self.elapsed_max = Some(elapsed);
        self
    }

    /// How many attempts there are in all.
    #[must_use]
    pub const fn attempts_max(&self) -> u32 {
        self.attempts_max
    }

    /// When the attempt after `failures` failed ones begins, of a call that was decided at `since`;
    /// `None` when there shall be no other.
    pub(crate) fn retry_at(
        &self,
        failures: u32,
        (run, operation): (RunId, OperationId),
        since: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let retry_at = now + self.pause_after(failures, run, operation)?;
        let is_in_time = self.elapsed_max.is_none_or(|elapsed| retry_at <= since + elapsed);
        is_in_time.then_some(retry_at)
    }

    /// The pause after `failures` failed attempts, or `None` when there shall be no other.
    ///
    /// The jitter depends on the step and the count alone, so that it is the same in a replay.
    #[must_use]
    pub fn pause_after(&self, failures: u32, run: RunId, operation: OperationId) -> Option<Duration> {
        if failures >= self.attempts_max {
            return None;
        }
        let doublings = failures.saturating_sub(1).min(32);
        let pause = self
            .first_pause
            .saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX));
        let pause = pause.min(self.pause_max);
        let seed = (run.bits() ^ (run.bits() >> 64)) & u128::from(u64::MAX);
        let seed = u64::try_from(seed).expect("masked to 64 bits");
        let dice = mix(seed ^ (u64::from(operation.get()) << 32) ^ u64::from(failures));
        let per_mille = 800 + u32::try_from(dice % 401).expect("below 401");
        Some(pause.saturating_mul(per_mille) / 1_000)
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
