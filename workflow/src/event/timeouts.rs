//! How long a run may take, and a chain of runs.
//!
//! ```text
//!   start ─ delay ─┬─ run ── as new ─┬─ run ── fails ─ pause ─┬─ run ── …
//!                  ├─ run timeout ┤  ├─ run timeout ┤         ├─ run timeout ┤
//!                  └────────────────── chain timeout ──────────────────────────┤
//! ```
//!
//! A chain is the runs of an instance from one start on, each of which goes on from the one before. Invariant: when a run is out
//! of time follows from its first event alone, so that nothing else has to be kept for it.

use std::fmt;
use std::time::Duration;

use millrun_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::micros;

/// Which of the timeouts of a run passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RunTimeout {
    /// That of the run: it took longer, from when it began.
    Run,
    /// That of its chain: all runs from the start on, with the pauses between them, took longer.
    Chain,
}

impl RunTimeout {
    /// Its name in texts, JSON and options: `run` or `chain`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Chain => "chain",
        }
    }
}

impl fmt::Display for RunTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How long a run that begins may take, and the chain that it begins; what is left out is not bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartTimeouts {
    /// Each run of the chain by itself.
    #[serde(
        rename = "run_us",
        with = "micros::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub run: Option<Duration>,
    /// All runs of the chain together.
    #[serde(
        rename = "chain_us",
        with = "micros::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub chain: Option<Duration>,
}

/// When a run is out of time, as its first event says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTimeouts {
    /// How long the run may take, and each that goes on from it.
    #[serde(
        rename = "run_us",
        with = "micros::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub run: Option<Duration>,
    /// From when on that is counted, if not from when the run began: the run has the events of one that was reset then.
    #[serde(rename = "since_us", default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When the time of the chain is over.
    #[serde(rename = "chain_ends_us", default, skip_serializing_if = "Option::is_none")]
    pub chain_ends: Option<Timestamp>,
}

/// The time at which a run that has not ended is out of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDeadline {
    /// That time.
    #[serde(rename = "at_us")]
    pub at: Timestamp,
    /// Which timeout passes then; the chain's, if both do.
    pub timeout: RunTimeout,
}

impl StartTimeouts {
    /// Bounds the run or the chain. What is kept is whole microseconds, rounded up: no run is out of time early.
    pub fn bound(&mut self, which: RunTimeout, timeout: Duration) {
        let timeout = Duration::from_micros((Timestamp::EPOCH + timeout).as_micros());
        match which {
            RunTimeout::Run => self.run = Some(timeout),
            RunTimeout::Chain => self.chain = Some(timeout),
        }
    }

    /// Whether one of them is over at once, which nobody can mean.
    #[must_use]
    pub fn are_over(&self) -> bool {
        let Self { run, chain } = self;
        [run, chain]
            .into_iter()
            .flatten()
            .any(|timeout| timeout.is_zero())
    }

    /// What the first event of a run says that begins at this time; `None` if nothing is bounded.
    #[must_use]
    pub fn beginning_at(&self, begins: Timestamp) -> Option<RunTimeouts> {
        let Self { run, chain } = *self;
        (run.is_some() || chain.is_some()).then(|| RunTimeouts {
            run,
            since: None,
            chain_ends: chain.map(|chain| begins + chain),
        })
    }
}

impl RunTimeouts {
    /// Those of the run that goes on from this one.
    pub(crate) fn of_next(&self) -> Self {
        Self { since: None, ..*self }
    }

    /// When a run that began then is out of time.
    pub(crate) fn deadline(&self, began: Timestamp) -> Option<RunDeadline> {
        let run = self.run.map(|run| RunDeadline {
            at: self.since.unwrap_or(began) + run,
            timeout: RunTimeout::Run,
        });
        let chain = self.chain_ends.map(|at| RunDeadline {
            at,
            timeout: RunTimeout::Chain,
        });
        match (run, chain) {
            (Some(run), Some(chain)) => Some(if run.at < chain.at { run } else { chain }),
            (run, chain) => run.or(chain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn the_earlier_timeout_passes_and_of_two_at_once_the_chains() {
        let timeouts = |run: Option<u64>, chain: Option<u64>| StartTimeouts {
            run: run.map(Duration::from_secs),
            chain: chain.map(Duration::from_secs),
        };
        let passes = |run, chain| {
            let stored = timeouts(run, chain).beginning_at(at(100))?;
            let deadline = stored.deadline(at(100))?;
            Some((deadline.at.as_micros() / 1_000_000, deadline.timeout))
        };
        assert_eq!(passes(None, None), None);
        assert_eq!(passes(Some(5), None), Some((105, RunTimeout::Run)));
        assert_eq!(passes(None, Some(7)), Some((107, RunTimeout::Chain)));
        assert_eq!(passes(Some(5), Some(7)), Some((105, RunTimeout::Run)));
        assert_eq!(passes(Some(7), Some(7)), Some((107, RunTimeout::Chain)));
        assert_eq!(passes(Some(8), Some(7)), Some((107, RunTimeout::Chain)));
    }

    #[test]
    fn what_is_below_a_microsecond_is_rounded_up_and_what_is_beyond_all_time_is_its_end() {
        let stored = |run| {
            let mut timeouts = StartTimeouts::default();
            timeouts.bound(RunTimeout::Run, run);
            timeouts.beginning_at(at(1)).unwrap()
        };
        assert_eq!(
            stored(Duration::from_nanos(1)).run,
            Some(Duration::from_micros(1))
        );
        let never = stored(Duration::MAX).deadline(at(1)).unwrap();
        assert_eq!(never.at, Timestamp::MAX);
    }
}
