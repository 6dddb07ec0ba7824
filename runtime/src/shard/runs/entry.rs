//! What a shard knows of a run that is not [asleep](super::asleep). There may be very many runs with callers or parents, so
//! the entry is small: fields that few runs need stand behind a pointer.

use std::sync::Arc;

use millrun_core::{InstanceId, RunId, TraceContext};
use millrun_workflow::{Input, Instance, Name, OperationId, Parent, ParkReason, Payload, Started};

use super::results::ResultNumber;
use crate::activity::AttemptFailure;
use crate::code::workflows::Beginning;
use crate::mail::{
    CallerReply, CommandReply, Described, EntityRequest, LoadToReset, Question, Replacement, Reply,
    ResetReading, ResetReads, RunSignal, Standing, Tell, UpdateReply, UpdateRequest,
};
use crate::{QueryError, RunError};

/// One run.
#[derive(Debug)]
pub(in crate::shard) struct Entry {
    pub(in crate::shard) run: RunId,
    pub(in crate::shard) id: InstanceId,
    pub(in crate::shard) workflow: WorkflowName,
    pub(in crate::shard) residence: Residence,
    /// The first caller that waits for the result; there is seldom a second.
    waiter: Option<CallerReply<Standing>>,
    rare: Option<Box<Rare>>,
    /// The number of the sweep that has its last turn.
    pub(in crate::shard) last_sweep: u64,
    /// The memory that the run holds while it is in memory, as far as is known.
    pub(in crate::shard) hot_bytes: u32,
    pub(in crate::shard) parking: Parking,
    /// Whether it was used since it was last considered for unloading.
    pub(in crate::shard) is_touched: bool,
    /// Whether it is in the list of runs with code in memory.
    pub(in crate::shard) is_listed: bool,
    /// Whether `waiter` is the caller that started the run; it may never ask for the result.
    is_waiter_starter: bool,
}

/// Fields that few runs need.
#[derive(Debug, Default)]
struct Rare {
    /// The run that called it, if it is a child.
    parent: Option<Parent>,
    /// Further callers that wait for the result.
    waiters: Vec<Reply<Standing>>,
}

/// The name of a run's workflow, the run's version, and the workflow that its instance began as, in two words.
#[derive(Clone, Debug)]
pub(in crate::shard) enum WorkflowName {
    /// The name of code in this program, in version 0; the instance began as this workflow.
    Known(&'static str),
    Other(Arc<OtherName>),
}

#[derive(Debug, PartialEq)]
pub(in crate::shard) struct OtherName {
    name: Name,
    version: u32,
    /// The workflow that the instance began as, if that is not `name`.
    began_as: Option<Name>,
}

/// Where a run is.
#[derive(Debug)]
pub(in crate::shard) enum Residence {
    /// On disk only.
    Cold,
    /// Being read.
    Loading(Box<Loading>),
    /// In memory.
    Hot(Box<Instance>),
    /// Ended, with its result at hand.
    Ended(ResultNumber),
}

/// Whether the code of a run runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Parking {
    Runs,
    Parked,
    /// Parked because an operator asked for it.
    Paused,
    /// Its code has not begun, since its start is delayed.
    Delayed,
}

impl Parking {
    /// Of a run that is parked for this reason, if it is.
    #[inline]
    pub(in crate::shard) fn of(reason: Option<&ParkReason>) -> Self {
        match reason {
            None => Self::Runs,
            Some(ParkReason::Paused { .. }) => Self::Paused,
            Some(ParkReason::Delayed { .. }) => Self::Delayed,
            Some(_) => Self::Parked,
        }
    }

    /// Whether the code does not run and nothing but a repair or an operator may bring it back.
    #[inline]
    pub(in crate::shard) const fn is_parked(self) -> bool {
        match self {
            Self::Runs | Self::Delayed => false,
            Self::Parked | Self::Paused => true,
        }
    }
}

/// A run that is being read.
#[derive(Debug, Default)]
pub(in crate::shard) struct Loading {
    /// Errands that came while it was being read, in order.
    pub(in crate::shard) held: Vec<Errand>,
    /// If set, the run is parked for this reason once it has been read.
    pub(in crate::shard) park: Option<ParkReason>,
    /// The run itself, if it was in memory when it was to be reset.
    pub(in crate::shard) in_memory: Option<Box<Instance>>,
    /// What was read, if it is to be reset.
    pub(in crate::shard) to_reset: Option<Result<ResetReading, RunError>>,
}

/// Something to be done with a run that is in memory.
#[derive(Debug)]
pub(in crate::shard) enum Errand {
    Tell(Tell, Reply<()>),
    /// A signal that another run, or this run itself, sends.
    Signal(Box<RunSignal>),
    Input(Input),
    Resume,
    Describe(Reply<Described>),
    Query(Question, Reply<Payload, QueryError>),
    Update(UpdateRequest, UpdateReply),
    Command(Box<EntityRequest>, CommandReply),
    /// Terminates the run, and begins another one of its instance.
    Replace(Box<Replacement>),
    /// A failed attempt, with its last heartbeat details.
    Failed(OperationId, u32, Box<AttemptFailure>),
    Dispatch(OperationId),
    /// The shard of a child has begun anew: asks for the child again.
    CallAgain(OperationId),
    /// A value that waited for room in its topic can be published.
    Republish(OperationId, Name),
    /// A value to be published to a durable topic.
    Append(OperationId),
}

/// Where an input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Sender {
    /// A caller, which gets an answer, or asks again if there is none.
    Outside,
    /// A part of the runtime, which does not send the input again.
    Inside,
    /// The shard itself, as it [publishes](Errand::Append) to a durable topic what the run may have decided in this sweep.
    Append(OperationId),
}

impl Entry {
    #[inline]
    pub(in crate::shard) fn new(
        run: RunId,
        id: InstanceId,
        workflow: WorkflowName,
        residence: Residence,
    ) -> Self {
        Self {
            run,
            id,
            workflow,
            residence,
            waiter: None,
            rare: None,
            last_sweep: 0,
            hot_bytes: 0,
            parking: Parking::Runs,
            is_touched: true,
            is_listed: false,
            is_waiter_starter: false,
        }
    }

    /// The same entry, with the caller that started the run waiting for its end.
    #[inline]
    pub(in crate::shard) fn with_starter(mut self, end: Option<CallerReply<Standing>>) -> Self {
        self.is_waiter_starter = end.is_some();
        self.waiter = end;
        self
    }

    /// Drops the caller that started the run from those that wait. It asks again if it wants the result.
    pub(in crate::shard) fn forget_starter(&mut self) {
        if std::mem::take(&mut self.is_waiter_starter) {
            self.waiter = None;
        }
    }

    /// The run's place in a distributed trace, if it has one and is in memory.
    #[inline]
    pub(in crate::shard) fn trace(&self) -> Option<&TraceContext> {
        match &self.residence {
            Residence::Hot(instance) => instance.ledger().started()?.trace(),
            Residence::Cold | Residence::Loading(_) | Residence::Ended(_) => None,
        }
    }

    /// The memory that the run holds while it is in memory, as far as is known.
    pub(in crate::shard) fn memory_bytes(&self) -> u32 {
        /// The size of a channel for one answer, with the allocator's overhead.
        const WAITER_BYTES: usize = 192;
        let Residence::Hot(instance) = &self.residence else {
            return 0;
        };
        let waiter = self.waiter.as_ref().map_or(0, |_| WAITER_BYTES);
        u32::try_from(instance.memory_bytes() + waiter).unwrap_or(u32::MAX)
    }

    /// The same entry with the run's parent, if the run is a child.
    #[inline]
    pub(in crate::shard) fn with_parent(mut self, parent: Option<Parent>) -> Self {
        if parent.is_some() {
            self.rare.get_or_insert_default().parent = parent;
        }
        self
    }

    /// What determines the run's code.
    pub(in crate::shard) fn beginning(&self) -> Beginning<'_> {
        Beginning::from((self.workflow.as_str(), self.workflow.version(), &self.id))
    }

    /// The run that called it, if it is a child.
    pub(in crate::shard) fn parent(&self) -> Option<&Parent> {
        self.rare.as_ref()?.parent.as_ref()
    }

    pub(in crate::shard) fn is_parked(&self) -> bool {
        self.parking.is_parked()
    }

    /// What is to be read of it, if it is to be reset.
    pub(in crate::shard) fn to_be_reset(&self) -> Option<LoadToReset> {
        match &self.residence {
            Residence::Loading(loading) => loading.reads_to_reset(),
            Residence::Cold | Residence::Hot(_) | Residence::Ended(_) => None,
        }
    }

    pub(in crate::shard) const fn has_ended(&self) -> bool {
        matches!(self.residence, Residence::Ended(_))
    }

    /// Adds a caller that waits for the result, and forgets those that gave up.
    pub(in crate::shard) fn wait(&mut self, reply: Reply<Standing>) {
        let reply = match reply {
            Reply::Caller(caller) if self.waiter.as_ref().is_none_or(CallerReply::is_closed) => {
                self.waiter = Some(caller);
                self.is_waiter_starter = false;
                return;
            }
            reply => reply,
        };
        let waiters = &mut self.rare.get_or_insert_default().waiters;
        if waiters.len() == waiters.capacity() {
            waiters.retain(|waiter| !waiter.is_closed());
        }
        waiters.push(reply);
    }

    pub(in crate::shard) fn is_waited_for(&self) -> bool {
        let others = self.rare.as_ref().map(|rare| rare.waiters.iter());
        self.waiter.as_ref().is_some_and(|waiter| !waiter.is_closed())
            || others.into_iter().flatten().any(|waiter| !waiter.is_closed())
    }

    /// Whether the whole run is on disk and no caller waits for it. Children stay awake, since a sleeper does not hold their
    /// parent.
    pub(in crate::shard) fn can_sleep(&self) -> bool {
        matches!(self.residence, Residence::Cold) && !self.is_waited_for() && self.parent().is_none()
    }

    /// Takes the callers that wait for the result.
    pub(in crate::shard) fn take_waiters(&mut self) -> impl Iterator<Item = Reply<Standing>> + use<> {
        let others = self.rare.as_mut().map(|rare| std::mem::take(&mut rare.waiters));
        let first = self.waiter.take().map(Reply::Caller);
        first.into_iter().chain(others.unwrap_or_default())
    }
}

impl Loading {
    /// How much is to be read, if the first errand is a reset.
    pub(in crate::shard) fn reads_to_reset(&self) -> Option<LoadToReset> {
        match self.held.first()? {
            Errand::Tell(Tell::Reset(order), _) => Some(LoadToReset {
                reads: ResetReads::from(&order.point),
                is_in_memory: self.in_memory.is_some(),
            }),
            _ => None,
        }
    }
}

impl Residence {
    /// A run whose history is being read, with the errand that it is read for.
    pub(in crate::shard) fn loading(errand: Errand) -> Self {
        Self::Loading(Box::new(Loading {
            held: vec![errand],
            ..Loading::default()
        }))
    }
}

impl WorkflowName {
    /// `began_as` is the workflow that the instance began as, if that is not `name`.
    #[inline]
    pub(in crate::shard) fn new(name: Name, version: u32, began_as: Option<Name>) -> Self {
        match (name, version, began_as) {
            (Name::Borrowed(name), 0, None) => Self::Known(name),
            (name, version, began_as) => Self::Other(Arc::new(OtherName {
                name,
                version,
                began_as,
            })),
        }
    }

    /// The name for a run that begins.
    #[inline]
    pub(in crate::shard) fn of(started: &Started) -> Self {
        let origin = started.origin.as_ref();
        let began_as = origin.and_then(|origin| origin.began_as.clone());
        Self::new(started.workflow.clone(), started.version, began_as)
    }

    /// The name for a run that has begun in this turn.
    #[inline]
    pub(in crate::shard) fn of_begun(instance: &Instance) -> Self {
        let started = instance.ledger().started();
        started.map_or(Self::Known(""), Self::of)
    }

    /// The version that the run has.
    #[inline]
    pub(in crate::shard) fn version(&self) -> u32 {
        match self {
            Self::Known(_) => 0,
            Self::Other(other) => other.version,
        }
    }

    /// The same name with another version.
    pub(in crate::shard) fn with_version(&self, version: u32) -> Self {
        let (name, began_as) = match self {
            Self::Known(name) => (Name::Borrowed(*name), None),
            Self::Other(other) => (other.name.clone(), other.began_as.clone()),
        };
        Self::new(name, version, began_as)
    }

    pub(in crate::shard) fn as_str(&self) -> &str {
        match self {
            Self::Known(name) => name,
            Self::Other(other) => &other.name,
        }
    }

    /// The workflow that the instance began as, which is the workflow of its handles.
    pub(in crate::shard) fn began_as(&self) -> &str {
        match self {
            Self::Known(name) => name,
            Self::Other(other) => other.began_as.as_ref().unwrap_or(&other.name),
        }
    }

    /// Whether both are the same version of the same workflow, whatever their instances began as.
    #[inline]
    pub(in crate::shard) fn is_counted_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Known(one), Self::Known(other)) if std::ptr::eq(*one, *other) => true,
            _ => self.as_str() == other.as_str() && self.version() == other.version(),
        }
    }

    /// Whether both names are the same.
    pub(in crate::shard) fn is_same(&self, other: &Self) -> bool {
        self.is_counted_as(other) && self.began_as() == other.began_as()
    }
}

impl Errand {
    /// Whether somebody outside the run waits for the answer: a client, or a run that signals this one.
    pub(in crate::shard) fn is_from_outside(&self) -> bool {
        match self {
            Self::Tell(..)
            | Self::Signal(_)
            | Self::Describe(_)
            | Self::Query(..)
            | Self::Update(..)
            | Self::Command(..)
            | Self::Replace(_) => true,
            Self::Input(_)
            | Self::Failed(..)
            | Self::Resume
            | Self::Dispatch(_)
            | Self::CallAgain(_)
            | Self::Append(_)
            | Self::Republish(..) => false,
        }
    }

    /// Whether it concerns the instance, and so also the run that continues this one.
    pub(in crate::shard) fn is_for_the_instance(&self) -> bool {
        let is_of_the_run = matches!(
            self,
            Self::Tell(Tell::EndPromise { .. } | Tell::RecordReceived { .. }, _)
        );
        // A parent that cancels or closes its child means whatever run the child has by now.
        let is_of_parent = matches!(self, Self::Input(Input::Cancel { .. } | Input::Terminate { .. }));
        is_of_parent || (self.is_from_outside() && !is_of_the_run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_on_disk_sleeps_though_its_starter_keeps_the_handle_and_not_while_somebody_asks() {
        let id: InstanceId = "x".parse().unwrap();
        let run = RunId::new(id.partition(), millrun_core::Timestamp::EPOCH, 1);
        let (starter, mut told) = tokio::sync::oneshot::channel();
        let entry = Entry::new(run, id, WorkflowName::Known("flow"), Residence::Cold);
        let mut entry = entry.with_starter(Some(starter));
        assert!(!entry.can_sleep());
        entry.forget_starter();
        assert!(entry.can_sleep());
        assert!(matches!(
            told.try_recv(),
            Err(tokio::sync::oneshot::error::TryRecvError::Closed)
        ));
        let (asker, _answer) = tokio::sync::oneshot::channel();
        entry.wait(asker.into());
        entry.forget_starter();
        assert!(!entry.can_sleep());
    }

    #[test]
    fn an_entry_stays_small() {
        assert_eq!(size_of::<Option<Entry>>(), 112);
    }
}
