//! A handle to an entity, by its key.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use millrun_core::{InstanceId, InstanceIdError};
use millrun_workflow::{
    Entity, EntityCommand, EntityState, InputRefused, Name, Payload, PayloadError, Query, RunFailure,
    TypedError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::inner::Inner;
use crate::mail::{
    CommandRefused, CommandRequest, EntityRequest, Latest, Question, Request, Standing, Target, Tell,
};
use crate::{QueryError, RunError, RunHandle, Runtime, StartError};

/// An entity, whether it lives already or not: the first command begins it. A cheap clone; it keeps the runtime alive.
///
/// Commands to one entity are performed one at a time; those of a caller that awaits each are performed in that order.
/// Entities with different keys are independent.
pub struct EntityHandle<S> {
    inner: Arc<Inner>,
    entity: Entity<S>,
    id: Result<InstanceId, InstanceIdError>,
}

impl<S> Clone for EntityHandle<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            entity: self.entity,
            id: self.id.clone(),
        }
    }
}

impl<S> fmt::Debug for EntityHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityHandle")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// A handle to the entity with this key. No request is sent, and nothing begins.
    ///
    /// The entity is the instance with the id [`name/key`](Entity::id_of). If the key makes this longer than 255 bytes, it is
    /// refused when the handle is used.
    ///
    /// ```
    /// use millrun::{Entity, EntityCommand, EntityContext, EntityState, Query, Runtime, WorkflowError};
    /// use serde::{Deserialize, Serialize};
    ///
    /// const COUNTER: Entity<Counter> = Entity::named("counter");
    /// const ADD: EntityCommand<Counter, u64, u64> = EntityCommand::named("add");
    /// const SUM: Query<Counter, (), u64> = Query::named("sum");
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Counter(u64);
    ///
    /// impl EntityState for Counter {
    ///     type Event = u64;
    ///
    ///     fn begin(_key: &str) -> Self {
    ///         Self(0)
    ///     }
    ///
    ///     fn apply(&mut self, added: u64) {
    ///         self.0 += added;
    ///     }
    /// }
    ///
    /// fn add(sum: &Counter, more: u64, cx: &mut EntityContext<'_, Counter>) -> Result<u64, WorkflowError> {
    ///     cx.emit(more);
    ///     Ok(sum.0 + more)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let counter = COUNTER.command(ADD, add).query(SUM, |sum, ()| sum.0);
    /// let runtime = Runtime::volatile().entity(counter).start().await?;
    /// let visits = runtime.entity(COUNTER, "visits");
    /// assert_eq!(visits.read(SUM, ()).await?, 0);
    /// assert_eq!(visits.call(ADD, 2).await?, 2);
    /// assert_eq!(visits.call(ADD, 3).request("r-1").await?, 5);
    /// assert_eq!(visits.call(ADD, 3).request("r-1").await?, 5);
    /// assert_eq!(visits.read(SUM, ()).await?, 5);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn entity<S: EntityState>(&self, entity: Entity<S>, key: &str) -> EntityHandle<S> {
        EntityHandle {
            inner: Arc::clone(self.inner()),
            entity,
            id: InstanceId::new(&entity.id_of(key)),
        }
    }
}

impl<S: EntityState> EntityHandle<S> {
    /// The key.
    ///
    /// # Errors
    /// When the id with this key is too long.
    pub fn key(&self) -> Result<&str, InstanceIdError> {
        let id = self.id.as_ref().map_err(Clone::clone)?;
        Ok(self.entity.key_of(id.as_str()).unwrap_or_default())
    }

    /// Sends the entity a command, once this is awaited. When it returns an answer, the decisions of the command are durable.
    ///
    /// To be able to repeat it after an error that does not say whether it was performed, name the
    /// [request](EntityCall::request).
    ///
    /// # Errors
    /// See [`CommandError`].
    ///
    /// # Cancel safety
    /// Dropping the future gives up the answer. The command may still be performed.
    pub fn call<I: Serialize, A, E>(
        &self,
        command: EntityCommand<S, I, A, E>,
        input: I,
    ) -> EntityCall<'_, A, E> {
        let encoded = Payload::encode(&input);
        // The value's own code may panic, which must not happen once the command is durable.
        drop(input);
        EntityCall {
            inner: &self.inner,
            workflow: self.entity.name(),
            id: self.id.clone(),
            name: command.name().into(),
            request: None,
            input: encoded,
            types: PhantomData,
        }
    }

    /// Queries the state. This records nothing; the answer is durable, and was true when it was asked: it waits for the
    /// commit of everything that it depends on, and for the journal's confirmation that the entity is still owned here. For
    /// an entity without commands yet, or a deleted one, the state at its beginning is queried.
    ///
    /// # Errors
    /// See [`QueryError`]. If the entity does not live and its code is not registered here, it contains
    /// [`RunError::NotFound`]; if the key is too long, [`RunError::Id`].
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn read<Q: Serialize, A: DeserializeOwned>(
        &self,
        query: Query<S, Q, A>,
        question: Q,
    ) -> Result<A, QueryError> {
        let id = self.id.as_ref().map_err(|error| RunError::Id(*error))?;
        let question = Question {
            name: query.name().into(),
            value: Payload::encode(&question).map_err(QueryError::Payload)?,
        };
        let answer = self.inner.read_entity(self.entity.name(), id, question).await?;
        answer.decode().map_err(QueryError::Payload)
    }

    /// Deletes the entity, as if it had never had a command. Returns whether it lived. What it has begun is finished first,
    /// and waited for: publishes, signals, starts; its timers are dropped. Its history is retained like that of any ended
    /// run; the names of its requests are forgotten.
    ///
    /// # Errors
    /// When it was not reached, or does not run: then [`RunError`] contains [`InputRefused::StillParked`], and it is deleted
    /// when it runs again. If the key is too long, [`RunError::Id`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the entity may be deleted or not.
    pub async fn delete(&self) -> Result<bool, RunError> {
        let id = self.id.as_ref().map_err(|error| RunError::Id(*error))?;
        self.inner.delete_entity(self.entity.name(), id).await
    }
}

/// A command in preparation, which is performed when it is awaited. Made by [`EntityHandle::call`].
#[must_use = "no command is performed until this is awaited"]
pub struct EntityCall<'a, A, E> {
    inner: &'a Arc<Inner>,
    workflow: &'static str,
    id: Result<InstanceId, InstanceIdError>,
    name: Name,
    request: Option<Box<str>>,
    input: Result<Payload, PayloadError>,
    types: PhantomData<fn() -> (A, E)>,
}

impl<A, E> fmt::Debug for EntityCall<'_, A, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityCall")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl<A: DeserializeOwned, E: TypedError> EntityCall<'_, A, E> {
    /// Names the request, with 1 to 255 bytes of the caller's choice: if it is repeated under the same name, the entity
    /// returns its earlier answer, and does nothing. It remembers the last [1,000](millrun_workflow::ANSWERS_LEN_MAX) named
    /// requests that it performed, without rejected ones. When it is deleted it forgets them.
    pub fn request(mut self, id: impl Into<Box<str>>) -> Self {
        self.request = Some(id.into());
        self
    }

    async fn perform(self) -> Result<A, CommandError<E>> {
        let Self {
            inner,
            workflow,
            id,
            name,
            request,
            input,
            types: _,
        } = self;
        let id = id.map_err(CommandError::Id)?;
        let command = EntityRequest {
            request,
            name,
            input: input.map_err(CommandError::Payload)?,
        };
        match inner.command(&workflow.into(), &id, &command).await {
            Ok(answer) => answer.decode().map_err(CommandError::Payload),
            Err(CommandRefused::Start(error)) => Err(CommandError::Start(error)),
            Err(CommandRefused::Run(RunError::Refused(InputRefused::Rejected { error, .. }))) => Err(error
                .decode()
                .map_or_else(CommandError::Payload, CommandError::Rejected)),
            Err(CommandRefused::Run(error)) => Err(CommandError::Run(error)),
        }
    }
}

/// The instance with this id, as an entity of this name.
fn target(entity: &'static str, id: &InstanceId) -> Target {
    Target::Latest(Arc::new(Latest {
        id: id.clone(),
        workflow: Some(entity.into()),
    }))
}

impl Inner {
    /// Queries the state of an entity, or the state at its beginning if it does not live.
    pub(crate) async fn read_entity(
        &self,
        entity: &'static str,
        id: &InstanceId,
        question: Question,
    ) -> Result<Payload, QueryError> {
        let target = target(entity, id);
        let (reply, answer) = oneshot::channel();
        let request = Request::Query {
            target: target.clone(),
            question: question.clone(),
            reply: reply.into(),
        };
        match self.ask(&target, request, answer).await {
            Err(QueryError::Run(RunError::NotFound | RunError::Finished | RunError::Expired)) => {
                let code = self.shared.workflows.code_of(entity);
                let code = code.ok_or(RunError::NotFound)?;
                code.query_begun(id, &question.name, &question.value)
                    .map_err(QueryError::Unanswered)
            }
            answer => answer,
        }
    }

    /// Ends an entity, and waits for its end. Returns whether it lived.
    pub(crate) async fn delete_entity(
        self: &Arc<Self>,
        entity: &'static str,
        id: &InstanceId,
    ) -> Result<bool, RunError> {
        let target = target(entity, id);
        let handle = RunHandle::<Payload, RunFailure>::new(Arc::clone(self), id.clone(), target);
        let reason = "the entity is deleted".into();
        match handle.tell(Tell::Cancel { reason }).await {
            Ok(()) => {}
            Err(RunError::NotFound | RunError::Finished | RunError::Expired) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.until_deleted(id).await.map(|()| true)
    }

    /// Has the entity with this id perform a command.
    pub(crate) async fn command(
        self: &Arc<Self>,
        workflow: &Name,
        id: &InstanceId,
        command: &EntityRequest,
    ) -> Result<Payload, CommandRefused> {
        loop {
            let (reply, answer) = oneshot::channel();
            let request = Request::Command(Box::new(CommandRequest {
                id: id.clone(),
                workflow: workflow.clone(),
                command: command.clone(),
                reply: reply.into(),
            }));
            match self.ask_at(self.doors.of(id.partition()), request, answer).await {
                Err(CommandRefused::Run(RunError::Refused(InputRefused::Ending))) => {
                    self.until_deleted(id).await?;
                }
                // It ended while this was on its way: another one begins.
                Err(CommandRefused::Run(RunError::Finished | RunError::NotFound)) => {}
                answered => return answered,
            }
        }
    }

    /// Waits until an entity that is being deleted has ended.
    async fn until_deleted(self: &Arc<Self>, id: &InstanceId) -> Result<(), RunError> {
        let target = Target::Latest(Arc::new(Latest {
            id: id.clone(),
            workflow: None,
        }));
        let handle = RunHandle::<Payload, RunFailure>::new(Arc::clone(self), id.clone(), target);
        match handle.standing().await {
            Ok(Standing::Ended(_)) | Err(RunError::NotFound | RunError::Expired) => Ok(()),
            Ok(Standing::Parked(reason)) => Err(InputRefused::StillParked(reason.to_string()).into()),
            Err(error) => Err(error),
        }
    }
}

impl<'a, A, E> IntoFuture for EntityCall<'a, A, E>
where
    A: DeserializeOwned + 'a,
    E: TypedError,
{
    type Output = Result<A, CommandError<E>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.perform())
    }
}

/// Why a command has no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum CommandError<E> {
    /// Its handler rejected it; nothing was recorded.
    Rejected(E),
    /// The argument could not be encoded, or the answer or the rejection does not have the expected type. In the latter case
    /// the command was performed, or rejected, nevertheless.
    Payload(PayloadError),
    /// The id with this key is too long.
    Id(InstanceIdError),
    /// The entity does not live, and cannot begin: there are too many live runs, say. Nothing was recorded.
    Start(StartError),
    /// It was not performed, for this reason; or, with [`RunError::Stopped`], it is unknown whether it was, and it can be
    /// repeated under its [request](EntityCall::request).
    Run(RunError),
}

impl<E> CommandError<E> {
    /// Whether the same call may succeed later. Without a [request](EntityCall::request) it may then be performed twice.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Start(error) => error.is_retryable(),
            Self::Run(error) => error.is_retryable(),
            Self::Rejected(_) | Self::Payload(_) | Self::Id(_) => false,
        }
    }
}

impl<E> From<RunError> for CommandError<E> {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl<E: fmt::Display> fmt::Display for CommandError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) => write!(f, "the command was rejected: {error}"),
            Self::Payload(_) => f.write_str("a value of the command is not of the expected type"),
            Self::Id(error) => write!(f, "the key of the entity makes no id: {error}"),
            Self::Start(error) => write!(f, "the entity cannot begin: {error}"),
            Self::Run(error) => write!(f, "the entity did not perform the command: {error}"),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for CommandError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Payload(error) => Some(error),
            Self::Id(error) => Some(error),
            Self::Start(error) => Some(error),
            Self::Run(error) => Some(error),
            Self::Rejected(_) => None,
        }
    }
}
