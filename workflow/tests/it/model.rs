//! Random programs under random fates, against a model that knows nothing of futures.
//!
//! A program is a tree of calls, timers and signals under sequences, joins, races and shields.
//! The engine runs it as `async` code. The model walks the tree from the top after every input,
//! without wakers, histories or replays. A fate is a list of choices: which attempt succeeds or
//! fails, which signal comes when, when the run is unloaded, crashes, loses its code for a while
//! or is asked to cancel. Both must write the same history and end with the same value.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::time::Duration;

use millrun_workflow::{
    Activity, CallError, Either, Event, Implementation, Input, Retry, Signal, Workflow, WorkflowContext,
    WorkflowError,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::world::World;

const STEP: Activity<u64, u64> = Activity::named("step");
const SIGNALS: [Signal<u64>; 2] = [Signal::named("left"), Signal::named("right")];
const FLOW: Workflow<Program, u64> = Workflow::named("flow");
const FAILED: u64 = 555;
const CANCELLED: u64 = 999;

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Program {
    Call(u64),
    Sleep(u64),
    Signal(usize),
    Record(u64),
    Sequence(Vec<Program>),
    Join(Vec<Program>),
    Race(Box<Program>, Box<Program>),
    Shield(Box<Program>),
}

fn together(sum: u64, value: u64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(value)
}

/// The program as workflow code.
fn run(cx: WorkflowContext, program: Program) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        match program {
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
            Program::Signal(index) => cx.signal(SIGNALS[index]).await.unwrap_or(CANCELLED),
            Program::Record(value) => cx.record(|| value).await.expect("a number can be encoded"),
            Program::Sequence(parts) => {
                let mut sum = 7;
                for part in parts {
                    sum = together(sum, run(cx.clone(), part).await);
                }
                sum
            }
            Program::Join(parts) => {
                let values = cx
                    .join_all(parts.into_iter().map(|part| run(cx.clone(), part)))
                    .await;
                values.into_iter().fold(8, together)
            }
            Program::Race(left, right) => {
                match cx.race(run(cx.clone(), *left), run(cx.clone(), *right)).await {
                    Either::Left(value) => together(9, value),
                    Either::Right(value) => together(10, value),
                }
            }
            Program::Shield(inner) => run(cx.shielded(), *inner).await,
        }
    })
}

/// A program being walked.
#[derive(Debug)]
enum Node {
    Leaf(Program, Option<u32>),
    Sequence(Vec<Node>, usize, u64),
    Join(Vec<(Node, Option<u64>)>),
    Race(Box<Node>, Box<Node>),
    Shield(Box<Node>),
}

impl Node {
    fn of(program: Program) -> Self {
        match program {
            Program::Call(_) | Program::Sleep(_) | Program::Signal(_) | Program::Record(_) => {
                Self::Leaf(program, None)
            }
            Program::Sequence(parts) => Self::Sequence(parts.into_iter().map(Self::of).collect(), 0, 7),
            Program::Join(parts) => {
                Self::Join(parts.into_iter().map(|part| (Self::of(part), None)).collect())
            }
            Program::Race(left, right) => Self::Race(Box::new(Self::of(*left)), Box::new(Self::of(*right))),
            Program::Shield(inner) => Self::Shield(Box::new(Self::of(*inner))),
        }
    }
}

/// What happened to the run.
#[derive(Clone, Debug)]
enum Happening {
    Ended(u32, u64),
    Signal(usize, u64),
    Cancel,
}

#[derive(Debug)]
struct Model {
    root: Node,
    issued: u32,
    ended: BTreeMap<u32, u64>,
    signals: [VecDeque<u64>; 2],
    is_cancelled: bool,
    lines: Vec<String>,
    deferred: Option<Vec<Happening>>,
    value: Option<u64>,
}

impl Model {
    fn new(program: Program) -> Self {
        let mut model = Self {
            root: Node::of(program),
            issued: 0,
            ended: BTreeMap::new(),
            signals: Default::default(),
            is_cancelled: false,
            lines: Vec::new(),
            deferred: None,
            value: None,
        };
        model.walk_from_the_top();
        model
    }

    fn happen(&mut self, happening: Happening) {
        let line = match &happening {
            Happening::Ended(operation, value) => format!("ended {operation} {value}"),
            Happening::Signal(index, value) => format!("signal {index} {value}"),
            Happening::Cancel => "cancel requested".into(),
        };
        self.lines.push(line);
        match &mut self.deferred {
            Some(deferred) => deferred.push(happening),
            None => self.take_up(happening),
        }
    }

    fn take_up(&mut self, happening: Happening) {
        match happening {
            Happening::Ended(operation, value) => {
                self.ended.insert(operation, value);
            }
            Happening::Signal(index, value) => self.signals[index].push_back(value),
            Happening::Cancel => self.is_cancelled = true,
        }
        self.walk_from_the_top();
    }

    fn park(&mut self) {
        self.deferred = Some(Vec::new());
    }

    fn resume(&mut self) {
        self.lines.push("resumed".into());
        for happening in self.deferred.take().unwrap_or_default() {
            if self.value.is_none() {
                self.take_up(happening);
            }
        }
    }

    fn walk_from_the_top(&mut self) {
        let mut root = std::mem::replace(&mut self.root, Node::Join(Vec::new()));
        self.value = self.walk(&mut root, false);
        self.root = root;
        if let Some(value) = self.value {
            self.lines.push(format!("completed {value}"));
        }
    }

    fn walk(&mut self, node: &mut Node, is_shielded: bool) -> Option<u64> {
        let is_cancelled = self.is_cancelled && !is_shielded;
        match node {
            Node::Leaf(Program::Signal(index), _) => self.signals[*index]
                .pop_front()
                .or(is_cancelled.then_some(CANCELLED)),
            Node::Leaf(Program::Record(value), _) => {
                self.lines.push(format!("recorded {value}"));
                Some(*value)
            }
            Node::Leaf(program, issued @ None) => {
                if is_cancelled {
                    return Some(CANCELLED);
                }
                self.issued += 1;
                *issued = Some(self.issued);
                let what = if matches!(program, Program::Call(_)) {
                    "call"
                } else {
                    "timer"
                };
                self.lines.push(format!("{what} {}", self.issued));
                None
            }
            Node::Leaf(_, Some(operation)) => {
                let ended = self.ended.get(operation).copied();
                if ended.is_none() && is_cancelled {
                    self.abandon(node);
                    return Some(CANCELLED);
                }
                ended
            }
            Node::Sequence(parts, at, sum) => {
                while let Some(part) = parts.get_mut(*at) {
                    *sum = together(*sum, self.walk(part, is_shielded)?);
                    *at += 1;
                }
                Some(*sum)
            }
            Node::Join(parts) => {
                for (part, value) in parts.iter_mut().filter(|(_, value)| value.is_none()) {
                    *value = self.walk(part, is_shielded);
                }
                parts
                    .iter()
                    .try_fold(8, |sum, (_, value)| Some(together(sum, (*value)?)))
            }
            Node::Race(left, right) => {
                if let Some(value) = self.walk(left, is_shielded) {
                    self.abandon(right);
                    return Some(together(9, value));
                }
                let value = self.walk(right, is_shielded)?;
                self.abandon(left);
                Some(together(10, value))
            }
            Node::Shield(inner) => self.walk(inner, true),
        }
    }

    /// Nobody waits for this part of the tree any more.
    fn abandon(&mut self, node: &Node) {
        match node {
            Node::Leaf(_, Some(operation)) => {
                // One whose end the code has been shown, looked at or not, is no longer there to cancel.
                if !self.ended.contains_key(operation) {
                    self.lines.push(format!("cancelled {operation}"));
                }
            }
            Node::Leaf(_, None) => {}
            Node::Sequence(parts, at, _) => parts.get(*at).into_iter().for_each(|part| self.abandon(part)),
            Node::Join(parts) => {
                let left = parts.iter().filter(|(_, value)| value.is_none());
                left.for_each(|(part, _)| self.abandon(part));
            }
            // Rust drops in the reverse order of declaration.
            Node::Race(left, right) => {
                self.abandon(right);
                self.abandon(left);
            }
            Node::Shield(inner) => self.abandon(inner),
        }
    }
}

/// The engine's history in the model's words.
fn lines(world: &World) -> Vec<String> {
    let in_words = |event: &Event| {
        Some(match event {
            Event::ActivityScheduled(scheduled) => format!("call {}", scheduled.operation),
            Event::TimerStarted { operation, .. } => format!("timer {operation}"),
            Event::ActivityCompleted {
                operation, result, ..
            } => {
                format!("ended {operation} {}", result.decode::<u64>().unwrap())
            }
            Event::ActivityFailed { operation, .. } => format!("ended {operation} {FAILED}"),
            Event::TimerFired { operation } => format!("ended {operation} 1"),
            Event::SignalReceived { name, value } => {
                let index = usize::from(name == SIGNALS[1].name());
                format!("signal {index} {}", value.decode::<u64>().unwrap())
            }
            Event::OperationCancelled { operation } => format!("cancelled {operation}"),
            Event::CancelRequested { .. } => "cancel requested".into(),
            Event::Completed { result } => format!("completed {}", result.decode::<u64>().unwrap()),
            Event::ValueRecorded { value: Ok(value) } => {
                format!("recorded {}", value.decode::<u64>().unwrap())
            }
            Event::Resumed => "resumed".into(),
            Event::AttemptFailed { .. } | Event::Parked { .. } | Event::Started(_) => return None,
            other => panic!("{} is not expected", other.label()),
        })
    };
    world
        .history()
        .iter()
        .filter_map(|(event, _)| in_words(event))
        .collect()
}

fn implementation() -> Implementation {
    Implementation::new(FLOW, |cx: WorkflowContext, program: Program| async move {
        Ok::<_, WorkflowError>(run(cx, program).await)
    })
}

/// One choice: what happens next.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// The attempt at this place among those under way gives this value, or fails.
    Report(usize, Option<u64>),
    Fire,
    Signal(usize, u64),
    Cancel,
    Reload,
    Crash,
    /// The code is not at hand; or is, again.
    Code(bool),
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    let choice = prop_oneof![
        8 => (0..8_usize, 0..100_u64).prop_map(|(at, value)| Choice::Report(at, Some(value))),
        3 => (0..8_usize).prop_map(|at| Choice::Report(at, None)),
        5 => Just(Choice::Fire),
        4 => (0..2_usize, 0..100_u64).prop_map(|(index, value)| Choice::Signal(index, value)),
        1 => Just(Choice::Cancel),
        2 => Just(Choice::Reload),
        1 => Just(Choice::Crash),
        1 => any::<bool>().prop_map(Choice::Code),
    ];
    vec(choice, 0..60)
}

fn programs() -> impl Strategy<Value = Program> {
    let leaf = prop_oneof![
        3 => (0..100_u64).prop_map(Program::Call),
        2 => (0..100_u64).prop_map(Program::Sleep),
        2 => (0..2_usize).prop_map(Program::Signal),
        1 => (0..100_u64).prop_map(Program::Record),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            2 => vec(inner.clone(), 0..4).prop_map(Program::Sequence),
            2 => vec(inner.clone(), 0..4).prop_map(Program::Join),
            3 => (inner.clone(), inner.clone())
                .prop_map(|(left, right)| Program::Race(Box::new(left), Box::new(right))),
            1 => inner.prop_map(|inner| Program::Shield(Box::new(inner))),
        ]
    })
}

fn check(program: &Program, choices: &[Choice]) {
    let mut world = World::start(implementation(), program);
    let mut model = Model::new(program.clone());
    let mut failures = BTreeMap::<u32, u32>::new();
    for choice in choices {
        if model.value.is_some() {
            break;
        }
        match *choice {
            Choice::Report(at, value) if !world.activities.is_empty() => {
                let at = at % world.activities.len();
                let number = world.activities.keys().nth(at).unwrap().get();
                if let Some(value) = value {
                    world.complete(number, &value);
                    model.happen(Happening::Ended(number, value));
                } else {
                    world.fail(number, "no", true);
                    let failures = failures.entry(number).or_default();
                    *failures += 1;
                    if *failures == 2 {
                        model.happen(Happening::Ended(number, FAILED));
                    }
                }
            }
            Choice::Fire => {
                if let Some((&operation, &deadline)) = world
                    .timers
                    .iter()
                    .min_by_key(|(operation, deadline)| (**deadline, **operation))
                {
                    let is_timer = !failures.contains_key(&operation.get());
                    world.timers.remove(&operation);
                    world.moment.now = world.moment.now.max(deadline);
                    world.apply(Input::TimerFired { operation }).unwrap();
                    if is_timer {
                        model.happen(Happening::Ended(operation.get(), 1));
                    }
                }
            }
            Choice::Signal(index, value) => {
                world.signal(SIGNALS[index], &value);
                model.happen(Happening::Signal(index, value));
            }
            Choice::Cancel if !world.instance.ledger().is_cancel_requested() => {
                world.cancel();
                model.happen(Happening::Cancel);
            }
            Choice::Reload => world.reload(),
            Choice::Crash => world.reopen(),
            Choice::Code(false) if model.deferred.is_none() => {
                world.reload_with(None);
                // It says so with the first input that it cannot take up.
                world.signal(SIGNALS[0], &0);
                model.park();
                model.happen(Happening::Signal(0, 0));
            }
            Choice::Code(true) if model.deferred.is_some() => {
                world.reload_with(Some(implementation()));
                world.apply(Input::Resume).unwrap();
                model.resume();
            }
            Choice::Report(..) | Choice::Cancel | Choice::Code(_) => {}
        }
        assert_eq!(lines(&world), model.lines, "after {choice:?}");
    }
    if model.deferred.is_none() {
        world.check_replays();
    }
    if let Some(value) = model.value {
        assert_eq!(world.result::<u64>(), value);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_do_what_the_model_says(program in programs(), choices in choices()) {
        check(&program, &choices);
    }
}
