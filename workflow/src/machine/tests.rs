//! The transition table: each input in each state, as text.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use millrun_core::{InstanceId, Partition};

use super::*;
use crate::{Activity, Payload, Signal, Update, Workflow, WorkflowContext, WorkflowError};

const STEP: Activity<(), ()> = Activity::named("step");
const GO: Signal<bool> = Signal::named("go");
const FLOW: Workflow<bool, ()> = Workflow::named("flow");

/// Calls, then sleeps, then waits for a signal, which may tell it to panic.
async fn flow(cx: WorkflowContext, sleeps_first: bool) -> Result<(), WorkflowError> {
    if !sleeps_first {
        cx.call(STEP, ()).await?;
    }
    cx.sleep(std::time::Duration::from_secs(1)).await?;
    assert!(cx.receive(GO).await?, "told to panic");
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
        retry_after: None,
    }
}

fn signal(go_on: bool) -> Input {
    Input::Signal {
        name: GO.name().into(),
        value: Payload::encode(&go_on).unwrap(),
        cause: None,
        request: None,
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
            instance.unrecorded = Some(Box::new(ParkReason::Stuck { message: "s".into() }));
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
        Command::StartChild { .. } => "start child",
        Command::CancelChild { .. } => "cancel child",
        Command::CloseChild(_) => "close child",
        Command::ContinueAsNew { .. } => "continue",
        Command::Publish { .. } => "publish",
        Command::CancelPublish { .. } => "cancel publish",
        Command::Receive { .. } => "receive",
        Command::CancelReceive(_) => "cancel receive",
        Command::StartTimer { .. } => "start timer",
        Command::CancelTimer { .. } => "cancel timer",
        Command::ResumeAt { .. } => "resume later",
        Command::TimeOutAt { .. } => "time out later",
        Command::CancelTimeOut { .. } => "forget the timeout",
        Command::Park(_) => "tell of parking",
        Command::SendSignal { .. } => "send signal",
        Command::CancelSignal { .. } => "cancel signal",
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
        assert_eq!(
            instance.apply(second, moment(1), &mut turn),
            Err(InputRefused::Stale)
        );
        assert_eq!(turn, Turn::default());
    }
}

#[test]
fn a_timer_that_fires_early_is_started_anew() {
    let mut instance = start(true, true);
    let fire = || Input::TimerFired { operation: OPERATION };
    let early = Moment {
        now: Timestamp::from_micros(999_999),
        epoch: 1,
    };
    let mut turn = Turn::default();
    assert_eq!(instance.apply(fire(), early, &mut turn), Ok(()));
    let again = Command::StartTimer {
        operation: OPERATION,
        deadline: Timestamp::from_micros(1_000_000),
    };
    assert_eq!((turn.events, turn.commands), (vec![], vec![again]));
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
    argument: bool,
    number: u64,
    inputs: &[Input],
) -> (String, Box<Instance>) {
    let started = Started::new(
        "flow",
        InstanceId::new("x").unwrap(),
        Payload::encode(&argument).unwrap(),
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

/// Each life in the memory of each: it is what it is in memory of its own.
fn check_recycled(code: &Implementation, lives: &[Vec<Input>]) {
    let mut lending = Turn::default();
    let pairs = lives
        .iter()
        .flat_map(|former| lives.iter().map(move |latter| (former, latter)));
    for (number, (former, latter)) in (1..).zip(pairs) {
        let (_, ended) = run_through(&mut lending, code, false, number, former);
        let place = std::ptr::from_ref(&*ended).addr();
        lending.recycle(ended);
        let (recycled, instance) = run_through(&mut lending, code, false, 7, latter);
        assert_eq!(std::ptr::from_ref(&*instance).addr(), place, "in its memory");
        let (fresh, _) = run_through(&mut Turn::default(), code, false, 7, latter);
        assert_eq!(recycled, fresh, "{latter:?} after {former:?}");
        lending.recycle(instance);
    }
}

#[test]
fn a_run_in_the_memory_of_another_knows_nothing_of_it() {
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
    check_recycled(&Implementation::new(FLOW, flow), &lives);
}

/// What code is told to do next.
#[derive(serde::Serialize, serde::Deserialize)]
enum Order {
    Checkpoint,
    CheckpointForEver,
    /// Ends with a panic, just as the run was to go on in another.
    PanicContinuing,
    WaitForState,
}

const ORDER: Signal<Order> = Signal::named("order");
const ADD: Update<u64, u64, u64> = Update::named("add");
const DRAWN: Activity<(u64, bool, u64, u64), ()> = Activity::named("drawn");

/// Draws a number, takes a changed way, has a state, makes checkpoints; says in a call what it saw.
async fn rich(cx: WorkflowContext, _: bool) -> Result<(), WorkflowError> {
    const FOR_EVER: u64 = u64::MAX;
    let restored = cx.checkpointed::<u64>().transpose()?.unwrap_or(0);
    if restored == FOR_EVER {
        return Ok(cx.checkpoint(&FOR_EVER).await?);
    }
    let state = cx.state(restored);
    let is_new = cx.patched("changed");
    let sum = state.read(|sum| *sum);
    let call = cx.call(DRAWN, (cx.random(), is_new, restored, sum));
    let ordered = async {
        match cx.receive(ORDER).await? {
            Order::Checkpoint => Ok(cx.checkpoint(&(state.read(|sum| *sum) + 1)).await?),
            Order::CheckpointForEver => Ok(cx.checkpoint(&FOR_EVER).await?),
            Order::PanicContinuing => {
                let mut next = cx.continue_as_new(FLOW, true);
                let polled = poll_fn(|task| Poll::Ready(Pin::new(&mut next).poll(task).is_pending())).await;
                panic!("told to panic, {polled}")
            }
            Order::WaitForState => Ok::<_, WorkflowError>(state.until(|sum| *sum > 9).await?),
        }
    };
    let (called, ordered) = cx.join(call, ordered).await;
    called?;
    ordered
}

#[test]
fn a_run_in_the_memory_of_another_has_its_own_state_numbers_patches_and_answers() {
    let code = FLOW
        .update(ADD)
        .change(|sum, more| {
            *sum += more;
            *sum
        })
        .bind(rich);
    let order = |order: Order| Input::Signal {
        name: ORDER.name().into(),
        value: Payload::encode(&order).unwrap(),
        cause: None,
        request: None,
    };
    let add = |more: u64| Input::Update {
        request: "one".into(),
        name: ADD.name().into(),
        input: Payload::encode(&more).unwrap(),
    };
    let pause = || Input::Pause { reason: "p".into() };
    let lives = [
        vec![],
        vec![add(3), add(3), completed(1)],
        vec![add(4), order(Order::Checkpoint), add(5)],
        vec![order(Order::Checkpoint), order(Order::Checkpoint), add(7)],
        vec![add(8), order(Order::CheckpointForEver)],
        vec![order(Order::PanicContinuing)],
        vec![order(Order::WaitForState), completed(1)],
        vec![pause(), order(Order::Checkpoint)],
        vec![pause(), Input::Resume],
        vec![completed(1), order(Order::WaitForState), add(10)],
    ];
    check_recycled(&code, &lives);
}

#[test]
fn a_run_in_the_memory_of_a_replay_that_went_wrong_knows_nothing_of_it() {
    /// The same call with another input: a replay counts that. Or no call at all: it parks.
    async fn changed(cx: WorkflowContext, _: bool) -> Result<(), WorkflowError> {
        cx.call(Activity::<u64, ()>::named("step"), 1).await?;
        Ok(())
    }
    async fn other(cx: WorkflowContext, _: bool) -> Result<(), WorkflowError> {
        Ok(cx.sleep(std::time::Duration::from_secs(1)).await?)
    }
    let code = Implementation::new(FLOW, flow);
    let life = [completed(1), signal(true)];
    let (fresh, _) = run_through(&mut Turn::default(), &code, false, 7, &life);
    let started = Started::new(
        "flow",
        InstanceId::new("x").unwrap(),
        Payload::encode(&false).unwrap(),
    );
    let (run, limits) = (
        RunId::new(Partition::of(b"x"), Timestamp::EPOCH, 1),
        Limits::default(),
    );
    let mut turn = Turn::default();
    drop(Instance::start_in(
        &mut turn,
        Some(&code),
        run,
        started,
        limits,
        moment(0),
    ));
    let history: Vec<_> = turn
        .events
        .drain(..)
        .map(|event| (event, Timestamp::EPOCH))
        .collect();
    for (wrong, expected) in [
        (Implementation::new(FLOW, changed), (1, false)),
        (Implementation::new(FLOW, other), (0, true)),
    ] {
        let replayed = Instance::replay(Some(&wrong), run, history.clone(), limits).unwrap();
        let found = (replayed.changed_values(), replayed.park_reason().is_some());
        assert_eq!(found, expected);
        let mut lending = Turn::default();
        lending.recycle(Box::new(replayed));
        assert_eq!(lending.spare.instances_len(), 1);
        let (recycled, instance) = run_through(&mut lending, &code, false, 7, &life);
        assert_eq!((recycled, instance.changed_values()), (fresh.clone(), 0));
    }
}

/// What code has kept of its run.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

enum Kept {
    Context(WorkflowContext),
    Waker(Waker),
}

#[test]
fn memory_that_somebody_still_holds_is_not_lent() {
    /// Keeps its context, or a waker of its own.
    async fn leaking(cx: WorkflowContext, keeps_waker: bool) -> Result<(), WorkflowError> {
        let waker = poll_fn(|task| Poll::Ready(task.waker().clone())).await;
        let kept = if keeps_waker {
            Kept::Waker(waker)
        } else {
            Kept::Context(cx)
        };
        KEPT.lock().unwrap().push(kept);
        Ok(())
    }
    let code = Implementation::new(FLOW, leaking);
    for keeps_waker in [false, true] {
        let mut turn = Turn::default();
        let (_, ended) = run_through(&mut turn, &code, keeps_waker, 1, &[]);
        turn.recycle(ended);
        assert_eq!(turn.spare.instances_len(), 0, "the code has kept a part of it");
        let kept = KEPT.lock().unwrap().pop();
        match kept.expect("the code ran") {
            Kept::Context(cx) => drop(cx),
            Kept::Waker(waker) => waker.wake(),
        }
        let (record, ended) = run_through(&mut turn, &code, keeps_waker, 2, &[]);
        assert!(record.contains("Completed"), "{record}");
        KEPT.lock().unwrap().clear();
        turn.recycle(ended);
        assert_eq!(turn.spare.instances_len(), 1, "nobody holds any of it any more");
    }
}
