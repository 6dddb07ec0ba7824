//! One attempt: the activity's code, run to its end, with panics caught.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use millrun_core::{Host, panic_message};
use millrun_workflow::ActivityFailure;

use super::{ActivityContext, ActivityImplementation, AttemptFailure, AttemptFuture, AttemptOutcome};

/// How an attempt ended, or the panic in which it did.
type Ended = Result<AttemptOutcome, Box<dyn Any + Send>>;

/// Runs the code as far as it goes without waiting. If it has to wait, the rest of it comes back, to
/// be [resumed](resume): nothing has its waker yet.
pub(super) fn begin(
    implementation: &ActivityImplementation,
    cx: ActivityContext,
    payload_bytes_max: usize,
) -> Result<AttemptOutcome, AttemptFuture> {
    let begun = catch_unwind(AssertUnwindSafe(|| {
        let mut attempt = implementation.start(cx);
        match attempt.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            // The future is dropped in here: its destructors may panic too.
            Poll::Ready(outcome) => Ok(outcome),
            Poll::Pending => Err(attempt),
        }
    }));
    match begun {
        Ok(Err(attempt)) => Err(attempt),
        Ok(Ok(outcome)) => Ok(outcome_of(Ok(outcome), payload_bytes_max)),
        Err(panic) => Ok(outcome_of(Err(panic), payload_bytes_max)),
    }
}

/// Gives up the rest of an attempt that was [begun](begin), whose destructors may panic.
pub(super) fn discard(attempt: AttemptFuture) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(attempt))) {
        tracing::debug!(
            message = panic_message(panic),
            "an attempt panicked as it was given up"
        );
    }
}

/// Runs the rest of an attempt that was [begun](begin).
pub(super) async fn resume(attempt: AttemptFuture, payload_bytes_max: usize) -> AttemptOutcome {
    let ended = AssertUnwindSafe(attempt).catch_unwind().await;
    outcome_of(ended, payload_bytes_max)
}

/// Runs the code and says how it went; how long it went without waiting is noted.
pub(super) async fn run(
    implementation: ActivityImplementation,
    cx: ActivityContext,
    payload_bytes_max: usize,
    host: &dyn Host,
) -> AttemptOutcome {
    let pace = implementation.pace.clone();
    // The code before the first await runs inside as well, so that its panic is caught too.
    let attempt = AssertUnwindSafe(async move { implementation.start(cx).await });
    let mut attempt = pin!(attempt.catch_unwind());
    let mut is_first = true;
    let ended = poll_fn(|cx| {
        let begun_at = std::mem::take(&mut is_first).then(|| host.elapsed());
        let polled = attempt.as_mut().poll(cx);
        if let Some(begun_at) = begun_at {
            pace.note(polled.is_ready().then(|| host.elapsed().saturating_sub(begun_at)));
        }
        polled
    });
    outcome_of(ended.await, payload_bytes_max)
}

fn outcome_of(ended: Ended, payload_bytes_max: usize) -> AttemptOutcome {
    match ended {
        Ok(outcome) => bounded(outcome, payload_bytes_max),
        Err(panic) => Err(AttemptFailure::retryable(ActivityFailure::Panicked {
            message: panic_message(panic),
        })),
    }
}

/// Turns a value that is too large into a failure that says so.
fn bounded(outcome: AttemptOutcome, bytes_max: usize) -> AttemptOutcome {
    let (what, bytes) = match &outcome {
        Ok(value) => ("result", value.len()),
        Err(AttemptFailure {
            failure: ActivityFailure::Failed { error, message },
            ..
        }) => ("error", error.len().max(message.len())),
        Err(_) => return outcome,
    };
    if bytes <= bytes_max {
        return outcome;
    }
    let message = format!(
        "the activity's {what} has {bytes} bytes, a payload may have {bytes_max}: return a reference instead"
    );
    Err(AttemptFailure::fatal(ActivityFailure::Unreadable { message }))
}
