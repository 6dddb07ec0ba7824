//! The results of runs that have ended, kept at hand for a while.
//!
//! ```text
//!   a run ends ──► [ oldest │ … │ durable ║ not yet │ … │ youngest ]
//!                     │             ▲
//!   too many ◄────────┘             └── its last turn is durable
//! ```
//!
//! They stand side by side in the order of the runs' ends. So the oldest, which is dropped next, is found without a detour
//! through memory that has left the cache.
//!
//! Invariant: turns become durable in the order in which runs end.

use std::collections::VecDeque;

use millrun_core::{RunId, Timestamp};
use millrun_workflow::Outcome;

#[derive(Debug, Default)]
pub(in crate::shard) struct Results {
    /// Oldest first.
    kept: VecDeque<Kept>,
    /// The number of results that have been dropped.
    gone_len: u64,
    /// The number and the size of the kept results that are durable.
    durable_len: usize,
    durable_bytes: usize,
    /// How many runs were considered for a [check](Self::is_checked).
    asked_len: u64,
}

#[derive(Debug)]
struct Kept {
    run: RunId,
    outcome: Outcome,
}

/// Names a result: the number of results before it.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct ResultNumber(u64);

impl Results {
    /// Keeps the result of a run that ends.
    pub(in crate::shard) fn keep(&mut self, run: RunId, outcome: Outcome) -> ResultNumber {
        let number = ResultNumber(self.ended_len());
        self.kept.push_back(Kept { run, outcome });
        number
    }

    /// Empties the place of a run that has not ended after all, or belongs to another owner. The place stays, so that other
    /// results keep their numbers.
    pub(in crate::shard) fn void(&mut self, number: ResultNumber) {
        let place = number.0.checked_sub(self.gone_len);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(place) = place
            && let Some(kept) = self.kept.get_mut(place)
        {
            if place < self.durable_len {
                self.durable_bytes -= bytes_of(&kept.outcome);
            }
            kept.run = RunId::new(kept.run.partition(), Timestamp::EPOCH, 0);
            kept.outcome = Outcome::Terminated(String::new());
        }
    }

    /// A result that has not been dropped.
    pub(in crate::shard) fn get(&self, number: ResultNumber) -> Option<&Outcome> {
        let place = usize::try_from(number.0.checked_sub(self.gone_len)?).ok()?;
        Some(&self.kept.get(place)?.outcome)
    }

    /// How many results there have been.
    pub(in crate::shard) fn ended_len(&self) -> u64 {
        self.gone_len + self.kept.len() as u64
    }

    /// Of the first `len` results, which are durable, counts the oldest that was not counted yet, and returns its run.
    pub(in crate::shard) fn next_durable(&mut self, len: u64) -> Option<RunId> {
        if self.gone_len + self.durable_len as u64 >= len {
            return None;
        }
        let kept = self.kept.get(self.durable_len)?;
        self.durable_bytes += bytes_of(&kept.outcome);
        self.durable_len += 1;
        Some(kept.run)
    }

    /// Whether the run that was just counted as durable is replayed as a check: one in `every`.
    pub(in crate::shard) fn is_checked(&mut self, every: u64) -> bool {
        self.asked_len += 1;
        self.asked_len.is_multiple_of(every)
    }

    /// Drops the oldest result, and names its run, if more than `len_max` durable results are kept, or more than `bytes_max` of them.
    pub(in crate::shard) fn let_go(&mut self, len_max: usize, bytes_max: usize) -> Option<RunId> {
        if self.durable_len <= len_max && self.durable_bytes <= bytes_max {
            return None;
        }
        let Kept { run, outcome } = self.kept.pop_front()?;
        self.gone_len += 1;
        self.durable_len -= 1;
        self.durable_bytes -= bytes_of(&outcome);
        Some(run)
    }
}

/// The memory that a result holds, in bytes.
fn bytes_of(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Completed(value) => value.len(),
        Outcome::Failed(error) | Outcome::Cancelled(error) => error.error.len() + error.message.len(),
        Outcome::Terminated(reason) => reason.len(),
        Outcome::TimedOut(_) | Outcome::Continued(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::Partition;

    use super::*;

    fn run(number: u64) -> RunId {
        RunId::new(Partition::of(b"x"), Timestamp::EPOCH, number)
    }

    fn reason(results: &Results, number: ResultNumber) -> Option<&str> {
        results.get(number).map(|outcome| match outcome {
            Outcome::Terminated(reason) => reason.as_str(),
            _ => "",
        })
    }

    #[test]
    fn the_oldest_go_first_and_only_durable_ones_count() {
        let mut results = Results::default();
        let numbers: Vec<_> = (0..5)
            .map(|number| results.keep(run(number), Outcome::Terminated(number.to_string())))
            .collect();
        assert_eq!(results.let_go(2, 100), None);
        assert_eq!(results.ended_len(), 5);
        assert_eq!(results.next_durable(2), Some(run(0)));
        assert_eq!(results.next_durable(2), Some(run(1)));
        assert_eq!(results.next_durable(2), None);
        assert_eq!(results.next_durable(3), Some(run(2)));
        assert_eq!(results.let_go(2, 100), Some(run(0)));
        assert_eq!(results.let_go(2, 100), None);
        assert_eq!(reason(&results, numbers[0]), None);
        assert_eq!(reason(&results, numbers[1]), Some("1"));
        assert_eq!(reason(&results, numbers[4]), Some("4"));
        assert_eq!(
            results.let_go(2, 1),
            Some(run(1)),
            "two durable bytes are more than one"
        );
        assert_eq!(results.let_go(2, 1), None);
        assert_eq!(results.let_go(0, 100), Some(run(2)));
        assert_eq!(results.let_go(0, 0), None, "what is not durable stays");
        assert_eq!(reason(&results, numbers[3]), Some("3"));
    }
}
