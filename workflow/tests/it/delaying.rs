//! Runs whose start is delayed: their code begins at its time, and finds what came before.

use std::time::Duration;

use millrun_core::{InstanceId, Timestamp};
use millrun_workflow::{
    Activity, Command, Event, Implementation, Input, InputRefused, Limits, Moment, Outcome, ParkReason,
    Payload, Signal, Started, Workflow, WorkflowContext, WorkflowError,
};

use crate::world::World;

const GO: Signal<u64> = Signal::named("go");
const STEP: Activity<u64, u64> = Activity::named("step");
const LATE: Workflow<u64, (u64, u64)> = Workflow::named("late");

/// When it began, and the sum of its input and a signal.
async fn late(cx: WorkflowContext, number: u64) -> Result<(u64, u64), WorkflowError> {
    let began = cx.now().as_micros();
    let number = cx.call(STEP, number).await?;
    Ok((began, number + cx.receive(GO).await?))
}

pub(crate) fn code() -> Implementation {
    Implementation::new(LATE, late)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn start_with(code: Option<Implementation>, begins_at: Timestamp) -> World {
    let id = InstanceId::new("world").unwrap();
    let started = Started::new(LATE.name(), id, Payload::encode(&1_u64).unwrap());
    let moment = Moment {
        now: at(10),
        epoch: 1,
    };
    World::start_as(code, started.delayed_until(begins_at), Limits::default(), moment)
}

fn start(begins_at: Timestamp) -> World {
    start_with(Some(code()), begins_at)
}

/// Brings the code to memory and resumes, as a shard does at the time.
fn resume_at(world: &mut World, now: Timestamp) {
    world.moment.now = now;
    world.reload();
    world.apply(Input::Resume).unwrap();
}

fn is_delayed(world: &World) -> bool {
    world.parked() == Some(&ParkReason::Delayed { until: at(60) })
}

fn result(world: &World) -> (u64, u64) {
    match world.instance.ledger().outcome() {
        Some(Outcome::Completed(value)) => value.decode().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A run that waits for its time, is paused and resumed meanwhile, and gets a signal.
pub(crate) fn recorded() -> World {
    let mut world = start(at(60));
    world.signal(GO, &5);
    let reason = "a holiday".into();
    world.apply(Input::Pause { reason }).unwrap();
    resume_at(&mut world, at(20));
    resume_at(&mut world, at(61));
    world.complete(1, &2_u64);
    world
}

#[test]
fn the_code_begins_at_its_time_and_finds_the_signals_that_came_before() {
    let mut world = start(at(60));
    assert!(is_delayed(&world));
    assert_eq!(world.labels(), ["Parked"]);
    assert_eq!(world.commands, [Command::ResumeAt { at: at(60) }]);
    assert_eq!(world.instance.final_park_reason(), None);
    world.moment.now = at(30);
    world.signal(GO, &5);
    assert_eq!(world.commands, []);
    resume_at(&mut world, at(61));
    assert!(world.parked().is_none());
    world.complete(1, &2_u64);
    assert_eq!(
        world.labels(),
        [
            "Parked",
            "SignalReceived",
            "Resumed",
            "ActivityScheduled",
            "ActivityCompleted",
            "Completed"
        ]
    );
    // It is shown when it began, and not when it was started.
    assert_eq!(result(&world), (61_000_000, 7));
}

#[test]
fn a_time_that_has_passed_delays_nothing() {
    for begins_at in [at(9), at(10)] {
        let mut world = start(begins_at);
        assert_eq!(world.labels(), ["ActivityScheduled"]);
        world.complete(1, &2_u64);
        world.signal(GO, &5);
        assert_eq!(result(&world), (10_000_000, 7));
    }
}

#[test]
fn a_run_that_is_resumed_before_its_time_begins_then() {
    let mut world = start(at(60));
    world.signal(GO, &5);
    resume_at(&mut world, at(20));
    world.complete(1, &2_u64);
    assert_eq!(result(&world), (20_000_000, 7));
    // The timer of its time comes late.
    let late = world.apply(Input::Resume);
    assert_eq!(late, Err(InputRefused::Closed));
}

/// Whoever has it begin before its time does not mean to wait when its code fails.
#[test]
fn a_run_that_began_earlier_and_panicked_is_not_delayed_again() {
    async fn fails_early(cx: WorkflowContext, number: u64) -> Result<(u64, u64), WorkflowError> {
        assert!(cx.now() > at(20), "it is too early");
        late(cx, number).await
    }
    let mut world = start_with(Some(Implementation::new(LATE, fails_early)), at(60));
    resume_at(&mut world, at(20));
    assert!(matches!(world.parked(), Some(ParkReason::Panicked { .. })));
    resume_at(&mut world, at(21));
    assert!(world.parked().is_none());
    world.complete(1, &2_u64);
    world.signal(GO, &5);
    assert_eq!(result(&world), (21_000_000, 7));
}

#[test]
fn a_run_that_was_paused_is_delayed_again_or_begins_late() {
    let mut world = start(at(60));
    let pause = || Input::Pause {
        reason: "a holiday".into(),
    };
    world.apply(pause()).unwrap();
    assert!(matches!(world.parked(), Some(ParkReason::Paused { .. })));
    resume_at(&mut world, at(20));
    assert!(is_delayed(&world));
    assert_eq!(world.commands, [Command::ResumeAt { at: at(60) }]);
    world.apply(pause()).unwrap();
    resume_at(&mut world, at(70));
    assert!(world.parked().is_none());
    world.complete(1, &2_u64);
    world.signal(GO, &1);
    assert_eq!(result(&world), (70_000_000, 3));
}

#[test]
fn a_request_to_cancel_ends_a_run_before_its_time_and_asks_its_code_behind_it() {
    let mut world = start(at(60));
    world.signal(GO, &5);
    world.cancel();
    let expected = "cancelled before it began: test";
    assert_eq!(
        world.instance.ledger().outcome(),
        Some(&Outcome::Terminated(expected.into()))
    );
    assert!(matches!(world.commands[..], [Command::Close(_)]));
    world.reload();
    assert!(world.instance.ledger().is_cancel_requested());
    assert!(world.instance.ledger().outcome().is_some());

    // Its time has come, and it has not been resumed yet.
    let mut world = start(at(60));
    world.moment.now = at(60);
    world.cancel();
    assert_eq!(world.instance.ledger().outcome(), None);
    resume_at(&mut world, at(61));
    assert!(matches!(
        world.instance.ledger().outcome(),
        Some(Outcome::Cancelled(_))
    ));
}

#[test]
fn a_run_is_terminated_before_its_time() {
    let mut world = start(at(60));
    let reason = "enough".into();
    world.apply(Input::Terminate { reason }).unwrap();
    assert_eq!(
        world.instance.ledger().outcome(),
        Some(&Outcome::Terminated("enough".into()))
    );
}

#[test]
fn a_run_whose_code_comes_late_is_delayed_when_it_is_there() {
    let mut world = start_with(None, at(60));
    assert!(matches!(world.parked(), Some(ParkReason::NotRegistered { .. })));
    world.signal(GO, &5);
    world.moment.now = at(20);
    world.reload_with(Some(code()));
    world.apply(Input::Resume).unwrap();
    assert!(is_delayed(&world));
    resume_at(&mut world, at(60));
    world.complete(1, &2_u64);
    assert_eq!(result(&world), (60_000_000, 7));
}

#[test]
fn signals_before_the_time_have_a_bound() {
    let id = InstanceId::new("world").unwrap();
    let started = Started::new(LATE.name(), id, Payload::encode(&1_u64).unwrap());
    let mut limits = Limits::default();
    limits.signals_len_max = 3;
    let moment = Moment {
        now: at(10),
        epoch: 1,
    };
    let mut world = World::start_as(Some(code()), started.delayed_until(at(60)), limits, moment);
    // The beginning waits for the code as well.
    for number in 0..2 {
        world.signal(GO, &number);
    }
    let value = Payload::encode(&2_u64).unwrap();
    let name = GO.name().into();
    let refused = world.apply(Input::Signal {
        name,
        value,
        cause: None,
        request: None,
    });
    assert_eq!(refused, Err(InputRefused::TooManySignals { len_max: 3 }));
}

#[test]
fn queries_and_updates_are_refused_before_the_time() {
    let mut world = start(at(60));
    let update = Input::Update {
        request: "1".into(),
        name: "add".into(),
        input: Payload::encode(&1).unwrap(),
    };
    assert!(matches!(world.apply(update), Err(InputRefused::StillParked(_))));
    let value = Payload::encode(&1).unwrap();
    assert!(world.instance.query("sum", &value).is_err());
}

#[test]
fn a_run_that_is_not_delayed_says_nothing_of_it() {
    let id = InstanceId::new("world").unwrap();
    let started = Started::new(LATE.name(), id, Payload::encode(&1_u64).unwrap());
    let bytes = |started: &Started| {
        let mut body = Vec::new();
        millrun_workflow::wire::encode(&Event::Started(started.clone()), &mut body).unwrap();
        body
    };
    // Three fields: the workflow, its input, and from when on its time counts.
    assert_eq!(bytes(&started)[0], 0x83);
    assert_eq!(bytes(&started.delayed_until(at(60)))[0], 0x84);
}

#[test]
fn the_pause_of_a_timer_counts_from_when_the_code_begins() {
    let code = Implementation::new(LATE, async |cx: WorkflowContext, _: u64| {
        cx.sleep(Duration::from_secs(5)).await?;
        Ok::<_, WorkflowError>((0, cx.now().as_micros()))
    });
    let mut world = start_with(Some(code), at(60));
    resume_at(&mut world, at(61));
    assert!(world.fire_next());
    assert_eq!(result(&world), (0, 66_000_000));
}
