//! A run as it was behind each of its events: what a replay of that part of its history shows is what the run was then.

use std::time::Duration;

use millrun_core::Timestamp;
use millrun_workflow::{
    Activity, Event, Fit, Implementation, Input, Payload, Query, ReplayError, Retry, Signal, Workflow,
    WorkflowContext, WorkflowError,
};

use crate::world::World;

const STEP: Activity<u64, u64> = Activity::named("step");
const GO: Signal<u64> = Signal::named("go");
const CHILD: Workflow<u64, u64> = Workflow::named("child");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");
const SUM: Query<u64, (), u64> = Query::named("sum");

async fn flow(cx: WorkflowContext, begin: u64) -> Result<u64, WorkflowError> {
    let sum = cx.state(begin);
    let retry = Retry::exponential();
    let (left, right) = cx.join(cx.call(STEP, 1).retry(retry), cx.call(STEP, 2)).await;
    sum.change(|sum| *sum += 10);
    cx.sleep(Duration::from_secs(10)).await?;
    let told = cx.receive(GO).await?;
    sum.change(|sum| *sum += told);
    let more = cx.child(CHILD, "child", told);
    let (more, later) = cx.join(more, cx.receive(GO)).await;
    Ok(left? + right? + more? + later?)
}

fn code() -> Implementation {
    FLOW.query(SUM, |sum, ()| *sum).bind(flow)
}

/// All that the machine says of a run.
fn told(world: &World) -> (u64, String) {
    told_of(&world.instance)
}

fn told_of(instance: &millrun_workflow::Instance) -> (u64, String) {
    let answer = instance.query(SUM.name(), &Payload::encode(&()).unwrap());
    let told = format!(
        "{:?} {:?} {:?} {:?} {answer:?}",
        instance.ledger(),
        instance.awaited(),
        instance.lines(),
        instance.park_reason(),
    );
    (instance.sequence().get(), told)
}

/// How many events stand in the turn of this one and those before.
fn whole_len(history: &[(Event, Timestamp)], to: usize) -> usize {
    let behind = history[to - 1..].windows(2);
    to + behind.take_while(|pair| pair[1].0.goes_with(&pair[0].0)).count()
}

fn at(
    world: &World,
    code: Option<&Implementation>,
    len: usize,
) -> Result<(Fit, millrun_workflow::Instance), ReplayError> {
    let events = world.history()[..len].iter().cloned();
    Fit::with_instance(code, world.instance.run(), None, events, world.limits)
}

#[test]
fn behind_each_event_the_run_is_what_it_was_while_it_lived() {
    let mut world = World::start(code(), &1_u64);
    let mut lived = vec![told(&world)];
    let mut then = |world: &mut World, act: &dyn Fn(&mut World)| {
        act(world);
        lived.push(told(world));
    };
    then(&mut world, &|world| world.fail(1, "not yet", true));
    then(&mut world, &|world| world.signal(GO, &5));
    let reason = || "a break".to_owned();
    then(&mut world, &|world| world.complete(2, &20_u64));
    then(&mut world, &|world| {
        world.apply(Input::Pause { reason: reason() }).unwrap()
    });
    then(&mut world, &|world| world.apply(Input::Resume).unwrap());
    // The pause between two attempts, and the timer of the code.
    then(&mut world, &|world| {
        world.fire_next();
    });
    then(&mut world, &|world| world.complete(1, &30_u64));
    then(&mut world, &|world| {
        world.fire_next();
    });
    then(&mut world, &|world| world.signal(GO, &6));
    then(&mut world, &|world| world.cancel());
    let history = world.history();
    assert!(history.len() > 12, "{:?}", world.labels());
    let mut shown = 0;
    for to in 1..=history.len() {
        let len = whole_len(history, to);
        let (fit, instance) = at(&world, Some(&code()), len).unwrap();
        assert_eq!(fit, Fit::Fits { changed_values: 0 }, "at {to}");
        let then = lived.iter().find(|(sequence, _)| *sequence == len as u64);
        if let Some(then) = then {
            assert_eq!(told_of(&instance), *then, "at {to}");
            shown += 1;
        }
    }
    assert!(shown >= lived.len(), "{shown} of {}", lived.len());
}

#[test]
fn a_run_that_was_parked_as_it_began_is_shown_behind_that() {
    async fn broken(_cx: WorkflowContext, _begin: u64) -> Result<u64, WorkflowError> {
        panic!("as planned")
    }
    let broken = Implementation::new(FLOW, broken);
    let world = World::start(broken.clone(), &1_u64);
    assert_eq!(world.labels(), ["Parked"], "behind Started");
    assert_eq!(whole_len(world.history(), 1), 2);
    for code in [broken, code()] {
        let (fit, instance) = at(&world, Some(&code), 2).unwrap();
        assert_eq!(fit, Fit::Fits { changed_values: 0 });
        assert_eq!(instance.park_reason(), world.instance.park_reason());
    }
}

#[test]
fn code_that_differs_is_shown_as_far_as_it_fits_and_differs_there_as_it_does_at_the_end() {
    async fn changed(cx: WorkflowContext, _begin: u64) -> Result<u64, WorkflowError> {
        let (left, right) = cx
            .join(cx.call(STEP, 1).retry(Retry::exponential()), cx.call(STEP, 2))
            .await;
        cx.receive(GO).await?;
        Ok(left? + right?)
    }
    let mut world = World::start(code(), &1_u64);
    world.complete(1, &20_u64);
    world.complete(2, &30_u64);
    world.fire_next();
    let changed = Implementation::new(FLOW, changed);
    let history = world.history();
    let (whole, _) = at(&world, Some(&changed), history.len()).unwrap();
    let Fit::Differs(difference) = &whole else {
        panic!("{whole:?}");
    };
    for to in 1..=history.len() {
        let len = whole_len(history, to);
        let (fit, instance) = at(&world, Some(&changed), len).unwrap();
        assert_eq!(instance.sequence().get(), len as u64, "its history is all there");
        match (len as u64) < difference.sequence {
            true => assert!(fit.is_fit(), "at {to}: {fit:?}"),
            false => assert_eq!(fit, whole, "at {to}"),
        }
    }
    let (fit, _) = at(&world, None, 3).unwrap();
    assert!(matches!(fit, Fit::NoCode { version: 0, .. }), "{fit:?}");
}
