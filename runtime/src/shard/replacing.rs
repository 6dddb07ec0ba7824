//! Starts that end the live run of their instance.
//!
//! ```text
//!   start ──► its shard: a live run ──► read, if it is on disk ──┬─ terminated, and another begun    one commit
//!                                                                 └─ nothing can begin ──► it goes on
//! ```
//!
//! The new run is checked, and updated if the start brings an update, before the live run ends. The turn in which it begins
//! and the turn that ends the live run are a [group](millrun_persistence::Batch::group): the journal takes both or neither.

use millrun_core::{RunId, Sequence};
use millrun_persistence::{TurnError, TurnHeader};
use millrun_workflow::{Command, Input, Moment, Parent, Started, Turn, wire};

use super::Shard;
use super::family::check_beginning;
use super::requests::{with_details, with_first_signal};
use super::runs::entry::{Entry, Residence, WorkflowName};
use super::sweeps::answers::Response;
use crate::mail::{
    FirstRequest, Replacement, StartRequest, StartWith, StartedRun, UpdateRefused, UpdateRequest,
};
use crate::{RunError, StartError};

/// A run that begins in the place of another, before anything of it is recorded.
pub(super) struct Successor {
    pub(super) entry: Entry,
    pub(super) parent: Option<Parent>,
    /// Its first turn.
    pub(super) turn: Box<Turn>,
}

/// More than the last turn of a run has beside the reason, if another takes its place.
const END_BYTES: usize = 1_024;

/// Whether the first turn of a run fits the journal together with the turn that ends another run for this reason, so that
/// recording both cannot fail once the other run has ended.
pub(super) fn check_turn(turn: &mut Turn, reason: &str, max: usize) -> Result<(), TurnError> {
    /// More than a journal adds to a turn and to a record.
    const TURN_BYTES: usize = 1_024;
    const RECORD_BYTES: usize = 64;
    if let Some(Command::ContinueAsNew { started, .. }) = turn.commands.last_mut() {
        check_beginning(started, max)?;
    }
    let mut encoded = Vec::new();
    let mut bytes = TURN_BYTES + END_BYTES + reason.len();
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
        let reason = format!("run {run} takes its place");
        if let Err(error) = check_turn(&mut turn, &reason, self.shared.config.journal.turn_bytes_max) {
            self.give_back(turn);
            self.updates.drop_of(run);
            return self.answer_start(reply, Err(StartError::Turn(error.to_string())));
        }
        let entry = Entry::new(run, id, workflow, Residence::Hot(instance)).with_starter(end);
        let successor = Successor {
            entry,
            parent: None,
            turn,
        };
        match self.end_and_begin(former, Input::Terminate { reason }, successor, moment) {
            Ok(()) => {
                self.answer_start(reply, Ok(StartedRun::begun(run)));
                if let Some(told) = told {
                    let before = self.effects.work_on(run);
                    self.effects.answer(Response::Tell(told, Ok(())));
                    self.effects.resume(before);
                }
            }
            Err(error) => {
                self.updates.drop_of(run);
                let error = match error {
                    RunError::Turn(problem) => StartError::Turn(problem),
                    error => StartError::not_replaced(error),
                };
                self.answer_start(reply, Err(error));
            }
        }
        self.continue_runs(moment);
    }

    /// Ends a run in memory by this input, and begins another of its instance in the sweep: the journal takes both turns or
    /// neither. If it fails, neither has happened.
    pub(super) fn end_and_begin(
        &mut self,
        former: RunId,
        end: Input,
        successor: Successor,
        moment: Moment,
    ) -> Result<(), RunError> {
        let Successor {
            entry,
            parent,
            mut turn,
        } = successor;
        let run = entry.run;
        let mut last = Box::<Turn>::default();
        if let Err(error) = self.record_both(former, end, &mut last, (&entry, &turn), moment) {
            self.give_back(turn);
            return Err(error);
        }
        self.census.note_events(last.events.len() + turn.events.len());
        self.carry_out(former, &mut last);
        self.census.enter(&entry.workflow, parent.is_some());
        self.entries.insert(entry.with_parent(parent));
        self.residency.enter(run, &mut self.entries);
        let before = self.effects.work_on(run);
        self.carry_out(run, &mut turn);
        self.effects.resume(before);
        self.census.note_start();
        self.give_back(turn);
        Ok(())
    }

    /// Ends a run in memory, and writes its last turn and the first one of the run that begins.
    fn record_both(
        &mut self,
        former: RunId,
        end: Input,
        last: &mut Turn,
        (begun, first): (&Entry, &Turn),
        moment: Moment,
    ) -> Result<(), RunError> {
        let at = self.moment_of(former, moment.now);
        let (run, epoch, time) = (begun.run, self.epoch_of(begun.run), moment.now);
        // The values that its code holds are dropped.
        self.shared.watch.run(self.ways.index(), former);
        let Some(Residence::Hot(instance)) = self.entries.get_mut(former).map(|entry| &mut entry.residence)
        else {
            return Err(RunError::NotFound);
        };
        let head = instance.sequence();
        instance.apply(end, at, last)?;
        let ends = TurnHeader {
            run: former,
            head,
            epoch,
            time,
            opens: None,
        };
        let begins = TurnHeader {
            run,
            head: Sequence::ZERO,
            epoch,
            time,
            opens: Some(&begun.id),
        };
        let Err(error) = self.sweeps.write_both([(ends, last), (begins, first)]) else {
            return Ok(());
        };
        tracing::warn!(run = %former, %error, "a run goes on: that it ends and another begins does not fit the journal");
        // In memory it has ended. Its history says that it goes on.
        if let Some(entry) = self.entries.get_mut(former) {
            self.residency.leave(entry);
            entry.residence = Residence::Cold;
        }
        Err(RunError::Turn(error.to_string()))
    }
}
