//! Triggers whose records are commands of entities.

use millrun_core::InstanceId;
use millrun_workflow::{Entity, EntityCommand, EntityState, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::record::DurableRecord;
use super::subscription::SubscriptionOpenError;
use super::trigger::{DurableTrigger, TriggerRecords};
use super::triggered::{TriggerOutcome, Triggered, UNKEPT_MAX};
use crate::RunError;
use crate::mail::{CommandRefused, EntityRequest};

impl<T: DeserializeOwned + Send + Sync + 'static> TriggerRecords<'_, T> {
    /// Sends a command to an entity for each record: `make` returns the entity's key and the input. If the entity does not
    /// live, it begins with the command. The request of the command is made of the trigger's name and the record's token, so
    /// that a record that is delivered again is performed once; an entity remembers the last 1,000 requests that it
    /// performed. A command that is rejected is not tried again: the record is undelivered.
    ///
    /// # Errors
    /// See [`SubscriptionOpenError`].
    pub async fn command<S, I, A, E, F>(
        self,
        entity: Entity<S>,
        command: EntityCommand<S, I, A, E>,
        make: F,
    ) -> Result<DurableTrigger, SubscriptionOpenError>
    where
        S: EntityState,
        I: Serialize + Send + 'static,
        A: 'static,
        E: 'static,
        F: Fn(&DurableRecord<T>) -> (String, I) + Send + Sync + 'static,
    {
        let make = move |record: &DurableRecord<T>| {
            let (key, input) = make(record);
            (entity.id_of(&key), input)
        };
        self.open(UNKEPT_MAX, make, move |runtime, asked: Triggered<I>| {
            Box::pin(async move {
                let id = match InstanceId::new(&asked.id) {
                    Ok(id) => id,
                    Err(error) => return TriggerOutcome::Never(error.to_string()),
                };
                let input = match Payload::encode(&asked.value) {
                    Ok(input) => input,
                    Err(error) => return TriggerOutcome::Never(error.to_string()),
                };
                let request = EntityRequest {
                    request: Some(asked.request()),
                    name: command.name().into(),
                    input,
                };
                match runtime
                    .inner()
                    .command(&entity.name().into(), &id, &request)
                    .await
                {
                    Ok(_) => TriggerOutcome::Done,
                    Err(CommandRefused::Start(error)) => TriggerOutcome::of_start(runtime, error),
                    Err(refused @ CommandRefused::Run(RunError::Refused(_)))
                        if refused.may_be_performed_later() =>
                    {
                        TriggerOutcome::Later
                    }
                    Err(CommandRefused::Run(error)) => TriggerOutcome::of_signal(runtime, error),
                }
            })
        })
        .await
    }
}
