//! What a shard asks a reader about the finished runs of an id, and what it is told.

use millrun_core::{Epoch, InstanceId, RunId};
use millrun_persistence::ReadError;
use millrun_workflow::{ChildFailure, OperationId, OutcomeKind, Payload};

use crate::RunError;

/// Which finished run of an instance is the latest?
#[derive(Clone, Debug)]
pub(crate) struct AskFinished {
    pub(crate) id: InstanceId,
    /// The epoch of the id's partition under which the shard asks: no other life of it believes the answer.
    pub(crate) life: Epoch,
    /// Whether the history of that run is also to be read: whose child it is, and how it ended.
    pub(crate) reads_history: bool,
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
        }
    }

    /// This run, and nothing was read of it.
    pub(crate) fn run(run: RunId) -> Self {
        Self::unread(Ok(Some(run)))
    }
}
