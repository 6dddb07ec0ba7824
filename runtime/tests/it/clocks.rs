//! Hosts whose clock was wrong for one opening of the store, and set right before the next.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::{Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::Store;

const GO: Signal<u64> = Signal::named("go");
const WAIT: Workflow<u64, Vec<u64>> = Workflow::named("wait");

const DAYS: Duration = Duration::from_secs(30 * 86_400);
const PAUSE: Duration = Duration::from_secs(60);

/// The times at which it began, went on, and had slept for a minute.
async fn wait(cx: WorkflowContext, _: u64) -> Result<Vec<u64>, WorkflowError> {
    let began = cx.now().as_micros();
    cx.receive(GO).await?;
    let went_on = cx.now().as_micros();
    cx.sleep(PAUSE).await?;
    Ok(vec![began, went_on, cx.now().as_micros()])
}

/// A machine's clock stood 30 days ahead for one opening of the store. When it had been set right, the
/// run's code saw times before its beginning. A timer that counted from the run's own time would then have
/// taken 30 days.
#[test]
fn a_run_that_was_dated_ahead_goes_on_with_its_time_and_sleeps_by_the_hosts() {
    let store = Store::new();
    let right = SimConfig::seeded(1).starts_at;
    let mut config = SimConfig::seeded(1);
    config.starts_at = right + DAYS;
    let world = SimHost::new(config);
    let builder = store.bare().host(world.host()).register(WAIT, wait);
    let script = async move {
        let runtime = builder.start().await.unwrap();
        drop(runtime.start(WAIT, "w", 0).await.unwrap());
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
    let began = world.now();
    drop(world);

    let world = SimHost::new(SimConfig::seeded(2));
    let builder = store.bare().host(world.host()).register(WAIT, wait);
    let times = Arc::new(Mutex::new(Vec::new()));
    let result = Arc::clone(&times);
    let script = async move {
        let runtime = builder.start().await.unwrap();
        let run = runtime.attach(WAIT, "w").unwrap();
        run.signal(GO, 1).await.unwrap();
        *result.lock().unwrap() = run.result().await.unwrap();
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
    assert!(
        world.now() < right + PAUSE + PAUSE,
        "it slept until {}",
        world.now()
    );
    let times = times.lock().unwrap().clone();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[0] >= (right + DAYS).as_micros() && times[0] <= began.as_micros());
}
