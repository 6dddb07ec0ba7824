//! When a call is tried again: for how long, and after which errors.

use std::time::Duration;

use millrun_workflow::{
    Activity, ActivityError, ActivityFailure, Call, CallError, ErrorKind, Implementation, Input, OperationId,
    Payload, RETRY_KINDS_MAX, Retry, TimeoutKind, TypedError, Workflow, WorkflowContext, WorkflowError,
};

use crate::world::World;

const STEP: Activity<(), u64> = Activity::named("step");
const FLOW: Workflow<(), String> = Workflow::named("flow");
const BUSY: ErrorKind<ActivityError> = ErrorKind::named("busy");
const GONE: ErrorKind<ActivityError> = ErrorKind::named("gone");
const ONE: OperationId = OperationId::new(1);

type Step = Call<u64, ActivityError>;

/// One call, made by `options`; how it ended, in words.
fn calling(options: fn(Step) -> Step) -> World {
    let code = Implementation::new(FLOW, move |cx: WorkflowContext, (): ()| async move {
        let end = options(cx.call(STEP, ())).await;
        Ok::<_, WorkflowError>(end.map_or_else(|error| error.to_string(), |value| value.to_string()))
    });
    World::start(code, &())
}

/// The attempt under way fails.
fn fail(world: &mut World, failure: ActivityFailure, is_retryable: bool, kind: Option<&str>) {
    let (_, attempt) = world.activities.remove(&ONE).expect("no attempt is under way");
    let kind = kind.map(Box::from);
    let input = Input::AttemptFailed {
        operation: ONE,
        attempt,
        failure,
        is_retryable,
        kind,
        retry_after: None,
    };
    world.apply(input).unwrap();
}

/// The attempt under way ends with this error.
fn fail_with(world: &mut World, error: &ActivityError) {
    let failure = ActivityFailure::Failed {
        error: Payload::encode(error).unwrap(),
        message: error.to_string(),
    };
    fail(world, failure, error.is_retryable(), error.kind());
}

fn busy() -> ActivityError {
    ActivityError::retryable("busy").of_kind(BUSY)
}

fn gone() -> ActivityError {
    ActivityError::fatal("gone").of_kind(GONE)
}

fn is_over(world: &World) -> bool {
    world.instance.ledger().outcome().is_some()
}

#[test]
fn an_attempt_begins_only_within_the_time_that_retries_may_take() {
    let mut world = calling(|call| {
        let retry = Retry::exponential().first_pause(Duration::from_secs(10));
        call.retry(
            retry
                .pause_max(Duration::from_secs(10))
                .elapsed_max(Duration::from_secs(60)),
        )
    });
    let began = world.moment.now;
    let mut failures = 0;
    while !is_over(&world) {
        assert!(world.moment.now.saturating_since(began) <= Duration::from_secs(60));
        fail_with(&mut world, &busy());
        failures += 1;
        world.fire_next();
    }
    // Each pause takes 8 to 12 seconds.
    assert!((5..=8).contains(&failures), "{failures} failures");
    assert_eq!(world.result::<String>(), "the activity failed: busy");
}

#[test]
fn the_time_that_retries_may_take_counts_attempts_too_and_survives_a_crash() {
    let minute = |call: Step| call.retry(Retry::exponential().elapsed_max(Duration::from_secs(60)));
    let mut world = calling(minute);
    fail_with(&mut world, &busy());
    assert!(world.fire_next());
    world.reopen();
    // Whether the second attempt had begun is not known: its timer fires again.
    world.apply(Input::TimerFired { operation: ONE }).unwrap();
    world.moment.now = world.moment.now + Duration::from_secs(61);
    // Only the second failure, but it comes late.
    fail_with(&mut world, &busy());
    assert_eq!(world.result::<String>(), "the activity failed: busy");

    // An attempt under way is not stopped.
    let mut world = calling(minute);
    world.moment.now = world.moment.now + Duration::from_secs(600);
    world.complete(1, &7_u64);
    assert_eq!(world.result::<String>(), "7");
}

#[test]
fn an_error_of_a_kind_is_tried_again_as_the_call_says_for_that_kind() {
    let mut world = calling(|call| {
        let slowly = Retry::exponential().first_pause(Duration::from_secs(1_000));
        let slowly = slowly.pause_max(Duration::from_secs(1_000)).attempts(10);
        call.retry(Retry::exponential().attempts(3))
            .retry_on(BUSY, slowly)
    });
    let mut pause_after = |error: &ActivityError| {
        let failed_at = world.moment.now;
        fail_with(&mut world, error);
        world.fire_next();
        world.moment.now.saturating_since(failed_at)
    };
    assert!(pause_after(&ActivityError::retryable("odd")) < Duration::from_secs(1));
    for _ in 0..3 {
        assert!(pause_after(&busy()) >= Duration::from_secs(800));
    }
    // Four failures are too many for an error of no kind.
    assert!(!is_over(&world));
    fail_with(&mut world, &ActivityError::retryable("odd"));
    assert_eq!(world.result::<String>(), "the activity failed: odd");
}

#[test]
fn what_a_call_says_of_a_kind_overrules_what_the_error_says_of_itself() {
    let mut world = calling(|call| call.retry_on(GONE, Retry::exponential().attempts(2)));
    fail_with(&mut world, &gone());
    assert!(world.fire_next(), "a fatal error was tried again");
    fail_with(&mut world, &gone());
    assert_eq!(world.result::<String>(), "the activity failed: gone");

    let mut world = calling(|call| call.retry_on(BUSY, Retry::never()));
    fail_with(&mut world, &busy());
    assert_eq!(world.result::<String>(), "the activity failed: busy");

    // Without a policy for its kind, the error has its way.
    let mut world = calling(|call| call.retry_on(BUSY, Retry::exponential()));
    fail_with(&mut world, &gone());
    assert_eq!(world.result::<String>(), "the activity failed: gone");
}

#[test]
fn of_two_policies_for_a_kind_the_second_counts() {
    let mut world = calling(|call| {
        call.retry_on(BUSY, Retry::exponential())
            .retry_on(BUSY, Retry::never())
    });
    fail_with(&mut world, &busy());
    assert_eq!(world.result::<String>(), "the activity failed: busy");
}

#[test]
fn panics_and_timeouts_are_kinds_of_their_own() {
    let panicked = || ActivityFailure::Panicked {
        message: "boom".into(),
    };
    let mut world = calling(|call| call.retry_on(ErrorKind::PANICKED, Retry::never()));
    fail(&mut world, panicked(), true, None);
    assert_eq!(world.result::<String>(), "the activity panicked: boom");

    for kind in [TimeoutKind::StartToClose, TimeoutKind::Heartbeat] {
        let mut world = calling(|call| call.retry_on(ErrorKind::TIMED_OUT, Retry::never()));
        fail(&mut world, panicked(), true, None);
        assert!(world.fire_next());
        fail(&mut world, ActivityFailure::TimedOut(kind), true, None);
        assert_eq!(
            world.result::<String>(),
            format!("the activity exceeded its {kind} timeout")
        );
    }

    // Whatever waits too long in its queue would only queue again.
    let mut world = calling(|call| call.retry_on(ErrorKind::TIMED_OUT, Retry::exponential()));
    let late = ActivityFailure::TimedOut(TimeoutKind::ScheduleToStart);
    fail(&mut world, late, false, None);
    assert!(is_over(&world));
}

#[test]
fn a_call_with_policies_for_too_many_kinds_is_refused_before_anything_is_decided() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, (): ()| {
        let mut call = cx.call(STEP, ());
        for number in 0..=RETRY_KINDS_MAX {
            let name: &'static str = format!("kind {number}").leak();
            call = call.retry_on(ErrorKind::named(name), Retry::never());
        }
        match call.await {
            Err(error @ CallError::TooManyKinds { .. }) => Ok(error.to_string()),
            other => Err(WorkflowError::failed(format!("{other:?}"))),
        }
    });
    let world = World::start(code, &());
    assert_eq!(world.labels(), ["Completed"]);
    assert!(world.result::<String>().contains("for 32 kinds"));
}
