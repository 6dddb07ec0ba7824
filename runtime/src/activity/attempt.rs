//! One attempt: the activity's code, run to its end, with panics caught.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use millrun_broker::Envelope;
use millrun_workflow::ActivityFailure;

use super::{ActivityContext, ActivityImplementation, ActivityReport, ActivityTask, AttemptOutcome};

/// Runs the code and says how it went.
pub(super) async fn run(
    implementation: ActivityImplementation,
    envelope: Arc<Envelope<ActivityTask>>,
    payload_bytes_max: usize,
) -> ActivityReport {
    let cx = ActivityContext::new(Arc::clone(&envelope));
    // The code before the first await runs inside as well, so that its panic is caught too.
    let attempt = AssertUnwindSafe(async move { implementation.start(cx).await });
    let outcome = match attempt.catch_unwind().await {
        Ok(outcome) => bounded(outcome, payload_bytes_max),
        Err(panic) => Err((
            ActivityFailure::Panicked {
                message: panic_message(panic.as_ref()),
            },
            true,
        )),
    };
    let task = envelope.payload();
    ActivityReport {
        run: task.run,
        operation: task.scheduled.operation,
        attempt: task.attempt,
        outcome,
    }
}

/// Turns a value that is too large into a failure that says so.
fn bounded(outcome: AttemptOutcome, bytes_max: usize) -> AttemptOutcome {
    let (what, bytes) = match &outcome {
        Ok(value) => ("result", value.len()),
        Err((ActivityFailure::Failed { error, message }, _)) => ("error", error.len().max(message.len())),
        Err(_) => return outcome,
    };
    if bytes <= bytes_max {
        return outcome;
    }
    let message = format!(
        "the activity's {what} has {bytes} bytes, a payload may have {bytes_max}: return a reference instead"
    );
    Err((ActivityFailure::Unreadable { message }, false))
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}
