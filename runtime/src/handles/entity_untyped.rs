//! A handle to an entity by its name only, for operators.

use std::fmt;
use std::sync::Arc;

use millrun_core::{InstanceId, InstanceIdError};
use millrun_workflow::{InputRefused, Name, Payload};

use crate::inner::Inner;
use crate::mail::{CommandRefused, EntityRequest, Question};
use crate::{CommandError, QueryError, RunError, Runtime};

/// An entity by its name and its key, whether it lives already or not; made by [`Runtime::entity_untyped`]. A cheap clone; it
/// keeps the runtime alive.
///
/// Values are [payloads](Payload), since the handle does not know the entity's types. Code that knows them is safer with an
/// [`EntityHandle`](crate::EntityHandle).
#[derive(Clone)]
pub struct UntypedEntity {
    inner: Arc<Inner>,
    entity: &'static str,
    id: Result<InstanceId, InstanceIdError>,
}

impl fmt::Debug for UntypedEntity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntypedEntity")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// As [`entity`](Self::entity), by the name of the entity: for operators. `None` if no entity of this name is registered.
    #[must_use]
    pub fn entity_untyped(&self, name: &str, key: &str) -> Option<UntypedEntity> {
        let code = self.inner().shared.workflows.code_of(name);
        let entity = code.filter(|code| code.is_entity())?.name();
        Some(UntypedEntity {
            inner: Arc::clone(self.inner()),
            entity,
            id: InstanceId::new(&format!("{entity}/{key}")),
        })
    }
}

impl UntypedEntity {
    /// As [`EntityHandle::call`](crate::EntityHandle::call), with the command's name; the input, the answer and a rejection
    /// are encoded.
    ///
    /// # Errors
    /// See [`CommandError`].
    ///
    /// # Cancel safety
    /// Dropping the future gives up the answer. The command may still be performed.
    pub async fn call(&self, name: &str, input: Payload) -> Result<Payload, CommandError<Payload>> {
        self.perform(name, None, input).await
    }

    /// As [`call`](Self::call), with a request name of the caller's choice, as in
    /// [`EntityHandle::call`](crate::EntityHandle::call).
    ///
    /// # Errors
    /// See [`CommandError`].
    ///
    /// # Cancel safety
    /// As [`call`](Self::call).
    pub async fn call_as(
        &self,
        name: &str,
        request: &str,
        input: Payload,
    ) -> Result<Payload, CommandError<Payload>> {
        self.perform(name, Some(request.into()), input).await
    }

    async fn perform(
        &self,
        name: &str,
        request: Option<Box<str>>,
        input: Payload,
    ) -> Result<Payload, CommandError<Payload>> {
        let id = self.id.as_ref().map_err(|error| CommandError::Id(*error))?;
        let command = EntityRequest {
            request,
            name: Name::Owned(name.to_owned()),
            input,
        };
        match self.inner.command(&self.entity.into(), id, &command).await {
            Ok(answer) => Ok(answer),
            Err(CommandRefused::Start(error)) => Err(CommandError::Start(error)),
            Err(CommandRefused::Run(RunError::Refused(InputRefused::Rejected { error, .. }))) => {
                Err(CommandError::Rejected(error))
            }
            Err(CommandRefused::Run(error)) => Err(CommandError::Run(error)),
        }
    }

    /// As [`EntityHandle::read`](crate::EntityHandle::read), with the query's name; the question and the answer are encoded.
    ///
    /// # Errors
    /// As [`EntityHandle::read`](crate::EntityHandle::read).
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn read(&self, name: &str, question: Payload) -> Result<Payload, QueryError> {
        let id = self.id.as_ref().map_err(|error| RunError::Id(*error))?;
        let question = Question {
            name: Name::Owned(name.to_owned()),
            value: question,
        };
        self.inner.read_entity(self.entity, id, question).await
    }

    /// As [`EntityHandle::delete`](crate::EntityHandle::delete).
    ///
    /// # Errors
    /// As [`EntityHandle::delete`](crate::EntityHandle::delete).
    ///
    /// # Cancel safety
    /// If the future is dropped, the entity may be deleted or not.
    pub async fn delete(&self) -> Result<bool, RunError> {
        let id = self.id.as_ref().map_err(|error| RunError::Id(*error))?;
        self.inner.delete_entity(self.entity, id).await
    }
}
