//! Operating: what is stuck and why, backups, verification, counters, and the end.

use std::error::Error;
use std::time::Duration;

use millrun::operating::{
    AttemptStanding, BulkAction, InstanceStatus, PendingDescription, RunSearch, RunStatus, WaitsFor,
};
use millrun::prelude::*;

const CHARGE: Activity<u64, String> = Activity::named("payments.charge");
const SHIP: Activity<String, String> = Activity::named("parcels.ship");
const CONFIRMED: Signal<()> = Signal::named("confirmed");
const ORDER: Workflow<u64, String> = Workflow::named("order");

async fn charge(_cx: ActivityContext, cents: u64) -> Result<String, ActivityError> {
    match cents {
        0 => Err(ActivityError::retryable("the bank does not answer")),
        cents => Ok(format!("{cents} cents")),
    }
}

async fn order(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let retry = Retry::exponential().first_pause(Duration::from_secs(3_600));
    let receipt = cx.call(CHARGE, cents).retry(retry).await?;
    cx.receive(CONFIRMED).await?;
    assert!(cents != 666, "nobody may charge this");
    Ok(cx.call(SHIP, receipt).await?)
}

// ANCHOR: stuck
/// Says of a run what holds it up, in a line; `println!("{}", run.why().await?)` says it all.
async fn why(runtime: &Runtime, id: &str) -> Result<String, Box<dyn Error>> {
    let why = runtime.attach_untyped(id)?.why_awake().await?;
    let leaves = why.leaves().into_iter();
    let lines = leaves.map(|(run, wait)| match &wait.what {
        WaitsFor::Activity(call) => match (&call.standing, &call.last_error) {
            (AttemptStanding::NotRegistered, _) => format!("{} has no code in this program", call.activity),
            (_, Some(error)) => format!("{}: {error}, {} failed", call.activity, call.failures),
            (_, None) => format!("{}: attempt {}", call.activity, call.attempt),
        },
        WaitsFor::Parked {
            reason: Some(reason), ..
        } => format!("parked: {reason}"),
        WaitsFor::Signal { name } => format!("the signal {name}"),
        _ => run.sentence(wait),
    });
    Ok(lines.collect::<Vec<_>>().join("; "))
}
// ANCHOR_END: stuck

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("shop.redb");
    let runtime = Runtime::open(&path)
        .register(CHARGE, charge)
        .register(ORDER, order)
        .configure(|config| {
            config.limits.panics_max = 0; // a panic parks at once, and for good
            config.shutdown_grace = Duration::from_secs(5);
            config.shutdown_wait_max = Duration::from_secs(20);
        })
        .start()
        .await?;

    for (id, cents) in [
        ("order-1", 0),
        ("order-2", 100),
        ("order-3", 200),
        ("order-4", 666),
    ] {
        let run = runtime.start(ORDER, id, cents).await?;
        if cents > 0 {
            run.until_described(|run| run.awaits(CONFIRMED.name())).await?;
        }
        if cents > 100 {
            run.signal(CONFIRMED, ()).await?;
        }
        if cents == 0 {
            let has_failed = |pending: &_| {
                matches!(
                    pending,
                    PendingDescription::Activity {
                        retry_at: Some(_),
                        ..
                    }
                )
            };
            run.until_described(|run| run.pending.iter().any(has_failed))
                .await?;
        }
    }

    // ANCHOR: list
    for instance in runtime.list(None, 1_000).await? {
        println!("{}: {}", instance.id, why(&runtime, instance.id.as_str()).await?);
        if instance.status == InstanceStatus::Parked {
            println!("{} needs somebody to look at it", instance.id);
        }
    }
    // ANCHOR_END: list

    // ANCHOR: pause
    let run = runtime.attach(ORDER, "order-2")?;
    run.pause("the bank asks us to wait").await?; // durable: a restart does not end it
    println!("order-2: {}", why(&runtime, "order-2").await?);
    run.resume().await?;
    // ANCHOR_END: pause
    run.pause("the bank asks us once more").await?;

    // ANCHOR: bulk
    let paused = RunSearch::new().workflow("order").status(RunStatus::Paused);
    let bulk = runtime.bulk(BulkAction::Resume).matching(paused).per_second(50);
    println!("{} paused", bulk.count().await?.reached_len);
    let progress = bulk.start("bank-is-back").await?.result().await?;
    println!("{} resumed, {} failed", progress.done_len, progress.failed_len);
    // ANCHOR_END: bulk

    // ANCHOR: backup
    let store = runtime.store().expect("the runtime was opened by path");
    let verified = store.verify().await?;
    println!("{} damaged records", verified.damaged.len());
    store.backup(directory.path().join("backup.redb")).await?;
    let exported = store.export(directory.path().join("histories.ndjson")).await?;
    println!("{} runs exported", exported.runs);
    // ANCHOR_END: backup

    // ANCHOR: metrics
    let stats = runtime.stats();
    println!(
        "live {}, parked {}, finished {}",
        stats.live, stats.parked, stats.finished
    );
    println!(
        "disk full: {}, retention stopped: {}",
        stats.journal.is_disk_full, stats.journal.is_retention_stopped
    );
    let restarts: u32 = runtime.parts().iter().map(|part| part.restarts).sum();
    println!("restarts of parts: {restarts}");
    // ANCHOR_END: metrics

    // ANCHOR: durations
    let durations = runtime.durations(); // recorded from the first call on
    for row in &durations.runs {
        let within = row.histogram.quantile(0.99);
        println!(
            "{}: 99 of a hundred runs took no longer than {within:?}",
            row.name
        );
    }
    // ANCHOR_END: durations

    // ANCHOR: stopped
    let stopped = runtime.stopped(); // in a task of its own: what ends the process when the runtime has ended
    let report = runtime.shutdown().await?;
    println!(
        "{} activities cut, {} parts left behind",
        report.activities_cut,
        report.left_behind.len()
    );
    println!("{}", stopped.await);
    // ANCHOR_END: stopped
    drop(runtime);

    // ANCHOR: restore
    // A backup is a store.
    let restored = Runtime::open(directory.path().join("backup.redb"))
        .register(CHARGE, charge)
        .register(ORDER, order)
        .start()
        .await?;
    println!("the backup has {} live runs", restored.startup_report().live);
    // ANCHOR_END: restore
    restored.shutdown().await?;
    Ok(())
}
