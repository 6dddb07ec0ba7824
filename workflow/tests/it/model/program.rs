//! Programs: trees of operations, in stages, and what they are as workflow code.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun_workflow::{
    Activity, ActivityError, CallError, ChildError, ContinueError, DurableTopic, Either, Implementation,
    PromiseError, PublishOutcome, PublishStepError, ReceiveRecordError, Retry, Signal, SignalInstanceError,
    State, Topic, Update, Workflow, WorkflowContext, WorkflowError,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

pub(super) const STEP: Activity<u64, u64> = Activity::named("step");
pub(super) const SIGNALS: [Signal<u64>; 2] = [Signal::named("left"), Signal::named("right")];
pub(super) const CHILD: Workflow<u64, u64> = Workflow::named("child");
pub(super) const TOPIC: Topic<u64> = Topic::named("topic");
pub(super) const RECORDS: DurableTopic<u64> = Topic::named("records").durable();
pub(super) const ADD: Update<u64, u64, u64> = Update::named("add");
pub(super) const FLOW: Workflow<Flow, u64> = Workflow::named("flow");

pub(super) const FAILED: u64 = 555;
pub(super) const CANCELLED: u64 = 999;
/// What a publish that has found room is worth, and a condition that is met.
pub(super) const PUBLISHED: u64 = 2;
pub(super) const MET: u64 = 3;
/// What one is worth of which nobody knows.
pub(super) const UNKNOWN: u64 = 4;
/// What a signal to another instance is worth that is recorded.
pub(super) const SENT: u64 = 5;
/// Every timer is shorter.
pub(super) const SLEEP_MAX: Duration = Duration::from_secs(100);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Program {
    Call(u64),
    Sleep(u64),
    Child(u64),
    Publish(u64),
    /// Waits for a record of a durable topic, with one of two keys.
    Receive(bool),
    SignalInstance(u64),
    Promise,
    Signal(usize),
    Record(u64),
    /// A step inside the turn. Multiples of five fail.
    Local(u64),
    /// Adds to the state.
    Change(u64),
    /// Waits until the state is this large.
    Until(u64),
    Sequence(Vec<Program>),
    Join(Vec<Program>),
    Race(Box<Program>, Box<Program>),
    Shield(Box<Program>),
    /// A join set of leaves: some results are taken, then the rest is finished or dropped.
    Set {
        leaves: Vec<Program>,
        taken: usize,
        is_finished: bool,
    },
    /// The first of many leaves.
    First(Vec<Program>),
    /// A scope around the first, cancelled when the second has ended.
    Scope(Box<Program>, Box<Program>),
    /// Steps, each with what undoes it; then all is undone.
    Saga(Vec<(Program, Program)>),
}

/// A program, and what comes behind it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Stage {
    pub(super) program: Program,
    pub(super) then: Then,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Then {
    GoOn,
    /// The code begins again, in the next stage; a promise that is open is given up.
    Checkpoint,
    /// Another run goes on, in the next stage.
    Continue,
}

/// The stages that are left, the sum so far, the state, and the latest time that was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Flow {
    pub(super) stages: Vec<Stage>,
    pub(super) sum: u64,
    pub(super) state: u64,
    pub(super) seen: u64,
}

/// What all branches of a run share.
#[derive(Clone)]
struct Shared {
    state: State<u64>,
    seen: Arc<AtomicU64>,
}

impl Shared {
    /// Looks at the time, which must not be earlier than anybody has seen it; the latest, in microseconds.
    fn look(&self, cx: &WorkflowContext) -> u64 {
        let now = cx.now().as_micros();
        let seen = self.seen.fetch_max(now, Ordering::Relaxed);
        assert!(now >= seen, "{now} behind {seen}");
        now
    }
}

pub(super) fn together(sum: u64, value: u64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(value)
}

/// The name of a recorded value or a local step.
pub(super) fn name_of(value: u64) -> Option<&'static str> {
    [None, Some("price"), Some("postage")][(value % 3) as usize]
}

async fn flow(cx: WorkflowContext, flow: Flow) -> Result<u64, WorkflowError> {
    let (mut at, mut sum, state, seen) = match cx.checkpointed::<(usize, u64, u64, u64)>() {
        Some(restored) => restored?,
        None => (0, flow.sum, flow.state, flow.seen),
    };
    let place = Shared {
        state: cx.state(state),
        seen: Arc::new(AtomicU64::new(seen)),
    };
    place.look(&cx);
    while let Some(stage) = flow.stages.get(at) {
        sum = together(sum, run(cx.clone(), place.clone(), stage.program.clone()).await);
        at += 1;
        let state = place.state.read(|state| *state);
        let seen = place.look(&cx);
        let ended: Result<u64, ContinueError> = match stage.then {
            Then::GoOn => continue,
            Then::Checkpoint => {
                let _open = cx.promise::<u64>();
                cx.checkpoint(&(at, sum, state, seen)).await
            }
            Then::Continue => {
                let stages = flow.stages[at..].to_vec();
                let next = Flow {
                    stages,
                    sum,
                    state,
                    seen,
                };
                cx.continue_as_new(FLOW, next).await
            }
        };
        assert!(matches!(ended, Err(ContinueError::Cancelled(_))), "{ended:?}");
    }
    Ok(sum)
}

/// The program as workflow code.
fn run(cx: WorkflowContext, place: Shared, program: Program) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    let branch = |cx: &WorkflowContext, place: &Shared, part| run(cx.clone(), place.clone(), part);
    Box::pin(async move {
        place.look(&cx);
        let value = match program {
            Program::Call(value) => {
                match cx.call(STEP, value).retry(Retry::exponential().attempts(2)).await {
                    Ok(value) => value,
                    Err(CallError::Failed(_)) => FAILED,
                    Err(CallError::Cancelled(_)) => CANCELLED,
                    Err(other) => panic!("{other}"),
                }
            }
            Program::Sleep(seconds) => match cx.sleep(Duration::from_secs(seconds)).await {
                Ok(()) => 1,
                Err(_) => CANCELLED,
            },
            Program::Child(value) => match cx.child(CHILD, format!("child-{value}"), value).await {
                Ok(value) => value,
                Err(ChildError::NotStarted { .. }) => FAILED,
                Err(ChildError::Cancelled(_)) => CANCELLED,
                Err(other) => panic!("{other}"),
            },
            Program::Publish(value) => match cx.publish(TOPIC, value).await {
                Ok(PublishOutcome::Taken) => PUBLISHED,
                Ok(PublishOutcome::Unknown) => UNKNOWN,
                Err(PublishStepError::Refused(_)) => FAILED,
                Err(PublishStepError::Cancelled(_)) => CANCELLED,
                Err(other) => panic!("{other}"),
            },
            Program::Receive(is_left) => {
                let key = if is_left { "left" } else { "right" };
                match cx.receive_from(RECORDS).key(key).await {
                    Ok(record) => record.into_payload(),
                    Err(ReceiveRecordError::Payload(_)) => FAILED,
                    Err(ReceiveRecordError::Cancelled(_)) => CANCELLED,
                    Err(other) => panic!("{other}"),
                }
            }
            Program::SignalInstance(value) => {
                let id = format!("child-{value}");
                match cx.signal_instance(CHILD, id, SIGNALS[0], value).await {
                    Ok(()) => SENT,
                    Err(SignalInstanceError::Finished) => FAILED,
                    Err(SignalInstanceError::Cancelled(_)) => CANCELLED,
                    Err(other) => panic!("{other}"),
                }
            }
            Program::Promise => match cx.promise().await {
                Ok(value) => value,
                Err(PromiseError::Failed(_)) => FAILED,
                Err(PromiseError::Cancelled(_)) => CANCELLED,
                Err(other) => panic!("{other}"),
            },
            Program::Signal(index) => cx.receive(SIGNALS[index]).await.unwrap_or(CANCELLED),
            Program::Record(value) => {
                let record = cx.record(|| value);
                let recorded = match name_of(value) {
                    Some(name) => record.named(name).await,
                    None => record.await,
                };
                recorded.expect("a number can be encoded")
            }
            Program::Local(value) => {
                let step = move || match value % 5 {
                    0 => Err(ActivityError::fatal("a multiple of five")),
                    _ => Ok(value),
                };
                let local = cx.local(step);
                let done = match name_of(value) {
                    Some(name) => local.named(name).await,
                    None => local.await,
                };
                done.unwrap_or(FAILED)
            }
            Program::Change(value) => place.state.change(|state| {
                *state += value;
                *state
            }),
            Program::Until(value) => match place.state.until(move |state| *state >= value).await {
                Ok(()) => MET,
                Err(_) => CANCELLED,
            },
            Program::Sequence(parts) => {
                let mut sum = 7;
                for part in parts {
                    sum = together(sum, branch(&cx, &place, part).await);
                }
                sum
            }
            Program::Join(parts) => {
                let parts = parts.into_iter().map(|part| branch(&cx, &place, part));
                cx.join_all(parts).await.into_iter().fold(8, together)
            }
            Program::Race(left, right) => {
                match cx
                    .race(branch(&cx, &place, *left), branch(&cx, &place, *right))
                    .await
                {
                    Either::Left(value) => together(9, value),
                    Either::Right(value) => together(10, value),
                }
            }
            Program::Shield(inner) => branch(&cx.shielded(), &place, *inner).await,
            Program::Set {
                leaves,
                taken,
                is_finished,
            } => {
                let mut set = cx.join_set();
                for leaf in leaves {
                    set.spawn(branch(&cx, &place, leaf));
                }
                let mut sum = 11;
                for _ in 0..taken {
                    let Some(value) = set.next().await else { break };
                    sum = together(sum, value);
                }
                if is_finished {
                    sum = set.finish().await.into_iter().fold(sum, together);
                }
                sum
            }
            Program::First(leaves) => {
                let leaves = leaves.into_iter().map(|leaf| branch(&cx, &place, leaf));
                let first = cx.race_all(leaves).await;
                first.map_or(11, |(_, value)| together(11, value))
            }
            Program::Scope(inner, stop) => {
                let scope = cx.scope();
                let stopped = async {
                    let value = branch(&cx, &place, *stop).await;
                    scope.cancel();
                    value
                };
                let inner = branch(scope.context(), &place, *inner);
                let (value, stopped) = cx.join(inner, stopped).await;
                together(value, stopped)
            }
            Program::Saga(steps) => {
                let mut saga = cx.saga();
                let (mut sum, undone) = (12, Arc::new(Mutex::new(13)));
                for (step, undo) in steps {
                    sum = together(sum, branch(&cx, &place, step).await);
                    let (place, undone) = (place.clone(), Arc::clone(&undone));
                    saga.push(async move |cx| {
                        let value = run(cx, place, undo).await;
                        let mut undone = undone.lock().unwrap();
                        *undone = together(*undone, value);
                        Ok(())
                    });
                }
                saga.compensate().await.expect("no compensation fails");
                let undone = *undone.lock().unwrap();
                together(sum, undone)
            }
        };
        place.look(&cx);
        value
    })
}

pub(super) fn implementation() -> Implementation {
    FLOW.update(ADD)
        .change(|state, value| {
            *state += value;
            *state
        })
        .bind(flow)
}

/// What may be in a join set, where the order in which branches are woken counts: the model does not know
/// whether a change or a cancel of the same turn came first.
fn leaves() -> impl Strategy<Value = Program> + Clone {
    prop_oneof![
        3 => (0..100_u64).prop_map(Program::Call),
        2 => (0..100_u64).prop_map(Program::Sleep),
        2 => (0..100_u64).prop_map(Program::Child),
        2 => (0..100_u64).prop_map(Program::Publish),
        2 => any::<bool>().prop_map(Program::Receive),
        1 => (0..100_u64).prop_map(Program::SignalInstance),
        2 => Just(Program::Promise),
        2 => (0..2_usize).prop_map(Program::Signal),
        1 => (0..100_u64).prop_map(Program::Record),
        1 => (0..100_u64).prop_map(Program::Local),
        1 => (0..20_u64).prop_map(Program::Change),
    ]
}

fn programs() -> impl Strategy<Value = Program> {
    let leaf = prop_oneof![16 => leaves(), 1 => (0..60_u64).prop_map(Program::Until)];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            2 => vec(inner.clone(), 0..4).prop_map(Program::Sequence),
            2 => vec(inner.clone(), 0..4).prop_map(Program::Join),
            3 => (inner.clone(), inner.clone())
                .prop_map(|(left, right)| Program::Race(Box::new(left), Box::new(right))),
            1 => inner.clone().prop_map(|inner| Program::Shield(Box::new(inner))),
            2 => (vec(leaves(), 0..5), 0..4_usize, any::<bool>()).prop_map(|(leaves, taken, is_finished)| {
                Program::Set {
                    leaves,
                    taken,
                    is_finished,
                }
            }),
            1 => vec(leaves(), 0..5).prop_map(Program::First),
            2 => (inner.clone(), inner.clone())
                .prop_map(|(inner, stop)| Program::Scope(Box::new(inner), Box::new(stop))),
            1 => vec((inner.clone(), inner), 0..3).prop_map(Program::Saga),
        ]
    })
}

pub(super) fn flows() -> impl Strategy<Value = Flow> {
    let then = prop_oneof![
        2 => Just(Then::GoOn),
        2 => Just(Then::Checkpoint),
        1 => Just(Then::Continue),
    ];
    let stage = (programs(), then).prop_map(|(program, then)| Stage { program, then });
    vec(stage, 1..4).prop_map(|stages| Flow {
        stages,
        sum: 6,
        state: 0,
        seen: 0,
    })
}
