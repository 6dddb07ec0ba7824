//! What a history says without running its code: the fold of its events.

mod kept;
mod pending;
mod requests;
mod senders;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use millrun_core::{RunId, Sequence, Timestamp};

pub use self::kept::KeptBeginning;
pub use self::pending::{Pending, PendingActivity};
pub use self::requests::SIGNAL_REQUESTS_LEN_MAX;
use self::requests::SignalRequests;
pub(crate) use self::requests::request_bytes;
use self::senders::Senders;
use crate::event::{Event, ParkReason, RunDeadline, RunFailure, RunTimeout, Started, answer_bytes};
use crate::operations::Operations;
use crate::{OperationId, Payload};

/// The state of a run as far as its events tell, without its code.
///
/// Recovery, descriptions, and instances without code work with this alone; the [machine](crate::Instance) keeps one beside
/// the code and consults it before each input.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    sequence: Sequence,
    /// The sequence of the last checkpoint.
    checkpoint: Sequence,
    started: Option<(Started, Timestamp)>,
    pending: Operations<(Pending, Timestamp)>,
    /// When the last event was recorded.
    last_at: Timestamp,
    parked: Option<Box<(ParkReason, Timestamp)>>,
    /// The version of the code.
    version: u32,
    is_cancel_requested: bool,
    outcome: Option<Outcome>,
    /// Most runs have none, and there may be a million of them.
    remembered: Option<Box<Remembered>>,
}

/// Requests that a run has handled, so that a repetition has no second effect.
#[derive(Clone, Debug, Default)]
struct Remembered {
    updates: Updates,
    senders: Senders,
    signal_requests: SignalRequests,
}

#[derive(Clone, Debug, Default)]
struct Updates {
    standings: BTreeMap<String, UpdateStanding>,
    /// The requests answered, the oldest first.
    answered: VecDeque<String>,
    /// The approximate size of the answers in bytes.
    bytes: usize,
}

/// How many answered updates a run remembers, so that a repeated one gets its answer and has no second effect: the last
/// 1,000. A repetition of an older one would be taken for a new update.
pub const ANSWERS_LEN_MAX: usize = 1_000;

/// How many bytes of answers, with their requests, move to a run that continues another: the latest that fit, and at most
/// half of the largest payload.
pub const ANSWERS_CARRIED_BYTES_MAX: usize = 64 << 10;

/// For how many signals from other runs a run takes over the senders from the run that it continues: the latest ones. See
/// [`Limits::senders_len_max`](crate::Limits::senders_len_max).
pub const SENDERS_CARRIED_LEN_MAX: usize = 2_048;

/// The state of an accepted update.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateStanding {
    /// It waits for the code to run again.
    Accepted,
    /// It was performed, with this answer; or it could not be, for this reason.
    Answered(Result<Payload, String>),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// With a value.
    Completed(Payload),
    /// With an error.
    Failed(RunFailure),
    /// With the answer to a request to cancel.
    Cancelled(RunFailure),
    /// From outside, for this reason.
    Terminated(String),
    /// Out of time, by this timeout.
    TimedOut(RunTimeout),
    /// It continues in this run.
    Continued(RunId),
}

/// How a run ended, without its value or error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutcomeKind {
    /// See [`Outcome::Completed`].
    Completed,
    /// See [`Outcome::Failed`].
    Failed,
    /// See [`Outcome::Cancelled`].
    Cancelled,
    /// See [`Outcome::Terminated`].
    Terminated,
    /// See [`Outcome::TimedOut`].
    TimedOut,
    /// See [`Outcome::Continued`].
    Continued,
}

impl OutcomeKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Terminated,
        Self::TimedOut,
        Self::Continued,
    ];
}

impl Outcome {
    /// Which of them it is.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> OutcomeKind {
        match self {
            Self::Completed(_) => OutcomeKind::Completed,
            Self::Failed(_) => OutcomeKind::Failed,
            Self::Cancelled(_) => OutcomeKind::Cancelled,
            Self::Terminated(_) => OutcomeKind::Terminated,
            Self::TimedOut(_) => OutcomeKind::TimedOut,
            Self::Continued(_) => OutcomeKind::Continued,
        }
    }

    /// The outcome that an event stands for, if it is a last one.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Completed { result } => Some(Self::Completed(result.clone())),
            Event::Failed { error } => Some(Self::Failed(error.clone())),
            Event::Cancelled { error } => Some(Self::Cancelled(error.clone())),
            Event::Terminated { reason } => Some(Self::Terminated(reason.clone())),
            Event::TimedOut { timeout, next: None } => Some(Self::TimedOut(*timeout)),
            Event::ContinuedAsNew { run, .. }
            | Event::Reset { run, .. }
            | Event::TimedOut { next: Some(run), .. } => Some(Self::Continued(*run)),
            Event::Started(_)
            | Event::ActivityScheduled(_)
            | Event::ActivityCompleted { .. }
            | Event::ActivityFailed { .. }
            | Event::AttemptFailed { .. }
            | Event::AttemptStarted { .. }
            | Event::AttemptHeartbeat { .. }
            | Event::TimerStarted { .. }
            | Event::TimerFired { .. }
            | Event::PublishScheduled(_)
            | Event::PublishParked { .. }
            | Event::Published { .. }
            | Event::ReceiveScheduled(_)
            | Event::RecordReceived { .. }
            | Event::PromiseMade { .. }
            | Event::PromiseSettled { .. }
            | Event::Checkpointed(_)
            | Event::ChildScheduled(_)
            | Event::ChildStarted { .. }
            | Event::ChildCancelRequested { .. }
            | Event::ChildEnded { .. }
            | Event::SignalReceived { .. }
            | Event::RunSignalReceived { .. }
            | Event::SignalScheduled(_)
            | Event::SignalSent { .. }
            | Event::OperationCancelled { .. }
            | Event::ValueRecorded { .. }
            | Event::Patched { .. }
            | Event::UpdateAccepted { .. }
            | Event::UpdateAnswered { .. }
            | Event::CommandPerformed(_)
            | Event::CancelRequested { .. }
            | Event::Parked { .. }
            | Event::Resumed
            | Event::VersionChanged { .. } => None,
        }
    }
}

impl Ledger {
    /// A ledger without events.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Clears everything but keeps the memory.
    pub(crate) fn clear(&mut self) {
        let Self {
            sequence,
            checkpoint,
            started,
            pending,
            last_at,
            parked,
            version,
            is_cancel_requested,
            outcome,
            remembered,
        } = self;
        *version = 0;
        (*sequence, *checkpoint) = (Sequence::default(), Sequence::default());
        *last_at = Timestamp::default();
        *started = None;
        pending.clear();
        *parked = None;
        *is_cancel_requested = false;
        *outcome = None;
        *remembered = None;
    }

    /// The capacity for pending operations.
    pub(crate) const fn capacity(&self) -> usize {
        self.pending.capacity()
    }

    /// Takes in the next event of the history, recorded at `time`.
    pub fn apply(&mut self, event: &Event, time: Timestamp) {
        drop(self.take_in(event, time));
    }

    /// As [`apply`](Self::apply). Returns the operation that the event has ended, if it was pending.
    pub(crate) fn take_in(&mut self, event: &Event, time: Timestamp) -> Option<Pending> {
        self.sequence = self.sequence.next();
        self.last_at = time;
        match event {
            Event::Started(started) => {
                for (request, answer) in started.origin.iter().flat_map(|origin| &origin.answers) {
                    self.answer(request, answer);
                }
                for sender in started.origin.iter().flat_map(|origin| &origin.senders) {
                    self.remember_sender(*sender);
                }
                for request in started.origin.iter().flat_map(|origin| &origin.signal_requests) {
                    self.remember_signal_request(request);
                }
                self.version = started.version;
                self.started = Some((started.clone(), time));
            }
            Event::ActivityScheduled(scheduled) => {
                let activity = PendingActivity::begun(scheduled, time);
                self.pending
                    .insert(scheduled.operation, (Pending::Activity(activity), time));
            }
            Event::AttemptFailed {
                operation,
                attempt,
                retry_at,
                epoch,
                failure: _,
            } => {
                if let Some((Pending::Activity(activity), _)) = self.pending.get_mut(*operation) {
                    activity.fail(*attempt, *retry_at, *epoch);
                }
            }
            Event::AttemptStarted { operation, attempt } => {
                if let Some((Pending::Activity(activity), _)) = self.pending.get_mut(*operation) {
                    // A heartbeat in an attempt's first poll is recorded before this event, and sets the attempt too.
                    activity.begun_attempt = activity.begun_attempt.max(*attempt);
                }
            }
            Event::AttemptHeartbeat {
                operation,
                details,
                attempt,
            } => {
                if let Some((Pending::Activity(activity), _)) = self.pending.get_mut(*operation) {
                    activity.begun_attempt = activity.begun_attempt.max(*attempt);
                    activity.details = Some(details.clone());
                }
            }
            Event::TimerStarted { operation, deadline } => {
                let timer = Pending::Timer { deadline: *deadline };
                self.pending.insert(*operation, (timer, time));
            }
            Event::ChildScheduled(scheduled) => {
                let child = Pending::Child {
                    scheduled: Arc::clone(scheduled),
                    run: None,
                    cancel: None,
                };
                self.pending.insert(scheduled.operation, (child, time));
            }
            Event::ChildStarted {
                operation,
                run: known,
            } => {
                if let Some((Pending::Child { run, .. }, _)) = self.pending.get_mut(*operation) {
                    *run = Some(*known);
                }
            }
            Event::ChildCancelRequested { operation, reason } => {
                if let Some((Pending::Child { cancel, .. }, _)) = self.pending.get_mut(*operation) {
                    *cancel = Some(reason.as_str().into());
                }
            }
            Event::PublishScheduled(scheduled) => {
                let publish = Pending::Publish {
                    scheduled: Arc::clone(scheduled),
                    is_parked: false,
                };
                self.pending.insert(scheduled.operation, (publish, time));
            }
            Event::PublishParked { operation } => {
                if let Some((Pending::Publish { is_parked, .. }, _)) = self.pending.get_mut(*operation) {
                    *is_parked = true;
                }
            }
            Event::SignalScheduled(scheduled) => {
                let signal = Pending::Signal(Arc::clone(scheduled));
                self.pending.insert(scheduled.operation, (signal, time));
            }
            Event::ReceiveScheduled(scheduled) => {
                let receive = Pending::Receive {
                    scheduled: Arc::clone(scheduled),
                    run_began: self.topics_since(),
                };
                self.pending.insert(scheduled.operation, (receive, time));
            }
            Event::PromiseMade { operation } => {
                self.pending.insert(*operation, (Pending::Promise, time));
            }
            Event::Checkpointed(_) => self.checkpoint = self.sequence,
            Event::ChildEnded { operation, .. }
            | Event::Published { operation, .. }
            | Event::RecordReceived { operation, .. }
            | Event::SignalSent { operation, .. }
            | Event::PromiseSettled { operation, .. }
            | Event::ActivityCompleted { operation, .. }
            | Event::ActivityFailed { operation, .. }
            | Event::TimerFired { operation }
            | Event::OperationCancelled { operation } => {
                return self.pending.remove(*operation).map(|(pending, _)| pending);
            }
            Event::RunSignalReceived { sender, .. } => self.remember_sender(**sender),
            Event::SignalReceived { request, .. } => {
                if let Some(request) = request {
                    self.remember_signal_request(request);
                }
            }
            Event::ValueRecorded { .. } | Event::Patched { .. } => {}
            Event::UpdateAccepted { request, .. } => {
                let updates = &mut self.remembered.get_or_insert_default().updates;
                updates
                    .standings
                    .insert(request.clone(), UpdateStanding::Accepted);
            }
            Event::UpdateAnswered { request, answer } => self.answer(request, answer),
            Event::CommandPerformed(performed) => {
                if let Some(request) = &performed.request {
                    self.answer(request, &Ok(performed.answer.clone()));
                }
            }
            Event::CancelRequested { .. } => self.is_cancel_requested = true,
            Event::Completed { .. }
            | Event::Failed { .. }
            | Event::Cancelled { .. }
            | Event::ContinuedAsNew { .. }
            | Event::Terminated { .. }
            | Event::TimedOut { .. }
            | Event::Reset { .. } => {
                self.outcome = Outcome::of(event);
                self.pending.clear();
                self.parked = None;
            }
            Event::Parked { reason } => self.parked = Some(Box::new((reason.clone(), time))),
            Event::Resumed => self.parked = None,
            Event::VersionChanged { version } => self.version = *version,
        }
        None
    }

    fn answer(&mut self, request: &str, answer: &Result<Payload, String>) {
        let standing = UpdateStanding::Answered(answer.clone());
        let updates = &mut self.remembered.get_or_insert_default().updates;
        let former = updates.standings.insert(request.into(), standing);
        updates.bytes += answer_bytes(request, answer);
        if let Some(UpdateStanding::Answered(former)) = former {
            updates.bytes -= answer_bytes(request, &former);
            return;
        }
        updates.answered.push_back(request.into());
        if updates.answered.len() > ANSWERS_LEN_MAX
            && let Some(oldest) = updates.answered.pop_front()
            && let Some(UpdateStanding::Answered(former)) = updates.standings.remove(&oldest)
        {
            updates.bytes -= answer_bytes(&oldest, &former);
        }
    }

    fn updates(&self) -> Option<&Updates> {
        self.remembered.as_ref().map(|remembered| &remembered.updates)
    }

    /// The state of an update, by its request; `None` if it is not known, or is one of the [oldest](ANSWERS_LEN_MAX).
    #[must_use]
    pub fn update(&self, request: &str) -> Option<&UpdateStanding> {
        self.updates()?.standings.get(request)
    }

    /// The remembered answers to updates, with their requests, the oldest first: at most the last [`ANSWERS_LEN_MAX`].
    pub fn answered_updates(&self) -> impl Iterator<Item = (&str, &Result<Payload, String>)> {
        let updates = self.updates();
        updates.into_iter().flat_map(|updates| {
            updates
                .answered
                .iter()
                .filter_map(|request| match updates.standings.get(request) {
                    Some(UpdateStanding::Answered(answer)) => Some((request.as_str(), answer)),
                    Some(UpdateStanding::Accepted) | None => None,
                })
        })
    }

    /// The approximate memory for the answers to updates, in bytes.
    pub(crate) fn answers_memory_bytes(&self) -> usize {
        // Each request is stored twice, with each answer.
        const ANSWER_BYTES: usize = 128;
        self.updates()
            .map_or(0, |updates| updates.answered.len() * ANSWER_BYTES + updates.bytes)
    }

    /// The latest answers that together have at most `bytes_max` bytes, the oldest first.
    pub(crate) fn answers(&self, bytes_max: usize) -> Vec<(String, Result<Payload, String>)> {
        let Some(updates) = self.updates() else {
            return Vec::new();
        };
        let mut bytes = 0;
        let latest = updates.answered.iter().rev().map_while(|request| {
            let Some(UpdateStanding::Answered(answer)) = updates.standings.get(request) else {
                return None;
            };
            bytes += answer_bytes(request, answer);
            (bytes <= bytes_max).then(|| (request.clone(), answer.clone()))
        });
        let mut answers: Vec<_> = latest.collect();
        answers.reverse();
        answers
    }

    /// The sequence of the last event.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// The number of events behind the last checkpoint, which the limits count.
    #[must_use]
    pub fn history_len(&self) -> u64 {
        self.sequence.get() - self.checkpoint.get()
    }

    /// How the run began; `None` before its first event.
    #[must_use]
    pub fn started(&self) -> Option<&Started> {
        self.started.as_ref().map(|(started, _)| started)
    }

    /// The [version](crate::Workflow::version) of the run's code: the one that it began with, or the one to which it has
    /// moved since.
    #[must_use]
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Since when a run gets records of topics in which it has no place yet: when it, or its first try, began.
    fn topics_since(&self) -> Timestamp {
        let run_try = self.started().and_then(Started::run_try);
        run_try
            .and_then(|run_try| run_try.since)
            .unwrap_or_else(|| self.started_at())
    }

    /// When the run began.
    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        self.started.as_ref().map_or(Timestamp::EPOCH, |(_, time)| *time)
    }

    /// When the run is out of time, if that is bounded and it has not ended.
    #[must_use]
    pub fn deadline(&self) -> Option<RunDeadline> {
        let (started, began) = self.started.as_ref()?;
        let is_live = self.outcome.is_none();
        started.deadline(*began).filter(|_| is_live)
    }

    /// The pending operations, in the order in which the code issued them.
    pub fn pending(&self) -> impl Iterator<Item = (OperationId, &Pending)> {
        self.pending
            .iter()
            .map(|(operation, (pending, _))| (operation, pending))
    }

    /// An operation, if it is pending.
    #[must_use]
    pub fn pending_operation(&self, operation: OperationId) -> Option<&Pending> {
        self.pending.get(operation).map(|(pending, _)| pending)
    }

    /// When a pending operation was issued.
    #[must_use]
    pub fn pending_since(&self, operation: OperationId) -> Option<Timestamp> {
        self.pending.get(operation).map(|(_, since)| *since)
    }

    /// When the last event was recorded: the code has waited at least since then.
    #[must_use]
    pub fn last_at(&self) -> Timestamp {
        self.last_at
    }

    /// The number of pending operations.
    #[must_use]
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Why the code does not run, and since when.
    #[must_use]
    pub fn parked(&self) -> Option<(&ParkReason, Timestamp)> {
        self.parked.as_ref().map(|parked| (&parked.0, parked.1))
    }

    /// Whether the run was asked to cancel.
    #[must_use]
    pub fn is_cancel_requested(&self) -> bool {
        self.is_cancel_requested
    }

    /// How the run ended.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }
}
