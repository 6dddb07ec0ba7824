//! A process that dies in the middle, and one that goes on.
//!
//! The first run of this program aborts itself in step 3. The second goes on with step 3, not
//! with step 1. The third shows the recorded result and runs nothing.

use std::error::Error;

use millrun::{Activity, ActivityContext, ActivityError, Runtime, Workflow, WorkflowContext, WorkflowError};

const STEP: Activity<u32, u32> = Activity::named("step");
const CLIMB: Workflow<u32, u32> = Workflow::named("climb");

/// The step in which the first process dies.
const STUMBLE: u32 = 3;

async fn step(cx: ActivityContext, number: u32) -> Result<u32, ActivityError> {
    println!("step {number}, attempt {}", cx.attempt());
    if number == STUMBLE && cx.attempt() == 1 {
        // As if the power had failed: nothing is cleaned up.
        std::process::abort();
    }
    Ok(number)
}

async fn climb(cx: WorkflowContext, steps: u32) -> Result<u32, WorkflowError> {
    let mut height = 0;
    for number in 1..=steps {
        height += cx.call(STEP, number).await?;
    }
    Ok(height)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::open("resume.redb")
        .register(STEP, step)
        .register(CLIMB, climb)
        .start()
        .await?;
    let run = runtime.start(CLIMB, "everest", 5).await?;
    println!("height {}", run.result().await?);
    runtime.shutdown().await?;
    Ok(())
}
