//! The shortest whole program: one workflow, one activity, one file.
//!
//! Run it twice: the second time it shows the result of the first, because the id is the same.

use std::error::Error;
use std::time::Duration;

use millrun::{Activity, ActivityContext, ActivityError, Runtime, Workflow, WorkflowContext, WorkflowError};

const CHARGE: Activity<u64, String> = Activity::named("payments.charge");
const CHECKOUT: Workflow<u64, String> = Workflow::named("checkout");

// An activity has side effects. It may run again after a crash; the key makes that harmless.
async fn charge(cx: ActivityContext, cents: u64) -> Result<String, ActivityError> {
    Ok(format!("{cents} cents paid, receipt {}", cx.idempotency_key()))
}

// A workflow is plain code that goes on where it was, whatever happens to the process.
async fn checkout(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    cx.sleep(Duration::from_millis(100)).await?;
    Ok(cx.call(CHARGE, cents).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let builder = Runtime::open("quickstart.redb").register(CHARGE, charge);
    let runtime = builder.register(CHECKOUT, checkout).start().await?;
    let run = runtime.start(CHECKOUT, "order-42", 1_999).await?; // durable when this returns
    println!("{}", run.result().await?);
    runtime.shutdown().await?;
    Ok(())
}
