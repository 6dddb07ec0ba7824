//! Steps that are performed within the run's own turn.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use millrun_core::panic_message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::record::Recording;
use crate::context::Shared;
use crate::{CallError, TypedError};

/// How many attempts a step has if its errors are retryable.
const ATTEMPTS_MAX: u32 = 3;

/// A step inside the run's own turn; made by [`WorkflowContext::local`](crate::WorkflowContext::local).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. It is ready when it is first polled.
#[derive(Debug)]
#[must_use = "nothing is done until it is awaited"]
pub struct Local<F, T, E> {
    recording: Recording,
    work: F,
    types: PhantomData<fn() -> (T, E)>,
}

impl<F, T, E> Local<F, T, E> {
    pub(crate) fn new(shared: Arc<Shared>, location: &'static Location<'static>, work: F) -> Self {
        Self {
            recording: Recording::new(shared, location),
            work,
            types: PhantomData,
        }
    }

    /// Names the step, as [`RecordStep::named`](crate::RecordStep::named) names a value. A step and a value of one
    /// name fit each other. No effect once polled.
    ///
    /// # Panics
    /// When the name is empty or longer than [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX).
    pub fn named(mut self, name: &'static str) -> Self {
        self.recording = self.recording.named(name);
        self
    }
}

impl<F, T, E> Future for Local<F, T, E>
where
    F: FnMut() -> Result<T, E> + Unpin,
    T: Serialize + DeserializeOwned,
    E: TypedError,
{
    type Output = Result<T, CallError<E>>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { recording, work, .. } = self.get_mut();
        let end = ready!(recording.poll(|| attempts(work)));
        Poll::Ready(end.map_err(CallError::Payload).and_then(LocalEnd::into_result))
    }
}

/// The recorded end of a local step.
#[derive(Debug, Serialize, Deserialize)]
enum LocalEnd<T, E> {
    Value(T),
    Failed(E),
    Panicked(String),
}

impl<T, E> LocalEnd<T, E> {
    fn into_result(self) -> Result<T, CallError<E>> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Failed(error) => Err(CallError::Failed(error)),
            Self::Panicked(message) => Err(CallError::Panicked(message)),
        }
    }
}

/// Performs the work, up to [`ATTEMPTS_MAX`] times if its errors are retryable.
fn attempts<T, E: TypedError>(mut work: impl FnMut() -> Result<T, E>) -> LocalEnd<T, E> {
    let mut attempt = 1;
    loop {
        match catch_unwind(AssertUnwindSafe(&mut work)) {
            Ok(Ok(value)) => return LocalEnd::Value(value),
            Ok(Err(error)) if attempt >= ATTEMPTS_MAX || !error.is_retryable() => {
                return LocalEnd::Failed(error);
            }
            Ok(Err(_)) => attempt += 1,
            Err(panic) => return LocalEnd::Panicked(panic_message(panic)),
        }
    }
}
