//! Why something cannot be traced.

use millrun_core::Sequence;
use millrun_persistence::ReadError;

use crate::{RunError, StopCause};

/// Why there is no page of a [trace](crate::Runtime::trace).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// There is no such run, it is not retained, or its history cannot be read.
    #[error("the run cannot be traced")]
    Run(#[source] RunError),
    /// The journal has no topic of this name.
    #[error("the journal keeps no topic {name:?}")]
    UnknownTopic {
        /// The name.
        name: String,
    },
    /// The token belongs to a record in another store.
    #[error("the token is of a record in another store")]
    OtherStore,
    /// The journal remembers no record of the topic with this id.
    #[error("the journal remembers no record of topic {topic:?} with this id")]
    UnknownId {
        /// The topic.
        topic: String,
    },
    /// Retention has dropped the record.
    #[error("record {sequence} of topic {topic:?} is gone: trimmed before {before}")]
    Trimmed {
        /// The topic.
        topic: String,
        /// The record.
        sequence: Sequence,
        /// The first record that is left, or will be the next.
        before: Sequence,
    },
    /// The topic has had no such record.
    #[error("topic {topic:?} has had no record {sequence}: the last one is {last}")]
    NotYet {
        /// The topic.
        topic: String,
        /// The record.
        sequence: Sequence,
        /// The last one.
        last: Sequence,
    },
    /// The record cannot be read.
    #[error("the record cannot be read")]
    Read(#[source] ReadError),
    /// The record does not decode.
    #[error("record {sequence} of topic {topic:?} cannot be decoded: {problem}")]
    Undecodable {
        /// The topic.
        topic: String,
        /// The record.
        sequence: Sequence,
        /// What is wrong with it.
        problem: String,
    },
    /// The cursor belongs to another kind of page.
    #[error("the cursor is of a trace of something else")]
    OtherCursor,
    /// The runtime has stopped.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

impl From<RunError> for TraceError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Stopped(cause) => Self::Stopped(cause),
            error => Self::Run(error),
        }
    }
}
