//! A run that lives for years: its history is cut by checkpoints, and by going on as a new run.

use std::error::Error;

use millrun::prelude::*;

// ANCHOR: customer
const BOUGHT: Signal<u64> = Signal::named("bought");
const CLOSED: Signal<()> = Signal::named("closed");
const CUSTOMER: Workflow<Points, u64> = Workflow::named("customer");

/// All that the code needs to begin again.
#[derive(Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
struct Points {
    sum: u64,
    purchases: u64,
}

async fn customer(cx: WorkflowContext, given: Points) -> Result<u64, WorkflowError> {
    let mut points: Points = cx.checkpointed().transpose()?.unwrap_or(given);
    loop {
        match cx.race(cx.receive(BOUGHT), cx.receive(CLOSED)).await {
            millrun::workflow::Either::Left(cents) => points.sum += cents? / 100,
            millrun::workflow::Either::Right(closed) => {
                closed?;
                return Ok(points.sum);
            }
        }
        points.purchases += 1;
        if points.purchases.is_multiple_of(100) {
            return Ok(cx.continue_as_new(CUSTOMER, points).await?); // another run, under the same id
        }
        if points.purchases.is_multiple_of(10) {
            return Ok(cx.checkpoint(&points).await?); // the same run, from here on
        }
    }
}
// ANCHOR_END: customer

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::volatile().register(CUSTOMER, customer).start().await?;
    // ANCHOR: handle
    let run = runtime.start(CUSTOMER, "customer-ada", Points::default()).await?;
    let first = run.describe().await?.run;
    for _ in 0..250 {
        run.signal(BOUGHT, 1_999).await?;
    }
    let now = run.describe().await?; // the handle follows
    println!("the same run: {}", now.run == first);
    run.signal(CLOSED, ()).await?;
    println!("{} points", run.result().await?);
    // ANCHOR_END: handle
    runtime.shutdown().await?;
    Ok(())
}
