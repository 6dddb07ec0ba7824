//! Tries runs that may move to the newest version of their workflow: replays them with the new code, on the thread that has
//! read the history, without effects.
//!
//! ```text
//!   shard: asks for a history, holds back what comes ──► reader lane: reads, replays with the newest code
//!     ▲                                                            │ it fits, or must
//!     └── takes the run over, records `VersionChanged` ◄───────────┘ it does not fit ──► its own code
//! ```
//!
//! Invariants: a run whose history is being read makes no turn, so the shard continues with what was tried; a run only has
//! its new code behind the event that says so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use millrun_core::{RunId, Sequence};
use millrun_workflow::{Event, Instance, VersionPolicy};
use rustc_hash::FxHashMap;

use super::workflows::Beginning;
use crate::mail::Story;
use crate::shared::ShardShared;

/// How many runs are remembered that did not fit the newest code, so that they are not tried at each read. When there are
/// more, all are forgotten, and tried once more.
pub(crate) const UNFIT_LEN_MAX: usize = 65_536;

/// The results of trials since the runtime started.
#[derive(Debug, Default)]
pub(crate) struct VersionTrials {
    /// The runs that did not fit, with the checkpoint from which they were tried: behind a later checkpoint they may fit.
    unfit: Mutex<FxHashMap<RunId, Sequence>>,
    moved: AtomicU64,
    unfit_len: AtomicU64,
}

/// A run that was replayed with the newest code of its workflow, and continues with that.
#[derive(Debug)]
pub(crate) struct TriedRun {
    /// With the newest code.
    pub(crate) instance: Box<Instance>,
    /// Whether the code fits. If not, the run has to move anyway, and is parked with the difference.
    pub(crate) is_fit: bool,
}

impl VersionTrials {
    /// How many runs have moved to a newer version.
    pub(crate) fn moved_len(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// How many trials found that the newest code does not fit.
    pub(crate) fn unfit_len(&self) -> u64 {
        self.unfit_len.load(Ordering::Relaxed)
    }

    /// Counts a run that has moved.
    pub(crate) fn note_moved(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    fn is_known_unfit(&self, run: RunId, from: Sequence) -> bool {
        let unfit = self.unfit.lock().unwrap_or_else(PoisonError::into_inner);
        unfit.get(&run) == Some(&from)
    }

    fn note_unfit(&self, run: RunId, from: Sequence) {
        self.unfit_len.fetch_add(1, Ordering::Relaxed);
        let mut unfit = self.unfit.lock().unwrap_or_else(PoisonError::into_inner);
        if unfit.len() >= UNFIT_LEN_MAX && !unfit.contains_key(&run) {
            unfit.clear();
        }
        unfit.insert(run, from);
    }
}

impl ShardShared {
    /// Tries a run that was read with the newest code of its workflow, if the policy lets it move.
    pub(crate) fn with_trial(&self, run: RunId, mut story: Story) -> Story {
        let started = story.started();
        let beginning = started.map(|started| Beginning::of(started, story.version));
        let Some(newest) = beginning.and_then(|beginning| self.workflows.code_to_move(beginning)) else {
            return story;
        };
        let is_last = story.events.last().is_some_and(|(event, _)| event.is_last());
        let from = story.replayed_from();
        let must_move = newest.version_policy() == VersionPolicy::MustMove;
        if is_last || (!must_move && self.trials.is_known_unfit(run, from)) {
            return story;
        }
        let tried = self.replay(Some(newest), run, story.to_try());
        // The shard reports a history that cannot be replayed at all.
        let Ok(instance) = tried else { return story };
        let is_fit = instance.has_code();
        if !is_fit {
            self.trials.note_unfit(run, from);
        }
        if is_fit || must_move {
            let instance = Box::new(instance);
            story.tried = Some(TriedRun { instance, is_fit });
        }
        story
    }
}

impl Story {
    /// The sequence of the last checkpoint from which the code can begin; zero if it begins with the run.
    fn replayed_from(&self) -> Sequence {
        let is_restorable =
            |(event, _): &(Event, _)| matches!(event, Event::Checkpointed(checkpoint) if checkpoint.is_whole);
        let behind = self.events.iter().rev().position(is_restorable);
        match behind {
            Some(behind) => Sequence::new(self.head.get().saturating_sub(behind as u64)),
            None => self.kept.as_ref().map_or(Sequence::ZERO, |kept| kept.sequence()),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, Timestamp};

    use super::*;

    #[test]
    fn a_run_is_tried_again_behind_a_later_checkpoint_and_what_is_remembered_is_bounded() {
        let trials = VersionTrials::default();
        let run = |number| RunId::new(Partition::of(b"x"), Timestamp::EPOCH, number);
        trials.note_unfit(run(0), Sequence::new(3));
        assert!(trials.is_known_unfit(run(0), Sequence::new(3)));
        assert!(!trials.is_known_unfit(run(0), Sequence::new(9)));
        assert!(!trials.is_known_unfit(run(1), Sequence::new(3)));
        for number in 1..=UNFIT_LEN_MAX as u64 {
            trials.note_unfit(run(number), Sequence::ZERO);
        }
        let len = trials.unfit.lock().unwrap().len();
        assert_eq!((len, trials.unfit_len()), (1, UNFIT_LEN_MAX as u64 + 1));
    }
}
