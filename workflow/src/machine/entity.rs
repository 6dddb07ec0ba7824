//! Entities: commands that are decided once, recorded with what they decided, and folded.
//!
//! ```text
//!   Input::Command ──► decide ──► CommandPerformed ─┬─► operations that it asked for
//!   TimerFired, a signal ──► decide ─────┘          └─► fold ──► state ── due ──► Checkpointed
//! ```
//!
//! Invariants:
//! - What a command decides is folded next, before anything else is decided.
//! - A replay calls no handlers: it takes the decisions of the history.
//! - A checkpoint ends no operation: the operations of an entity are not awaited by its code.

use millrun_core::Timestamp;

use super::admit::check_name;
use super::{InputRefused, Instance, Moment, Turn};
use crate::context::Decision;
use crate::entity::{EntityHandlers, Situation, StartRefused};
use crate::event::{Checkpoint, ChildFailure, CommandPerformed, Event, Name, ParkReason};
use crate::handlers::HandlerError;
use crate::ledger::{Pending, UpdateStanding};
use crate::retry::mix;
use crate::{OperationId, Payload};

/// An event that an entity could not be shown, with the reason: it is recorded behind the parking.
pub(super) struct Unshown {
    event: Event,
    /// The decisions that follow from the event.
    decisions: Vec<Decision>,
    reason: ParkReason,
}

impl Unshown {
    pub(super) fn reason(self) -> ParkReason {
        self.reason
    }
}

impl Instance {
    /// Whether it is an entity whose code is registered.
    #[inline]
    pub(super) fn is_entity(&self) -> bool {
        self.entity().is_some()
    }

    #[inline]
    fn entity(&self) -> Option<&EntityHandlers> {
        self.implementation.as_ref()?.entity()
    }

    /// Takes the answer to the command that was performed last.
    #[must_use]
    pub fn take_command_answer(&self) -> Option<Payload> {
        self.shared.lock().desk().take_answer()
    }

    /// The event of a command that its handler performs.
    pub(super) fn admit_command(
        &self,
        request: Option<Box<str>>,
        name: Name,
        input: &Payload,
        moment: Moment,
    ) -> Result<Event, InputRefused> {
        if let Some(request) = &request {
            check_name(request)?;
            if let Some(UpdateStanding::Answered(answer)) = self.ledger.update(request) {
                let answer = answer.clone();
                return Err(InputRefused::Answered { answer });
            }
        }
        check_name(&name)?;
        if let Some(reason) = self.park_reason() {
            return Err(InputRefused::StillParked(reason.to_string()));
        }
        if self.ledger.is_cancel_requested() {
            return Err(InputRefused::Ending);
        }
        self.check_size(input)?;
        let command = name.to_string();
        self.decide(request, name, input, moment)
            .map_err(|error| match error {
                HandlerError::Unknown | HandlerError::NoState => {
                    InputRefused::UnknownCommand { name: command }
                }
                HandlerError::WrongType(error) => InputRefused::WrongType(error),
                HandlerError::Payload(error) => InputRefused::Payload(error),
                HandlerError::Panicked(message) => InputRefused::CommandPanicked(self.limits.cut(message)),
                HandlerError::Undoable(message) => InputRefused::Act(self.limits.cut(message)),
                HandlerError::Rejected { error, message } => InputRefused::Rejected {
                    error,
                    message: self.limits.cut(message),
                },
            })
    }

    /// Checks that a signal's name is that of a command of the entity.
    pub(super) fn check_command_signal(&self, name: &Name) -> Result<(), InputRefused> {
        match self.entity() {
            Some(entity) if !entity.has(name) => Err(InputRefused::UnknownCommand {
                name: name.to_string(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Calls the handler of a command. Its decisions have to be recorded and folded next.
    fn decide(
        &self,
        request: Option<Box<str>>,
        name: Name,
        input: &Payload,
        moment: Moment,
    ) -> Result<Event, HandlerError> {
        let entity = self.entity().ok_or(HandlerError::Unknown)?;
        let table = self.shared.lock();
        let (cell, id) = (table.cell.clone(), table.id.clone());
        let situation = Situation {
            id: id.as_ref().expect("code that has begun has an id"),
            now: table.time.shown().max(moment.now),
            host_now: moment.now,
            operations_left: self
                .limits
                .pending_len_max
                .saturating_sub(self.ledger.pending_len()),
            seed: self.seed(),
            payload_bytes_max: self.limits.payload_bytes_max,
        };
        drop(table);
        let decided = {
            let _inside = self.shared.pulse().enter();
            entity.decide(cell.as_deref(), &name, input, &situation)?
        };
        let begun = decided.acts.iter().filter(|act| act.begins()).count();
        let len_max = self.limits.pending_len_max;
        if self.ledger.pending_len() + begun > len_max {
            return Err(HandlerError::Undoable(format!(
                "the entity would have more than {len_max} operations outstanding, its limit"
            )));
        }
        let timers = decided.acts.iter().filter_map(|act| act.timer().cloned());
        let performed = CommandPerformed {
            request,
            name,
            version: decided.version,
            events: decided.events,
            answer: decided.answer.clone(),
            timers: timers.collect(),
        };
        self.shared.lock().desk().decide(decided.acts, decided.answer);
        Ok(Event::CommandPerformed(Box::new(performed)))
    }

    /// The seed of a command's random bits, different for each command.
    fn seed(&self) -> u64 {
        let run = self.run.bits();
        let low = u64::try_from(run & u128::from(u64::MAX)).expect("masked to 64 bits");
        mix(low) ^ self.ledger.sequence().get()
    }

    /// Folds what a command has decided.
    pub(super) fn fold_command(&self, performed: &CommandPerformed) -> Result<(), ParkReason> {
        let cell = self.shared.lock().cell.clone();
        let Some(entity) = self.entity() else {
            let message = "the run is an entity's, and its code is none".into();
            return Err(ParkReason::Stuck { message });
        };
        let folded = {
            let _inside = self.shared.pulse().enter();
            entity.fold(cell.as_deref(), performed)
        };
        folded.map_err(|error| match error {
            HandlerError::Panicked(message) => ParkReason::Panicked {
                message: self.limits.cut(message),
                count: 1,
            },
            HandlerError::Undoable(message) => ParkReason::Stuck {
                message: self.limits.cut(message),
            },
            _ => ParkReason::Stuck {
                message: "the run has no state of the entity's type".into(),
            },
        })?;
        let mut table = self.shared.lock();
        let performed_len = &mut table.desk().performed_len;
        *performed_len = performed_len.saturating_add(1);
        Ok(())
    }

    /// Handles the signals that an entity was started with. Those that are rejected, or whose handler panics, are dropped.
    fn take_up_carried(&mut self, moment: Moment, turn: &mut Turn) -> Result<(), Box<Unshown>> {
        let origin = self.ledger.started().and_then(|started| started.origin.as_ref());
        let signals = origin.map(|origin| origin.signals.clone()).unwrap_or_default();
        for (name, value) in signals {
            if let Ok(event) = self.decide(None, name, &value, moment) {
                self.ledger.apply(&event, moment.now);
                self.show_entity(event, moment.now, false, moment, turn)?;
            }
        }
        Ok(())
    }

    /// As [`take_up`](Self::take_up), for an entity.
    pub(super) fn take_up_command(&mut self, moment: Moment, turn: &mut Turn) {
        let event = turn.events.pop().expect("the caller has recorded an input");
        let is_first = matches!(event, Event::Started(_));
        let shown = self.show_entity(event, moment.now, false, moment, turn);
        let shown = match shown {
            Ok(()) if is_first => self.take_up_carried(moment, turn),
            shown => shown,
        };
        match shown {
            Ok(()) => self.go_on(moment, turn),
            Err(unshown) => {
                let Unshown {
                    event,
                    decisions,
                    reason,
                } = *unshown;
                let parked = Event::Parked {
                    reason: reason.clone(),
                };
                self.ledger.apply(&parked, moment.now);
                // Only a run's first event cannot come second.
                let is_first = matches!(event, Event::Started(_));
                self.deferred.push((event.clone(), moment.now));
                if is_first {
                    turn.events.extend([event, parked]);
                } else {
                    turn.events.extend([parked, event]);
                }
                self.adopt_decisions(decisions, moment, turn);
                self.announce_parking(reason, moment, turn);
            }
        }
    }

    /// Shows an event to an entity whose code runs, and records it with what follows from it, unless it is in the history
    /// already.
    pub(super) fn show_entity(
        &mut self,
        event: Event,
        recorded: Timestamp,
        is_recorded: bool,
        moment: Moment,
        turn: &mut Turn,
    ) -> Result<(), Box<Unshown>> {
        let unshown = |event, decisions, reason| {
            Box::new(Unshown {
                event,
                decisions,
                reason,
            })
        };
        let caused = match self.decide_caused(&event, moment) {
            Ok(caused) => caused,
            Err(reason) => {
                let reason = self.give_up(reason);
                return Err(unshown(event, Vec::new(), reason));
            }
        };
        let decisions = match &event {
            Event::CommandPerformed(_) => self.issue_acts(moment),
            _ => Vec::new(),
        };
        let spare = std::mem::take(&mut turn.spare.decisions);
        match self.run_code(&event, recorded, moment, true, spare) {
            Ok(further) => {
                if !is_recorded {
                    turn.events.push(event);
                }
                if !decisions.is_empty() {
                    self.adopt_decisions(decisions, moment, turn);
                }
                self.adopt_decisions(further, moment, turn);
            }
            Err(reason) => return Err(unshown(event, decisions, reason)),
        }
        if let Some(caused) = caused {
            self.ledger.apply(&caused, moment.now);
            self.show_entity(caused, moment.now, false, moment, turn)?;
        }
        Ok(())
    }

    /// Keeps a start that is about to be recorded as refused: the ledger forgets it with that event.
    pub(super) fn note_refused(&self, event: &Event) {
        if let Event::ChildEnded {
            operation,
            end: Err(ChildFailure::NotStarted { message }),
        } = event
            && self.is_entity()
            && let Some(Pending::Child { scheduled, .. }) = self.ledger.pending_operation(*operation)
        {
            let refused = StartRefused {
                workflow: scheduled.workflow.to_string(),
                id: scheduled.id.as_str().to_owned(),
                message: message.clone(),
            };
            self.shared.lock().desk().refuse(*operation, refused);
        }
    }

    /// Forgets a refused start that the entity was told of.
    pub(super) fn forget_refused(&self, operation: OperationId) {
        self.shared.lock().desk().forget_refused(operation);
    }

    /// The command that a timer, a signal or a refused start leads to, decided. `None` also if it is rejected.
    fn decide_caused(&self, event: &Event, moment: Moment) -> Result<Option<Event>, ParkReason> {
        let nothing = || Payload::encode(&()).expect("nothing encodes");
        let (name, input) = match event {
            Event::TimerFired { operation } => {
                let name = self.shared.lock().desk().command_of(*operation).cloned();
                match name {
                    Some(name) => (name, nothing()),
                    None => return Ok(None),
                }
            }
            Event::SignalReceived { name, value, .. } | Event::RunSignalReceived { name, value, .. } => {
                (name.clone(), value.clone())
            }
            Event::ChildEnded { operation, .. } => {
                let name = self.entity().and_then(EntityHandlers::on_start_refused);
                let refused = self.shared.lock().desk().refused(*operation).cloned();
                match (name, refused) {
                    (Some(name), Some(refused)) => {
                        let input = Payload::encode(&refused).expect("texts encode");
                        (Name::Borrowed(name), input)
                    }
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        // A signal comes from outside and may be invalid, but a timer is not sent again.
        let is_own = matches!(event, Event::TimerFired { .. } | Event::ChildEnded { .. });
        if self.ledger.is_cancel_requested() {
            return Ok(None);
        }
        match self.decide(None, name, &input, moment) {
            Ok(event) => Ok(Some(event)),
            Err(HandlerError::Panicked(message)) => Err(ParkReason::Panicked {
                message: self.limits.cut(message),
                count: 1,
            }),
            Err(HandlerError::Rejected { .. }) => Ok(None),
            Err(error) if is_own => Err(ParkReason::Stuck {
                message: self.limits.cut(unperformed(&error)),
            }),
            Err(_) => Ok(None),
        }
    }

    /// Begins the operations that a command has asked for.
    fn issue_acts(&self, moment: Moment) -> Vec<Decision> {
        let mut table = self.shared.lock();
        let acts = table.desk().take_acts();
        let mut decisions = Vec::with_capacity(acts.len());
        for act in acts {
            if act.begins() {
                table.operations_len += 1;
            }
            let operation = OperationId::new(table.operations_len);
            table.desk().issue(act, operation, moment.now, &mut |event| {
                let location = None;
                decisions.push(Decision { event, location });
            });
        }
        decisions
    }

    /// What follows once an entity has taken up all inputs: a snapshot that is due, or its end.
    pub(super) fn go_on(&mut self, moment: Moment, turn: &mut Turn) {
        let every = self.entity().and_then(EntityHandlers::snapshot_every);
        if every.is_some_and(|every| self.shared.lock().desk().performed_len >= every) {
            self.snapshot(moment, turn);
        }
        self.end_entity(moment, turn);
    }

    fn snapshot(&mut self, moment: Moment, turn: &mut Turn) {
        let mut table = self.shared.lock();
        let (cell, timers) = (table.cell.clone(), table.desk().timers());
        // Reset also if there is no snapshot, so that a state that is too large is not encoded with each command.
        table.desk().performed_len = 0;
        drop(table);
        let Some(Ok(state)) = self
            .entity()
            .map(|entity| entity.snapshot(cell.as_deref(), timers))
        else {
            return;
        };
        if state.len() > self.limits.payload_bytes_max {
            return;
        }
        let table = self.shared.lock();
        let checkpoint = Checkpoint {
            state,
            signals: Vec::new(),
            operations_len: table.operations_len,
            random_len: table.random_len,
            is_whole: true,
            now: table.time.apart(),
            taken: table.taken(),
            begun_with: Vec::new(),
        };
        drop(table);
        let event = Event::Checkpointed(Box::new(checkpoint));
        let location = None;
        self.adopt_decisions(vec![Decision { event, location }], moment, turn);
    }

    /// Ends an entity that is to be deleted, once none of its operations has to continue.
    pub(super) fn end_entity(&mut self, moment: Moment, turn: &mut Turn) {
        if !self.ledger.is_cancel_requested()
            || self.ledger.outcome().is_some()
            || self.park_reason().is_some()
        {
            return;
        }
        let is_settled = {
            let mut pending = self.ledger.pending();
            pending.all(|(_, pending)| matches!(pending, Pending::Timer { .. }))
        };
        if is_settled {
            let result = Payload::encode(&()).expect("nothing encodes");
            self.end(Event::Completed { result }, moment.now, turn);
        }
    }

    /// A child of an entity has started: it is not waited for any more.
    pub(super) fn leave_child(&mut self, operation: OperationId, moment: Moment, turn: &mut Turn) {
        self.note(Event::OperationCancelled { operation }, moment, turn);
        self.end_entity(moment, turn);
    }

    /// Takes a decision from an entity's history. Returns whether an entity makes such decisions.
    pub(super) fn note_decision(&self, event: &Event) -> bool {
        let begun = match event {
            Event::PublishScheduled(scheduled) => Some(scheduled.operation),
            Event::SignalScheduled(scheduled) => Some(scheduled.operation),
            Event::ChildScheduled(scheduled) => Some(scheduled.operation),
            Event::TimerStarted { operation, .. } => Some(*operation),
            Event::OperationCancelled { .. } | Event::Checkpointed(_) | Event::Completed { .. } => None,
            _ => return false,
        };
        let mut table = self.shared.lock();
        if let Some(operation) = begun {
            table.operations_len = table.operations_len.max(operation.get());
        }
        table.desk().note(event);
        true
    }

    /// A command of the history has set these timers.
    pub(super) fn expect_timers(&self, performed: &CommandPerformed) {
        if !performed.timers.is_empty() {
            self.shared.lock().desk().expect_timers(&performed.timers);
        }
    }

    /// A timer of an entity has fired.
    pub(super) fn forget_entity_timer(&self, operation: OperationId) {
        self.shared.lock().desk().forget_timer(operation);
    }
}

/// Why a command that the entity itself asked for was not performed.
fn unperformed(error: &HandlerError) -> String {
    let why = match error {
        HandlerError::Undoable(message) => message.clone(),
        HandlerError::WrongType(error) => error.to_string(),
        HandlerError::Payload(error) => error.to_string(),
        _ => "its code has no such command".to_owned(),
    };
    format!("a command of a timer or of a refused start could not be performed: {why}")
}
