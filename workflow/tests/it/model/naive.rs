//! The model: walks a program from the top after every input, without wakers, histories or replays.

use std::collections::{BTreeMap, VecDeque};

use super::program::{CANCELLED, FAILED, Flow, MET, Program, Then, name_of, together};

/// A program being walked.
#[derive(Debug)]
enum Node {
    Leaf(Program, Option<u32>),
    Sequence(Vec<Node>, usize, u64),
    Join(Vec<(Node, Option<u64>)>),
    Race(Box<Node>, Box<Node>),
    Shield(Box<Node>),
    Set(Set),
    Scope(Box<Scope>),
    /// Steps, and what undoes them, the last first.
    Saga(Box<Node>, Box<Node>),
}

/// A join set.
#[derive(Debug)]
struct Set {
    /// Each with whether it has begun; `None` when it has given its value.
    leaves: Vec<Option<(Node, bool)>>,
    taken: usize,
    is_finished: bool,
    /// The sum of the values in the order in which they came.
    sum: u64,
}

/// A scope around a node, and what cancels it by its end.
#[derive(Debug)]
struct Scope {
    inner: Node,
    value: Option<u64>,
    stop: Node,
    stopped: Option<u64>,
}

impl Node {
    fn of(program: Program) -> Self {
        match program {
            Program::Sequence(parts) => Self::Sequence(parts.into_iter().map(Self::of).collect(), 0, 7),
            Program::Join(parts) => {
                Self::Join(parts.into_iter().map(|part| (Self::of(part), None)).collect())
            }
            Program::Race(left, right) => Self::Race(Box::new(Self::of(*left)), Box::new(Self::of(*right))),
            Program::Shield(inner) => Self::Shield(Box::new(Self::of(*inner))),
            Program::Set {
                leaves,
                taken,
                is_finished,
            } => {
                let leaves = leaves.into_iter().map(|leaf| Some((Self::of(leaf), false)));
                Self::Set(Set {
                    leaves: leaves.collect(),
                    taken,
                    is_finished,
                    sum: 11,
                })
            }
            // As a set that is dropped when it has given one.
            Program::First(leaves) => Self::of(Program::Set {
                leaves,
                taken: 1,
                is_finished: false,
            }),
            Program::Scope(inner, stop) => Self::Scope(Box::new(Scope {
                inner: Self::of(*inner),
                value: None,
                stop: Self::of(*stop),
                stopped: None,
            })),
            Program::Saga(steps) => {
                let (steps, mut undo): (Vec<_>, Vec<_>) = steps
                    .into_iter()
                    .map(|(step, undo)| (Self::of(step), Self::of(undo)))
                    .unzip();
                undo.reverse();
                let undo = Self::Shield(Box::new(Self::Sequence(undo, 0, 13)));
                Self::Saga(Box::new(Self::Sequence(steps, 0, 12)), Box::new(undo))
            }
            leaf => Self::Leaf(leaf, None),
        }
    }
}

/// What a program of this value records, when it ends with that one.
fn recorded(value: u64, end: u64) -> String {
    format!("recorded {:?} {end}", name_of(value))
}

/// What happened to the run.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    Ended(u32, u64),
    Signal(usize, u64),
    Update(u64),
    Cancel,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    Completed(u64),
    /// It goes on with this.
    Continued(Flow),
}

#[derive(Debug)]
pub(super) struct Model {
    flow: Flow,
    at: usize,
    root: Node,
    issued: u32,
    ended: BTreeMap<u32, u64>,
    pub(super) signals: [VecDeque<u64>; 2],
    is_cancelled: bool,
    /// Whether something has happened that concerns what was walked before it.
    is_stirred: bool,
    pub(super) lines: Vec<String>,
    pub(super) deferred: Option<Vec<Happening>>,
    pub(super) end: Option<End>,
}

impl Model {
    /// A run that begins, with signals that the former one left.
    pub(super) fn new(flow: Flow, signals: [VecDeque<u64>; 2]) -> Self {
        let mut model = Self {
            root: Node::Join(Vec::new()),
            flow,
            at: 0,
            issued: 0,
            ended: BTreeMap::new(),
            signals,
            is_cancelled: false,
            is_stirred: false,
            lines: Vec::new(),
            deferred: None,
            end: None,
        };
        model.begin_stage();
        model.walk_from_the_top();
        model
    }

    pub(super) fn happen(&mut self, happening: Happening) {
        let line = match &happening {
            Happening::Ended(operation, value) => format!("ended {operation} {value}"),
            Happening::Signal(index, value) => format!("signal {index} {value}"),
            Happening::Update(value) => format!("update {value}"),
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
            Happening::Update(value) => {
                self.flow.state += value;
                self.lines.push(format!("answered {}", self.flow.state));
            }
            Happening::Cancel => self.is_cancelled = true,
        }
        self.walk_from_the_top();
    }

    pub(super) fn park(&mut self) {
        self.deferred = Some(Vec::new());
    }

    pub(super) fn resume(&mut self) {
        self.lines.push("resumed".into());
        for happening in self.deferred.take().unwrap_or_default() {
            if self.end.is_none() {
                self.take_up(happening);
            }
        }
    }

    fn walk_from_the_top(&mut self) {
        while self.end.is_none() {
            let state = self.flow.state;
            self.is_stirred = false;
            let mut root = std::mem::replace(&mut self.root, Node::Join(Vec::new()));
            let value = self.walk(&mut root, self.is_cancelled);
            self.root = root;
            match value {
                Some(value) => {
                    self.flow.sum = together(self.flow.sum, value);
                    self.end_stage();
                }
                // A change may be what a branch before it waits for.
                None if self.flow.state != state || self.is_stirred => {}
                None => return,
            }
        }
    }

    fn end_stage(&mut self) {
        let then = self.flow.stages[self.at].then;
        self.at += 1;
        match then {
            Then::GoOn => {}
            Then::Checkpoint => {
                self.issued += 1;
                self.lines.push(format!("promise {}", self.issued));
                self.lines.push(format!("cancelled {}", self.issued));
                // A run that is asked to cancel must end.
                if !self.is_cancelled {
                    let (at, sum, state) = (self.at, self.flow.sum, self.flow.state);
                    let line = format!("checkpoint {at} {sum} {state} {:?}", self.signals);
                    self.lines.push(line);
                }
            }
            Then::Continue if self.is_cancelled => {}
            Then::Continue => {
                let stages = self.flow.stages[self.at..].to_vec();
                self.lines.push(format!("continued {}", self.flow.sum));
                self.end = Some(End::Continued(Flow {
                    stages,
                    ..self.flow.clone()
                }));
                return;
            }
        }
        self.begin_stage();
    }

    fn begin_stage(&mut self) {
        if let Some(stage) = self.flow.stages.get(self.at) {
            self.root = Node::of(stage.program.clone());
        } else {
            self.lines.push(format!("completed {}", self.flow.sum));
            self.end = Some(End::Completed(self.flow.sum));
        }
    }

    /// `is_cancelled` says whether a cancel reaches this part of the tree.
    fn walk(&mut self, node: &mut Node, is_cancelled: bool) -> Option<u64> {
        match node {
            Node::Leaf(Program::Signal(index), _) => self.signals[*index]
                .pop_front()
                .or(is_cancelled.then_some(CANCELLED)),
            Node::Leaf(Program::Record(value), _) => {
                self.lines.push(recorded(*value, *value));
                Some(*value)
            }
            Node::Leaf(Program::Local(value), _) => {
                let end = if value.is_multiple_of(5) { FAILED } else { *value };
                self.lines.push(recorded(*value, end));
                Some(end)
            }
            Node::Leaf(Program::Change(value), _) => {
                self.flow.state += *value;
                Some(self.flow.state)
            }
            // The state belongs to the run, whatever shield is around the wait.
            Node::Leaf(Program::Until(value), _) if self.flow.state >= *value => Some(MET),
            Node::Leaf(Program::Until(_), _) => self.is_cancelled.then_some(CANCELLED),
            Node::Leaf(program, issued @ None) => {
                let what = match program {
                    Program::Call(_) => "call",
                    Program::Child(_) => "child",
                    Program::Publish(_) => "publish",
                    Program::Receive(_) => "receive",
                    Program::SignalInstance(_) => "send",
                    Program::Promise => "promise",
                    _ => "timer",
                };
                // A promise is made before it is waited for.
                if is_cancelled && what != "promise" {
                    return Some(CANCELLED);
                }
                self.issued += 1;
                *issued = Some(self.issued);
                self.lines.push(format!("{what} {}", self.issued));
                if is_cancelled {
                    self.abandon(node);
                    return Some(CANCELLED);
                }
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
                    *sum = together(*sum, self.walk(part, is_cancelled)?);
                    *at += 1;
                }
                Some(*sum)
            }
            Node::Join(parts) => {
                for (part, value) in parts.iter_mut().filter(|(_, value)| value.is_none()) {
                    *value = self.walk(part, is_cancelled);
                }
                parts
                    .iter()
                    .try_fold(8, |sum, (_, value)| Some(together(sum, (*value)?)))
            }
            Node::Race(left, right) => {
                if let Some(value) = self.walk(left, is_cancelled) {
                    self.abandon(right);
                    return Some(together(9, value));
                }
                let value = self.walk(right, is_cancelled)?;
                self.abandon(left);
                Some(together(10, value))
            }
            Node::Shield(inner) => self.walk(inner, false),
            Node::Set(set) => self.walk_set(set, is_cancelled),
            Node::Scope(scope) => {
                if scope.value.is_none() {
                    scope.value = self.walk(&mut scope.inner, is_cancelled || scope.stopped.is_some());
                }
                if scope.stopped.is_none() {
                    scope.stopped = self.walk(&mut scope.stop, is_cancelled);
                    self.is_stirred |= scope.stopped.is_some() && scope.value.is_none();
                }
                Some(together(scope.value?, scope.stopped?))
            }
            Node::Saga(steps, undo) => {
                // A sequence that has ended gives its value again.
                let value = self.walk(steps, is_cancelled)?;
                Some(together(value, self.walk(undo, is_cancelled)?))
            }
        }
    }

    fn walk_set(&mut self, set: &mut Set, is_cancelled: bool) -> Option<u64> {
        let mut places: Vec<_> = (0..set.leaves.len()).collect();
        // Those that wait are woken in this order; then come those that have not begun.
        places.sort_by_key(|place| match &set.leaves[*place] {
            Some((Node::Leaf(_, Some(operation)), true)) => (0, *operation, 0),
            Some((Node::Leaf(Program::Signal(index), _), true)) => (1, 0, *index),
            Some(_) | None => (2, 0, 0),
        });
        for place in places {
            if set.taken == 0 && !set.is_finished {
                break;
            }
            let Some((leaf, has_begun)) = &mut set.leaves[place] else {
                continue;
            };
            *has_begun = true;
            if let Some(value) = self.walk(leaf, is_cancelled) {
                set.leaves[place] = None;
                set.sum = together(set.sum, value);
                set.taken = set.taken.saturating_sub(1);
            }
        }
        let is_empty = set.leaves.iter().all(Option::is_none);
        if !is_empty && (set.taken > 0 || set.is_finished) {
            return None;
        }
        self.abandon_set(set);
        Some(set.sum)
    }

    /// The last that was added goes first.
    fn abandon_set(&mut self, set: &Set) {
        let left = set.leaves.iter().rev().flatten();
        left.for_each(|(leaf, _)| self.abandon(leaf));
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
            Node::Set(set) => self.abandon_set(set),
            Node::Scope(scope) => {
                if scope.value.is_none() {
                    self.abandon(&scope.inner);
                }
                if scope.stopped.is_none() {
                    self.abandon(&scope.stop);
                }
            }
            Node::Saga(steps, undo) => {
                self.abandon(steps);
                self.abandon(undo);
            }
        }
    }
}
