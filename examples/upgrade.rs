//! New code for runs that are in flight.
//!
//! A run that was begun by other code is parked with the difference as soon as it does not fit its
//! history; it loses nothing, and goes on when the code fits. `patched` lets old runs take the old
//! way and new runs the new one.

use std::error::Error;
use std::path::Path;

use millrun::operating::ParkReason;
use millrun::{
    Activity, ActivityContext, ActivityError, ResultError, Runtime, RuntimeBuilder, Signal, Workflow,
    WorkflowContext, WorkflowError,
};

const CHARGE: Activity<u64, String> = Activity::named("charge");
const SCREEN: Activity<u64, String> = Activity::named("screen");
const CONFIRMED: Signal<()> = Signal::named("confirmed");
const ORDER: Workflow<u64, String> = Workflow::named("order");

async fn charge(_cx: ActivityContext, cents: u64) -> Result<String, ActivityError> {
    Ok(format!("{cents} cents charged"))
}

async fn screen(_cx: ActivityContext, cents: u64) -> Result<String, ActivityError> {
    Ok(format!("{cents} cents screened"))
}

/// As it was in the beginning.
async fn first(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let charged = cx.call(CHARGE, cents).await?;
    cx.receive(CONFIRMED).await?;
    Ok(charged)
}

/// A step came in front of another, and nobody thought of the runs in flight.
async fn careless(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let screened = cx.call(SCREEN, cents).await?;
    let charged = cx.call(CHARGE, cents).await?;
    cx.receive(CONFIRMED).await?;
    Ok(format!("{screened}, {charged}"))
}

/// The same step, for runs that are not behind it already.
async fn careful(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let mut told = String::new();
    if cx.patched("screen-before-charge") {
        told = cx.call(SCREEN, cents).await? + ", ";
    }
    told += &cx.call(CHARGE, cents).await?;
    cx.receive(CONFIRMED).await?;
    Ok(told)
}

fn open(store: &Path) -> RuntimeBuilder {
    Runtime::open(store)
        .register(CHARGE, charge)
        .register(SCREEN, screen)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The story begins anew each time.
    let store = std::env::temp_dir().join(format!("upgrade-{}.redb", std::process::id()));

    let runtime = open(&store).register(ORDER, first).start().await?;
    let old = runtime.start(ORDER, "old", 100).await?;
    old.until_described(|run| run.awaits(CONFIRMED.name())).await?;
    runtime.shutdown().await?;
    drop(runtime);

    let runtime = open(&store).register(ORDER, careless).start().await?;
    let old = runtime.attach(ORDER, "old")?;
    old.signal(CONFIRMED, ()).await?; // recorded, whatever the code does
    if let Err(ResultError::Parked(reason)) = old.result().await
        && let ParkReason::Nondeterminism(difference) = *reason
    {
        print!("{}", difference.columns());
    }
    runtime.shutdown().await?;
    drop(runtime);

    let runtime = open(&store).register(ORDER, careful).start().await?;
    println!("old: {}", runtime.attach(ORDER, "old")?.result().await?);
    let new = runtime.start(ORDER, "new", 200).await?;
    new.signal(CONFIRMED, ()).await?;
    println!("new: {}", new.result().await?);
    runtime.shutdown().await?;
    std::fs::remove_file(store)?;
    Ok(())
}
