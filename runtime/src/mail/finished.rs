//! A shard's question to a reader about the finished runs of an id, and the answer.

use millrun_core::{Epoch, InstanceId, RunId, Sequence, Timestamp};
use millrun_persistence::ReadError;
use millrun_workflow::{
    ChildFailure, Event, LaterSignals, OperationId, OutcomeKind, Payload, ResetPoint, Started,
};

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
    /// And the events with which it is reset.
    ToReset(ResetReads),
}

/// Which part of a history a run is reset with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResetReads {
    /// The last event that is kept.
    pub(crate) to: Sequence,
    pub(crate) later: LaterSignals,
}

impl From<&ResetPoint> for ResetReads {
    fn from(point: &ResetPoint) -> Self {
        Self {
            to: point.to,
            later: point.later,
        }
    }
}

/// The events with which a run is reset.
#[derive(Debug)]
pub(crate) struct ResetReading {
    pub(crate) began: Box<Started>,
    /// The events up to the last one that is kept, those that were decided with it, and those that are told again; or why the
    /// run cannot be reset there.
    pub(crate) events: Result<Vec<(Event, Timestamp)>, RunError>,
}

/// The answer to an [`AskFinished`].
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) ask: AskFinished,
    /// `None` if the reader failed before it had found out.
    pub(crate) found: Option<Found>,
    /// The events with which that run is reset, if they were asked for.
    pub(crate) to_reset: Option<Box<Result<ResetReading, RunError>>>,
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
        }
    }

    /// This run, of which nothing was read.
    pub(crate) fn run(run: RunId) -> Self {
        Self::unread(Ok(Some(run)))
    }
}
