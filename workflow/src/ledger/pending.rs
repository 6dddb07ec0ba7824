//! A pending operation, and what the owner of its run has to do for it.
//!
//! ```text
//!   a turn begins it ──┐
//!                      ├──► Pending::commands ──► Commands
//!   a run is recovered ┘
//! ```
//!
//! The commands of an operation are made in one place, both when it begins and when its run is recovered. So a new kind of
//! operation cannot be forgotten in recovery.

use std::sync::Arc;

use millrun_core::{Epoch, RunId, Timestamp};

use crate::event::{ActivityScheduled, ChildScheduled, PublishScheduled, ReceiveScheduled, SignalScheduled};
use crate::{Command, Moment, OperationId, Payload};

/// An operation that has begun and not ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Pending {
    /// A call waits for its result.
    Activity(PendingActivity),
    /// A call of a child waits for its end.
    Child {
        /// The call.
        scheduled: Arc<ChildScheduled>,
        /// Its run, if it is known to have started.
        run: Option<RunId>,
        /// Why it was asked to cancel, if it was.
        cancel: Option<Arc<str>>,
    },
    /// A value waits to be published.
    Publish {
        /// The publish.
        scheduled: Arc<PublishScheduled>,
        /// Whether the topic is known to have had no room, or not to be registered.
        is_parked: bool,
    },
    /// A record of a durable topic is waited for.
    Receive {
        /// Which.
        scheduled: Arc<ReceiveScheduled>,
        /// When the run began.
        run_began: Timestamp,
    },
    /// A signal waits to be recorded in the history of another instance.
    Signal(Arc<SignalScheduled>),
    /// A promise waits to be kept or broken from outside.
    Promise,
    /// A timer waits for its deadline.
    Timer {
        /// When it fires.
        deadline: Timestamp,
    },
}

/// A call that waits for its result.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingActivity {
    /// The call.
    pub scheduled: Arc<ActivityScheduled>,
    /// How many attempts have failed.
    pub failures: u32,
    /// The last attempt that failed; 0 if none has.
    pub failed_attempt: u32,
    /// The last attempt that is known to have begun; 0 if none is.
    pub begun_attempt: u32,
    /// When the next attempt begins, if one has failed.
    pub retry_at: Option<Timestamp>,
    /// When the call fails whatever its attempts do, if it has a schedule-to-close timeout. The call then has a second timer
    /// beside that of the next attempt.
    pub close_at: Option<Timestamp>,
    /// The details of the last heartbeat of any attempt: the next attempt gets them.
    pub details: Option<Payload>,
    /// The epoch of the last decision about it.
    pub(super) epoch: u64,
}

impl PendingActivity {
    /// A call that was issued at `now`.
    pub(super) fn begun(scheduled: &Arc<ActivityScheduled>, now: Timestamp) -> Self {
        Self {
            scheduled: Arc::clone(scheduled),
            failures: 0,
            failed_attempt: 0,
            begun_attempt: 0,
            retry_at: None,
            close_at: scheduled.schedule_to_close.map(|timeout| now + timeout),
            details: None,
            epoch: scheduled.epoch,
        }
    }

    /// An attempt has failed, and another is made.
    pub(super) fn fail(&mut self, attempt: u32, retry_at: Timestamp, epoch: u64) {
        self.failures += 1;
        self.failed_attempt = attempt;
        self.retry_at = Some(retry_at);
        self.epoch = epoch;
    }

    /// Runs the attempt that is due.
    #[inline]
    pub(crate) fn run(&self, since: Timestamp, epoch: u64) -> Command {
        Command::RunActivity {
            scheduled: Arc::clone(&self.scheduled),
            attempt: self.attempt(epoch),
            details: self.details.clone().map(Box::new),
            start_by: self.start_by(since),
        }
    }

    /// The number of the attempt that an owner with this [epoch](Epoch) runs now. It grows by one with each failure, each
    /// opening of the store, and each takeover of the partition within an opening, so that it is higher than that of any
    /// attempt that a crash cut off.
    #[must_use]
    pub fn attempt(&self, epoch: u64) -> u32 {
        let cut_off = Epoch::new(epoch).since(Epoch::new(self.epoch));
        self.failed_attempt.saturating_add(1).saturating_add(cut_off)
    }

    /// Until when an attempt must begin, if the call has a schedule-to-start timeout: counted from `since`, when the call was
    /// issued, or from when the next attempt after a failure is due. `None` also if an attempt is known to have begun since.
    #[must_use]
    pub fn start_by(&self, since: Timestamp) -> Option<Timestamp> {
        let timeout = self.scheduled.schedule_to_start?;
        (self.begun_attempt <= self.failed_attempt).then(|| self.retry_at.unwrap_or(since) + timeout)
    }
}

impl Pending {
    /// Appends the commands that this operation, issued at `since`, needs when it begins, and, with `is_repeated`, each time
    /// that a new owner, or the same one after a crash, takes over the run. At most two commands; none for an operation that
    /// only the outside can end.
    #[inline]
    pub fn commands(
        &self,
        operation: OperationId,
        since: Timestamp,
        moment: Moment,
        is_repeated: bool,
        commands: &mut Vec<Command>,
    ) {
        let timer = |deadline| Command::StartTimer { operation, deadline };
        match self {
            Self::Activity(activity) => {
                commands.push(match activity.retry_at {
                    Some(retry_at) if retry_at > moment.now => timer(retry_at),
                    _ => activity.run(since, moment.epoch),
                });
                if let Some(close_at) = activity.close_at {
                    commands.push(timer(close_at));
                }
            }
            Self::Child {
                scheduled,
                run,
                cancel,
            } => commands.push(Command::StartChild {
                scheduled: Arc::clone(scheduled),
                run: *run,
                cancel: cancel.clone(),
            }),
            Self::Publish { scheduled, is_parked } => commands.push(Command::Publish {
                scheduled: Arc::clone(scheduled),
                is_repeated: is_repeated && !is_parked,
            }),
            Self::Signal(scheduled) => commands.push(Command::SendSignal {
                scheduled: Arc::clone(scheduled),
                is_repeated,
            }),
            Self::Receive { scheduled, run_began } => commands.push(Command::Receive {
                scheduled: Arc::clone(scheduled),
                run_began: *run_began,
            }),
            Self::Promise => {}
            Self::Timer { deadline } => commands.push(timer(*deadline)),
        }
    }
}
