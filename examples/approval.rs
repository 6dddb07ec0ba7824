//! Waiting for a person, but not for ever: a signal in a race with a timer.
//!
//! Both survive restarts. The loser of the race is cancelled durably: a signal that comes later
//! is not taken by a branch that has gone.

use std::error::Error;
use std::time::Duration;

use millrun::workflow::Either;
use millrun::{Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};

const APPROVED: Signal<String> = Signal::named("approved");
pub(crate) const HOLIDAY: Workflow<Duration, String> = Workflow::named("holiday");

async fn holiday(cx: WorkflowContext, patience: Duration) -> Result<String, WorkflowError> {
    match cx.race(cx.receive(APPROVED), cx.sleep(patience)).await {
        Either::Left(by) => Ok(format!("approved by {}", by?)),
        Either::Right(slept) => {
            slept?;
            Ok("nobody answered".into())
        }
    }
}

pub(crate) fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(HOLIDAY, holiday)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = registered(Runtime::volatile()).start().await?;

    let answered = runtime.start(HOLIDAY, "ada", Duration::from_secs(86_400)).await?;
    answered.signal(APPROVED, "grace".to_owned()).await?;
    println!("ada: {}", answered.result().await?);

    let ignored = runtime.start(HOLIDAY, "alan", Duration::from_millis(50)).await?;
    println!("alan: {}", ignored.result().await?);

    runtime.shutdown().await?;
    Ok(())
}
