//! Programs: trees of operations in stages, what they are as workflow code, and what they are worth.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::workflow::{Either, ParentClose, State};
use millrun::{
    Activity, ActivityError, Retry, Signal, Topic, Update, Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

pub(super) const STEP: Activity<u64, u64> = Activity::named("step");
pub(super) const SEND: Activity<Errand, ()> = Activity::named("send");
pub(super) const GO: Signal<u64> = Signal::named("go");
pub(super) const ADD: Update<u64, u64, u64> = Update::named("add");
pub(super) const SAID: Topic<String> = Topic::named("said");
pub(super) const FLOW: Workflow<Flow, u64> = Workflow::named("flow");
/// The same code, as which a flow may go on.
pub(super) const ONWARD: Workflow<Flow, u64> = Workflow::named("onward");

/// What the world outside shall do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Errand {
    Signal(String),
    Update(String),
    Keep(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Program {
    Step(u64),
    Sleep(u64),
    Local(u64),
    Record(u64),
    Signal,
    Update,
    Promise,
    Publish,
    Child(Vec<Stage>),
    Sequence(Vec<Program>),
    Join(Vec<Program>),
    Race(Box<Program>, Box<Program>),
    Shield(Box<Program>),
    /// A join set that is finished.
    Gather(Vec<Program>),
    /// A join set that is dropped when it has given one value.
    First(Vec<Program>),
    /// A scope that is cancelled when a step beside it has ended.
    Scope(Box<Program>),
    /// Steps of a saga, all of which are undone in the end.
    Saga(Vec<Program>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Stage {
    program: Program,
    then: Then,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Then {
    GoOn,
    Checkpoint,
    Continue,
}

/// A run's part of a program. `id` names the instance, `at` the stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Flow {
    id: String,
    stages: Vec<Stage>,
    at: usize,
    sum: u64,
    state: u64,
}

impl Flow {
    pub(super) fn new(id: &str, stages: &[Stage]) -> Self {
        Self {
            id: id.into(),
            stages: stages.to_vec(),
            at: 0,
            sum: 6,
            state: 0,
        }
    }
}

fn together(sum: u64, value: u64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(value)
}

/// What the stages are worth, without any engine.
pub(super) fn worth_of(stages: &[Stage]) -> u64 {
    let values = stages.iter().map(|stage| worth(&stage.program));
    values.fold(6, together)
}

fn worth(program: &Program) -> u64 {
    match program {
        Program::Step(value) => value + 1,
        Program::Sleep(_) => 1,
        Program::Local(value) => value * 2,
        Program::Record(value) => *value,
        Program::Signal => 4,
        Program::Update => 3,
        Program::Promise => 7,
        Program::Publish => 2,
        Program::Child(stages) => worth_of(stages),
        Program::Sequence(parts) => parts.iter().map(worth).fold(7, together),
        Program::Join(parts) => parts.iter().map(worth).fold(8, together),
        Program::Race(..) => 5,
        Program::Shield(inner) => worth(inner),
        Program::Gather(parts) => gathered(parts.iter().map(worth).collect()),
        Program::First(_) => 10,
        Program::Scope(_) => 11,
        Program::Saga(parts) => {
            let done = parts.iter().map(worth).fold(12, together);
            let undone = (0..parts.len()).rev().map(undone_as);
            undone.fold(done, together)
        }
    }
}

/// In whatever order they came.
fn gathered(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.into_iter().fold(9, together)
}

/// What it is worth to have undone the step of this number.
fn undone_as(number: usize) -> u64 {
    number as u64 + 100
}

pub(super) async fn flow(cx: WorkflowContext, flow: Flow) -> Result<u64, WorkflowError> {
    let (mut at, mut sum, state) = match cx.checkpointed::<(usize, u64, u64)>() {
        Some(restored) => restored?,
        None => (flow.at, flow.sum, flow.state),
    };
    let state = cx.state(state);
    while let Some(stage) = flow.stages.get(at) {
        let place = format!("{}-{at}", flow.id);
        let program = stage.program.clone();
        sum = together(
            sum,
            run(cx.clone(), state.clone(), flow.id.clone(), place, program).await?,
        );
        at += 1;
        let now = state.read(|state| *state);
        match stage.then {
            Then::GoOn => {}
            Then::Checkpoint => return Ok(cx.checkpoint(&(at, sum, now)).await?),
            Then::Continue => {
                let state = now;
                let next = Flow {
                    at,
                    sum,
                    state,
                    ..flow
                };
                let workflow = if at.is_multiple_of(2) { FLOW } else { ONWARD };
                return Ok(cx.continue_as_new(workflow, next).await?);
            }
        }
    }
    Ok(sum)
}

type Running = Pin<Box<dyn Future<Output = Result<u64, WorkflowError>> + Send>>;

/// The program as code. `id` is the instance's, `place` that of the program within all others.
fn run(cx: WorkflowContext, state: State<u64>, id: String, place: String, program: Program) -> Running {
    let retry = Retry::exponential()
        .first_pause(Duration::from_millis(10))
        .attempts(1_000);
    let (of, within) = (id.clone(), place.clone());
    let part = move |cx: &WorkflowContext, state: &State<u64>, number: usize, program: &Program| {
        let place = format!("{within}.{number}");
        run(cx.clone(), state.clone(), of.clone(), place, program.clone())
    };
    Box::pin(async move {
        Ok(match program {
            Program::Step(value) => cx.call(STEP, value).retry(retry).await?,
            Program::Sleep(seconds) => {
                cx.sleep(Duration::from_secs(seconds)).await?;
                1
            }
            Program::Local(value) => cx.local(|| Ok::<_, ActivityError>(value * 2)).await?,
            Program::Record(value) => cx.record(|| value).await?,
            Program::Signal => {
                cx.call(SEND, Errand::Signal(id)).retry(retry).await?;
                cx.receive(GO).await?
            }
            Program::Update => {
                cx.call(SEND, Errand::Update(id)).retry(retry).await?;
                state.until(|state| *state >= 1).await?;
                3
            }
            Program::Promise => {
                let promise = cx.promise::<u64>();
                let errand = Errand::Keep(promise.token().to_string());
                cx.call(SEND, errand).retry(retry).await?;
                promise.await?
            }
            Program::Publish => {
                cx.publish(SAID, place).await?;
                2
            }
            Program::Child(stages) => {
                let child = cx.child(FLOW, place.clone(), Flow::new(&place, &stages));
                child.on_close(ParentClose::Terminate).await?
            }
            Program::Sequence(parts) => {
                let mut sum = 7;
                for (number, program) in parts.iter().enumerate() {
                    sum = together(sum, part(&cx, &state, number, program).await?);
                }
                sum
            }
            Program::Join(parts) => {
                let parts = parts.iter().enumerate();
                let parts = parts.map(|(number, program)| part(&cx, &state, number, program));
                let mut sum = 8;
                for value in cx.join_all(parts).await {
                    sum = together(sum, value?);
                }
                sum
            }
            Program::Race(left, right) => {
                let (left, right) = (part(&cx, &state, 0, &left), part(&cx, &state, 1, &right));
                match cx.race(left, right).await {
                    Either::Left(value) | Either::Right(value) => value.map(|_| 5)?,
                }
            }
            Program::Shield(inner) => part(&cx.shielded(), &state, 0, &inner).await?,
            Program::Gather(parts) => {
                let mut set = cx.join_set();
                for (number, program) in parts.iter().enumerate() {
                    set.spawn(part(&cx, &state, number, program));
                }
                let values: Result<Vec<u64>, _> = set.finish().await.into_iter().collect();
                gathered(values?)
            }
            Program::First(parts) => {
                let mut set = cx.join_set();
                for (number, program) in parts.iter().enumerate() {
                    set.spawn(part(&cx, &state, number, program));
                }
                set.next().await.transpose()?.map_or(10, |_| 10)
            }
            Program::Scope(inner) => {
                let scope = cx.scope();
                let inner = part(scope.context(), &state, 0, &inner);
                let stop = async {
                    let stop = cx.call(STEP, 1).retry(retry).await;
                    scope.cancel();
                    stop
                };
                let (_cancelled_or_not, stop) = cx.join(inner, stop).await;
                stop.map(|_| 11)?
            }
            Program::Saga(parts) => {
                let mut saga = cx.saga();
                let undone = Arc::new(Mutex::new(Vec::new()));
                let mut sum = 12;
                for (number, program) in parts.iter().enumerate() {
                    match part(&cx, &state, number, program).await {
                        Ok(value) => sum = together(sum, value),
                        Err(error) => {
                            saga.compensate().await?;
                            return Err(error);
                        }
                    }
                    let undone = Arc::clone(&undone);
                    saga.push(async move |cx| {
                        let value = cx.call(STEP, undone_as(number) - 1).retry(retry).await?;
                        undone.lock().unwrap().push(value);
                        Ok(())
                    });
                }
                saga.compensate().await?;
                let undone = undone.lock().unwrap().clone();
                undone.into_iter().fold(sum, together)
            }
        })
    })
}

/// SplitMix64, to draw programs with.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn program(&mut self, depth: u64) -> Program {
        let parts = |dice: &mut Self| {
            let len = dice.below(4);
            (0..len).map(|_| dice.program(depth - 1)).collect()
        };
        match self.below(if depth == 0 { 8 } else { 19 }) {
            0 => Program::Step(self.below(100)),
            1 => Program::Sleep(self.below(100)),
            2 => Program::Local(self.below(100)),
            3 => Program::Record(self.below(100)),
            4 => Program::Signal,
            5 => Program::Update,
            6 => Program::Promise,
            7 => Program::Publish,
            8 => Program::Child(self.stages(depth - 1)),
            9 | 10 => Program::Sequence(parts(self)),
            11 => Program::Join(parts(self)),
            12 => {
                let (left, right) = (self.program(depth - 1), self.program(depth - 1));
                Program::Race(Box::new(left), Box::new(right))
            }
            13 => Program::Shield(Box::new(self.program(depth - 1))),
            14 => Program::Gather(parts(self)),
            15 => Program::First(parts(self)),
            16 => Program::Scope(Box::new(self.program(depth - 1))),
            _ => Program::Saga(parts(self)),
        }
    }

    pub(super) fn stages(&mut self, depth: u64) -> Vec<Stage> {
        let len = 1 + self.below(3);
        (0..len)
            .map(|_| Stage {
                program: self.program(depth),
                then: match self.below(3) {
                    0 => Then::GoOn,
                    1 => Then::Checkpoint,
                    _ => Then::Continue,
                },
            })
            .collect()
    }
}
