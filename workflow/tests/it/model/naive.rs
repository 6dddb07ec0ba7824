//! The model: walks a program from the top after every input, without wakers, histories or replays.

use std::collections::{BTreeMap, VecDeque};

use super::program::{CANCELLED, FAILED, Flow, MET, Program, Then, together};

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
            Program::Sequence(parts) => Self::Sequence(parts.into_iter().map(Self::of).collect(), 0, 7),
            Program::Join(parts) => {
                Self::Join(parts.into_iter().map(|part| (Self::of(part), None)).collect())
            }
            Program::Race(left, right) => Self::Race(Box::new(Self::of(*left)), Box::new(Self::of(*right))),
            Program::Shield(inner) => Self::Shield(Box::new(Self::of(*inner))),
            leaf => Self::Leaf(leaf, None),
        }
    }
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
            let mut root = std::mem::replace(&mut self.root, Node::Join(Vec::new()));
            let value = self.walk(&mut root, false);
            self.root = root;
            match value {
                Some(value) => {
                    self.flow.sum = together(self.flow.sum, value);
                    self.end_stage();
                }
                // A change may be what a branch before it waits for.
                None if self.flow.state != state => {}
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
            Node::Leaf(Program::Local(value), _) => {
                let value = if value.is_multiple_of(5) { FAILED } else { *value };
                self.lines.push(format!("recorded {value}"));
                Some(value)
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
