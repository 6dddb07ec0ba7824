//! Decide, commit, act: what a sweep wants done waits here until the journal holds the decision.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use millrun_core::{Offset, Partition, RunId};
use millrun_persistence::Snapshot;
use millrun_workflow::{OperationId, PublishScheduled};

use super::answers::Answer;
use crate::activity::ActivityTask;
use crate::mail::{PartitionMessage, RunSignal};
use crate::timers::TimerCommand;

/// One thing to do, of those that most runs do not need.
pub(super) enum Effect {
    /// A message to the shard that hosts the partition.
    Send(Partition, Box<PartitionMessage>),
    Publish(RunId, Arc<PublishScheduled>),
    CancelPublish(RunId, OperationId),
    /// The end of a child is durable in its parent's history.
    ForgetCall(RunId, OperationId),
    /// The end of a run that has called children is durable.
    ForgetCalls(RunId),
    /// The outcome of a publish is durable.
    ForgetPublish(RunId, OperationId),
    CancelActivity(CancelledCall),
    /// Has the history of a run that has ended looked at for this signal.
    FindSignal(RunId, Box<RunSignal>),
    Timer(TimerCommand),
    /// What is kept of a run's history beside it.
    Keep(Box<Snapshot>),
}

/// A call that nobody waits for any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct CancelledCall {
    pub(super) run: RunId,
    pub(super) operation: OperationId,
    /// The number of its queue, if that is one of this runtime.
    pub(super) queue: Option<u32>,
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send(..) => "Send",
            Self::Publish(..) => "Publish",
            Self::CancelPublish(..) => "CancelPublish",
            Self::ForgetCall(..) => "ForgetCall",
            Self::ForgetCalls(_) => "ForgetCalls",
            Self::ForgetPublish(..) => "ForgetPublish",
            Self::CancelActivity(_) => "CancelActivity",
            Self::FindSignal(..) => "FindSignal",
            Self::Timer(_) => "Timer",
            Self::Keep(..) => "Keep",
        })
    }
}

/// What a sweep wants done: each kind in the order in which it was decided, and on behalf of which run, so
/// that it can be dropped if the run's turn is refused.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) answers: Vec<Answer>,
    pub(super) tasks: Vec<ActivityTask>,
    pub(super) others: Vec<Effect>,
    /// The run that is being worked on.
    present: Behalf,
    answers_of: Vec<Behalf>,
    others_of: Vec<Behalf>,
}

/// Names a run in half of its bits, those that are random; nobody by default. If two runs of a sweep were
/// alike, those who asked the one would be told to ask again when a turn of the other is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Behalf(u64);

impl From<RunId> for Behalf {
    #[inline]
    fn from(run: RunId) -> Self {
        Self(u64::try_from(run.bits() & u128::from(u64::MAX)).expect("masked to 64 bits"))
    }
}

impl Effects {
    /// What follows is on behalf of this run, until the one that was before is [set](Self::resume) again.
    #[inline]
    pub(super) fn work_on(&mut self, run: RunId) -> Behalf {
        std::mem::replace(&mut self.present, run.into())
    }

    #[inline]
    pub(super) fn resume(&mut self, before: Behalf) {
        self.present = before;
    }

    /// The run that is being worked on.
    pub(super) fn present(&self) -> Behalf {
        self.present
    }

    /// Drops all that these runs wanted. Those who asked them are told to ask again.
    pub(super) fn drop_of(&mut self, runs: &[RunId]) {
        let is_kept = |of: Option<Behalf>| !runs.iter().any(|run| Some(Behalf::from(*run)) == of);
        let (mut answers_of, mut others_of) = (self.answers_of.drain(..), self.others_of.drain(..));
        self.answers.retain(|_| is_kept(answers_of.next()));
        self.others.retain(|_| is_kept(others_of.next()));
        self.tasks.retain(|task| !runs.contains(&task.run));
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        self.answers.push(answer);
        self.answers_of.push(self.present);
    }

    pub(super) fn run(&mut self, task: ActivityTask) {
        self.tasks.push(task);
    }

    pub(super) fn push(&mut self, effect: Effect) {
        self.others.push(effect);
        self.others_of.push(self.present);
    }

    /// As [`push`](Self::push), for what was decided durably before: it holds whatever is refused now.
    pub(super) fn push_decided(&mut self, effect: Effect) {
        self.others.push(effect);
        self.others_of.push(Behalf::default());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.tasks.is_empty() && self.others.is_empty()
    }

    /// For how many of each it has memory.
    fn capacity(&self) -> usize {
        let others = self.others.capacity();
        self.answers.capacity().max(self.tasks.capacity()).max(others)
    }
}

/// The effects of sweeps whose commits are under way, in order.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    sweeps: VecDeque<Sweep>,
    spare: Vec<Effects>,
}

/// The effects of one sweep.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Durable once the watermark has reached this.
    offset: Offset,
    /// The number of the sweep, counted by its shard.
    pub(super) number: u64,
    /// How many runs had ended by its end, counted by its shard.
    pub(super) ended_len: u64,
    pub(super) effects: Effects,
}

impl InFlight {
    /// Takes the effects of a sweep that is durable once the watermark has reached `offset`, and
    /// leaves `effects` empty.
    pub(super) fn push(&mut self, offset: Offset, number: u64, ended_len: u64, effects: &mut Effects) {
        // It is accepted, from any sender.
        effects.answers_of.clear();
        effects.others_of.clear();
        let mut empty = self.spare.pop().unwrap_or_default();
        empty.present = effects.present;
        let effects = std::mem::replace(effects, empty);
        self.sweeps.push_back(Sweep {
            offset,
            number,
            ended_len,
            effects,
        });
    }

    /// The oldest sweep, if it is durable.
    pub(super) fn pop_durable(&mut self, watermark: Offset) -> Option<Sweep> {
        self.sweeps.pop_front_if(|sweep| sweep.offset <= watermark)
    }

    /// Gives emptied lists back for later use.
    pub(super) fn recycle(&mut self, effects: Effects) {
        const SPARE_MAX: usize = 16;
        const SPARE_CAPACITY_MAX: usize = 1_024;
        let is_small = effects.capacity() <= SPARE_CAPACITY_MAX;
        if self.spare.len() < SPARE_MAX && effects.is_empty() && is_small {
            self.spare.push(effects);
        }
    }

    /// How many sweeps wait for their commits.
    pub(super) fn len(&self) -> usize {
        self.sweeps.len()
    }
}
