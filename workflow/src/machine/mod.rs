//! One run as a pure machine: an input and the time go in, a turn comes out.
//!
//! ```text
//!                 start                      last decision, or Terminate
//!   (nothing) ───────────► Running ─────────────────────────────────────► Closed
//!        │                  │   ▲                                            ▲
//!        │ not registered   │   │ Resume: the code is replayed, then takes   │ Terminate
//!        │     panic, stuck,│   │ up the inputs recorded meanwhile           │
//!        │     does not fit ▼   │                                            │
//!        └─────────────────► Parked ─────────────────────────────────────────┘
//!                             inputs are recorded, the code does not run
//! ```
//!
//! Invariants:
//! - One event is applied, then the code is polled until nothing wakes it, live and in replay
//!   alike. The history is therefore a sequence of one input followed by the decisions it led to.
//! - A refused input leaves the machine as it was.
//! - The machine reads no clock, rolls no dice, does no IO and starts nothing: time and the
//!   owner's epoch come in with each input.
//!
//! What it leaves out on purpose: when its turn becomes durable, and who performs its commands.

mod admit;
mod checkpoint;
mod code;
mod continuing;
mod entity;
mod limits;
mod parking;
mod replay;
mod resetting;
mod spare;
mod timing;
mod turn;
mod updates;

use std::panic::Location;
use std::sync::Arc;

use millrun_core::{RunId, Sequence, Timestamp};

use crate::context::{Awaited, Decision, Shared, Wakers};
use crate::event::{ActivityFailure, Event, Name, ParentClose, ParkReason, Started};
use crate::ledger::{Ledger, Pending};
use crate::registry::Implementation;
use crate::{OperationId, TimeoutKind};

pub use limits::Limits;
pub use replay::ReplayError;
pub(crate) use replay::Unfit;
pub use turn::{Command, Input, InputRefused, Moment, Turn};

use code::{Polled, RunningCode};

/// One run: its history's [`Ledger`], and its code as far as it is at hand.
#[derive(Debug)]
pub struct Instance {
    run: RunId,
    limits: Limits,
    ledger: Ledger,
    shared: Arc<Shared>,
    code: Option<RunningCode>,
    /// Of the same implementation, code that has ended, for its memory.
    spent: Option<RunningCode>,
    /// Where the code comes from, and what it answers; still at hand when it has ended.
    implementation: Option<Implementation>,
    /// Why the code does not run although no event says so: it is not registered, or a replay
    /// has just failed. Becomes an event with the next input.
    unrecorded: Option<Box<ParkReason>>,
    /// Inputs recorded while the code did not run.
    deferred: Vec<(Event, Timestamp)>,
    /// Values that a replay encoded differently than the history has them.
    changed_values: u64,
}

impl Instance {
    /// Begins a run. The first turn holds its [`Event::Started`] and what the code made of it.
    ///
    /// Without an implementation the run waits, parked, until one is there.
    pub fn start(
        implementation: Option<&Implementation>,
        run: RunId,
        started: Started,
        limits: Limits,
        moment: Moment,
        turn: &mut Turn,
    ) -> Self {
        let mut instance = Self::empty(run, limits, moment.now);
        instance.begin_with(implementation, started, moment, turn);
        instance
    }

    /// Begins a run whose code must not run, for this reason: its first turn holds its
    /// [`Event::Started`] and the parking.
    pub fn start_parked(
        run: RunId,
        mut started: Started,
        reason: ParkReason,
        limits: Limits,
        moment: Moment,
        turn: &mut Turn,
    ) -> Self {
        started.bounds = limits.bounds();
        let mut instance = Self::empty(run, limits, moment.now);
        let event = Event::Started(started);
        instance.ledger.apply(&event, moment.now);
        instance
            .ledger
            .forget_senders(usize::from(limits.senders_len_max));
        turn.events.push(event);
        instance.unrecorded = Some(Box::new(reason));
        instance.take_up(moment, turn);
        instance.ask_for_timeout(turn);
        instance
    }

    fn empty(run: RunId, limits: Limits, now: Timestamp) -> Self {
        Self {
            run,
            limits,
            ledger: Ledger::new(),
            shared: Arc::new(Shared::new(run, limits.bounds(), now)),
            code: None,
            spent: None,
            implementation: None,
            unrecorded: None,
            deferred: Vec::new(),
            changed_values: 0,
        }
    }

    /// Takes what makes the code, or notes that there is nothing.
    fn attach(&mut self, implementation: Option<&Implementation>) {
        let former = self.implementation.as_ref();
        if !former
            .zip(implementation)
            .is_some_and(|(former, new)| former.is_same(new))
        {
            self.spent = None;
            self.implementation = implementation.cloned();
        }
        if implementation.is_none() {
            let started = self.ledger.started().expect("called after the first event");
            self.unrecorded = Some(Box::new(ParkReason::NotRegistered {
                workflow: started.workflow.to_string(),
                version: self.ledger.version(),
                registered: Vec::new(),
            }));
        }
    }

    /// Shows the input that was recorded last to the code, polls it, and appends its decisions.
    fn take_up(&mut self, moment: Moment, turn: &mut Turn) {
        let event = turn.events.last().expect("the caller has recorded an input");
        if self.code.is_none() || self.ledger.parked().is_some() {
            self.deferred.push((event.clone(), moment.now));
            self.record_parking(moment, turn);
            return;
        }
        if self.is_entity() {
            return self.take_up_command(moment, turn);
        }
        let spare = std::mem::take(&mut turn.spare.decisions);
        match self.run_code(event, moment.now, moment, true, spare) {
            Ok(decisions) => self.adopt_decisions(decisions, moment, turn),
            Err(reason) => {
                self.deferred.push((event.clone(), moment.now));
                // The history looks as if the code had not run: first the parking, then the input
                // it stumbled over. Only a run's first event cannot be second.
                let at = turn.events.len() - usize::from(!matches!(event, Event::Started(_)));
                let parked = Event::Parked {
                    reason: reason.clone(),
                };
                self.ledger.apply(&parked, moment.now);
                turn.events.insert(at, parked);
                self.announce_parking(reason, moment, turn);
            }
        }
    }

    /// Delivers one event, recorded then, to the code and polls it until nothing wakes it. Gives what it
    /// decided. `is_whole` says that no further input waits behind this one. `spare` is memory for decisions.
    fn run_code(
        &mut self,
        event: &Event,
        recorded: Timestamp,
        moment: Moment,
        is_whole: bool,
        spare: Vec<Decision>,
    ) -> Result<Vec<Decision>, ParkReason> {
        let mut table = self.shared.lock();
        table.begin_event(recorded, moment, spare, self.limits.self_wakes_max);
        let wakers = match event {
            Event::UpdateAccepted { request, name, input } => {
                drop(table);
                match self.perform_update(request, name, input) {
                    Ok(wakers) => Wakers::Many(wakers),
                    Err(reason) => return Err(self.give_up(reason)),
                }
            }
            Event::CommandPerformed(performed) => {
                drop(table);
                if let Err(reason) = self.fold_command(performed) {
                    return Err(self.give_up(reason));
                }
                Wakers::Nobody
            }
            Event::SignalReceived { .. } | Event::RunSignalReceived { .. } if self.is_entity() => {
                drop(table);
                Wakers::Nobody
            }
            event => {
                let wakers = table.take_in(event);
                drop(table);
                if let Event::TimerFired { operation } = event
                    && self.is_entity()
                {
                    self.forget_entity_timer(*operation);
                }
                if let Event::ChildEnded { operation, .. } = event
                    && self.is_entity()
                {
                    self.forget_refused(*operation);
                }
                wakers
            }
        };
        let code = self
            .code
            .as_mut()
            .expect("the caller has seen that the code is at hand");
        let is_first = matches!(event, Event::Started(_) | Event::Checkpointed(_));
        let failure = match code.poll(&self.shared, wakers, is_first, &self.limits) {
            Polled::Waiting(decisions) => return Ok(decisions),
            Polled::Finished(Err(failure)) if self.is_entity() => ParkReason::Stuck {
                message: failure.failure.message,
            },
            Polled::Finished(end) => {
                let is_retryable = matches!(&end, Err(failure) if failure.is_retryable);
                let end = end.map_err(|failure| failure.failure);
                let event = match self.limits.bounded_end(end) {
                    Ok(result) => Event::Completed { result },
                    Err(error) if error.is_cancelled && self.ledger.is_cancel_requested() => {
                        Event::Cancelled { error }
                    }
                    Err(error) if is_retryable && self.next_try(moment.now).is_some() => {
                        self.failed_to_try_again(error, moment.now)
                    }
                    Err(error) => Event::Failed { error },
                };
                return Ok(self.conclude(event, None));
            }
            Polled::Checkpointed { state, location } => {
                return self.begin_again(state, location, recorded, moment, is_whole);
            }
            Polled::Continued {
                workflow,
                input,
                location,
            } => {
                let run = self.next_run(moment.now);
                let event = Event::ContinuedAsNew {
                    run,
                    workflow,
                    input,
                    failed: None,
                };
                return Ok(self.conclude(event, Some(location)));
            }
            Polled::Stuck(message) => ParkReason::Stuck { message },
            Polled::Panicked(message) => ParkReason::Panicked {
                message: self.limits.cut(message),
                count: 1,
            },
        };
        Err(self.give_up(failure))
    }

    /// The code has come to its end: this is the last that it decides.
    fn conclude(&mut self, end: Event, location: Option<&'static Location<'static>>) -> Vec<Decision> {
        self.spent = self.code.take();
        let mut table = self.shared.lock();
        table.decide(end, location);
        table.take_decisions()
    }

    /// The code cannot go on: it goes away, with what it decided since the last event.
    fn give_up(&mut self, reason: ParkReason) -> ParkReason {
        self.code = None;
        drop(self.shared.lock().take_decisions());
        reason
    }

    /// Turns what the code decided into events and commands.
    fn adopt_decisions(&mut self, mut decisions: Vec<Decision>, moment: Moment, turn: &mut Turn) {
        let now = moment.now;
        for decision in decisions.drain(..) {
            let mut event = decision.event;
            if event.is_last() {
                // What stands behind it was never decided.
                self.end(event, now, turn);
                break;
            }
            let begun = match &mut event {
                Event::ActivityScheduled(scheduled) => Some(scheduled.operation),
                Event::PublishScheduled(scheduled) => Some(scheduled.operation),
                Event::ReceiveScheduled(scheduled) => Some(scheduled.operation),
                Event::SignalScheduled(scheduled) => Some(scheduled.operation),
                Event::ChildScheduled(scheduled) => Some(scheduled.operation),
                Event::TimerStarted { operation, .. } | Event::PromiseMade { operation } => Some(*operation),
                Event::Checkpointed(checkpoint) => {
                    let every = self.limits.kept_beginning_every;
                    turn.kept = self.ledger.keep(checkpoint, now, every).or(turn.kept.take());
                    None
                }
                Event::ChildCancelRequested { operation, reason } => {
                    *reason = self.limits.cut(std::mem::take(reason));
                    if let Some(Pending::Child { scheduled, .. }) = self.ledger.pending_operation(*operation)
                    {
                        turn.commands.push(Command::CancelChild {
                            scheduled: Arc::clone(scheduled),
                            reason: reason.as_str().into(),
                        });
                    }
                    None
                }
                Event::OperationCancelled { operation } => {
                    self.undo(*operation, &mut turn.commands);
                    None
                }
                Event::ValueRecorded { .. } | Event::Patched { .. } | Event::UpdateAnswered { .. } => None,
                other => unreachable!("{} is no decision", other.label()),
            };
            self.ledger.apply(&event, now);
            if let Some(operation) = begun
                && let Some(pending) = self.ledger.pending_operation(operation)
            {
                pending.commands(operation, now, moment, false, &mut turn.commands);
            }
            turn.events.push(event);
        }
        turn.spare.decisions = decisions;
    }

    /// Appends what undoes a pending operation.
    fn undo(&self, operation: OperationId, commands: &mut Vec<Command>) {
        let deadlines = match self.ledger.pending_operation(operation) {
            Some(Pending::Timer { deadline }) => [Some(*deadline), None],
            Some(Pending::Activity(activity)) => {
                // Whether the next attempt has begun mostly stands in no event: both are undone.
                commands.push(Command::CancelActivity {
                    operation,
                    queue: activity.scheduled.queue.clone(),
                });
                [activity.retry_at, activity.close_at]
            }
            Some(Pending::Publish { .. }) => {
                commands.push(Command::CancelPublish { operation });
                [None, None]
            }
            Some(Pending::Receive { scheduled, .. }) => {
                commands.push(Command::CancelReceive(Arc::clone(scheduled)));
                [None, None]
            }
            Some(Pending::Signal(_)) => {
                commands.push(Command::CancelSignal { operation });
                [None, None]
            }
            Some(Pending::Promise) => [None, None],
            Some(Pending::Child { scheduled, .. }) => {
                if scheduled.on_close != ParentClose::Abandon {
                    commands.push(Command::CloseChild(Arc::clone(scheduled)));
                }
                [None, None]
            }
            None => [None, None],
        };
        let deadlines = deadlines.into_iter().flatten();
        commands.extend(deadlines.map(|deadline| Command::CancelTimer { operation, deadline }));
    }

    /// Records what concerns the engine alone.
    fn note(&mut self, event: Event, moment: Moment, turn: &mut Turn) {
        self.ledger.apply(&event, moment.now);
        turn.events.push(event);
    }

    /// Appends what the end of a call makes needless: its timers, and an attempt that is late.
    fn settle(&self, event: &Event, turn: &mut Turn) {
        match event {
            Event::ActivityFailed {
                operation,
                failure: ActivityFailure::TimedOut(TimeoutKind::ScheduleToClose),
                ..
            } => self.undo(*operation, &mut turn.commands),
            Event::ActivityCompleted { operation, .. } | Event::ActivityFailed { operation, .. } => {
                if let Some(Pending::Activity(activity)) = self.ledger.pending_operation(*operation)
                    && let Some(deadline) = activity.close_at
                {
                    let operation = *operation;
                    turn.commands.push(Command::CancelTimer { operation, deadline });
                }
            }
            _ => {}
        }
    }

    /// Ends the run: cancels what is outstanding, in the order in which it was issued.
    fn end(&mut self, event: Event, now: Timestamp, turn: &mut Turn) {
        for (operation, _) in self.ledger.pending() {
            self.undo(operation, &mut turn.commands);
        }
        if let Some(deadline) = self.ledger.deadline() {
            turn.commands.push(Command::CancelTimeOut { at: deadline.at });
        }
        self.ledger.apply(&event, now);
        turn.commands
            .extend(self.ledger.outcome().cloned().map(Command::Close));
        let next = match &event {
            Event::ContinuedAsNew {
                run,
                workflow,
                input,
                failed,
            } => Some((*run, self.next_beginning(workflow, input, failed.is_some(), now))),
            Event::TimedOut { next: Some(run), .. } => Some((*run, self.beginning_again(now))),
            _ => None,
        };
        turn.commands
            .extend(next.map(|(run, started)| Command::ContinueAsNew {
                run,
                started: Box::new(started),
            }));
        turn.events.push(event);
        self.code = None;
        self.unrecorded = None;
        self.deferred = Vec::new();
    }

    /// The identity of the run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }

    /// What the history says.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The sequence of the last event.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.ledger.sequence()
    }

    /// Whether the code is in memory, so that it can run or be [resumed](Input::Resume).
    #[must_use]
    pub fn has_code(&self) -> bool {
        self.code.is_some()
    }

    /// About how many bytes of memory it holds: the machine, the code's future, what is pending. What
    /// the code has behind pointers of its own is not known.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        const PENDING_BYTES: usize = 384;
        const DEFERRED_BYTES: usize = 160;
        // What the allocator adds to a block: of the machine, the table, the code and its future, the pulse, the id.
        const BLOCKS_BYTES: usize = 6 * 24;
        let code = self.code.as_ref().map_or(0, RunningCode::memory_bytes);
        let input = self.ledger.started().map_or(0, |started| {
            started.input.len() + started.origin.as_ref().map_or(0, |origin| origin.carried_bytes())
        });
        size_of::<Self>()
            + size_of::<Shared>()
            + BLOCKS_BYTES
            + code
            + input
            + self.ledger.answers_memory_bytes()
            + self.ledger.senders_memory_bytes()
            + self.ledger.signal_requests_memory_bytes()
            + self.shared.lock().memory_bytes()
            + self.ledger.pending_len() * PENDING_BYTES
            + self.deferred.len() * DEFERRED_BYTES
    }

    /// What the code waits for beside the operations that its [ledger](Self::ledger) has.
    #[must_use]
    pub fn awaited(&self) -> Vec<Awaited> {
        self.shared.lock().awaited()
    }

    /// Where the code issued each operation that it waits for, in the order in which they were issued.
    #[must_use]
    pub fn lines(&self) -> Vec<(OperationId, &'static Location<'static>)> {
        self.shared.lock().lines()
    }

    /// The changes that the code has [asked for](crate::WorkflowContext::patched) since the run began, or since its last checkpoint, and
    /// whether it took the new way of each.
    #[must_use]
    pub fn patches(&self) -> Vec<(Name, bool)> {
        self.shared.lock().patches()
    }

    /// How many values the last replay encoded differently than the history has them: harmless
    /// for an added field, worth a look otherwise.
    #[must_use]
    pub fn changed_values(&self) -> u64 {
        self.changed_values
    }
}

#[cfg(test)]
mod tests;
