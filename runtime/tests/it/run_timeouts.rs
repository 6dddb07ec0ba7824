//! Runs that are out of time, by themselves or with their chain.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::history::{Event, Sequence};
use millrun::operating::{InstanceStatus, ResetPoint, ResetRefused, RunSearch, RunStatus};
use millrun::workflow::RunTimeout;
use millrun::{
    ChildError, OnConflict, ResultError, Retry, RunError, RunHandle, RunId, Runtime, RuntimeBuilder, Signal,
    StartError, Timestamp, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::crashes::cut_off;
use crate::support::Store;

const GO: Signal<u64> = Signal::named("go");
/// Waits for a signal for ever, beside a timer; with an input of 1 it goes on as new with each.
const WAITS: Workflow<u64, u64> = Workflow::named("waits");
/// Calls the one above, and says how it ended.
const PARENT: Workflow<u64, String> = Workflow::named("parent");
const HOUR: Duration = Duration::from_secs(3_600);

async fn waits(cx: WorkflowContext, goes_on: u64) -> Result<u64, WorkflowError> {
    let (told, slept) = cx.join(cx.receive(GO), cx.sleep(HOUR / 60)).await;
    slept?;
    match goes_on {
        0 => Ok(told?),
        _ => Ok(cx.continue_as_new(WAITS, goes_on).await?),
    }
}

async fn parent(cx: WorkflowContext, hours: u64) -> Result<String, WorkflowError> {
    let id = format!("child-of-{}", cx.run_id());
    let time = HOUR * u32::try_from(hours).unwrap_or(1);
    let child = cx.child(WAITS, id, 0).run_timeout(time).chain_timeout(2 * HOUR);
    Ok(match child.await {
        Err(ChildError::TimedOut(timeout)) => format!("out of time: {timeout}"),
        other => format!("{other:?}"),
    })
}

fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(WAITS, waits).register(PARENT, parent)
}

fn begin() -> Timestamp {
    SimConfig::seeded(0).starts_at
}

/// Runs a script against a runtime in a seeded world that begins then.
fn in_world<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    store: &Store,
    starts_at: Timestamp,
    with: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    script: impl FnOnce(Runtime) -> F + Send + 'static,
) -> T {
    let mut config = SimConfig::seeded(5);
    config.starts_at = starts_at;
    let world = SimHost::new(config);
    let builder = with(store.bare().host(world.host()));
    let told = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&told);
    let script = async move {
        let runtime = builder.start().await.unwrap();
        let answer = script(runtime.clone()).await;
        *tell.lock().unwrap() = Some(answer);
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
    told.lock().unwrap().take().unwrap()
}

#[track_caller]
fn timed_out<O: std::fmt::Debug>(result: Result<O, ResultError<WorkflowError>>) -> RunTimeout {
    match result {
        Err(ResultError::TimedOut(timeout)) => timeout,
        other => panic!("{other:?}"),
    }
}

async fn last_event(runtime: &Runtime, run: RunId) -> Event {
    let page = runtime.history(run, Sequence::ZERO, 100).await.unwrap();
    page.events.last().unwrap().event.clone()
}

fn run_of<O>(handle: &RunHandle<O>) -> RunId {
    handle.run_id().expect("it was started, or reset")
}

#[test]
fn callers_descriptions_searches_and_counts_tell_that_a_run_was_out_of_time() {
    in_world(&Store::new(), begin(), with_code, async |runtime: Runtime| {
        let start = runtime.start(WAITS, "w", 0).run_timeout(HOUR);
        let run = start.chain_timeout(2 * HOUR).await.unwrap();
        let described = run.describe().await.unwrap();
        let deadline = described.deadline.unwrap();
        assert_eq!((deadline.at, deadline.timeout), (begin() + HOUR, RunTimeout::Run));
        assert_eq!(described.timed_out, None);
        let waiting = runtime.attach(WAITS, "w").unwrap();
        assert_eq!(timed_out(waiting.result().await), RunTimeout::Run);
        assert_eq!(runtime.host().now(), begin() + HOUR);
        assert_eq!(timed_out(run.result().await), RunTimeout::Run);
        let described = run.describe().await.unwrap();
        assert_eq!(described.status, InstanceStatus::Finished);
        assert_eq!(
            (described.deadline, described.timed_out),
            (None, Some(RunTimeout::Run))
        );
        assert!(matches!(run.signal(GO, 1).await, Err(RunError::Finished)));
        let timed = RunSearch::new().status(RunStatus::TimedOut);
        let found = runtime.find(&timed, None, 10).await.unwrap().runs;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].status, RunStatus::TimedOut);
        let terminated = RunSearch::new().status(RunStatus::Terminated);
        assert!(runtime.find(&terminated, None, 10).await.unwrap().runs.is_empty());
        let counts = runtime.counts();
        let counts = counts
            .workflows
            .iter()
            .find(|of| of.workflow == WAITS.name())
            .unwrap();
        assert_eq!((counts.timed_out, counts.terminated, counts.live()), (1, 0, 0));
        // It has not ended with a value, so another may begin.
        let again = runtime
            .start(WAITS, "w", 0)
            .on_conflict(OnConflict::RestartFailed);
        assert_ne!(run_of(&again.await.unwrap()), run_of(&run));
    });
}

#[test]
fn a_timeout_of_zero_is_refused_and_a_start_that_attaches_changes_no_time() {
    in_world(&Store::new(), begin(), with_code, async |runtime: Runtime| {
        for (start, which) in [
            (
                runtime.start(WAITS, "z", 0).run_timeout(Duration::ZERO),
                RunTimeout::Run,
            ),
            (
                runtime.start(WAITS, "z", 0).chain_timeout(Duration::ZERO),
                RunTimeout::Chain,
            ),
        ] {
            match start.await {
                Err(error @ StartError::NoTime { timeout }) => {
                    assert_eq!((timeout, error.code()), (which, "no-time"));
                }
                other => panic!("{other:?}"),
            }
        }
        let run = runtime.start(WAITS, "w", 0).await.unwrap();
        runtime.start(WAITS, "w", 0).run_timeout(HOUR).await.unwrap();
        assert_eq!(run.describe().await.unwrap().deadline, None);
        run.signal(GO, 3).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
    });
}

#[test]
fn the_time_of_a_delayed_run_counts_from_its_time_on() {
    in_world(&Store::new(), begin(), with_code, async |runtime: Runtime| {
        let start = runtime.start(WAITS, "w", 0).run_timeout(HOUR);
        let run = start.delayed_by(5 * HOUR).await.unwrap();
        let deadline = run.describe().await.unwrap().deadline.unwrap();
        assert_eq!(deadline.at, begin() + 6 * HOUR);
        timed_out(run.result().await);
        assert_eq!(runtime.host().now(), begin() + 6 * HOUR);
    });
}

#[test]
fn the_time_counts_also_while_no_process_runs_and_whether_there_is_code_or_not() {
    let store = Store::new();
    in_world(&store, begin(), with_code, async |runtime: Runtime| {
        for (id, hours) in [("soon", 1), ("late", 50), ("paused", 1), ("delayed", 1)] {
            let mut start = runtime.start(WAITS, id, 0).run_timeout(HOUR * hours);
            if id == "delayed" {
                start = start.delayed_by(HOUR);
            }
            let run = start.await.unwrap();
            if id == "paused" {
                run.pause("a holiday").await.unwrap();
            }
        }
    });
    // No code is registered in this program.
    in_world(
        &store,
        begin() + 3 * HOUR,
        |builder| builder,
        async |runtime: Runtime| {
            for id in ["soon", "paused", "delayed"] {
                let run = runtime.attach(WAITS, id).unwrap();
                // Callers that come before its end are told that it has no code.
                while run.describe().await.unwrap().timed_out.is_none() {}
                assert_eq!(timed_out(run.result().await), RunTimeout::Run, "{id}");
            }
            assert!(runtime.host().now() < begin() + 4 * HOUR);
            let late = runtime.attach(WAITS, "late").unwrap().describe().await.unwrap();
            assert_eq!(late.status, InstanceStatus::NotRegistered);
            assert_eq!(late.deadline.unwrap().at, begin() + 50 * HOUR);
        },
    );
    in_world(&store, begin() + 4 * HOUR, with_code, async |runtime: Runtime| {
        let late = runtime.attach(WAITS, "late").unwrap();
        // Its timer has fired while it had no code, so it is parked until it is brought back.
        while late.describe().await.unwrap().parked.is_some() {}
        assert_eq!(timed_out(late.result().await), RunTimeout::Run);
        assert_eq!(runtime.host().now(), begin() + 50 * HOUR);
    });
}

/// Nothing of it is in memory but its timer, and what it said of its time is gone from its history but for what is kept.
#[test]
fn a_run_whose_code_was_unloaded_is_out_of_time() {
    let unloads = |builder: RuntimeBuilder| with_code(builder).configure(|config| config.hot_len_max = 0);
    in_world(&Store::new(), begin(), unloads, async |runtime: Runtime| {
        let mut runs = Vec::new();
        for number in 0..20 {
            let start = runtime.start(WAITS, &format!("w{number}"), 0).run_timeout(HOUR);
            runs.push(start.await.unwrap());
        }
        for run in &runs {
            assert_eq!(timed_out(run.result().await), RunTimeout::Run);
        }
        assert_eq!(runtime.host().now(), begin() + HOUR);
    });
}

#[test]
fn each_run_of_a_chain_has_its_own_time_and_all_have_the_chains() {
    in_world(&Store::new(), begin(), with_code, async |runtime: Runtime| {
        let start = runtime.start(WAITS, "w", 1).run_timeout(HOUR);
        let run = start.chain_timeout(HOUR * 3 / 2).await.unwrap();
        run.signal(GO, 1).await.unwrap();
        // It goes on as new when its timer has fired, a minute later.
        assert_eq!(timed_out(run.result().await), RunTimeout::Run);
        assert_eq!(runtime.host().now(), begin() + HOUR + HOUR / 60);
        let began = runtime.host().now();
        let start = runtime.start(WAITS, "x", 1).chain_timeout(HOUR);
        let run = start.await.unwrap();
        run.signal(GO, 1).await.unwrap();
        assert_eq!(timed_out(run.result().await), RunTimeout::Chain);
        assert_eq!(runtime.host().now(), began + HOUR);
    });
}

#[test]
fn a_run_that_is_out_of_time_is_tried_again_until_its_chain_is() {
    in_world(&Store::new(), begin(), with_code, async |runtime: Runtime| {
        let retry = Retry::exponential()
            .attempts(10)
            .first_pause(Duration::from_secs(60))
            .pause_max(Duration::from_secs(60));
        let start = runtime.start(WAITS, "w", 0).run_timeout(HOUR).retried(retry);
        let run = start.chain_timeout(HOUR * 5 / 2).await.unwrap();
        let first = run_of(&run);
        assert_eq!(timed_out(run.result().await), RunTimeout::Chain);
        assert_eq!(runtime.host().now(), begin() + HOUR * 5 / 2);
        assert!(matches!(
            last_event(&runtime, first).await,
            Event::TimedOut {
                timeout: RunTimeout::Run,
                next: Some(_)
            }
        ));
        let last = run.describe().await.unwrap();
        assert_eq!(last.run_try.unwrap().number, 3);
        // Without a chain's timeout, the last try is out of time.
        let start = runtime.start(WAITS, "x", 0).run_timeout(HOUR);
        let run = start.retried(retry.attempts(2)).await.unwrap();
        assert_eq!(timed_out(run.result().await), RunTimeout::Run);
        assert_eq!(run.describe().await.unwrap().run_try.unwrap().number, 2);
    });
}

#[test]
fn a_parent_is_told_and_its_own_end_by_time_closes_its_child() {
    in_world(&Store::new(), begin(), with_code, async |runtime: Runtime| {
        let run = runtime.start(PARENT, "p", 1).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "out of time: run");
        let run = runtime.start(PARENT, "q", 9).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "out of time: chain");
        let began = runtime.host().now();
        let start = runtime.start(PARENT, "r", 9).run_timeout(HOUR);
        let run = start.await.unwrap();
        assert_eq!(timed_out(run.result().await), RunTimeout::Run);
        let child = format!("child-of-{}", run_of(&run));
        let child = runtime.attach(WAITS, &child).unwrap();
        // As when its parent is terminated.
        assert!(matches!(child.result().await, Err(ResultError::Cancelled(_))));
        assert_eq!(runtime.host().now(), began + HOUR);
    });
}

#[test]
fn a_run_that_was_out_of_time_can_be_reset_while_its_chain_has_time() {
    in_world(&Store::new(), begin(), with_code, async |runtime: Runtime| {
        let start = runtime.start(WAITS, "w", 0).run_timeout(HOUR);
        let run = start.chain_timeout(3 * HOUR).await.unwrap();
        timed_out(run.result().await);
        let reset = run.reset(ResetPoint::to_event(1)).await.unwrap();
        let deadline = reset.describe().await.unwrap().deadline.unwrap();
        assert_eq!(
            (deadline.at, deadline.timeout),
            (begin() + 2 * HOUR, RunTimeout::Run)
        );
        timed_out(reset.result().await);
        let reset = reset.reset(ResetPoint::to_event(1)).await.unwrap();
        let deadline = reset.describe().await.unwrap().deadline.unwrap();
        assert_eq!(
            (deadline.at, deadline.timeout),
            (begin() + 3 * HOUR, RunTimeout::Chain)
        );
        assert_eq!(timed_out(reset.result().await), RunTimeout::Chain);
        match reset.reset(ResetPoint::to_event(1)).await {
            Err(RunError::NotReset(refused)) => {
                let at = begin() + 3 * HOUR;
                assert_eq!(*refused, ResetRefused::ChainTimedOut { at });
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn no_crash_loses_the_end_of_a_run_that_is_out_of_time_or_has_it_end_early() {
    let (mut cut_off_len, mut lasted) = (0, BTreeSet::new());
    for steps in (1..).step_by(3) {
        let store = Store::new();
        let world = SimHost::new(SimConfig::seeded(21));
        let began = world.now();
        let builder = with_code(store.bare().host(world.host()));
        let is_acknowledged = Arc::new(AtomicBool::new(false));
        let said = Arc::clone(&is_acknowledged);
        let retry = Retry::exponential()
            .attempts(3)
            .first_pause(Duration::from_secs(60));
        let story = async move {
            let runtime = builder.start().await.unwrap();
            let start = runtime.start(WAITS, "w", 0).run_timeout(HOUR).retried(retry);
            let run = start.chain_timeout(HOUR * 3 / 2).await.unwrap();
            said.store(true, Ordering::SeqCst);
            assert_eq!(timed_out(run.result().await), RunTimeout::Chain);
        };
        let is_told = cut_off(&world, story, steps);
        let is_acknowledged = is_acknowledged.load(Ordering::SeqCst);
        lasted.insert(world.now().saturating_since(began).as_secs() / 1_800);
        let mut config = SimConfig::seeded(22);
        config.starts_at = world.now();
        drop(world);
        let world = SimHost::new(config);
        let builder = with_code(store.bare().host(world.host()));
        let script = async move {
            let runtime = builder.start().await.unwrap();
            if is_acknowledged {
                let run = runtime.attach(WAITS, "w").unwrap();
                assert_eq!(
                    timed_out(run.result().await),
                    RunTimeout::Chain,
                    "after {steps} steps"
                );
                let described = run.describe().await.unwrap();
                let ended = described.ended_at.unwrap();
                assert!(ended >= began + HOUR * 3 / 2, "after {steps} steps");
                assert_eq!(described.run_try.unwrap().number, 2);
            }
            runtime.shutdown().await.unwrap();
        };
        world.block_on(script).unwrap();
        cut_off_len += u32::from(!is_told);
        if is_told {
            break;
        }
    }
    assert!(cut_off_len > 5, "{cut_off_len}");
    assert_eq!(
        lasted,
        [0, 2, 3].into(),
        "it was cut off in each run of the chain"
    );
}
