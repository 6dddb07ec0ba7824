//! One-time effects, and changes of code that live runs survive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun_workflow::{
    Activity, ActivityError, CallError, Event, Implementation, Limits, ParkReason, Signal, Workflow,
    WorkflowContext, WorkflowError,
};

use crate::world::World;

const STEP: Activity<u64, u64> = Activity::named("step");
const GO: Signal<u64> = Signal::named("go");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");
const TEXT: Workflow<u64, String> = Workflow::named("text");

#[test]
fn an_effect_runs_once_and_replays_see_its_value() {
    let effects = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&effects);
    let code = Implementation::new(FLOW, move |cx: WorkflowContext, _: u64| {
        let counter = Arc::clone(&counter);
        async move {
            let draw = || cx.record(|| 100 + counter.fetch_add(1, Ordering::Relaxed));
            let (first, second) = (draw().await?, draw().await?);
            let go = cx.receive(GO).await?;
            let third = draw().await?;
            Ok::<_, WorkflowError>(cx.call(STEP, go + first + second + third).await?)
        }
    });
    let mut world = World::start(code, &0_u64).fickle();
    (0..5).for_each(|_| world.reload());
    world.signal(GO, &1);
    world.reload();
    assert_eq!(effects.load(Ordering::Relaxed), 3);
    assert_eq!(
        world.labels(),
        [
            "ValueRecorded",
            "ValueRecorded",
            "SignalReceived",
            "ValueRecorded",
            "ActivityScheduled"
        ]
    );
    let input: u64 = world.activities[&World::operation(1)].0.input.decode().unwrap();
    assert_eq!(input, 1 + 100 + 101 + 102);
}

#[test]
fn an_effect_is_not_repeated_when_the_code_does_not_fit() {
    fn code(effects: Arc<AtomicU64>, records: u64) -> Implementation {
        Implementation::new(FLOW, move |cx: WorkflowContext, _: u64| {
            let effects = Arc::clone(&effects);
            async move {
                for _ in 0..records {
                    cx.record(|| effects.fetch_add(1, Ordering::Relaxed)).await?;
                }
                Ok::<_, WorkflowError>(cx.call(STEP, 0).await?)
            }
        })
    }
    let effects = Arc::new(AtomicU64::new(0));
    let mut world = World::start(code(Arc::clone(&effects), 1), &0_u64);
    for other in [0, 2] {
        world.reload_with(Some(code(Arc::clone(&effects), other)));
        assert!(
            matches!(world.parked(), Some(ParkReason::Nondeterminism(_))),
            "{other}"
        );
    }
    assert_eq!(effects.load(Ordering::Relaxed), 1);
}

#[test]
fn a_value_that_does_not_fit_is_an_error_in_every_replay() {
    let code = Implementation::new(TEXT, async |cx: WorkflowContext, _: u64| {
        let error = cx.record(|| "x".repeat(100)).await.unwrap_err();
        cx.receive(GO).await?;
        Ok::<_, WorkflowError>(error.to_string())
    });
    let mut limits = Limits::default();
    limits.payload_bytes_max = 99;
    let mut world = World::start_with(Some(code), &0_u64, limits);
    world.reload();
    world.signal(GO, &1);
    assert!(world.result::<String>().contains("a payload may have 99"));
}

#[test]
fn a_uuid_is_of_version_4_and_the_same_in_every_replay() {
    let code = Implementation::new(TEXT, async |cx: WorkflowContext, _: u64| {
        let uuid = cx.uuid();
        assert_ne!(uuid, cx.uuid());
        cx.receive(GO).await?;
        Ok::<_, WorkflowError>(uuid)
    });
    let mut world = World::start(code, &0_u64);
    world.signal(GO, &1);
    let uuid = world.result::<String>();
    let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
    assert!(
        uuid[14..].starts_with('4') && "89ab".contains(&uuid[19..20]),
        "{uuid}"
    );
}

/// Code before a change, with it, and after every run is past it.
fn versions() -> [Implementation; 3] {
    async fn rest(cx: &WorkflowContext, value: u64) -> Result<u64, WorkflowError> {
        cx.receive(GO).await?;
        Ok(cx.call(STEP, value).await?)
    }
    [
        Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
            let value = cx.call(STEP, 1).await?;
            rest(&cx, value).await
        }),
        Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
            let value = if cx.patched("sum") {
                cx.call(STEP, 10).await? + cx.call(STEP, 20).await?
            } else {
                cx.call(STEP, 1).await?
            };
            assert_eq!(cx.patched("sum"), cx.patched("sum"));
            rest(&cx, value).await
        }),
        Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
            let value = cx.call(STEP, 10).await? + cx.call(STEP, 20).await?;
            rest(&cx, value).await
        }),
    ]
}

#[test]
fn a_run_from_before_a_change_takes_the_old_way_to_its_end() {
    let [before, with, _] = versions();
    let mut world = World::start(before, &0_u64);
    world.reload_with(Some(with));
    assert_eq!(world.parked(), None);
    world.complete(1, &1_u64);
    world.reload();
    world.signal(GO, &0);
    world.complete(2, &1_u64);
    assert_eq!(world.result::<u64>(), 1);
    assert!(!world.labels().contains(&"Patched"));
}

#[test]
fn a_run_from_after_a_change_takes_the_new_way_and_outlives_the_call() {
    let [_, with, after] = versions();
    let mut world = World::start(with, &0_u64);
    assert_eq!(world.labels(), ["Patched", "ActivityScheduled"]);
    world.complete(1, &10_u64);
    world.reload_with(Some(after));
    assert_eq!(world.parked(), None);
    world.complete(2, &20_u64);
    world.signal(GO, &0);
    world.complete(3, &30_u64);
    assert_eq!(world.result::<u64>(), 30);
}

#[test]
fn a_run_that_gets_to_a_change_later_takes_the_new_way() {
    let early = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        cx.receive(GO).await?;
        Ok::<_, WorkflowError>(cx.call(STEP, 1).await?)
    });
    let changed = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        cx.receive(GO).await?;
        let value = if cx.patched("more") { 2 } else { 1 };
        Ok::<_, WorkflowError>(cx.call(STEP, value).await?)
    });
    let mut world = World::start(early, &0_u64);
    world.reload_with(Some(changed));
    world.signal(GO, &0);
    assert!(matches!(&world.history()[2].0, Event::Patched { id } if id == "more"));
    world.complete(1, &2_u64);
    assert_eq!(world.result::<u64>(), 2);
}

#[test]
fn a_local_step_is_done_at_once_and_never_again() {
    const LOCAL: Workflow<u64, String> = Workflow::named("local");
    let tried = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&tried);
    let code = Implementation::new(LOCAL, move |cx: WorkflowContext, failures: u64| {
        let counter = Arc::clone(&counter);
        async move {
            let work = || match counter.fetch_add(1, Ordering::Relaxed) {
                7 => panic!("seven"),
                tried if tried < failures => Err(ActivityError::retryable(format!("try {tried}"))),
                tried => Ok(tried),
            };
            let end = match cx.local(work).await {
                Ok(value) => format!("value {value}"),
                Err(CallError::Panicked(message)) => format!("panic: {message}"),
                Err(error) => error.to_string(),
            };
            cx.sleep(std::time::Duration::from_secs(1)).await?;
            Ok::<_, WorkflowError>(end)
        }
    });
    for (before, failures, expected, after) in [
        (0, 2, "value 2", 3),
        (0, 9, "the activity failed: try 2", 3),
        (7, 0, "panic: seven", 8),
    ] {
        tried.store(before, Ordering::Relaxed);
        let mut world = World::start(code.clone(), &failures);
        assert_eq!(world.labels(), ["ValueRecorded", "TimerStarted"]);
        assert!(world.fire_next());
        assert_eq!(world.result::<String>(), expected);
        assert_eq!(tried.load(Ordering::Relaxed), after, "no replay did it again");
    }
}

#[test]
fn another_value_parks_the_run_only_under_strict() {
    let code = |added: u64| {
        Implementation::new(FLOW, move |cx: WorkflowContext, number: u64| async move {
            Ok::<_, WorkflowError>(cx.call(STEP, number + added).await?)
        })
    };
    let world = World::start(code(0), &1_u64);
    for is_strict in [false, true] {
        let mut limits = Limits::default();
        limits.strict = is_strict;
        let history = world.history().to_vec();
        let other = code(1);
        let replayed =
            millrun_workflow::Instance::replay(Some(&other), crate::world::run_id(), history, limits);
        let replayed = replayed.unwrap();
        assert_eq!(replayed.changed_values(), u64::from(!is_strict));
        assert_eq!(replayed.park_reason().is_some(), is_strict);
        if let Some(reason) = replayed.park_reason() {
            assert!(reason.to_string().contains("with another value"), "{reason}");
        }
    }
}
