//! Queries and updates: what is asked of a run's state, and answered when the state it rests on
//! is durable.
//!
//! ```text
//!   query  ──► the state, now ───────────────────────────────► effect of the sweep
//!   update ──► waits, by (run, request) ──► UpdateAnswered ──► effect of its sweep
//! ```

use std::collections::BTreeMap;

use millrun_core::RunId;
use millrun_workflow::{Event, Input, InputRefused, Moment, ParkReason, Payload, Turn};

use super::Shard;
use super::answers::Answer;
use super::effects::Effects;
use super::entry::{Place, Sender};
use crate::mail::{Question, Reply, UpdateAnswer, UpdateRefused, UpdateReply, UpdateRequest};
use crate::{QueryError, RunError};

impl Shard {
    /// Asks a run in memory.
    pub(super) fn answer_query(
        &mut self,
        run: RunId,
        question: &Question,
        reply: Reply<Payload, QueryError>,
    ) {
        let answer = match self.entries.get(run).map(|entry| &entry.place) {
            Some(Place::Hot(instance)) => instance
                .query(&question.name, &question.value)
                .map_err(QueryError::Unanswered),
            Some(_) | None => Err(QueryError::Run(RunError::NotFound)),
        };
        self.effects.answer(Answer::Query(reply, answer));
    }

    /// Applies an update to a run in memory. Its answer is an event of this turn, or of a later
    /// one if the run is parked.
    pub(super) fn update(&mut self, run: RunId, request: UpdateRequest, reply: UpdateReply, moment: Moment) {
        let UpdateRequest { request, name, input } = request;
        let key = (run, request.clone());
        let waiting = self.updates.entry(key.clone()).or_default();
        waiting.retain(|waiter| !waiter.is_closed());
        waiting.push(reply);
        let input = Input::Update { request, name, input };
        match self.apply(run, input, moment, Sender::Outside) {
            Ok(()) => {}
            Err(RunError::Refused(InputRefused::Answered { answer })) => self.answer_update(&key, answer),
            Err(error) => {
                // Only of the one who asked now: others may wait for the same request.
                let waiting = self.updates.get_mut(&key).and_then(Vec::pop);
                if let Some(reply) = waiting {
                    let refused = Err(UpdateRefused::Run(error));
                    self.effects.answer(Answer::Update(reply, refused));
                }
            }
        }
        let reason = match self.entries.get(run).map(|entry| &entry.place) {
            Some(Place::Hot(instance)) => instance.final_park_reason().cloned(),
            Some(_) | None => None,
        };
        if let Some(reason) = reason {
            tell_parked(&mut self.updates, &mut self.effects, run, &reason);
        }
        if self.updates.get(&key).is_some_and(Vec::is_empty) {
            self.updates.remove(&key);
        }
    }

    fn answer_update(&mut self, key: &(RunId, String), answer: UpdateAnswer) {
        for reply in self.updates.remove(key).unwrap_or_default() {
            self.effects.answer(Answer::Update(reply, Ok(answer.clone())));
        }
    }
}

/// Those who wait for the answer to an update, by its run and its request.
pub(super) type Waiting = BTreeMap<(RunId, String), Vec<UpdateReply>>;

/// A run does not go on by itself: its updates are recorded, and wait.
pub(super) fn tell_parked(updates: &mut Waiting, effects: &mut Effects, run: RunId, reason: &ParkReason) {
    refuse_all(updates, effects, run, &UpdateRefused::Parked(reason.clone()));
}

fn refuse_all(updates: &mut Waiting, effects: &mut Effects, run: RunId, refused: &UpdateRefused) {
    for key in keys_of(updates, run) {
        for reply in updates.remove(&key).unwrap_or_default() {
            effects.answer(Answer::Update(reply, Err(refused.clone())));
        }
    }
}

/// Drops those who wait for answers of a run: they are told to ask again.
pub(super) fn drop_waiting(updates: &mut Waiting, run: RunId) {
    for key in keys_of(updates, run) {
        updates.remove(&key);
    }
}

fn keys_of(updates: &Waiting, run: RunId) -> Vec<(RunId, String)> {
    let from = updates.range((run, String::new())..);
    let of_run = from.take_while(|((of, _), _)| *of == run);
    of_run.map(|(key, _)| key.clone()).collect()
}

/// Makes effects of the answers in a turn, for those who wait; when the run ends, for all that wait.
pub(super) fn answer_updates(updates: &mut Waiting, effects: &mut Effects, run: RunId, turn: &Turn) {
    for event in &turn.events {
        if let Event::UpdateAnswered { request, answer } = event {
            for reply in updates.remove(&(run, request.clone())).unwrap_or_default() {
                effects.answer(Answer::Update(reply, Ok(answer.clone())));
            }
        }
    }
    if turn.events.last().is_some_and(Event::is_last) {
        refuse_all(updates, effects, run, &UpdateRefused::Run(RunError::Finished));
    }
}
