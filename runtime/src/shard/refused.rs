//! What a shard does when the journal refuses a turn: what the shard knew of the run was wrong, so it drops that and reads
//! the run's history again.
//!
//! ```text
//!   sweep ──► enqueue ──► refused: its run's effects are dropped, its picture too
//!                │           └──► read again, when what is queued is durable ──► told again what parts
//!                └ others: as ever                                               have told it in the sweep
//! ```
//!
//! Nothing of the refused turn has left the shard, since effects wait for their sweep. Callers whose requests to this run
//! were in the sweep are told to ask again; their requests are not recorded. The shard itself has not failed.
//!
//! A turn that is fenced under the present epoch of its partition means something else: the partition has another owner, and
//! [is lost](super::partitions::loss).

use std::collections::BTreeMap;

use millrun_core::{RunId, Sequence};
use millrun_persistence::{RefusedTurn, TurnRefused};
use millrun_workflow::{Moment, Outcome, OutcomeKind, ParkReason};

use super::Shard;
use super::runs::entry::{Entry, Errand, Loading, Parking, Residence, WorkflowName};
use super::runs::results::ResultNumber;
use super::sweeps::answers::Response;
use crate::RunError;
use crate::ownership::partition_set::PartitionSet;

impl Shard {
    /// Undoes the decisions of this sweep whose turns were refused.
    #[cold]
    pub(super) fn take_back(&mut self, refused: &[RefusedTurn]) {
        let mut runs = BTreeMap::new();
        let mut lost = PartitionSet::default();
        for RefusedTurn { turn, error } in refused {
            let turn = self.sweeps.turn_at(*turn);
            let (run, head, epoch) = (turn.run(), turn.head(), turn.epoch());
            if self.epochs.get(run.partition()) != Some(epoch) {
                // Of a former epoch: what belonged to it has been dropped already.
                continue;
            }
            match error {
                // The same turn was appended before: it is, or will be, durable.
                TurnRefused::AlreadyAppended => {}
                TurnRefused::Fenced { .. } => lost.insert(run.partition()),
                // The turn would fit by itself. Its group is too large, and is not decided again.
                TurnRefused::TooLarge { max, .. } if turn.bytes() <= *max => {
                    runs.entry(run).or_insert((head, TurnRefused::ReadAgain));
                }
                error => {
                    runs.entry(run).or_insert((head, error.clone()));
                }
            }
        }
        self.lose(&lost);
        let refused: Vec<_> = runs.keys().copied().collect();
        self.effects.drop_of(&refused);
        self.signal_again(&refused);
        for (run, (head, error)) in runs {
            tracing::warn!(%run, %error, "the journal refused a turn: the run is read again");
            self.updates.drop_of(run);
            if head == Sequence::ZERO {
                self.undo_beginning(run, &error);
            } else {
                self.read_again(run, &error);
            }
        }
    }

    /// Forgets what is known of a run beyond its history, and has the history read.
    fn read_again(&mut self, run: RunId, error: &TurnRefused) {
        // Told in any case: a journal that refuses this gives its reason when the run is read.
        let told = self.shared.journal.read_again(run, self.epoch_of(run));
        tracing::debug!(%run, ?told, "a run is read again");
        let told_again = self.told.take_inputs(run).into_iter();
        let mut held: Vec<_> = told_again.map(Errand::Input).collect();
        held.extend(self.told.take_appends(run).into_iter().map(Errand::Append));
        let is_ended = |entry: &mut Entry| match entry.residence {
            Residence::Ended(number) => Some(number),
            _ => None,
        };
        if let Some(number) = self.entries.get_mut(run).and_then(is_ended) {
            self.revive(run, number);
            self.results.void(number);
        }
        let Some(entry) = self.entries.get_mut(run) else {
            return;
        };
        let mut park = match error {
            // The code would decide the same turn again, so the run is parked.
            TurnRefused::TooLarge { .. } => Some(ParkReason::Stuck {
                message: format!("its turn was refused: {error}"),
            }),
            _ => None,
        };
        let is_listed = match std::mem::replace(&mut entry.residence, Residence::Cold) {
            Residence::Loading(loading) => {
                held.extend(loading.held);
                park = park.or(loading.park);
                true
            }
            Residence::Hot(_) => {
                self.residency.leave(entry);
                false
            }
            Residence::Cold | Residence::Ended(_) => false,
        };
        entry.residence = Residence::Loading(Box::new(Loading {
            held,
            park,
            ..Loading::default()
        }));
        // Everything that is queued by now is durable once this sweep is.
        entry.last_sweep = self.sweeps.present();
        if !is_listed {
            self.residency.read(run);
        }
    }

    /// A run that was taken for ended, with this result, goes on.
    fn revive(&mut self, run: RunId, result: ResultNumber) {
        if let Some(entry) = self.entries.get(run) {
            self.census.enter(&entry.workflow, entry.parent().is_some());
            self.take_back_end(&entry.workflow.clone(), result);
        }
    }

    /// Undoes the count of an end that was not recorded.
    fn take_back_end(&mut self, workflow: &WorkflowName, result: ResultNumber) {
        // The result is not durable, so it is still at hand.
        let outcome = self.results.get(result).map(Outcome::kind);
        self.census
            .take_back_end(workflow, outcome.unwrap_or(OutcomeKind::Terminated));
    }

    /// Undoes the beginning of a run whose first turn was refused.
    fn undo_beginning(&mut self, run: RunId, error: &TurnRefused) {
        drop(self.told.take_inputs(run));
        drop(self.told.take_appends(run));
        let Some(id) = self.entries.get(run).map(|entry| entry.id.clone()) else {
            return;
        };
        // The former run of the instance, if it continued one.
        let of_id = self.entries.iter().filter(|known| known.id == id.as_str());
        let former = of_id.map(|known| known.run).filter(|other| *other != run).max();
        let Some(mut entry) = self.entries.undo(run, former) else {
            return;
        };
        match entry.residence {
            Residence::Ended(number) => {
                self.take_back_end(&entry.workflow, number);
                self.results.void(number);
            }
            Residence::Hot(_) | Residence::Loading(_) | Residence::Cold => {
                if matches!(entry.residence, Residence::Hot(_)) {
                    self.residency.leave(&mut entry);
                }
                self.census.leave(&entry);
            }
        }
        self.census.set_parking(&mut entry, Parking::Runs);
        self.census.take_back_start();
        match former.and_then(|former| self.entries.get_mut(former)) {
            Some(former) => entry.take_waiters().for_each(|waiter| former.wait(waiter)),
            None => {
                if let Some(parent) = entry.parent() {
                    self.refuse_child(&parent.clone(), format!("its first turn was refused: {error}"));
                }
            }
        }
    }

    /// A run whose turn was refused has been ended by another turn; its result is found among the finished runs.
    pub(super) fn let_go_ended(&mut self, run: RunId, moment: Moment) {
        let Some(mut entry) = self.entries.remove(run) else {
            return;
        };
        self.census.leave(&entry);
        self.census.set_parking(&mut entry, Parking::Runs);
        for waiter in entry.take_waiters() {
            self.effects
                .answer(Response::Standing(waiter, Err(RunError::NotFound)));
        }
        if let Residence::Loading(loading) = entry.residence {
            for errand in loading.held {
                match errand {
                    // The values behind it need not wait for it.
                    Errand::Republish(_, topic) => self.feed_topic(topic, moment),
                    // The signal is looked up among the finished runs.
                    Errand::Signal(signal) => self.on_signal(signal, moment),
                    Errand::Replace(replacement) => self.start_anew(*replacement, moment),
                    errand => self.answer_unknown(errand, RunError::NotFound),
                }
            }
        }
    }
}
