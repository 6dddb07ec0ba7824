//! Signals to other instances.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millrun_core::InstanceId;
use serde::Serialize;

use super::operation::{Operation, Stopped, Unadmitted, admit_payload};
use crate::context::Shared;
use crate::context::scope::Scope;
use crate::context::shared::Table;
use crate::context::slots::Resolution;
use crate::event::{Event, Name, SignalFailure, SignalScheduled};
use crate::{OperationId, Payload, PayloadError, SignalInstanceError};

/// A signal on its way to another instance; made by
/// [`WorkflowContext::signal_instance`](crate::WorkflowContext::signal_instance).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. If it is dropped later, the signal is not sent again after a crash, and it
/// is not known whether it was recorded.
#[derive(Debug)]
#[must_use = "nothing is signalled until it is awaited"]
pub struct SignalInstance {
    operation: Operation,
    request: Option<SignalRequest>,
}

#[derive(Debug)]
struct SignalRequest {
    workflow: Name,
    id: String,
    name: &'static str,
    /// The call of the child that it is for, if the code has a handle to it.
    child: Option<OperationId>,
    value: Result<Payload, PayloadError>,
}

impl SignalInstance {
    pub(crate) fn new<T: Serialize>(
        shared: Arc<Shared>,
        scope: Scope,
        location: &'static Location<'static>,
        workflow: Name,
        id: String,
        name: &'static str,
        value: &T,
    ) -> Self {
        let value = Payload::encode(value);
        Self {
            operation: Operation::new(shared, scope, location),
            request: Some(SignalRequest {
                workflow,
                id,
                name,
                child: None,
                value,
            }),
        }
    }

    /// Only for the child of this call.
    pub(super) fn for_child(mut self, call: OperationId) -> Self {
        if let Some(request) = &mut self.request {
            request.child = Some(call);
        }
        self
    }
}

impl SignalRequest {
    /// The signal to be issued, unless a bound forbids it.
    fn admit(self, table: &Table) -> Result<SignalScheduled, SignalInstanceError> {
        let value = self.value.map_err(SignalInstanceError::Payload)?;
        admit_payload(table, value.len())?;
        Ok(SignalScheduled {
            operation: OperationId::new(0),
            workflow: self.workflow,
            id: InstanceId::new(&self.id).map_err(SignalInstanceError::Id)?,
            name: self.name.into(),
            value,
            child: self.child,
        })
    }
}

impl From<Unadmitted> for SignalInstanceError {
    fn from(unadmitted: Unadmitted) -> Self {
        match unadmitted {
            Unadmitted::TooLarge { bytes, bytes_max } => Self::TooLarge { bytes, bytes_max },
            Unadmitted::TooManyPending { len_max } => Self::TooManyPending { len_max },
        }
    }
}

impl From<SignalFailure> for SignalInstanceError {
    fn from(failure: SignalFailure) -> Self {
        match failure {
            SignalFailure::NotFound => Self::NotFound,
            SignalFailure::Finished => Self::Finished,
            SignalFailure::OtherWorkflow { workflow } => Self::OtherWorkflow { workflow },
            SignalFailure::Quarantined { message } => Self::Quarantined { message },
            SignalFailure::Refused { message } => Self::Refused { message },
        }
    }
}

impl Future for SignalInstance {
    type Output = Result<(), SignalInstanceError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { operation, request } = self.get_mut();
        let resolution = operation.poll_checked(cx, |table| {
            let request = request.take().expect("the first poll finds the request");
            let scheduled = request.admit(table)?;
            Ok(move |operation, _, _| {
                Event::SignalScheduled(Arc::new(SignalScheduled {
                    operation,
                    ..scheduled
                }))
            })
        });
        resolution.map(|resolution| match resolution {
            Ok(Resolution::Signalled(outcome)) => outcome.map_err(SignalInstanceError::from),
            Ok(_) => panic!("a signal was resolved as if it were something else"),
            Err(Stopped::Cancelled(cancelled)) => Err(SignalInstanceError::Cancelled(cancelled)),
            Err(Stopped::Refused(error)) => Err(error),
        })
    }
}
