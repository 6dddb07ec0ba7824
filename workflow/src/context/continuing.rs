//! Continuing in another run of the same instance, or from a checkpoint of this run.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::Serialize;

use crate::context::scope::Scope;
use crate::context::{After, Shared};
use crate::{ContinueError, Payload, PayloadError};

/// The end of this run and the beginning of the next; made by
/// [`WorkflowContext::continue_as_new`](crate::WorkflowContext::continue_as_new).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. Once polled, the run ends with this turn.
#[derive(Debug)]
#[must_use = "the run goes on as it is until this is awaited"]
pub struct ContinueAsNew<O> {
    shared: Arc<Shared>,
    location: &'static Location<'static>,
    workflow: &'static str,
    input: Option<Result<Payload, PayloadError>>,
    result: PhantomData<fn() -> O>,
}

impl<O> ContinueAsNew<O> {
    pub(crate) fn new<I: Serialize>(
        shared: Arc<Shared>,
        location: &'static Location<'static>,
        workflow: &'static str,
        input: &I,
    ) -> Self {
        Self {
            shared,
            location,
            workflow,
            input: Some(Payload::encode(input)),
            result: PhantomData,
        }
    }
}

impl<O> Future for ContinueAsNew<O> {
    type Output = Result<O, ContinueError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(mut table) = this.shared.lock_polled() else {
            return Poll::Pending;
        };
        let Some(input) = this.input.take() else {
            return Poll::Pending;
        };
        let bytes_max = table.bounds.payload_bytes_max;
        if let Some(cancelled) = table.cancelled(&Scope::default()) {
            // The request to cancel would be lost: the next run does not know of it.
            return Poll::Ready(Err(ContinueError::Cancelled(cancelled)));
        }
        Poll::Ready(Err(match input {
            Err(error) => ContinueError::Payload(error),
            Ok(input) if input.len() > bytes_max => ContinueError::TooLarge {
                bytes: input.len(),
                bytes_max,
            },
            Ok(input) => {
                table.go_on(After::Run(this.workflow.into(), input, this.location));
                return Poll::Pending;
            }
        }))
    }
}

/// The end of what the code did so far, and its new beginning; made by
/// [`WorkflowContext::checkpoint`](crate::WorkflowContext::checkpoint).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. Once polled, the code begins again.
#[derive(Debug)]
#[must_use = "nothing is recorded until this is awaited"]
pub struct MakeCheckpoint<O> {
    shared: Arc<Shared>,
    location: &'static Location<'static>,
    state: Option<Result<Payload, PayloadError>>,
    result: PhantomData<fn() -> O>,
}

impl<O> MakeCheckpoint<O> {
    pub(crate) fn new<S: Serialize + ?Sized>(
        shared: Arc<Shared>,
        location: &'static Location<'static>,
        state: &S,
    ) -> Self {
        Self {
            shared,
            location,
            state: Some(Payload::encode(state)),
            result: PhantomData,
        }
    }
}

impl<O> Future for MakeCheckpoint<O> {
    type Output = Result<O, ContinueError>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(mut table) = this.shared.lock_polled() else {
            return Poll::Pending;
        };
        let Some(state) = this.state.take() else {
            return Poll::Pending;
        };
        let bytes_max = table.bounds.payload_bytes_max;
        if let Some(cancelled) = table.cancelled(&Scope::default()) {
            return Poll::Ready(Err(ContinueError::Cancelled(cancelled)));
        }
        Poll::Ready(Err(match state {
            Err(error) => ContinueError::Payload(error),
            Ok(state) if state.len() > bytes_max => ContinueError::TooLarge {
                bytes: state.len(),
                bytes_max,
            },
            Ok(state) => {
                table.go_on(After::Checkpoint(state, this.location));
                return Poll::Pending;
            }
        }))
    }
}
