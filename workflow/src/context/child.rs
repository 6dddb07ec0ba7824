//! Calls of child workflows.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use millrun_core::InstanceId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child_handle::{ChildControl, ChildHandle, UntypedChildHandle};
use super::operation::{Operation, Stopped, Unadmitted, admit_payload};
use crate::context::Shared;
use crate::context::scope::Scope;
use crate::context::shared::Table;
use crate::context::slots::Resolution;
use crate::event::{
    ChildFailure, ChildScheduled, Event, Name, ParentClose, RunFailure, RunTimeout, StartTimeouts,
};
use crate::names::{is_reserved_name, reserved_name};
use crate::{ChildError, NAME_BYTES_MAX, OperationId, Payload, PayloadError, TypedError, Workflow};

/// A call of a child workflow; made by [`WorkflowContext::child`](crate::WorkflowContext::child). It is awaited, or
/// [started](Self::start) to get a handle.
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. Dropping it later treats the child as [`on_close`](Self::on_close) says.
#[derive(Debug)]
#[must_use = "a child is not started until it is awaited"]
pub struct Child<O, E> {
    operation: Operation,
    request: Option<ChildRequest>,
    types: PhantomData<fn() -> (O, E)>,
}

#[derive(Debug)]
struct ChildRequest {
    workflow: Name,
    id: String,
    input: Result<Payload, PayloadError>,
    on_close: ParentClose,
    timeouts: Option<Box<StartTimeouts>>,
    /// Whether the program learned the workflow's name only at run time.
    is_untyped: bool,
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
        let request = ChildRequest {
            workflow: workflow.name().into(),
            id,
            input: Payload::encode(input),
            on_close: ParentClose::default(),
            timeouts: None,
            is_untyped: false,
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

    /// How long the child may take by itself, counted from when it begins. If its time passes, it ends without its code, as one
    /// that is terminated, and the call gives [`ChildError::TimedOut`]. A run in which the child goes on as new has that time
    /// anew. A timeout of zero gives [`ChildError::NotStarted`]. No effect once polled.
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        ChildRequest::bound(&mut self.request, RunTimeout::Run, timeout);
        self
    }

    /// As [`run_timeout`](Self::run_timeout), of the child and all runs in which it goes on together.
    pub fn chain_timeout(mut self, timeout: Duration) -> Self {
        ChildRequest::bound(&mut self.request, RunTimeout::Chain, timeout);
        self
    }

    /// Decides the start now, and returns a handle with which the child can be signalled, cancelled and waited for.
    ///
    /// ```
    /// use millrun_workflow::{ChildError, Signal, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const SHIP: Workflow<u64, String> = Workflow::named("ship");
    /// const RECALL: Signal<()> = Signal::named("recall");
    /// const EXPRESS: Signal<()> = Signal::named("express");
    ///
    /// async fn order(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    ///     let mut parcel = cx.child(SHIP, format!("order-{number}/parcel"), number).start()?;
    ///     parcel.signal(EXPRESS, ()).await?;
    ///     let shipped = tokio::select! {
    ///         biased;
    ///         shipped = &mut parcel => shipped,
    ///         recalled = cx.receive(RECALL) => {
    ///             recalled?;
    ///             parcel.cancel("recalled");
    ///             parcel.await
    ///         }
    ///     };
    ///     match shipped {
    ///         Err(ChildError::WasCancelled(_)) => Ok("recalled".into()),
    ///         shipped => Ok(shipped?),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// What the call would have given at once: its id, input or timeouts are not acceptable, this run has as many operations
    /// as it may, it was asked to cancel, or its code is not what calls this. What only shows later is the result of the handle.
    pub fn start(mut self) -> Result<ChildHandle<O, E>, ChildError<E>> {
        let control = start(&mut self.operation, &mut self.request)?;
        Ok(ChildHandle::new(self, control))
    }
}

/// Issues a call that has not been polled, and returns the way to its child.
fn start<E>(
    operation: &mut Operation,
    request: &mut Option<ChildRequest>,
) -> Result<ChildControl, ChildError<E>> {
    let name = |request: &ChildRequest| (request.workflow.clone(), request.id.clone());
    let (workflow, id) = request.as_ref().map(name).unwrap_or_default();
    let issued = operation.issue_checked_now(|table| {
        let scheduled = request.take().expect("the call was not polled").admit(table)?;
        Ok(move |operation| {
            Event::ChildScheduled(Arc::new(ChildScheduled {
                operation,
                ..scheduled
            }))
        })
    });
    let call = match issued {
        Some(Ok(call)) => call,
        Some(Err(Stopped::Refused(error))) => return Err(error),
        Some(Err(Stopped::Cancelled(cancelled))) => return Err(ChildError::Cancelled(cancelled)),
        None => {
            let message = "only the code of a run starts children, and not another task".into();
            return Err(ChildError::NotStarted { message });
        }
    };
    let (shared, scope) = (Arc::clone(&operation.shared), operation.scope.clone());
    Ok(ChildControl::new(shared, scope, call, workflow, id))
}

impl ChildRequest {
    fn bound(request: &mut Option<Self>, which: RunTimeout, timeout: Duration) {
        if let Some(request) = request {
            request.timeouts.get_or_insert_default().bound(which, timeout);
        }
    }

    /// The call to be issued, unless a bound forbids it.
    fn admit<E>(self, table: &Table) -> Result<ChildScheduled, ChildError<E>> {
        let bytes = self.workflow.len();
        if bytes == 0 || bytes > NAME_BYTES_MAX {
            let message = format!("a workflow's name has 1 to {NAME_BYTES_MAX} bytes, and this one {bytes}");
            return Err(ChildError::NotStarted { message });
        }
        if self.is_untyped && is_reserved_name(&self.workflow) {
            let message = reserved_name(&self.workflow);
            return Err(ChildError::NotStarted { message });
        }
        if self.timeouts.as_ref().is_some_and(|timeouts| timeouts.are_over()) {
            let message = "a timeout of zero is over before the child begins".into();
            return Err(ChildError::NotStarted { message });
        }
        let input = self.input.map_err(ChildError::Payload)?;
        admit_payload(table, input.len())?;
        Ok(ChildScheduled {
            operation: OperationId::new(0),
            workflow: self.workflow,
            id: InstanceId::new(&self.id).map_err(ChildError::Id)?,
            input,
            on_close: self.on_close,
            not_before: table.time.ahead(),
            timeouts: self.timeouts,
        })
    }
}

impl<E> From<Unadmitted> for ChildError<E> {
    fn from(unadmitted: Unadmitted) -> Self {
        match unadmitted {
            Unadmitted::TooLarge { bytes, bytes_max } => Self::TooLarge { bytes, bytes_max },
            Unadmitted::TooManyPending { len_max } => Self::TooManyPending { len_max },
        }
    }
}

/// Polls for the end of a child, encoded.
fn poll_end<E>(
    operation: &mut Operation,
    request: &mut Option<ChildRequest>,
    cx: &mut Context<'_>,
) -> Poll<Result<Result<Payload, ChildFailure>, ChildError<E>>> {
    let resolution = operation.poll_checked(cx, |table| {
        let request = request.take().expect("the first poll finds the request");
        let scheduled = request.admit(table)?;
        Ok(move |operation, _, _| {
            Event::ChildScheduled(Arc::new(ChildScheduled {
                operation,
                ..scheduled
            }))
        })
    });
    resolution.map(|resolution| match resolution {
        Ok(Resolution::Child(end)) => Ok(end),
        Ok(_) => {
            panic!("a child was resolved as if it were something else")
        }
        Err(Stopped::Cancelled(cancelled)) => Err(ChildError::Cancelled(cancelled)),
        Err(Stopped::Refused(error)) => Err(error),
    })
}

impl<O: DeserializeOwned, E: TypedError> Future for Child<O, E> {
    type Output = Result<O, ChildError<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            operation, request, ..
        } = self.get_mut();
        poll_end(operation, request, cx).map(|end| match end? {
            Ok(value) => value.decode().map_err(ChildError::Payload),
            Err(failure) => Err(into_child_error(failure)),
        })
    }
}

/// A call of a child workflow by its name; made by [`WorkflowContext::child_untyped`](crate::WorkflowContext::child_untyped).
/// It returns the encoded result, or the encoded error if the child failed or was cancelled.
///
/// # Cancel safety
/// As [`Child`].
#[derive(Debug)]
#[must_use = "a child is not started until it is awaited"]
pub struct UntypedChild {
    operation: Operation,
    request: Option<ChildRequest>,
}

impl UntypedChild {
    pub(crate) fn new(
        shared: Arc<Shared>,
        scope: Scope,
        location: &'static Location<'static>,
        workflow: Name,
        id: String,
        input: Payload,
    ) -> Self {
        let request = ChildRequest {
            workflow,
            id,
            input: Ok(input),
            on_close: ParentClose::default(),
            timeouts: None,
            is_untyped: true,
        };
        Self {
            operation: Operation::new(shared, scope, location),
            request: Some(request),
        }
    }

    /// As [`Child::on_close`].
    pub fn on_close(mut self, on_close: ParentClose) -> Self {
        if let Some(request) = &mut self.request {
            request.on_close = on_close;
        }
        self
    }

    /// As [`Child::run_timeout`].
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        ChildRequest::bound(&mut self.request, RunTimeout::Run, timeout);
        self
    }

    /// As [`Child::chain_timeout`].
    pub fn chain_timeout(mut self, timeout: Duration) -> Self {
        ChildRequest::bound(&mut self.request, RunTimeout::Chain, timeout);
        self
    }

    /// As [`Child::start`].
    ///
    /// # Errors
    /// As there.
    pub fn start(mut self) -> Result<UntypedChildHandle, ChildError<RunFailure>> {
        let control = start(&mut self.operation, &mut self.request)?;
        Ok(UntypedChildHandle::new(self, control))
    }
}

impl Future for UntypedChild {
    type Output = Result<Payload, ChildError<RunFailure>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { operation, request } = self.get_mut();
        poll_end(operation, request, cx).map(|end| match end? {
            Ok(value) => Ok(value),
            Err(ChildFailure::Failed(failure)) => Err(ChildError::Failed(failure)),
            Err(ChildFailure::Cancelled(failure)) => Err(ChildError::WasCancelled(failure)),
            Err(ChildFailure::Terminated { reason }) => Err(ChildError::Terminated { reason }),
            Err(ChildFailure::TimedOut(timeout)) => Err(ChildError::TimedOut(timeout)),
            Err(ChildFailure::NotStarted { message }) => Err(ChildError::NotStarted { message }),
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
        ChildFailure::TimedOut(timeout) => ChildError::TimedOut(timeout),
        ChildFailure::NotStarted { message } => ChildError::NotStarted { message },
    }
}
