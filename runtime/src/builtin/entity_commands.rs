//! The activity by which workflows send commands to entities.
//!
//! Each attempt uses the call as the command's request name, so that the entity performs the command once, however often the
//! activity runs.

use millrun_core::InstanceId;
use millrun_workflow::{ActivityError, EntityAnswer, EntityOrder, InputRefused, Payload};

use crate::mail::{CommandRefused, EntityRequest};
use crate::{ActivityContext, RunError};

pub(super) async fn command(cx: ActivityContext, order: EntityOrder) -> Result<EntityAnswer, ActivityError> {
    let runtime = cx
        .runtime()
        .map_err(|cause| ActivityError::retryable(cause.to_string()))?;
    let EntityOrder {
        entity,
        id,
        command,
        input,
    } = order;
    let id = InstanceId::new(&id).map_err(|error| ActivityError::fatal(error.to_string()))?;
    let request = EntityRequest {
        request: Some(cx.idempotency_key().into()),
        name: command.into(),
        input: Payload::from_bytes(input.into()),
    };
    match runtime.inner().command(&entity.into(), &id, &request).await {
        Ok(answer) => Ok(EntityAnswer::Given(answer.as_bytes().to_vec())),
        Err(CommandRefused::Run(RunError::Refused(InputRefused::Rejected { error, .. }))) => {
            Ok(EntityAnswer::Rejected(error.as_bytes().to_vec()))
        }
        Err(refused) if refused.may_be_performed_later() => {
            Err(ActivityError::retryable(refused.to_string()))
        }
        Err(refused) => Err(ActivityError::fatal(refused.to_string())),
    }
}
