//! What is asked of a run and answered: queries, which change nothing, and updates, which are
//! inputs.

use std::task::Waker;

use super::admit::check_name;
use super::{Input, InputRefused, Instance};
use crate::Payload;
use crate::event::{Event, Name, ParkReason};
use crate::handlers::{HandlerError, Unanswered};
use crate::ledger::UpdateStanding;

impl Instance {
    /// Asks the run's [state](crate::State); for an ended run, its final state.
    ///
    /// The answer may depend on events that are not durable yet, and has to wait for them.
    ///
    /// # Errors
    /// When the workflow does not answer this query, or the run has no state to ask.
    pub fn query(&self, name: &str, question: &Payload) -> Result<Payload, Unanswered> {
        if let Some(reason) = self.park_reason() {
            return Err(Unanswered::Parked(reason.to_string()));
        }
        let unknown = || Unanswered::Unknown { name: name.into() };
        let handlers = self.implementation.as_ref().ok_or_else(unknown)?.handlers();
        let cell = self.shared.lock().cell.clone();
        handlers
            .query(cell.as_deref(), name, question)
            .map_err(|error| error.unanswered(name))
    }

    /// The event of an update that its validator lets in; `None` if it is in already.
    pub(super) fn admit_update(
        &self,
        request: String,
        name: Name,
        input: Payload,
    ) -> Result<Option<Event>, InputRefused> {
        check_name(&request)?;
        check_name(&name)?;
        match self.ledger.update(&request) {
            Some(UpdateStanding::Answered(answer)) => {
                let answer = answer.clone();
                return Err(InputRefused::Answered { answer });
            }
            Some(UpdateStanding::Accepted) => return Ok(None),
            None => {}
        }
        if let Some(reason) = self.park_reason() {
            return Err(InputRefused::StillParked(reason.to_string()));
        }
        self.check_size(&input)?;
        let handlers = self
            .implementation
            .as_ref()
            .expect("code that runs was attached with its handlers")
            .handlers();
        let cell = self.shared.lock().cell.clone();
        handlers
            .validate(cell.as_deref(), &name, &input)
            .map_err(|error| match error {
                HandlerError::Unknown => InputRefused::UnknownUpdate {
                    name: name.to_string(),
                },
                HandlerError::NoState => InputRefused::NoState,
                HandlerError::WrongType(error) => InputRefused::WrongType(error),
                HandlerError::Payload(error) => InputRefused::Payload(error),
                HandlerError::Panicked(message) => InputRefused::ValidatorPanicked(self.limits.cut(message)),
                HandlerError::Undoable(message) => InputRefused::Act(self.limits.cut(message)),
                HandlerError::Rejected { error, message } => InputRefused::Rejected {
                    error,
                    message: self.limits.cut(message),
                },
            })?;
        Ok(Some(Event::UpdateAccepted { request, name, input }))
    }

    /// The refusal of a request to an ended run; a repeated update still gets its answer.
    pub(super) fn refuse_closed(&self, input: &Input) -> InputRefused {
        let request: &str = match input {
            Input::Update { request, .. } => request,
            Input::Command {
                request: Some(request),
                ..
            } => request,
            _ => return InputRefused::Closed,
        };
        match self.ledger.update(request) {
            Some(UpdateStanding::Answered(answer)) => InputRefused::Answered {
                answer: answer.clone(),
            },
            Some(UpdateStanding::Accepted) | None => InputRefused::Closed,
        }
    }

    /// Performs an update on the state. Its answer is a decision, and code that waits for a condition is woken.
    pub(super) fn perform_update(
        &self,
        request: &str,
        name: &str,
        input: &Payload,
    ) -> Result<Vec<Waker>, ParkReason> {
        let cell = self.shared.lock().cell.clone();
        let changed = match &self.implementation {
            Some(implementation) => {
                // An update is code of the run: a scope that it cancels is cancelled in every replay.
                let _inside = self.shared.pulse().enter();
                implementation.handlers().change(cell.as_deref(), name, input)
            }
            None => Err(HandlerError::Unknown),
        };
        let stuck = |message: &str| ParkReason::Stuck {
            message: format!("the update {name:?} was accepted, but {message}"),
        };
        let answer = match changed {
            Ok(answer) => self.limits.oversize("answer", &answer).map_or(Ok(answer), Err),
            Err(HandlerError::Payload(error)) => Err(error.to_string()),
            Err(HandlerError::WrongType(error)) => Err(error.to_string()),
            Err(HandlerError::Panicked(message)) => {
                let message = self.limits.cut(message);
                return Err(ParkReason::Panicked { message, count: 1 });
            }
            Err(HandlerError::Unknown) => return Err(stuck("the code has none of this name")),
            Err(HandlerError::NoState | HandlerError::Rejected { .. } | HandlerError::Undoable(_)) => {
                return Err(stuck("the run has no state of its type"));
            }
        };
        let mut table = self.shared.lock();
        let request = request.to_string();
        table.decide(Event::UpdateAnswered { request, answer }, None);
        Ok(table.wake_state())
    }
}
