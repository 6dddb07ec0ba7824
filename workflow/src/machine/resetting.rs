//! The run that begins with a part of another's history, since that was reset.
//!
//! ```text
//!   former:  1 ─ 2 ─ 3 ─ … ─ n ─ … ─ head          ├ Reset, unless it has ended before
//!            └── replayed ──┘ │  └ signals, updates ┐
//!   new:     1 ─ 2 ─ 3 ─ … ─ n ─ decisions ─────── kept ones, with what the code makes of them      one turn
//!            └ times as they were ┘ └── now ──────────────────────────────────────────────────┘
//! ```
//!
//! Invariants: the new run's first turn has all of it, so that it begins as a whole or not at all. What stands in it replays as it
//! was decided. The commands of the turn begin all that is outstanding then, as for a run that has a new owner: under the new run,
//! so that activities have other idempotency keys, and what comes for the former run is not taken for theirs.
//!
//! As far as the former run's events go, the code is shown that run's identity, of which its random numbers are made; behind them the
//! other's.
//!
//! Left out: children that are waited for at that event, and promises whose tokens are on their way, are the former run's, so such a
//! point is refused. What was published stays.

use millrun_core::{RunId, Sequence, Timestamp};

use super::{Instance, Limits, Moment, Turn};
use crate::event::{Event, ParkReason};
use crate::ledger::Pending;
use crate::machine::{Input, InputRefused, Unfit};
use crate::registry::Implementation;
use crate::reset::{LaterSignals, ResetCut, ResetPoint, ResetRefused, number};

impl Instance {
    /// Begins a run with the events of `former` up to a point, and appends its first turn, which has the
    /// [times](Turn::recorded) at which they were recorded.
    ///
    /// The last event is shown to the code as if it came now, if it is one that the code is shown. So what the code decides of it
    /// may be something else than it was.
    ///
    /// Of the events behind the point only those are needed that were decided with its last event, and those that are
    /// [kept](LaterSignals::keeps).
    ///
    /// # Errors
    /// When there is no such point, or the code does not go on from there. What the turn has is to be dropped then.
    pub fn begin_reset(
        implementation: &Implementation,
        run: RunId,
        former: (RunId, Vec<(Event, Timestamp)>),
        point: &ResetPoint,
        limits: Limits,
        moment: Moment,
        turn: &mut Turn,
    ) -> Result<Self, ResetRefused> {
        let (former, history) = former;
        let (mut events, mut times): (Vec<_>, Vec<_>) = history.into_iter().unzip();
        let workflow = events.first().and_then(|first| match first {
            Event::Started(started) => Some(started.workflow.to_string()),
            _ => None,
        });
        let workflow = workflow.ok_or(ResetRefused::NoEvent {
            to: point.to,
            head: Sequence::ZERO,
        })?;
        if implementation.is_entity() {
            return Err(ResetRefused::NoWorkflow { workflow });
        }
        let ResetCut { kept_len, shows_next } = ResetCut::at(point.to, &events)?;
        let parked = parked_at(&events[..kept_len]);
        let later = events.split_off(kept_len + usize::from(shows_next));
        times.truncate(kept_len);
        if let Some(Event::Started(started)) = events.first_mut() {
            if let Some(at) = started.chain_ended(moment.now) {
                return Err(ResetRefused::ChainTimedOut { at });
            }
            started.reset_from(former, point.to);
            started.count_anew(moment.now);
        }
        let shown = shows_next.then(|| events.pop()).flatten();
        let is_resumed = matches!(shown, Some(Event::Resumed));
        if let Some(parked) = parked.filter(|_| !is_resumed) {
            let to = point.to;
            return Err(ResetRefused::Parked { to, parked });
        }
        let mut instance = match shown {
            Some(Event::Started(started)) => {
                Self::start(Some(implementation), run, started, limits, moment, turn)
            }
            shown => {
                let replayed = events.iter().cloned().zip(times.iter().copied());
                let replayed = Self::try_whole(Some(implementation), run, replayed, limits);
                let mut instance = match replayed {
                    Ok((instance, None)) => instance,
                    Ok((_, Some(Unfit::Differs(difference) | Unfit::Fails(difference)))) => {
                        return Err(ResetRefused::DoesNotFit(Box::new(difference)));
                    }
                    Err(error) => {
                        let reason = error.to_string();
                        return Err(ResetRefused::Fails { reason });
                    }
                };
                turn.events.append(&mut events);
                turn.recorded = times;
                instance.go_on_from(shown, point.to, moment, turn)?;
                instance.ask_for_timeout(turn);
                instance
            }
        };
        instance.check_goes_on()?;
        if point.later == LaterSignals::Keep {
            instance.tell_again(later, moment, turn)?;
        }
        Ok(instance)
    }

    /// Begins what is outstanding, and shows the code the last event of those that are kept, if it is one that the code is shown.
    fn go_on_from(
        &mut self,
        shown: Option<Event>,
        to: Sequence,
        moment: Moment,
        turn: &mut Turn,
    ) -> Result<(), ResetRefused> {
        let fails = |refused: InputRefused| ResetRefused::Fails {
            reason: refused.to_string(),
        };
        if self.ledger.parked().is_none() {
            self.apply(Input::ChangeVersion, moment, turn).map_err(fails)?;
        }
        match shown {
            None => self.begin_outstanding(to, moment, turn),
            Some(Event::Resumed) => {
                self.begin_outstanding(to, moment, turn)?;
                self.apply(Input::Resume, moment, turn).map_err(fails)
            }
            Some(event) => {
                self.ledger.apply(&event, moment.now);
                self.ledger
                    .forget_senders(usize::from(self.limits.senders_len_max));
                turn.events.push(event);
                // What ends with the event is not begun again.
                self.begin_outstanding(to, moment, turn)?;
                self.take_up(moment, turn);
                Ok(())
            }
        }
    }

    fn begin_outstanding(&self, to: Sequence, moment: Moment, turn: &mut Turn) -> Result<(), ResetRefused> {
        for (operation, pending) in self.ledger.pending() {
            let begun = |begins: &dyn Fn(&Event) -> bool| {
                let at = turn.events.iter().position(begins);
                number(at.unwrap_or_default())
            };
            if let Pending::Child { scheduled, .. } = pending {
                let call = begun(
                    &|event| matches!(event, Event::ChildScheduled(call) if call.operation == operation),
                );
                let child = scheduled.id.clone();
                return Err(ResetRefused::ChildRuns { to, child, call });
            }
            if let Pending::Promise = pending {
                let made = begun(
                    &|event| matches!(event, Event::PromiseMade { operation: made } if *made == operation),
                );
                return Err(ResetRefused::PromiseWaits { to, made });
            }
            let since = self.ledger.pending_since(operation).unwrap_or(moment.now);
            if let Pending::Activity(activity) = pending {
                let ends = [activity.close_at, activity.start_by(since)];
                if ends.into_iter().flatten().any(|end| end <= moment.now) {
                    let call = begun(
                        &|event| matches!(event, Event::ActivityScheduled(call) if call.operation == operation),
                    );
                    return Err(ResetRefused::CallTimedOut { to, call });
                }
            }
            pending.commands(operation, since, moment, false, &mut turn.commands);
        }
        Ok(())
    }

    /// Tells the run again what the former one was told behind the point.
    fn tell_again(&mut self, later: Vec<Event>, moment: Moment, turn: &mut Turn) -> Result<(), ResetRefused> {
        for event in later {
            if self.ledger.outcome().is_some() {
                return Ok(());
            }
            let (name, input) = match event {
                Event::SignalReceived {
                    name,
                    value,
                    cause,
                    request,
                } => (
                    name.clone(),
                    Input::Signal {
                        name,
                        value,
                        cause,
                        request,
                    },
                ),
                Event::RunSignalReceived { sender, name, value } => {
                    (name.clone(), Input::RunSignal { sender, name, value })
                }
                Event::UpdateAccepted { request, name, input } => {
                    let update = name.clone();
                    match self.apply(Input::Update { request, name, input }, moment, turn) {
                        // The run as it is now may reject it, as it would if its sender asked now.
                        Ok(()) | Err(InputRefused::Rejected { .. } | InputRefused::Answered { .. }) => {}
                        Err(refused) => {
                            return Err(ResetRefused::Update {
                                name: update.into_owned(),
                                problem: refused.to_string(),
                            });
                        }
                    }
                    self.check_goes_on()?;
                    continue;
                }
                _ => continue,
            };
            if let Err(refused) = self.apply(input, moment, turn) {
                return Err(ResetRefused::Signal {
                    name: name.into_owned(),
                    problem: refused.to_string(),
                });
            }
            self.check_goes_on()?;
        }
        Ok(())
    }

    /// Whether the code runs, or begins at its time.
    fn check_goes_on(&self) -> Result<(), ResetRefused> {
        match self.park_reason() {
            None | Some(ParkReason::Delayed { .. }) => Ok(()),
            Some(reason) => Err(ResetRefused::Fails {
                reason: reason.to_string(),
            }),
        }
    }
}

/// The number of the event by which the code does not run at the end of these, if it does not.
fn parked_at(events: &[Event]) -> Option<Sequence> {
    let last = events
        .iter()
        .rposition(|event| matches!(event, Event::Parked { .. } | Event::Resumed))?;
    matches!(events[last], Event::Parked { .. }).then(|| number(last))
}
