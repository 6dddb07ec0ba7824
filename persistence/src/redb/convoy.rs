//! When to commit: at once, or a little later together with those who are about to come.
//!
//! While a commit syncs, about half of the appenders queue up behind it; without help every
//! commit carries half of them, and each of them waits for two commits. So after a commit that
//! acknowledged `a` batches and found `q` queued, the next one waits until 15/16 of `a + q` are
//! there, for at most half the time that the last commit took. One appender alone never waits.
//!
//! That spares the cost that each commit has however small it is. Where hundreds come, their own
//! work between two appends takes as long as a commit, and if all of them go together the disk is
//! idle meanwhile: then the next commit goes as soon as a quarter of them is there, and the others
//! work while it syncs.
//!
//! A caller that puts the turns of many into one batch, as a shard does, has gathered them already, and is
//! busy with the next batch: where hundreds of turns come in few batches, nobody is waited for.
//!
//! ```text
//!   committed ──► a + q ≤ 1 ──► commit the next batch as soon as it is there
//!             └─► a + q > 1 ──► commit at 15/16 of them (of many: at 256, or a quarter of them),
//!                               or when half a commit's time is over
//! ```

use std::time::Duration;

/// So many are worth a commit of their own: of more, no more than a quarter is waited for.
const TOGETHER_LEN_MAX: usize = 256;

/// What the writer should do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvoyDecision {
    /// Commit what is queued.
    Commit,
    /// The writer waits: it looks again after this time, or when this many batches are queued.
    Wait { time: Duration, batches: usize },
    /// Look again when anything is queued.
    Idle,
}

/// The state between two commits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Convoy {
    batches: usize,
    until: Duration,
}

impl Convoy {
    /// Notes that a commit has ended at the time `now`, after `took`: `acknowledged` batches with `turns` turns.
    pub(crate) fn committed(
        &mut self,
        (acknowledged, turns): (usize, usize),
        queued: usize,
        took: Duration,
        now: Duration,
    ) {
        let expected = acknowledged + queued;
        let is_gathered = turns >= TOGETHER_LEN_MAX.max(2 * acknowledged);
        let together = (expected * 15 / 16).max(1);
        self.batches = together.min(TOGETHER_LEN_MAX.max(expected / 4));
        self.until = if expected > 1 && !is_gathered {
            now + took / 2
        } else {
            now
        };
    }

    /// What to do with `queued` batches at the time `now`.
    pub(crate) fn decide(&self, queued: usize, now: Duration) -> ConvoyDecision {
        let remaining = self.until.saturating_sub(now);
        if remaining.is_zero() || queued >= self.batches {
            if queued > 0 {
                ConvoyDecision::Commit
            } else {
                ConvoyDecision::Idle
            }
        } else {
            ConvoyDecision::Wait {
                time: remaining,
                batches: self.batches,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn one_appender_never_waits() {
        let mut convoy = Convoy::default();
        assert_eq!(convoy.decide(1, Duration::ZERO), ConvoyDecision::Commit);
        convoy.committed((1, 1), 0, 200 * US, 300 * US);
        assert_eq!(convoy.decide(0, 300 * US), ConvoyDecision::Idle);
        assert_eq!(convoy.decide(1, 301 * US), ConvoyDecision::Commit);
    }

    #[test]
    fn of_very_many_appenders_a_part_is_waited_for() {
        for (acknowledged, expected) in [(32, 30), (256, 240), (280, 256), (1_024, 256), (16_384, 4_096)] {
            let mut convoy = Convoy::default();
            convoy.committed((acknowledged, acknowledged), 0, 200 * US, 300 * US);
            let decision = ConvoyDecision::Wait {
                time: 100 * US,
                batches: expected,
            };
            assert_eq!(convoy.decide(expected - 1, 300 * US), decision);
            assert_eq!(convoy.decide(expected, 300 * US), ConvoyDecision::Commit);
        }
    }

    #[test]
    fn many_appenders_are_waited_for_but_not_for_long() {
        let mut convoy = Convoy::default();
        convoy.committed((16, 16), 16, 200 * US, 300 * US);
        assert_eq!(
            convoy.decide(16, 300 * US),
            ConvoyDecision::Wait {
                time: 100 * US,
                batches: 30
            }
        );
        assert_eq!(
            convoy.decide(29, 350 * US),
            ConvoyDecision::Wait {
                time: 50 * US,
                batches: 30
            }
        );
        assert_eq!(convoy.decide(30, 350 * US), ConvoyDecision::Commit);
        assert_eq!(convoy.decide(29, 400 * US), ConvoyDecision::Commit);
        assert_eq!(convoy.decide(0, 400 * US), ConvoyDecision::Idle);
    }

    #[test]
    fn batches_of_many_turns_are_not_waited_for() {
        let mut convoy = Convoy::default();
        convoy.committed((3, 256), 2, 200 * US, 300 * US);
        assert_eq!(convoy.decide(0, 300 * US), ConvoyDecision::Idle);
        assert_eq!(convoy.decide(1, 300 * US), ConvoyDecision::Commit);
        for (batches, turns) in [(3, 255), (200, 399)] {
            convoy.committed((batches, turns), 2, 200 * US, 600 * US);
            assert!(matches!(convoy.decide(1, 600 * US), ConvoyDecision::Wait { .. }));
        }
    }
}
