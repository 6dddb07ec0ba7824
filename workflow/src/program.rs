//! One run of a workflow's code, with its types erased, in memory that the next run may reuse.
//!
//! ```text
//!   begin ──► first poll: the input is decoded, the code called ──► … ──► its end: the result is encoded
//!     ▲                                                                             │
//!     └────────────────────────────────── clear ◄───────────────────────────────────┘
//! ```
//!
//! Invariants:
//! - Nothing of the user's runs before the first poll.
//! - The code's future is dropped as soon as it has ended, before its result is encoded.
//!
//! Left out: catching panics, and knowing who polls.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::RunFailure;
use crate::{Payload, PayloadError, TypedError, WorkflowContext, WorkflowError};

/// How code ends without a value.
#[derive(Debug)]
pub(crate) struct CodeFailure {
    pub(crate) failure: RunFailure,
    /// Whether another try of the run may help.
    pub(crate) is_retryable: bool,
}

/// What an [`Implementation`](crate::Implementation) runs.
pub(crate) trait Program: Send {
    /// Prepares it for a run, if it is new or has been cleared.
    fn begin(&mut self, cx: WorkflowContext, input: Payload);

    /// Polls the code. After its end it must be begun anew.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Payload, CodeFailure>>;

    /// Drops the run's state; the memory stays.
    fn clear(&mut self);

    /// Its memory in bytes, except what is behind pointers of the code's own.
    fn memory_bytes(&self) -> usize;
}

/// Code with these types.
pub(crate) struct Typed<I, O, E, F, Fut> {
    code: Arc<F>,
    /// The arguments for the code's call at the first poll.
    beginning: Option<(WorkflowContext, Payload)>,
    /// The code's future, once the code has been called.
    future: Pin<Box<Option<Fut>>>,
    types: PhantomData<fn(I) -> Result<O, E>>,
}

impl<I, O, E, F, Fut> Typed<I, O, E, F, Fut> {
    pub(crate) fn new(code: Arc<F>) -> Self {
        Self {
            code,
            beginning: None,
            future: Box::pin(None),
            types: PhantomData,
        }
    }
}

impl<I, O, E, F, Fut> Program for Typed<I, O, E, F, Fut>
where
    I: DeserializeOwned,
    O: Serialize,
    E: TypedError,
    F: Fn(WorkflowContext, I) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, E>> + Send,
{
    fn begin(&mut self, cx: WorkflowContext, input: Payload) {
        self.beginning = Some((cx, input));
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Payload, CodeFailure>> {
        if let Some((context, input)) = self.beginning.take() {
            let input = input.decode().map_err(|error| undecodable("input", &error))?;
            self.future.set(Some((self.code)(context, input)));
        }
        let future = self.future.as_mut().as_pin_mut();
        let ended = ready!(
            future
                .expect("it is polled between its beginning and its end")
                .poll(cx)
        );
        self.future.set(None);
        Poll::Ready(match ended {
            Ok(value) => Payload::encode(&value).map_err(|error| undecodable("result", &error)),
            Err(error) => Err(CodeFailure {
                failure: RunFailure {
                    message: error.to_string(),
                    is_cancelled: error.is_cancelled(),
                    error: Payload::encode(&error).map_err(|error| undecodable("error", &error))?,
                },
                is_retryable: error.is_retryable(),
            }),
        })
    }

    fn clear(&mut self) {
        self.beginning = None;
        self.future.set(None);
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Option<Fut>>()
    }
}

impl fmt::Debug for dyn Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Program")
    }
}

/// The failure for a value that does not encode or decode.
fn undecodable(what: &str, error: &PayloadError) -> CodeFailure {
    CodeFailure {
        failure: unreadable(format!("the run's {what} is not of the workflow's type: {error}")),
        // Another try would fail in the same way.
        is_retryable: false,
    }
}

/// A failure that the code did not cause.
pub(crate) fn unreadable(message: String) -> RunFailure {
    let error = WorkflowError::failed(message.clone());
    let error = Payload::encode(&error).expect("a WorkflowError holds a string and a flag");
    RunFailure {
        error,
        message,
        is_cancelled: false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millrun_core::{InstanceId, Partition, RunId, Timestamp};

    use super::*;
    use crate::event::{Event, Started};
    use crate::{Implementation, Instance, Limits, Moment, Sleep, Turn, Workflow, WorkflowError};

    const FLOW: Workflow<u64, u64> = Workflow::named("flow");

    /// Begins a run of this code in the turn's spare memory. Returns its events.
    fn begin(turn: &mut Turn, code: &Implementation, argument: u64) -> (Vec<Event>, Box<Instance>) {
        let id = InstanceId::new("x").unwrap();
        let started = Started::new("flow", id, Payload::encode(&argument).unwrap());
        let run = RunId::new(Partition::of(b"x"), Timestamp::EPOCH, argument);
        let moment = Moment {
            now: Timestamp::EPOCH,
            epoch: 1,
        };
        let instance = Instance::start_in(turn, Some(code), run, started, Limits::default(), moment);
        turn.commands.clear();
        (std::mem::take(&mut turn.events), instance)
    }

    fn result(events: &[Event]) -> Option<u64> {
        match events.last() {
            Some(Event::Completed { result }) => result.decode().ok(),
            _ => None,
        }
    }

    #[test]
    fn code_in_the_memory_of_code_that_has_ended_is_its_own_workflows() {
        let plus = Implementation::new(FLOW, |_, n| async move { Ok::<_, WorkflowError>(n + 1) });
        let times = Implementation::new(FLOW, |_, n| async move { Ok::<_, WorkflowError>(n * 10) });
        let mut turn = Turn::default();
        for (code, argument, expected) in [(&plus, 1, 2), (&plus, 5, 6), (&times, 5, 50), (&plus, 7, 8)] {
            let (events, instance) = begin(&mut turn, code, argument);
            assert_eq!(result(&events), Some(expected));
            turn.recycle(instance);
        }
    }

    #[test]
    fn what_a_future_of_its_own_holds_when_it_ends_is_cancelled_before_the_end_is_recorded() {
        /// Ends while its timer is running.
        struct Hasty(Sleep);

        impl Future for Hasty {
            type Output = Result<u64, WorkflowError>;

            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                assert!(Pin::new(&mut self.0).poll(cx).is_pending());
                Poll::Ready(Ok(3))
            }
        }

        let code = Implementation::new(FLOW, |cx: WorkflowContext, _| {
            Hasty(cx.sleep(Duration::from_secs(1)))
        });
        let (events, _) = begin(&mut Turn::default(), &code, 0);
        let labels: Vec<_> = events.iter().map(Event::label).collect();
        assert_eq!(
            labels,
            ["Started", "TimerStarted", "OperationCancelled", "Completed"]
        );
    }
}
