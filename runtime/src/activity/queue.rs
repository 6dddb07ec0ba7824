//! Task queues: a bounded window in memory on the durable backlog of activities.
//!
//! ```text
//!   shards ──► topic ──► inbox: [ tasks │ tasks │ … ] ──► hand: task, task … ──► pool
//!                  several to an envelope                  └── put down: kept for the next
//! ```
//!
//! Tasks that do not fit the window stay in the histories of their runs. A refused shard registers its bell, and is rung when
//! there is room. Tasks are counted singly, however many are in one envelope.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{Broker, Envelope, Envelopes, Inbox, Overflow, SubscriptionConfig, TopicHandle};
use millrun_core::{Bell, Timestamp};
use millrun_workflow::{ActivityScheduled, Name};

use super::{ActivityImplementation, ActivityTask};
use crate::OpenError;
use crate::looking::durations::{DurationTallies, DurationTally};

/// How many tasks travel in one envelope at most.
const TASKS_LEN_MAX: usize = 64;

/// At least one task, in the order in which they were decided.
pub(crate) type ActivityTasks = Vec<ActivityTask>;

/// One task queue: a topic, and the inbox that its pool works through.
#[derive(Debug)]
pub(crate) struct TaskQueue {
    pub(crate) name: Name,
    inbox: Inbox<Envelope<ActivityTasks>>,
    topic: TopicHandle<ActivityTasks>,
    len_max: usize,
    /// The number of tasks: in the inbox, put down, and in a hand that has not been put down.
    len: AtomicUsize,
    /// The number of all tasks ever offered.
    offered: AtomicU64,
    /// Tasks of a hand that was put down: they come before those in the inbox.
    put_down: Mutex<PutDown>,
    durations: Arc<DurationTallies>,
    /// How long tasks have waited here; set by the first hand that records it.
    waits: OnceLock<Arc<DurationTally>>,
    waiting: Mutex<Vec<Bell>>,
}

/// The rest of one envelope.
#[derive(Debug, Default)]
struct PutDown {
    tasks: VecDeque<ActivityTask>,
    offered_at: Timestamp,
}

impl TaskQueue {
    pub(super) fn new(
        broker: &Broker,
        name: Name,
        len_max: usize,
        durations: &Arc<DurationTallies>,
    ) -> Result<Self, OpenError> {
        let invalid = |problem: String| OpenError::QueueName {
            name: name.to_string(),
            problem,
        };
        let topic_name = format!("millrun.tasks.{name}");
        let config = SubscriptionConfig {
            name: format!("pool {name}"),
            inbox: MailboxConfig {
                capacity: len_max,
                // Only the window limits the amount.
                bytes_max: usize::MAX,
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
            len: AtomicUsize::new(0),
            offered: AtomicU64::new(0),
            put_down: Mutex::default(),
            durations: Arc::clone(durations),
            waits: OnceLock::new(),
            waiting: Mutex::default(),
        })
    }

    /// The bell of the pool that serves the queue.
    pub(crate) fn bell(&self) -> &Bell {
        self.inbox.bell()
    }

    /// Takes as many tasks as there is room for, the first ones. The others stay in the histories of their runs.
    pub(crate) fn offer(&self, tasks: &mut Vec<ActivityTask>) {
        let wanted = tasks.len();
        let taken = |len: usize| Some(len + wanted.min(self.len_max.saturating_sub(len)));
        let (Ok(before) | Err(before)) = self.len.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        let mut taken = tasks.drain(..wanted.min(self.len_max.saturating_sub(before)));
        // Counted before they enter the inbox: so whatever is in the inbox has been counted.
        self.offered.fetch_add(taken.len() as u64, Ordering::Release);
        while taken.len() > 0 {
            let mut sent = Vec::with_capacity(taken.len().min(TASKS_LEN_MAX));
            sent.extend(taken.by_ref().take(TASKS_LEN_MAX));
            let sent_len = sent.len();
            // The inbox is as large as the window, so it has room. Another subscriber may have none; and if the inbox is
            // closed, the runtime stops, and the histories know what is due.
            if let Err(error) = self.topic.try_publish(sent)
                && error.into_refused().by().contains(&self.inbox.id())
            {
                self.offered.fetch_sub(sent_len as u64, Ordering::Relaxed);
                self.len.fetch_sub(sent_len, Ordering::Relaxed);
            }
        }
    }

    /// The number of tasks offered, and a lower bound for the number of the first of these that have been taken.
    pub(super) fn offered_and_taken(&self) -> (u64, u64) {
        // In this order, so that tasks that are offered meanwhile do not count as taken.
        let offered = self.offered.load(Ordering::Acquire);
        let left = self.len.load(Ordering::Acquire) as u64;
        (offered, offered.saturating_sub(left))
    }

    /// How many tasks wait here, and how many may; further ones wait in the histories of their runs.
    pub(crate) fn len_and_max(&self) -> (usize, usize) {
        (self.len.load(Ordering::Relaxed), self.len_max)
    }

    /// About how many tasks would fit now.
    pub(crate) fn room(&self) -> usize {
        self.len_max.saturating_sub(self.len.load(Ordering::Relaxed))
    }

    /// Takes the waiting tasks in hand, to be begun one by one at the time `now`.
    pub(super) fn take(&self, now: Timestamp) -> Hand<'_> {
        let PutDown { tasks, offered_at } = std::mem::take(&mut *self.lock_put_down());
        Hand {
            queue: self,
            tasks,
            offered_at,
            now,
            waits: self.durations.is_on().then(|| self.waits()),
            inbox: self.inbox.take(),
            begun_len: 0,
        }
    }

    #[cold]
    fn waits(&self) -> &DurationTally {
        self.waits.get_or_init(|| {
            let waits = &self.durations.waits;
            waits
                .row(&self.name)
                .unwrap_or_else(|| Arc::clone(waits.others()))
        })
    }

    fn lock_put_down(&self) -> MutexGuard<'_, PutDown> {
        self.put_down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers `shard` to be rung when there is room. `true` if there is room by now, which may have been announced before.
    pub(crate) fn wait_for_room(&self, shard: &Bell) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|bell| bell.is_same(shard)) {
            waiting.push(shard.clone());
        }
        drop(waiting);
        self.room() > 0
    }

    /// Rings the shards that were refused.
    fn announce_room(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.iter().for_each(Bell::ring);
    }
}

/// The tasks that a pool has taken out of its queue. When it is dropped, it announces room, puts down what was not begun, and
/// rings if there is any.
pub(super) struct Hand<'a> {
    queue: &'a TaskQueue,
    tasks: VecDeque<ActivityTask>,
    /// When these tasks were offered: they came in one envelope.
    offered_at: Timestamp,
    now: Timestamp,
    /// Records how long each task has waited; `None` until durations are recorded.
    waits: Option<&'a DurationTally>,
    inbox: Envelopes<Envelope<ActivityTasks>>,
    begun_len: usize,
}

impl Iterator for Hand<'_> {
    type Item = ActivityTask;

    /// The next task, which then belongs to the caller.
    fn next(&mut self) -> Option<ActivityTask> {
        while self.tasks.is_empty() {
            let envelope = self.inbox.next()?;
            self.offered_at = envelope.time();
            // Other subscribers of the topic share the envelope, so it may have to be cloned.
            self.tasks = envelope
                .into_payload()
                .unwrap_or_else(|envelope| envelope.payload().clone())
                .into();
        }
        self.begun_len += 1;
        if let Some(waits) = self.waits {
            waits.record(self.now.saturating_since(self.offered_at));
        }
        self.tasks.pop_front()
    }
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        self.queue.len.fetch_sub(self.begun_len, Ordering::Release);
        if self.begun_len > 0 {
            self.queue.announce_room();
        }
        if !self.tasks.is_empty() {
            let mut put_down = self.queue.lock_put_down();
            put_down.tasks.extend(self.tasks.drain(..));
            put_down.offered_at = self.offered_at;
            drop(put_down);
            self.queue.bell().ring();
        }
    }
}

/// All task queues of a runtime, and the code of each activity.
#[derive(Debug)]
pub(crate) struct TaskQueues {
    /// Ordered by name.
    queues: Vec<Arc<TaskQueue>>,
    /// Ordered by name, each with the number of its queue.
    activities: Vec<(ActivityImplementation, usize)>,
}

/// The number of the activity that was last looked up. It is tried first: calls of one activity often follow each other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastActivity(usize);

impl TaskQueues {
    pub(crate) fn new(
        broker: &Broker,
        activities: BTreeMap<&'static str, ActivityImplementation>,
        named: BTreeSet<String>,
        len_max: usize,
        durations: &Arc<DurationTallies>,
    ) -> Result<Self, OpenError> {
        let names = activities.values().map(|activity| activity.queue);
        let names = names.chain([millrun_workflow::DEFAULT_QUEUE]).map(Name::Borrowed);
        let names: BTreeSet<_> = names.chain(named.into_iter().map(Name::Owned)).collect();
        let activities = activities.into_values().map(|activity| {
            let number = names.iter().position(|name| *name == activity.queue);
            (activity, number.expect("the queue of each activity is listed"))
        });
        let activities = activities.collect();
        let queues = names
            .into_iter()
            .map(|name| Ok(Arc::new(TaskQueue::new(broker, name, len_max, durations)?)))
            .collect::<Result<_, OpenError>>()?;
        Ok(Self { queues, activities })
    }

    /// All queues, indexed by their numbers.
    pub(crate) fn all(&self) -> &[Arc<TaskQueue>] {
        &self.queues
    }

    /// The name of each activity, in order, and that of its own queue.
    pub(crate) fn activities(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.activities
            .iter()
            .map(|(activity, _)| (activity.name, activity.queue))
    }

    /// The number of a call's queue, if the call can be performed here: its activity is registered, and the queue has a pool.
    pub(crate) fn number_for(&self, scheduled: &ActivityScheduled, last: &mut LastActivity) -> Option<usize> {
        let (_, activity, number) = self.find(&scheduled.activity, last)?;
        if is_same(activity.queue, &scheduled.queue) {
            return Some(number);
        }
        self.number_of(&scheduled.queue)
    }

    /// The number of the queue of this name.
    pub(crate) fn number_of(&self, queue: &str) -> Option<usize> {
        self.queues.binary_search_by(|one| (*one.name).cmp(queue)).ok()
    }

    /// An activity that is registered, and its number, below [`activities_len`](Self::activities_len).
    pub(super) fn activity(
        &self,
        name: &str,
        last: &mut LastActivity,
    ) -> Option<(usize, &ActivityImplementation)> {
        let (place, activity, _) = self.find(name, last)?;
        Some((place, activity))
    }

    pub(super) fn activities_len(&self) -> usize {
        self.activities.len()
    }

    #[inline]
    fn find(&self, name: &str, last: &mut LastActivity) -> Option<(usize, &ActivityImplementation, usize)> {
        match self.activities.get(last.0) {
            Some((activity, queue)) if is_same(activity.name, name) => Some((last.0, activity, *queue)),
            _ => {
                let found = self.activities.binary_search_by(|(one, _)| one.name.cmp(name));
                last.0 = found.ok()?;
                let (activity, queue) = &self.activities[last.0];
                Some((last.0, activity, *queue))
            }
        }
    }
}

/// Whether two names are equal. Most equal names are the same static string.
#[inline]
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && (one.as_ptr() == other.as_ptr() || one == other)
}

#[cfg(test)]
mod tests {
    use millrun_broker::BrokerConfig;

    use super::super::samples;
    use super::*;
    use crate::host::{HostConfig, TokioHost};

    fn task(number: u32) -> ActivityTask {
        samples::task(number, number)
    }

    fn number_of(task: &ActivityTask) -> u32 {
        task.scheduled.operation.get()
    }

    fn numbers(tasks: &[ActivityTask]) -> Vec<u32> {
        tasks.iter().map(number_of).collect()
    }

    async fn with_queue(len_max: usize, test: impl FnOnce(&TaskQueue)) {
        let host = TokioHost::spawn(HostConfig::default()).await.unwrap();
        let broker = Broker::new(BrokerConfig::default(), host.host());
        test(&TaskQueue::new(&broker, "default".into(), len_max, &samples::durations()).unwrap());
    }

    #[tokio::test]
    async fn a_window_counts_tasks_one_by_one_and_gives_the_last_ones_back() {
        with_queue(200, |queue| {
            let mut tasks: Vec<_> = (0..150).map(task).collect();
            queue.offer(&mut tasks);
            assert_eq!((tasks.len(), queue.room()), (0, 50));
            tasks.extend((150..210).map(task));
            queue.offer(&mut tasks);
            assert_eq!(numbers(&tasks), (200..210).collect::<Vec<_>>());
            assert_eq!(queue.room(), 0);
            let begun: Vec<_> = queue.take(Timestamp::EPOCH).take(30).collect();
            assert_eq!(numbers(&begun), (0..30).collect::<Vec<_>>());
            assert_eq!(queue.room(), 30);
            queue.offer(&mut tasks);
            assert_eq!((tasks.len(), queue.room()), (0, 20));
        })
        .await;
    }

    #[tokio::test]
    async fn who_was_refused_is_rung_for_whenever_there_is_room() {
        with_queue(100, |queue| {
            let shard = Bell::default();
            let mut tasks: Vec<_> = (0..130).map(task).collect();
            queue.offer(&mut tasks);
            assert!(!queue.wait_for_room(&shard), "it is full");
            assert_eq!(queue.take(Timestamp::EPOCH).take(10).count(), 10);
            assert!(shard.answer());
            // Room that was announced before anybody waited for it.
            assert!(queue.wait_for_room(&shard));
        })
        .await;
    }

    #[tokio::test]
    async fn what_is_put_down_is_taken_up_first_and_rings() {
        with_queue(200, |queue| {
            let mut tasks: Vec<_> = (0..100).map(task).collect();
            let mut taken = Vec::new();
            for (round, len) in (1..).zip([1, 62, 1, 5, 0, 200]) {
                queue.offer(&mut tasks);
                queue.bell().answer();
                let mut hand = queue.take(Timestamp::EPOCH);
                taken.extend(hand.by_ref().take(len));
                drop(hand);
                assert_eq!(queue.bell().answer(), taken.len() < 150);
                // These come after what was put down.
                tasks.extend((0..10).map(|number| task(90 + 10 * round + number)));
            }
            assert_eq!(numbers(&taken), (0..150).collect::<Vec<_>>());
            assert_eq!(queue.room(), 200);
        })
        .await;
    }

    #[tokio::test]
    async fn tasks_are_taken_also_if_somebody_who_listens_has_no_room() {
        let host = TokioHost::spawn(HostConfig::default()).await.unwrap();
        let broker = Broker::new(BrokerConfig::default(), host.host());
        let queue = TaskQueue::new(&broker, "default".into(), 200, &samples::durations()).unwrap();
        let small = SubscriptionConfig {
            inbox: MailboxConfig {
                capacity: 1,
                ..MailboxConfig::default()
            },
            overflow: Overflow::Fail,
            ..SubscriptionConfig::default()
        };
        let listener: Inbox<Envelope<ActivityTasks>> =
            broker.subscribe("millrun.tasks.default", small).unwrap();
        let mut tasks: Vec<_> = (0..150).map(task).collect();
        queue.offer(&mut tasks);
        assert_eq!((tasks.len(), listener.len()), (0, 1));
        let begun: Vec<_> = queue.take(Timestamp::EPOCH).collect();
        assert_eq!(numbers(&begun), (0..150).collect::<Vec<_>>());
        assert_eq!(queue.room(), 200);
    }
}
