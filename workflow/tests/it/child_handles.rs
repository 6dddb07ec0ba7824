//! Children with handles: signalled and cancelled while their end is waited for.

use millrun_workflow::{
    CancelScope, ChildError, ChildFailure, Command, Event, Implementation, Input, InputRefused, Limits,
    Moment, OperationId, Outstanding, ParentClose, ParkReason, Payload, Pending, RunFailure, Signal,
    SignalFailure, SignalInstanceError, Workflow, WorkflowContext, WorkflowError, wire,
};

use crate::world::World;

const SHIP: Workflow<u64, u64> = Workflow::named("ship");
const ORDER: Workflow<u64, String> = Workflow::named("order");
const EXPRESS: Signal<u64> = Signal::named("express");
const RECALL: Signal<String> = Signal::named("recall");
const NEXT: Signal<u64> = Signal::named("next");
const CALL: OperationId = OperationId::new(1);
const SENT: OperationId = OperationId::new(2);

/// Starts a parcel, signals it, and waits for its end, or recalls it.
async fn ordered(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let mut parcel = cx.child(SHIP, format!("parcel-{number}"), number).start()?;
    let express = match parcel.signal(EXPRESS, 5).await {
        Ok(()) => "express",
        Err(SignalInstanceError::Finished | SignalInstanceError::NotFound) => "too late",
        Err(error) => return Err(error.into()),
    };
    let ended = tokio::select! {
        biased;
        ended = &mut parcel => ended,
        reason = cx.receive(RECALL) => {
            let is_asked = parcel.cancel(reason?);
            let again = parcel.control().cancel("again");
            let ended = parcel.await;
            return Ok(format!("{express}, recalled {is_asked} {again}: {}", ended.unwrap_err()));
        }
    };
    Ok(format!("{express}: parcel {}", ended?))
}

pub(crate) fn order() -> Implementation {
    Implementation::new(ORDER, ordered)
}

fn sent(outcome: Result<(), SignalFailure>) -> Input {
    Input::SignalSent {
        operation: SENT,
        outcome,
    }
}

fn ended(end: Result<Payload, ChildFailure>) -> Input {
    Input::ChildEnded { operation: CALL, end }
}

fn cancelled() -> Input {
    ended(Err(ChildFailure::Cancelled(RunFailure {
        error: Payload::encode(&WorkflowError::failed("stopped")).unwrap(),
        message: "stopped".into(),
        is_cancelled: true,
    })))
}

/// A parcel that is recalled once it is known to have begun.
pub(crate) fn recorded() -> World {
    let mut world = World::start(order(), &7_u64);
    let run = crate::world::run_id();
    let operation = CALL;
    world.apply(Input::ChildStarted { operation, run }).unwrap();
    world.apply(sent(Ok(()))).unwrap();
    world.signal(RECALL, &"lost".to_owned());
    world.apply(cancelled()).unwrap();
    world
}

#[test]
fn a_child_is_started_and_signalled_in_one_turn_in_this_order() {
    let mut world = World::start(order(), &7_u64);
    assert_eq!(world.labels(), ["ChildScheduled", "SignalScheduled"]);
    let [
        Command::StartChild {
            scheduled: child,
            run: None,
            cancel: None,
        },
        Command::SendSignal {
            scheduled: signal,
            is_repeated: false,
        },
    ] = &world.commands[..]
    else {
        panic!("{:?}", world.commands);
    };
    assert_eq!((child.operation, child.id.as_str()), (CALL, "parcel-7"));
    assert_eq!((signal.child, signal.id.as_str()), (Some(CALL), "parcel-7"));
    world.apply(sent(Ok(()))).unwrap();
    world.apply(ended(Ok(Payload::encode(&9_u64).unwrap()))).unwrap();
    assert_eq!(world.result::<String>(), "express: parcel 9");
}

#[test]
fn an_end_that_came_before_the_handle_is_awaited_is_kept_for_it() {
    for (failure, expected) in [
        (SignalFailure::Finished, "too late: parcel 9"),
        (SignalFailure::NotFound, "too late: parcel 9"),
    ] {
        let mut world = World::start(order(), &7_u64);
        world.apply(ended(Ok(Payload::encode(&9_u64).unwrap()))).unwrap();
        assert_eq!(
            world.labels().last(),
            Some(&"ChildEnded"),
            "its signal is under way"
        );
        world.reload();
        world.apply(sent(Err(failure))).unwrap();
        assert_eq!(world.result::<String>(), expected);
    }
}

#[test]
fn a_child_that_is_cancelled_is_asked_once_and_waited_for() {
    let mut world = World::start(order(), &7_u64);
    world.apply(sent(Ok(()))).unwrap();
    world.signal(RECALL, &"lost".to_owned());
    assert_eq!(world.labels()[3..], ["SignalReceived", "ChildCancelRequested"]);
    let [Command::CancelChild { scheduled, reason }] = &world.commands[..] else {
        panic!("{:?}", world.commands);
    };
    assert_eq!((scheduled.operation, &**reason), (CALL, "lost"));
    world.reload();
    world.apply(cancelled()).unwrap();
    assert_eq!(
        world.result::<String>(),
        "express, recalled true false: the child was cancelled: stopped"
    );
    assert_eq!(world.apply(cancelled()), Err(InputRefused::Closed));
}

/// What an owner does that takes over a run with this history.
fn taken_over(world: &World) -> Vec<Command> {
    let mut outstanding = Outstanding::new();
    let mut body = Vec::new();
    for (event, time) in world.history() {
        body.clear();
        wire::encode(event, &mut body).unwrap();
        let opens = matches!(event, Event::Started(_)).then_some("world");
        outstanding.take(wire::kind(event), &body, *time, opens).unwrap();
    }
    let mut commands = Vec::new();
    let moment = Moment {
        epoch: 9,
        ..world.moment
    };
    let ledger = outstanding.ledger().unwrap();
    for (operation, pending) in ledger.pending() {
        pending.commands(operation, moment.now, moment, true, &mut commands);
    }
    commands
}

#[test]
fn an_owner_that_takes_a_run_over_asks_for_the_cancel_together_with_the_child() {
    let mut world = World::start(order(), &7_u64);
    world.apply(sent(Ok(()))).unwrap();
    let asks = |world: &World| match &taken_over(world)[..] {
        [Command::StartChild { cancel, .. }] => cancel.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(asks(&world), None);
    world.signal(RECALL, &"lost".to_owned());
    assert_eq!(asks(&world).as_deref(), Some("lost"));
    assert!(matches!(
        world.instance.ledger().pending_operation(CALL),
        Some(Pending::Child { cancel: Some(_), .. })
    ));
}

#[test]
fn a_reason_is_cut_where_texts_are() {
    let mut limits = Limits::default();
    limits.text_bytes_max = 4;
    let mut world = World::start_with(Some(order()), &7_u64, limits);
    world.apply(sent(Ok(()))).unwrap();
    world.signal(RECALL, &"lost at sea".to_owned());
    let reasons: Vec<_> = world
        .history()
        .iter()
        .filter_map(|(event, _)| match event {
            Event::ChildCancelRequested { reason, .. } => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["lost"]);
    world.check_replays();
}

/// Drops the handle to the child at once, and keeps its `ChildControl`.
fn let_go(on_close: ParentClose) -> Implementation {
    Implementation::new(ORDER, move |cx: WorkflowContext, number: u64| async move {
        let parcel = cx.child(SHIP, format!("parcel-{number}"), number);
        let parcel = parcel.on_close(on_close).start()?;
        let control = parcel.control();
        cx.receive(NEXT).await?;
        drop(parcel);
        let is_asked = control.cancel("late");
        let sent = control.signal(EXPRESS, 1).await;
        Ok::<_, WorkflowError>(format!("{} {is_asked} {sent:?}", control.id()))
    })
}

#[test]
fn a_handle_that_is_dropped_closes_its_child_as_its_call_says() {
    for (on_close, is_closed) in [
        (ParentClose::Cancel, true),
        (ParentClose::Terminate, true),
        (ParentClose::Abandon, false),
    ] {
        let mut world = World::start(let_go(on_close), &7_u64);
        assert_eq!(world.labels(), ["ChildScheduled"]);
        world.signal(NEXT, &1);
        assert_eq!(world.labels()[2..], ["OperationCancelled", "SignalScheduled"]);
        let mut closes = world.commands.iter();
        let closes = closes.any(|command| matches!(command, Command::CloseChild(_)));
        assert_eq!(closes, is_closed, "{on_close:?}");
        world.apply(sent(Ok(()))).unwrap();
        assert_eq!(world.result::<String>(), "parcel-7 false Ok(())");
    }
}

#[test]
fn what_forbids_a_child_is_told_at_its_start() {
    const WIDE: Workflow<String, u64> = Workflow::named("wide");
    let code = Implementation::new(ORDER, async |cx: WorkflowContext, _: u64| {
        let nameless = cx.child(SHIP, "", 1).start().unwrap_err();
        let large = cx.child(WIDE, "x", "x".repeat(2 << 20)).start().unwrap_err();
        let empty = cx.child_untyped("", "x", Payload::encode(&1)?).start();
        let scope: CancelScope = cx.scope();
        scope.cancel();
        let cancelled = scope.context().child(SHIP, "x", 1).start();
        Ok::<_, WorkflowError>(format!(
            "{nameless}; {} {} {}",
            matches!(large, ChildError::TooLarge { .. }),
            matches!(empty, Err(ChildError::NotStarted { .. })),
            matches!(cancelled, Err(ChildError::Cancelled(_))),
        ))
    });
    let world = World::start(code, &1_u64);
    assert_eq!(world.labels(), ["Completed"]);
    assert_eq!(
        world.result::<String>(),
        "the child's id is no instance id; true true true"
    );
}

#[test]
fn a_child_that_is_known_by_name_has_a_handle_too() {
    let code = Implementation::new(ORDER, async |cx: WorkflowContext, number: u64| {
        let input = Payload::encode(&number)?;
        let mut parcel = cx.child_untyped("ship", "parcel", input).start()?;
        parcel.signal(EXPRESS, 1).await?;
        let first = cx.race(&mut parcel, cx.receive(NEXT)).await;
        drop(first);
        let is_asked = parcel.cancel("enough");
        let ended = parcel.await;
        Ok::<_, WorkflowError>(format!("{is_asked} {}", ended.is_ok()))
    });
    let mut world = World::start(code, &7_u64);
    world.apply(sent(Ok(()))).unwrap();
    world.signal(NEXT, &1);
    assert_eq!(world.labels().last(), Some(&"ChildCancelRequested"));
    // It did not heed the request.
    world.apply(ended(Ok(Payload::encode(&9_u64).unwrap()))).unwrap();
    assert_eq!(world.result::<String>(), "true true");
}

#[test]
fn a_run_that_is_cancelled_lets_go_of_the_children_it_has_handles_to() {
    let mut world = World::start(order(), &7_u64);
    world.apply(sent(Ok(()))).unwrap();
    world.cancel();
    let mut commands = world.commands.iter();
    assert!(commands.any(|command| matches!(command, Command::CloseChild(_))));
    assert_eq!(world.labels().last(), Some(&"Cancelled"));
    world.check_replays();
}

/// Changed code: what it decides differs from the history in one step.
fn changed(step: &'static str) -> Implementation {
    Implementation::new(ORDER, move |cx: WorkflowContext, number: u64| async move {
        let mut parcel = cx.child(SHIP, format!("parcel-{number}"), number).start()?;
        if step == "signal" {
            let sent = cx.signal_instance(SHIP, parcel.id().to_owned(), EXPRESS, 5);
            sent.await?;
        } else {
            parcel.signal(EXPRESS, 5).await?;
        }
        cx.race(&mut parcel, cx.receive(RECALL)).await;
        if step != "cancel" {
            parcel.cancel("for another reason");
        }
        cx.receive(NEXT).await?;
        Ok::<_, WorkflowError>(String::new())
    })
}

#[test]
fn code_that_decides_otherwise_about_a_child_is_parked() {
    let mut recorded = World::start(changed(""), &7_u64);
    recorded.apply(sent(Ok(()))).unwrap();
    recorded.signal(RECALL, &"lost".to_owned());
    for (step, expected) in [
        ("", None),
        ("signal", Some("signal express to ship")),
        ("cancel", Some("request to cancel the child of operation 1")),
    ] {
        let history = recorded.history().to_vec();
        let world = World::from_history(Some(changed(step)), history);
        match (world.instance.park_reason(), expected) {
            (None, None) => {}
            (Some(ParkReason::Nondeterminism(found)), Some(expected)) => {
                assert!(format!("{found:?}").contains(expected), "{found:?}");
            }
            other => panic!("{step}: {other:?}"),
        }
    }
}
