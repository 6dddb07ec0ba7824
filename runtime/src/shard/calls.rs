//! The calls of a shard's runs to other runs (children and signals) that wait for an answer. When the shard of the called run
//! restarts, the calls are sent again: the failed shard may have held the request, or its answer.
//!
//! ```text
//!   StartChild, Signal performed ──► listed ── the answer, or that nobody waits for it, is durable ──► forgotten
//!                                      ▲
//!   recovered ─────────────────────────┘      Begun, of the other shard ──► Orphans, and asked for again
//! ```
//!
//! An entry takes 40 bytes; the arguments of the call stand in the calling run's history. If the child of a call was
//! [abandoned](millrun_workflow::ParentClose::Abandon), the entry stays until the calling run ends, but nothing is sent for
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrun_core::{Cause, Partition, RunId};
use millrun_workflow::{Moment, OperationId, Parent};

use super::Shard;
use super::commands::Deed;
use super::runs::entry::Errand;
use super::sweeps::effects::Effect;
use crate::mail::{Ask, PartitionMessage};
use crate::ownership::partition_set::PartitionSet;

/// All calls that wait for an answer, by calling run and operation.
#[derive(Debug, Default)]
pub(super) struct Calls(BTreeMap<(RunId, OperationId), Call>);

/// A call to another run.
#[derive(Debug)]
struct Call {
    /// The partition of the child, or of the instance that is signalled.
    partition: Partition,
    /// How often the call was sent.
    asks_len: u32,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts a call that is about to be sent to this partition, and returns the number of this sending.
    pub(super) fn ask(&mut self, run: RunId, operation: OperationId, partition: Partition) -> u32 {
        let asks_len = 0;
        let call = self.0.entry((run, operation));
        let call = call.or_insert(Call { partition, asks_len });
        call.asks_len = call.asks_len.wrapping_add(1);
        call.asks_len
    }

    /// Whether `number` is the latest sending of a call that still waits for its answer.
    pub(super) fn is_last_ask(&self, run: RunId, operation: OperationId, number: u32) -> bool {
        let call = self.0.get(&(run, operation));
        call.is_some_and(|call| call.asks_len == number)
    }

    pub(super) fn forget(&mut self, run: RunId, operation: OperationId) {
        self.0.remove(&(run, operation));
    }

    /// Forgets all calls of a run, which has ended.
    pub(super) fn forget_all(&mut self, run: RunId) {
        let of_run = self.0.range((run, OperationId::new(0))..);
        let of_run = of_run.map(|(key, _)| *key).take_while(|(of, _)| *of == run);
        for key in of_run.collect::<Vec<_>>() {
            self.0.remove(&key);
        }
    }

    /// Forgets the calls of all runs of these partitions.
    pub(super) fn lose(&mut self, lost: &PartitionSet) {
        self.0.retain(|(run, _), _| !lost.contains(run.partition()));
    }

    /// The calls to runs in these partitions.
    fn of(&self, asked: &PartitionSet) -> BTreeSet<(RunId, OperationId)> {
        let found = self.0.iter().filter(|(_, call)| asked.contains(call.partition));
        found.map(|(key, _)| *key).collect()
    }
}

impl Shard {
    /// Updates the list of calls for a message that is about to be sent: a child's start or a signal enters
    /// it, the closing of a child leaves it.
    pub(super) fn note_call(&mut self, message: &mut PartitionMessage) {
        match message {
            PartitionMessage::StartChild(child) => {
                let Parent { run, operation, .. } = child.parent;
                self.calls.ask(run, operation, child.id.partition());
            }
            PartitionMessage::Signal(signal) => {
                let Cause { run, operation } = signal.sender;
                let operation = OperationId::new(operation);
                signal.ask = Ask {
                    life: self.epoch_of(run),
                    number: self.calls.ask(run, operation, signal.to.partition()),
                };
            }
            PartitionMessage::CloseChild {
                parent, operation, ..
            } => self.calls.forget(*parent, *operation),
            _ => {}
        }
    }

    /// Asks the other shards to send again the calls of their runs for children here: a failed predecessor of this shard may
    /// have held such a request, or its answer.
    pub(super) fn ask_for_calls(&self) {
        let partitions = Arc::new(self.epochs.owned().map(|(partition, _)| partition).collect());
        self.ways
            .send_to_each(&self.ways.elsewhere(), || PartitionMessage::Begun {
                partitions: Arc::clone(&partitions),
            });
        self.ways.send_to_nodes(|| PartitionMessage::Begun {
            partitions: Arc::clone(&partitions),
        });
    }

    /// Other partitions have begun anew. Tells them for which of their children runs here wait, so that they close all
    /// others, and sends those calls again. The message goes first: whatever is decided from now on arrives after it.
    pub(super) fn on_begun(&mut self, children: &Arc<PartitionSet>, moment: Moment) {
        let calls = self.calls.of(children);
        let parents = Arc::new(self.epochs.owned().collect());
        let awaited = Arc::new(calls.clone());
        self.ways.send_to_begun(children, || PartitionMessage::Orphans {
            parents: Arc::clone(&parents),
            children: Arc::clone(children),
            awaited: Arc::clone(&awaited),
        });
        for (run, operation) in calls {
            self.with_run(run, Errand::CallAgain(operation), moment);
        }
    }

    /// Sends a call of a run in memory again, if the run still waits for the answer.
    pub(super) fn call_again(&mut self, run: RunId, operation: OperationId, moment: Moment) {
        let Some(Deed::Effect(effect @ Effect::Send(..))) = self.outstanding(run, operation, moment) else {
            return;
        };
        // A call is only listed once its decision is durable, so it may be sent at once.
        self.effects.push_decided(run.partition(), effect);
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::Timestamp;

    use super::*;

    /// A refused signal may be accepted when it is sent again, before the sender hears of the refusal: only the last answer
    /// counts.
    #[test]
    fn only_the_answer_to_the_last_of_several_questions_counts() {
        let partition = Partition::of(b"asked");
        let run = RunId::new(Partition::of(b"asks"), Timestamp::EPOCH, 1);
        let [one, two] = [1, 2].map(OperationId::new);
        let mut calls = Calls::default();
        assert_eq!(
            [calls.ask(run, one, partition), calls.ask(run, two, partition)],
            [1, 1]
        );
        assert!(calls.is_last_ask(run, one, 1));
        assert_eq!(calls.ask(run, one, partition), 2);
        assert_eq!(
            [1, 2].map(|number| calls.is_last_ask(run, one, number)),
            [false, true]
        );
        assert!(calls.is_last_ask(run, two, 1));
        let asked: PartitionSet = [partition].into_iter().collect();
        assert_eq!(calls.of(&asked), [(run, one), (run, two)].into());
        calls.lose(&asked);
        assert!(
            calls.is_last_ask(run, one, 2),
            "it is the run's partition that counts"
        );
        calls.forget(run, one);
        assert!(!calls.is_last_ask(run, one, 2), "nobody waits for it");
        calls.lose(&[run.partition()].into_iter().collect());
        assert!(calls.is_empty());
        assert_eq!(calls.ask(run, one, partition), 1);
        calls.forget_all(run);
        assert!(calls.is_empty());
    }
}
