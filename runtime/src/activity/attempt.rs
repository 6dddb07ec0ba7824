//! One attempt: the activity's code, run to its end, with panics caught.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use millrun_core::panic_message;
use millrun_workflow::ActivityFailure;

use super::{ActivityContext, ActivityImplementation, AttemptFailure, AttemptOutcome};

/// Runs the code and says how it went.
pub(super) async fn run(
    implementation: ActivityImplementation,
    cx: ActivityContext,
    payload_bytes_max: usize,
) -> AttemptOutcome {
    // The code before the first await runs inside as well, so that its panic is caught too.
    let attempt = AssertUnwindSafe(async move { implementation.start(cx).await });
    match attempt.catch_unwind().await {
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
