//! Commands of clients for entities.

use std::fmt;

use millrun_core::InstanceId;
use millrun_workflow::{InputRefused, Name, Payload};

use super::reply::Reply;
use crate::{RunError, StartError, StopCause};

/// A command for an entity. If the entity does not live, it begins with the command.
#[derive(Debug)]
pub(crate) struct CommandRequest {
    pub(crate) id: InstanceId,
    pub(crate) workflow: Name,
    pub(crate) command: EntityRequest,
    pub(crate) reply: CommandReply,
}

/// The content of a command.
#[derive(Clone, Debug)]
pub(crate) struct EntityRequest {
    /// The name of the request, if it has one.
    pub(crate) request: Option<Box<str>>,
    pub(crate) name: Name,
    pub(crate) input: Payload,
}

/// Where the answer to a command goes.
pub(crate) type CommandReply = Reply<Payload, CommandRefused>;

/// Why a command has no answer.
#[derive(Clone, Debug)]
pub(crate) enum CommandRefused {
    /// There is no entity, and none can begin.
    Start(StartError),
    Run(RunError),
}

impl CommandRefused {
    /// Whether the entity may perform the command when it is asked again.
    pub(crate) fn may_be_performed_later(&self) -> bool {
        match self {
            Self::Start(error) => error.is_retryable(),
            Self::Run(RunError::Refused(InputRefused::StillParked(_))) => true,
            Self::Run(error) => error.is_retryable(),
        }
    }
}

impl fmt::Display for CommandRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl From<RunError> for CommandRefused {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<StartError> for CommandRefused {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl From<StopCause> for CommandRefused {
    fn from(cause: StopCause) -> Self {
        Self::Run(cause.into())
    }
}
