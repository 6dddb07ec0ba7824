//! What a shard asks a reader about the finished runs of an id, and what it is told.

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
    /// The epoch of the id's partition under which the shard asks: no other life of it believes the answer.
    pub(crate) life: Epoch,
    pub(crate) reads: FinishedReads,
}

/// What is to be read of a finished run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FinishedReads {
    /// Which it is.
    #[default]
    Run,
    /// Also whose child it is, and how it ended.
    End,
    /// And all that its history has.
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
    /// The latest that is retained.
    pub(crate) finished: Result<Option<RunId>, ReadError>,
    /// Whose child that run is, if it is one; `None` if that was not read.
    pub(crate) child: Option<Result<Option<EndedChild>, RunError>>,
    /// How that run ended; `None` if that was not read.
    pub(crate) outcome: Option<Result<OutcomeKind, RunError>>,
    /// All that its history has; `None` if that was not read.
    pub(crate) whole: Option<Box<Result<WholeHistory, RunError>>>,
}

/// All events that a history has, with the times at which they were recorded. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct WholeHistory {
    pub(crate) events: Arc<[(Event, Timestamp)]>,
    /// The last event of those that were trimmed, if some were.
    pub(crate) trimmed: Option<Sequence>,
}

impl WholeHistory {
    pub(crate) fn of(story: &Story) -> Self {
        Self {
            events: story.events.as_slice().into(),
            trimmed: story.kept.as_ref().map(|kept| kept.sequence()),
        }
    }

    /// How the run began, unless that was trimmed.
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
    /// There is none.
    pub(crate) fn none() -> Self {
        Self::unread(Ok(None))
    }

    /// This is known without its history.
    pub(crate) fn unread(finished: Result<Option<RunId>, ReadError>) -> Self {
        Self {
            finished,
            child: None,
            outcome: None,
            whole: None,
        }
    }

    /// This run, and nothing was read of it.
    pub(crate) fn run(run: RunId) -> Self {
        Self::unread(Ok(Some(run)))
    }
}
