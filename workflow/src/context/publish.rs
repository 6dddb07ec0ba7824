//! Publishing to topics of the broker.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::Serialize;

use super::operation::{Operation, Stopped, Unadmitted, admit_payload};
use crate::context::Shared;
use crate::context::scope::Scope;
use crate::context::shared::Table;
use crate::context::slots::Resolution;
use crate::definition::NAME_BYTES_MAX;
use crate::event::{Event, Name, PublishScheduled};
use crate::{Payload, PayloadError, PublishOutcome, PublishStepError};

/// A value on its way to a topic; made by
/// [`WorkflowContext::publish`](crate::WorkflowContext::publish).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. Dropping it later keeps a value that still waits
/// for room from being published.
#[derive(Debug)]
#[must_use = "nothing is published until it is awaited"]
pub struct PublishStep {
    operation: Operation,
    request: Option<PublishRequest>,
}

#[derive(Debug)]
struct PublishRequest {
    topic: Name,
    value: Result<Payload, PayloadError>,
}

impl PublishStep {
    pub(crate) fn new<T: Serialize>(
        shared: Arc<Shared>,
        scope: Scope,
        location: &'static Location<'static>,
        topic: Name,
        value: &T,
    ) -> Self {
        Self {
            operation: Operation::new(shared, scope, location),
            request: Some(PublishRequest {
                topic,
                value: Payload::encode(value),
            }),
        }
    }
}

impl PublishRequest {
    /// The topic and the value, unless something speaks against issuing them.
    fn admit(self, table: &Table) -> Result<(Name, Payload), PublishStepError> {
        if self.topic.is_empty() || self.topic.len() > NAME_BYTES_MAX {
            return Err(PublishStepError::Name {
                bytes: self.topic.len(),
            });
        }
        let value = self.value.map_err(PublishStepError::Payload)?;
        admit_payload(table, value.len())?;
        Ok((self.topic, value))
    }
}

impl From<Unadmitted> for PublishStepError {
    fn from(unadmitted: Unadmitted) -> Self {
        match unadmitted {
            Unadmitted::TooLarge { bytes, bytes_max } => Self::TooLarge { bytes, bytes_max },
            Unadmitted::TooManyPending { len_max } => Self::TooManyPending { len_max },
        }
    }
}

impl Future for PublishStep {
    type Output = Result<PublishOutcome, PublishStepError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { operation, request } = self.get_mut();
        let resolution = operation.poll_checked(cx, |table| {
            let request = request.take().expect("the first poll finds the request");
            let (topic, value) = request.admit(table)?;
            Ok(move |operation, _, _| {
                Event::PublishScheduled(Arc::new(PublishScheduled {
                    operation,
                    topic,
                    value,
                }))
            })
        });
        resolution.map(|resolution| match resolution {
            Ok(Resolution::Published(outcome)) => outcome.map_err(PublishStepError::Refused),
            Ok(_) => panic!("a publish was resolved as if it were something else"),
            Err(Stopped::Cancelled(cancelled)) => Err(PublishStepError::Cancelled(cancelled)),
            Err(Stopped::Refused(error)) => Err(error),
        })
    }
}
