//! Testing workflows: a world with a seed and a clock of its own, crashes, replays, and recorded histories.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use millrun::prelude::*;
use millrun::workflow::Either;
use millrun_testkit::{SimConfig, SimHost, SimStop};

const PAID: Signal<u64> = Signal::named("paid");
const REMIND: Activity<u32, ()> = Activity::named("mail.remind");
const INVOICE: Workflow<(), String> = Workflow::named("invoice");

/// Reminds once a week, four times.
async fn invoice(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
    for number in 1..=4 {
        match cx
            .race(cx.receive(PAID), cx.sleep(Duration::from_secs(7 * 86_400)))
            .await
        {
            Either::Left(cents) => return Ok(format!("{} cents in week {number}", cents?)),
            Either::Right(slept) => slept?,
        }
        cx.call(REMIND, number).await?;
    }
    Err(WorkflowError::failed("nobody has paid"))
}

// ANCHOR: builder
fn program(builder: millrun::RuntimeBuilder) -> millrun::RuntimeBuilder {
    builder
        .register(REMIND, async |cx: ActivityContext, number: u32| {
            // Fails the first time, as mail servers do.
            match cx.attempt() {
                1 => Err(ActivityError::retryable(format!("reminder {number} came back"))),
                _ => Ok(()),
            }
        })
        .register(INVOICE, invoice)
}
// ANCHOR_END: builder

// ANCHOR: weeks
/// Weeks of virtual time pass in a moment, and the same seed gives the same steps.
fn an_invoice_is_paid_in_the_third_week(seed: u64) -> Result<String, Box<dyn Error>> {
    let world = SimHost::new(SimConfig::seeded(seed));
    let runtime = world.block_on(program(Runtime::volatile()).host(world.host()).start())??;
    let run = world.block_on(runtime.start(INVOICE, "invoice-1", ()).into_future())??;
    assert_eq!(world.advance(Duration::from_secs(15 * 86_400)), SimStop::Reached);
    world.block_on(run.signal(PAID, 1_999))??;
    Ok(world.block_on(run.result())??)
}
// ANCHOR_END: weeks

// ANCHOR: crash
/// The process dies after this many steps, and what was acknowledged is there each time.
fn a_crash_at_any_step_loses_nothing(steps: u64) -> Result<String, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = directory.path().join("shop.redb");
    let world = SimHost::new(SimConfig::seeded(steps));
    let open = || program(Runtime::open(&store)).host(world.host()).start();

    let runtime = world.block_on(open())??;
    let run = world.block_on(runtime.start(INVOICE, "invoice-1", ()).into_future())??;
    let mut left = steps;
    let reached = world.run_until(|| {
        left -= 1;
        left == 0
    });
    assert_eq!(reached, SimStop::Reached);
    world.crash();
    drop((run, runtime));

    let runtime = world.block_on(open())??;
    let run = runtime.attach(INVOICE, "invoice-1")?;
    world.block_on(run.signal(PAID, 1_999))??;
    let told = world.block_on(run.result())??;
    world.block_on(runtime.shutdown())??;
    Ok(told)
}
// ANCHOR_END: crash

// ANCHOR: strict
/// Nothing is kept in memory, so that each turn begins with a replay of all before it; and a value that is
/// not the same in the replay parks the run.
fn each_turn_is_replayed(seed: u64) -> Result<(), Box<dyn Error>> {
    let world = SimHost::new(SimConfig::seeded(seed));
    let builder = program(Runtime::volatile())
        .host(world.host())
        .configure(|config| {
            config.hot_len_max = 0;
            config.limits.strict = true;
        });
    let runtime = world.block_on(builder.start())??;
    let run = world.block_on(runtime.start(INVOICE, "invoice-1", ()).into_future())??;
    let result = world.block_on(run.result())?;
    assert!(result.is_err_and(|error| error.to_string().ends_with("nobody has paid")));
    let stats = runtime.stats();
    assert!(stats.loads > 4 && stats.replay_differences == 0, "{stats:?}");
    Ok(())
}
// ANCHOR_END: strict

// ANCHOR: histories
/// Opens a copy of production's store with the code of today, and lets a year pass over the runs in it.
fn recorded_histories_fit(store: &Path) -> Result<u64, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let copy = directory.path().join("copy.redb");
    std::fs::copy(store, &copy)?;
    let world = SimHost::new(SimConfig::seeded(1));
    let runtime = world.block_on(program(Runtime::open(copy)).host(world.host()).start())??;
    let found = runtime.startup_report().live;
    // All timers fire, and all retries are made: each run is woken, and replayed first.
    assert_eq!(world.advance(Duration::from_secs(365 * 86_400)), SimStop::Reached);
    for instance in world.block_on(runtime.list(None, 1_000))?? {
        let run = world.block_on(runtime.attach_untyped(instance.id.as_str())?.describe_awake())??;
        assert_eq!(run.parked, None, "{}", run.id);
    }
    world.block_on(runtime.shutdown())??;
    Ok(found)
}
// ANCHOR_END: histories

// ANCHOR: exported
/// Replays each history in a folder with the code of today.
fn exported_histories_fit(folder: &Path) -> Result<usize, millrun_testkit::ReplayRefused> {
    let code = program(Runtime::volatile()).implementations();
    Ok(millrun_testkit::replay(folder, code)?.files.len())
}
// ANCHOR_END: exported

/// A store as production might have left it, and its histories as files.
fn recorded(store: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    let world = SimHost::new(SimConfig::seeded(3));
    let runtime = world.block_on(program(Runtime::open(store)).host(world.host()).start())??;
    for number in 0..3 {
        let id = format!("invoice-{number}");
        let run = world.block_on(runtime.start(INVOICE, &id, ()).into_future())??;
        assert_eq!(world.advance(Duration::from_secs(8 * 86_400)), SimStop::Reached);
        let history = world.block_on(run.export_history())??;
        std::fs::write(folder.join(format!("{id}.jsonl")), history.to_string())?;
    }
    world.block_on(runtime.shutdown())??;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", an_invoice_is_paid_in_the_third_week(7)?);
    assert_eq!(
        an_invoice_is_paid_in_the_third_week(7)?,
        an_invoice_is_paid_in_the_third_week(8)?
    );
    for steps in 1..=40 {
        let told = a_crash_at_any_step_loses_nothing(steps)?;
        assert!(
            told.starts_with("1999 cents in week"),
            "crash after {steps} steps: {told}"
        );
    }
    println!("no crash lost anything");
    each_turn_is_replayed(7)?;
    println!("each turn was replayed");
    let directory = tempfile::tempdir()?;
    let store = directory.path().join("production.redb");
    recorded(&store, directory.path())?;
    println!(
        "{} exported histories fit",
        exported_histories_fit(directory.path())?
    );
    println!("{} recorded runs fit", recorded_histories_fit(&store)?);
    Ok(())
}
