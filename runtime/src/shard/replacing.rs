//! Starts that end the live run of their instance.
//!
//! ```text
//!   start ──► its shard: a live run ──► read, if it is on disk ──┬─ terminated, and another begun    one commit
//!                                                                 └─ nothing can begin ──► it goes on
//! ```
//!
//! The new run is checked, and updated if the start brings an update, before the live run ends. The turn in which it begins
//! is tied to the turn that ends the live run: the journal takes both or neither.

use millrun_core::RunId;
use millrun_persistence::TurnError;
use millrun_workflow::{Command, Input, Moment, Started, Turn, wire};

use super::Shard;
use super::family::check_beginning;
use super::requests::{with_details, with_first_signal};
use super::runs::entry::{Entry, Residence, Sender, WorkflowName};
use super::sweeps::answers::Response;
use crate::mail::{
    FirstRequest, Replacement, StartRequest, StartWith, StartedRun, UpdateRefused, UpdateRequest,
};
use crate::{RunError, StartError};

/// Whether a turn fits the journal, so that recording it cannot fail once the other run has ended.
pub(super) fn check_turn(turn: &mut Turn, max: usize) -> Result<(), TurnError> {
    /// More than a journal adds to a turn and to a record.
    const TURN_BYTES: usize = 1_024;
    const RECORD_BYTES: usize = 64;
    if let Some(Command::ContinueAsNew { started, .. }) = turn.commands.last_mut() {
        check_beginning(started, max)?;
    }
    let mut encoded = Vec::new();
    let mut bytes = TURN_BYTES;
    for event in &turn.events {
        encoded.clear();
        wire::encode(event, &mut encoded).expect("events made by the engine encode");
        bytes += encoded.len() + RECORD_BYTES;
    }
    if bytes > max {
        return Err(TurnError::TooLarge { bytes, max });
    }
    Ok(())
}

impl Replacement {
    /// The response that tells the caller that the live run could not be terminated.
    pub(super) fn refuse(self: Box<Self>, error: RunError) -> Response {
        Response::Start(self.start.reply, Err(StartError::not_replaced(error)))
    }
}

impl Shard {
    /// The run that was to be ended has ended by itself: the new run starts as usual.
    #[cold]
    pub(super) fn start_anew(&mut self, replacement: Replacement, moment: Moment) {
        let Replacement { start, with } = replacement;
        match with {
            None => self.on_start(start, moment),
            Some(with) => self.on_start_with(StartWith { start, with }, moment),
        }
    }

    /// Ends a run in memory and begins another in its place, in one sweep.
    pub(super) fn replace(&mut self, former: RunId, replacement: Replacement, moment: Moment) {
        let Replacement { start, with } = replacement;
        let StartRequest {
            id,
            workflow,
            input,
            details,
            on_conflict: _,
            reply,
            end,
        } = start;
        let mut started = with_details(Started::new(workflow, id.clone(), input), details, moment);
        let (mut told, mut update) = (None, None);
        match with {
            Some(FirstRequest::Signal {
                name,
                value,
                request,
                is_by_name: _,
                reply,
            }) => {
                started = with_first_signal(started, name, value, request);
                told = Some(reply);
            }
            Some(FirstRequest::Update { update: asked, reply }) => update = Some((asked, reply)),
            None => {}
        }
        let run = self.name_run(&mut started, moment);
        let (mut instance, mut turn) = self.start_instance(run, started, None, moment);
        let workflow = WorkflowName::of_begun(&instance);
        if let Some((asked, updated)) = update {
            let UpdateRequest { request, name, input } = asked;
            let key = (run, request.clone());
            let input = Input::Update { request, name, input };
            if let Err(refused) = instance.apply(input, self.moment_of(run, moment.now), &mut turn) {
                self.give_back(turn);
                // The refusal of the update is the only answer; the reply to the start is dropped.
                let refused = UpdateRefused::Run(RunError::from(refused));
                return self.effects.answer(Response::Update(updated, Err(refused)));
            }
            self.updates.wait(key, updated);
        }
        if let Err(error) = check_turn(&mut turn, self.shared.config.journal.turn_bytes_max) {
            self.give_back(turn);
            self.updates.drop_of(run);
            return self.answer_start(reply, Err(StartError::Turn(error.to_string())));
        }
        let reason = format!("run {run} takes its place");
        if let Err(error) = self.apply(former, Input::Terminate { reason }, moment, Sender::Outside) {
            self.give_back(turn);
            self.updates.drop_of(run);
            return self.answer_start(reply, Err(StartError::not_replaced(error)));
        }
        let entry = Entry::new(run, id, workflow, Residence::Hot(instance)).with_starter(end);
        let begun = self.take_in(run, entry, None, turn, moment);
        match begun {
            Ok(()) => {
                self.sweeps.tie_last();
                self.answer_start(reply, Ok(StartedRun::begun(run)));
                if let Some(told) = told {
                    let before = self.effects.work_on(run);
                    self.effects.answer(Response::Tell(told, Ok(())));
                    self.effects.resume(before);
                }
            }
            Err(error) => {
                self.updates.drop_of(run);
                self.answer_start(reply, Err(StartError::Turn(error.to_string())));
            }
        }
        self.continue_runs(moment);
    }
}
