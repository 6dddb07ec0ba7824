//! Runs whose code does not run: how that is recorded, and how the code comes back.
//!
//! ```text
//!   … ─ Parked ─ input ─ input ─ Resumed ─ decisions …     the history
//!                └────────────── the code is shown them here, live as in a replay
//! ```
//!
//! A resume that fails changes nothing but the reason.

use millrun_core::Timestamp;

use super::{Command, InputRefused, Instance, Moment, Turn, code};
use crate::event::{Event, ParkReason};
use crate::ledger::Ledger;

impl Instance {
    /// Why the code does not run, recorded or not.
    #[must_use]
    pub fn park_reason(&self) -> Option<&ParkReason> {
        self.unrecorded
            .as_deref()
            .or_else(|| self.ledger.parked().map(|(reason, _)| reason))
    }

    /// Why the code does not run, unless it comes back by itself or an operator has paused it.
    #[must_use]
    pub fn final_park_reason(&self) -> Option<&ParkReason> {
        self.park_reason()
            .filter(|reason| !matches!(reason, ParkReason::Paused { .. }))
            .filter(|reason| self.limits.resume_at(reason, Timestamp::EPOCH).is_none())
    }

    /// Why the next input will park the code, although it is not parked yet: something foreign, like a timer or task that the
    /// engine does not know, has touched it since it last ran. A replay would not know that.
    #[must_use]
    pub fn foreseen_park_reason(&self) -> Option<ParkReason> {
        let is_touched = self.code.is_some() && self.shared.pulse().is_foreign();
        is_touched.then(|| ParkReason::Stuck {
            message: code::TOUCHED.into(),
        })
    }

    /// Notes which versions of the workflow are registered, for a run without code because its version is not: they become
    /// part of the parking reason.
    pub fn note_registered(&mut self, versions: Vec<u32>) {
        if let Some(ParkReason::NotRegistered { registered, .. }) = self.unrecorded.as_deref_mut() {
            *registered = versions;
        }
    }

    /// Until when the start of the run is delayed, if its code has not begun and that time has not come.
    pub(super) fn delayed_until(&self, now: Timestamp) -> Option<Timestamp> {
        match self.deferred.first() {
            Some((Event::Started(started), _)) => started.start_at().filter(|at| *at > now),
            Some(_) | None => None,
        }
    }

    /// Keeps the code from running, for this reason. The parking is recorded with the next input, which does not run the
    /// code.
    pub fn park(&mut self, reason: ParkReason) {
        self.code = None;
        self.unrecorded = Some(Box::new(reason));
    }

    /// Takes up, one by one, the inputs that were recorded while the code did not run. If the code fails again, nothing
    /// changes but the reason.
    pub(super) fn resume(&mut self, moment: Moment, turn: &mut Turn) -> Result<(), InputRefused> {
        let Some((reason, _)) = self.ledger.parked() else {
            return self.unrecorded.as_deref().map_or(Ok(()), |reason| {
                Err(InputRefused::StillParked(reason.to_string()))
            });
        };
        if self.code.is_none() {
            let reason = self.unrecorded.as_deref().unwrap_or(reason);
            return Err(InputRefused::StillParked(reason.to_string()));
        }
        let len_max = self.limits.history_len_max.saturating_mul(2);
        if self.ledger.history_len() >= len_max {
            let reason = ParkReason::HistoryFull { len_max };
            return Err(InputRefused::StillParked(reason.to_string()));
        }
        if let Some(until) = self.delayed_until(moment.now)
            && matches!(
                reason,
                ParkReason::Paused { .. } | ParkReason::NotRegistered { .. }
            )
        {
            // The former reason is over, but the delay is not. Code that has begun earlier is not delayed again.
            let reason = ParkReason::Delayed { until };
            let parked = Event::Parked {
                reason: reason.clone(),
            };
            self.ledger.apply(&parked, moment.now);
            turn.events.push(parked);
            self.announce_parking(reason, moment, turn);
            return Ok(());
        }
        let before = self.ledger.clone();
        let marks = (turn.events.len(), turn.commands.len());
        self.ledger.apply(&Event::Resumed, moment.now);
        turn.events.push(Event::Resumed);
        let deferred = std::mem::take(&mut self.deferred);
        for (index, (event, time)) in deferred.iter().enumerate() {
            if self.ledger.outcome().is_some() {
                break;
            }
            let is_whole = index + 1 == deferred.len();
            let time = &shown_at(event, *time, moment.now);
            let shown = if self.is_entity() {
                let shown = self.show_entity(event.clone(), *time, true, moment, turn);
                shown.map_err(|unshown| unshown.reason())
            } else {
                let decided = self.run_code(event, *time, moment, is_whole, Vec::new());
                decided.map(|decisions| self.adopt_decisions(decisions, moment, turn))
            };
            match shown {
                Ok(()) => {}
                Err(reason) => {
                    let reason = counted_after(reason, &before);
                    self.ledger = before;
                    turn.events.truncate(marks.0);
                    turn.commands.truncate(marks.1);
                    self.deferred = deferred;
                    let parked = Event::Parked {
                        reason: reason.clone(),
                    };
                    self.ledger.apply(&parked, moment.now);
                    turn.events.push(parked);
                    self.announce_parking(reason, moment, turn);
                    return Ok(());
                }
            }
        }
        if self.is_entity() {
            self.go_on(moment, turn);
        }
        Ok(())
    }

    /// Records a `Parked` event, if the code does not run and no event says so yet: a replay must know that the inputs behind
    /// it were recorded without running the code.
    pub(super) fn record_parking(&mut self, moment: Moment, turn: &mut Turn) {
        if let Some(reason) = self.unrecorded.take().map(|reason| *reason) {
            let event = Event::Parked {
                reason: reason.clone(),
            };
            self.ledger.apply(&event, moment.now);
            turn.events.push(event);
            self.announce_parking(reason, moment, turn);
        }
    }

    pub(super) fn announce_parking(&self, reason: ParkReason, moment: Moment, turn: &mut Turn) {
        if let ParkReason::Paused { .. } = reason {
            // The callers of a paused run keep waiting.
        } else if let Some(at) = self.limits.resume_at(&reason, moment.now) {
            turn.commands.push(Command::ResumeAt { at });
        } else {
            turn.commands.push(Command::Park(reason));
        }
    }
}

/// The time that the code sees for an input recorded at `recorded`: code with a delayed start begins at the time when it
/// runs.
pub(super) fn shown_at(event: &Event, recorded: Timestamp, now: Timestamp) -> Timestamp {
    match event {
        Event::Started(started) if started.start_at().is_some() => now,
        _ => recorded,
    }
}

/// The same reason, with a count that continues that of `before`.
fn counted_after(reason: ParkReason, before: &Ledger) -> ParkReason {
    match (reason, before.parked()) {
        (ParkReason::Panicked { message, .. }, Some((ParkReason::Panicked { count, .. }, _))) => {
            ParkReason::Panicked {
                message,
                count: count + 1,
            }
        }
        (reason, _) => reason,
    }
}
