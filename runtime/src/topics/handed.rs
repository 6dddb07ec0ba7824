//! The publishes that a shard has handed to topics and whose outcome is not in the journal yet. The list outlives the shard,
//! so that a successor neither loses nor repeats its predecessor's publishes.
//!
//! ```text
//!   handed to the topic ──► Waiting ── room ──► Ended ── the run's event is durable ──► forgotten
//!                              └── cancelled, durably ──────────────────────────────────►┘
//! ```
//!
//! A publish that is decided and not listed here was never handed over. The list is lost with the process, as topics are:
//! after a crash it is unknown which publishes were listed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millrun_core::{RunId, TaskHandle};
use millrun_workflow::{Name, OperationId, PublishOutcome};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ownership::partition_set::PartitionSet;

/// Names a publish.
pub(crate) type Key = (RunId, OperationId);

/// The state of a publish that was handed to its topic.
#[derive(Debug)]
enum Standing {
    /// A task waits for room.
    Waiting {
        topic: Name,
        /// The handle to stop it; `None` while it begins.
        task: Option<TaskHandle>,
    },
    /// It was published or refused, or the outcome is unknown: a process that crashed may have handed it over.
    Ended(Result<PublishOutcome, String>),
}

/// The publishes of one shard that were handed over: one entry for each whose outcome is not durable.
#[derive(Debug, Default)]
pub(crate) struct HandedOver(Mutex<FxHashMap<Key, Standing>>);

impl HandedOver {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Key, Standing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a task is about to wait for room.
    pub(crate) fn wait(&self, key: Key, topic: Name) {
        self.lock().insert(key, Standing::Waiting { topic, task: None });
    }

    /// Keeps the handle of the task, unless it has ended by now.
    pub(crate) fn keep_task(&self, key: Key, handle: TaskHandle) {
        if let Some(Standing::Waiting { task, .. }) = self.lock().get_mut(&key) {
            *task = Some(handle);
        }
    }

    /// Notes that the topic took the value, or refused it.
    pub(crate) fn end(&self, key: Key, outcome: Result<PublishOutcome, String>) {
        self.lock().insert(key, Standing::Ended(outcome));
    }

    /// Notes the end of a task that waited. The outcome is not kept if the publish was cancelled.
    pub(crate) fn end_wait(&self, key: Key, outcome: Result<PublishOutcome, String>) {
        if let Some(standing) = self.lock().get_mut(&key) {
            *standing = Standing::Ended(outcome);
        }
    }

    /// Removes a publish whose outcome is in its run's history.
    pub(crate) fn forget(&self, key: Key) {
        self.lock().remove(&key);
    }

    /// Cancels a publish, and stops a task that waits for room. Returns the topic of such a task.
    pub(crate) fn cancel(&self, key: Key) -> Option<Name> {
        let standing = self.lock().remove(&key)?;
        match standing {
            Standing::Waiting { topic, task } => {
                if let Some(task) = task {
                    task.abort();
                }
                Some(topic)
            }
            Standing::Ended(_) => None,
        }
    }

    /// Removes the publishes of runs in these partitions, and stops tasks that wait for room.
    pub(crate) fn lose(&self, lost: &PartitionSet) {
        let is_lost = |key: &&Key| lost.contains(key.0.partition());
        let keys: Vec<Key> = self.lock().keys().filter(is_lost).copied().collect();
        for key in keys {
            self.cancel(key);
        }
    }

    /// The outcome of a publish that was handed over; the inner `None` means that a task waits for room.
    pub(crate) fn outcome(&self, key: Key) -> Option<Option<Result<PublishOutcome, String>>> {
        self.lock().get(&key).map(|standing| match standing {
            Standing::Waiting { .. } => None,
            Standing::Ended(outcome) => Some(outcome.clone()),
        })
    }

    /// Keeps only publishes that are still pending. Returns those that wait for room, each with its topic.
    pub(crate) fn take_over(&self, pending: &FxHashSet<Key>) -> Vec<(Key, Name)> {
        let gone: Vec<Key> = {
            let listed = self.lock();
            listed
                .keys()
                .filter(|key| !pending.contains(key))
                .copied()
                .collect()
        };
        for key in gone {
            self.cancel(key);
        }
        let listed = self.lock();
        let waiting = listed.iter().filter_map(|(key, standing)| match standing {
            Standing::Waiting { topic, .. } => Some((*key, topic.clone())),
            Standing::Ended(_) => None,
        });
        waiting.collect()
    }
}
