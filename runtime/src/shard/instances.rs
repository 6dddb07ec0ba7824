//! The instances of a shard: in memory with their code, on disk, or being read.

use millrun_core::{RunId, Timestamp};
use millrun_persistence::TurnError;
use millrun_workflow::{
    Input, InputRefused, Instance, Moment, Name, OperationId, Outcome, ParkReason, Payload, Pending, Turn,
};

use super::Shard;
use super::commands::{Deed, Seeding};
use super::runs::entry::{Entry, Errand, Loading, Parking, Residence, Sender, WorkflowName};
use super::sweeps::answers::Response;
use super::sweeps::effects::Effect;
use crate::RunError;
use crate::activity::{ActivityReport, AttemptFailure};
use crate::code::workflows::{Beginning, is_reserved};
use crate::mail::{Described, Tell};
use crate::opening::recovery::RecoveredRun;
use crate::timers::{Alarm, TimerCommand};

impl Shard {
    /// Performs an errand on a run, at once or when the run has been read.
    pub(super) fn with_run(&mut self, run: RunId, errand: Errand, moment: Moment) {
        let before = self.effects.work_on(run);
        self.reach(run, errand, moment);
        self.effects.resume(before);
    }

    fn reach(&mut self, run: RunId, errand: Errand, moment: Moment) {
        let held_max = self.shared.config.limits.signals_len_max;
        let Some(entry) = self.entries.get_mut(run) else {
            return match errand {
                Errand::Republish(_, topic) => self.feed_topic(topic, moment),
                Errand::Replace(replacement) => self.start_anew(*replacement, moment),
                errand => self.answer_unknown(errand, RunError::NotFound),
            };
        };
        entry.is_touched = true;
        match &mut entry.residence {
            Residence::Hot(_) => self.do_errand(run, errand, false, moment),
            Residence::Loading(loading) if loading.held.len() >= held_max && errand.is_from_outside() => {
                self.answer_unknown(
                    errand,
                    RunError::Refused(InputRefused::TooManySignals { len_max: held_max }),
                );
            }
            Residence::Loading(loading) => loading.held.push(errand),
            Residence::Cold => {
                entry.residence = Residence::loading(errand);
                self.residency.read(run);
                self.start_loads();
            }
            Residence::Ended(number) => {
                if let Some(&Outcome::Continued(next)) = self.results.get(*number)
                    && errand.is_for_the_instance()
                {
                    return self.with_run(next, errand, moment);
                }
                match errand {
                    Errand::Republish(_, topic) => self.feed_topic(topic, moment),
                    Errand::Signal(signal) => self.find_signal(run, signal),
                    Errand::Replace(replacement) => self.start_anew(*replacement, moment),
                    errand => self.answer_unknown(errand, RunError::Finished),
                }
            }
        }
    }

    /// Tells a caller that a run cannot be reached.
    pub(super) fn answer_unknown(&mut self, errand: Errand, error: RunError) {
        match errand {
            Errand::Signal(signal) => self.refuse_signal(signal, error),
            // For any other errand without a caller it is too late: the run has ended.
            errand => {
                if let Some(answer) = errand.refuse(error) {
                    self.effects.answer(answer);
                }
            }
        }
    }

    /// `is_fresh` says that the run has just been replayed: reading it again would not change its code.
    fn do_errand(&mut self, run: RunId, errand: Errand, is_fresh: bool, moment: Moment) {
        match errand {
            Errand::Tell(Tell::Resume, reply) => {
                if !is_fresh && self.needs_code(run) {
                    return self.reload(run, Errand::Tell(Tell::Resume, reply));
                }
                let answer = self.apply(run, Input::Resume, moment, Sender::Outside);
                self.effects.answer(Response::Tell(reply, answer));
            }
            Errand::Tell(tell, reply) => {
                if let Err(refused) = self.check_tell(run, &tell) {
                    return self.effects.answer(Response::Tell(reply, Err(refused)));
                }
                let received = match &tell {
                    Tell::RecordReceived { operation, record } => Some((*operation, record.sequence)),
                    _ => None,
                };
                let input = match tell {
                    Tell::Signal {
                        name,
                        value,
                        cause,
                        request,
                        is_by_name: _,
                    } => Input::Signal {
                        name,
                        value,
                        cause,
                        request,
                    },
                    Tell::Cancel { reason } => Input::Cancel { reason },
                    Tell::Terminate { reason } => Input::Terminate { reason },
                    Tell::Pause { reason } => Input::Pause { reason },
                    Tell::EndPromise { operation, end } => Input::EndPromise { operation, end },
                    Tell::RecordReceived { operation, record } => Input::RecordReceived { operation, record },
                    Tell::Resume => Input::Resume,
                    Tell::Reset(order) => return self.read_to_reset(run, order, reply),
                };
                let answer = self.apply(run, input, moment, Sender::Outside);
                if let (Some((operation, sequence)), Err(RunError::Refused(InputRefused::Stale))) =
                    (received, &answer)
                {
                    self.receive_behind(run, operation, sequence);
                }
                self.effects.answer(Response::Tell(reply, answer));
            }
            Errand::Signal(signal) => self.take_signal(run, signal, moment),
            Errand::Resume => {
                if self.is_paused(run) {
                    return;
                }
                if let Some(until) = self.delayed_until(run)
                    && until > moment.now
                {
                    // The clock was set back since the timer fired, or the start was delayed anew: the timer is set again.
                    let alarm = TimerCommand::Set(until, run, Alarm::Resume);
                    return self.effects.push(Effect::Timer(alarm));
                }
                if !is_fresh && self.needs_code(run) {
                    return self.reload(run, Errand::Resume);
                }
                self.apply_quietly(run, Input::Resume, moment);
            }
            Errand::Input(input @ Input::Published { operation, .. }) => {
                if let Some(record) = self.record_of(run, operation) {
                    return self.append(run, &record, moment);
                }
                // If the turn could not be recorded, the publish stays pending.
                let applied = self.apply(run, input, moment, Sender::Inside);
                if !matches!(applied, Err(RunError::Turn(_))) {
                    self.effects.push(Effect::ForgetPublish(run, operation));
                }
            }
            Errand::Input(
                input @ (Input::ChildEnded { operation, .. } | Input::SignalSent { operation, .. }),
            ) => {
                let applied = self.apply(run, input, moment, Sender::Inside);
                if !matches!(applied, Err(RunError::Turn(_))) {
                    self.effects.push(Effect::ForgetCall(run, operation));
                }
            }
            Errand::Input(input @ Input::ChildStarted { operation, .. }) => {
                self.apply_quietly(run, input, moment);
                self.forget_left_child(run, operation);
            }
            Errand::Input(input) => self.apply_quietly(run, input, moment),
            Errand::Failed(operation, attempt, failed) => {
                let AttemptFailure {
                    failure,
                    is_retryable,
                    kind,
                    retry_after,
                    details,
                } = *failed;
                if let Some(details) = details
                    && self.is_news(run, operation, &details)
                {
                    let input = Input::Heartbeat {
                        operation,
                        attempt,
                        details: *details,
                    };
                    self.apply_quietly(run, input, moment);
                }
                let input = Input::AttemptFailed {
                    operation,
                    attempt,
                    failure,
                    is_retryable,
                    kind,
                    retry_after,
                };
                self.apply_quietly(run, input, moment);
            }
            Errand::Query(question, reply) => self.answer_query(run, &question, reply),
            Errand::Update(request, reply) => self.update(run, request, reply, moment),
            Errand::Command(command, reply) => self.command(run, *command, reply, moment),
            Errand::Replace(replacement) => self.replace(run, *replacement, moment),
            Errand::Describe(reply) => {
                let description = self.describe(run).ok_or(RunError::NotFound);
                let described = description.map(|description| Described::InMemory(Box::new(description)));
                self.effects.answer(Response::Describe(reply, described));
            }
            Errand::Republish(operation, topic) => self.republish(run, operation, topic, moment),
            Errand::Append(operation) => {
                if let Some(record) = self.record_of(run, operation) {
                    self.append(run, &record, moment);
                }
            }
            Errand::CallAgain(operation) => self.call_again(run, operation, moment),
            Errand::Dispatch(operation) => {
                if let Some(Deed::Task(task)) = self.outstanding(run, operation, moment) {
                    self.dispatch.send_loaded(task, &self.shared, &self.bell);
                }
            }
        }
    }

    /// Whether a run may be told this. Built-in workflows take no signals, and a typed signal must have the type that the
    /// run's workflow declares.
    fn check_tell(&self, run: RunId, tell: &Tell) -> Result<(), RunError> {
        let Tell::Signal {
            name,
            value,
            is_by_name,
            ..
        } = tell
        else {
            return Ok(());
        };
        let Some(entry) = self.entries.get(run) else {
            return Ok(());
        };
        let workflow = entry.workflow.as_str();
        if is_reserved(workflow) {
            let workflow = workflow.to_owned();
            return Err(RunError::ReservedName { workflow });
        }
        let version = entry.workflow.version();
        let code = is_by_name.then(|| self.shared.workflows.code_of((workflow, version)));
        let checked = code
            .flatten()
            .map_or(Ok(()), |code| code.check_signal(name, value));
        checked.map_err(RunError::WrongType)
    }

    /// As [`with_run`](Self::with_run), for a run that has just been replayed.
    pub(super) fn apply_fresh(&mut self, run: RunId, errand: Errand, moment: Moment) {
        match self.entries.get(run).map(|entry| &entry.residence) {
            Some(Residence::Hot(_)) => self.do_errand(run, errand, true, moment),
            // An earlier errand has ended the run.
            Some(_) | None => self.with_run(run, errand, moment),
        }
    }

    /// Whether these heartbeat details are new to a run in memory.
    fn is_news(&self, run: RunId, operation: OperationId, details: &Payload) -> bool {
        self.entries.get(run).is_some_and(|entry| match &entry.residence {
            Residence::Hot(instance) => details_of(instance, operation) != Some(details),
            Residence::Cold | Residence::Loading(_) | Residence::Ended(_) => false,
        })
    }

    /// Whether an operator paused a run that is in memory; only an operator resumes such a run.
    fn is_paused(&self, run: RunId) -> bool {
        self.entries.get(run).is_some_and(|entry| match &entry.residence {
            Residence::Hot(instance) => matches!(instance.park_reason(), Some(ParkReason::Paused { .. })),
            Residence::Cold | Residence::Loading(_) | Residence::Ended(_) => false,
        })
    }

    /// Until when the start of a run in memory is delayed; `None` if it is not.
    fn delayed_until(&self, run: RunId) -> Option<Timestamp> {
        match &self.entries.get(run)?.residence {
            Residence::Hot(instance) => match instance.park_reason()? {
                ParkReason::Delayed { until } => Some(*until),
                _ => None,
            },
            Residence::Cold | Residence::Loading(_) | Residence::Ended(_) => None,
        }
    }

    /// Whether a run is parked without code in memory, although its code is registered by now.
    fn needs_code(&self, run: RunId) -> bool {
        self.entries.get(run).is_some_and(|entry| match &entry.residence {
            Residence::Hot(instance) => !instance.has_code() && self.shared.workflows.have(entry.beginning()),
            Residence::Cold | Residence::Loading(_) | Residence::Ended(_) => false,
        })
    }

    /// Drops a run's instance from memory and reads the run again, to go on with `errand`.
    fn reload(&mut self, run: RunId, errand: Errand) {
        if let Some(entry) = self.entries.get_mut(run) {
            if matches!(entry.residence, Residence::Hot(_)) {
                self.residency.leave(entry);
            }
            entry.residence = Residence::loading(errand);
            self.residency.read(run);
        }
    }

    fn apply_quietly(&mut self, run: RunId, input: Input, moment: Moment) {
        if let Err(error) = self.apply(run, input, moment, Sender::Inside) {
            tracing::debug!(%run, %error, "an input was passed over");
        }
    }

    /// Records that a run in memory runs on newer code from now on: it was replayed with that code, which fits its history.
    pub(super) fn change_version(&mut self, run: RunId, moment: Moment) {
        self.apply_quietly(run, Input::ChangeVersion, moment);
        let Some(entry) = self.entries.get_mut(run) else {
            return;
        };
        if let Residence::Hot(instance) = &entry.residence {
            let version = instance.ledger().version();
            if self.census.set_version(entry, version) {
                tracing::debug!(%run, id = %entry.id, version, "a run has moved to newer code");
                self.shared.trials.note_moved();
            }
        }
    }

    /// Keeps a turn's buffers for the next turn.
    pub(super) fn give_back(&mut self, mut turn: Box<Turn>) {
        turn.events.clear();
        turn.commands.clear();
        turn.kept = None;
        turn.recorded.clear();
        self.turn = Some(turn);
    }

    /// Applies an input to a run in memory.
    pub(super) fn apply(
        &mut self,
        run: RunId,
        input: Input,
        moment: Moment,
        sender: Sender,
    ) -> Result<(), RunError> {
        let moment = self.moment_of(run, moment.now);
        let Some(Entry {
            residence: Residence::Hot(instance),
            ..
        }) = self.entries.get_mut(run)
        else {
            return Err(RunError::NotFound);
        };
        let head = instance.sequence();
        let mut turn = self.turn.take().unwrap_or_default();
        // Only inputs without a caller are noted: callers have an answer, or ask again.
        match sender {
            Sender::Inside => self.told.note_input(run, input.clone()),
            Sender::Append(operation) => self.told.note_append(run, operation),
            Sender::Outside => {}
        }
        self.shared.watch.run(self.ways.index(), run);
        let before = instance.ledger().history_len();
        let is_noted = match &mut self.recording {
            None => false,
            Some(recording) => recording.note_input(run, instance.ledger(), &input),
        };
        let applied = instance.apply(input, moment, &mut turn);
        let history_len_warn = self.shared.config.limits.history_len_warn;
        if before < history_len_warn && instance.ledger().history_len() >= history_len_warn {
            tracing::warn!(%run, events = history_len_warn, "a history is long: a checkpoint would shorten it");
            self.census.note_long_history();
        }
        let outcome = match applied {
            Err(refused) => Err(RunError::from(refused)),
            Ok(()) => self.adopt(run, head, &mut turn, moment).map_err(|error| {
                // The machine is ahead of what could be recorded. The run is read again and parked: its input is then
                // recorded without running the code.
                let errand = match sender {
                    Sender::Inside => {
                        let kept = self.told.take_last_input();
                        kept.filter(is_sent_once).map(Errand::Input)
                    }
                    Sender::Append(operation) => {
                        self.told.take_last_append();
                        Some(Errand::Append(operation))
                    }
                    Sender::Outside => None,
                };
                self.park_unrecordable(run, errand, &error);
                RunError::Turn(error.to_string())
            }),
        };
        // A report that was not recorded may come again, and is counted then.
        if let Some(recording) = self.recording.as_mut().filter(|_| is_noted && outcome.is_err()) {
            recording.take_back();
        }
        self.give_back(turn);
        if !self.continuing.is_empty() {
            self.continue_runs(moment);
        }
        outcome
    }

    fn park_unrecordable(&mut self, run: RunId, errand: Option<Errand>, error: &TurnError) {
        tracing::error!(%run, %error, "a turn does not fit the journal; the run is parked");
        let Some(entry) = self.entries.get_mut(run) else {
            return;
        };
        self.residency.leave(entry);
        if let Some(errand) = errand {
            let message = format!("its turn cannot be recorded: {error}");
            entry.residence = Residence::Loading(Box::new(Loading {
                held: vec![errand],
                park: Some(ParkReason::Stuck { message }),
                ..Loading::default()
            }));
            self.residency.read(run);
        } else {
            entry.residence = Residence::Cold;
        }
    }

    /// Takes in a run that recovery found in the journal.
    pub(super) fn seed_run(&mut self, recovered: RecoveredRun, seeding: &mut Seeding) {
        let RecoveredRun {
            run,
            id,
            workflow,
            version,
            last: _,
            began_as,
            pending,
            parked,
            parent,
            trace,
            out_of_time,
        } = recovered;
        let beginning = Beginning::from((&*workflow, version, &id));
        let workflows = &self.shared.workflows;
        let code_to_move = workflows.code_to_move(beginning);
        let code = workflows.code_of(beginning).or(code_to_move);
        let (is_registered, is_to_move) = (code.is_some(), code_to_move.is_some());
        // Where the program knows the name, its static copy replaces the one that was read.
        let name = code.map(|code| Name::Borrowed(code.name()));
        let workflow = name.unwrap_or(workflow);
        let workflow = WorkflowName::new(workflow, version, began_as);
        self.census.enter(&workflow, parent.is_some());
        let parent = parent.map(|parent| *parent);
        let mut entry = Entry::new(run, id.clone(), workflow, Residence::Cold).with_parent(parent);
        let parking = Parking::of(parked.as_ref().map(|(reason, _)| reason));
        self.census.set_parking(&mut entry, parking);
        self.entries.insert(entry);
        if self.shared.is_read_only {
            return;
        }
        if is_to_move {
            self.residency.move_later(run);
        }
        self.resume_operations(run, &id, &pending, trace.as_deref(), seeding);
        if let Some(at) = out_of_time {
            self.alarms.want(TimerCommand::Set(at, run, Alarm::TimeOut));
        }
        if let Some((reason, since)) = parked
            && is_registered
            && !matches!(reason, ParkReason::Paused { .. })
        {
            // The code may have changed since, so a parked run is tried again; after a panic its pause is kept.
            let at = self
                .shared
                .config
                .limits
                .resume_at(&reason, since)
                .unwrap_or(seeding.now);
            self.alarms.want(TimerCommand::Set(at, run, Alarm::Resume));
        }
    }

    /// The errand for a report of an attempt.
    pub(super) fn errand_of(report: ActivityReport) -> Errand {
        let ActivityReport {
            operation,
            attempt,
            outcome,
            ..
        } = report;
        match outcome {
            Ok(result) => Errand::Input(Input::ActivityCompleted {
                operation,
                attempt,
                result,
            }),
            Err(failure) => Errand::Failed(operation, attempt, failure),
        }
    }
}

/// Whether an input must not get lost: its run waits for it, and no one sends it again while the run's shard lives.
fn is_sent_once(input: &Input) -> bool {
    matches!(
        input,
        Input::ActivityCompleted { .. }
            | Input::AttemptFailed { .. }
            | Input::TimerFired { .. }
            | Input::TimeOut
            | Input::ChildEnded { .. }
            | Input::SignalSent { .. }
            | Input::Published { .. }
            | Input::Cancel { .. }
    )
}

/// The details of the last heartbeat of a call.
fn details_of(instance: &Instance, operation: OperationId) -> Option<&Payload> {
    match instance.ledger().pending_operation(operation)? {
        Pending::Activity(activity) => activity.details.as_ref(),
        _ => None,
    }
}
