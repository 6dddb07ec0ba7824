//! New code for runs in flight: what does not fit is parked and told, and old runs take the old way.

use std::error::Error;
use std::path::Path;

use millrun::operating::ParkReason;
use millrun::prelude::*;
use millrun::{ResultError, VersionPolicy};

const SCREEN: Activity<u64, String> = Activity::named("fraud.screen");
const CHARGE: Activity<u64, String> = Activity::named("payments.charge");
const CONFIRMED: Signal<()> = Signal::named("confirmed");
const ORDER: Workflow<u64, String> = Workflow::named("order");

async fn screen(_cx: ActivityContext, cents: u64) -> Result<String, ActivityError> {
    Ok(format!("{cents} cents screened"))
}

async fn charge(_cx: ActivityContext, cents: u64) -> Result<String, ActivityError> {
    Ok(format!("{cents} cents charged"))
}

// ANCHOR: before
async fn order(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let charged = cx.call(CHARGE, cents).await?;
    cx.receive(CONFIRMED).await?;
    Ok(charged)
}
// ANCHOR_END: before

// ANCHOR: careless
async fn careless(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let screened = cx.call(SCREEN, cents).await?; // a step that runs in flight have not made
    let charged = cx.call(CHARGE, cents).await?;
    cx.receive(CONFIRMED).await?;
    Ok(format!("{screened}, {charged}"))
}
// ANCHOR_END: careless

// ANCHOR: patched
async fn careful(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let mut told = String::new();
    // True in runs that get here for the first time, false in those that had come past it before.
    if cx.patched("screen-before-charge") {
        told = cx.call(SCREEN, cents).await? + ", ";
    }
    told += &cx.call(CHARGE, cents).await?;
    cx.receive(CONFIRMED).await?;
    Ok(told)
}
// ANCHOR_END: patched

// ANCHOR: versions
// The runs in flight have version 0, that of `ORDER`; those of them that fit move.
const ORDER_1: Workflow<u64, String> = ORDER.version(1).policy(VersionPolicy::MoveIfFits);

async fn thorough(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let charged = cx.call(CHARGE, cents).await?;
    cx.receive(CONFIRMED).await?;
    let screened = cx.call(SCREEN, cents).await?; // behind where the runs in flight are
    Ok(format!("{charged}, {screened}"))
}
// ANCHOR_END: versions

async fn side_by_side(store: &Path) -> Result<(), Box<dyn Error>> {
    let runtime = open(store).register(ORDER, order).start().await?;
    let old = runtime.start(ORDER, "order-1", 100).await?;
    old.until_described(|run| run.awaits(CONFIRMED.name())).await?;
    runtime.shutdown().await?;
    drop((old, runtime));

    // ANCHOR: side_by_side
    let builder = open(store).register(ORDER, order).register(ORDER_1, thorough);
    let runtime = builder.start().await?;
    let old = runtime.attach(ORDER, "order-1")?;
    old.signal(CONFIRMED, ()).await?;
    println!("{}", old.result().await?);
    for version in runtime.versions().iter().filter(|version| version.is_deletable) {
        println!(
            "version {} of {} can be deleted",
            version.version, version.workflow
        );
    }
    // ANCHOR_END: side_by_side
    runtime.shutdown().await?;
    Ok(())
}

fn open(store: &Path) -> millrun::RuntimeBuilder {
    Runtime::open(store)
        .register(SCREEN, screen)
        .register(CHARGE, charge)
}

async fn story(store: &Path) -> Result<(), Box<dyn Error>> {
    let runtime = open(store).register(ORDER, order).start().await?;
    let old = runtime.start(ORDER, "order-1", 100).await?;
    old.until_described(|run| run.awaits(CONFIRMED.name())).await?;
    runtime.shutdown().await?;
    drop((old, runtime));

    // ANCHOR: preflight
    let report = open(store).register(ORDER, careless).preflight().await?;
    for finding in &report.findings {
        let (runs, sequence) = (finding.runs, finding.sequence);
        println!(
            "{runs} of {} runs part from the code at event {sequence}",
            report.runs
        );
    }
    assert!(!report.is_fit());
    // ANCHOR_END: preflight

    // ANCHOR: parked
    let runtime = open(store).register(ORDER, careless).start().await?;
    let old = runtime.attach(ORDER, "order-1")?;
    old.signal(CONFIRMED, ()).await?; // recorded, whatever the code does
    if let Err(ResultError::Parked(reason)) = old.result().await
        && let ParkReason::Nondeterminism(difference) = *reason
    {
        println!("recorded: {}", difference.recorded);
        println!("replayed: {}", difference.replayed);
    }
    // ANCHOR_END: parked
    runtime.shutdown().await?;
    drop((old, runtime));

    // ANCHOR: report
    let runtime = open(store).register(ORDER, careful).start().await?;
    let found = runtime.startup_report();
    println!(
        "{} live, {} parked, {} without code",
        found.live, found.parked, found.not_registered
    );
    // ANCHOR_END: report
    println!("{}", runtime.attach(ORDER, "order-1")?.result().await?);
    let new = runtime.start(ORDER, "order-2", 200).await?;
    new.signal(CONFIRMED, ()).await?;
    println!("{}", new.result().await?);
    runtime.shutdown().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    story(&directory.path().join("shop.redb")).await?;
    side_by_side(&directory.path().join("versions.redb")).await
}
