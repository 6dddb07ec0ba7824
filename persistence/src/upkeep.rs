//! Upkeep that a caller asks for: its number, and its result.
//!
//! ```text
//!   Journal::upkeep ──► asked ──► the journal does what is due ──► finished ──► bells ──► Journal::upkept
//! ```

use millrun_core::{Bell, Timestamp};

use crate::error::JournalFailure;
use crate::journal::Ringing;

/// Identifies an upkeep that a journal was [asked for](crate::Journal::upkeep). A later one has a higher number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpkeepNumber(u64);

/// Why a journal has not done all upkeep that was due.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpkeepUndone {
    /// The archive cannot be written. Everything that it must get is kept, and nothing is lost: make room on the archive's
    /// disk, and ask again.
    #[error(
        "the archive cannot be written, so what it has to get first is kept: see that its folder can be written, and ask again"
    )]
    Archive,
    /// The data that say which runs may be dropped, or the runs themselves, are damaged, and stay so: restore a backup, or
    /// salvage the store.
    #[error("what may be dropped is damaged and stays: restore a backup, or salvage the store")]
    Damaged,
    /// The journal has failed or was closed.
    #[error(transparent)]
    Failed(#[from] JournalFailure),
}

/// The upkeeps that a journal was asked for, as it keeps them under its lock.
///
/// All that wait are done together, as of the latest time that any of them has given.
///
/// ```
/// use millrun_core::{Bell, Timestamp};
/// use millrun_persistence::Upkeeps;
///
/// let (mut upkeeps, bell) = (Upkeeps::default(), Bell::new());
/// let number = upkeeps.ask(Timestamp::EPOCH, bell.clone());
/// let (upto, now) = upkeeps.next().expect("one was asked for");
/// // Do what is due at `now`, then:
/// drop(upkeeps.finish(upto, Ok(())));
/// assert_eq!((upkeeps.outcome(number), bell.answer(), now), (Some(Ok(())), true, Timestamp::EPOCH));
/// ```
#[derive(Debug)]
pub struct Upkeeps {
    asked: u64,
    finished: u64,
    now: Timestamp,
    /// The callers that wait, each with the number of its upkeep.
    waiting: Vec<(u64, Bell)>,
    outcome: Result<(), UpkeepUndone>,
}

impl Default for Upkeeps {
    fn default() -> Self {
        Self {
            asked: 0,
            finished: 0,
            now: Timestamp::EPOCH,
            waiting: Vec::new(),
            outcome: Ok(()),
        }
    }
}

impl Upkeeps {
    /// Notes one more request; the bell is kept until it is finished.
    pub fn ask(&mut self, now: Timestamp, bell: Bell) -> UpkeepNumber {
        self.asked += 1;
        self.now = self.now.max(now);
        self.waiting.push((self.asked, bell));
        UpkeepNumber(self.asked)
    }

    /// The latest unfinished request, and the time up to which all waiting ones are due.
    #[must_use]
    pub fn next(&self) -> Option<(UpkeepNumber, Timestamp)> {
        (self.asked > self.finished).then_some((UpkeepNumber(self.asked), self.now))
    }

    /// This upkeep and all before it are finished. The callers that wait for them are told when the returned value is
    /// dropped, which must happen outside of the lock.
    pub fn finish(&mut self, number: UpkeepNumber, outcome: Result<(), UpkeepUndone>) -> Ringing {
        if number.0 <= self.finished {
            return Ringing::default();
        }
        (self.finished, self.outcome) = (number.0, outcome);
        let told = self.waiting.extract_if(.., |(asked, _)| *asked <= number.0);
        Ringing::of(told.map(|(_, bell)| bell).collect())
    }

    /// Tells all waiting callers that the journal has failed.
    pub fn fail(&mut self, failure: &JournalFailure) -> Ringing {
        self.finish(UpkeepNumber(self.asked), Err(failure.clone().into()))
    }

    /// The result of an upkeep, or of a later one that was finished with it; `None` before.
    #[must_use]
    pub fn outcome(&self, number: UpkeepNumber) -> Option<Result<(), UpkeepUndone>> {
        (number.0 <= self.finished).then(|| self.outcome.clone())
    }
}
