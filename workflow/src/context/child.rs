//! Calls of child workflows.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millrun_core::InstanceId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::operation::{Operation, Stage};
use crate::context::Shared;
use crate::context::scope::Scope;
use crate::context::slots::Resolution;
use crate::event::{ChildFailure, ChildScheduled, Event, ParentClose};
use crate::{ChildError, Payload, PayloadError, TypedError, Workflow};

/// A call of a child workflow; made by [`WorkflowContext::child`](crate::WorkflowContext::child).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. Dropping it later does with the child what
/// [`on_close`](Self::on_close) says.
#[derive(Debug)]
#[must_use = "a child is not started until it is awaited"]
pub struct Child<O, E> {
    operation: Operation,
    request: Option<Request>,
    types: PhantomData<fn() -> (O, E)>,
}

#[derive(Debug)]
struct Request {
    workflow: &'static str,
    id: String,
    input: Result<Payload, PayloadError>,
    on_close: ParentClose,
}

impl<O, E> Child<O, E> {
    pub(crate) fn new<I: Serialize>(
        shared: Arc<Shared>,
        scope: Scope,
        location: &'static Location<'static>,
        workflow: Workflow<I, O, E>,
        id: String,
        input: &I,
    ) -> Self {
        let request = Request {
            workflow: workflow.name(),
            id,
            input: Payload::encode(input),
            on_close: ParentClose::default(),
        };
        Self {
            operation: Operation::new(shared, scope, location),
            request: Some(request),
            types: PhantomData,
        }
    }

    /// Sets what becomes of the child when nobody waits for it any more;
    /// [`ParentClose::Cancel`] by default. No effect once polled.
    pub fn on_close(mut self, on_close: ParentClose) -> Self {
        if let Some(request) = &mut self.request {
            request.on_close = on_close;
        }
        self
    }

    /// The call, or what speaks against it, before anything is decided.
    fn check(&self, request: Request) -> Result<ChildScheduled, ChildError<E>> {
        let table = self.operation.shared.lock();
        let bounds = table.bounds;
        let input = request.input.map_err(ChildError::Payload)?;
        if input.len() > bounds.payload_bytes_max {
            return Err(ChildError::TooLarge {
                bytes: input.len(),
                bytes_max: bounds.payload_bytes_max,
            });
        }
        if table.outstanding_len() >= bounds.pending_len_max {
            return Err(ChildError::TooManyPending {
                len_max: bounds.pending_len_max,
            });
        }
        Ok(ChildScheduled {
            operation: crate::OperationId::new(0),
            workflow: request.workflow.into(),
            id: InstanceId::new(&request.id).map_err(ChildError::Id)?,
            input,
            on_close: request.on_close,
        })
    }
}

impl<O: DeserializeOwned, E: TypedError> Future for Child<O, E> {
    type Output = Result<O, ChildError<E>>;

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
            let scheduled = scheduled.expect("the first poll finds the request");
            Event::ChildScheduled(Arc::new(ChildScheduled {
                operation,
                ..scheduled
            }))
        });
        resolution.map(|resolution| match resolution {
            Ok(Resolution::Child(Ok(value))) => value.decode().map_err(ChildError::Payload),
            Ok(Resolution::Child(Err(failure))) => Err(into_child_error(failure)),
            Ok(_) => {
                panic!("a child was resolved as if it were something else")
            }
            Err(cancelled) => Err(ChildError::Cancelled(cancelled)),
        })
    }
}

fn into_child_error<E: TypedError>(failure: ChildFailure) -> ChildError<E> {
    let error = |failure: crate::RunFailure| failure.error.decode();
    match failure {
        ChildFailure::Failed(failure) => error(failure).map_or_else(ChildError::Payload, ChildError::Failed),
        ChildFailure::Cancelled(failure) => {
            error(failure).map_or_else(ChildError::Payload, ChildError::WasCancelled)
        }
        ChildFailure::Terminated { reason } => ChildError::Terminated { reason },
        ChildFailure::NotStarted { message } => ChildError::NotStarted { message },
    }
}
