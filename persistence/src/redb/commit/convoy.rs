//! Decides when to commit: at once, or a little later together with the turns that are about to come.
//!
//! While a commit syncs, about half of the appenders queue up behind it; without help every commit would carry half of them,
//! and each appender would wait for two commits. So after a commit that acknowledged `a` turns and found `q` queued, the next
//! commit waits until 15/16 of `a + q` turns are there, for at most half the time that the last commit took. A single
//! appender never waits.
//!
//! That saves the fixed cost of a commit. With hundreds of appenders, their own work between two appends takes as long as a
//! commit, and if all of them were in one commit the disk would be idle meanwhile: then the next commit starts as soon as a
//! quarter of them is there, and the others work while it syncs.
//!
//! Turns are counted and not batches: a shard puts the turns of many callers into one batch, and how many callers come back
//! does not depend on how its sweeps were cut. Where hundreds of turns came in few batches, the shard is busy with its next
//! batch, and the commit waits for nobody. Acknowledged turns need not lead to new ones, either: after a wait that brought
//! less than half of the expected turns, no commit waits for a while.
//!
//! ```text
//!   committed ──► a + q ≤ 1 ──► commit the next turn as soon as it is there
//!             └─► a + q > 1 ──► commit at 15/16 of them (of many: at 256, or a quarter of them),
//!                               or when half a commit's time is over
//! ```

use std::time::Duration;

/// This many turns are worth a commit of their own: if more are expected, the commit waits for at most a quarter of them.
const TOGETHER_LEN_MAX: usize = 256;

/// For how many commits no wait is made after a wait that did not pay.
const UNPAID_LEN: u8 = 8;

/// What the writer should do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvoyDecision {
    /// Commit what is queued.
    Commit,
    /// The writer waits: it looks again after this time, or when this many turns are queued.
    Wait { time: Duration, turns: usize },
    /// Look again when anything is queued.
    Idle,
}

/// The state between two commits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Convoy {
    turns: usize,
    until: Duration,
    /// How many turns the present wait should bring; zero without a wait.
    expected: usize,
    /// How many more commits are made without a wait.
    unpaid: u8,
}

impl Convoy {
    /// Notes that a commit of `turns` turns in `batches` batches has ended at the time `now`, after `took`, when `queued`
    /// turns were queued.
    pub(crate) fn committed(
        &mut self,
        (batches, turns): (usize, usize),
        queued: usize,
        took: Duration,
        now: Duration,
    ) {
        self.unpaid = if turns * 2 < self.expected {
            UNPAID_LEN
        } else {
            self.unpaid.saturating_sub(1)
        };
        let expected = turns + queued;
        let is_gathered = turns >= TOGETHER_LEN_MAX.max(2 * batches);
        let together = (expected * 15 / 16).max(1);
        self.turns = together.min(TOGETHER_LEN_MAX.max(expected / 4));
        let waits = expected > 1 && !is_gathered && self.unpaid == 0;
        self.expected = if waits { self.turns } else { 0 };
        self.until = if waits { now + took / 2 } else { now };
    }

    /// What to do with `queued` turns at the time `now`.
    pub(crate) fn decide(&self, queued: usize, now: Duration) -> ConvoyDecision {
        let remaining = self.until.saturating_sub(now);
        if remaining.is_zero() || queued >= self.turns {
            if queued > 0 {
                ConvoyDecision::Commit
            } else {
                ConvoyDecision::Idle
            }
        } else {
            ConvoyDecision::Wait {
                time: remaining,
                turns: self.turns,
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
                turns: expected,
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
                turns: 30
            }
        );
        assert_eq!(
            convoy.decide(29, 350 * US),
            ConvoyDecision::Wait {
                time: 50 * US,
                turns: 30
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

    /// With batches counted, two sweeps of a shard with sixteen turns each did not wait for a third.
    #[test]
    fn turns_are_waited_for_however_few_batches_they_came_in() {
        let mut convoy = Convoy::default();
        convoy.committed((2, 16), 16, 200 * US, 300 * US);
        let decision = ConvoyDecision::Wait {
            time: 100 * US,
            turns: 30,
        };
        assert_eq!(convoy.decide(16, 300 * US), decision);
        assert_eq!(convoy.decide(30, 300 * US), ConvoyDecision::Commit);
    }

    #[test]
    fn a_wait_that_brought_few_is_not_repeated_for_some_commits() {
        let mut convoy = Convoy::default();
        convoy.committed((2, 100), 0, 200 * US, 300 * US);
        assert!(matches!(convoy.decide(3, 300 * US), ConvoyDecision::Wait { .. }));
        for _ in 0..UNPAID_LEN {
            convoy.committed((1, 3), 3, 200 * US, 600 * US);
            assert_eq!(convoy.decide(3, 600 * US), ConvoyDecision::Commit);
        }
        convoy.committed((1, 3), 3, 200 * US, 600 * US);
        assert!(matches!(convoy.decide(3, 600 * US), ConvoyDecision::Wait { .. }));
    }
}
