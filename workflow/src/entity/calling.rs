//! Commands that workflows send to entities, with their answers.
//!
//! ```text
//!   workflow ── call of an activity of millrun's own ──► attempt ── command, under the call as its request ──► entity
//!      ▲                                                                                                         │
//!      └── its result: answered, or rejected ◄───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The activity may run twice; the entity performs the command once, since each attempt uses the same request name.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Activity, ActivityError, Call, CallError, Payload, PayloadError, TypedError};

/// The activity by which workflows send commands to entities. It is built into a runtime.
pub const ENTITY_COMMAND: Activity<EntityOrder, EntityAnswer> = Activity::named("millrun.entity.command");

/// The command and its entity: the input of [`ENTITY_COMMAND`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntityOrder {
    /// The name of the entity.
    pub entity: String,
    /// The id of the instance that it is.
    pub id: String,
    /// The name of the command.
    pub command: String,
    /// The payload of its input.
    #[serde(with = "serde_bytes")]
    pub input: Vec<u8>,
}

/// The answer to a command: the result of [`ENTITY_COMMAND`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum EntityAnswer {
    /// It was performed, and has this payload as its answer.
    Given(#[serde(with = "serde_bytes")] Vec<u8>),
    /// It was rejected with the error in this payload.
    Rejected(#[serde(with = "serde_bytes")] Vec<u8>),
}

/// A command that a workflow has an entity perform; made by
/// [`WorkflowContext::command`](crate::WorkflowContext::command).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. Dropped later, the command may be performed or not.
#[derive(Debug)]
#[must_use = "no command is performed until it is awaited"]
pub struct EntityStep<A, E> {
    /// The call; or why the input did not encode.
    call: Result<Call<EntityAnswer, ActivityError>, Option<PayloadError>>,
    types: PhantomData<fn() -> (A, E)>,
}

impl<A, E> EntityStep<A, E> {
    pub(crate) fn new(call: Result<Call<EntityAnswer, ActivityError>, PayloadError>) -> Self {
        Self {
            call: call.map_err(Some),
            types: PhantomData,
        }
    }

    /// Changes the options of the call: retries, timeouts and its task queue. No effect once polled.
    pub fn with(
        mut self,
        change: impl FnOnce(Call<EntityAnswer, ActivityError>) -> Call<EntityAnswer, ActivityError>,
    ) -> Self {
        self.call = self.call.map(change);
        self
    }
}

impl<A: DeserializeOwned, E: TypedError> Future for EntityStep<A, E> {
    type Output = Result<A, EntityStepError<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = match &mut self.get_mut().call {
            Ok(call) => call,
            Err(error) => {
                let error = error.take().unwrap_or(PayloadError::Empty);
                return Poll::Ready(Err(EntityStepError::Payload(error)));
            }
        };
        let stored = |bytes: Vec<u8>| Payload::from_bytes(bytes.into());
        Pin::new(call).poll(cx).map(|ended| match ended {
            Ok(EntityAnswer::Given(answer)) => stored(answer).decode().map_err(EntityStepError::Payload),
            Ok(EntityAnswer::Rejected(error)) => Err(stored(error)
                .decode()
                .map_or_else(EntityStepError::Payload, EntityStepError::Rejected)),
            Err(error) => Err(EntityStepError::Call(error)),
        })
    }
}

/// Why a command of a workflow has no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum EntityStepError<E> {
    /// Its handler said no.
    Rejected(E),
    /// It was not performed, or it is unknown whether it was: the call failed for good, timed out or was cancelled.
    Call(CallError<ActivityError>),
    /// The input did not encode, or the answer or the rejection is not of the expected type.
    Payload(PayloadError),
}

impl<E: fmt::Display> fmt::Display for EntityStepError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) => write!(f, "the command was rejected: {error}"),
            Self::Call(_) => f.write_str("the entity did not perform the command"),
            Self::Payload(_) => f.write_str("a value of the command is not of the expected type"),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> Error for EntityStepError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Call(error) => Some(error),
            Self::Payload(error) => Some(error),
            Self::Rejected(_) => None,
        }
    }
}
