//! Code that cannot go on: its run is parked, records what comes, and goes on when it can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrun::{InstanceStatus, ParkReason, ResultError, Signal, Workflow, WorkflowContext, WorkflowError};

use crate::support::{DOUBLE, Store, described};

const GO: Signal<u64> = Signal::named("go");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");

async fn original(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let doubled = cx.call(DOUBLE, number).await?;
    let go = cx.signal(GO).await?;
    Ok(doubled + go)
}

/// Sleeps where the original called an activity.
async fn changed(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.sleep(Duration::from_secs(1)).await?;
    let go = cx.signal(GO).await?;
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

    // Whoever asks right after a restart, before the run has been read, is told as well.
    let builder = store
        .bare()
        .register(DOUBLE, crate::support::double)
        .register(FLOW, changed);
    let runtime = builder.start().await.unwrap();
    let answer = runtime.attach(FLOW, "f").unwrap().result().await;
    assert!(matches!(answer, Err(ResultError::Parked(_))), "{answer:?}");
    runtime.shutdown().await.unwrap();
    drop(runtime);

    // And whoever asks for a run whose code is not there at all.
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
            let go = cx.signal(GO).await?;
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
        let go = cx.signal(GO).await?;
        panic!("broken at {}", number + go)
    }
    async fn mended(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        Ok(number + cx.signal(GO).await?)
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
