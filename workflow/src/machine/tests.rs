//! The transition table: each input in each state, as text.

use std::fmt::Write as _;

use millrun_core::{InstanceId, Partition};

use super::*;
use crate::{Activity, Payload, Signal, Workflow, WorkflowContext, WorkflowError};

const STEP: Activity<(), ()> = Activity::named("step");
const GO: Signal<bool> = Signal::named("go");
const FLOW: Workflow<bool, ()> = Workflow::named("flow");

/// Calls, then sleeps, then waits for a signal, which may tell it to panic.
async fn flow(cx: WorkflowContext, sleeps_first: bool) -> Result<(), WorkflowError> {
    if !sleeps_first {
        cx.call(STEP, ()).await?;
    }
    cx.sleep(std::time::Duration::from_secs(1)).await?;
    assert!(cx.signal(GO).await?, "told to panic");
    Ok(())
}

fn moment(seconds: u64) -> Moment {
    Moment {
        now: Timestamp::from_micros(seconds * 1_000_000),
        epoch: 1,
    }
}

fn start(is_registered: bool, sleeps_first: bool) -> Instance {
    let code = Implementation::new(FLOW, flow);
    let started = Started::new(
        "flow",
        InstanceId::new("x").unwrap(),
        Payload::encode(&sleeps_first).unwrap(),
    );
    let run = RunId::new(Partition::of(b"x"), Timestamp::EPOCH, 1);
    let code = is_registered.then_some(&code);
    let mut turn = Turn::default();
    Instance::start(code, run, started, Limits::default(), moment(0), &mut turn)
}

const OPERATION: OperationId = OperationId::new(1);

fn completed(attempt: u32) -> Input {
    Input::ActivityCompleted {
        operation: OPERATION,
        attempt,
        result: Payload::encode(&()).unwrap(),
    }
}

fn failed(attempt: u32, is_retryable: bool) -> Input {
    Input::AttemptFailed {
        operation: OPERATION,
        attempt,
        failure: ActivityFailure::Panicked { message: "oh".into() },
        is_retryable,
        kind: None,
    }
}

fn signal(go_on: bool) -> Input {
    Input::Signal {
        name: GO.name().into(),
        value: Payload::encode(&go_on).unwrap(),
    }
}

/// Ways into each state.
fn states() -> Vec<(&'static str, Instance)> {
    let apply = |mut instance: Instance, inputs: Vec<Input>| {
        for input in inputs {
            instance.apply(input, moment(1), &mut Turn::default()).unwrap();
        }
        instance
    };
    let cancel = || Input::Cancel { reason: "c".into() };
    let terminate = || Input::Terminate { reason: "t".into() };
    vec![
        ("calling", start(true, false)),
        ("retrying", apply(start(true, false), vec![failed(1, true)])),
        ("sleeping", start(true, true)),
        ("asked to cancel", {
            let mut instance = start(true, false);
            // Parked code does not answer the request.
            instance.code = None;
            instance.unrecorded = Some(ParkReason::Stuck { message: "s".into() });
            apply(instance, vec![cancel()])
        }),
        ("not registered", start(false, false)),
        (
            "panicked",
            apply(
                start(true, true),
                vec![signal(false), Input::TimerFired { operation: OPERATION }],
            ),
        ),
        ("closed", apply(start(true, false), vec![terminate()])),
    ]
}

fn inputs() -> Vec<(&'static str, Input)> {
    vec![
        ("signal", signal(true)),
        ("completed by attempt 1", completed(1)),
        ("completed by attempt 2", completed(2)),
        ("failed, retryable", failed(1, true)),
        ("failed for good", failed(1, false)),
        ("attempt 2 failed", failed(2, true)),
        ("timer fired", Input::TimerFired { operation: OPERATION }),
        ("cancel", Input::Cancel { reason: "c".into() }),
        ("terminate", Input::Terminate { reason: "t".into() }),
        ("resume", Input::Resume),
    ]
}

fn in_words(command: &Command) -> &'static str {
    match command {
        Command::RunActivity { .. } => "run",
        Command::CancelActivity { .. } => "stop",
        Command::StartChild(_) => "start child",
        Command::CloseChild(_) => "close child",
        Command::ContinueAsNew { .. } => "continue",
        Command::Publish(_) => "publish",
        Command::CancelPublish { .. } => "cancel publish",
        Command::StartTimer { .. } => "start timer",
        Command::CancelTimer { .. } => "cancel timer",
        Command::ResumeAt { .. } => "resume later",
        Command::Park(_) => "tell of parking",
        Command::Close(_) => "close",
    }
}

fn table() -> String {
    let mut table = String::new();
    for (index, (state, _)) in states().into_iter().enumerate() {
        writeln!(table, "{state}").unwrap();
        for (name, input) in inputs() {
            let (_, mut instance) = states().swap_remove(index);
            let mut turn = Turn::default();
            let line = match instance.apply(input, moment(5), &mut turn) {
                Err(refused) => {
                    assert_eq!(turn, Turn::default());
                    format!("refused: {refused}")
                }
                Ok(()) => {
                    let events: Vec<_> = turn.events.iter().map(Event::label).collect();
                    let commands: Vec<_> = turn.commands.iter().map(in_words).collect();
                    format!("{} / {}", events.join(" "), commands.join(", "))
                }
            };
            writeln!(table, "  {name:<24}{}", line.trim_end()).unwrap();
        }
    }
    table
}

#[test]
fn each_input_in_each_state_does_what_the_table_says() {
    let (expected, actual) = (include_str!("transitions.txt"), table());
    assert!(
        expected == actual,
        "the transitions have changed; if that is meant, transitions.txt becomes:\n{actual}"
    );
}

#[test]
fn an_event_delivered_twice_is_refused_the_second_time() {
    for (first, second) in [(completed(1), completed(1)), (failed(1, true), failed(1, true))] {
        let mut instance = start(true, false);
        instance.apply(first, moment(1), &mut Turn::default()).unwrap();
        let mut turn = Turn::default();
        assert_eq!(instance.apply(second, moment(1), &mut turn), Err(Refused::Stale));
        assert_eq!(turn, Turn::default());
    }
}

#[test]
fn a_timer_that_fires_early_is_refused() {
    let mut instance = start(true, true);
    let fire = || Input::TimerFired { operation: OPERATION };
    let early = Moment {
        now: Timestamp::from_micros(999_999),
        epoch: 1,
    };
    assert_eq!(
        instance.apply(fire(), early, &mut Turn::default()),
        Err(Refused::Stale)
    );
    assert_eq!(instance.apply(fire(), moment(1), &mut Turn::default()), Ok(()));
}

/// A million runs may wait, tens of thousands of them in memory: what few runs have stands behind
/// pointers.
#[test]
fn what_every_instance_in_memory_takes_is_small() {
    let (machine, shared) = (size_of::<Instance>(), size_of::<Shared>());
    assert!(machine <= 480 && shared <= 384, "{machine} and {shared} bytes");
}

/// Runs the flow in whatever memory the turn lends: what it records in all, and the instance.
fn run_through(
    turn: &mut Turn,
    code: &Implementation,
    number: u64,
    inputs: &[Input],
) -> (String, Box<Instance>) {
    let started = Started::new(
        "flow",
        InstanceId::new("x").unwrap(),
        Payload::encode(&false).unwrap(),
    );
    let run = RunId::new(Partition::of(b"x"), Timestamp::EPOCH, number);
    let mut instance = Instance::start_in(turn, Some(code), run, started, Limits::default(), moment(0));
    let mut record = String::new();
    for (input, seconds) in inputs.iter().zip(1..) {
        writeln!(record, "{:?} {:?}", turn.events, turn.commands).unwrap();
        turn.events.clear();
        turn.commands.clear();
        let applied = instance.apply(input.clone(), moment(seconds), turn);
        writeln!(record, "{applied:?} {:?}", instance.park_reason()).unwrap();
    }
    writeln!(record, "{:?} {:?}", turn.events, turn.commands).unwrap();
    turn.events.clear();
    turn.commands.clear();
    (record, instance)
}

#[test]
fn a_run_in_the_memory_of_another_knows_nothing_of_it() {
    let code = Implementation::new(FLOW, flow);
    let fired = || Input::TimerFired {
        operation: OperationId::new(2),
    };
    // Signals nobody took, a cancel that was asked for, a panic, an operation that is pending.
    let lives = [
        vec![signal(true), signal(false), completed(1), fired()],
        vec![Input::Cancel { reason: "c".into() }, completed(1)],
        vec![completed(1), fired(), signal(false)],
        vec![signal(true)],
        vec![],
        vec![completed(1), fired(), fired(), signal(true)],
    ];
    let mut lending = Turn::default();
    for (number, (former, latter)) in (1..).zip(
        lives
            .iter()
            .flat_map(|former| lives.iter().map(move |latter| (former, latter))),
    ) {
        let (_, ended) = run_through(&mut lending, &code, number, former);
        let place = std::ptr::from_ref(&*ended).addr();
        lending.recycle(ended);
        let (recycled, instance) = run_through(&mut lending, &code, 7, latter);
        assert_eq!(std::ptr::from_ref(&*instance).addr(), place, "in its memory");
        let (fresh, _) = run_through(&mut Turn::default(), &code, 7, latter);
        assert_eq!(recycled, fresh);
        lending.recycle(instance);
    }
}

#[test]
fn memory_that_somebody_still_holds_is_not_lent() {
    static KEPT: std::sync::Mutex<Vec<WorkflowContext>> = std::sync::Mutex::new(Vec::new());
    async fn leaking(cx: WorkflowContext, _: bool) -> Result<(), WorkflowError> {
        KEPT.lock().unwrap().push(cx);
        Ok(())
    }
    let code = Implementation::new(FLOW, leaking);
    let mut turn = Turn::default();
    let (_, ended) = run_through(&mut turn, &code, 1, &[]);
    turn.recycle(ended);
    let kept = KEPT.lock().unwrap().len();
    let (record, _) = run_through(&mut turn, &code, 2, &[]);
    assert!(record.contains("Completed"), "{record}");
    assert_eq!((kept, KEPT.lock().unwrap().len()), (1, 2));
    assert_eq!(turn, Turn::default());
}
