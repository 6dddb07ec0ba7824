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
use crate::event::{Event, Name, PublishScheduled, RecordTexts};
use crate::{OperationId, Payload, PayloadError, PublishOutcome, PublishStepError};

/// A value on its way to a topic; made by
/// [`WorkflowContext::publish`](crate::WorkflowContext::publish).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. If it is dropped later, a value that still waits for room is not published.
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
    texts: Option<Box<RecordTexts>>,
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
                texts: None,
            }),
        }
    }

    /// The key of the record, in place of the id of this instance. In a durable topic, records of one key that one run
    /// publishes stay in the order in which it publishes them, subscriptions deliver them one at a time, and runs can
    /// [wait](crate::ReceiveRecord::key) for the key. In a topic of the broker it is the key of the envelope. At most
    /// [`RECORD_TEXT_BYTES_MAX`](crate::RECORD_TEXT_BYTES_MAX) bytes. No effect once polled.
    pub fn key(self, key: impl Into<Box<str>>) -> Self {
        self.say(|texts| texts.key = Some(key.into()))
    }

    /// The run's name for the process or group that the record belongs to. Only for durable topics: one of the broker
    /// [refuses](PublishStepError::Refused) it. At most [`RECORD_TEXT_BYTES_MAX`](crate::RECORD_TEXT_BYTES_MAX) bytes. No
    /// effect once polled.
    pub fn correlation(self, correlation: impl Into<Box<str>>) -> Self {
        self.say(|texts| texts.correlation = Some(correlation.into()))
    }

    /// The format of the payload, for readers outside of millrun. Only for durable topics: one of the broker
    /// [refuses](PublishStepError::Refused) it. At most [`RECORD_TEXT_BYTES_MAX`](crate::RECORD_TEXT_BYTES_MAX) bytes. No
    /// effect once polled.
    pub fn content_type(self, content_type: impl Into<Box<str>>) -> Self {
        self.say(|texts| texts.content_type = Some(content_type.into()))
    }

    /// Changes the texts of the record, unless the publish has been issued.
    fn say(mut self, change: impl FnOnce(&mut RecordTexts)) -> Self {
        if let Some(request) = &mut self.request {
            change(request.texts.get_or_insert_default());
        }
        self
    }
}

impl PublishRequest {
    /// The publish, unless a bound forbids it.
    fn admit(self, table: &Table) -> Result<PublishScheduled, PublishStepError> {
        if self.topic.is_empty() || self.topic.len() > NAME_BYTES_MAX {
            return Err(PublishStepError::Name {
                bytes: self.topic.len(),
            });
        }
        if let Some((field, bytes)) = self.texts.as_deref().and_then(RecordTexts::too_long) {
            return Err(PublishStepError::TextTooLong { field, bytes });
        }
        let value = self.value.map_err(PublishStepError::Payload)?;
        admit_payload(table, value.len())?;
        Ok(PublishScheduled {
            operation: OperationId::new(0),
            topic: self.topic,
            value,
            texts: self.texts,
        })
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
            let mut scheduled = request.admit(table)?;
            Ok(move |operation, _, _| {
                scheduled.operation = operation;
                Event::PublishScheduled(Arc::new(scheduled))
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
