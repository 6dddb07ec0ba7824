//! Promises that code outside of the run keeps or breaks.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde::de::DeserializeOwned;

use super::operation::Operation;
use crate::context::Shared;
use crate::context::scope::Scope;
use crate::context::slots::Resolution;
use crate::event::Event;
use crate::{OperationId, PromiseError, PromiseToken};

/// A value that is given from outside; made by [`WorkflowContext::promise`](crate::WorkflowContext::promise).
///
/// # Cancel safety
/// Dropping it gives the promise up durably: it cannot be kept or broken any more.
#[derive(Debug)]
#[must_use = "a promise that is dropped cannot be kept"]
pub struct Promise<T> {
    operation: Operation,
    token: PromiseToken,
    value: PhantomData<fn() -> T>,
}

impl<T> Promise<T> {
    pub(crate) fn new(shared: Arc<Shared>, scope: Scope, location: &'static Location<'static>) -> Self {
        let run = shared.lock().run;
        let mut operation = Operation::new(shared, scope, location);
        let issued = operation.issue_now(|operation| Event::PromiseMade { operation });
        Self {
            operation,
            token: PromiseToken::new(run, issued.unwrap_or(OperationId::new(0))),
            value: PhantomData,
        }
    }

    /// The promise's name for the code that will keep or break it: hand it to an activity, say.
    #[must_use]
    pub fn token(&self) -> PromiseToken {
        self.token
    }
}

impl<T: DeserializeOwned> Future for Promise<T> {
    type Output = Result<T, PromiseError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let resolution = this
            .operation
            .poll(cx, |operation, _, _| Event::PromiseMade { operation });
        resolution.map(|resolution| match resolution {
            Ok(Resolution::KeptOrBroken(Ok(value))) => value.decode().map_err(PromiseError::Payload),
            Ok(Resolution::KeptOrBroken(Err(message))) => Err(PromiseError::Failed(message)),
            Ok(_) => panic!("a promise was resolved as if it were something else"),
            Err(cancelled) => Err(PromiseError::Cancelled(cancelled)),
        })
    }
}
