//! What a shard does with each message.

use std::sync::Arc;

use millrun_core::{Epoch, InstanceId, Partition, RunId, Sequence, SpanId, TraceContext};
use millrun_persistence::{ReadError, TurnError};
use millrun_workflow::{Input, Instance, Moment, Name, Outcome, OutcomeKind, Parent, Payload, Started, Turn};

use super::Shard;
use super::runs::entry::{Entry, Errand, Residence, WorkflowName};
use super::sweeps::answers::Response;
use crate::code::workflows::is_reserved;
use crate::config::MILLION;
use crate::looking::describe::{InstanceDescription, InstanceStatus};
use crate::mail::{
    CallerReply, Described, FinishedReads, FirstRequest, LocalMessage, Mailed, OnDisk, PartitionMessage,
    Replacement, Reply, Request, ShardMessage, Standing, StartDetails, StartFollowing, StartRequest,
    StartWith, StartedRun, Target, Tell, UpdateRefused, UpdateReply, UpdateRequest, Wake, check_workflow,
};
use crate::{OnConflict, RunError, StartError};

/// Adds to a beginning what the caller has set beside the input, if anything.
pub(super) fn with_details(started: Started, details: Option<Box<StartDetails>>, moment: Moment) -> Started {
    match details {
        Some(details) => details.said_of(started, moment.now),
        None => started,
    }
}

/// Begins a trace with a run, if the run is among the chosen ones and is not in a trace yet. The run's id decides, so that
/// the choice is the same wherever it is made.
#[cold]
fn begin_trace(run: RunId, started: &mut Started, per_million: u32) {
    let is_chosen = SpanId::of_run(run).bits() % u64::from(MILLION) < u64::from(per_million);
    if is_chosen && started.trace().is_none() && !is_reserved(&started.workflow) {
        let origin = Arc::make_mut(started.origin.get_or_insert_default());
        origin.trace = Some(TraceContext::beginning_with(run));
    }
}

/// Adds the signal that starts the run to its beginning.
pub(super) fn with_first_signal(
    started: Started,
    name: Name,
    value: Payload,
    request: Option<Box<str>>,
) -> Started {
    let started = started.with_signal(name, value);
    match request {
        Some(request) => started.with_signal_request(request),
        None => started,
    }
}

/// Whether a run may begin after one with this outcome, under a policy that lets only failed runs be followed.
fn unless_succeeded(run: RunId, outcome: OutcomeKind) -> Result<StartWay, StartError> {
    match outcome {
        OutcomeKind::Completed => Err(StartError::AlreadyFinished { run }),
        // A run that continued as new is the latest of its instance only if the run that continued it is not retained.
        OutcomeKind::Failed
        | OutcomeKind::Cancelled
        | OutcomeKind::Terminated
        | OutcomeKind::TimedOut
        | OutcomeKind::Continued => Ok(StartWay::Free),
    }
}

/// What a start has to know about the finished run of its id.
fn reads_for(policy: OnConflict) -> FinishedReads {
    match policy.looks_at_outcome() {
        true => FinishedReads::End,
        false => FinishedReads::Run,
    }
}

/// What a start finds at its id.
#[derive(Debug)]
pub(super) enum StartWay {
    /// A run may begin.
    Free,
    /// The start attaches to this run.
    Attach(StartedRun),
    /// This live run ends, and another begins in its place.
    Replace(RunId),
}

impl Shard {
    #[inline]
    pub(super) fn handle(&mut self, mut message: ShardMessage, moment: Moment) {
        if !self.asking.is_empty() {
            match self.asking.wait(message) {
                Some(other) => message = other,
                None => return,
            }
        }
        match message {
            ShardMessage::Request(request) => self.on_request(request, moment),
            ShardMessage::Partition(message) => {
                if message.life().is_none_or(|life| self.is_life(life)) {
                    self.on_partition_message(message, moment);
                }
            }
            ShardMessage::Mailed(mailed) => self.on_mailed(*mailed, moment),
            ShardMessage::Local(message) => {
                if message.life().is_none_or(|life| self.is_life(life)) {
                    self.on_local_message(message, moment);
                }
            }
        }
    }

    /// Handles mail of another node. The mail is removed from the store in this sweep's commit; if this shard fails before
    /// something that follows from it is done, the sender asks for that again.
    fn on_mailed(&mut self, mailed: Mailed, moment: Moment) {
        match mailed {
            Mailed::Message {
                number,
                owned: (partition, epoch),
                message,
            } => {
                if self.epochs.get(partition) == Some(epoch) {
                    self.sweeps.handle_mail(number, (partition, epoch));
                    self.handle(ShardMessage::Partition(message), moment);
                } else if let Some(mail) = &self.shared.mail {
                    // It is read again, under the present epoch.
                    mail.give_back(number, (partition, epoch));
                }
            }
            Mailed::Request {
                owned: (partition, epoch),
                request,
                place,
            } => {
                drop(place);
                // Under another epoch the request is dropped with the mail; the mail is read again, or its sender asks again.
                if self.epochs.get(partition) == Some(epoch) {
                    self.handle(ShardMessage::Request(request), moment);
                }
            }
            Mailed::Orphans {
                parents,
                children,
                awaited,
            } => {
                // A partition that was claimed here since may have begun children that the message does not know.
                let still = parents.iter().filter(|(partition, epoch)| {
                    let now = self.epochs.get(*partition);
                    now.is_none_or(|now| now == *epoch)
                });
                let parents = still.map(|(partition, _)| *partition).collect();
                self.on_orphans(&parents, &children, &awaited, moment);
            }
        }
    }

    #[inline]
    fn is_life(&self, (run, life): (RunId, Epoch)) -> bool {
        self.epoch_of(run) == life
    }

    fn on_request(&mut self, request: Request, moment: Moment) {
        let Some(partition) = request.partition() else {
            return self.answer_request(request, moment);
        };
        if !self.owns(partition) {
            return self.shared.ask_elsewhere(partition, request);
        }
        let before = self.effects.work_on(partition);
        self.answer_request(request, moment);
        self.effects.resume(before);
    }

    #[inline]
    fn answer_request(&mut self, request: Request, moment: Moment) {
        match request {
            Request::Start(request) => self.on_start(request, moment),
            Request::StartWith(request) => self.on_start_with(*request, moment),
            Request::StartFollowing(request) => self.on_start_after(*request, moment),
            Request::Tell {
                target,
                what: Tell::Reset(order),
                reply,
            } => self.on_reset(target, order, reply, moment),
            Request::Tell { target, what, reply } => {
                self.with_target(&target, Errand::Tell(what, reply), moment);
            }
            Request::Await { target, reply } => self.on_await(&target, reply, moment),
            Request::Describe { target, wake, reply } => self.on_describe(&target, wake, reply, moment),
            Request::Watch { target, reply } => self.on_watch(&target, reply),
            Request::Query {
                target,
                question,
                reply,
            } => self.with_target(&target, Errand::Query(question, reply), moment),
            Request::Update {
                target,
                request,
                reply,
            } => self.with_target(&target, Errand::Update(request, reply), moment),
            Request::List {
                after,
                len_max,
                reply,
            } => self.begin_list(after, len_max, reply),
            Request::Find(find) => self.begin_find(*find),
            Request::Append(append) => self.on_append(*append, moment),
            Request::Command(command) => self.on_command(command, moment),
        }
    }

    /// A run has asked something of an instance in this partition. If the partition is not owned, no answer is given: the run
    /// waits, and asks again when the partition is granted here.
    fn on_asked(&mut self, partition: Partition, answer: impl FnOnce(&mut Self)) {
        if !self.owns(partition) {
            return;
        }
        let before = self.effects.work_on(partition);
        answer(self);
        self.effects.resume(before);
    }

    fn on_partition_message(&mut self, message: PartitionMessage, moment: Moment) {
        match message {
            PartitionMessage::StartChild(request) => {
                self.on_asked(request.id.partition(), |shard| {
                    shard.on_start_child(*request, moment)
                });
            }
            PartitionMessage::ChildStarted {
                run,
                operation,
                child,
            } => {
                let input = Input::ChildStarted {
                    operation,
                    run: child,
                };
                self.with_run(run, Errand::Input(input), moment);
            }
            PartitionMessage::ChildEnded { run, operation, end } => {
                self.with_run(run, Errand::Input(Input::ChildEnded { operation, end }), moment);
            }
            PartitionMessage::CloseChild {
                id,
                parent,
                operation,
            } => self.on_close_child(&id, parent, operation, moment),
            PartitionMessage::CancelChild {
                id,
                parent,
                operation,
                reason,
            } => self.on_cancel_child(&id, (parent, operation), &reason, moment),
            PartitionMessage::Signal(signal) => {
                self.on_asked(signal.to.partition(), |shard| shard.on_signal(signal, moment));
            }
            PartitionMessage::SignalSent {
                run,
                operation,
                outcome,
                ask,
            } => self.on_signal_sent(run, operation, outcome, ask, moment),
            PartitionMessage::Begun { partitions } => self.on_begun(&partitions, moment),
            PartitionMessage::Orphans {
                parents,
                children,
                awaited,
            } => {
                // The message is out of date for partitions that have moved or begun anew since: their owner sends another
                // one.
                let parents = self.shared.claims.owned().still(&parents);
                self.on_orphans(&parents, &children, &awaited, moment);
            }
        }
    }

    fn on_local_message(&mut self, message: LocalMessage, moment: Moment) {
        match message {
            LocalMessage::TimerFired { run, operation, .. } => {
                self.with_run(run, Errand::Input(Input::TimerFired { operation }), moment);
            }
            LocalMessage::ResumeDue { run, .. } => self.with_run(run, Errand::Resume, moment),
            LocalMessage::TimeOutDue { run, .. } => {
                self.with_run(run, Errand::Input(Input::TimeOut), moment);
            }
            LocalMessage::PublishParked { run, operation } => {
                self.with_run(run, Errand::Input(Input::PublishParked { operation }), moment);
            }
            LocalMessage::Published {
                run,
                operation,
                outcome,
                topic,
            } => {
                self.with_run(
                    run,
                    Errand::Input(Input::Published { operation, outcome }),
                    moment,
                );
                if let Some(topic) = topic {
                    self.on_room(&topic, run, operation, moment);
                }
            }
            LocalMessage::AttemptStarted {
                run,
                operation,
                attempt,
            } => {
                let input = Input::AttemptStarted { operation, attempt };
                self.with_run(run, Errand::Input(input), moment);
            }
            LocalMessage::Heartbeat {
                run,
                operation,
                attempt,
                details,
            } => {
                let input = Input::Heartbeat {
                    operation,
                    attempt,
                    details,
                };
                self.with_run(run, Errand::Input(input), moment);
            }
            LocalMessage::Loaded { load, history } => self.on_loaded(load, history, moment),
            LocalMessage::ReadToReset { load, read } => self.on_read_to_reset(load, read, moment),
        }
    }

    /// The run that a target names. A caller that is told that there is none looks among the finished runs.
    fn find(&self, target: &Target) -> Result<RunId, RunError> {
        match target {
            Target::Latest(latest) => {
                let known = self.entries.latest(&latest.id).ok_or(RunError::NotFound)?;
                if let Some(workflow) = &latest.workflow {
                    check_workflow(workflow, known.workflow.began_as())?;
                }
                Ok(known.run)
            }
            Target::Run(run) if self.entries.contains(*run) => Ok(*run),
            Target::Run(_) => Err(RunError::NotFound),
        }
    }

    /// The run that a target names, if it has not ended.
    pub(super) fn find_live(&self, target: &Target) -> Result<RunId, RunError> {
        let run = self.find(target)?;
        match self.entries.get(run) {
            Some(entry) if entry.has_ended() => Err(RunError::Finished),
            Some(_) | None => Ok(run),
        }
    }

    /// Performs an errand on the run that a target names. The run is found and checked in the turn that performs the errand,
    /// so that no other run takes its id in between.
    fn with_target(&mut self, target: &Target, errand: Errand, moment: Moment) {
        match self.find(target) {
            Ok(run) => self.with_run(run, errand, moment),
            Err(error) => self.answer_unknown(errand, error),
        }
    }

    #[inline]
    pub(super) fn on_start(&mut self, request: StartRequest, moment: Moment) {
        let Some(way) = self.conflict(&request.id, &request.workflow, request.on_conflict) else {
            let reads = reads_for(request.on_conflict);
            return self.ask(request.id.clone(), Request::Start(request), reads);
        };
        if let Ok(StartWay::Replace(run)) = way {
            let replacement = Replacement {
                start: request,
                with: None,
            };
            return self.with_run(run, Errand::Replace(Box::new(replacement)), moment);
        }
        let StartRequest {
            id,
            workflow,
            input,
            details,
            on_conflict: _,
            reply,
            end,
        } = request;
        let answer = match way {
            Ok(StartWay::Free | StartWay::Replace(_)) => {
                let started = Started::new(workflow, id, input);
                self.begin_asked(with_details(started, details, moment), end, moment)
            }
            Ok(StartWay::Attach(attached)) => Ok(attached),
            Err(error) => Err(error),
        };
        self.answer_start(reply, answer);
        if !self.continuing.is_empty() {
            self.continue_runs(moment);
        }
    }

    /// Starts a run that follows a finished one, if no other run has followed that one.
    fn on_start_after(&mut self, request: StartFollowing, moment: Moment) {
        let Some(way) = self.succession(&request.start.id, request.run) else {
            let id = request.start.id.clone();
            return self.ask(id, Request::StartFollowing(Box::new(request)), FinishedReads::Run);
        };
        let StartRequest {
            id,
            workflow,
            input,
            details,
            on_conflict: _,
            reply,
            end,
        } = request.start;
        let answer = way.and_then(|()| {
            let started = Started::new(workflow, id, input);
            self.begin_asked(with_details(started, details, moment), end, moment)
        });
        self.answer_start(reply, answer);
        if !self.continuing.is_empty() {
            self.continue_runs(moment);
        }
    }

    /// Starts a run with a request that it finds when it begins, or gives the request to the run that exists.
    pub(super) fn on_start_with(&mut self, request: StartWith, moment: Moment) {
        let start = &request.start;
        let Some(way) = self.conflict(&start.id, &start.workflow, start.on_conflict) else {
            let (id, reads) = (start.id.clone(), reads_for(start.on_conflict));
            return self.ask(id, Request::StartWith(Box::new(request)), reads);
        };
        let StartWith { start, with } = request;
        if let Ok(StartWay::Replace(run)) = way {
            let with = Some(with);
            let replacement = Replacement { start, with };
            return self.with_run(run, Errand::Replace(Box::new(replacement)), moment);
        }
        let StartRequest {
            id,
            workflow,
            input,
            details,
            on_conflict: _,
            reply,
            end,
        } = start;
        let attached = match way {
            Ok(StartWay::Attach(attached)) => attached,
            Err(error) => return self.answer_start(reply, Err(error)),
            Ok(StartWay::Free | StartWay::Replace(_)) => {
                let started = with_details(Started::new(workflow, id, input), details, moment);
                match with {
                    FirstRequest::Signal {
                        name,
                        value,
                        request,
                        is_by_name: _,
                        reply: told,
                    } => {
                        let started = with_first_signal(started, name, value, request);
                        let answer = self.begin_asked(started, end, moment);
                        let begun = answer.as_ref().map(|started| started.run).ok();
                        self.answer_start(reply, answer);
                        if let Some(run) = begun {
                            let before = self.effects.work_on(run);
                            self.effects.answer(Response::Tell(told, Ok(())));
                            self.effects.resume(before);
                        }
                    }
                    FirstRequest::Update {
                        update,
                        reply: updated,
                    } => match self.begin_updated(started, end, update, updated, moment) {
                        Some(answer) => self.answer_start(reply, answer),
                        // The refusal of the update is the only answer; the reply to the start is dropped.
                        None => drop(reply),
                    },
                }
                return self.continue_runs(moment);
            }
        };
        self.answer_start(reply, Ok(attached));
        let errand = match with {
            FirstRequest::Signal {
                name,
                value,
                request,
                is_by_name,
                reply,
            } => {
                let signal = Tell::Signal {
                    name,
                    value,
                    cause: details.and_then(|stems| stems.cause).map(Box::new),
                    request,
                    is_by_name,
                };
                Errand::Tell(signal, reply)
            }
            FirstRequest::Update { update, reply } => Errand::Update(update, reply),
        };
        if self.entries.contains(attached.run) {
            self.with_run(attached.run, errand, moment);
        } else {
            self.answer_unknown(errand, RunError::Finished);
        }
    }

    /// Answers a start, on behalf of the run that the answer names.
    pub(super) fn answer_start(
        &mut self,
        reply: Reply<StartedRun, StartError>,
        answer: Result<StartedRun, StartError>,
    ) {
        let run = match &answer {
            Ok(started) => Some(started.run),
            Err(StartError::AlreadyRunning { run } | StartError::AlreadyFinished { run }) => Some(*run),
            Err(_) => None,
        };
        let before = run.map(|run| self.effects.work_on(run));
        self.effects.answer(Response::Start(reply, answer));
        if let Some(before) = before {
            self.effects.resume(before);
        }
    }

    /// Begins a run that a caller asked for, if there is room for another live run.
    #[inline]
    fn begin_asked(
        &mut self,
        mut started: Started,
        end: Option<CallerReply<Standing>>,
        moment: Moment,
    ) -> Result<StartedRun, StartError> {
        let run = self.next_run(&mut started, moment)?;
        self.begin(run, started, end, None, moment)
            .map_err(|error| StartError::Turn(error.to_string()))?;
        Ok(StartedRun::begun(run))
    }

    /// Chooses the id of a run that a caller asked for, if there is room for another live run. A trace may begin with it.
    pub(super) fn next_run(&self, started: &mut Started, moment: Moment) -> Result<RunId, StartError> {
        let len_max = self.shared.config.live_len_max;
        if self.census.live_len() >= len_max {
            return Err(StartError::TooManyLive { len_max });
        }
        Ok(self.name_run(started, moment))
    }

    /// Chooses the id of a run that a caller asked for. A trace may begin with it.
    pub(super) fn name_run(&self, started: &mut Started, moment: Moment) -> RunId {
        let run = RunId::new(started.id.partition(), moment.now, self.shared.host.random());
        let per_million = self.shared.config.traced_per_million;
        if per_million > 0 {
            begin_trace(run, started, per_million);
        }
        run
    }

    /// Begins a run and applies an update to it in the same turn. `None` if the run refused the update: then nothing has
    /// begun, and the update's caller has been told so.
    fn begin_updated(
        &mut self,
        mut started: Started,
        end: Option<CallerReply<Standing>>,
        update: UpdateRequest,
        reply: UpdateReply,
        moment: Moment,
    ) -> Option<Result<StartedRun, StartError>> {
        let run = match self.next_run(&mut started, moment) {
            Ok(run) => run,
            Err(error) => return Some(Err(error)),
        };
        let (parent, id) = (started.parent(), started.id.clone());
        let (mut instance, mut turn) = self.start_instance(run, started, None, moment);
        let workflow = WorkflowName::of_begun(&instance);
        let UpdateRequest { request, name, input } = update;
        let key = (run, request.clone());
        let input = Input::Update { request, name, input };
        if let Err(refused) = instance.apply(input, self.moment_of(run, moment.now), &mut turn) {
            self.give_back(turn);
            let refused = UpdateRefused::Run(RunError::from(refused));
            self.effects.answer(Response::Update(reply, Err(refused)));
            return None;
        }
        self.updates.wait(key, reply);
        let entry = Entry::new(run, id, workflow, Residence::Hot(instance)).with_starter(end);
        let begun = self.take_in(run, entry, parent, turn, moment);
        Some(match begun {
            Ok(()) => Ok(StartedRun::begun(run)),
            Err(error) => {
                self.updates.drop_of(run);
                Err(StartError::Turn(error.to_string()))
            }
        })
    }

    /// Makes an instance, and its first turn.
    #[inline]
    pub(super) fn start_instance(
        &mut self,
        run: RunId,
        started: Started,
        continued: Option<u32>,
        moment: Moment,
    ) -> (Box<Instance>, Box<Turn>) {
        let implementation = self.shared.workflows.code_to_begin(&started, continued);
        let limits = self.shared.config.limits;
        let mut turn = self.turn.take().unwrap_or_default();
        self.shared.watch.run(self.ways.index(), run);
        let moment = self.moment_of(run, moment.now);
        let instance = Instance::start_in(&mut turn, implementation, run, started, limits, moment);
        (instance, turn)
    }

    /// Begins a run and lists the receiver that is told its end. `continued` is the version of the run that this one
    /// continues, if that run was of the same workflow.
    pub(super) fn begin(
        &mut self,
        run: RunId,
        started: Started,
        end: Option<CallerReply<Standing>>,
        continued: Option<u32>,
        moment: Moment,
    ) -> Result<(), TurnError> {
        let (id, parent) = (started.id.clone(), started.parent());
        let (instance, turn) = self.start_instance(run, started, continued, moment);
        let workflow = WorkflowName::of_begun(&instance);
        let entry = Entry::new(run, id, workflow, Residence::Hot(instance)).with_starter(end);
        self.take_in(run, entry, parent, turn, moment)
    }

    /// Lists a run and records its first turn.
    pub(super) fn take_in(
        &mut self,
        run: RunId,
        entry: Entry,
        parent: Option<Parent>,
        mut turn: Box<Turn>,
        moment: Moment,
    ) -> Result<(), TurnError> {
        self.census.enter(&entry.workflow, parent.is_some());
        let replaced = self.entries.insert(entry.with_parent(parent));
        self.residency.enter(run, &mut self.entries);
        let before = self.effects.work_on(run);
        let adopted = self.adopt(run, Sequence::ZERO, &mut turn, moment);
        self.effects.resume(before);
        match &adopted {
            Ok(()) => self.census.note_start(),
            Err(_) => self.forget(run, replaced),
        }
        self.give_back(turn);
        adopted
    }

    /// Undoes a start that could not be recorded.
    fn forget(&mut self, run: RunId, replaced: Option<RunId>) {
        if let Some(mut entry) = self.entries.undo(run, replaced) {
            self.residency.leave(&mut entry);
            self.census.leave(&entry);
        }
    }

    /// What a start finds at its id, or why it is refused. `None` if a reader has to be asked first.
    pub(super) fn conflict(
        &self,
        id: &InstanceId,
        workflow: &Name,
        policy: OnConflict,
    ) -> Option<Result<StartWay, StartError>> {
        let Some(entry) = self.entries.latest(id) else {
            return self.conflict_on_disk(id, policy);
        };
        let (run, found, is_live) = (entry.run, entry.workflow.began_as(), !entry.has_ended());
        let concerns_live = match policy {
            OnConflict::Attach => true,
            OnConflict::RestartFinished | OnConflict::RestartFailed | OnConflict::TerminateRunning => is_live,
            OnConflict::Refuse => false,
        };
        if concerns_live && found != workflow {
            return Some(Err(StartError::OtherWorkflow {
                expected: workflow.clone(),
                workflow: found.to_owned(),
            }));
        }
        Some(match (policy, is_live) {
            (OnConflict::Attach, _) | (OnConflict::RestartFinished | OnConflict::RestartFailed, true) => {
                Ok(StartWay::Attach(StartedRun::attached(run, true)))
            }
            (OnConflict::TerminateRunning, true) => Ok(StartWay::Replace(run)),
            (OnConflict::RestartFinished | OnConflict::TerminateRunning, false) => Ok(StartWay::Free),
            (OnConflict::RestartFailed, false) => {
                // The roster drops the entry of an ended run together with its result, so the outcome is known.
                let outcome = entry.result().and_then(|number| self.results.get(number));
                unless_succeeded(run, outcome.map_or(OutcomeKind::Completed, Outcome::kind))
            }
            (OnConflict::Refuse, true) => Err(StartError::AlreadyRunning { run }),
            (OnConflict::Refuse, false) => Err(StartError::AlreadyFinished { run }),
        })
    }

    /// As [`conflict`](Self::conflict), for an id without a run in the roster.
    fn conflict_on_disk(&self, id: &InstanceId, policy: OnConflict) -> Option<Result<StartWay, StartError>> {
        let found = self.finished(id)?;
        let run = match found.finished {
            Ok(Some(run)) => run,
            Ok(None) | Err(ReadError::Expired { .. }) => return Some(Ok(StartWay::Free)),
            Err(error) => return Some(Err(error.into())),
        };
        Some(match policy {
            OnConflict::Attach => Ok(StartWay::Attach(StartedRun::attached(run, false))),
            OnConflict::RestartFinished | OnConflict::TerminateRunning => Ok(StartWay::Free),
            OnConflict::RestartFailed => match found.outcome? {
                Ok(outcome) => unless_succeeded(run, outcome),
                Err(error) => match StartError::of_unread(run, error) {
                    Some(error) => Err(error),
                    // The finished run was dropped while it was read.
                    None => Ok(StartWay::Free),
                },
            },
            OnConflict::Refuse => Err(StartError::AlreadyFinished { run }),
        })
    }

    /// Whether this run is the latest of its instance and has finished, so that another may follow it; otherwise the reason.
    /// `None` if a reader has to be asked first.
    fn succession(&self, id: &InstanceId, after: RunId) -> Option<Result<(), StartError>> {
        let (run, is_live) = match self.entries.latest(id) {
            Some(entry) => (entry.run, !entry.has_ended()),
            None => match self.finished(id)?.finished {
                Ok(Some(run)) => (run, false),
                // Other runs may have followed it and been dropped as well.
                Ok(None) | Err(ReadError::Expired { .. }) => {
                    return Some(Err(StartError::NotRetained { run: after }));
                }
                Err(error) => return Some(Err(error.into())),
            },
        };
        Some(if is_live {
            Err(StartError::AlreadyRunning { run })
        } else if run == after {
            Ok(())
        } else {
            Err(StartError::AlreadyFinished { run })
        })
    }

    fn on_await(&mut self, target: &Target, reply: Reply<Standing>, moment: Moment) {
        let run = match self.find(target) {
            Ok(run) => run,
            Err(error) => return self.effects.answer(Response::Standing(reply, Err(error))),
        };
        let before = self.effects.work_on(run);
        self.await_run(run, reply, moment);
        self.effects.resume(before);
    }

    fn await_run(&mut self, run: RunId, reply: Reply<Standing>, moment: Moment) {
        let entry = self.entries.get_mut(run).expect("found just now");
        match &entry.residence {
            Residence::Ended(number) => match self.results.get(*number) {
                Some(Outcome::Continued(next)) => {
                    let next = Target::Run(*next);
                    self.on_await(&next, reply, moment);
                }
                Some(outcome) => {
                    let standing = Ok(Standing::Ended(outcome.clone()));
                    self.effects.answer(Response::Standing(reply, standing));
                }
                // The caller looks among the finished runs.
                None => {
                    let answer = Response::Standing(reply, Err(RunError::NotFound));
                    self.effects.answer(answer);
                }
            },
            Residence::Hot(_) => {
                entry.wait(reply);
                self.answer_if_parked(run, moment);
            }
            // A read-only runtime runs no code: the history is all there is.
            Residence::Cold if self.shared.is_read_only => entry.wait(reply),
            Residence::Cold if entry.is_parked() || !self.shared.workflows.have(entry.beginning()) => {
                // Nothing may ever wake the run, so it is read to tell the caller why it does not run.
                entry.wait(reply);
                entry.residence = Residence::Loading(Box::default());
                self.residency.read(run);
            }
            Residence::Cold | Residence::Loading(_) => entry.wait(reply),
        }
    }

    /// Describes a run: here if it is in memory or may be brought there, otherwise by a reader.
    fn on_describe(&mut self, target: &Target, wake: Wake, reply: Reply<Described>, moment: Moment) {
        let on_disk = match wake {
            Wake::Never => self.find_on_disk(target),
            Wake::First if self.shared.is_read_only => self.find_on_disk(target),
            Wake::First => None,
        };
        match on_disk {
            Some(on_disk) => {
                let answer = Response::Describe(reply, Ok(Described::OnDisk(on_disk)));
                self.effects.answer(answer);
            }
            None => self.with_target(target, Errand::Describe(reply), moment),
        }
    }

    /// The run that a target names, or the run that continues it, if that is only on disk.
    fn find_on_disk(&self, target: &Target) -> Option<OnDisk> {
        let mut run = self.find(target).ok()?;
        loop {
            let known = self.entries.known(run)?;
            match known.result().map(|number| self.results.get(number)) {
                Some(Some(Outcome::Continued(next))) => run = *next,
                Some(_) => return None,
                None => {
                    return known.is_on_disk().then(|| OnDisk {
                        run,
                        epoch: self.epoch_of(run),
                        is_parked: known.is_parked(),
                    });
                }
            }
        }
    }

    /// The description of a run in memory.
    pub(super) fn describe(&self, run: RunId) -> Option<InstanceDescription> {
        let entry = self.entries.get(run)?;
        let Residence::Hot(instance) = &entry.residence else {
            return None;
        };
        let epoch = self.epoch_of(run);
        let mut description = self
            .shared
            .describe(run, instance.ledger(), epoch, entry.is_parked())?;
        if entry.has_ended() {
            description.status = InstanceStatus::Finished;
        }
        description.is_in_memory = true;
        description.awaited = instance.awaited();
        description.lines = instance.lines();
        description.will_park = instance.foreseen_park_reason();
        let parked = instance.park_reason();
        let since = parked.zip(description.parked_since);
        let limits = &self.shared.config.limits;
        description.resumes_at = since.and_then(|(reason, since)| limits.resume_at(reason, since));
        description.parked = parked.cloned();
        Some(description)
    }
}
