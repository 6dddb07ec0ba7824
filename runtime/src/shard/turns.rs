//! What happens with a turn: its events go into the sweep's batch, its commands become the sweep's effects.
//!
//! ```text
//!   Turn ─► record: events ─► batch ──────────────────────► journal
//!       └─► carry out: commands ─► deeds, answers ─► effects ── commit ──► performed
//! ```
//!
//! A turn that cannot be recorded has no effects.

use millrun_core::{RunId, Sequence, TraceContext};
use millrun_persistence::{Snapshot, TurnError, TurnHeader};
use millrun_workflow::{Command, Event, Moment, Outcome, ParkReason, Started, Turn};

use super::Shard;
use super::commands::{Deed, RunLife};
use super::family::{check_beginning, tell_parent};
use super::runs::entry::{Entry, Parking, Residence};
use super::sweeps::answers::Response;
use super::sweeps::effects::{Effect, Effects};
use crate::mail::Standing;
use crate::timers::{Alarm, TimerCommand};

impl Shard {
    /// Records a turn, and then carries out its commands.
    pub(super) fn adopt(
        &mut self,
        run: RunId,
        head: Sequence,
        turn: &mut Turn,
        moment: Moment,
    ) -> Result<(), TurnError> {
        self.record(run, head, turn, moment)?;
        self.carry_out(run, turn);
        Ok(())
    }

    /// Writes a turn into the sweep's batch.
    fn record(
        &mut self,
        run: RunId,
        head: Sequence,
        turn: &mut Turn,
        moment: Moment,
    ) -> Result<(), TurnError> {
        if let Some(Command::ContinueAsNew { started, .. }) = turn.commands.last_mut() {
            check_beginning(started, self.shared.config.journal.turn_bytes_max)?;
        }
        if !turn.events.is_empty() {
            let opens = match turn.events.first() {
                Some(Event::Started(started)) => Some(&started.id),
                _ => None,
            };
            let header = TurnHeader {
                run,
                head,
                epoch: self.epoch_of(run),
                time: moment.now,
                opens,
            };
            if !turn.recorded.is_empty() {
                self.sweeps.write_recorded(header, &turn.events, &turn.recorded)?;
            } else if turn.kept.is_some() {
                if self.write_keeping(header, turn)? {
                    turn.kept = None;
                }
            } else {
                self.sweeps.write(header, &turn.events, None)?;
            }
            self.census.note_events(turn.events.len());
        }
        Ok(())
    }

    /// Writes a turn that has a kept beginning. Returns whether the turn trims its run; if not, the kept beginning is to be
    /// stored beside the history.
    fn write_keeping(&mut self, header: TurnHeader<'_>, turn: &Turn) -> Result<bool, TurnError> {
        let id = self.entries.get(header.run).map(|entry| entry.id.clone());
        let trims = self.shared.config.trims_histories()
            && header.head > Sequence::ZERO
            && !turn.events.last().is_some_and(Event::is_last);
        let mut too_large = None;
        if let (Some(id), Some((_, kept))) = (id.filter(|_| trims), &turn.kept) {
            match self.sweeps.write(header, &turn.events, Some((&id, kept))) {
                Ok(()) => return Ok(true),
                // The turn without the kept beginning may fit; the next checkpoint trims.
                Err(TurnError::TooLarge { bytes, max }) => too_large = Some((id, kept.len(), bytes, max)),
                Err(error) => return Err(error),
            }
        }
        self.sweeps.write(header, &turn.events, None)?;
        if let Some((id, kept, bytes, max)) = too_large
            && self.census.note_untrimmed(header.run)
        {
            let run = header.run;
            tracing::warn!(
                %run, instance = %id, kept, bytes, max,
                "the history of a run is not trimmed: with what is kept of it the turn of its checkpoint is larger than \
                 turn_bytes_max, so its history and its file grow; have it keep less (start input, signals that it does \
                 not take, answers to updates), or let turns be larger"
            );
        }
        Ok(false)
    }

    /// Turns the commands of a recorded turn into the sweep's effects, and updates the run's entry.
    pub(super) fn carry_out(&mut self, run: RunId, turn: &mut Turn) {
        if !turn.events.is_empty() {
            self.watchers.tell(run, &mut self.effects);
        }
        if let Some((sequence, bytes)) = turn.kept.take() {
            let bytes = bytes.into();
            self.effects
                .push(Effect::Keep(Box::new(Snapshot { run, sequence, bytes })));
        }
        let life = self.epoch_of(run);
        let Some(entry) = self.entries.get_mut(run) else {
            return;
        };
        if !turn.events.is_empty() {
            entry.last_sweep = self.sweeps.present();
        }
        self.updates.answer_turn(run, turn, &mut self.effects);
        let mut ended = None;
        for command in turn.commands.drain(..) {
            match command {
                Command::ContinueAsNew { run: next, started } => self.continuing.push((run, next, started)),
                Command::Park(reason) => {
                    self.updates.tell_parked(run, &reason, &mut self.effects);
                    tell_of_parking(&mut self.effects, entry, run, &reason);
                }
                Command::Close(outcome) => {
                    tell_of_end(&mut self.effects, entry, &outcome);
                    if entry.trace().is_some_and(TraceContext::is_sampled) {
                        self.effects.traced_ends.push(run);
                    }
                    if !self.calls.is_empty() {
                        self.effects.push(Effect::ForgetCalls(run));
                    }
                    self.census.note_end(entry, outcome.kind());
                    if let (Some(recording), Residence::Hot(instance)) =
                        (&mut self.recording, &entry.residence)
                    {
                        recording.note_end(run, entry.workflow.as_str(), instance.ledger().started_at());
                    }
                    if matches!(entry.residence, Residence::Hot(_)) {
                        self.residency.leave(entry);
                    }
                    let number = self.results.keep(run, outcome);
                    let residence = std::mem::replace(&mut entry.residence, Residence::Ended(number));
                    if let Residence::Hot(instance) = residence {
                        ended = Some(instance);
                    }
                }
                Command::Publish { scheduled, .. }
                    if self.shared.durable.number(&scheduled.topic).is_some() =>
                {
                    self.appends.decide(run, scheduled.operation);
                }
                command => {
                    let named = RunLife {
                        run,
                        life,
                        id: &entry.id,
                        trace: entry.trace(),
                    };
                    match Deed::of(named, command, &self.shared.queues) {
                        Some(Deed::Task(task)) => self.effects.run(task),
                        Some(Deed::Effect(effect)) => self.effects.push(effect),
                        None => {}
                    }
                }
            }
        }
        let began_with = match (&entry.residence, &ended) {
            (Residence::Hot(instance), _) | (_, Some(instance)) if entry.parking == Parking::Delayed => {
                instance.ledger().started().and_then(Started::start_at)
            }
            _ => None,
        };
        if let Some(instance) = ended {
            turn.recycle(instance);
        }
        let parking = match &entry.residence {
            Residence::Hot(instance) => {
                let parking = Parking::of(instance.park_reason());
                self.residency.weigh(entry);
                parking
            }
            Residence::Cold | Residence::Loading(_) | Residence::Ended(_) => Parking::Runs,
        };
        if let Some(at) = began_with.filter(|_| parking != Parking::Delayed) {
            // The run begins early, or never: its timer is removed.
            let clear = TimerCommand::Clear(at, run, Alarm::Resume);
            self.effects.push(Effect::Timer(clear));
        }
        self.census.set_parking(entry, parking);
    }
}

/// Tells all callers that wait for a run why it is parked.
fn tell_of_parking(effects: &mut Effects, entry: &mut Entry, run: RunId, reason: &ParkReason) {
    tracing::warn!(%run, id = %entry.id, %reason, "a run is parked");
    for waiter in entry.take_waiters() {
        let standing = Ok(Standing::Parked(reason.clone()));
        effects.answer(Response::Standing(waiter, standing));
    }
}

/// Tells all callers that wait for a run's result, and its parent, how it ended. A run that continues as new has no result.
fn tell_of_end(effects: &mut Effects, entry: &mut Entry, outcome: &Outcome) {
    if matches!(outcome, Outcome::Continued(_)) {
        return;
    }
    for waiter in entry.take_waiters() {
        let standing = Ok(Standing::Ended(outcome.clone()));
        effects.answer(Response::Standing(waiter, standing));
    }
    if let Some(parent) = entry.parent() {
        effects.push(tell_parent(parent, outcome));
    }
}
