//! A shard's question to a reader about the finished runs of an id, and the answer.

use std::sync::Arc;

use millrun_core::{Epoch, InstanceId, RunId, Sequence, Timestamp};
use millrun_persistence::ReadError;
use millrun_workflow::{ChildFailure, Event, OperationId, OutcomeKind, Payload, Started};

use super::local::Story;
use crate::RunError;

/// Which finished run of an instance is the latest?
#[derive(Clone, Debug)]
pub(crate) struct AskFinished {
    pub(crate) id: InstanceId,
    /// The epoch of the id's partition under which the shard asks. Under any other epoch the answer is ignored.
    pub(crate) life: Epoch,
    pub(crate) reads: FinishedReads,
}

/// How much is read of a finished run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FinishedReads {
    /// Which run it is.
    #[default]
    Run,
    /// Also whose child it is, and its outcome.
    End,
    /// Also its whole history.
    Events,
}

/// The answer to an [`AskFinished`].
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) ask: AskFinished,
    /// `None` if the reader failed before it had found out.
    pub(crate) found: Option<Found>,
}

/// What is known of the finished runs of an instance.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The latest retained run.
    pub(crate) finished: Result<Option<RunId>, ReadError>,
    /// If that run is a child, its parent and its end; `None` if that was not read.
    pub(crate) child: Option<Result<Option<EndedChild>, RunError>>,
    /// The outcome of that run; `None` if that was not read.
    pub(crate) outcome: Option<Result<OutcomeKind, RunError>>,
    /// All events of its history; `None` if that was not read.
    pub(crate) whole: Option<Box<Result<WholeHistory, RunError>>>,
}

/// All events of a history, with the times at which they were recorded. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct WholeHistory {
    pub(crate) events: Arc<[(Event, Timestamp)]>,
    /// The last event that was trimmed, if some were.
    pub(crate) trimmed: Option<Sequence>,
}

impl WholeHistory {
    pub(crate) fn of(story: &Story) -> Self {
        Self {
            events: story.events.as_slice().into(),
            trimmed: story.kept.as_ref().map(|kept| kept.sequence()),
        }
    }

    /// The beginning of the run, unless it was trimmed.
    pub(crate) fn started(&self) -> Option<&Started> {
        match self.events.first() {
            Some((Event::Started(started), _)) => Some(started),
            _ => None,
        }
    }
}

/// A child that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedChild {
    /// The run and the operation that began it.
    pub(crate) parent: (RunId, OperationId),
    pub(crate) end: Result<Payload, ChildFailure>,
}

impl Found {
    /// The id has no finished run.
    pub(crate) fn none() -> Self {
        Self::unread(Ok(None))
    }

    /// An answer that was found without the run's history.
    pub(crate) fn unread(finished: Result<Option<RunId>, ReadError>) -> Self {
        Self {
            finished,
            child: None,
            outcome: None,
            whole: None,
        }
    }

    /// This run, of which nothing was read.
    pub(crate) fn run(run: RunId) -> Self {
        Self::unread(Ok(Some(run)))
    }
}
