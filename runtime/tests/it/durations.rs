//! How long things take, compared with what the histories say.

use std::collections::BTreeMap;
use std::time::Duration;

use millrun::history::{Event, Sequence};
use millrun::operating::{BulkAction, Durations, Histogram, NamedHistogram};
use millrun::workflow::OperationId;
use millrun::{
    Activity, ActivityContext, ActivityError, Retry, RunId, Runtime, RuntimeBuilder, Signal, Timestamp,
    Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::Store;

const STEP: Activity<u64, u64> = Activity::named("step");
const REST: Activity<u64, u64> = Activity::named("rest").on_queue("slow");
const GO: Signal<u64> = Signal::named("go");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");
const CHAIN: Workflow<u64, u64> = Workflow::named("chain");

/// Fails at multiples of three the first time.
async fn step(cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    if number.is_multiple_of(3) && cx.attempt() == 1 {
        return Err(ActivityError::retryable(
            "the first attempt at a multiple of three",
        ));
    }
    Ok(number + 1)
}

async fn flow(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let retry = Retry::exponential().first_pause(Duration::from_millis(10 + number));
    let stepped = cx.call(STEP, number).retry(retry).await?;
    cx.sleep(Duration::from_millis(stepped * 7)).await?;
    let rested = cx.call(REST, stepped).await?;
    if number.is_multiple_of(4) {
        cx.receive(GO).await?;
    }
    Ok(rested)
}

/// Goes on in another run, until the number is zero.
async fn chain(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.sleep(Duration::from_secs(number)).await?;
    if number > 0 {
        return Ok(cx.continue_as_new(CHAIN, number - 1).await?);
    }
    Ok(0)
}

fn add(to: &mut BTreeMap<String, Histogram>, name: &str, took: Duration) {
    let histogram = to.entry(name.to_owned()).or_default();
    let place = Histogram::BOUNDS.iter().position(|bound| took <= *bound);
    histogram.counts[place.unwrap_or(Histogram::BOUNDS.len())] += 1;
    histogram.sum += took;
}

/// What the histories of these runs say of runs and attempts.
#[derive(Debug, Default)]
struct Expected {
    runs: BTreeMap<String, Histogram>,
    attempts: BTreeMap<String, Histogram>,
}

impl Expected {
    async fn read(&mut self, runtime: &Runtime, run: RunId) {
        let page = runtime.history(run, Sequence::ZERO, 1_000).await.unwrap();
        let mut due: BTreeMap<OperationId, (String, Timestamp)> = BTreeMap::new();
        let (mut workflow, began_at) = (String::new(), page.events[0].at);
        for recorded in &page.events {
            let at = recorded.at;
            match &recorded.event {
                Event::Started(started) => workflow = started.workflow.to_string(),
                Event::ActivityScheduled(scheduled) => {
                    due.insert(scheduled.operation, (scheduled.activity.to_string(), at));
                }
                Event::AttemptFailed {
                    operation, retry_at, ..
                } => {
                    let (activity, due_at) = due.get_mut(operation).unwrap();
                    add(&mut self.attempts, activity, at.saturating_since(*due_at));
                    *due_at = *retry_at;
                }
                Event::ActivityCompleted { operation, .. } => {
                    let (activity, due_at) = due.remove(operation).unwrap();
                    add(&mut self.attempts, &activity, at.saturating_since(due_at));
                }
                event if event.is_last() => {
                    add(&mut self.runs, &workflow, at.saturating_since(began_at));
                }
                _ => {}
            }
        }
    }
}

fn by_name(rows: &[NamedHistogram]) -> BTreeMap<String, Histogram> {
    rows.iter()
        .map(|row| (row.name.clone(), row.histogram.clone()))
        .collect()
}

/// Over a runtime whose activity `rest` takes as many tenths of a second as its input says.
fn builder(builder: RuntimeBuilder, world: &SimHost) -> RuntimeBuilder {
    let host = world.host();
    builder
        .host(world.host())
        .register(STEP, step)
        .register(REST, move |_: ActivityContext, tenths: u64| {
            let rest = host.sleep_until(host.now() + Duration::from_millis(tenths * 100));
            async move {
                rest.await;
                Ok(tenths)
            }
        })
        .register(FLOW, flow)
        .register(CHAIN, chain)
}

#[test]
fn durations_of_runs_and_attempts_are_those_of_the_histories() {
    for seed in 1..=12 {
        let store = Store::new();
        let world = SimHost::new(SimConfig::seeded(seed));
        let builder = builder(store.bare(), &world).configure(|config| {
            config.shards_len = 1 + (seed % 3) as usize;
            // Of some seeds each message reads its run first.
            config.hot_len_max = if seed % 2 == 0 { 0 } else { 100 };
        });
        let script = async {
            let runtime = builder.start().await.unwrap();
            assert_eq!(runtime.durations(), Durations::default());
            let mut expected = Expected::default();
            let mut handles = Vec::new();
            for number in 0..12 {
                let id = format!("flow-{number}");
                handles.push((number, runtime.start(FLOW, &id, number).await.unwrap()));
            }
            for (number, handle) in handles {
                if number % 4 == 0 {
                    handle.signal(GO, 1).await.unwrap();
                }
                handle.result().await.unwrap();
                let run = handle.run_id().unwrap();
                expected.read(&runtime, run).await;
            }
            runtime
                .start(CHAIN, "chain", 3)
                .await
                .unwrap()
                .result()
                .await
                .unwrap();
            for finished in runtime.list_finished(None, 100).await.unwrap() {
                if finished.id.as_str() == "chain" {
                    expected.read(&runtime, finished.run).await;
                }
            }
            let durations = runtime.durations();
            assert_eq!(by_name(&durations.runs), expected.runs, "seed {seed}");
            assert_eq!(by_name(&durations.attempts), expected.attempts, "seed {seed}");
            let stats = runtime.stats();
            let waits: u64 = durations.waits.iter().map(|row| row.histogram.len()).sum();
            assert_eq!(waits, stats.attempts, "seed {seed}");
            let commits = durations.commits.len();
            assert!(
                commits > 0 && commits <= stats.journal.turns,
                "seed {seed}: {commits}"
            );
            runtime.shutdown().await.unwrap();
        };
        world.block_on(script).unwrap();
    }
}

#[test]
fn tasks_wait_for_those_before_them_in_their_queue() {
    let world = SimHost::new(SimConfig::seeded(5));
    let builder = builder(Runtime::volatile(), &world).configure(|config| {
        config.queue_running_max.insert("slow".to_owned(), 1);
    });
    let script = async {
        let runtime = builder.start().await.unwrap();
        let before = runtime.durations();
        assert!(before.waits.is_empty());
        // Each has stepped at once and rests for eight seconds, one behind the other.
        let mut handles = Vec::new();
        for number in 0..5 {
            let handle = runtime.start(FLOW, &format!("r-{number}"), 79).await.unwrap();
            handles.push(handle);
        }
        for handle in handles {
            handle.result().await.unwrap();
        }
        let waits = runtime.durations().waits;
        let slow = &waits.iter().find(|row| row.name == "slow").unwrap().histogram;
        let bound = |seconds| {
            let place = |bound: &Duration| *bound == Duration::from_secs(seconds);
            slow.counts[Histogram::BOUNDS.iter().position(place).unwrap()]
        };
        assert_eq!(slow.len(), 5);
        // Eight seconds; sixteen and twenty-four; thirty-two.
        assert_eq!((bound(10), bound(30), bound(60)), (1, 2, 1), "{slow:?}");
        let sum = slow.sum.as_secs_f64();
        assert!((79.9..80.1).contains(&sum), "{sum}");
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}

#[test]
fn names_beyond_the_bound_are_told_together_and_bulks_not_at_all() {
    let world = SimHost::new(SimConfig::seeded(6));
    let builder = builder(Runtime::volatile(), &world).configure(|config| config.duration_names_max = 1);
    let script = async {
        let runtime = builder.start().await.unwrap();
        let _on = runtime.durations();
        runtime.start(FLOW, "a", 1).await.unwrap().result().await.unwrap();
        runtime
            .start(CHAIN, "b", 1)
            .await
            .unwrap()
            .result()
            .await
            .unwrap();
        runtime
            .start(CHAIN, "c", 2)
            .await
            .unwrap()
            .result()
            .await
            .unwrap();
        let bulk = runtime
            .bulk(BulkAction::Cancel {
                reason: "enough".into(),
            })
            .ids(["a"]);
        bulk.start("one").await.unwrap().result().await.unwrap();
        let durations = runtime.durations();
        let told = |rows: &[NamedHistogram]| -> Vec<_> {
            rows.iter()
                .map(|row| (row.name.clone(), row.histogram.len()))
                .collect()
        };
        assert_eq!(
            told(&durations.runs),
            [("flow".to_owned(), 1), (String::new(), 5)]
        );
        assert_eq!(
            told(&durations.attempts),
            [("step".to_owned(), 1), (String::new(), 1)]
        );
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}

#[test]
fn nothing_is_recorded_before_the_first_call() {
    let world = SimHost::new(SimConfig::seeded(7));
    let builder = builder(Runtime::volatile(), &world);
    let script = async {
        let runtime = builder.start().await.unwrap();
        runtime
            .start(FLOW, "before", 1)
            .await
            .unwrap()
            .result()
            .await
            .unwrap();
        assert_eq!(runtime.durations(), Durations::default());
        runtime
            .start(FLOW, "after", 1)
            .await
            .unwrap()
            .result()
            .await
            .unwrap();
        assert_eq!(runtime.durations().runs[0].histogram.len(), 1);
        let weak = runtime.downgrade();
        assert!(weak.upgrade().is_some());
        runtime.shutdown().await.unwrap();
        drop(runtime);
        assert!(weak.upgrade().is_none(), "a weak handle keeps nothing alive");
    };
    world.block_on(script).unwrap();
}
