//! Runs that stem from other runs: children, and the next runs of instances that continue as new.
//!
//! ```text
//!   parent's shard                                   child's shard
//!     turn: ChildScheduled ── commit ── StartChild ──► begin, or find it begun
//!     note: ChildStarted  ◄──────────── commit ───────┘
//!     turn: ChildEnded    ◄──────────── commit ─────── its last turn
//!     ChildCancelRequested ─ commit ── CancelChild ──► cancel
//!     let go of, or ended ── commit ── CloseChild ───► cancel or terminate
//! ```
//!
//! Each of these messages may be lost in a crash, so recovery sends it again: a parent asks again for its pending children,
//! and each shard tells the others for which children its runs wait, so that a child whose parent is gone is closed. The call
//! names the child: a child that is asked for twice begins once. A parent that asks again for a child which it has asked to
//! cancel says so in the same message. A shard that replaces a failed one announces itself to the
//! others, which ask it again for the children that [their runs wait for](super::calls) there: the failed shard may have held
//! such a request, or its answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrun_core::{Cause, Epoch, InstanceId, Partition, RunId, TraceContext};
use millrun_persistence::{ReadError, TurnError};
use millrun_workflow::{
    ChildFailure, ChildScheduled, Implementation, Input, Instance, Moment, OperationId, Origin, Outcome,
    Parent, ParentClose, ParkReason, Pending, Started,
};

use super::Shard;
use super::runs::entry::{Entry, Errand, Residence, WorkflowName};
use super::runs::roster::Known;
use super::sweeps::answers::Response;
use super::sweeps::effects::Effect;
use crate::RunError;
use crate::mail::{FinishedReads, PartitionMessage, Reply, Standing, StartChild, child_end};
use crate::opening::recovery::RecoveredRun;
use crate::ownership::partition_set::PartitionSet;

/// How often an instance may continue as new within one turn.
const CONTINUED_MAX: usize = 100;

/// Tells a parent how its child ended.
pub(super) fn tell_parent(parent: &Parent, outcome: &Outcome) -> Effect {
    let end = child_end(outcome).unwrap_or_else(|| {
        let message = "it goes on in another run".into();
        Err(ChildFailure::NotStarted { message })
    });
    let message = PartitionMessage::ChildEnded {
        run: parent.run,
        operation: parent.operation,
        end,
    };
    Effect::Send(parent.run.partition(), Box::new(message))
}

/// Asks for a child to be started.
pub(super) fn start_child(
    run: RunId,
    scheduled: &ChildScheduled,
    trace: Option<&TraceContext>,
    (known, cancel): (Option<RunId>, Option<Arc<str>>),
) -> Effect {
    let call = Cause {
        run,
        operation: scheduled.operation.get(),
    };
    let request = StartChild {
        parent: Parent {
            run,
            operation: scheduled.operation,
            on_close: scheduled.on_close,
        },
        id: scheduled.id.clone(),
        workflow: scheduled.workflow.clone(),
        input: scheduled.input.clone(),
        not_before: scheduled.not_before,
        trace: trace.map(|trace| trace.at_operation(call)),
        timeouts: scheduled.timeouts.clone(),
        known,
        cancel,
    };
    let message = PartitionMessage::StartChild(Box::new(request));
    Effect::Send(scheduled.id.partition(), Box::new(message))
}

/// Asks a child, which was asked for before, to cancel.
pub(super) fn cancel_child(run: RunId, scheduled: &ChildScheduled, reason: Arc<str>) -> Effect {
    let message = PartitionMessage::CancelChild {
        id: scheduled.id.clone(),
        parent: run,
        operation: scheduled.operation,
        reason,
    };
    Effect::Send(scheduled.id.partition(), Box::new(message))
}

/// Tells a child's shard that no parent waits for the child any more.
pub(super) fn close_child(run: RunId, scheduled: &ChildScheduled) -> Effect {
    let message = PartitionMessage::CloseChild {
        id: scheduled.id.clone(),
        parent: run,
        operation: scheduled.operation,
    };
    Effect::Send(scheduled.id.partition(), Box::new(message))
}

/// Checks, before the former run ends, whether the first event of the run that continues it fits a turn. If it does not,
/// answers to updates are dropped from it, and then the known senders of signals.
pub(super) fn check_beginning(started: &mut Started, turn_bytes_max: usize) -> Result<(), TurnError> {
    const OVERHEAD_BYTES: usize = 4_096;
    let size = |started: &Started| {
        let carried = started.origin.as_ref().map_or(0, |origin| origin.carried_bytes());
        OVERHEAD_BYTES + carried + started.input.len()
    };
    let leave: [fn(&mut Origin); 3] = [
        |origin| origin.answers = Vec::new(),
        |origin| origin.signal_requests = Vec::new(),
        |origin| origin.senders = Vec::new(),
    ];
    for leave in leave {
        if size(started) > turn_bytes_max
            && let Some(origin) = &mut started.origin
        {
            leave(Arc::make_mut(origin));
        }
    }
    let bytes = size(started);
    if bytes > turn_bytes_max {
        let max = turn_bytes_max;
        return Err(TurnError::TooLarge { bytes, max });
    }
    Ok(())
}

impl Shard {
    /// Begins the runs that continue others, in the same sweep in which those end.
    pub(super) fn continue_runs(&mut self, moment: Moment) {
        let mut chain = 0;
        while let Some((former, next, started)) = self.continuing.pop() {
            chain += 1;
            let former = self.entries.get_mut(former);
            let continued = former.as_ref().map(|entry| &entry.workflow);
            let continued = continued.filter(|workflow| workflow.as_str() == started.workflow);
            let continued = continued.map(WorkflowName::version);
            let waiters: Vec<_> = former.map_or_else(Vec::new, |entry| entry.take_waiters().collect());
            let begun = if chain > CONTINUED_MAX {
                let message = format!("the instance went on in {CONTINUED_MAX} runs without ever waiting");
                self.begin_parked(next, Started::clone(&started), continued, message, moment)
            } else {
                self.begin(next, Started::clone(&started), None, continued, moment)
                    .or_else(|error| {
                        let message = format!("its first turn cannot be recorded: {error}");
                        self.begin_parked(next, *started, continued, message, moment)
                    })
            };
            begun.expect("a beginning was weighed before the former run ended");
            // Tied, so that the new run begins only if the former run has ended.
            self.sweeps.tie_last();
            self.wait_on(next, waiters, moment);
        }
    }

    /// Moves the callers that wait for a run over to the run that continues it.
    pub(super) fn wait_on(&mut self, next: RunId, waiters: Vec<Reply<Standing>>, moment: Moment) {
        match self.entries.get_mut(next) {
            // The new run has ended in its first turn already.
            Some(Entry {
                residence: Residence::Ended(number),
                ..
            }) if let Some(outcome) = self.results.get(*number)
                && !matches!(outcome, Outcome::Continued(_)) =>
            {
                let standing = Standing::Ended(outcome.clone());
                for waiter in waiters {
                    self.effects
                        .answer(Response::Standing(waiter, Ok(standing.clone())));
                }
            }
            Some(entry) => waiters.into_iter().for_each(|waiter| entry.wait(waiter)),
            None => {}
        }
        self.answer_if_parked(next, moment);
    }

    /// Begins a run that is parked from the start.
    fn begin_parked(
        &mut self,
        run: RunId,
        mut started: Started,
        continued: Option<u32>,
        message: String,
        moment: Moment,
    ) -> Result<(), TurnError> {
        let code = self.shared.workflows.code_to_begin(&started, continued);
        started.version = code.map_or(0, Implementation::version);
        let (id, parent) = (started.id.clone(), started.parent());
        let workflow = WorkflowName::of(&started);
        let mut turn = self.turn.take().unwrap_or_default();
        let limits = self.shared.config.limits;
        let moment = self.moment_of(run, moment.now);
        let reason = ParkReason::Stuck { message };
        let instance = Instance::start_parked(run, started, reason, limits, moment, &mut turn);
        let entry = Entry::new(run, id, workflow, Residence::Hot(Box::new(instance)));
        self.take_in(run, entry, parent, turn, moment)
    }

    /// A parent asks for a child: begins the child, unless it has begun already.
    pub(super) fn on_start_child(&mut self, request: StartChild, moment: Moment) {
        match self.entries.latest(&request.id) {
            Some(entry) if is_child_of(&entry, &request.parent) => {
                let outcome = entry.result().and_then(|number| self.results.get(number));
                let effect = match outcome {
                    Some(outcome) => tell_parent(&request.parent, outcome),
                    None => child_started(&request.parent, entry.run),
                };
                let before = self.effects.work_on(entry.run);
                self.effects.push(effect);
                self.effects.resume(before);
                if let Some(reason) = request.cancel {
                    let Parent { run, operation, .. } = request.parent;
                    self.on_cancel_child(&request.id, (run, operation), &reason, moment);
                }
                return;
            }
            Some(entry) if !entry.has_ended() => {
                let message = format!("the id belongs to a live instance, run {}", entry.run);
                return self.refuse_child(&request.parent, message);
            }
            Some(_) | None => {}
        }
        let found = self.finished(&request.id);
        let parent = (request.parent.run, request.parent.operation);
        match found.map(|found| (found.finished, found.child)) {
            // A finished run has the id. Only its history tells whether it is this child: a reader looks.
            None | Some((Ok(Some(_)), None)) => {
                let id = request.id.clone();
                return self.ask(
                    id,
                    PartitionMessage::StartChild(Box::new(request)),
                    FinishedReads::End,
                );
            }
            Some((Ok(Some(_)), Some(Ok(Some(child))))) if child.parent == parent => {
                let message = PartitionMessage::ChildEnded {
                    run: request.parent.run,
                    operation: request.parent.operation,
                    end: child.end,
                };
                let effect = Effect::Send(request.parent.run.partition(), Box::new(message));
                return self.effects.push(effect);
            }
            Some((Ok(Some(_)), Some(Err(error)))) => {
                return self.refuse_child(&request.parent, error.to_string());
            }
            Some((Ok(_) | Err(ReadError::Expired { .. }), _)) => {}
            Some((Err(error), _)) => {
                return self.refuse_child(&request.parent, RunError::from(error).to_string());
            }
        }
        if request.known.is_some() {
            let message = "it has ended, and its result is retained no longer".into();
            return self.refuse_child(&request.parent, message);
        }
        let live_len_max = self.shared.config.live_len_max;
        if self.census.live_len() >= live_len_max {
            let message = format!("there are {live_len_max} live instances, the limit");
            return self.refuse_child(&request.parent, message);
        }
        let StartChild {
            parent,
            id,
            workflow,
            input,
            not_before,
            trace,
            timeouts,
            cancel,
            known: _,
        } = request;
        let to_cancel = cancel.map(|reason| (id.clone(), reason));
        let run = RunId::new(id.partition(), moment.now, self.shared.host.random());
        let origin = Origin {
            parent: Some(parent),
            trace,
            ..Origin::default()
        };
        let mut started = Started::new(workflow, id, input);
        started.origin = Some(Arc::new(origin));
        started.not_before = not_before.or(started.not_before);
        if let Some(timeouts) = timeouts {
            started = started.timing_out(*timeouts, moment.now);
        }
        match self.begin(run, started, None, None, moment) {
            Ok(()) => {
                let before = self.effects.work_on(run);
                self.effects.push(child_started(&parent, run));
                self.effects.resume(before);
            }
            Err(error) => self.refuse_child(&parent, error.to_string()),
        }
        self.continue_runs(moment);
        if let Some((id, reason)) = to_cancel {
            self.on_cancel_child(&id, (parent.run, parent.operation), &reason, moment);
        }
    }

    /// A parent asks its child to cancel.
    pub(super) fn on_cancel_child(
        &mut self,
        id: &InstanceId,
        call: (RunId, OperationId),
        reason: &str,
        moment: Moment,
    ) {
        if let Some(entry) = self.entries.latest(id)
            && !entry.has_ended()
            && is_of_call(&entry, call)
        {
            let (run, reason) = (entry.run, reason.to_owned());
            self.with_run(run, Errand::Input(Input::Cancel { reason }), moment);
        }
    }

    pub(super) fn refuse_child(&mut self, parent: &Parent, message: String) {
        let message = PartitionMessage::ChildEnded {
            run: parent.run,
            operation: parent.operation,
            end: Err(ChildFailure::NotStarted { message }),
        };
        self.effects
            .push(Effect::Send(parent.run.partition(), Box::new(message)));
    }

    /// The parent of a child has stopped waiting for it.
    pub(super) fn on_close_child(
        &mut self,
        id: &InstanceId,
        parent: RunId,
        operation: OperationId,
        moment: Moment,
    ) {
        if let Some(entry) = self.entries.latest(id)
            && let Some(of) = entry.parent()
            && (of.run, of.operation) == (parent, operation)
        {
            let (run, on_close) = (entry.run, of.on_close);
            self.close(run, on_close, moment);
        }
    }

    fn close(&mut self, run: RunId, on_close: ParentClose, moment: Moment) {
        let reason = "nobody waits for this child any more".to_string();
        let input = match on_close {
            ParentClose::Cancel => Input::Cancel { reason },
            ParentClose::Terminate => Input::Terminate { reason },
            ParentClose::Abandon => return,
        };
        self.with_run(run, Errand::Input(input), moment);
    }

    /// Tells all shards for which children the runs of these partitions wait, so that they close all others.
    pub(super) fn announce_awaited(&self, runs: &[RecoveredRun], begun: &[(Partition, Epoch)]) {
        let pending = runs
            .iter()
            .flat_map(|run| run.pending.iter().map(move |pending| (run.run, pending)));
        let awaited: BTreeSet<_> = pending
            .filter(|(_, (_, pending, _))| matches!(pending, Pending::Child { .. }))
            .map(|(run, (operation, ..))| (run, *operation))
            .collect();
        let (awaited, parents) = (Arc::new(awaited), Arc::new(begun.to_vec()));
        let children = Arc::new(PartitionSet::all());
        // The message goes first: all that this shard decides from now on arrives after it.
        let message = || PartitionMessage::Orphans {
            parents: Arc::clone(&parents),
            children: Arc::clone(&children),
            awaited: Arc::clone(&awaited),
        };
        self.ways.send_to_each(&children, message);
        if !begun.is_empty() {
            self.ways.send_to_nodes(message);
        }
    }

    /// Closes the children in some partitions whose parents, in other partitions, do not wait for them any more.
    pub(super) fn on_orphans(
        &mut self,
        parents: &PartitionSet,
        children: &PartitionSet,
        awaited: &BTreeSet<(RunId, OperationId)>,
        moment: Moment,
    ) {
        if !self.census.has_children() && self.asking.is_empty() {
            return;
        }
        let is_orphan = |parent: &Parent| {
            parents.contains(parent.run.partition()) && !awaited.contains(&(parent.run, parent.operation))
        };
        let journal = &self.shared.journal;
        // A quarantined parent may still wait for its children once it is brought back, so these are not dropped.
        let dropped = self.asking.drop_orphans(|id, parent| {
            let is_closed = parent.on_close != ParentClose::Abandon && is_orphan(parent);
            children.contains(id.partition()) && is_closed && !journal.is_quarantined(parent.run)
        });
        for (number, owned) in dropped {
            self.sweeps.handle_mail(number, owned);
        }
        let live = self.entries.iter().filter(|entry| !entry.has_ended());
        let mut orphans: Vec<_> = live
            .filter_map(|entry| Some((entry.run, *entry.parent()?)))
            .filter(|(run, parent)| children.contains(run.partition()) && is_orphan(parent))
            .filter(|(_, parent)| !journal.is_quarantined(parent.run))
            .collect();
        orphans.sort_by_key(|(run, _)| *run);
        for (run, parent) in orphans {
            self.close(run, parent.on_close, moment);
        }
    }
}

fn is_child_of(entry: &Known<'_>, parent: &Parent) -> bool {
    is_of_call(entry, (parent.run, parent.operation))
}

/// Whether a run is the child of this call, or continues it.
pub(super) fn is_of_call(entry: &Known<'_>, call: (RunId, OperationId)) -> bool {
    entry.parent().is_some_and(|of| (of.run, of.operation) == call)
}

/// Tells a parent that its child has begun.
fn child_started(parent: &Parent, child: RunId) -> Effect {
    let message = PartitionMessage::ChildStarted {
        run: parent.run,
        operation: parent.operation,
        child,
    };
    Effect::Send(parent.run.partition(), Box::new(message))
}

#[cfg(test)]
mod tests {
    use millrun_core::InstanceId;
    use millrun_workflow::{Origin, Payload};

    use super::*;

    #[test]
    fn answers_that_do_not_fit_beside_the_input_keep_no_run_from_going_on() {
        let input = Payload::encode(&"x".repeat(1_000)).unwrap();
        let id = InstanceId::new("order-1").unwrap();
        let origin = Origin {
            answers: vec![("1".into(), Ok(input.clone()))],
            ..Origin::default()
        };
        let mut started = Started::new("shop", id, input);
        started.origin = Some(Arc::new(origin));
        for (turn_bytes_max, answers) in [(6_200, Some(1)), (5_200, Some(0)), (5_000, None)] {
            let mut started = started.clone();
            let is_allowed = check_beginning(&mut started, turn_bytes_max).is_ok();
            let left = started.origin.map(|origin| origin.answers.len());
            assert_eq!(left.filter(|_| is_allowed), answers, "{turn_bytes_max} bytes");
        }
    }
}
