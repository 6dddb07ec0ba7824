//! Runs that are reset: the instance goes on in another, which begins with a part of the history of the former one.
//!
//! ```text
//!   live run ──► what is kept is read ──► the other is begun in memory ──┬─ former ended, other begun    one commit
//!                (what comes waits)                                      └─ it cannot begin ──► all stays as it was
//!   ended run ─► what is kept is read ──► the other is begun, unless a run of the id has begun meanwhile
//! ```
//!
//! What can be refused without the history is refused first. The rest [is read](crate::reader) beside the shard, and no more of it
//! than a turn may have, so that this bounds the replay in which the other run begins, too. A run in memory stays there meanwhile.
//!
//! The code is run before anything is recorded. The turn in which the other begins and the one that ends the former are a
//! [group](millrun_persistence::Batch::group): the journal takes both or neither. What was on its way to the former run, reports of
//! its activities for one, finds that it has ended.

use millrun_core::{InstanceId, RunId, Sequence, Timestamp};
use millrun_persistence::TurnError;
use millrun_workflow::{Event, Implementation, Input, Instance, Moment, Parent, Pending, ResetRefused, Turn};

use super::Shard;
use super::replacing::{Successor, check_turn};
use super::residency::Residency;
use super::runs::entry::{Entry, Errand, Residence, WorkflowName};
use super::sweeps::answers::Response;
use crate::RunError;
use crate::code::workflows::{Beginning, is_reserved};
use crate::mail::{
    FinishedReads, Load, ReadToReset, Reply, Request, ResetOrder, ResetReading, ResetReads, Target, Tell,
    check_workflow,
};

impl Shard {
    /// A caller has an instance reset.
    pub(super) fn on_reset(
        &mut self,
        target: Target,
        order: Box<ResetOrder>,
        reply: Reply<()>,
        moment: Moment,
    ) {
        let mut ended = None;
        if let Some(latest) = self.entries.latest(&order.id) {
            let run = latest.run;
            ended = Some(run);
            if run == order.next {
                // It is asked for again.
                return self.answer_reset(run, reply, Ok(()));
            }
            let checked = check_target(&target, latest.workflow.began_as());
            let is_live = !latest.has_ended();
            let checked = checked.and_then(|()| self.check_order(run, is_live, &order));
            match checked {
                Ok(()) if is_live => {
                    return self.with_run(run, Errand::Tell(Tell::Reset(order), reply), moment);
                }
                Ok(()) => {}
                Err(error) => return self.answer_reset(run, reply, Err(error)),
            }
        }
        let reads = ResetReads::from(&order.point);
        let read = self.take_to_reset(&order.id, reads);
        // Another may have begun and ended since that was read.
        let read = read.filter(|read| match (ended, read) {
            (Some(ended), Ok((run, _))) => ended == *run,
            _ => true,
        });
        let Some(read) = read else {
            let (id, what) = (order.id.clone(), Tell::Reset(order));
            let request = Request::Tell { target, what, reply };
            return self.ask(id, request, FinishedReads::ToReset(reads));
        };
        let next = order.next;
        let begun = read.and_then(|(run, reading)| self.reset_ended(&target, &order, (run, reading), moment));
        self.answer_reset(next, reply, begun);
        self.continue_runs(moment);
    }

    fn answer_reset(&mut self, run: RunId, reply: Reply<()>, answer: Result<(), RunError>) {
        let before = self.effects.work_on(run);
        self.effects.answer(Response::Tell(reply, answer));
        self.effects.resume(before);
    }

    /// Refuses what no history is needed for.
    fn check_order(&self, run: RunId, is_live: bool, order: &ResetOrder) -> Result<(), RunError> {
        let ResetOrder { point, .. } = order;
        if point.run.is_some_and(|meant| meant != run) {
            return Err(ResetRefused::NotLatest { latest: run }.into());
        }
        if !is_live {
            return self.check_room();
        }
        let Some(entry) = self.entries.get(run) else {
            return Ok(());
        };
        let code = self.shared.workflows.code_of(entry.beginning());
        if is_reserved(entry.workflow.as_str()) || code.is_some_and(Implementation::is_entity) {
            let workflow = entry.workflow.as_str().to_owned();
            return Err(ResetRefused::NoWorkflow { workflow }.into());
        }
        let Residence::Hot(instance) = &entry.residence else {
            return Ok(());
        };
        let (to, head) = (point.to, instance.sequence());
        if to == Sequence::ZERO || to > head {
            return Err(ResetRefused::NoEvent { to, head }.into());
        }
        match live_child(instance) {
            Some(child) => Err(ResetRefused::ChildLives { child }.into()),
            None => Ok(()),
        }
    }

    /// Refuses one live run too many.
    fn check_room(&self) -> Result<(), RunError> {
        let len_max = self.shared.config.live_len_max;
        match self.census.live_len() >= len_max {
            true => Err(ResetRefused::TooManyLive { len_max }.into()),
            false => Ok(()),
        }
    }

    /// Has read what a run in memory is reset with. It stays in memory, and what comes for it meanwhile waits.
    pub(super) fn read_to_reset(&mut self, run: RunId, order: Box<ResetOrder>, reply: Reply<()>) {
        if let Err(refused) = self.check_order(run, true, &order) {
            return self.answer_reset(run, reply, Err(refused));
        }
        let Some(entry) = self.entries.get_mut(run) else {
            return self.answer_reset(run, reply, Err(RunError::NotFound));
        };
        if matches!(entry.residence, Residence::Hot(_)) {
            self.residency.leave(entry);
        }
        let loading = Residence::loading(Errand::Tell(Tell::Reset(order), reply));
        let before = std::mem::replace(&mut entry.residence, loading);
        if let (Residence::Loading(loading), Residence::Hot(instance)) = (&mut entry.residence, before) {
            loading.in_memory = Some(instance);
        }
        self.residency.read(run);
    }

    /// What a run is reset with has been read.
    pub(super) fn on_read_to_reset(&mut self, load: Load, read: Option<Box<ReadToReset>>, moment: Moment) {
        self.note_read(load.run);
        let before = self.effects.work_on(load.run);
        self.begin_with_reset(load.run, read, moment);
        self.effects.resume(before);
    }

    fn begin_with_reset(&mut self, run: RunId, read: Option<Box<ReadToReset>>, moment: Moment) {
        let Some(Residence::Loading(loading)) = self.entries.get_mut(run).map(|entry| &mut entry.residence)
        else {
            return;
        };
        let Some(read) = read.filter(|_| loading.reads_to_reset().is_some()) else {
            // The reader's successor tries it; or something else is to be done first by now.
            return self.residency.read(run);
        };
        let ReadToReset { reading, story } = *read;
        match (loading.in_memory.take(), story) {
            (Some(instance), _) => {
                loading.to_reset = Some(reading);
                self.take_up(run, Ok((instance, false)), moment);
            }
            (None, Some(story)) => {
                loading.to_reset = Some(reading);
                self.bring_back(run, Some(story), moment);
            }
            (None, None) => {
                let reset = loading.held.remove(0);
                let is_needed = !loading.held.is_empty() || loading.park.is_some();
                let refusal = match reading.and_then(|reading| reading.events) {
                    Err(error) => error,
                    // It was in memory when it was read, and the run is to be read again.
                    Ok(_) => {
                        loading.held.insert(0, reset);
                        return self.residency.read(run);
                    }
                };
                self.answer_unknown(reset, refusal);
                let is_waited_for = self.entries.get(run).is_some_and(Entry::is_waited_for);
                if is_needed || is_waited_for {
                    return self.residency.read(run);
                }
                // It may have been read to be tried on newer code.
                let is_to_move = self.entries.get(run).is_some_and(|entry| {
                    let beginning = (entry.workflow.as_str(), entry.workflow.version(), &entry.id);
                    self.shared.workflows.code_to_move(beginning).is_some()
                });
                Residency::leave_on_disk(run, &mut self.entries, self.sweeps.durable_len());
                if is_to_move {
                    self.residency.move_later(run);
                }
            }
        }
    }

    /// Ends a run in memory, and begins another in its place, in one sweep.
    pub(super) fn reset(
        &mut self,
        former: RunId,
        order: ResetOrder,
        reading: Result<ResetReading, RunError>,
        reply: Reply<()>,
        moment: Moment,
    ) {
        let next = order.next;
        let answer = reading.and_then(|reading| self.reset_live(former, order, reading, moment));
        let of = if answer.is_ok() { next } else { former };
        self.answer_reset(of, reply, answer);
        self.continue_runs(moment);
    }

    fn reset_live(
        &mut self,
        former: RunId,
        order: ResetOrder,
        reading: ResetReading,
        moment: Moment,
    ) -> Result<(), RunError> {
        self.check_order(former, true, &order)?;
        let successor = self.begin_reset(former, &order, reading, moment)?;
        let ResetOrder { next, point, .. } = order;
        let end = Input::Reset {
            run: next,
            to: point.to,
            reason: point.reason,
        };
        self.end_and_begin(former, end, successor, moment)?;
        let ended = self.entries.get_mut(former);
        let waiters = ended.map_or_else(Vec::new, |entry| entry.take_waiters().collect());
        self.wait_on(next, waiters, moment);
        Ok(())
    }

    /// Begins a run behind one that has ended.
    fn reset_ended(
        &mut self,
        target: &Target,
        order: &ResetOrder,
        (run, reading): (RunId, ResetReading),
        moment: Moment,
    ) -> Result<(), RunError> {
        check_target(target, reading.began.began_as())?;
        self.check_order(run, false, order)?;
        let Successor { entry, parent, turn } = self.begin_reset(run, order, reading, moment)?;
        self.take_in(order.next, entry, parent, turn, moment)
            .map_err(|error| RunError::Turn(error.to_string()))
    }

    /// Begins the other run in memory, of which nothing is recorded yet.
    fn begin_reset(
        &mut self,
        former: RunId,
        order: &ResetOrder,
        reading: ResetReading,
        moment: Moment,
    ) -> Result<Successor, RunError> {
        let ResetOrder { next, point, .. } = order;
        let mut events = reading.events?;
        let to = point.to;
        let workflow = reading.began.workflow.to_string();
        let version = version_at(&events, to);
        let beginning = Beginning::of(&reading.began, version);
        let (limits, turn_bytes_max) = (
            self.shared.config.limits,
            self.shared.config.journal.turn_bytes_max,
        );
        let newest = self.shared.workflows.code_to_move(beginning).cloned();
        let own = self.shared.workflows.code_of(beginning).cloned();
        let mut codes: Vec<_> = newest.into_iter().chain(own).collect();
        let mut refused = ResetRefused::NoCode { workflow, version };
        codes.reverse();
        while let Some(code) = codes.pop() {
            let kept = match codes.is_empty() {
                true => std::mem::take(&mut events),
                false => events.clone(),
            };
            let mut turn = self.turn.take().unwrap_or_default();
            self.shared.watch.run(self.ways.index(), *next);
            let at = self.moment_of(*next, moment.now);
            let begun = Instance::begin_reset(&code, *next, (former, kept), point, limits, at, &mut turn);
            let begun =
                begun.and_then(
                    |instance| match check_turn(&mut turn, &point.reason, turn_bytes_max) {
                        Ok(()) => Ok(instance),
                        Err(TurnError::TooLarge { bytes, max }) => {
                            let bytes_max = max;
                            Err(ResetRefused::TooLarge { bytes, bytes_max })
                        }
                        Err(error) => {
                            let reason = error.to_string();
                            Err(ResetRefused::Fails { reason })
                        }
                    },
                );
            match begun {
                Ok(instance) => return Ok(successor(*next, Box::new(instance), turn)),
                Err(error) => {
                    self.give_back(turn);
                    refused = error;
                }
            }
        }
        Err(refused.into())
    }
}

fn successor(run: RunId, instance: Box<Instance>, turn: Box<Turn>) -> Successor {
    let started = instance.ledger().started();
    let started = started.expect("an instance that has begun says how");
    let (id, parent): (InstanceId, Option<Parent>) = (started.id.clone(), started.parent());
    let workflow = WorkflowName::of_begun(&instance);
    let workflow = workflow.with_version(instance.ledger().version());
    Successor {
        entry: Entry::new(run, id, workflow, Residence::Hot(instance)),
        parent,
        turn,
    }
}

/// A child that a run waits for. The other run could not call it again, as long as it lives.
fn live_child(instance: &Instance) -> Option<InstanceId> {
    let mut pending = instance.ledger().pending();
    pending.find_map(|(_, pending)| match pending {
        Pending::Child { scheduled, .. } => Some(scheduled.id.clone()),
        _ => None,
    })
}

/// Refuses what is meant for an instance that began as another workflow.
fn check_target(target: &Target, began_as: &str) -> Result<(), RunError> {
    match target {
        Target::Latest(latest) => latest
            .workflow
            .as_ref()
            .map_or(Ok(()), |expected| check_workflow(expected, began_as)),
        Target::Run(_) => Ok(()),
    }
}

/// The version of the code that the run had at an event.
fn version_at(events: &[(Event, Timestamp)], to: Sequence) -> u32 {
    let kept_len = usize::try_from(to.get()).unwrap_or(usize::MAX);
    let events = events.iter().take(kept_len);
    let versions = events.filter_map(|(event, _)| match event {
        Event::Started(started) => Some(started.version),
        Event::VersionChanged { version } => Some(*version),
        _ => None,
    });
    versions.last().unwrap_or(0)
}
