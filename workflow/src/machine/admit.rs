//! What an input becomes: whether it is let in, and the event it turns into.
//!
//! ```text
//!   Input ── out of place? ──► InputRefused       nothing has changed
//!     │
//!     ├── concerns the engine alone ──► an event  the code does not hear of it
//!     │
//!     └── concerns the code ──► an event ──► the code is polled
//! ```
//!
//! Everything that can refuse an input is looked at before anything changes.

use std::time::Duration;

use millrun_core::Timestamp;

use super::{Command, Input, InputRefused, Instance, Limits, Moment, Turn};
use crate::context::keep_request;
use crate::event::{ActivityFailure, Event, Name, ParkReason, Started};
use crate::ledger::Pending;
use crate::{NAME_BYTES_MAX, OperationId, Payload, Retry, TimeoutKind};

impl Instance {
    /// Applies an input, and appends what it led to.
    ///
    /// # Errors
    /// When the input is out of place. The machine and the turn are then as they were.
    pub fn apply(&mut self, input: Input, moment: Moment, turn: &mut Turn) -> Result<(), InputRefused> {
        match &input {
            Input::RunSignal { sender, .. } if self.ledger.knows_sender(sender) => return Ok(()),
            Input::Signal {
                request: Some(request),
                ..
            } if self.ledger.knows_signal_request(request) => return Ok(()),
            _ => {}
        }
        if self.ledger.outcome().is_some() {
            return Err(self.refuse_closed(&input));
        }
        let event = match input {
            Input::Signal {
                name,
                value,
                cause,
                request,
            } => {
                if let Some(request) = &request {
                    check_name(request)?;
                }
                self.check_signal(&name, &value)?;
                Event::SignalReceived {
                    name,
                    value,
                    cause,
                    request,
                }
            }
            Input::RunSignal { sender, name, value } => {
                self.check_signal(&name, &value)?;
                Event::RunSignalReceived { sender, name, value }
            }
            Input::SignalSent { operation, outcome } => match self.ledger.pending_operation(operation) {
                Some(Pending::Signal(_)) => Event::SignalSent {
                    operation,
                    outcome: outcome.map_err(|failure| self.limits.bounded_signal(failure)),
                },
                Some(_) | None => return Err(InputRefused::Stale),
            },
            Input::ActivityCompleted {
                operation,
                attempt,
                result,
            } => {
                self.check_report(operation, attempt)?;
                match self.limits.oversize("result", &result) {
                    Some(message) => Event::ActivityFailed {
                        operation,
                        attempt,
                        failure: ActivityFailure::Unreadable { message },
                    },
                    None => Event::ActivityCompleted {
                        operation,
                        attempt,
                        result,
                    },
                }
            }
            Input::AttemptFailed {
                operation,
                attempt,
                failure,
                is_retryable,
                kind,
                retry_after,
            } => {
                let kind = failure.kind(kind.as_deref());
                let policy = self.policy_of(operation, attempt, is_retryable, kind, moment)?;
                let retry_at = policy.and_then(|retry| self.retry_at(operation, &retry, retry_after, moment));
                let failure = self.limits.bounded_failure(failure);
                if let Some(retry_at) = retry_at {
                    let event = Event::AttemptFailed {
                        operation,
                        attempt,
                        failure,
                        retry_at,
                        epoch: moment.epoch,
                    };
                    self.note(event, moment, turn);
                    turn.commands.push(Command::StartTimer {
                        operation,
                        deadline: retry_at,
                    });
                    return Ok(());
                }
                Event::ActivityFailed {
                    operation,
                    attempt,
                    failure,
                }
            }
            Input::AttemptStarted { operation, attempt } => {
                self.check_report(operation, attempt)?;
                self.note(Event::AttemptStarted { operation, attempt }, moment, turn);
                return Ok(());
            }
            Input::Heartbeat {
                operation,
                attempt,
                details,
            } => {
                self.check_report(operation, attempt)?;
                self.check_size(&details)?;
                let event = Event::AttemptHeartbeat {
                    operation,
                    attempt,
                    details,
                };
                self.note(event, moment, turn);
                return Ok(());
            }
            Input::TimerFired { operation } => match self.ledger.pending_operation(operation) {
                Some(Pending::Timer { deadline }) if *deadline <= moment.now => {
                    Event::TimerFired { operation }
                }
                Some(Pending::Timer { deadline }) => {
                    return ask_again(operation, [Some(*deadline), None], turn);
                }
                Some(Pending::Activity(activity)) => {
                    let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= moment.now);
                    let attempt = activity.attempt(moment.epoch);
                    if is_due(activity.close_at) {
                        Event::ActivityFailed {
                            operation,
                            attempt,
                            failure: ActivityFailure::TimedOut(TimeoutKind::ScheduleToClose),
                        }
                    } else if is_due(activity.retry_at) {
                        let since = self.ledger.pending_since(operation).unwrap_or(moment.now);
                        turn.commands.push(activity.run(since, moment.epoch));
                        return Ok(());
                    } else {
                        return ask_again(operation, [activity.retry_at, activity.close_at], turn);
                    }
                }
                Some(
                    Pending::Child { .. }
                    | Pending::Publish { .. }
                    | Pending::Receive { .. }
                    | Pending::Signal(_)
                    | Pending::Promise,
                )
                | None => {
                    return Err(InputRefused::Stale);
                }
            },
            Input::ChildStarted { operation, run } => {
                match self.ledger.pending_operation(operation) {
                    Some(Pending::Child { run: None, .. }) => {
                        self.note(Event::ChildStarted { operation, run }, moment, turn);
                        if self.is_entity() {
                            self.leave_child(operation, moment, turn);
                        }
                    }
                    Some(Pending::Child { .. }) => {}
                    Some(_) | None => return Err(InputRefused::Stale),
                }
                return Ok(());
            }
            Input::ChildEnded { operation, end } => match self.ledger.pending_operation(operation) {
                Some(Pending::Child { .. }) => Event::ChildEnded {
                    operation,
                    end: self.limits.bounded_child(end),
                },
                Some(_) | None => return Err(InputRefused::Stale),
            },
            Input::PublishParked { operation } => {
                match self.ledger.pending_operation(operation) {
                    Some(Pending::Publish { is_parked: false, .. }) => {
                        self.note(Event::PublishParked { operation }, moment, turn);
                    }
                    Some(Pending::Publish { .. }) => {}
                    Some(_) | None => return Err(InputRefused::Stale),
                }
                return Ok(());
            }
            Input::Published { operation, outcome } => match self.ledger.pending_operation(operation) {
                Some(Pending::Publish { .. }) => Event::Published {
                    operation,
                    outcome: outcome.map_err(|message| self.limits.cut(message)),
                },
                Some(_) | None => return Err(InputRefused::Stale),
            },
            Input::RecordReceived { operation, record } => match self.ledger.pending_operation(operation) {
                Some(Pending::Receive { scheduled, .. }) if scheduled.is_met_by(&record) => {
                    Event::RecordReceived { operation, record }
                }
                Some(_) | None => return Err(InputRefused::Stale),
            },
            Input::EndPromise { operation, end } => match self.ledger.pending_operation(operation) {
                Some(Pending::Promise) => {
                    if let Ok(value) = &end {
                        self.check_size(value)?;
                    }
                    Event::PromiseSettled {
                        operation,
                        end: end.map_err(|message| self.limits.cut(message)),
                    }
                }
                Some(_) | None => return Err(InputRefused::Stale),
            },
            Input::Pause { reason } => {
                // One that is delayed would begin by itself.
                if matches!(self.park_reason(), None | Some(ParkReason::Delayed { .. })) {
                    let reason = ParkReason::Paused {
                        reason: self.limits.cut(reason),
                    };
                    let parked = Event::Parked {
                        reason: reason.clone(),
                    };
                    self.note(parked, moment, turn);
                    self.announce_parking(reason, moment, turn);
                }
                return Ok(());
            }
            Input::Update { request, name, input } => match self.admit_update(request, name, input)? {
                Some(event) => event,
                None => return Ok(()),
            },
            Input::Command { request, name, input } => self.admit_command(request, name, &input, moment)?,
            Input::Cancel { reason } => {
                if self.ledger.is_cancel_requested() {
                    return Ok(());
                }
                let reason = self.limits.cut(reason);
                let is_shown = self.ledger.started().is_some_and(Started::shows_reasons);
                if self.delayed_until(moment.now).is_some() {
                    // No code has begun that could answer with an error of its own, and there is nothing to undo.
                    let text = format!("cancelled before it began: {reason}");
                    self.note(Event::CancelRequested { reason, is_shown }, moment, turn);
                    let reason = self.limits.cut(text);
                    self.end(Event::Terminated { reason }, moment.now, turn);
                    return Ok(());
                }
                Event::CancelRequested { reason, is_shown }
            }
            Input::Terminate { reason } => {
                let reason = self.limits.cut(reason);
                self.end(Event::Terminated { reason }, moment.now, turn);
                return Ok(());
            }
            Input::TimeOut => return self.time_out(moment, turn),
            Input::Reset { run, to, reason } => {
                let reason = self.limits.cut(reason);
                self.end(Event::Reset { run, to, reason }, moment.now, turn);
                return Ok(());
            }
            Input::Resume => return self.resume(moment, turn),
            Input::ChangeVersion => {
                let code = self.implementation.as_ref().filter(|_| self.code.is_some());
                let version = code.ok_or(InputRefused::Stale)?.version();
                if version != self.ledger.version() {
                    self.note(Event::VersionChanged { version }, moment, turn);
                }
                return Ok(());
            }
        };
        self.check_history();
        self.record_parking(moment, turn);
        self.settle(&event, turn);
        self.note_refused(&event);
        if let Some(Pending::Activity(ended)) = self.ledger.take_in(&event, moment.now) {
            keep_request(ended.scheduled);
        }
        if let Event::RunSignalReceived { .. } = &event {
            self.ledger
                .forget_senders(usize::from(self.limits.senders_len_max));
        }
        turn.events.push(event);
        self.take_up(moment, turn);
        Ok(())
    }

    fn check_signal(&self, name: &Name, value: &Payload) -> Result<(), InputRefused> {
        let signals_len_max = self.limits.signals_len_max;
        check_name(name)?;
        self.check_command_signal(name)?;
        if self.shared.lock().buffered_signals_len() + self.deferred.len() >= signals_len_max {
            return Err(InputRefused::TooManySignals {
                len_max: signals_len_max,
            });
        }
        self.check_size(value)
    }

    /// Whether there is room for a value from outside.
    pub(super) fn check_size(&self, value: &Payload) -> Result<(), InputRefused> {
        let Limits {
            payload_bytes_max,
            history_len_max,
            ..
        } = self.limits;
        if value.len() > payload_bytes_max {
            return Err(InputRefused::TooLarge {
                bytes: value.len(),
                bytes_max: payload_bytes_max,
            });
        }
        if self.ledger.history_len() >= history_len_max {
            return Err(InputRefused::HistoryFull {
                len_max: history_len_max,
            });
        }
        Ok(())
    }

    /// The history is twice as long as one should be: the code runs no more.
    fn check_history(&mut self) {
        let len_max = self.limits.history_len_max.saturating_mul(2);
        if self.code.is_some() && self.ledger.parked().is_none() && self.ledger.history_len() >= len_max {
            self.code = None;
            self.unrecorded = Some(Box::new(ParkReason::HistoryFull { len_max }));
        }
    }

    /// A report counts if its call is pending and it is not of an attempt already given up.
    fn check_report(&self, operation: OperationId, attempt: u32) -> Result<(), InputRefused> {
        match self.ledger.pending_operation(operation) {
            Some(Pending::Activity(activity)) if attempt > activity.failed_attempt => Ok(()),
            Some(_) | None => Err(InputRefused::Stale),
        }
    }

    /// The policy by which a failed attempt may be followed by another; `None` if there is to be none.
    fn policy_of(
        &self,
        operation: OperationId,
        attempt: u32,
        is_retryable: bool,
        kind: Option<&str>,
        moment: Moment,
    ) -> Result<Option<Retry>, InputRefused> {
        let Some(Pending::Activity(activity)) = self.ledger.pending_operation(operation) else {
            return Err(InputRefused::Stale);
        };
        if attempt < activity.attempt(moment.epoch) {
            // The owner has begun another since; that one decides.
            return Err(InputRefused::Stale);
        }
        Ok(activity.scheduled.retry_of(kind, is_retryable).copied())
    }

    /// When the next attempt begins after one that has failed, if there is another; `chosen` is the pause that
    /// the failed one asks for.
    fn retry_at(
        &self,
        operation: OperationId,
        retry: &Retry,
        chosen: Option<Duration>,
        moment: Moment,
    ) -> Option<Timestamp> {
        let Some(Pending::Activity(activity)) = self.ledger.pending_operation(operation) else {
            return None;
        };
        let since = self.ledger.pending_since(operation).unwrap_or(moment.now);
        let step = (self.run, operation);
        let retry_at = retry.retry_at(activity.failures + 1, chosen, step, since, moment.now);
        retry_at.filter(|at| activity.close_at.is_none_or(|close_at| *at < close_at))
    }
}

pub(super) fn check_name(name: &str) -> Result<(), InputRefused> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(InputRefused::Name { bytes: name.len() });
    }
    Ok(())
}

/// A timer fired that is not due: the clock was set back since a timer part saw that it was. It is started
/// anew, or nobody would fire it again.
fn ask_again(
    operation: OperationId,
    deadlines: [Option<Timestamp>; 2],
    turn: &mut Turn,
) -> Result<(), InputRefused> {
    if deadlines == [None; 2] {
        return Err(InputRefused::Stale);
    }
    let timers = deadlines.into_iter().flatten();
    let timers = timers.map(|deadline| Command::StartTimer { operation, deadline });
    turn.commands.extend(timers);
    Ok(())
}
