//! Task queues: a bounded window, in memory, on the durable backlog of activities.
//!
//! What does not fit the window stays in the histories of its runs. The shard that was refused
//! leaves its bell, and is rung when there is room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use millrun_broker::mailbox::{Mailbox, MailboxConfig, TryPushBatchError};
use millrun_core::Bell;

use super::{ActivityImplementation, ActivityTask};

/// One task queue.
#[derive(Debug)]
pub(crate) struct TaskQueue {
    pub(crate) name: &'static str,
    pub(crate) tasks: Mailbox<Arc<ActivityTask>>,
    pub(crate) bell: Bell,
    waiting: Mutex<Vec<Bell>>,
}

impl TaskQueue {
    fn new(name: &'static str, len_max: usize) -> Self {
        let bell = Bell::new();
        let config = MailboxConfig {
            capacity: len_max,
            ..MailboxConfig::default()
        };
        let tasks = Mailbox::new(config, bell.clone()).expect("the configuration was checked");
        Self {
            name,
            tasks,
            bell,
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// Puts tasks in, and returns those for which there was no room. `shard` rings when there is.
    pub(crate) fn offer(&self, tasks: Vec<Arc<ActivityTask>>, shard: &Bell) -> Vec<Arc<ActivityTask>> {
        let rest = self.push(tasks);
        if rest.is_empty() {
            return rest;
        }
        self.wait_for_room(shard);
        // Room that appeared before the bell was left would otherwise be noticed by nobody.
        self.push(rest)
    }

    fn push(&self, tasks: Vec<Arc<ActivityTask>>) -> Vec<Arc<ActivityTask>> {
        match self.tasks.try_push_batch(tasks) {
            Ok(()) => Vec::new(),
            Err(TryPushBatchError::Full(rest) | TryPushBatchError::Closed(rest)) => rest,
        }
    }

    /// How many tasks would fit now, about.
    pub(crate) fn room(&self) -> usize {
        self.tasks.capacity().saturating_sub(self.tasks.len())
    }

    /// Rings `shard` when tasks have been taken.
    pub(crate) fn wait_for_room(&self, shard: &Bell) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|bell| bell.is_same(shard)) {
            waiting.push(shard.clone());
        }
    }

    /// Rings for those who were refused.
    pub(crate) fn announce_room(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.iter().for_each(Bell::ring);
    }
}

/// All task queues of a runtime, and what each activity's code is.
#[derive(Debug)]
pub(crate) struct TaskQueues {
    queues: BTreeMap<&'static str, Arc<TaskQueue>>,
    activities: BTreeMap<&'static str, ActivityImplementation>,
}

impl TaskQueues {
    pub(crate) fn new(activities: BTreeMap<&'static str, ActivityImplementation>, len_max: usize) -> Self {
        let mut queues = BTreeMap::new();
        let names = activities.values().map(|activity| activity.queue);
        for name in names.chain([millrun_workflow::DEFAULT_QUEUE]) {
            queues
                .entry(name)
                .or_insert_with(|| Arc::new(TaskQueue::new(name, len_max)));
        }
        Self { queues, activities }
    }

    pub(crate) fn queue(&self, name: &str) -> Option<&Arc<TaskQueue>> {
        self.queues.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<TaskQueue>> {
        self.queues.values()
    }

    pub(crate) fn activity(&self, name: &str) -> Option<&ActivityImplementation> {
        self.activities.get(name)
    }
}
