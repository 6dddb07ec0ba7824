//! Schedules in a seeded world, whose time moves because the test moves it.

mod behaviour;
mod catching_up;
mod crashes;
mod late;
mod lost;
mod mistakes;
mod overlaps;
mod year;

use std::future::Future;
use std::time::Duration;

use millrun::operating::RunSearch;
use millrun::store::Retention;
use millrun::{Runtime, RuntimeBuilder, Signal, Timestamp, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{SimConfig, SimHost};

const REPORT: Workflow<u64, u64> = Workflow::named("report");
/// Waits until it is told to end.
const WORK: Workflow<(), u64> = Workflow::named("work");
const END: Signal<u64> = Signal::named("end");

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

async fn report(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

async fn work(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    Ok(cx.receive(END).await?)
}

fn coded(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(REPORT, report)
        .register(WORK, work)
        .configure(|config| {
            config.journal.retention = kept();
        })
}

fn at(text: &str) -> Timestamp {
    let time: chrono::DateTime<chrono::Utc> = text.parse().unwrap();
    Timestamp::from_micros(u64::try_from(time.timestamp_micros()).unwrap())
}

/// No age ends what is kept.
fn kept() -> Retention {
    let mut retention = Retention::in_memory();
    retention.age_max = Duration::MAX;
    retention
}

/// A world that begins at this time.
fn world_at(time: Timestamp, seed: u64) -> SimHost {
    let mut config = SimConfig::seeded(seed);
    config.starts_at = time;
    SimHost::new(config)
}

/// Lives through a script with a runtime in memory, in a world that begins at this time.
fn live<F: Future<Output = ()>>(time: &str, script: impl FnOnce(Runtime, World) -> F) {
    live_as(time, 7, |builder| builder, script);
}

/// As [`live`], of a runtime that is built otherwise.
fn live_as<F: Future<Output = ()>>(
    time: &str,
    seed: u64,
    change: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    script: impl FnOnce(Runtime, World) -> F,
) {
    let sim = world_at(at(time), seed);
    let host = sim.host();
    let life = async {
        let builder = change(coded(Runtime::volatile().host(sim.host())));
        let runtime = builder.start().await.unwrap();
        script(runtime.clone(), World(host)).await;
        runtime.shutdown().await.unwrap();
    };
    sim.block_on(life).unwrap();
}

/// The time of a world.
struct World(std::sync::Arc<dyn millrun::host::Host>);

impl World {
    async fn pass(&self, time: Duration) {
        self.0.sleep_until(self.0.now() + time).await;
    }
}

/// The ids of all runs of a workflow, one for each run, in order.
async fn ids_of(runtime: &Runtime, workflow: &str) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let search = RunSearch::new().workflow(workflow);
        let page = runtime.find(&search, after, 1_000).await.unwrap();
        ids.extend(page.runs.iter().map(|run| run.id.to_string()));
        after = page.next;
        if after.is_none() {
            ids.sort();
            return ids;
        }
    }
}
