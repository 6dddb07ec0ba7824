//! Requests to cancel: cooperative, and a place to clean up behind a shield.

use std::time::Duration;

use millrun_workflow::{
    Activity, CallError, Either, Implementation, Input, Limits, ParkReason, Signal, SignalError, Workflow,
    WorkflowContext, WorkflowError,
};

use crate::world::World;

const STEP: Activity<(), u64> = Activity::named("step");
const UNDO: Activity<(), u64> = Activity::named("undo");
const GO: Signal<u64> = Signal::named("go");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");
const TEXT: Workflow<u64, String> = Workflow::named("text");

#[test]
fn a_run_that_ends_with_the_cancellation_counts_as_cancelled() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        Ok::<_, WorkflowError>(cx.call(STEP, ()).await?)
    });
    let mut world = World::start(code, &0_u64);
    world.cancel();
    assert_eq!(
        world.labels(),
        [
            "ActivityScheduled",
            "CancelRequested",
            "OperationCancelled",
            "Cancelled"
        ]
    );
    world.check_replays();
}

#[test]
fn a_second_request_changes_nothing() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        Ok::<_, WorkflowError>(cx.shielded().call(STEP, ()).await?)
    });
    let mut world = World::start(code, &0_u64);
    world.cancel();
    world.cancel();
    assert_eq!(world.labels(), ["ActivityScheduled", "CancelRequested"]);
    world.complete(1, &1_u64);
    assert_eq!(world.result::<u64>(), 1);
}

#[test]
fn cleaning_up_behind_a_shield_runs_to_its_end() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let done = cx.call(STEP, ()).await;
        if matches!(done, Err(CallError::Cancelled(_))) {
            let shielded = cx.shielded();
            shielded.call(UNDO, ()).await?;
            shielded.sleep(Duration::from_secs(1)).await?;
        }
        Ok::<_, WorkflowError>(done?)
    });
    let mut world = World::start(code, &0_u64);
    world.cancel();
    world.complete(2, &0_u64);
    assert!(world.fire_next());
    assert_eq!(world.labels().last(), Some(&"Cancelled"));
    world.check_replays();
}

#[test]
fn every_operation_ends_and_none_begins_after_a_request() {
    let code = Implementation::new(TEXT, async |cx: WorkflowContext, _: u64| {
        let ((call, sleep), signal) = cx
            .join(
                cx.join(cx.call(STEP, ()), cx.sleep(Duration::from_secs(1))),
                cx.receive(GO),
            )
            .await;
        assert!(matches!(signal, Err(SignalError::Cancelled(_))));
        assert!(cx.is_cancel_requested());
        let later = cx.call(STEP, ()).await;
        Ok::<_, WorkflowError>(format!("{} {} {}", call.is_err(), sleep.is_err(), later.is_err()))
    });
    let mut world = World::start(code, &0_u64);
    world.cancel();
    assert_eq!(world.result::<String>(), "true true true");
}

#[test]
fn signals_that_have_arrived_are_still_taken_after_a_request() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        cx.shielded().call(STEP, ()).await?;
        let mut sum = 0;
        while let Ok(value) = cx.receive(GO).await {
            sum += value;
        }
        Ok::<_, WorkflowError>(sum)
    });
    let mut world = World::start(code, &0_u64);
    world.signal(GO, &1);
    world.cancel();
    world.signal(GO, &2);
    world.complete(1, &0_u64);
    assert_eq!(world.result::<u64>(), 3);
}

#[test]
fn waiting_for_the_request_itself_wins_a_race() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        Ok::<_, WorkflowError>(
            match cx.race(cx.cancelled(), cx.shielded().call(STEP, ())).await {
                Either::Left(cancelled) if cancelled.reason() == Some("test") => 7,
                Either::Left(_) => 8,
                Either::Right(value) => value?,
            },
        )
    });
    let mut world = World::start(code, &0_u64);
    world.cancel();
    assert_eq!(world.result::<u64>(), 7);
    assert!(world.activities.is_empty());
}

#[test]
fn a_request_that_has_come_is_waited_for_no_more() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let mut request = std::pin::pin!(cx.cancelled());
        (&mut request).await;
        // Nothing that the engine knows can end this, though the request is still held.
        std::future::pending::<()>().await;
        Ok::<_, WorkflowError>(0)
    });
    let mut world = World::start(code, &0_u64);
    assert_eq!(world.parked(), None);
    world.cancel();
    assert!(matches!(world.parked(), Some(ParkReason::Stuck { .. })));
}

#[test]
fn an_error_of_its_own_after_a_request_is_a_failure() {
    let code = Implementation::new(
        FLOW,
        async |cx: WorkflowContext, _: u64| -> Result<u64, WorkflowError> {
            cx.cancelled().await;
            Err(WorkflowError::failed("could not clean up"))
        },
    );
    let mut world = World::start(code, &0_u64);
    world.cancel();
    assert_eq!(world.labels(), ["CancelRequested", "Failed"]);
    world.check_replays();
}

/// What the code sees of a cancel at each kind of wait, as text.
async fn reasons(cx: WorkflowContext, _: u64) -> Result<String, WorkflowError> {
    let state = cx.state(0_u64);
    let shielded = cx.shielded();
    let behind = shielded.scope();
    let inner = cx.scope();
    inner.cancel();
    let before = inner.context().check_cancelled().expect_err("it is cancelled");
    assert_eq!((before.reason(), cx.check_cancelled()), (None, Ok(())));
    let waits = cx.join(
        cx.join(cx.call(STEP, ()), cx.sleep(Duration::from_secs(1))),
        cx.join(cx.receive(GO), state.until(|state| *state == 1)),
    );
    let ((call, sleep), (signal, condition)) = waits.await;
    behind.cancel();
    let apart = behind.context().check_cancelled().expect_err("it is cancelled");
    assert_eq!((apart.reason(), shielded.check_cancelled()), (None, Ok(())));
    let later = cx
        .call(STEP, ())
        .await
        .expect_err("the run is to end")
        .to_string();
    let checkpoint: Result<String, _> = cx.checkpoint(&0_u64).await;
    let checkpoint = checkpoint.expect_err("the run is to end").to_string();
    let seen = [
        WorkflowError::from(call.expect_err("cancelled")).to_string(),
        sleep.expect_err("cancelled").to_string(),
        WorkflowError::from(signal.expect_err("cancelled")).to_string(),
        condition.expect_err("cancelled").to_string(),
        cx.cancelled().await.to_string(),
        later,
        checkpoint,
    ];
    Ok(seen.join("; "))
}

#[test]
fn the_reason_of_a_cancel_reaches_every_wait_of_the_code_but_no_scope_of_its_own() {
    let mut world = World::start(Implementation::new(TEXT, reasons), &0_u64);
    let reason = "the customer withdrew".to_string();
    world.apply(Input::Cancel { reason }).unwrap();
    let said = "the run was asked to cancel: the customer withdrew";
    assert_eq!(
        world.result::<String>(),
        format!(
            "the activity was not waited for: {said}; {said}; the signal was not waited for: {said}; {said}; \
             {said}; the activity was not waited for; the run does not continue"
        )
    );
}

#[test]
fn a_cancel_without_a_reason_says_none_and_a_long_reason_is_cut() {
    let code = || {
        Implementation::new(TEXT, async |cx: WorkflowContext, _: u64| {
            let reason = cx.cancelled().await.reason().map(str::to_string);
            Ok::<_, WorkflowError>(format!("{reason:?}"))
        })
    };
    let limits = Limits::default();
    let long = "x".repeat(limits.text_bytes_max + 1);
    for (reason, seen) in [
        (String::new(), "None".to_string()),
        (
            long.clone(),
            format!("{:?}", Some(&long[..limits.text_bytes_max])),
        ),
    ] {
        let mut world = World::start(code(), &0_u64);
        world.apply(Input::Cancel { reason }).unwrap();
        assert_eq!(world.result::<String>(), seen);
    }
}

#[test]
fn code_knows_the_id_of_its_instance_also_from_a_checkpoint_on() {
    let code = Implementation::new(TEXT, async |cx: WorkflowContext, _: u64| {
        let Some(before) = cx.checkpointed::<String>().transpose()? else {
            return Ok(cx.checkpoint(cx.instance_id().as_str()).await?);
        };
        cx.receive(GO).await?;
        Ok::<_, WorkflowError>(format!("{before} {}", cx.instance_id()))
    });
    let mut world = World::start(code, &0_u64);
    world.signal(GO, &1);
    assert_eq!(world.result::<String>(), "world world");
}
