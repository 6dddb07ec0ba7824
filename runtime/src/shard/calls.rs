//! The children that a shard's runs have asked for and wait for: asked for again when the shard of a child has
//! begun anew, which may have had the request in hand, or the answer to it.
//!
//! ```text
//!   StartChild performed ──► listed ── the child's end, or that nobody waits for it, is durable ──► forgotten
//!                              ▲
//!   recovered ─────────────────┘        Begun, of the child's shard ──► Orphans, and asked for again
//! ```
//!
//! One entry of 40 bytes for each call that is waited for; what it asks for stands in its run's history. An entry
//! of a call that was let go of with its child [left to itself](millrun_workflow::ParentClose::Abandon) stays until
//! its run ends: it asks for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrun_core::{Partition, RunId};
use millrun_workflow::{Moment, OperationId, Parent, Pending};

use super::Shard;
use super::entry::{Held, Place};
use super::family::start_child;
use crate::mail::PartitionMessage;

/// Each call with the partition of its child.
#[derive(Debug, Default)]
pub(super) struct Calls(BTreeMap<(RunId, OperationId), Partition>);

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, run: RunId, operation: OperationId, child: Partition) {
        self.0.insert((run, operation), child);
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

    /// Those with children in partitions that are looked for.
    fn of(&self, is_looked_for: impl Fn(Partition) -> bool) -> BTreeSet<(RunId, OperationId)> {
        let found = self.0.iter().filter(|(_, child)| is_looked_for(**child));
        found.map(|(key, _)| *key).collect()
    }
}

impl Shard {
    /// Notes what a message does to the list, which is sent since what it says is durable.
    pub(super) fn note_call(&mut self, message: &PartitionMessage) {
        match message {
            PartitionMessage::StartChild(child) => {
                let Parent { run, operation, .. } = child.parent;
                self.calls.insert(run, operation, child.id.partition());
            }
            PartitionMessage::CloseChild {
                parent, operation, ..
            } => self.calls.forget(*parent, *operation),
            _ => {}
        }
    }

    /// Has the other shards ask again for the children that their runs wait for here: a predecessor may have had
    /// such a request in hand, or an answer to one.
    pub(super) fn ask_for_calls(&self) {
        let others = self.doors.all().iter().enumerate();
        for (_, door) in others.filter(|(index, _)| *index != self.index) {
            door.push_reserved(PartitionMessage::Begun { shard: self.index });
        }
    }

    /// Another shard has begun anew: says which children there are waited for, so that it closes the rest, and asks
    /// for these again. What is decided from now on comes behind it.
    pub(super) fn on_begun(&mut self, shard: usize, moment: Moment) {
        let calls = self.calls.of(|child| self.doors.index_of(child) == shard);
        let message = PartitionMessage::Orphans {
            shard: self.index,
            awaited: Arc::new(calls.clone()),
        };
        self.doors.all()[shard].push_reserved(message);
        for (run, operation) in calls {
            self.with_run(run, Held::CallAgain(operation), moment);
        }
    }

    /// Asks for a child of a run in memory again, if it is waited for.
    pub(super) fn call_again(&mut self, run: RunId, operation: OperationId) {
        let pending = match self.entries.get(run).map(|entry| &entry.place) {
            Some(Place::Hot(instance)) => instance.ledger().pending_operation(operation),
            Some(_) | None => None,
        };
        if let Some(Pending::Child {
            scheduled,
            run: known,
        }) = pending
        {
            // Only what was decided durably is listed.
            let effect = start_child(run, scheduled, *known);
            self.effects.push_decided(effect);
        }
    }
}
