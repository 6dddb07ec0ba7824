//! Queries and updates: questions to a run's state, answered when the state that the answer depends on is durable.
//!
//! ```text
//!   query  ──► the state, now ───────────────────────────────► effect of the sweep
//!   update ──► waits, by (run, request) ──► UpdateAnswered ──► effect of its sweep
//! ```

use std::collections::BTreeMap;

use millrun_core::RunId;
use millrun_workflow::{Event, Input, InputRefused, Moment, ParkReason, Payload, Turn};

use super::Shard;
use super::runs::entry::{Residence, Sender};
use super::sweeps::answers::Response;
use super::sweeps::effects::Effects;
use crate::mail::{Question, Reply, UpdateAnswer, UpdateRefused, UpdateReply, UpdateRequest};
use crate::ownership::partition_set::PartitionSet;
use crate::{QueryError, RunError};

impl Shard {
    /// Answers a query of a run in memory.
    pub(super) fn answer_query(
        &mut self,
        run: RunId,
        question: &Question,
        reply: Reply<Payload, QueryError>,
    ) {
        let answer = match self.entries.get(run).map(|entry| &entry.residence) {
            Some(Residence::Hot(instance)) => instance
                .query(&question.name, &question.value)
                .map_err(QueryError::Unanswered),
            Some(_) | None => Err(QueryError::Run(RunError::NotFound)),
        };
        self.effects.answer(Response::Query(reply, answer));
    }

    /// Applies an update to a run in memory. Its answer is an event of this turn, or of a later
    /// one if the run is parked.
    pub(super) fn update(&mut self, run: RunId, request: UpdateRequest, reply: UpdateReply, moment: Moment) {
        let UpdateRequest { request, name, input } = request;
        let key = (run, request.clone());
        self.updates.wait(key.clone(), reply);
        let input = Input::Update { request, name, input };
        match self.apply(run, input, moment, Sender::Outside) {
            Ok(()) => {}
            Err(RunError::Refused(InputRefused::Answered { answer })) => {
                self.updates.answer(&key, &answer, &mut self.effects);
            }
            Err(error) => {
                if let Some(reply) = self.updates.take_latest(&key) {
                    let refused = Err(UpdateRefused::Run(error));
                    self.effects.answer(Response::Update(reply, refused));
                }
            }
        }
        let reason = match self.entries.get(run).map(|entry| &entry.residence) {
            Some(Residence::Hot(instance)) => instance.final_park_reason().cloned(),
            Some(_) | None => None,
        };
        if let Some(reason) = reason {
            self.updates.tell_parked(run, &reason, &mut self.effects);
        }
    }
}

/// The callers who wait for the answer to an update, by its run and its request.
///
/// Invariant: each caller gets its answer as an effect of the turn that gives it, or of the turn that ends or parks the run;
/// otherwise the caller is dropped, and asks again.
#[derive(Debug, Default)]
pub(super) struct UpdateWaiters(BTreeMap<(RunId, String), Vec<UpdateReply>>);

impl UpdateWaiters {
    /// Lists a caller, and removes those that gave up.
    pub(super) fn wait(&mut self, key: (RunId, String), reply: UpdateReply) {
        let waiting = self.0.entry(key).or_default();
        waiting.retain(|waiter| !waiter.is_closed());
        waiting.push(reply);
    }

    /// Takes the caller that asked last: several may wait for the same request.
    fn take_latest(&mut self, key: &(RunId, String)) -> Option<UpdateReply> {
        let waiting = self.0.get_mut(key)?;
        let latest = waiting.pop();
        if waiting.is_empty() {
            self.0.remove(key);
        }
        latest
    }

    fn answer(&mut self, key: &(RunId, String), answer: &UpdateAnswer, effects: &mut Effects) {
        for reply in self.0.remove(key).unwrap_or_default() {
            effects.answer(Response::Update(reply, Ok(answer.clone())));
        }
    }

    /// Turns the update answers in a turn into effects for the callers that wait for them. If the turn ends
    /// the run, every waiting caller gets an answer.
    #[inline]
    pub(super) fn answer_turn(&mut self, run: RunId, turn: &Turn, effects: &mut Effects) {
        if !self.0.is_empty() {
            self.find_answers(run, turn, effects);
        }
    }

    fn find_answers(&mut self, run: RunId, turn: &Turn, effects: &mut Effects) {
        for event in &turn.events {
            if let Event::UpdateAnswered { request, answer } = event {
                self.answer(&(run, request.clone()), answer, effects);
            }
        }
        if turn.events.last().is_some_and(Event::is_last) {
            self.refuse_all(run, &UpdateRefused::Run(RunError::Finished), effects);
        }
    }

    /// A run is parked: its updates are recorded and wait, and their callers are told so.
    pub(super) fn tell_parked(&mut self, run: RunId, reason: &ParkReason, effects: &mut Effects) {
        self.refuse_all(run, &UpdateRefused::Parked(reason.clone()), effects);
    }

    fn refuse_all(&mut self, run: RunId, refused: &UpdateRefused, effects: &mut Effects) {
        for key in self.keys_of(run) {
            for reply in self.0.remove(&key).unwrap_or_default() {
                effects.answer(Response::Update(reply, Err(refused.clone())));
            }
        }
    }

    /// Drops the callers that wait for answers of a run, which tells them to ask again.
    pub(super) fn drop_of(&mut self, run: RunId) {
        for key in self.keys_of(run) {
            self.0.remove(&key);
        }
    }

    fn keys_of(&self, run: RunId) -> Vec<(RunId, String)> {
        let from = self.0.range((run, String::new())..);
        let of_run = from.take_while(|((of, _), _)| *of == run);
        of_run.map(|(key, _)| key.clone()).collect()
    }

    /// Tells the callers that wait for runs of these partitions that the partitions have another owner.
    pub(super) fn lose(&mut self, lost: &PartitionSet, moved: &mut Vec<Response>) {
        let of_lost = self
            .0
            .extract_if(.., |(run, _), _| lost.contains(run.partition()));
        for ((run, _), replies) in of_lost {
            let partition = run.partition();
            let refused = || {
                UpdateRefused::Run(RunError::Moved {
                    partition,
                    owner: None,
                })
            };
            let replies = replies.into_iter();
            moved.extend(replies.map(|reply| Response::Update(reply, Err(refused()))));
        }
    }
}
