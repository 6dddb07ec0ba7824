//! A first workflow: an order is charged and shipped, and the process ends in between.

use std::error::Error;
use std::path::Path;

// ANCHOR: definitions
use millrun::prelude::*;

const CHARGE: Activity<u64, String> = Activity::named("payments.charge");
const SHIP: Activity<String, String> = Activity::named("parcels.ship");
const ORDER: Workflow<u64, String> = Workflow::named("order");
// ANCHOR_END: definitions

// ANCHOR: activities
async fn charge(_cx: ActivityContext, cents: u64) -> Result<String, ActivityError> {
    println!("charging {cents} cents");
    Ok(format!("receipt for {cents} cents"))
}

async fn ship(_cx: ActivityContext, receipt: String) -> Result<String, ActivityError> {
    println!("shipping");
    Ok(format!("shipped, {receipt}"))
}
// ANCHOR_END: activities

// ANCHOR: workflow
async fn order(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let receipt = cx.call(CHARGE, cents).await?;
    Ok(cx.call(SHIP, receipt).await?)
}
// ANCHOR_END: workflow

// ANCHOR: open
async fn open(store: &Path) -> Result<Runtime, Box<dyn Error>> {
    let builder = Runtime::open(store).register(CHARGE, charge).register(SHIP, ship);
    Ok(builder.register(ORDER, order).start().await?)
}
// ANCHOR_END: open

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = directory.path().join("shop.redb");

    // ANCHOR: start
    let runtime = open(&store).await?;
    let run = runtime.start(ORDER, "order-42", 1_999).await?; // durable when this returns
    println!("{}", run.result().await?);
    runtime.shutdown().await?;
    // ANCHOR_END: start
    drop((run, runtime));

    // ANCHOR: again
    let runtime = open(&store).await?;
    let run = runtime.start(ORDER, "order-42", 1_999).await?; // the id is taken: a handle to that run
    println!("again: {}", run.result().await?);
    // ANCHOR_END: again
    runtime.shutdown().await?;
    Ok(())
}
