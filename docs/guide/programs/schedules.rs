//! Runs that start by the calendar.

use std::time::Duration;

use millrun::schedules::{OverlapPolicy, ScheduleCalendar, ScheduleError, ScheduleHandle};
use millrun::{Runtime, Timestamp, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{SimConfig, SimHost};

// ANCHOR: workflow
const REPORT: Workflow<String, String> = Workflow::named("report");

async fn report(cx: WorkflowContext, region: String) -> Result<String, WorkflowError> {
    // nightly/2026-03-29T01:00:00Z: the id tells the due time.
    Ok(format!("{region}, as {}", cx.instance_id()))
}
// ANCHOR_END: workflow

// ANCHOR: make
async fn make(runtime: &Runtime) -> Result<ScheduleHandle, ScheduleError> {
    runtime
        .schedule("nightly", REPORT, "eu".into())
        .cron("30 2 * * *")
        .zone("Europe/Berlin")
        .overlap(OverlapPolicy::BufferOne)
        .jitter(Duration::from_secs(60))
        .await
}
// ANCHOR_END: make

// ANCHOR: update
async fn update(runtime: &Runtime) -> Result<(), ScheduleError> {
    let quarters = ScheduleCalendar::new()
        .last_day_of_month()
        .months([3, 6, 9, 12])
        .hours([18]);
    runtime
        .schedule("nightly", REPORT, "eu".into())
        .cron("30 2 * * MON-FRI")
        .calendar(quarters)
        .zone("Europe/Berlin")
        .update()
        .await?;
    Ok(())
}
// ANCHOR_END: update

// ANCHOR: operate
async fn operate(nightly: &ScheduleHandle) -> Result<String, ScheduleError> {
    nightly.pause("the warehouse is moved").await?;
    let described = nightly.describe().await?;
    println!("paused: {}", described.paused.unwrap_or_default());
    nightly.resume("it is back").await?;
    // Two nights of the past, one after the other.
    let (from, through) = (night(25), night(27));
    nightly
        .backfill(from, through)
        .overlap(OverlapPolicy::BufferAll)
        .await?;
    nightly.trigger().await
}
// ANCHOR_END: operate

/// The end of this day of March.
fn night(day: u64) -> Timestamp {
    Timestamp::from_micros((1_772_323_200 + day * 86_400 - 1) * 1_000_000)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A world whose time the program moves: 2026-03-28.
    let mut config = SimConfig::seeded(1);
    config.starts_at = Timestamp::from_micros(1_774_656_000_000_000);
    let world = SimHost::new(config);
    let host = world.host();
    let play = async {
        let runtime = Runtime::volatile()
            .host(world.host())
            .register(REPORT, report)
            .start()
            .await?;
        let nightly = make(&runtime).await?;
        host.sleep_until(host.now() + Duration::from_secs(2 * 86_400))
            .await;
        for action in nightly.describe().await?.recent {
            println!("started: {}", action.id);
        }
        update(&runtime).await?;
        println!("triggered: {}", operate(&nightly).await?);
        runtime.shutdown().await?;
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    world.block_on(play)?
}
