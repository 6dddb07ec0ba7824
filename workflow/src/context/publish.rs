//! Publishing to topics of the broker.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::Serialize;

use super::operation::{Operation, Stage};
use crate::context::Shared;
use crate::context::scope::Scope;
use crate::context::slots::Resolution;
use crate::event::{Event, PublishScheduled};
use crate::{Payload, PayloadError, PublishError};

/// A value on its way to a topic; made by
/// [`WorkflowContext::publish`](crate::WorkflowContext::publish).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. Dropping it later keeps a value that still waits
/// for room from being published.
#[derive(Debug)]
#[must_use = "nothing is published until it is awaited"]
pub struct Publish {
    operation: Operation,
    request: Option<Request>,
}

#[derive(Debug)]
struct Request {
    topic: &'static str,
    value: Result<Payload, PayloadError>,
}

impl Publish {
    pub(crate) fn new<T: Serialize>(
        shared: Arc<Shared>,
        scope: Scope,
        location: &'static Location<'static>,
        topic: &'static str,
        value: &T,
    ) -> Self {
        Self {
            operation: Operation::new(shared, scope, location),
            request: Some(Request {
                topic,
                value: Payload::encode(value),
            }),
        }
    }

    /// The topic and the value, or what speaks against it, before anything is decided.
    fn check(&self, request: Request) -> Result<(&'static str, Payload), PublishError> {
        let table = self.operation.shared.lock();
        let bounds = table.bounds;
        let value = request.value.map_err(PublishError::Payload)?;
        if value.len() > bounds.payload_bytes_max {
            return Err(PublishError::TooLarge {
                bytes: value.len(),
                bytes_max: bounds.payload_bytes_max,
            });
        }
        if table.outstanding_len() >= bounds.pending_len_max {
            return Err(PublishError::TooManyPending {
                len_max: bounds.pending_len_max,
            });
        }
        Ok((request.topic, value))
    }
}

impl Future for Publish {
    type Output = Result<(), PublishError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let scheduled = match this.request.take().map(|request| this.check(request)) {
            Some(Err(error)) => {
                this.operation.stage = Stage::Done;
                return Poll::Ready(Err(error));
            }
            Some(Ok(scheduled)) => Some(scheduled),
            None => None,
        };
        let resolution = this.operation.poll(cx, |operation, _, _| {
            let (topic, value) = scheduled.expect("the first poll finds the request");
            let topic = topic.into();
            Event::PublishScheduled(Arc::new(PublishScheduled {
                operation,
                topic,
                value,
            }))
        });
        resolution.map(|resolution| match resolution {
            Ok(Resolution::Published(outcome)) => outcome.map_err(PublishError::Refused),
            Ok(_) => panic!("a publish was resolved as if it were something else"),
            Err(cancelled) => Err(PublishError::Cancelled(cancelled)),
        })
    }
}
