//! Decide, commit, act: the effects of a sweep wait here until the journal holds its decisions.

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

/// An effect other than an answer or a task.
pub(in crate::shard) enum Effect {
    /// A message to the shard that hosts the partition.
    Send(Partition, Box<PartitionMessage>),
    /// The trace context is the run's place in a distributed trace.
    Publish(RunId, Arc<PublishScheduled>, Option<Box<TraceContext>>),
    CancelPublish(RunId, OperationId),
    /// A run waits for a record of a durable topic; the time is that of the run's beginning.
    Receive(RunId, Arc<ReceiveScheduled>, Timestamp),
    CancelReceive(RunId, Arc<ReceiveScheduled>),
    /// The end of a child is durable in its parent's history.
    ForgetCall(RunId, OperationId),
    /// The end of a run that has called children is durable.
    ForgetCalls(RunId),
    /// The outcome of a publish is durable.
    ForgetPublish(RunId, OperationId),
    CancelActivity(CancelledCall),
    /// Asks a reader whether the history of an ended run has this signal.
    FindSignal(RunId, Box<RunSignal>),
    Timer(TimerCommand),
    /// Stores a kept beginning beside the run's history.
    Keep(Box<Snapshot>),
}

/// An activity call that was cancelled.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct CancelledCall {
    pub(in crate::shard) run: RunId,
    pub(in crate::shard) operation: OperationId,
    /// The number of its queue, if the queue is one of this runtime.
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

/// The effects of a sweep. Each kind is in the order of the decisions, with the run or partition on whose behalf it was
/// decided, so that it can be dropped if the run's turn is refused or the partition is lost.
#[derive(Debug, Default)]
pub(in crate::shard) struct Effects {
    pub(in crate::shard) answers: Vec<Response>,
    pub(in crate::shard) tasks: Vec<ActivityTask>,
    pub(in crate::shard) others: Vec<Effect>,
    /// Traced runs that have ended. The trace feed hears of them before the answers are sent: a caller that knows of an end
    /// finds it exported.
    pub(in crate::shard) traced_ends: Vec<RunId>,
    /// Changes for observers, while a feed is open.
    pub(in crate::shard) changes: Option<Vec<(Timestamp, ChangeKind)>>,
    /// The run or partition that is being worked on.
    present: Behalf,
    answers_of: Vec<Behalf>,
    others_of: Vec<Behalf>,
}

/// Names a partition, and perhaps a run in it by most of the random bits of its id; by default neither. If two runs of a
/// sweep had the same bits, callers of one would be told to ask again when a turn of the other is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::shard) struct Behalf(u64);

/// The number of bits that name the run. The upper bits hold the partition's number plus one.
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
    /// The partition, and no particular run.
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
    /// Sets on whose behalf the following effects are. Returns the former value, for [`resume`](Self::resume).
    #[inline]
    pub(in crate::shard) fn work_on(&mut self, of: impl Into<Behalf>) -> Behalf {
        std::mem::replace(&mut self.present, of.into())
    }

    #[inline]
    pub(in crate::shard) fn resume(&mut self, before: Behalf) {
        self.present = before;
    }

    /// The run or partition that is being worked on.
    pub(in crate::shard) fn present(&self) -> Behalf {
        self.present
    }

    /// Drops all effects of these runs. Callers of the dropped requests are told to ask again.
    pub(in crate::shard) fn drop_of(&mut self, runs: &[RunId]) {
        let is_kept = |of: Behalf| !runs.iter().any(|run| Behalf::from(*run) == of);
        retain(&mut self.answers, &mut self.answers_of, is_kept);
        retain(&mut self.others, &mut self.others_of, is_kept);
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

    /// As [`push`](Self::push), for an effect of an earlier, durable decision: it stays when a turn of this sweep is refused,
    /// but is dropped if the partition is lost.
    pub(in crate::shard) fn push_decided(&mut self, of: Partition, effect: Effect) {
        self.others.push(effect);
        self.others_of.push(of.into());
    }

    /// Drops all effects on behalf of these partitions. Each answer is replaced by the news that the partition has moved.
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

    /// The largest capacity among its lists.
    fn capacity(&self) -> usize {
        let others = self.others.capacity().max(self.traced_ends.capacity());
        self.answers.capacity().max(self.tasks.capacity()).max(others)
    }
}

/// Keeps the items, and on whose behalf they are, of which that is so.
fn retain<T>(items: &mut Vec<T>, of: &mut Vec<Behalf>, is_kept: impl Fn(Behalf) -> bool) {
    let mut each = of.iter();
    items.retain(|_| each.next().is_none_or(|of| is_kept(*of)));
    of.retain(|of| is_kept(*of));
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
    /// The sweep is durable once the watermark has reached this offset.
    offset: Offset,
    /// The number of the sweep, counted by its shard.
    pub(in crate::shard) number: u64,
    /// How many runs of the shard had ended by the end of this sweep.
    pub(in crate::shard) ended_len: u64,
    pub(in crate::shard) effects: Effects,
}

impl InFlight {
    /// Takes the effects of a sweep that is durable once the watermark has reached `offset`, and leaves `effects` empty.
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

    /// As [`Effects::lose`], for all sweeps under way.
    pub(in crate::shard) fn lose(&mut self, lost: &PartitionSet, moved: &mut Vec<Response>) {
        for sweep in &mut self.sweeps {
            sweep.effects.lose(lost, moved);
        }
    }

    /// Keeps emptied lists for reuse.
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

    /// Regression: queued effects were listed without their owners, so a loss dropped those of all partitions.
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
    /// Regression: after a refused turn nobody knew any more on whose behalf the other effects of its sweep were, and the next
    /// loss dropped them all: answers, tasks and timers of runs that stayed.
    #[test]
    fn a_loss_behind_a_refused_turn_takes_what_is_of_the_lost_partition_alone() {
        let [lost, kept] = [3, 4].map(|index| Partition::from_index(index).unwrap());
        let run = |partition, number| RunId::new(partition, Timestamp::EPOCH, number);
        let [refused, gone, stays] = [run(lost, 1), run(lost, 2), run(kept, 3)];
        let mut effects = Effects::default();
        let mut callers = Vec::new();
        for of in [refused, gone, stays] {
            let (reply, answer) = oneshot::channel::<Result<(), RunError>>();
            let before = effects.work_on(of);
            effects.answer(Response::Tell(reply.into(), Ok(())));
            effects.push(Effect::ForgetCalls(of));
            effects.resume(before);
            callers.push(answer);
        }
        effects.drop_of(&[refused]);
        assert_eq!((effects.answers.len(), effects.others.len()), (2, 2));
        let mut moved = Vec::new();
        effects.lose(&[lost].into_iter().collect(), &mut moved);
        assert_eq!((moved.len(), effects.answers.len()), (1, 1));
        assert!(matches!(effects.others[..], [Effect::ForgetCalls(of)] if of == stays));
    }
}
