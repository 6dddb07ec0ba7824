//! Decide, commit, act: what a sweep wants done waits here until the journal holds the decision.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use millrun_core::{Offset, Partition, RunId, Timestamp, TraceContext};
use millrun_persistence::Snapshot;
use millrun_workflow::{OperationId, PublishScheduled, ReceiveScheduled};

use super::answers::Response;
use crate::activity::ActivityTask;
use crate::looking::changes::ChangeKind;
use crate::mail::{PartitionMessage, RunSignal};
use crate::ownership::partition_set::PartitionSet;
use crate::timers::TimerCommand;

/// One thing to do, of those that most runs do not need.
pub(in crate::shard) enum Effect {
    /// A message to the shard that hosts the partition.
    Send(Partition, Box<PartitionMessage>),
    /// With the place of the run in a distributed trace.
    Publish(RunId, Arc<PublishScheduled>, Option<Box<TraceContext>>),
    CancelPublish(RunId, OperationId),
    /// A run that began then waits for a record of a durable topic.
    Receive(RunId, Arc<ReceiveScheduled>, Timestamp),
    CancelReceive(RunId, Arc<ReceiveScheduled>),
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
pub(in crate::shard) struct CancelledCall {
    pub(in crate::shard) run: RunId,
    pub(in crate::shard) operation: OperationId,
    /// The number of its queue, if that is one of this runtime.
    pub(in crate::shard) queue: Option<u32>,
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send(..) => "Send",
            Self::Publish(..) => "Publish",
            Self::CancelPublish(..) => "CancelPublish",
            Self::Receive(..) => "Receive",
            Self::CancelReceive(..) => "CancelReceive",
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

/// What a sweep wants done: each kind in the order in which it was decided, and on behalf of which run or partition, so
/// that it can be dropped if the run's turn is refused, or the partition is lost.
#[derive(Debug, Default)]
pub(in crate::shard) struct Effects {
    pub(in crate::shard) answers: Vec<Response>,
    pub(in crate::shard) tasks: Vec<ActivityTask>,
    pub(in crate::shard) others: Vec<Effect>,
    /// Traced runs that have ended. They are told before the answers, so that a caller who knows of an end finds it told.
    pub(in crate::shard) traced_ends: Vec<RunId>,
    /// What is told to observers, if there are any.
    pub(in crate::shard) changes: Option<Vec<(Timestamp, ChangeKind)>>,
    /// The run that is being worked on.
    present: Behalf,
    answers_of: Vec<Behalf>,
    others_of: Vec<Behalf>,
}

/// Names a partition, and a run there in most of the bits that are random, if it is one run's. Nobody by default. If
/// two runs of a sweep were alike, the callers of the one would be told to ask again when a turn of the other is
/// refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::shard) struct Behalf(u64);

/// Those of the bits that name the run. The others hold the number of the partition, counted from one.
const RUN_BITS: u32 = 53;

impl From<RunId> for Behalf {
    #[inline]
    fn from(run: RunId) -> Self {
        let random = run.bits() & u128::from((1_u64 << RUN_BITS) - 1);
        let random = u64::try_from(random).expect("masked to 53 bits");
        Self(Self::from(run.partition()).0 | random)
    }
}

impl From<Partition> for Behalf {
    /// All that is there, and no run in particular.
    #[inline]
    fn from(partition: Partition) -> Self {
        Self((u64::from(partition.index()) + 1) << RUN_BITS)
    }
}

impl Behalf {
    pub(in crate::shard) fn partition(self) -> Option<Partition> {
        let number = u16::try_from(self.0 >> RUN_BITS).ok()?;
        Partition::from_index(number.checked_sub(1)?)
    }
}

impl Effects {
    /// What follows is on behalf of this run or partition, until the one that was before is [set](Self::resume) again.
    #[inline]
    pub(in crate::shard) fn work_on(&mut self, of: impl Into<Behalf>) -> Behalf {
        std::mem::replace(&mut self.present, of.into())
    }

    #[inline]
    pub(in crate::shard) fn resume(&mut self, before: Behalf) {
        self.present = before;
    }

    /// The run that is being worked on.
    pub(in crate::shard) fn present(&self) -> Behalf {
        self.present
    }

    /// Drops all that these runs wanted. Those who asked them are told to ask again.
    pub(in crate::shard) fn drop_of(&mut self, runs: &[RunId]) {
        let is_kept = |of: Option<Behalf>| !runs.iter().any(|run| Some(Behalf::from(*run)) == of);
        let (mut answers_of, mut others_of) = (self.answers_of.drain(..), self.others_of.drain(..));
        self.answers.retain(|_| is_kept(answers_of.next()));
        self.others.retain(|_| is_kept(others_of.next()));
        self.tasks.retain(|task| !runs.contains(&task.run));
        self.traced_ends.retain(|run| !runs.contains(run));
    }

    pub(in crate::shard) fn answer(&mut self, answer: Response) {
        self.answers.push(answer);
        self.answers_of.push(self.present);
    }

    /// The answers, each with the run or partition on whose behalf it is.
    pub(in crate::shard) fn answers(&self) -> impl Iterator<Item = (&Response, Behalf)> {
        self.answers.iter().zip(self.answers_of.iter().copied())
    }

    pub(in crate::shard) fn run(&mut self, task: ActivityTask) {
        self.tasks.push(task);
    }

    pub(in crate::shard) fn push(&mut self, effect: Effect) {
        self.others.push(effect);
        self.others_of.push(self.present);
    }

    /// As [`push`](Self::push), for what was decided durably before: it holds whatever is refused now, as long as the
    /// partition is owned.
    pub(in crate::shard) fn push_decided(&mut self, of: Partition, effect: Effect) {
        self.others.push(effect);
        self.others_of.push(of.into());
    }

    /// Drops all that was wanted on behalf of these partitions. Each answer becomes that the partition has moved.
    pub(in crate::shard) fn lose(&mut self, lost: &PartitionSet, moved: &mut Vec<Response>) {
        let is_lost = |of: Behalf| of.partition().filter(|partition| lost.contains(*partition));
        let of = std::mem::take(&mut self.answers_of);
        for (answer, of) in std::mem::take(&mut self.answers).into_iter().zip(of) {
            match is_lost(of) {
                Some(partition) => moved.push(answer.moved(partition)),
                None => {
                    self.answers.push(answer);
                    self.answers_of.push(of);
                }
            }
        }
        let of = std::mem::take(&mut self.others_of);
        for (effect, of) in std::mem::take(&mut self.others).into_iter().zip(of) {
            if is_lost(of).is_none() {
                self.others.push(effect);
                self.others_of.push(of);
            }
        }
        self.tasks.retain(|task| !lost.contains(task.run.partition()));
        self.traced_ends.retain(|run| !lost.contains(run.partition()));
    }

    pub(in crate::shard) fn is_empty(&self) -> bool {
        self.answers.is_empty()
            && self.tasks.is_empty()
            && self.others.is_empty()
            && self.traced_ends.is_empty()
    }

    /// For how many of each it has memory.
    fn capacity(&self) -> usize {
        let others = self.others.capacity().max(self.traced_ends.capacity());
        self.answers.capacity().max(self.tasks.capacity()).max(others)
    }
}

/// The effects of sweeps whose commits are under way, in order.
#[derive(Debug, Default)]
pub(in crate::shard) struct InFlight {
    sweeps: VecDeque<Sweep>,
    spare: Vec<Effects>,
}

/// The effects of one sweep.
#[derive(Debug)]
pub(in crate::shard) struct Sweep {
    /// Durable once the watermark has reached this.
    offset: Offset,
    /// The number of the sweep, counted by its shard.
    pub(in crate::shard) number: u64,
    /// How many runs had ended by its end, counted by its shard.
    pub(in crate::shard) ended_len: u64,
    pub(in crate::shard) effects: Effects,
}

impl InFlight {
    /// Takes the effects of a sweep that is durable once the watermark has reached `offset`, and
    /// leaves `effects` empty.
    pub(in crate::shard) fn push(
        &mut self,
        offset: Offset,
        number: u64,
        ended_len: u64,
        effects: &mut Effects,
    ) {
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
    pub(in crate::shard) fn pop_durable(&mut self, watermark: Offset) -> Option<Sweep> {
        self.sweeps.pop_front_if(|sweep| sweep.offset <= watermark)
    }

    /// As [`Effects::lose`], of all sweeps.
    pub(in crate::shard) fn lose(&mut self, lost: &PartitionSet, moved: &mut Vec<Response>) {
        for sweep in &mut self.sweeps {
            sweep.effects.lose(lost, moved);
        }
    }

    /// Gives emptied lists back for later use.
    pub(in crate::shard) fn recycle(&mut self, mut effects: Effects) {
        const SPARE_MAX: usize = 16;
        const SPARE_CAPACITY_MAX: usize = 1_024;
        effects.answers_of.clear();
        effects.others_of.clear();
        let is_small = effects.capacity() <= SPARE_CAPACITY_MAX;
        if self.spare.len() < SPARE_MAX && effects.is_empty() && is_small {
            self.spare.push(effects);
        }
    }

    /// How many sweeps wait for their commits.
    pub(in crate::shard) fn len(&self) -> usize {
        self.sweeps.len()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::RunError;

    /// What had been queued was listed without its owners, and a loss dropped the effects of all partitions.
    #[test]
    fn a_loss_takes_from_sweeps_in_flight_what_is_of_the_lost_partition_alone() {
        let [lost, kept] = [3, 4].map(|index| Partition::from_index(index).unwrap());
        let run = |partition| RunId::new(partition, Timestamp::EPOCH, 7);
        let (mut in_flight, mut effects) = (InFlight::default(), Effects::default());
        let mut callers = Vec::new();
        let mut decide = |effects: &mut Effects, of: Behalf, partition| {
            let (reply, answer) = oneshot::channel();
            let before = effects.work_on(of);
            effects.answer(Response::Tell(reply.into(), Ok(())));
            effects.push(Effect::ForgetCalls(run(partition)));
            effects.resume(before);
            effects.push_decided(partition, Effect::ForgetCalls(run(partition)));
            callers.push((partition, answer));
        };
        for partition in [lost, kept] {
            decide(&mut effects, run(partition).into(), partition);
            decide(&mut effects, partition.into(), partition);
        }
        in_flight.push(Offset::ZERO, 1, 0, &mut effects);
        let mut moved = Vec::new();
        in_flight.lose(&[lost].into_iter().collect(), &mut moved);
        assert_eq!(moved.len(), 2);
        let sweep = in_flight.pop_durable(Offset::ZERO).unwrap();
        assert_eq!(sweep.effects.answers.len(), 2);
        let of_kept = |effect: &Effect| matches!(effect, Effect::ForgetCalls(of) if *of == run(kept));
        assert!(sweep.effects.others.iter().all(of_kept));
        assert_eq!(sweep.effects.others.len(), 4);
        for answer in moved.into_iter().chain(sweep.effects.answers) {
            answer.send();
        }
        for (partition, mut answer) in callers {
            match answer.try_recv().unwrap() {
                Ok(()) => assert_eq!(partition, kept),
                Err(RunError::Moved { partition: of, .. }) => assert_eq!((partition, of), (lost, lost)),
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}
