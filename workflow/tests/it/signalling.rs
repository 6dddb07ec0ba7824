//! Signals to other instances, and from other runs.

use millrun_core::{Cause, InstanceId, RunId};
use millrun_workflow::{
    Command, Implementation, Input, InputRefused, Limits, OperationId, Outcome, ParkReason, Payload, Pending,
    SENDERS_CARRIED_LEN_MAX, Signal, SignalFailure, SignalInstanceError, Started, Workflow, WorkflowContext,
    WorkflowError,
};

use crate::world::{World, run_id};

const STOCK: Workflow<u64, u64> = Workflow::named("stock");
const ORDER: Workflow<u64, String> = Workflow::named("order");
const METER: Workflow<u64, u64> = Workflow::named("meter");
const TAKEN: Signal<u64> = Signal::named("taken");
const ONE: OperationId = OperationId::new(1);

/// Signals an instance, and says what became of that.
fn order() -> Implementation {
    Implementation::new(ORDER, async |cx: WorkflowContext, number: u64| {
        match cx.signal_instance(STOCK, "bolts", TAKEN, number).await {
            Ok(()) => Ok("sent".into()),
            Err(SignalInstanceError::Cancelled(cancelled)) => Err(WorkflowError::from(cancelled)),
            Err(error) => Ok(error.to_string()),
        }
    })
}

/// Sums signals up to a zero; makes a checkpoint behind each three, or goes on in another run behind each five.
fn meter() -> Implementation {
    Implementation::new(METER, async |cx: WorkflowContext, before: u64| {
        let mut sum = cx.checkpointed::<u64>().transpose()?.unwrap_or(before);
        for _ in 0..3 {
            match cx.receive(TAKEN).await? {
                0 => return Ok(sum),
                100 => return Ok::<_, WorkflowError>(cx.continue_as_new(METER, sum).await?),
                more => sum += more,
            }
        }
        Ok(cx.checkpoint(&sum).await?)
    })
}

fn sent(outcome: Result<(), SignalFailure>) -> Input {
    Input::SignalSent {
        operation: ONE,
        outcome,
    }
}

fn sender(operation: u32) -> Cause {
    Cause {
        run: run_id(),
        operation,
    }
}

fn told(operation: u32, value: u64) -> Input {
    Input::RunSignal {
        sender: Box::new(sender(operation)),
        name: TAKEN.name().into(),
        value: Payload::encode(&value).unwrap(),
    }
}

fn received_len(world: &World) -> usize {
    let labels = world.labels();
    labels
        .iter()
        .filter(|label| **label == "RunSignalReceived")
        .count()
}

#[test]
fn a_run_waits_until_its_signal_is_recorded_or_never_will_be() {
    let message = || "the history is damaged".to_owned();
    let outcomes = [
        (Ok(()), "sent"),
        (
            Err(SignalFailure::NotFound),
            "there is no instance of this id (or none that is retained)",
        ),
        (Err(SignalFailure::Finished), "the instance has ended"),
        (
            Err(SignalFailure::OtherWorkflow {
                workflow: "ship".into(),
            }),
            "the id belongs to an instance of workflow \"ship\"",
        ),
        (
            Err(SignalFailure::Quarantined { message: message() }),
            "the instance does not run: the history is damaged",
        ),
        (
            Err(SignalFailure::Refused { message: message() }),
            "the instance did not take the signal: the history is damaged",
        ),
    ];
    for (outcome, expected) in outcomes {
        let mut world = World::start(order(), &42_u64);
        let [Command::SendSignal { scheduled, .. }] = &world.commands[..] else {
            panic!("{:?}", world.commands);
        };
        assert_eq!((&*scheduled.workflow, scheduled.id.as_str()), ("stock", "bolts"));
        assert_eq!(scheduled.value.decode::<u64>(), Ok(42));
        let pending = world.instance.ledger().pending_operation(ONE);
        assert!(matches!(pending, Some(Pending::Signal(pending)) if pending == scheduled));
        world.apply(sent(outcome)).unwrap();
        assert_eq!(world.labels(), ["SignalScheduled", "SignalSent", "Completed"]);
        assert_eq!(world.apply(sent(Ok(()))), Err(InputRefused::Closed));
        assert_eq!(world.result::<String>(), expected);
    }
}

#[test]
fn a_signal_that_is_let_go_of_is_not_sent_again() {
    let is_cancelled = |world: &World| world.commands.contains(&Command::CancelSignal { operation: ONE });
    let mut world = World::start(order(), &1_u64);
    world.cancel();
    assert!(is_cancelled(&world), "{:?}", world.commands);
    assert!(matches!(
        world.instance.ledger().outcome(),
        Some(Outcome::Cancelled(_))
    ));
    world.check_replays();

    let mut world = World::start(order(), &1_u64);
    let reason = "test".into();
    world.apply(Input::Terminate { reason }).unwrap();
    assert!(is_cancelled(&world), "{:?}", world.commands);
    world.check_replays();

    let raced = Implementation::new(ORDER, async |cx: WorkflowContext, number: u64| {
        let signal = cx.signal_instance(STOCK, "bolts", TAKEN, number);
        cx.race(cx.receive(TAKEN), signal).await;
        cx.receive(TAKEN).await?;
        Ok::<_, WorkflowError>("let go of".to_owned())
    });
    let mut world = World::start(raced, &1_u64);
    world.signal(TAKEN, &1);
    assert!(is_cancelled(&world), "{:?}", world.commands);
    assert_eq!(world.apply(sent(Ok(()))), Err(InputRefused::Stale));
    world.signal(TAKEN, &1);
    assert_eq!(world.result::<String>(), "let go of");
}

#[test]
fn a_bad_id_or_a_large_value_is_refused_before_anything_is_decided() {
    const TEXT: Signal<String> = Signal::named("text");
    let code = Implementation::new(ORDER, async |cx: WorkflowContext, len: u64| {
        let nameless = cx.signal_instance(STOCK, "", TAKEN, 1).await.unwrap_err();
        let text = "x".repeat(usize::try_from(len).unwrap());
        let large = cx.signal_instance(STOCK, "bolts", TEXT, text).await.unwrap_err();
        let one = cx.signal_instance(STOCK, "bolts", TAKEN, 1);
        let two = cx.signal_instance(STOCK, "bolts", TAKEN, 2);
        let (one, two) = cx.join(one, two).await;
        Ok::<_, WorkflowError>(format!("{nameless}; {large}; {one:?}; {}", two.unwrap_err()))
    });
    let mut limits = Limits::default();
    limits.payload_bytes_max = 1_000;
    limits.pending_len_max = 1;
    let mut world = World::start_with(Some(code), &2_000_u64, limits);
    assert_eq!(world.labels(), ["SignalScheduled"]);
    world.apply(sent(Ok(()))).unwrap();
    assert_eq!(
        world.result::<String>(),
        "the id of the instance is none; \
         the value has 2004 bytes, a payload may have 1000: pass a reference instead; Ok(()); \
         the run has 1 operations outstanding, its limit: await some first"
    );
}

#[test]
fn a_signal_that_is_sent_again_is_recorded_once_also_behind_checkpoints_and_crashes() {
    let mut world = World::start(meter(), &0_u64);
    for operation in 1..=10 {
        for _ in 0..3 {
            world.apply(told(operation, 1)).unwrap();
            world.reload();
        }
    }
    assert_eq!(received_len(&world), 10);
    assert_eq!(
        world
            .labels()
            .iter()
            .filter(|label| **label == "Checkpointed")
            .count(),
        3
    );
    world.apply(told(11, 0)).unwrap();
    assert_eq!(world.result::<u64>(), 10);
    // The run has ended since it recorded it.
    assert_eq!(world.apply(told(7, 1)), Ok(()));
    assert_eq!(world.apply(told(12, 1)), Err(InputRefused::Closed));
}

#[test]
fn a_run_that_goes_on_in_another_takes_the_senders_along() {
    let mut world = World::start(meter(), &0_u64);
    let senders = 1..=u32::try_from(SENDERS_CARRIED_LEN_MAX).unwrap() + 5;
    for operation in senders.clone() {
        world.apply(told(operation, 1)).unwrap();
    }
    world.apply(told(100_000, 100)).unwrap();
    let Some(Command::ContinueAsNew { started, .. }) = world.commands.last() else {
        panic!("{:?}", world.commands);
    };
    let started = Started::clone(started);
    let carried = &started.origin.as_ref().unwrap().senders;
    assert_eq!(carried.len(), SENDERS_CARRIED_LEN_MAX);
    let mut next = World::start_as(Some(meter()), started, Limits::default(), world.moment);
    for operation in [100_000, *senders.end(), 7] {
        next.apply(told(operation, 1)).unwrap();
    }
    assert_eq!(received_len(&next), 0, "the latest are known");
    next.apply(told(6, 1)).unwrap();
    assert_eq!(received_len(&next), 1, "one of the oldest is taken for new");
}

#[test]
fn a_run_knows_as_many_senders_as_it_may() {
    for (senders_len_max, known) in [(0, 0), (2, 2), (4_096, 5)] {
        let mut limits = Limits::default();
        limits.senders_len_max = senders_len_max;
        let mut world = World::start_with(Some(meter()), &0_u64, limits);
        let before = world.instance.memory_bytes();
        for operation in 1..=5 {
            world.apply(told(operation, 1)).unwrap();
        }
        assert_eq!(world.instance.memory_bytes() > before + known * 64, known > 0);
        let ledger = world.instance.ledger();
        let known_len = (1..=5)
            .filter(|operation| ledger.knows_sender(&sender(*operation)))
            .count();
        assert_eq!(known_len, known, "of at most {senders_len_max}");
        world.check_replays();
    }
}

#[test]
fn a_signal_of_a_run_is_bounded_as_any_other() {
    let mut limits = Limits::default();
    (limits.payload_bytes_max, limits.signals_len_max) = (9, 2);
    let idle = Implementation::new(METER, async |cx: WorkflowContext, _: u64| {
        cx.cancelled().await;
        Ok::<_, WorkflowError>(0)
    });
    let mut world = World::start_with(Some(idle), &0_u64, limits);
    let large = Input::RunSignal {
        sender: Box::new(sender(1)),
        name: TAKEN.name().into(),
        value: Payload::encode("ten bytes, and more").unwrap(),
    };
    assert!(matches!(world.apply(large), Err(InputRefused::TooLarge { .. })));
    world.apply(told(1, 1)).unwrap();
    world.apply(told(2, 1)).unwrap();
    let full = InputRefused::TooManySignals { len_max: 2 };
    assert_eq!(world.apply(told(3, 1)), Err(full));
    assert_eq!(world.apply(told(2, 1)), Ok(()), "it is recorded");
    world.check_replays();
}

#[test]
fn other_code_that_signals_another_instance_is_told_by_the_name_of_the_signal() {
    let others = |name: &'static str, id: &'static str| {
        Implementation::new(ORDER, move |cx: WorkflowContext, number: u64| async move {
            let signal = Signal::<u64>::named(name);
            cx.signal_instance(STOCK, id, signal, number).await?;
            Ok::<_, WorkflowError>(String::new())
        })
    };
    for (name, id) in [("given", "bolts"), ("taken", "nuts")] {
        let mut world = World::start(order(), &1_u64);
        world.reload_with(Some(others(name, id)));
        let Some(ParkReason::Nondeterminism(difference)) = world.parked() else {
            panic!("{:?}", world.parked());
        };
        assert_eq!(
            difference.recorded,
            "signal taken to stock \"bolts\" (operation 1)"
        );
        let replayed = format!("signal {name} to stock {id:?} (operation 1) at ");
        assert!(difference.replayed.starts_with(&replayed), "{difference}");
    }
}

#[test]
fn what_a_run_sends_itself_is_told_from_what_it_is_sent() {
    let code = Implementation::new(ORDER, async |cx: WorkflowContext, number: u64| {
        let id = cx.instance_id().to_string();
        cx.signal_instance(ORDER, id, TAKEN, number).await?;
        Ok::<_, WorkflowError>(cx.receive(TAKEN).await?.to_string())
    });
    let mut world = World::start(code, &7_u64);
    let [Command::SendSignal { scheduled, .. }] = &world.commands[..] else {
        panic!("{:?}", world.commands);
    };
    assert_eq!(scheduled.id, InstanceId::new("world").unwrap());
    let run: RunId = world.instance.run();
    let input = Input::RunSignal {
        sender: Box::new(Cause { run, operation: 1 }),
        name: scheduled.name.clone(),
        value: scheduled.value.clone(),
    };
    world.apply(input).unwrap();
    world.apply(sent(Ok(()))).unwrap();
    assert_eq!(world.result::<String>(), "7");
}
