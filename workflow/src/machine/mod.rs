//! One run as a pure machine: an input and the time go in, a turn comes out.
//!
//! ```text
//!                 start                      last decision, or Terminate
//!   (nothing) ───────────► Running ─────────────────────────────────────► Closed
//!        │                  │   ▲                                            ▲
//!        │ not registered   │   │ Resume: the code is replayed, then takes   │ Terminate
//!        │     panic, stuck,│   │ up the inputs recorded meanwhile           │
//!        │     does not fit ▼   │                                            │
//!        └─────────────────► Parked ─────────────────────────────────────────┘
//!                             inputs are recorded, the code does not run
//! ```
//!
//! Invariants:
//! - One event is applied, then the code is polled until nothing wakes it, live and in replay
//!   alike. The history is therefore a sequence of one input followed by the decisions it led to.
//! - A refused input leaves the machine as it was.
//! - The machine reads no clock, rolls no dice, does no IO and starts nothing: time and the
//!   owner's epoch come in with each input.
//!
//! What it leaves out on purpose: when its turn becomes durable, and who performs its commands.

mod code;
mod replay;

use std::sync::Arc;
use std::time::Duration;

use millrun_core::{RunId, Sequence, Timestamp};

use crate::context::{Resolution, Shared};
use crate::event::{ActivityFailure, ActivityScheduled, Event, Name, ParkReason, Started};
use crate::ledger::{Ledger, Outcome, Pending, PendingActivity};
use crate::registry::Implementation;
use crate::{OperationId, Payload};

pub use replay::ReplayError;

use code::{Polled, RunningCode};

/// Bounds of one run. What happens at each is said at its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest payload in bytes, 1 MiB by default: a larger input of a call gives
    /// [`CallError::TooLarge`](crate::CallError::TooLarge), a larger signal is refused.
    pub payload_bytes_max: usize,
    /// How many operations one run may have outstanding, 10,000 by default: one more call gives
    /// [`CallError::TooManyPending`](crate::CallError::TooManyPending).
    pub pending_len_max: usize,
    /// How many signals may wait in a run's buffer, 10,000 by default: one more is refused.
    pub signals_len_max: usize,
    /// How many events a history may have before signals are refused, 1,000,000 by default. What
    /// the code has already begun is still recorded.
    pub history_len_max: u64,
    /// How many times in a row code may panic before it is brought back no more, 5 by default.
    pub panics_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: 1 << 20,
            pending_len_max: 10_000,
            signals_len_max: 10_000,
            history_len_max: 1_000_000,
            panics_max: 5,
        }
    }
}

/// What the world says while an input is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// The epoch in which the run's partition is owned.
    pub epoch: u64,
}

/// What one input made of an instance. The events become durable first; only then are the
/// commands performed.
#[derive(Debug, Default, PartialEq)]
#[must_use]
pub struct Turn {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// What is to be done about it, in order.
    pub commands: Vec<Command>,
}

/// Something the world is asked to do, once the events of its turn are durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Run an activity and report how the attempt went.
    RunActivity {
        /// The call.
        scheduled: Arc<ActivityScheduled>,
        /// The number of the attempt.
        attempt: u32,
    },
    /// Tell an activity to stop; nobody waits for its report.
    CancelActivity {
        /// The call.
        operation: OperationId,
    },
    /// Report [`Input::TimerFired`] at the deadline, not before.
    StartTimer {
        /// The timer, or the call whose next attempt is due then.
        operation: OperationId,
        /// When.
        deadline: Timestamp,
    },
    /// Forget a timer.
    CancelTimer {
        /// The timer.
        operation: OperationId,
        /// Its deadline.
        deadline: Timestamp,
    },
    /// Report [`Input::Resume`] at this time.
    ResumeAt {
        /// When.
        at: Timestamp,
    },
    /// The code does not run until it is resumed: tell those who wait for the result.
    Park(ParkReason),
    /// The run has ended: tell those who wait for the result.
    Close(Outcome),
}

/// What may be told to an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A signal arrived.
    Signal {
        /// Its name.
        name: Name,
        /// What it carries.
        value: Payload,
    },
    /// An attempt of an activity gave a value.
    ActivityCompleted {
        /// The call.
        operation: OperationId,
        /// Which attempt.
        attempt: u32,
        /// The value.
        result: Payload,
    },
    /// An attempt of an activity failed.
    AttemptFailed {
        /// The call.
        operation: OperationId,
        /// Which attempt.
        attempt: u32,
        /// What happened.
        failure: ActivityFailure,
        /// Whether another attempt may help.
        is_retryable: bool,
    },
    /// A deadline passed.
    TimerFired {
        /// The timer, or the call whose next attempt is due.
        operation: OperationId,
    },
    /// Somebody asks the run to cancel.
    Cancel {
        /// Why.
        reason: String,
    },
    /// Somebody ends the run, without its code.
    Terminate {
        /// Why.
        reason: String,
    },
    /// The code shall run again.
    Resume,
}

/// Why an input changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The run has ended.
    #[error("the run has ended")]
    Closed,
    /// It came late or twice: the operation has ended, or another attempt is under way.
    #[error("the report is out of date")]
    Stale,
    /// The run has as many unread signals as one may have.
    #[error("the run has {len_max} unread signals, its limit: it must take some first")]
    TooManySignals {
        /// The limit, `signals_len_max`.
        len_max: usize,
    },
    /// The value is larger than a payload may be.
    #[error("the value has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit, `payload_bytes_max`.
        bytes_max: usize,
    },
    /// The history is as long as one may be.
    #[error("the history has {len_max} events, its limit: end this run and start another")]
    HistoryFull {
        /// The limit, `history_len_max`.
        len_max: u64,
    },
    /// The code cannot be brought back: the reason still holds.
    #[error("the run stays parked: {0}")]
    StillParked(String),
}

/// One run: its history's [`Ledger`], and its code as far as it is at hand.
#[derive(Debug)]
pub struct Instance {
    run: RunId,
    limits: Limits,
    ledger: Ledger,
    shared: Arc<Shared>,
    code: Option<RunningCode>,
    /// Why the code does not run although no event says so: it is not registered, or a replay
    /// has just failed. Becomes an event with the next input.
    unrecorded: Option<ParkReason>,
    /// Inputs recorded while the code did not run.
    deferred: Vec<(Event, Timestamp)>,
    /// Values that a replay encoded differently than the history has them.
    changed_values: u64,
}

impl Instance {
    /// Begins a run. The first turn holds its [`Event::Started`] and what the code made of it.
    ///
    /// Without an implementation the run waits, parked, until one is there.
    pub fn start(
        implementation: Option<&Implementation>,
        run: RunId,
        started: Started,
        limits: Limits,
        moment: Moment,
        turn: &mut Turn,
    ) -> Self {
        let mut instance = Self::empty(run, limits, moment.now);
        let event = Event::Started(started);
        instance.ledger.apply(&event, moment.now);
        turn.events.push(event.clone());
        instance.attach(implementation);
        instance.take_up(event, moment, turn);
        instance
    }

    fn empty(run: RunId, limits: Limits, now: Timestamp) -> Self {
        Self {
            run,
            limits,
            ledger: Ledger::new(),
            shared: Arc::new(Shared::new(run, limits, now)),
            code: None,
            unrecorded: None,
            deferred: Vec::new(),
            changed_values: 0,
        }
    }

    /// Makes the code ready to be polled, or notes why there is none.
    fn attach(&mut self, implementation: Option<&Implementation>) {
        let started = self.ledger.started().expect("called after the first event");
        match implementation {
            Some(implementation) => {
                self.code = Some(RunningCode::new(
                    implementation,
                    &self.shared,
                    started.input.clone(),
                ));
            }
            None => {
                self.unrecorded = Some(ParkReason::NotRegistered {
                    workflow: started.workflow.to_string(),
                })
            }
        }
    }

    /// Applies an input, and appends what it led to.
    ///
    /// # Errors
    /// When the input is out of place. The machine and the turn are then as they were.
    pub fn apply(&mut self, input: Input, moment: Moment, turn: &mut Turn) -> Result<(), Refused> {
        if self.ledger.outcome().is_some() {
            return Err(Refused::Closed);
        }
        let event = match input {
            Input::Signal { name, value } => {
                self.check_signal(&value)?;
                Event::SignalReceived { name, value }
            }
            Input::ActivityCompleted {
                operation,
                attempt,
                result,
            } => {
                self.check_report(operation, attempt)?;
                Event::ActivityCompleted {
                    operation,
                    attempt,
                    result,
                }
            }
            Input::AttemptFailed {
                operation,
                attempt,
                failure,
                is_retryable,
            } => match self.retry(operation, attempt, &failure, is_retryable, moment)? {
                Some((event, command)) => {
                    self.ledger.apply(&event, moment.now);
                    turn.events.push(event);
                    turn.commands.push(command);
                    return Ok(());
                }
                None => Event::ActivityFailed {
                    operation,
                    attempt,
                    failure,
                },
            },
            Input::TimerFired { operation } => match self.ledger.pending_operation(operation) {
                Some(Pending::Timer { deadline }) if *deadline <= moment.now => {
                    Event::TimerFired { operation }
                }
                Some(Pending::Activity(activity)) => {
                    if activity.retry_at.is_none_or(|at| at > moment.now) {
                        return Err(Refused::Stale);
                    }
                    let (scheduled, attempt) =
                        (Arc::clone(&activity.scheduled), activity.attempt(moment.epoch));
                    turn.commands.push(Command::RunActivity { scheduled, attempt });
                    return Ok(());
                }
                Some(Pending::Timer { .. }) | None => return Err(Refused::Stale),
            },
            Input::Cancel { reason } => {
                if self.ledger.is_cancel_requested() {
                    return Ok(());
                }
                Event::CancelRequested { reason }
            }
            Input::Terminate { reason } => {
                self.end(Event::Terminated { reason }, moment.now, turn);
                return Ok(());
            }
            Input::Resume => return self.resume(moment, turn),
        };
        self.record_parking(moment, turn);
        self.ledger.apply(&event, moment.now);
        turn.events.push(event.clone());
        self.take_up(event, moment, turn);
        Ok(())
    }

    fn check_signal(&self, value: &Payload) -> Result<(), Refused> {
        let Limits {
            payload_bytes_max,
            signals_len_max,
            history_len_max,
            ..
        } = self.limits;
        if value.len() > payload_bytes_max {
            return Err(Refused::TooLarge {
                bytes: value.len(),
                bytes_max: payload_bytes_max,
            });
        }
        if self.shared.lock().buffered_signals_len() + self.deferred.len() >= signals_len_max {
            return Err(Refused::TooManySignals {
                len_max: signals_len_max,
            });
        }
        if self.ledger.sequence().get() >= history_len_max {
            return Err(Refused::HistoryFull {
                len_max: history_len_max,
            });
        }
        Ok(())
    }

    /// A report counts if its call is pending and it is not of an attempt already given up.
    fn check_report(&self, operation: OperationId, attempt: u32) -> Result<(), Refused> {
        match self.ledger.pending_operation(operation) {
            Some(Pending::Activity(activity)) if attempt > activity.failed_attempt => Ok(()),
            Some(Pending::Activity(_) | Pending::Timer { .. }) | None => Err(Refused::Stale),
        }
    }

    /// Decides whether a failed attempt is followed by another.
    fn retry(
        &self,
        operation: OperationId,
        attempt: u32,
        failure: &ActivityFailure,
        is_retryable: bool,
        moment: Moment,
    ) -> Result<Option<(Event, Command)>, Refused> {
        self.check_report(operation, attempt)?;
        let Some(Pending::Activity(activity)) = self.ledger.pending_operation(operation) else {
            return Err(Refused::Stale);
        };
        let failures = activity.failures + 1;
        let pause = activity
            .scheduled
            .retry
            .pause_after(failures, self.run, operation);
        let Some(pause) = pause.filter(|_| is_retryable) else {
            return Ok(None);
        };
        let retry_at = moment.now + pause;
        let event = Event::AttemptFailed {
            operation,
            attempt,
            failure: failure.clone(),
            retry_at,
            epoch: moment.epoch,
        };
        Ok(Some((
            event,
            Command::StartTimer {
                operation,
                deadline: retry_at,
            },
        )))
    }

    /// Shows a recorded input to the code, polls it, and appends its decisions.
    fn take_up(&mut self, event: Event, moment: Moment, turn: &mut Turn) {
        if self.code.is_none() || self.ledger.parked().is_some() {
            self.deferred.push((event, moment.now));
            self.record_parking(moment, turn);
            return;
        }
        match self.run_code(&event, moment) {
            Ok(()) => self.adopt_decisions(moment.now, turn),
            Err(reason) => {
                // The history looks as if the code had not run: first the parking, then the input
                // it stumbled over. Only a run's first event cannot be second.
                let at = turn.events.len() - usize::from(!matches!(event, Event::Started(_)));
                let parked = Event::Parked {
                    reason: reason.clone(),
                };
                self.ledger.apply(&parked, moment.now);
                turn.events.insert(at, parked);
                self.deferred.push((event, moment.now));
                self.announce_parking(reason, moment, turn);
            }
        }
    }

    /// Delivers one event to the code and polls it until nothing wakes it. What it decided is in
    /// the table afterwards.
    fn run_code(&mut self, event: &Event, moment: Moment) -> Result<(), ParkReason> {
        let code = self
            .code
            .as_mut()
            .expect("the caller has seen that the code is at hand");
        let mut table = self.shared.lock();
        table.now = moment.now;
        table.epoch = moment.epoch;
        let wakers = match event {
            Event::ActivityCompleted {
                operation, result, ..
            } => table
                .resolve(*operation, Resolution::Value(result.clone()))
                .into_iter()
                .collect(),
            Event::ActivityFailed {
                operation, failure, ..
            } => table
                .resolve(*operation, Resolution::Failure(failure.clone()))
                .into_iter()
                .collect(),
            Event::TimerFired { operation } => {
                table.resolve(*operation, Resolution::Fired).into_iter().collect()
            }
            Event::SignalReceived { name, value } => table.deliver(name, value.clone()),
            Event::CancelRequested { .. } => table.request_cancel(),
            Event::Started(_)
            | Event::ActivityScheduled(_)
            | Event::AttemptFailed { .. }
            | Event::TimerStarted { .. }
            | Event::OperationCancelled { .. }
            | Event::Completed { .. }
            | Event::Failed { .. }
            | Event::Cancelled { .. }
            | Event::Terminated { .. }
            | Event::Parked { .. }
            | Event::Resumed => Vec::new(),
        };
        drop(table);
        let is_first = matches!(event, Event::Started(_));
        let failure = match code.poll(&self.shared, wakers, is_first) {
            Polled::Waiting => return Ok(()),
            Polled::Finished(result) => {
                let event = match result {
                    Ok(result) => Event::Completed { result },
                    Err(error) if error.is_cancelled && self.ledger.is_cancel_requested() => {
                        Event::Cancelled { error }
                    }
                    Err(error) => Event::Failed { error },
                };
                self.shared.lock().decide(event);
                self.code = None;
                return Ok(());
            }
            Polled::Stuck(message) => ParkReason::Stuck { message },
            Polled::Panicked(message) => ParkReason::Panicked { message, count: 1 },
        };
        self.code = None;
        self.shared.lock().take_decisions(&mut Vec::new());
        Err(failure)
    }

    /// Turns what the code decided into events and commands.
    fn adopt_decisions(&mut self, now: Timestamp, turn: &mut Turn) {
        let mut decisions = Vec::new();
        self.shared.lock().take_decisions(&mut decisions);
        for decision in decisions {
            let event = decision.event;
            if event.is_last() {
                self.end(event, now, turn);
                return;
            }
            match &event {
                Event::ActivityScheduled(scheduled) => {
                    turn.commands.push(Command::RunActivity {
                        scheduled: Arc::clone(scheduled),
                        attempt: 1,
                    });
                }
                Event::TimerStarted { operation, deadline } => {
                    turn.commands.push(Command::StartTimer {
                        operation: *operation,
                        deadline: *deadline,
                    });
                }
                Event::OperationCancelled { operation } => {
                    turn.commands.extend(self.cancel_command(*operation));
                }
                other => unreachable!("{} is no decision", other.label()),
            }
            self.ledger.apply(&event, now);
            turn.events.push(event);
        }
    }

    /// What undoes a pending operation.
    fn cancel_command(&self, operation: OperationId) -> Option<Command> {
        self.ledger
            .pending_operation(operation)
            .map(|pending| match pending {
                Pending::Activity(PendingActivity {
                    retry_at: Some(deadline),
                    ..
                })
                | Pending::Timer { deadline } => Command::CancelTimer {
                    operation,
                    deadline: *deadline,
                },
                Pending::Activity(PendingActivity { retry_at: None, .. }) => {
                    Command::CancelActivity { operation }
                }
            })
    }

    /// Ends the run: cancels what is outstanding, in the order in which it was issued.
    fn end(&mut self, event: Event, now: Timestamp, turn: &mut Turn) {
        let outstanding: Vec<_> = self.ledger.pending().map(|(operation, _)| operation).collect();
        turn.commands.extend(
            outstanding
                .into_iter()
                .filter_map(|operation| self.cancel_command(operation)),
        );
        self.ledger.apply(&event, now);
        turn.commands
            .extend(self.ledger.outcome().cloned().map(Command::Close));
        turn.events.push(event);
        self.code = None;
        self.unrecorded = None;
        self.deferred = Vec::new();
    }

    /// Takes up, one by one, the inputs recorded while the code did not run. If the code fails
    /// again, all stays as it was but for the new reason.
    fn resume(&mut self, moment: Moment, turn: &mut Turn) -> Result<(), Refused> {
        let Some((reason, _)) = self.ledger.parked() else {
            return self
                .unrecorded
                .as_ref()
                .map_or(Ok(()), |reason| Err(Refused::StillParked(reason.to_string())));
        };
        if self.code.is_none() {
            let reason = self.unrecorded.as_ref().unwrap_or(reason);
            return Err(Refused::StillParked(reason.to_string()));
        }
        let before = self.ledger.clone();
        let marks = (turn.events.len(), turn.commands.len());
        self.ledger.apply(&Event::Resumed, moment.now);
        turn.events.push(Event::Resumed);
        let deferred = std::mem::take(&mut self.deferred);
        for (event, time) in &deferred {
            if self.ledger.outcome().is_some() {
                break;
            }
            let then = Moment { now: *time, ..moment };
            match self.run_code(event, then) {
                Ok(()) => self.adopt_decisions(moment.now, turn),
                Err(reason) => {
                    let reason = counted_after(reason, &before);
                    self.ledger = before;
                    turn.events.truncate(marks.0);
                    turn.commands.truncate(marks.1);
                    self.deferred = deferred;
                    let parked = Event::Parked {
                        reason: reason.clone(),
                    };
                    self.ledger.apply(&parked, moment.now);
                    turn.events.push(parked);
                    self.announce_parking(reason, moment, turn);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// If the code is not at hand and no event says so yet, one does from now on: what follows
    /// it is recorded without running the code, and a replay must know.
    fn record_parking(&mut self, moment: Moment, turn: &mut Turn) {
        if let Some(reason) = self.unrecorded.take() {
            let event = Event::Parked {
                reason: reason.clone(),
            };
            self.ledger.apply(&event, moment.now);
            turn.events.push(event);
            self.announce_parking(reason, moment, turn);
        }
    }

    fn announce_parking(&self, reason: ParkReason, moment: Moment, turn: &mut Turn) {
        if let Some(at) = self.limits.resume_at(&reason, moment.now) {
            turn.commands.push(Command::ResumeAt { at });
        } else {
            turn.commands.push(Command::Park(reason));
        }
    }

    /// The identity of the run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }

    /// What the history says.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The sequence of the last event.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.ledger.sequence()
    }

    /// Why the code does not run, recorded or not.
    #[must_use]
    pub fn park_reason(&self) -> Option<&ParkReason> {
        self.unrecorded
            .as_ref()
            .or_else(|| self.ledger.parked().map(|(reason, _)| reason))
    }

    /// Signals that the code waits for, by name.
    #[must_use]
    pub fn awaited_signals(&self) -> Vec<String> {
        self.shared.lock().awaited_signals()
    }

    /// How many values the last replay encoded differently than the history has them: harmless
    /// for an added field, worth a look otherwise.
    #[must_use]
    pub fn changed_values(&self) -> u64 {
        self.changed_values
    }
}

impl Limits {
    /// When a run that was parked at `since` is brought back by itself: after a panic, with a
    /// pause of one second that doubles up to a minute, until [`Limits::panics_max`] is reached.
    #[must_use]
    pub fn resume_at(&self, reason: &ParkReason, since: Timestamp) -> Option<Timestamp> {
        match reason {
            ParkReason::Panicked { count, .. } if *count < self.panics_max => {
                let pause = Duration::from_secs(1).saturating_mul(1 << (count - 1).min(6));
                Some(since + pause.min(Duration::from_secs(60)))
            }
            ParkReason::Panicked { .. }
            | ParkReason::NotRegistered { .. }
            | ParkReason::Nondeterminism(_)
            | ParkReason::Stuck { .. } => None,
        }
    }
}

/// The same reason, counting on from the panics that `before` ended with.
fn counted_after(reason: ParkReason, before: &Ledger) -> ParkReason {
    match (reason, before.parked()) {
        (ParkReason::Panicked { message, .. }, Some((ParkReason::Panicked { count, .. }, _))) => {
            ParkReason::Panicked {
                message,
                count: count + 1,
            }
        }
        (reason, _) => reason,
    }
}

#[cfg(test)]
mod tests;
