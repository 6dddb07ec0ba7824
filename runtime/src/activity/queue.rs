//! Task queues: a bounded window, in memory, on the durable backlog of activities.
//!
//! What does not fit the window stays in the histories of its runs. The shard that was refused
//! leaves its bell, and is rung when there is room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{Broker, Envelope, Inbox, Overflow, SubscriptionConfig, Topic};
use millrun_core::{Bell, RunId};
use millrun_workflow::{ActivityScheduled, OperationId};

use super::{ActivityImplementation, ActivityTask};
use crate::OpenError;

/// One task queue: a topic, and the inbox that its pool works through.
#[derive(Debug)]
pub(crate) struct TaskQueue {
    pub(crate) name: &'static str,
    pub(crate) inbox: Inbox<Envelope<ActivityTask>>,
    topic: Topic<ActivityTask>,
    len_max: usize,
    waiting: Mutex<Vec<Bell>>,
}

impl TaskQueue {
    fn new(broker: &Broker, name: &'static str, len_max: usize) -> Result<Self, OpenError> {
        let invalid = |problem: String| OpenError::QueueName { name, problem };
        let topic_name = format!("millrun.tasks.{name}");
        let config = SubscriptionConfig {
            name: format!("pool {name}"),
            inbox: MailboxConfig {
                capacity: len_max,
                ..MailboxConfig::default()
            },
            overflow: Overflow::Fail,
            ..SubscriptionConfig::default()
        };
        let inbox = broker
            .subscribe(&topic_name, config)
            .map_err(|error| invalid(error.to_string()))?;
        let topic = broker
            .topic(&topic_name)
            .map_err(|error| invalid(error.to_string()))?;
        Ok(Self {
            name,
            inbox,
            topic,
            len_max,
            waiting: Mutex::new(Vec::new()),
        })
    }

    /// Puts a task in. If there is no room, the task stays in its run's history, and this names it.
    pub(crate) fn offer(&self, task: ActivityTask) -> Result<(), (RunId, OperationId)> {
        match self.topic.try_publish(task) {
            Ok(_) => Ok(()),
            Err(error) => {
                let refused = error.into_refused();
                let task = refused.envelope().payload();
                Err((task.run, task.scheduled.operation))
            }
        }
    }

    /// How many tasks would fit now, about.
    pub(crate) fn room(&self) -> usize {
        self.len_max.saturating_sub(self.inbox.len())
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
    pub(crate) fn new(
        broker: &Broker,
        activities: BTreeMap<&'static str, ActivityImplementation>,
        len_max: usize,
    ) -> Result<Self, OpenError> {
        let mut queues = BTreeMap::new();
        let names = activities.values().map(|activity| activity.queue);
        for name in names.chain([millrun_workflow::DEFAULT_QUEUE]) {
            if !queues.contains_key(name) {
                queues.insert(name, Arc::new(TaskQueue::new(broker, name, len_max)?));
            }
        }
        Ok(Self { queues, activities })
    }

    pub(crate) fn queue(&self, name: &str) -> Option<&Arc<TaskQueue>> {
        self.queues.get(name)
    }

    /// Whether a call can be performed here: its activity is registered, and one whose queue is the
    /// call's.
    pub(crate) fn takes(&self, scheduled: &ActivityScheduled) -> bool {
        self.activities.contains_key(&*scheduled.activity) && self.queues.contains_key(&*scheduled.queue)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<TaskQueue>> {
        self.queues.values()
    }

    pub(crate) fn activity(&self, name: &str) -> Option<&ActivityImplementation> {
        self.activities.get(name)
    }
}
