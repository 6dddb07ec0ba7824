//! Children, and runs that go on in another.

use std::sync::Arc;

use millrun_core::{Cause, InstanceId, RunId, Timestamp, TraceContext};
use millrun_workflow::{
    ChildError, ChildFailure, Command, Either, Event, Implementation, Input, InputRefused, Limits, Moment,
    OperationId, Origin, Outcome, Parent, ParentClose, Payload, Pending, RunFailure, Signal, Started,
    Workflow, WorkflowContext, WorkflowError,
};

use crate::world::{World, run_id};

const SHIP: Workflow<u64, u64> = Workflow::named("ship");
const ORDER: Workflow<u64, String> = Workflow::named("order");
const METER: Workflow<u64, u64> = Workflow::named("meter");
const READING: Signal<u64> = Signal::named("reading");
const ONE: OperationId = OperationId::new(1);

fn order_with(on_close: ParentClose) -> Implementation {
    Implementation::new(ORDER, move |cx: WorkflowContext, number: u64| async move {
        let child = cx.child(SHIP, format!("order-{number}/parcel"), number);
        Ok::<_, WorkflowError>(match child.on_close(on_close).await {
            Ok(parcel) => format!("parcel {parcel}"),
            Err(ChildError::Failed(error)) => format!("failed: {error}"),
            Err(ChildError::Cancelled(cancelled)) => return Err(cancelled.into()),
            Err(error) => error.to_string(),
        })
    })
}

fn ended(end: Result<Payload, ChildFailure>) -> Input {
    Input::ChildEnded { operation: ONE, end }
}

fn failure(message: &str) -> RunFailure {
    RunFailure {
        error: Payload::encode(&WorkflowError::failed(message)).unwrap(),
        message: message.into(),
        is_cancelled: false,
    }
}

#[test]
fn a_parent_waits_for_its_child_and_takes_its_result() {
    let ends = [
        (Ok(Payload::encode(&7_u64).unwrap()), "parcel 7"),
        (Err(ChildFailure::Failed(failure("lost"))), "failed: lost"),
        (
            Err(ChildFailure::Cancelled(failure("stop"))),
            "the child was cancelled: stop",
        ),
        (
            Err(ChildFailure::Terminated { reason: "x".into() }),
            "the child was terminated: x",
        ),
        (
            Err(ChildFailure::NotStarted { message: "y".into() }),
            "the child was not started: y",
        ),
    ];
    for (end, expected) in ends {
        let mut world = World::start(order_with(ParentClose::Cancel), &42_u64);
        assert_eq!(world.children[&ONE].id.as_str(), "order-42/parcel");
        let run = run_id();
        let started = Input::ChildStarted { operation: ONE, run };
        world.apply(started.clone()).unwrap();
        world.apply(started).unwrap();
        assert!(matches!(
            world.instance.ledger().pending_operation(ONE),
            Some(Pending::Child { run: Some(known), .. }) if *known == run
        ));
        world.apply(ended(end.clone())).unwrap();
        assert_eq!(
            world.labels(),
            ["ChildScheduled", "ChildStarted", "ChildEnded", "Completed"]
        );
        assert_eq!(world.apply(ended(end)), Err(InputRefused::Closed));
        assert_eq!(world.result::<String>(), expected);
    }
}

#[test]
fn a_child_that_nobody_waits_for_is_closed_as_its_call_says() {
    for (on_close, is_closed) in [
        (ParentClose::Cancel, true),
        (ParentClose::Terminate, true),
        (ParentClose::Abandon, false),
    ] {
        let closes = |world: &World| {
            let mut closes = world.commands.iter().filter(
                |command| matches!(command, Command::CloseChild(scheduled) if scheduled.on_close == on_close),
            );
            closes.next().is_some()
        };
        let mut world = World::start(order_with(on_close), &1_u64);
        world.cancel();
        assert_eq!(closes(&world), is_closed, "{on_close:?} when the call is dropped");
        world.check_replays();

        let mut world = World::start(order_with(on_close), &1_u64);
        let reason = "test".into();
        world.apply(Input::Terminate { reason }).unwrap();
        assert_eq!(closes(&world), is_closed, "{on_close:?} when the parent ends");
        world.check_replays();
    }
}

#[test]
fn a_bad_id_or_a_large_input_is_refused_before_anything_is_decided() {
    let code = Implementation::new(ORDER, async |cx: WorkflowContext, _: u64| {
        let nameless = cx.child(SHIP, "", 1).await.unwrap_err().to_string();
        const WIDE: Workflow<String, u64> = Workflow::named("wide");
        let large = cx.child(WIDE, "x", "x".repeat(2 << 20)).await.unwrap_err();
        Ok::<_, WorkflowError>(format!(
            "{nameless}; {}",
            matches!(large, ChildError::TooLarge { .. })
        ))
    });
    let world = World::start(code, &1_u64);
    assert_eq!(world.result::<String>(), "the child's id is no instance id; true");
}

#[test]
fn a_child_is_closed_when_its_parent_goes_on_in_another_run_or_from_a_checkpoint() {
    for (is_checkpoint, on_close) in [
        (false, ParentClose::Cancel),
        (true, ParentClose::Terminate),
        (false, ParentClose::Abandon),
        (true, ParentClose::Abandon),
    ] {
        let code = Implementation::new(METER, move |cx: WorkflowContext, sum: u64| async move {
            if cx.checkpointed::<u64>().is_some() {
                return Ok(cx.receive(READING).await?);
            }
            let child = cx.child(SHIP, "parcel", sum).on_close(on_close);
            let go_on = async {
                cx.receive(READING).await?;
                Ok::<u64, WorkflowError>(if is_checkpoint {
                    cx.checkpoint(&sum).await?
                } else {
                    cx.continue_as_new(METER, sum).await?
                })
            };
            match cx.race(child, go_on).await {
                Either::Left(child) => Ok(child?),
                Either::Right(ended) => ended,
            }
        });
        let mut world = World::start(code, &1_u64);
        world.signal(READING, &1);
        let is_closed = world
            .commands
            .iter()
            .any(|command| matches!(command, Command::CloseChild(_)));
        assert_eq!(is_closed, on_close != ParentClose::Abandon, "{on_close:?}");
        let end = if is_checkpoint {
            "Checkpointed"
        } else {
            "ContinuedAsNew"
        };
        assert_eq!(world.labels().last(), Some(&end));
        world.check_replays();
    }
}

/// Sums two readings a run.
async fn meter(cx: WorkflowContext, sum: u64) -> Result<u64, WorkflowError> {
    let sum = sum + cx.receive(READING).await? + cx.receive(READING).await?;
    if sum >= 10 {
        return Ok(sum);
    }
    Ok(cx.continue_as_new(METER, sum).await?)
}

fn meter_code() -> Implementation {
    Implementation::new(METER, meter)
}

/// Goes on as the last commands say.
fn next_world(world: &World) -> (World, RunId) {
    let Some(Command::ContinueAsNew { run, started }) = world.commands.last() else {
        panic!("the run does not go on: {:?}", world.commands);
    };
    let moment = Moment {
        epoch: 1,
        ..world.moment
    };
    let started = Started::clone(started);
    (
        World::start_as(Some(meter_code()), started, world.limits, moment),
        *run,
    )
}

#[test]
fn a_run_goes_on_in_another_with_its_argument_and_its_signals() {
    let mut world = World::start(meter_code(), &0_u64);
    world.signal(READING, &1);
    world.signal(READING, &2);
    assert_eq!(
        world.labels(),
        ["SignalReceived", "SignalReceived", "ContinuedAsNew"]
    );
    world.check_replays();
    let (mut next, run) = next_world(&world);
    assert!(matches!(
        world.instance.ledger().outcome(),
        Some(Outcome::Continued(outcome)) if *outcome == run
    ));
    next.signal(READING, &3);
    next.signal(READING, &4);
    assert_eq!(next.result::<u64>(), 10);
}

#[test]
fn signals_that_were_not_taken_go_with_it_in_their_order() {
    let code = Implementation::new(METER, async |cx: WorkflowContext, sum: u64| {
        cx.sleep(std::time::Duration::from_secs(1)).await?;
        Ok::<u64, _>(cx.continue_as_new(METER, sum).await?)
    });
    let mut world = World::start(code, &0_u64);
    world.signal(READING, &4);
    world.signal(READING, &6);
    assert!(world.fire_next());
    world.check_replays();
    let (next, _) = next_world(&world);
    // Both were there before the code began.
    assert_eq!(next.labels(), ["Completed"]);
    assert_eq!(next.result::<u64>(), 10);
    let Event::Started(started) = &next.history()[0].0 else {
        panic!("a run begins with its start")
    };
    assert_eq!(started.origin.as_ref().unwrap().continued, Some(run_id()));
}

/// Handles of an instance are of the workflow that it began as, and cannot know what it goes on as.
#[test]
fn a_run_that_continues_as_another_workflow_says_what_its_instance_began_as() {
    const BILL: Workflow<u64, u64> = Workflow::named("bill");
    let meter = Implementation::new(METER, async |cx: WorkflowContext, sum: u64| {
        cx.receive(READING).await?;
        Ok::<u64, WorkflowError>(cx.continue_as_new(BILL, sum).await?)
    });
    let bill = Implementation::new(BILL, async |cx: WorkflowContext, sum: u64| {
        cx.receive(READING).await?;
        Ok::<u64, WorkflowError>(match sum {
            0 => cx.continue_as_new(BILL, 1).await?,
            sum => cx.continue_as_new(METER, sum).await?,
        })
    });
    let mut world = World::start(meter, &0_u64);
    for (workflow, began_as) in [("bill", Some("meter")), ("bill", Some("meter")), ("meter", None)] {
        world.signal(READING, &1);
        let Some(Command::ContinueAsNew { started, .. }) = world.commands.last() else {
            panic!("the run does not go on: {:?}", world.commands);
        };
        let started = Started::clone(started);
        assert_eq!((&*started.workflow, &**started.began_as()), (workflow, "meter"));
        assert_eq!(started.origin.as_ref().unwrap().began_as.as_deref(), began_as);
        let moment = Moment {
            epoch: 1,
            ..world.moment
        };
        world = World::start_as(Some(bill.clone()), started, world.limits, moment);
    }
}

#[test]
fn a_child_that_continues_stays_the_child_of_its_parent() {
    let parent = Parent {
        run: run_id(),
        operation: ONE,
        on_close: ParentClose::Terminate,
    };
    let mut started = Started::new(
        "meter",
        InstanceId::new("world").unwrap(),
        Payload::encode(&0_u64).unwrap(),
    );
    started.origin = Some(Arc::new(millrun_workflow::Origin {
        parent: Some(parent),
        ..millrun_workflow::Origin::default()
    }));
    let moment = Moment {
        now: millrun_core::Timestamp::from_micros(1),
        epoch: 1,
    };
    let limits = millrun_workflow::Limits::default();
    let mut world = World::start_as(Some(meter_code()), started, limits, moment);
    world.signal(READING, &1);
    world.signal(READING, &2);
    let (next, _) = next_world(&world);
    assert_eq!(next.instance.ledger().started().unwrap().parent(), Some(parent));
}

#[test]
fn a_run_that_was_asked_to_cancel_does_not_go_on_in_another() {
    let code = Implementation::new(METER, async |cx: WorkflowContext, sum: u64| {
        cx.cancelled().await;
        Ok::<u64, WorkflowError>(cx.continue_as_new(METER, sum).await?)
    });
    let mut world = World::start(code, &0_u64);
    world.cancel();
    assert_eq!(world.labels(), ["CancelRequested", "Cancelled"]);
    world.check_replays();
}

#[test]
fn other_children_and_other_ways_on_are_noticed_by_a_replay() {
    let mut world = World::start(order_with(ParentClose::Cancel), &42_u64);
    world.apply(ended(Ok(Payload::encode(&7_u64).unwrap()))).unwrap();
    let other = Implementation::new(ORDER, async |cx: WorkflowContext, number: u64| {
        let child = cx.child(SHIP, format!("other-{number}"), number);
        Ok::<_, WorkflowError>(child.await?.to_string())
    });
    let replayed = World::from_history(Some(other), world.history()[..3].to_vec());
    let reason = replayed.parked().unwrap().to_string();
    assert!(
        reason.contains("child ship \"order-42/parcel\"") && reason.contains("child ship \"other-42\""),
        "{reason}"
    );
}

#[test]
fn a_run_that_continues_another_has_its_cause_and_its_trace_and_a_child_has_its_parent() {
    let cause = Cause {
        run: run_id(),
        operation: 9,
    };
    let code = Implementation::new(METER, async |cx: WorkflowContext, sum: u64| {
        cx.receive(READING).await?;
        Ok::<u64, WorkflowError>(cx.continue_as_new(METER, sum).await?)
    });
    let id = || InstanceId::new("world").unwrap();
    let begun = |id| Started::new(METER.name(), id, Payload::encode(&1_u64).unwrap());
    let moment = Moment {
        now: Timestamp::from_micros(1),
        epoch: 1,
    };
    let trace = TraceContext::beginning_with(run_id()).at_operation(cause);
    let started = begun(id()).caused_by(cause).traced(trace);
    let mut world = World::start_as(Some(code), started, Limits::default(), moment);
    world.signal(READING, &1);
    let Some(Command::ContinueAsNew { started, .. }) = world.commands.last() else {
        panic!("the run does not go on: {:?}", world.commands);
    };
    assert_eq!((started.cause(), started.trace()), (Some(cause), Some(&trace)));

    let mut child = begun(id());
    assert_eq!(child.cause(), None);
    child.origin = Some(Arc::new(Origin {
        parent: Some(Parent {
            run: cause.run,
            operation: OperationId::new(9),
            on_close: ParentClose::Cancel,
        }),
        ..Origin::default()
    }));
    assert_eq!(child.cause(), Some(cause));
}
