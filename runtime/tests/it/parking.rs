//! Code that cannot go on: its run is parked, records what comes, and goes on when it can.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::operating::{InstanceStatus, ParkReason};
use millrun::{ResultError, Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{DOUBLE, Store, described};

const GO: Signal<u64> = Signal::named("go");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");

async fn original(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let doubled = cx.call(DOUBLE, number).await?;
    let go = cx.receive(GO).await?;
    Ok(doubled + go)
}

/// Sleeps where the original called an activity.
async fn changed(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.sleep(Duration::from_secs(1)).await?;
    let go = cx.receive(GO).await?;
    Ok(number + go)
}

#[tokio::test]
async fn code_that_does_not_fit_the_history_parks_the_run_and_loses_nothing() {
    let store = Store::new();
    let runtime = store
        .bare()
        .register(DOUBLE, crate::support::double)
        .register(FLOW, original)
        .start()
        .await
        .unwrap();
    let run = runtime.start(FLOW, "f", 5).await.unwrap();
    described(&run, |run| !run.awaited.is_empty()).await;
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let runtime = store
        .bare()
        .register(DOUBLE, crate::support::double)
        .register(FLOW, changed)
        .start()
        .await
        .unwrap();
    let run = runtime.attach(FLOW, "f").unwrap();
    run.signal(GO, 7).await.unwrap();
    let Err(ResultError::Parked(reason)) = run.result().await else {
        panic!("the run is not parked")
    };
    let ParkReason::Nondeterminism(difference) = *reason else {
        panic!("{reason}")
    };
    assert_eq!(difference.sequence, 2);
    assert!(difference.recorded.contains("call of double"), "{difference}");
    assert!(
        difference.replayed.contains("timer") && difference.replayed.contains("parking.rs"),
        "{difference}"
    );
    assert!(run.resume().await.is_err(), "the code still does not fit");
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    // A caller that asks right after a restart, before the run has been read, is told as well.
    let builder = store
        .bare()
        .register(DOUBLE, crate::support::double)
        .register(FLOW, changed);
    let runtime = builder.start().await.unwrap();
    let answer = runtime.attach(FLOW, "f").unwrap().result().await;
    assert!(matches!(answer, Err(ResultError::Parked(_))), "{answer:?}");
    runtime.shutdown().await.unwrap();
    drop(runtime);

    // And one that asks for a run whose code is not there at all.
    let runtime = store.bare().start().await.unwrap();
    let answer = runtime.attach(FLOW, "f").unwrap().result().await;
    assert!(matches!(answer, Err(ResultError::Parked(_))), "{answer:?}");
    runtime.shutdown().await.unwrap();
    drop(runtime);

    let runtime = store
        .bare()
        .register(DOUBLE, crate::support::double)
        .register(FLOW, original)
        .start()
        .await
        .unwrap();
    assert_eq!(runtime.attach(FLOW, "f").unwrap().result().await.unwrap(), 17);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_panic_parks_the_run_until_it_is_resumed() {
    let store = Store::new();
    let is_broken = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&is_broken);
    let flow = move |cx: WorkflowContext, number: u64| {
        let switch = Arc::clone(&switch);
        async move {
            let go = cx.receive(GO).await?;
            assert!(!switch.load(Ordering::SeqCst), "broken");
            Ok::<_, WorkflowError>(number + go)
        }
    };
    let runtime = store.bare().register(FLOW, flow).start().await.unwrap();
    let run = runtime.start(FLOW, "f", 1).await.unwrap();
    run.signal(GO, 2).await.unwrap();
    let parked = described(&run, |run| run.parked.is_some()).await;
    assert!(
        matches!(parked.parked, Some(ParkReason::Panicked { count: 1, .. })),
        "{parked:?}"
    );
    is_broken.store(false, Ordering::SeqCst);
    run.resume().await.unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_quarantine_outlives_the_process_with_its_reason_until_the_code_is_mended() {
    async fn broken(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        let go = cx.receive(GO).await?;
        panic!("broken at {}", number + go)
    }
    async fn mended(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        Ok(number + cx.receive(GO).await?)
    }
    let store = Store::new();
    let builder = || {
        let builder = store.bare();
        builder.configure(|config| config.limits.panics_max = 1)
    };
    for life in 0..3 {
        let runtime = builder().register(FLOW, broken).start().await.unwrap();
        let run = runtime.start(FLOW, "f", 1).await.unwrap();
        if life == 0 {
            run.signal(GO, 2).await.unwrap();
        }
        assert_eq!(runtime.startup_report().parked, u64::from(life > 0));
        let Err(ResultError::Parked(reason)) = run.result().await else {
            panic!("the run is not parked")
        };
        assert!(reason.to_string().ends_with("broken at 3"), "{reason}");
        assert_eq!(runtime.stats().parked, 1);
        drop((run, runtime));
    }
    let runtime = builder().register(FLOW, mended).start().await.unwrap();
    let run = runtime.attach(FLOW, "f").unwrap();
    described(&run, |run| run.status == InstanceStatus::Finished).await;
    assert_eq!(run.result().await.unwrap(), 3);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn awaiting_something_foreign_parks_the_run() {
    async fn foreign(_cx: WorkflowContext, _: u64) -> Result<u64, WorkflowError> {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        Ok(0)
    }
    let store = Store::new();
    let runtime = store.bare().register(FLOW, foreign).start().await.unwrap();
    let run = runtime.start(FLOW, "f", 1).await.unwrap();
    let Err(ResultError::Parked(reason)) = run.result().await else {
        panic!("the run is not parked")
    };
    assert!(matches!(*reason, ParkReason::Stuck { .. }), "{reason}");
    run.terminate("it never worked").await.unwrap();
    runtime.shutdown().await.unwrap();
}

async fn panics(cx: WorkflowContext, log: impl Fn()) -> Result<u64, WorkflowError> {
    cx.receive(GO).await?;
    log();
    panic!("again")
}

/// When the code of a run panicked, in seconds after the first time: `lives` say when each begins
/// and ends.
fn panics_at(lives: &[(u64, u64)]) -> Vec<u64> {
    let store = Store::new();
    let times = Arc::new(Mutex::new(Vec::new()));
    for (life, (begins, ends)) in (0..).zip(lives) {
        let mut config = SimConfig::seeded(life);
        config.starts_at = config.starts_at + Duration::from_secs(*begins);
        let world = SimHost::new(config);
        let (host, log) = (world.host(), Arc::clone(&times));
        let flow = move |cx: WorkflowContext, _: u64| {
            let (host, log) = (Arc::clone(&host), Arc::clone(&log));
            panics(cx, move || log.lock().unwrap().push(host.now()))
        };
        let builder = store.bare().host(world.host()).register(FLOW, flow);
        let host = world.host();
        let script = async {
            let until = host.now() + Duration::from_secs(ends - begins);
            let runtime = builder.start().await.unwrap();
            let run = runtime.start(FLOW, "f", 1).await.unwrap();
            if life == 0 {
                run.signal(GO, 1).await.unwrap();
            }
            host.sleep_until(until).await;
            let parked = run.describe().await.unwrap().parked;
            assert!(matches!(parked, Some(ParkReason::Panicked { .. })), "{parked:?}");
            runtime
        };
        let runtime = world.block_on(script).unwrap();
        world.crash();
        drop(runtime);
    }
    let times = times.lock().unwrap();
    let since = times.iter().map(|at| at.saturating_since(times[0]).as_secs());
    since.collect()
}

#[test]
fn a_run_that_panics_is_brought_back_after_pauses_that_grow_and_so_often_whatever_restarts_come() {
    assert_eq!(panics_at(&[(0, 3_600)]), [0, 1, 3, 7, 15]);
    // A restart within a pause does not shorten it; when one comes late the pause is over.
    assert_eq!(panics_at(&[(0, 2), (2, 3_600)]), [0, 1, 3, 7, 15]);
    assert_eq!(panics_at(&[(0, 2), (10, 3_600)]), [0, 1, 10, 14, 22]);
    // What is brought back no more is tried once by the next process, whose code may be another.
    assert_eq!(panics_at(&[(0, 100), (100, 200)]), [0, 1, 3, 7, 15, 100]);
}

#[tokio::test]
async fn awaiting_a_task_parks_the_run_at_once_or_when_the_task_wakes_it() {
    let has_run = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&has_run);
    // A task beside nothing that the engine knows, or beside a signal.
    let spawns = move |cx: WorkflowContext, is_alone: u64| {
        let flag = Arc::clone(&flag);
        async move {
            let task = tokio::spawn(async move {
                flag.store(true, Ordering::SeqCst);
                7
            });
            if is_alone == 1 {
                return Ok::<_, WorkflowError>(task.await?);
            }
            let (value, go) = cx.join(task, cx.receive(GO)).await;
            Ok(value? + go?)
        }
    };
    let store = Store::new();
    let runtime = store.bare().register(FLOW, spawns).start().await.unwrap();
    for (is_alone, expected) in [(1, "no operation"), (0, "from outside")] {
        has_run.store(false, Ordering::SeqCst);
        let id = is_alone.to_string();
        let run = runtime.start(FLOW, &id, is_alone).await.unwrap();
        if is_alone == 0 {
            while !has_run.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            // A description tells it at once; the run is parked by the next thing that happens to the run.
            let touched = described(&run, |run| run.will_park.is_some()).await;
            assert_eq!((touched.status, touched.parked), (InstanceStatus::Running, None));
            assert!(touched.will_park.unwrap().to_string().contains(expected));
            run.signal(GO, 1).await.unwrap();
        }
        let Err(ResultError::Parked(reason)) = run.result().await else {
            panic!("the run is not parked")
        };
        assert!(
            matches!(&*reason, ParkReason::Stuck { message } if message.contains(expected)),
            "{reason}"
        );
    }
    runtime.shutdown().await.unwrap();
}
