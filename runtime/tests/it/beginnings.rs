//! Calls that must begin in time, also where nobody works through their queue, and across restarts.

use std::time::Duration;

use millrun::operating::{InstanceDescription, PendingDescription};
use millrun::workflow::TimeoutKind;
use millrun::{
    Activity, ActivityContext, ActivityError, CallError, Retry, Runtime, RuntimeBuilder, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{Store, described};

const STEP: Activity<(), u64> = Activity::named("step");
const OTHER: Activity<(), u64> = Activity::named("other");
/// Which timeout ended it, or its value; and how many seconds that took.
const WAIT: Workflow<u64, (String, u64)> = Workflow::named("wait");

fn told(end: Result<u64, CallError<ActivityError>>) -> Result<String, WorkflowError> {
    match end {
        Ok(value) => Ok(value.to_string()),
        Err(CallError::TimedOut(kind)) => Ok(kind.to_string()),
        Err(error) => Err(error.into()),
    }
}

/// A call that must begin within a minute, and end within an hour.
async fn wait(cx: WorkflowContext, call: u64) -> Result<(String, u64), WorkflowError> {
    let begun = cx.now();
    let minute = Duration::from_secs(60);
    let pause = Retry::exponential().first_pause(Duration::from_secs(10));
    let call = match call {
        // Its activity is not registered; its queue is not; neither is; and one that only has to end.
        0 => cx.call(STEP, ()).schedule_to_start(minute),
        1 => cx.call(OTHER, ()).on_queue("nobody").schedule_to_start(minute),
        2 => cx.call(STEP, ()).on_queue("nobody").schedule_to_start(minute),
        _ => cx.call(STEP, ()).on_queue("nobody"),
    };
    let call = call.start_to_close(Duration::from_secs(86_400)).retry(pause);
    let end = told(call.schedule_to_close(60 * minute).await)?;
    Ok((end, cx.now().saturating_since(begun).as_secs()))
}

async fn other(_cx: ActivityContext, (): ()) -> Result<u64, ActivityError> {
    Ok(7)
}

async fn busy(_cx: ActivityContext, (): ()) -> Result<u64, ActivityError> {
    Err(ActivityError::retryable("busy"))
}

async fn hangs(_cx: ActivityContext, (): ()) -> Result<u64, ActivityError> {
    std::future::pending().await
}

/// A world that begins `later` seconds later than others.
fn world(seed: u64, later: u64) -> SimHost {
    let mut config = SimConfig::seeded(seed);
    config.starts_at = config.starts_at + Duration::from_secs(later);
    SimHost::new(config)
}

fn open(store: &Store, world: &SimHost) -> RuntimeBuilder {
    let builder = store.bare().host(world.host());
    builder.register(WAIT, wait).register(OTHER, other)
}

/// Starts the call in a life of its own, which ends with a crash when the run is as wanted.
fn begin(builder: RuntimeBuilder, world: &SimHost, is_wanted: impl Fn(&InstanceDescription) -> bool) {
    let script = async {
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(WAIT, "w", 0).await.unwrap();
        described(&run, is_wanted).await;
        runtime
    };
    let runtime = world.block_on(script).unwrap();
    world.crash();
    drop(runtime);
}

async fn end(runtime: Runtime) -> (String, u64) {
    let end = runtime.attach(WAIT, "w").unwrap().result().await.unwrap();
    runtime.shutdown().await.unwrap();
    end
}

#[test]
fn a_call_that_nobody_takes_ends_when_its_time_is_over() {
    let (start, close) = (TimeoutKind::ScheduleToStart, TimeoutKind::ScheduleToClose);
    for (call, kind, seconds) in [(0, start, 60), (1, start, 60), (2, start, 60), (3, close, 3_600)] {
        let (store, world) = (Store::new(), world(call, 0));
        let builder = open(&store, &world);
        let script = async {
            let runtime = builder.start().await.unwrap();
            drop(runtime.start(WAIT, "w", call).await.unwrap());
            let end = end(runtime).await;
            assert_eq!(end, (kind.to_string(), seconds), "call {call}");
        };
        world.block_on(script).unwrap();
    }
}

#[test]
fn the_time_to_begin_counts_from_the_call_whatever_restarts_come() {
    // Opened again before the time is over, and long after it.
    for (gone, expected) in [(10, 60), (3_000, 3_000)] {
        let store = Store::new();
        let first = world(1, 0);
        begin(open(&store, &first), &first, |run| run.pending.len() == 1);
        let second = world(2, gone);
        let builder = open(&store, &second);
        let script = async { end(builder.start().await.unwrap()).await };
        let kind = TimeoutKind::ScheduleToStart.to_string();
        assert_eq!(second.block_on(script).unwrap(), (kind, expected));
    }
}

#[test]
fn the_time_of_the_next_attempt_counts_from_when_it_is_due_whatever_restarts_come() {
    for (gone, expected) in [(0, 60), (3_000, 3_000)] {
        let store = Store::new();
        let first = world(1, 0);
        // The next attempt is due about ten seconds later.
        begin(open(&store, &first).register(STEP, busy), &first, |run| {
            matches!(
                run.pending[..],
                [PendingDescription::Activity {
                    retry_at: Some(_),
                    ..
                }]
            )
        });
        let second = world(2, gone);
        let builder = open(&store, &second);
        let script = async { end(builder.start().await.unwrap()).await };
        let (kind, seconds) = second.block_on(script).unwrap();
        assert_eq!(kind, TimeoutKind::ScheduleToStart.to_string());
        assert!((expected..expected + 15).contains(&seconds), "{seconds} s");
        assert!(gone > 0 || seconds > 60, "it counts from the call: {seconds} s");
    }
}

#[test]
fn an_attempt_that_had_begun_in_time_is_made_again_after_a_crash() {
    let store = Store::new();
    let first = world(1, 0);
    // That it has begun is the third event.
    begin(open(&store, &first).register(STEP, hangs), &first, |run| {
        run.sequence.get() == 3
    });
    // A runtime that does not have its code: the time counts anew.
    let second = world(2, 600);
    let builder = open(&store, &second);
    let host = second.host();
    let script = async {
        let runtime = builder.start().await.unwrap();
        let run = runtime.attach(WAIT, "w").unwrap();
        host.sleep_until(host.now() + Duration::from_secs(50)).await;
        assert_eq!(run.describe().await.unwrap().sequence.get(), 3);
        runtime
    };
    let runtime = second.block_on(script).unwrap();
    second.crash();
    drop(runtime);
    let third = world(3, 1_200);
    let builder = open(&store, &third).register(STEP, other);
    let script = async { end(builder.start().await.unwrap()).await };
    assert_eq!(third.block_on(script).unwrap(), ("7".to_owned(), 1_200));
}

#[test]
fn a_shard_that_fails_takes_no_attempt_that_runs_for_one_that_never_began() {
    async fn hangs_once(cx: ActivityContext, (): ()) -> Result<u64, ActivityError> {
        match cx.attempt() {
            1 => std::future::pending().await,
            _ => Ok(7),
        }
    }
    let (store, world) = (Store::new(), world(1, 0));
    let builder = open(&store, &world).register(STEP, hangs_once);
    let host = world.host();
    let script = async {
        let runtime = builder.start().await.unwrap();
        drop(runtime.start(WAIT, "w", 0).await.unwrap());
        // Ten times as long as an attempt may wait to begin.
        host.sleep_until(host.now() + Duration::from_secs(600)).await;
        assert_eq!(runtime.stats().attempts, 1);
        runtime.kill("shard 0").unwrap();
        while runtime.stats().attempts == 1 {
            host.sleep_until(host.now() + Duration::from_millis(1)).await;
        }
        assert_eq!(end(runtime).await, ("7".to_owned(), 600));
    };
    world.block_on(script).unwrap();
}

#[test]
fn an_attempt_whose_place_is_taken_by_an_older_one_of_its_step_does_not_run_out_of_time() {
    let (store, world) = (Store::new(), world(1, 0));
    let builder = open(&store, &world).register(STEP, hangs);
    let builder = builder.configure(|config| config.activities_running_max = 1);
    let host = world.host();
    let script = async {
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(WAIT, "w", 0).await.unwrap();
        described(&run, |run| run.sequence.get() == 3).await;
        runtime.kill("shard 0").unwrap();
        // The successor knows of no attempt that runs, and the one that does takes the only place.
        host.sleep_until(host.now() + Duration::from_secs(1_800)).await;
        assert_eq!(run.describe().await.unwrap().sequence.get(), 3);
        let kind = TimeoutKind::ScheduleToClose.to_string();
        assert_eq!(end(runtime).await, (kind, 3_600));
    };
    world.block_on(script).unwrap();
}
