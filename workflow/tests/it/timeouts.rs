//! Calls with a limit on the whole of it, and attempts that say how far they are.

use std::time::Duration;

use millrun_workflow::{
    Activity, CallError, Command, Implementation, Input, InputRefused, OperationId, Payload, Pending,
    TimeoutKind, Workflow, WorkflowContext, WorkflowError,
};

use crate::world::World;

const STEP: Activity<(), u64> = Activity::named("step");
const FLOW: Workflow<u64, String> = Workflow::named("flow");
const ONE: OperationId = OperationId::new(1);

/// A call that may take this many seconds in all.
fn limited() -> Implementation {
    Implementation::new(FLOW, async |cx: WorkflowContext, seconds: u64| {
        let call = cx.call(STEP, ()).schedule_to_close(Duration::from_secs(seconds));
        Ok::<_, WorkflowError>(match call.await {
            Ok(value) => value.to_string(),
            Err(CallError::TimedOut(kind)) => kind.to_string(),
            Err(error) => error.to_string(),
        })
    })
}

/// Fires every timer of the call that is due at this second.
fn fire_at(world: &mut World, second: u64) -> Result<(), InputRefused> {
    world.moment.now = millrun_core::Timestamp::from_micros((1 + second) * 1_000_000);
    world.apply(Input::TimerFired { operation: ONE })
}

#[test]
fn a_call_that_takes_too_long_fails_and_its_attempt_is_stopped() {
    let mut world = World::start(limited(), &10_u64);
    fire_at(&mut world, 9).unwrap();
    assert!(matches!(
        world.commands[..],
        [Command::StartTimer { operation: ONE, .. }]
    ));
    fire_at(&mut world, 10).unwrap();
    assert!(matches!(world.commands[0], Command::CancelActivity { .. }));
    assert_eq!(
        world.labels(),
        ["ActivityScheduled", "ActivityFailed", "Completed"]
    );
    assert_eq!(world.result::<String>(), "schedule-to-close");
}

#[test]
fn a_call_that_ends_in_time_takes_its_timer_with_it() {
    for is_success in [true, false] {
        let mut world = World::start(limited(), &10_u64);
        if is_success {
            world.complete(1, &7_u64);
        } else {
            world.fail(1, "no", false);
        }
        assert!(matches!(
            world.commands[0],
            Command::CancelTimer { operation: ONE, .. }
        ));
        let expected = if is_success {
            "7"
        } else {
            "the activity failed: no"
        };
        assert_eq!(world.result::<String>(), expected);
    }
}

#[test]
fn an_attempt_that_could_not_begin_in_time_is_not_waited_for() {
    let mut world = World::start(limited(), &1_u64);
    // The pause after the first failure is about 100 ms: there is no room for it.
    world.moment.now = world.moment.now + Duration::from_millis(950);
    world.fail(1, "busy", true);
    assert_eq!(world.result::<String>(), "the activity failed: busy");
}

#[test]
fn the_limit_holds_across_attempts_and_crashes() {
    let mut world = World::start(limited(), &10_u64);
    world.fail(1, "busy", true);
    fire_at(&mut world, 1).unwrap();
    assert_eq!(world.activities[&ONE].1, 2);
    world.reopen();
    let Some(Pending::Activity(activity)) = world.instance.ledger().pending_operation(ONE) else {
        panic!("the call has ended");
    };
    assert_eq!(activity.close_at.unwrap().as_micros(), 11_000_000);
    fire_at(&mut world, 10).unwrap();
    let stops = |command: &&Command| {
        matches!(
            command,
            Command::CancelTimer { .. } | Command::CancelActivity { .. }
        )
    };
    assert_eq!(world.commands.iter().filter(stops).count(), 3);
    assert_eq!(world.result::<String>(), "schedule-to-close");
}

#[test]
fn a_timeout_that_its_executor_sees_fails_the_attempt_or_the_call() {
    let failures = [
        (TimeoutKind::Heartbeat, true, "AttemptFailed"),
        (TimeoutKind::ScheduleToStart, false, "Completed"),
    ];
    for (kind, is_retryable, last) in failures {
        let mut world = World::start(limited(), &10_u64);
        let failure = millrun_workflow::ActivityFailure::TimedOut(kind);
        let input = Input::AttemptFailed {
            operation: ONE,
            attempt: 1,
            failure,
            is_retryable,
            kind: None,
            retry_after: None,
        };
        world.apply(input).unwrap();
        assert_eq!(world.labels().last(), Some(&last));
        world.check_replays();
    }
}

#[test]
fn the_next_attempt_learns_what_the_last_heartbeat_said() {
    let mut world = World::start(limited(), &10_u64);
    let beat = |attempt, row: u64| Input::Heartbeat {
        operation: ONE,
        attempt,
        details: Payload::encode(&row).unwrap(),
    };
    let details = |world: &World| match world.instance.ledger().pending_operation(ONE) {
        Some(Pending::Activity(activity)) => {
            activity.details.as_ref().map(|row| row.decode::<u64>().unwrap())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(details(&world), None);
    world.apply(beat(1, 10)).unwrap();
    world.apply(beat(1, 20)).unwrap();
    world.fail(1, "busy", true);
    assert_eq!(world.apply(beat(1, 30)), Err(InputRefused::Stale));
    world.reopen();
    assert_eq!(details(&world), Some(20));
    fire_at(&mut world, 1).unwrap();
    world.complete(1, &7_u64);
    assert_eq!(world.apply(beat(3, 40)), Err(InputRefused::Closed));
    assert_eq!(world.result::<String>(), "7");
}

#[test]
fn what_an_attempt_says_before_its_beginning_is_known_does_not_undo_that() {
    let limited = Implementation::new(FLOW, async |cx: WorkflowContext, seconds: u64| {
        let call = cx.call(STEP, ()).schedule_to_start(Duration::from_secs(seconds));
        Ok::<_, WorkflowError>(call.await?.to_string())
    });
    let beat = |attempt| Input::Heartbeat {
        operation: ONE,
        attempt,
        details: Payload::encode(&attempt).unwrap(),
    };
    let mut world = World::start(limited, &10_u64);
    world.apply(beat(1)).unwrap();
    let started = Input::AttemptStarted {
        operation: ONE,
        attempt: 1,
    };
    world.apply(started).unwrap();
    world.fail(1, "busy", true);
    assert!(world.fire_next());
    // By kinds this comes before the beginning of the first. The world compares both folds.
    world.apply(beat(2)).unwrap();
    world.reopen();
    let Some(Pending::Activity(activity)) = world.instance.ledger().pending_operation(ONE) else {
        panic!("the call has ended");
    };
    assert_eq!(activity.start_by(world.moment.now), None);
}

#[test]
fn the_time_to_begin_counts_from_when_an_attempt_is_due_until_one_has_begun() {
    let limited = Implementation::new(FLOW, async |cx: WorkflowContext, seconds: u64| {
        let call = cx.call(STEP, ()).schedule_to_start(Duration::from_secs(seconds));
        Ok::<_, WorkflowError>(call.await?.to_string())
    });
    let start_by = |world: &World| {
        let ledger = world.instance.ledger();
        let Some(Pending::Activity(activity)) = ledger.pending_operation(ONE) else {
            panic!("the call has ended");
        };
        let by = activity.start_by(ledger.pending_since(ONE).unwrap());
        (by, activity.retry_at)
    };
    let started = |attempt| Input::AttemptStarted {
        operation: ONE,
        attempt,
    };
    let mut world = World::start(limited, &10_u64);
    let since = world.moment.now;
    world.reopen();
    assert_eq!(start_by(&world), (Some(since + Duration::from_secs(10)), None));
    world.apply(started(2)).unwrap();
    world.reopen();
    assert_eq!(start_by(&world), (None, None));
    world.fail(1, "busy", true);
    let (by, retry_at) = start_by(&world);
    assert_eq!(by, retry_at.map(|at| at + Duration::from_secs(10)));
    // What the attempt that failed says late changes nothing.
    assert_eq!(world.apply(started(2)), Err(InputRefused::Stale));
    world.reopen();
    assert_eq!(start_by(&world).0, by);
    assert!(world.fire_next());
    world.apply(started(5)).unwrap();
    assert_eq!(start_by(&world).0, None);
    world.complete(1, &7_u64);
    assert_eq!(
        world.labels(),
        [
            "ActivityScheduled",
            "AttemptStarted",
            "AttemptFailed",
            "AttemptStarted",
            "ActivityCompleted",
            "Completed"
        ]
    );
    world.check_replays();
}
