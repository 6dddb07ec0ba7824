//! The changes of a sweep that observers are told once they are durable: see [`changes`](crate::looking::changes).
//!
//! They are read from the turns of the sweep when it is queued, and only while a feed is open.

use millrun_core::{InstanceId, Sequence};
use millrun_persistence::{RefusedTurn, TurnView};
use millrun_workflow::{Event, wire};

use super::Shard;
use super::runs::entry::Parking;
use crate::code::workflows::is_reserved;
use crate::looking::changes::{ChangeKind, ChangedRun, cut};
use crate::looking::find::RunStatus;

impl Shard {
    /// Gathers the changes of the sweep that was queued just now, without those of refused turns.
    #[cold]
    pub(super) fn gather_changes(&mut self, refused: &[RefusedTurn]) {
        let mut changes = Vec::new();
        for number in 0..self.sweeps.turns_len() {
            if refused.iter().any(|refused| refused.turn == number) {
                continue;
            }
            let turn = self.sweeps.turn_at(number);
            let Some(known) = self.entries.known(turn.run()) else {
                continue;
            };
            if is_reserved(known.workflow.as_str()) {
                continue; // A workflow of millrun's own stands in no list either.
            }
            let id = InstanceId::new(known.id).expect("it is the id of an instance");
            let run = ChangedRun::new(id, turn.run(), known.workflow.as_str().to_owned());
            let kinds = changes_of(&turn, &run);
            changes.extend(kinds.into_iter().map(|kind| (turn.time(), kind)));
        }
        if !changes.is_empty() {
            self.effects.changes = Some(changes);
        }
    }
}

/// What a turn has changed.
fn changes_of(turn: &TurnView<'_>, run: &ChangedRun) -> Vec<ChangeKind> {
    let mut changes = Vec::new();
    if turn.head() == Sequence::ZERO {
        changes.push(ChangeKind::Started(run.clone()));
    }
    for record in turn.records() {
        if wire::may_park(record.kind) {
            match wire::decode(record.kind, &bytes::Bytes::copy_from_slice(record.body), None) {
                Ok(Event::Parked { reason, .. }) => changes.push(ChangeKind::Parked {
                    run: run.clone(),
                    status: match Parking::of(Some(&reason)) {
                        Parking::Paused => RunStatus::Paused,
                        Parking::Delayed => RunStatus::Delayed,
                        Parking::Runs | Parking::Parked => RunStatus::Parked,
                    },
                    reason: cut(reason.to_string()),
                }),
                Ok(_) => changes.push(ChangeKind::Resumed(run.clone())),
                Err(error) => tracing::error!(run = %run.run, %error, "an event just made cannot be read"),
            }
        }
        let outcome = wire::outcome_of_kind(record.kind).filter(|_| record.closes);
        if let Some(outcome) = outcome {
            let (run, status) = (run.clone(), outcome.into());
            changes.push(ChangeKind::Ended { run, status });
        }
    }
    changes
}
