//! A run's history as it is shown: page by page, from what is durable.

use millrun_core::{RunId, Sequence, Timestamp};
use millrun_workflow::Event;

/// A part of a run's history, as long as [`Runtime::history`](crate::Runtime::history) was asked for at most.
///
/// The next page begins behind the last event of this one; [`next`](Self::next) says where. An event never changes
/// once it is there, so that pages that are read one after another fit, also while the run goes on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HistoryPage {
    /// The run.
    pub run: RunId,
    /// The events, in order and without gaps.
    pub events: Vec<RecordedEvent>,
    /// The number of the run's last event that is durable.
    pub head: Sequence,
    /// If events between the one that was asked for and the first of this page are gone, because a checkpoint has
    /// made them superfluous: the number before which there are none any more. An
    /// [archive](crate::store::Archive) has them, if there was one.
    pub trimmed_before: Option<Sequence>,
}

impl HistoryPage {
    /// Where the next page begins, behind which event; `None` if there is none so far: a run that has not ended gets
    /// more.
    #[must_use]
    pub fn next(&self) -> Option<Sequence> {
        let last = self.events.last()?.sequence;
        (last < self.head).then_some(last)
    }
}

/// One event of a history: when it was recorded, and what it says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// Its number: the first event of a run has 1.
    pub sequence: Sequence,
    /// When it was decided.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}
