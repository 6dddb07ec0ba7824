//! Commands of entities: each is performed in the turn that takes it, and answered when that turn is durable.
//!
//! ```text
//!   Command ──► its shard ─┬─ the entity is live ──► performed, at once or when it has been read
//!                          ├─ there is none ───────► begun and performed in one turn
//!                          └─ refused ─────────────► nothing is recorded, and nothing begins
//!   Signal of a run, to an entity ──► the same
//! ```

use millrun_core::RunId;
use millrun_workflow::{Input, InputRefused, Moment, OperationId, Payload, Started};

use super::Shard;
use super::requests::StartWay;
use super::runs::entry::{Entry, Errand, Residence, Sender, WorkflowName};
use super::sweeps::answers::Response;
use super::sweeps::effects::Effect;
use crate::mail::{
    CommandRefused, CommandReply, CommandRequest, EntityRequest, FinishedReads, Request, RunSignal,
    StartedRun,
};
use crate::{OnConflict, RunError, StartError};

impl Shard {
    /// A client sends a command to an entity.
    pub(super) fn on_command(&mut self, request: Box<CommandRequest>, moment: Moment) {
        let policy = OnConflict::RestartFinished;
        let Some(way) = self.conflict(&request.id, &request.workflow, policy) else {
            let id = request.id.clone();
            return self.ask(id, Request::Command(request), FinishedReads::Run);
        };
        let CommandRequest {
            id,
            workflow,
            command,
            reply,
        } = *request;
        match way {
            Ok(StartWay::Attach(StartedRun { run, .. }) | StartWay::Replace(run)) => {
                self.with_run(run, Errand::Command(Box::new(command), reply), moment);
            }
            Ok(StartWay::Free) => {
                let nothing = Payload::encode(&()).expect("nothing encodes");
                let started = Started::new(workflow, id, nothing);
                let begun = self.begin_entity(started, input_of(command), moment);
                let before = begun.as_ref().ok().map(|(run, _)| self.effects.work_on(*run));
                let answer = begun.and_then(|(_, answer)| answer.ok_or_else(|| RunError::Finished.into()));
                self.effects.answer(Response::Command(reply, answer));
                if let Some(before) = before {
                    self.effects.resume(before);
                }
            }
            Err(error) => self.effects.answer(Response::Command(reply, Err(error.into()))),
        }
    }

    /// Performs a command on an entity in memory.
    pub(super) fn command(
        &mut self,
        run: RunId,
        command: EntityRequest,
        reply: CommandReply,
        moment: Moment,
    ) {
        let answer = match self.apply(run, input_of(command), moment, Sender::Outside) {
            Ok(()) => match self.entries.get(run).map(|entry| &entry.residence) {
                Some(Residence::Hot(instance)) => {
                    let answer = instance.take_command_answer();
                    answer.ok_or_else(|| RunError::Finished.into())
                }
                Some(_) | None => Err(RunError::Finished.into()),
            },
            Err(RunError::Refused(InputRefused::Answered { answer })) => {
                answer.map_err(|message| RunError::History(message).into())
            }
            Err(error) => Err(error.into()),
        };
        self.effects.answer(Response::Command(reply, answer));
    }

    /// Begins an entity with its first input, in one turn; if the input is refused, nothing begins. Returns the answer to the
    /// input, if it has one.
    fn begin_entity(
        &mut self,
        mut started: Started,
        input: Input,
        moment: Moment,
    ) -> Result<(RunId, Option<Payload>), CommandRefused> {
        let run = self.next_run(&mut started, moment)?;
        let id = started.id.clone();
        let (mut instance, mut turn) = self.start_instance(run, started, None, moment);
        let workflow = WorkflowName::of_begun(&instance);
        if let Err(refused) = instance.apply(input, self.moment_of(run, moment.now), &mut turn) {
            self.give_back(turn);
            return Err(RunError::from(refused).into());
        }
        let answer = instance.take_command_answer();
        let entry = Entry::new(run, id, workflow, Residence::Hot(instance));
        let taken = self.take_in(run, entry, None, turn, moment);
        taken.map_err(|error| StartError::Turn(error.to_string()))?;
        Ok((run, answer))
    }

    /// Stops waiting for a child that an entity has started: once the child runs, its call is not sent again.
    pub(super) fn forget_left_child(&mut self, run: RunId, operation: OperationId) {
        if let Some(Residence::Hot(instance)) = self.entries.get(run).map(|entry| &entry.residence)
            && instance.ledger().pending_operation(operation).is_none()
        {
            self.effects.push(Effect::ForgetCall(run, operation));
        }
    }

    /// Whether a signal goes to an entity whose code is registered here. Such a signal begins the entity if it does not live.
    pub(super) fn is_for_entity(&self, signal: &RunSignal) -> bool {
        // A child that lives no longer does not begin anew.
        if signal.child.is_some() {
            return false;
        }
        let code = self.shared.workflows.code_of((&*signal.workflow, &signal.to));
        code.is_some_and(millrun_workflow::Implementation::is_entity)
    }

    /// Begins an entity with a signal that a run sent.
    pub(super) fn begin_told(&mut self, signal: &RunSignal, moment: Moment) -> Result<RunId, RunError> {
        let nothing = Payload::encode(&()).expect("nothing encodes");
        let started = Started::new(signal.workflow.clone(), signal.to.clone(), nothing);
        let input = Input::RunSignal {
            sender: Box::new(signal.sender),
            name: signal.name.clone(),
            value: signal.value.clone(),
        };
        match self.begin_entity(started, input, moment) {
            Ok((run, _)) => Ok(run),
            Err(CommandRefused::Run(error)) => Err(error),
            Err(CommandRefused::Start(error)) => Err(RunError::Turn(error.to_string())),
        }
    }
}

fn input_of(command: EntityRequest) -> Input {
    let EntityRequest { request, name, input } = command;
    Input::Command { request, name, input }
}
