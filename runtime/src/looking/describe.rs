//! Descriptions of instances.

use std::panic::Location;

use millrun_core::{Cause, Epoch, InstanceId, RunId, Sequence, Timestamp, TraceContext};
use millrun_workflow::{
    Awaited, Ledger, OperationId, Outcome, ParkReason, Payload, Pending, RecordFilter, RunDeadline,
    RunTimeout, RunTry,
};

use crate::activity::LastActivity;
use crate::code::workflows::Beginning;
use crate::shared::ShardShared;

/// A live instance, in one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InstanceSummary {
    /// The user's id.
    pub id: InstanceId,
    /// Its run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// The version that it has of the workflow.
    pub version: u32,
    /// What it does.
    pub status: InstanceStatus,
}

/// What an instance does.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InstanceStatus {
    /// It runs, or waits for something.
    Running,
    /// Its code does not run; its inputs are recorded.
    Parked,
    /// Its start is [delayed](crate::builders::Start::delayed_by), and its time has not come: see
    /// [`resumes_at`](InstanceDescription::resumes_at). Its inputs are recorded.
    Delayed,
    /// No workflow of its name is registered, or none in its version; its inputs are recorded.
    NotRegistered,
    /// It has ended.
    Finished,
}

/// An instance in full: what it waits for, and since when.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InstanceDescription {
    /// The user's id.
    pub id: InstanceId,
    /// Its run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// The [version](crate::Workflow::version) of its workflow: the one that it began with, or the one to which it has moved
    /// since.
    pub version: u32,
    /// What it does.
    pub status: InstanceStatus,
    /// Whether its code is in memory, or was brought there for a parked run. If not, the description comes from its history
    /// alone: [`awaited`](Self::awaited) is empty, and for a run that was parked after its last event,
    /// [`parked`](Self::parked) lacks the reason; [`describe_awake`](crate::RunHandle::describe_awake) has these.
    pub is_in_memory: bool,
    /// When the run began.
    pub started_at: Timestamp,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// When the last event was recorded.
    pub last_at: Timestamp,
    /// The run that called it, if it is a child.
    pub parent: Option<RunId>,
    /// The run and operation that caused it: the call of its parent, or a publish of a run that had it started, say. `None`
    /// if it was started from outside without a cause. The description of that run has its own cause.
    pub cause: Option<Cause>,
    /// Its place in a distributed trace: the span is that of its caller, or its own if the trace begins with it.
    pub trace: Option<TraceContext>,
    /// How many events its history has.
    pub sequence: Sequence,
    /// Whether it has been asked to cancel.
    pub is_cancel_requested: bool,
    /// Why its code does not run.
    pub parked: Option<ParkReason>,
    /// Why its code, which is still running, will be parked with its next event: a foreign timer, task or channel has woken
    /// it. Forgotten when the run is unloaded, since a replay begins with untouched code.
    pub will_park: Option<ParkReason>,
    /// Since when its code does not run. `None` also while its history does not say so: if code cannot be brought back, that
    /// is only recorded with the run's next event.
    pub parked_since: Option<Timestamp>,
    /// When its code is brought back by itself: after a panic, up to [`panics_max`](crate::Limits::panics_max) in a row; or
    /// when it begins, if its start is delayed.
    pub resumes_at: Option<Timestamp>,
    /// The number and policy of its try, if it has a [retry policy](crate::builders::Start::retried). A try whose pause is
    /// not over is [delayed](InstanceStatus::Delayed), and begins at [`resumes_at`](Self::resumes_at).
    pub run_try: Option<RunTry>,
    /// When it is out of time, if its start [bounds](crate::builders::Start::run_timeout) that and it has not ended.
    pub deadline: Option<RunDeadline>,
    /// By which timeout it ended, if it was out of time and is not tried again.
    pub timed_out: Option<RunTimeout>,
    /// The operations it has begun and not ended.
    pub pending: Vec<PendingDescription>,
    /// What else its code waits for: signals, conditions on its state, the request to cancel. These are not in any history,
    /// so it is empty while the code is not in memory, as it may be for a paused run.
    pub awaited: Vec<Awaited>,
    /// Where in the code each pending operation was issued. Empty while the code is not in memory.
    pub lines: Vec<(OperationId, &'static Location<'static>)>,
}

impl InstanceDescription {
    /// The description from a history. `None` if it has no beginning.
    pub(crate) fn of(
        run: RunId,
        ledger: &Ledger,
        epoch: u64,
        is_known: impl Fn(&Pending) -> bool,
    ) -> Option<Self> {
        let started = ledger.started()?;
        let since = |operation| ledger.pending_since(operation).unwrap_or(Timestamp::EPOCH);
        let pending = ledger.pending().map(|(operation, pending)| match pending {
            Pending::Child { scheduled, run, .. } => PendingDescription::Child {
                operation,
                since: since(operation),
                workflow: scheduled.workflow.to_string(),
                id: scheduled.id.clone(),
                run: *run,
            },
            Pending::Publish { scheduled, is_parked } => PendingDescription::Publish {
                operation,
                since: since(operation),
                topic: scheduled.topic.to_string(),
                is_parked: *is_parked,
                is_registered: is_known(pending),
            },
            Pending::Receive { scheduled, .. } => PendingDescription::Receive {
                operation,
                since: since(operation),
                topic: scheduled.topic.to_string(),
                filter: scheduled.filter.clone(),
                behind: scheduled.behind,
                is_registered: is_known(pending),
            },
            Pending::Signal(scheduled) => PendingDescription::Signal {
                operation,
                since: since(operation),
                workflow: scheduled.workflow.to_string(),
                id: scheduled.id.clone(),
                name: scheduled.name.to_string(),
            },
            Pending::Promise => PendingDescription::Promise {
                operation,
                since: since(operation),
            },
            Pending::Activity(activity) => PendingDescription::Activity {
                operation,
                since: since(operation),
                activity: activity.scheduled.activity.to_string(),
                queue: activity.scheduled.queue.to_string(),
                attempt: activity.attempt(epoch),
                failures: activity.failures,
                attempts_max: activity.scheduled.retry.attempts_max(),
                retry_at: activity.retry_at,
                close_at: activity.close_at,
                heartbeat: activity.details.clone(),
                is_registered: is_known(pending),
            },
            Pending::Timer { deadline } => PendingDescription::Timer {
                operation,
                since: since(operation),
                deadline: *deadline,
            },
        });
        Some(Self {
            id: started.id.clone(),
            run,
            workflow: started.workflow.to_string(),
            version: ledger.version(),
            status: if ledger.outcome().is_some() {
                InstanceStatus::Finished
            } else {
                InstanceStatus::Running
            },
            is_in_memory: false,
            started_at: ledger.started_at(),
            ended_at: None,
            last_at: ledger.last_at(),
            parent: started.parent().map(|parent| parent.run),
            cause: started.cause(),
            trace: started.trace().copied(),
            sequence: ledger.sequence(),
            is_cancel_requested: ledger.is_cancel_requested(),
            parked: ledger.parked().map(|(reason, _)| reason.clone()),
            will_park: None,
            parked_since: ledger.parked().map(|(_, since)| since),
            resumes_at: None,
            run_try: started.run_try().copied(),
            deadline: ledger.deadline(),
            timed_out: match ledger.outcome() {
                Some(Outcome::TimedOut(timeout)) => Some(*timeout),
                _ => None,
            },
            pending: pending.collect(),
            awaited: Vec::new(),
            lines: Vec::new(),
        })
    }
}

impl ShardShared {
    /// The description of a run from its history; `is_parked` comes from its shard.
    pub(crate) fn describe(
        &self,
        run: RunId,
        ledger: &Ledger,
        epoch: Epoch,
        is_parked: bool,
    ) -> Option<InstanceDescription> {
        let is_known = |pending: &Pending| match pending {
            _ if self.is_read_only => true,
            Pending::Activity(activity) => self
                .queues
                .number_for(&activity.scheduled, &mut LastActivity::default())
                .is_some(),
            Pending::Publish { scheduled, .. } => {
                self.topics.has(&scheduled.topic) || self.durable.number(&scheduled.topic).is_some()
            }
            Pending::Receive { scheduled, .. } => self.durable.number(&scheduled.topic).is_some(),
            Pending::Child { .. } | Pending::Signal(_) | Pending::Promise | Pending::Timer { .. } => true,
        };
        let mut description = InstanceDescription::of(run, ledger, epoch.get(), is_known)?;
        for pending in &mut description.pending {
            if let PendingDescription::Publish { topic, .. } | PendingDescription::Receive { topic, .. } =
                pending
                && self.durable.present_name(topic) != topic
            {
                *topic = self.durable.present_name(topic).to_owned();
            }
        }
        let has_ended = description.status == InstanceStatus::Finished;
        description.ended_at = has_ended.then_some(description.last_at);
        let beginning = (description.workflow.as_str(), description.version);
        description.status = self.status(beginning, has_ended, is_parked);
        if let (InstanceStatus::Running, Some(ParkReason::Delayed { .. })) =
            (&description.status, &description.parked)
        {
            description.status = InstanceStatus::Delayed;
        }
        let since = description.parked.as_ref().zip(description.parked_since);
        let limits = &self.config.limits;
        description.resumes_at = since.and_then(|(reason, since)| limits.resume_at(reason, since));
        Some(description)
    }

    /// The status of a run, from what is known without its history.
    pub(crate) fn status<'a>(
        &self,
        beginning: impl Into<Beginning<'a>>,
        has_ended: bool,
        is_parked: bool,
    ) -> InstanceStatus {
        if has_ended {
            InstanceStatus::Finished
        } else if !self.is_registered(beginning) {
            InstanceStatus::NotRegistered
        } else if is_parked {
            InstanceStatus::Parked
        } else {
            InstanceStatus::Running
        }
    }
}

impl InstanceDescription {
    /// Where in the code this operation was issued, if it is pending and the code is in memory.
    #[must_use]
    pub fn line_of(&self, operation: OperationId) -> Option<&'static Location<'static>> {
        let mut lines = self.lines.iter();
        lines.find_map(|(of, line)| (*of == operation).then_some(*line))
    }

    /// Whether it waits for the signal of this name.
    #[must_use]
    pub fn awaits(&self, signal: &str) -> bool {
        let mut awaited = self.awaited.iter();
        awaited.any(|awaited| matches!(awaited, Awaited::Signal { name, .. } if name == signal))
    }
}

/// An operation that has begun and not ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PendingDescription {
    /// A call of an activity.
    Activity {
        /// The call.
        operation: OperationId,
        /// Since when it waits.
        since: Timestamp,
        /// The activity's name.
        activity: String,
        /// The task queue.
        queue: String,
        /// The attempt under way or next.
        attempt: u32,
        /// How many attempts have failed.
        failures: u32,
        /// How many attempts its retry policy allows. A [policy](crate::workflow::Call::retry_on) for some kind of error may
        /// allow more or fewer.
        attempts_max: u32,
        /// When the next attempt begins, if the last one failed.
        retry_at: Option<Timestamp>,
        /// When the call fails whatever its attempts do, if it has a schedule-to-close timeout.
        close_at: Option<Timestamp>,
        /// The last heartbeat of any attempt that is recorded, which the next attempt gets. An attempt under way may have
        /// sent later ones, since only some are recorded.
        heartbeat: Option<Payload>,
        /// Whether its code is registered here, and its queue has a pool; if not, it waits.
        is_registered: bool,
    },
    /// A call of a child.
    Child {
        /// The call.
        operation: OperationId,
        /// Since when it waits.
        since: Timestamp,
        /// The child's workflow.
        workflow: String,
        /// The child's id.
        id: InstanceId,
        /// The child's run, once it is known.
        run: Option<RunId>,
    },
    /// A value on its way to a topic.
    Publish {
        /// The publish.
        operation: OperationId,
        /// Since when it waits.
        since: Timestamp,
        /// The topic.
        topic: String,
        /// Whether the topic had no room for it.
        is_parked: bool,
        /// Whether the topic is [registered](crate::RuntimeBuilder::topic) here; if not, it waits.
        is_registered: bool,
    },
    /// A record of a durable topic that is waited for.
    Receive {
        /// The wait.
        operation: OperationId,
        /// Since when it waits.
        since: Timestamp,
        /// The topic.
        topic: String,
        /// The filter for the record.
        filter: RecordFilter,
        /// The record behind which it waits, if the run has taken one before.
        behind: Option<Sequence>,
        /// Whether the topic is [registered](crate::RuntimeBuilder::durable_topic) here; if not, it waits.
        is_registered: bool,
    },
    /// A signal on its way to another instance.
    Signal {
        /// The operation.
        operation: OperationId,
        /// Since when it waits.
        since: Timestamp,
        /// The workflow of the instance.
        workflow: String,
        /// The id of the instance.
        id: InstanceId,
        /// The name of the signal.
        name: String,
    },
    /// A promise that code outside of the run is to keep or break.
    Promise {
        /// The promise.
        operation: OperationId,
        /// Since when it waits.
        since: Timestamp,
    },
    /// A timer.
    Timer {
        /// The timer.
        operation: OperationId,
        /// Since when it runs.
        since: Timestamp,
        /// When it fires.
        deadline: Timestamp,
    },
}
