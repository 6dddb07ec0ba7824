//! How a shard carries out the engine's commands. Those of a turn wait for the turn's commit; those of a recovered run are
//! durable already and are carried out at once.
//!
//! ```text
//!   turn ─► Command ─┐        ┌─► effects of the sweep ── commit ──► performed
//!                    ├─► Deed ┤
//!   recovered run ───┘        └─► performed
//! ```

use millrun_core::{Epoch, InstanceId, RunId, Timestamp, TraceContext};
use millrun_workflow::{Command, Moment, OperationId, Pending};

use super::Shard;
use super::family::{cancel_child, close_child, start_child};
use super::runs::entry::Residence;
use super::signalling::send_signal;
use super::sweeps::effects::{CancelledCall, Effect};
use crate::activity::{ActivityTask, TaskQueues};
use crate::timers::{Alarm, TimerCommand};

/// What the shard does for one command.
#[derive(Debug)]
pub(super) enum Deed {
    Task(ActivityTask),
    Effect(Effect),
}

/// The identity of a run, for what is done on its behalf.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLife<'a> {
    pub(super) run: RunId,
    /// The epoch of its partition under which the command was decided.
    pub(super) life: Epoch,
    pub(super) id: &'a InstanceId,
    /// Its place in a distributed trace.
    pub(super) trace: Option<&'a TraceContext>,
}

/// How recovered runs are taken in.
#[derive(Debug)]
pub(super) struct Seeding {
    pub(super) now: Timestamp,
    /// Whether a publish is repeated if the history does not say that it was performed.
    repeats_publishes: bool,
    /// A buffer that is reused; it is empty between two runs.
    commands: Vec<Command>,
}

impl Seeding {
    pub(super) fn new(now: Timestamp, repeats_publishes: bool) -> Self {
        let commands = Vec::new();
        Self {
            now,
            repeats_publishes,
            commands,
        }
    }
}

impl Deed {
    /// What the shard has to do for a command of this run. `None` for commands about the run's own end or parking, which the
    /// shard handles itself.
    #[inline]
    pub(super) fn of(named: RunLife<'_>, command: Command, queues: &TaskQueues) -> Option<Self> {
        let RunLife { run, life, id, trace } = named;
        let effect = match command {
            Command::RunActivity {
                scheduled,
                attempt,
                details,
                start_by,
            } => {
                return Some(Self::Task(ActivityTask {
                    run,
                    life,
                    id: id.clone(),
                    attempt,
                    scheduled,
                    details,
                    trace: trace.copied().map(Box::new),
                    start_by,
                }));
            }
            Command::CancelActivity { operation, queue } => Effect::CancelActivity(CancelledCall {
                run,
                operation,
                queue: queues
                    .number_of(&queue)
                    .and_then(|number| u32::try_from(number).ok()),
            }),
            Command::Publish { scheduled, .. } => {
                Effect::Publish(run, scheduled, trace.copied().map(Box::new))
            }
            Command::CancelPublish { operation } => Effect::CancelPublish(run, operation),
            Command::Receive { scheduled, run_began } => Effect::Receive(run, scheduled, run_began),
            Command::CancelReceive(scheduled) => Effect::CancelReceive(run, scheduled),
            Command::SendSignal {
                scheduled,
                is_repeated,
            } => send_signal(run, &scheduled, is_repeated),
            Command::CancelSignal { operation } => Effect::ForgetCall(run, operation),
            Command::StartChild {
                scheduled,
                run: known,
                cancel,
            } => start_child(run, &scheduled, trace, (known, cancel)),
            Command::CancelChild { scheduled, reason } => cancel_child(run, &scheduled, reason),
            Command::CloseChild(scheduled) => close_child(run, &scheduled),
            Command::StartTimer { operation, deadline } => {
                Effect::Timer(TimerCommand::Set(deadline, run, Alarm::Operation(operation)))
            }
            Command::CancelTimer { operation, deadline } => {
                Effect::Timer(TimerCommand::Clear(deadline, run, Alarm::Operation(operation)))
            }
            Command::ResumeAt { at } => Effect::Timer(TimerCommand::Set(at, run, Alarm::Resume)),
            Command::TimeOutAt { at } => Effect::Timer(TimerCommand::Set(at, run, Alarm::TimeOut)),
            Command::CancelTimeOut { at } => Effect::Timer(TimerCommand::Clear(at, run, Alarm::TimeOut)),
            Command::ContinueAsNew { .. } | Command::Park(_) | Command::Close(_) => return None,
        };
        Some(Self::Effect(effect))
    }
}

impl Shard {
    /// Carries out what the pending operations of a recovered run need.
    pub(super) fn resume_operations(
        &mut self,
        run: RunId,
        id: &InstanceId,
        pending: &[(OperationId, Pending, Timestamp)],
        trace: Option<&TraceContext>,
        seeding: &mut Seeding,
    ) {
        let life = self.epoch_of(run);
        let moment = Moment {
            now: seeding.now,
            epoch: life.get(),
        };
        for (operation, pending, since) in pending {
            pending.commands(*operation, *since, moment, true, &mut seeding.commands);
        }
        for command in seeding.commands.drain(..) {
            if let Command::Publish {
                scheduled,
                is_repeated,
            } = &command
            {
                self.seed_publish(run, scheduled, trace, !is_repeated || seeding.repeats_publishes);
                continue;
            }
            let named = RunLife { run, life, id, trace };
            match Deed::of(named, command, &self.shared.queues) {
                Some(Deed::Task(task)) => self.dispatch.stage(task, &self.shared),
                Some(Deed::Effect(effect)) => self.perform(effect),
                None => {}
            }
        }
    }

    /// The next thing that a pending operation of a run in memory needs; `None` if the operation is not pending.
    pub(super) fn outstanding(&self, run: RunId, operation: OperationId, moment: Moment) -> Option<Deed> {
        let entry = self.entries.get(run)?;
        let Residence::Hot(instance) = &entry.residence else {
            return None;
        };
        let pending = instance.ledger().pending_operation(operation)?;
        let since = instance.ledger().pending_since(operation)?;
        let mut commands = Vec::new();
        pending.commands(operation, since, moment, true, &mut commands);
        let command = commands.into_iter().next()?;
        let named = RunLife {
            run,
            life: self.epoch_of(run),
            id: &entry.id,
            trace: entry.trace(),
        };
        Deed::of(named, command, &self.shared.queues)
    }
}
