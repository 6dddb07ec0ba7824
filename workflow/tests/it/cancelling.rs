//! Requests to cancel: cooperative, and a place to clean up behind a shield.

use std::time::Duration;

use millrun_workflow::{
    Activity, CallError, Either, Implementation, ParkReason, Signal, SignalError, Workflow, WorkflowContext,
    WorkflowError,
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
                Either::Left(()) => 7,
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
