//! Runs that are reset: the instance goes on in another, which begins with a part of the history of the former one.
//!
//! ```text
//!   live run ──► all of its history is read ──► the other is begun in memory ──┬─ former ended, other begun    one commit
//!                (what comes waits)                                            └─ it cannot begin ──► all stays as it was
//!   ended run ─► all of its history is read ──► the other is begun, unless a run of the id has begun meanwhile
//! ```
//!
//! The code is run before anything is recorded. The turn in which the other begins is tied to the one that ends the former: the
//! journal takes both or neither. What was on its way to the former run, reports of its activities for one, finds that it has ended.

use millrun_core::{InstanceId, RunId, Sequence};
use millrun_persistence::{ReadError, TurnError};
use millrun_workflow::{Event, Input, Instance, Moment, Pending, ResetRefused, Turn};

use super::Shard;
use super::replacing::check_turn;
use super::runs::entry::{Entry, Errand, Residence, Sender, WorkflowName};
use super::sweeps::answers::Response;
use crate::RunError;
use crate::code::workflows::{Beginning, is_reserved};
use crate::mail::{
    FinishedReads, Found, Reply, Request, ResetOrder, Target, Tell, WholeHistory, check_workflow,
};

/// A run that has begun in memory, and its first turn.
type BegunReset = (Box<Instance>, Box<Turn>);

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
            if !latest.has_ended() {
                return match check_target(&target, latest.workflow.began_as()) {
                    Ok(()) => self.with_run(run, Errand::Tell(Tell::Reset(order), reply), moment),
                    Err(error) => self.answer_reset(run, reply, Err(error)),
                };
            }
        }
        // Another may have begun and ended since that was read.
        let found = self
            .finished_events(&order.id)
            .filter(|found| match (ended, &found.finished) {
                (Some(ended), Ok(Some(read))) => ended == *read,
                _ => true,
            });
        let Some(found) = found else {
            let (id, what) = (order.id.clone(), Tell::Reset(order));
            let request = Request::Tell { target, what, reply };
            return self.ask(id, request, FinishedReads::Events);
        };
        let next = order.next;
        let begun = self.reset_ended(&target, &order, found, moment);
        self.answer_reset(next, reply, begun);
        self.continue_runs(moment);
    }

    fn answer_reset(&mut self, run: RunId, reply: Reply<()>, answer: Result<(), RunError>) {
        let before = self.effects.work_on(run);
        self.effects.answer(Response::Tell(reply, answer));
        self.effects.resume(before);
    }

    /// Ends a run in memory, of which this is all of the history, and begins another in its place, in one sweep.
    pub(super) fn reset(
        &mut self,
        former: RunId,
        order: ResetOrder,
        whole: &WholeHistory,
        reply: Reply<()>,
        moment: Moment,
    ) {
        let next = order.next;
        let answer = self.reset_live(former, order, whole, moment);
        let of = if answer.is_ok() { next } else { former };
        self.answer_reset(of, reply, answer);
        self.continue_runs(moment);
    }

    fn reset_live(
        &mut self,
        former: RunId,
        order: ResetOrder,
        whole: &WholeHistory,
        moment: Moment,
    ) -> Result<(), RunError> {
        if let Some(child) = self.live_child(former) {
            return Err(ResetRefused::ChildLives { child }.into());
        }
        let (instance, turn) = self.begin_reset(former, &order, whole, moment)?;
        let ResetOrder { next, point, .. } = order;
        let end = Input::Reset {
            run: next,
            to: point.to,
            reason: point.reason,
        };
        if let Err(error) = self.apply(former, end, moment, Sender::Outside) {
            self.give_back(turn);
            return Err(error);
        }
        let ended = self.entries.get_mut(former);
        let waiters = ended.map_or_else(Vec::new, |entry| entry.take_waiters().collect());
        self.take_in_reset(next, (instance, turn), moment)?;
        self.sweeps.tie_last();
        self.wait_on(next, waiters, moment);
        Ok(())
    }

    /// A child that a run in memory waits for. The other run could not call it again, as long as it lives.
    fn live_child(&self, run: RunId) -> Option<InstanceId> {
        let Residence::Hot(instance) = &self.entries.get(run)?.residence else {
            return None;
        };
        instance
            .ledger()
            .pending()
            .find_map(|(_, pending)| match pending {
                Pending::Child { scheduled, .. } => Some(scheduled.id.clone()),
                _ => None,
            })
    }

    /// Begins a run behind one that has ended.
    fn reset_ended(
        &mut self,
        target: &Target,
        order: &ResetOrder,
        found: Found,
        moment: Moment,
    ) -> Result<(), RunError> {
        let run = match found.finished {
            Ok(run) => run.ok_or(RunError::NotFound)?,
            Err(ReadError::Expired { .. }) => return Err(RunError::Expired),
            Err(error) => return Err(error.into()),
        };
        let whole = (*found.whole.ok_or(RunError::NotFound)?)?;
        if let Some(started) = whole.started() {
            check_target(target, started.began_as())?;
            if let Some(parent) = started.parent() {
                return Err(ResetRefused::EndedChild { parent: parent.run }.into());
            }
        }
        let len_max = self.shared.config.live_len_max;
        if self.census.live_len() >= len_max {
            return Err(ResetRefused::TooManyLive { len_max }.into());
        }
        let begun = self.begin_reset(run, order, &whole, moment)?;
        self.take_in_reset(order.next, begun, moment)
    }

    /// Begins the other run in memory, of which nothing is recorded yet.
    fn begin_reset(
        &mut self,
        former: RunId,
        order: &ResetOrder,
        whole: &WholeHistory,
        moment: Moment,
    ) -> Result<BegunReset, RunError> {
        let ResetOrder { next, point, .. } = order;
        if point.run.is_some_and(|run| run != former) {
            return Err(ResetRefused::NotLatest { latest: former }.into());
        }
        let to = point.to;
        if let Some(trimmed) = whole.trimmed {
            let first = trimmed.next();
            return Err(ResetRefused::Trimmed { to, first }.into());
        }
        let no_start = || RunError::History("it does not tell how the run began".to_owned());
        let started = whole.started().ok_or_else(no_start)?;
        let workflow = started.workflow.to_string();
        if is_reserved(&workflow) {
            return Err(ResetRefused::NoWorkflow { workflow }.into());
        }
        let version = version_at(whole, to);
        let beginning = Beginning::of(started, version);
        let (limits, turn_bytes_max) = (
            self.shared.config.limits,
            self.shared.config.journal.turn_bytes_max,
        );
        let codes = [
            self.shared.workflows.code_to_move(beginning).cloned(),
            self.shared.workflows.code_of(beginning).cloned(),
        ];
        let mut refused = ResetRefused::NoCode { workflow, version };
        for code in codes.into_iter().flatten() {
            let mut turn = self.turn.take().unwrap_or_default();
            self.shared.watch.run(self.ways.index(), *next);
            let history = (former, whole.events.to_vec());
            let at = self.moment_of(*next, moment.now);
            let begun = Instance::begin_reset(&code, *next, history, point, limits, at, &mut turn);
            let begun = begun.and_then(|instance| match check_turn(&mut turn, turn_bytes_max) {
                Ok(()) => Ok(instance),
                Err(TurnError::TooLarge { bytes, max }) => {
                    let bytes_max = max;
                    Err(ResetRefused::TooLarge { bytes, bytes_max })
                }
                Err(error) => {
                    let reason = error.to_string();
                    Err(ResetRefused::Fails { reason })
                }
            });
            match begun {
                Ok(instance) => return Ok((Box::new(instance), turn)),
                Err(error) => {
                    self.give_back(turn);
                    refused = error;
                }
            }
        }
        Err(refused.into())
    }

    fn take_in_reset(
        &mut self,
        run: RunId,
        (instance, turn): BegunReset,
        moment: Moment,
    ) -> Result<(), RunError> {
        let started = instance.ledger().started();
        let started = started.expect("an instance that has begun says how");
        let (id, parent) = (started.id.clone(), started.parent());
        let workflow = WorkflowName::of_begun(&instance);
        let workflow = workflow.with_version(instance.ledger().version());
        let entry = Entry::new(run, id, workflow, Residence::Hot(instance));
        self.take_in(run, entry, parent, turn, moment)
            .map_err(|error| RunError::Turn(error.to_string()))
    }
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
fn version_at(whole: &WholeHistory, to: Sequence) -> u32 {
    let kept_len = usize::try_from(to.get()).unwrap_or(usize::MAX);
    let events = whole.events.iter().take(kept_len);
    let versions = events.filter_map(|(event, _)| match event {
        Event::Started(started) => Some(started.version),
        Event::VersionChanged { version } => Some(*version),
        _ => None,
    });
    versions.last().unwrap_or(0)
}
