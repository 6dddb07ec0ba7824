//! The code of activities with its types erased, and the memory for running attempts.
//!
//! ```text
//!   ActivityImplementation ──► seat ──begin──► future in it ──poll──► … ──► outcome
//!                                ▲                                            │
//!                                └────────── free for the next attempt ◄──────┘
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millrun_workflow::{Activity, ActivityFailure, Payload, TypedError};
use pin_project_lite::pin_project;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::pace::Pace;
use super::tap::{ActivityTap, TappedSeat};
use super::{ActivityContext, AttemptFailure, AttemptOutcome};

/// Memory for one attempt of one activity at a time. An ended attempt leaves nothing in it, unless it panicked.
pub(super) trait Seat: Send {
    /// Begins an attempt and polls it.
    fn begin(self: Pin<&mut Self>, cx: ActivityContext, task: &mut Context<'_>) -> Poll<AttemptOutcome>;

    /// Polls the attempt that has begun and not ended.
    ///
    /// # Panics
    /// If there is no attempt; and if the activity's code panics.
    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<AttemptOutcome>;
}

/// See [`Seat`].
pub(super) type AnySeat = Pin<Box<dyn Seat>>;

pin_project! {
    /// A seat with known types. The future is stored in it, not in another box: both would be allocated for each attempt that
    /// has a task.
    struct SeatOf<S, Fut, E> {
        start: Arc<S>,
        #[pin]
        future: Option<Fut>,
        end: E,
    }
}

impl<S, Fut, E> Seat for SeatOf<S, Fut, E>
where
    S: Fn(ActivityContext) -> Result<Fut, Box<AttemptFailure>> + Send + Sync,
    Fut: Future + Send,
    E: Fn(Fut::Output) -> AttemptOutcome + Send,
{
    fn begin(mut self: Pin<&mut Self>, cx: ActivityContext, task: &mut Context<'_>) -> Poll<AttemptOutcome> {
        match (self.start)(cx) {
            Ok(future) => self.as_mut().project().future.set(Some(future)),
            Err(failure) => return Poll::Ready(Err(failure)),
        }
        self.poll(task)
    }

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<AttemptOutcome> {
        let mut seat = self.project();
        let future = seat.future.as_mut().as_pin_mut();
        let future = future.expect("an attempt is polled from its beginning to its end");
        future.poll(task).map(|end| {
            let outcome = (seat.end)(end);
            // What the code holds is dropped before the end is reported.
            seat.future.set(None);
            outcome
        })
    }
}

/// The code of one activity. A cheap clone.
#[derive(Clone)]
pub(crate) struct ActivityImplementation {
    pub(crate) name: &'static str,
    pub(crate) queue: &'static str,
    pub(super) pace: Arc<Pace>,
    seat: Arc<dyn Fn() -> AnySeat + Send + Sync>,
}

impl ActivityImplementation {
    /// Binds code to a definition.
    pub(crate) fn new<I, O, E, F, Fut>(activity: Activity<I, O, E>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: TypedError,
        F: FnOnce(ActivityContext, I) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        // Each attempt has its own clone of the code's captures (nothing, for a function), which its future may own.
        let start = move |cx: ActivityContext| {
            let input = decode_input(&cx)?;
            Ok(code.clone()(cx, input))
        };
        Self::of_parts(activity, start, encode_end)
    }

    /// Binds code that begins with `start`, and whose result `end` converts into the outcome.
    pub(super) fn of_parts<I, O, E, Fut>(
        activity: Activity<I, O, E>,
        start: impl Fn(ActivityContext) -> Result<Fut, Box<AttemptFailure>> + Send + Sync + 'static,
        end: impl Fn(Fut::Output) -> AttemptOutcome + Copy + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future + Send + 'static,
    {
        let start = Arc::new(start);
        let seat = move || -> AnySeat {
            Box::pin(SeatOf {
                start: Arc::clone(&start),
                future: None,
                end,
            })
        };
        Self {
            name: activity.name(),
            queue: activity.queue(),
            pace: Arc::default(),
            seat: Arc::new(seat),
        }
    }

    /// The same code, with a tap that is told of its attempts.
    pub(crate) fn tapped(mut self, tap: Arc<dyn ActivityTap>) -> Self {
        let seat = self.seat;
        self.seat = Arc::new(move || Box::pin(TappedSeat::new(seat(), Arc::clone(&tap))));
        self
    }

    /// Memory for its attempts, used one after the other.
    pub(super) fn seat(&self) -> AnySeat {
        (self.seat)()
    }
}

/// The argument of an attempt.
pub(super) fn decode_input<I: DeserializeOwned>(cx: &ActivityContext) -> Result<I, Box<AttemptFailure>> {
    cx.task().scheduled.input.decode().map_err(|error| {
        let message = format!("the input is not of the activity's type: {error}");
        AttemptFailure::fatal(ActivityFailure::Unreadable { message })
    })
}

/// The end of an attempt, encoded.
pub(super) fn encode_end<O: Serialize, E: TypedError>(end: Result<O, E>) -> AttemptOutcome {
    let unreadable = |what: &str, error: &dyn fmt::Display| {
        let message = format!("the activity's {what} could not be encoded: {error}");
        AttemptFailure::fatal(ActivityFailure::Unreadable { message })
    };
    match end {
        Ok(value) => Payload::encode(&value).map_err(|error| unreadable("result", &error)),
        Err(error) => {
            let message = error.to_string();
            let encoded = Payload::encode(&error).map_err(|error| unreadable("error", &error))?;
            Err(Box::new(AttemptFailure {
                failure: ActivityFailure::Failed {
                    error: encoded,
                    message,
                },
                is_retryable: error.is_retryable(),
                kind: error.kind().map(Box::from),
                retry_after: error.retry_after(),
                details: None,
            }))
        }
    }
}

impl fmt::Debug for ActivityImplementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ActivityImplementation").field(&self.name).finish()
    }
}
