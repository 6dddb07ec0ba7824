//! What a shard has handed to topics and its journal does not know yet. It outlives the shard, so
//! that a successor neither loses nor repeats what its predecessor published.
//!
//! ```text
//!   handed to the topic ──► Waiting ── room ──► Ended ── the run's event is durable ──► forgotten
//!                              └── cancelled, durably ──────────────────────────────────►┘
//! ```
//!
//! A publish that is decided and not listed here was never handed over. It ends with the process, as
//! topics do: what was listed when the process crashed is not known after it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millrun_core::{RunId, TaskHandle};
use millrun_workflow::{Name, OperationId, PublishOutcome};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ownership::partition_set::PartitionSet;

/// Names a publish.
pub(crate) type Key = (RunId, OperationId);

/// How a publish stands that was handed to its topic.
#[derive(Debug)]
enum Standing {
    /// A task waits for room.
    Waiting {
        topic: Name,
        /// What stops it; not there yet while it begins.
        task: Option<TaskHandle>,
    },
    /// It was published, or refused, or nobody knows: a process that crashed may have handed it over.
    Ended(Result<PublishOutcome, String>),
}

/// The publishes of one shard that were handed over. One entry for each whose outcome is not durable.
#[derive(Debug, Default)]
pub(crate) struct HandedOver(Mutex<FxHashMap<Key, Standing>>);

impl HandedOver {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Key, Standing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task is about to wait for room.
    pub(crate) fn wait(&self, key: Key, topic: Name) {
        self.lock().insert(key, Standing::Waiting { topic, task: None });
    }

    /// The task runs; or has ended by now.
    pub(crate) fn keep_task(&self, key: Key, handle: TaskHandle) {
        if let Some(Standing::Waiting { task, .. }) = self.lock().get_mut(&key) {
            *task = Some(handle);
        }
    }

    /// The topic took it, or refused it.
    pub(crate) fn end(&self, key: Key, outcome: Result<PublishOutcome, String>) {
        self.lock().insert(key, Standing::Ended(outcome));
    }

    /// The task that waited has ended. If nobody waits for it any more, neither does this list.
    pub(crate) fn end_wait(&self, key: Key, outcome: Result<PublishOutcome, String>) {
        if let Some(standing) = self.lock().get_mut(&key) {
            *standing = Standing::Ended(outcome);
        }
    }

    /// The run's history knows the outcome.
    pub(crate) fn forget(&self, key: Key) {
        self.lock().remove(&key);
    }

    /// Nobody waits for it any more: a task that waits for room is stopped. Its topic, if there was
    /// one.
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

    /// Nobody here waits for those of runs in these partitions any more: tasks that wait for room are stopped.
    pub(crate) fn lose(&self, lost: &PartitionSet) {
        let is_lost = |key: &&Key| lost.contains(key.0.partition());
        let keys: Vec<Key> = self.lock().keys().filter(is_lost).copied().collect();
        for key in keys {
            self.cancel(key);
        }
    }

    /// The outcome of a publish, if it was handed over; `None` inside if a task waits for room.
    pub(crate) fn outcome(&self, key: Key) -> Option<Option<Result<PublishOutcome, String>>> {
        self.lock().get(&key).map(|standing| match standing {
            Standing::Waiting { .. } => None,
            Standing::Ended(outcome) => Some(outcome.clone()),
        })
    }

    /// Keeps only what is still pending, and gives those that wait for room, each with its topic.
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
