//! Calls that were cancelled while their tasks wait in the queue, so that these do not begin.
//!
//! ```text
//!   tasks, in the order in which they were offered:   taken │ in the window │ to come
//!   a cancelled call: its task, if there is one, ───────────────► stands before here
//! ```
//!
//! A call is cancelled once, after its last task was offered. So once all tasks that had been offered by then are taken, its
//! own task was taken, or never existed, and the call is forgotten.

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use super::attempt_list::Key;

/// How many cancelled calls with queued tasks a pool remembers.
const CANCELLED_LEN_MAX: usize = 65_536;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct CancelledCalls {
    /// For each call, how many tasks had been offered when it was cancelled.
    offered: HashMap<Key, u64, FxBuildHasher>,
    /// The same, in the order of the cancels; some may have been removed from the table since.
    order: VecDeque<(u64, Key)>,
    len_max: usize,
}

impl Default for CancelledCalls {
    fn default() -> Self {
        Self::with_len_max(CANCELLED_LEN_MAX)
    }
}

impl CancelledCalls {
    fn with_len_max(len_max: usize) -> Self {
        Self {
            offered: HashMap::default(),
            order: VecDeque::new(),
            len_max,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Remembers a call that is cancelled when `offered` tasks have been offered, unless all of these have been taken. If
    /// there are too many, the earliest cancel is forgotten: if that call's task still comes, its attempt runs in vain.
    pub(super) fn insert(&mut self, key: Key, (offered, taken): (u64, u64)) {
        self.forget_taken(taken);
        if taken >= offered || self.offered.contains_key(&key) {
            return;
        }
        if self.order.len() >= self.len_max {
            self.forget_first();
        }
        self.offered.insert(key, offered);
        self.order.push_back((offered, key));
    }

    /// Whether the task that begins belongs to a cancelled call. `taken` tasks had been taken before those in the pool's
    /// hand.
    pub(super) fn take(&mut self, key: Key, taken: u64) -> bool {
        let is_cancelled = self.offered.remove(&key).is_some();
        self.forget_taken(taken);
        is_cancelled
    }

    /// Forgets the calls whose tasks must have been taken.
    fn forget_taken(&mut self, taken: u64) {
        let is_over = |of: &Self, &(offered, key): &(u64, Key)| {
            offered <= taken || of.offered.get(&key) != Some(&offered)
        };
        while self.order.front().is_some_and(|first| is_over(self, first)) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((offered, key)) = self.order.pop_front()
            && self.offered.get(&key) == Some(&offered)
        {
            self.offered.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use millrun_broker::{Broker, BrokerConfig};
    use millrun_core::{InstanceId, RunId, Timestamp};
    use millrun_workflow::OperationId;
    use tokio::sync::Semaphore;

    use super::super::samples::{durations, owned, task};
    use super::super::{PoolState, TaskQueue};
    use super::*;
    use crate::cluster::shared::LeaseGate;
    use crate::host::{HostConfig, TokioHost};
    use crate::mail::ShardDoors;

    fn key(number: u32) -> Key {
        let id = InstanceId::new("order-1").unwrap();
        let run = RunId::new(id.partition(), Timestamp::EPOCH, 7);
        (run, OperationId::new(number))
    }

    /// A simple model of a queue: its tasks, and which of them were cancelled there.
    #[derive(Default)]
    struct Model {
        queue: VecDeque<u32>,
        cancelled: BTreeSet<u32>,
        offered: u64,
        taken: u64,
    }

    #[test]
    fn exactly_the_tasks_that_were_cancelled_in_the_queue_are_not_begun() {
        for seed in 1..=50_u64 {
            let mut state = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            let mut calls = CancelledCalls::default();
            let mut model = Model::default();
            for number in 1..5_000_u32 {
                match random(4) {
                    0 | 1 => {
                        model.queue.push_back(number);
                        model.offered += 1;
                    }
                    2 => {
                        // A hand of tasks: they count as taken when it is put down.
                        let len = random(6);
                        for _ in 0..len {
                            let Some(next) = model.queue.pop_front() else {
                                break;
                            };
                            let is_cancelled = model.cancelled.remove(&next);
                            assert_eq!(calls.take(key(next), model.taken), is_cancelled, "seed {seed}");
                        }
                        model.taken = model.offered - model.queue.len() as u64;
                    }
                    _ => {
                        // Often a call without a task in the queue, or one that was cancelled before.
                        let back = u32::try_from(random(60)).unwrap();
                        let number = number.saturating_sub(back);
                        if model.queue.contains(&number) {
                            model.cancelled.insert(number);
                        }
                        calls.insert(key(number), (model.offered, model.taken));
                    }
                }
                if model.queue.is_empty() {
                    calls.forget_taken(model.taken);
                    assert!(calls.is_empty() && calls.offered.is_empty(), "seed {seed}");
                }
                assert!(calls.offered.len() <= calls.order.len());
            }
        }
    }

    /// Regression: at the bound the pool forgot everything that it remembered: also a call whose task still waited in the
    /// queue, because of many cancels without any task there.
    #[test]
    fn at_the_bound_the_one_that_was_cancelled_first_is_forgotten_and_no_other() {
        let mut calls = CancelledCalls::with_len_max(100);
        for number in 0..150 {
            calls.insert(key(number), (1_000, 0));
        }
        assert_eq!(calls.order.len(), 100);
        for number in 0..150 {
            assert_eq!(calls.take(key(number), 0), number >= 50, "{number}");
        }
        assert!(calls.is_empty());
    }

    /// The same for a whole pool and its queue, whose tasks are taken, put down and begun.
    #[tokio::test]
    async fn a_pool_begins_what_was_not_cancelled_and_remembers_nothing_when_its_queue_is_empty() {
        let host = TokioHost::spawn(HostConfig::default()).await.unwrap();
        let broker = Broker::new(BrokerConfig::default(), host.host());
        let doors = ShardDoors::new(&broker, 1, 1).unwrap();
        let queue = Arc::new(TaskQueue::new(&broker, "default".into(), 300, &durations()).unwrap());
        let threads = Arc::new(Semaphore::new(1));
        let pool = PoolState::new(
            Arc::clone(&queue),
            host.host(),
            doors,
            1_024,
            threads,
            owned(),
            LeaseGate::open(),
        );
        let mut state = 11_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        // The queue in order, and the cancelled tasks.
        let (mut waiting, mut cancelled) = (VecDeque::new(), BTreeSet::new());
        let mut next = 0;
        for _ in 0..2_000 {
            match random(3) {
                0 => {
                    let len = u32::try_from(random(150)).unwrap();
                    let mut tasks: Vec<_> = (next..next + len).map(|number| task(number, 0)).collect();
                    next += len;
                    queue.offer(&mut tasks);
                    waiting.extend(next - len..next - u32::try_from(tasks.len()).unwrap());
                }
                1 => {
                    let len = usize::try_from(random(120)).unwrap();
                    for task in queue.take(Timestamp::EPOCH).take(len) {
                        let number = task.scheduled.operation.get();
                        assert_eq!(waiting.pop_front(), Some(number));
                        let begins = pool.begin(&task, Timestamp::EPOCH);
                        assert_eq!(begins, !cancelled.contains(&number), "{number}");
                        if begins && random(4) > 0 {
                            let mut page = None;
                            assert!(pool.end_unsent(task.key(), 1, &mut page).is_some());
                            pool.sent_reports(page.unwrap(), 1);
                        }
                    }
                }
                _ => {
                    // Running, ended, in the queue, or refused by it.
                    for _ in 0..random(100) {
                        let back = u32::try_from(random(600)).unwrap();
                        let number = next.saturating_sub(back);
                        if cancelled.insert(number) {
                            pool.cancel(task(number, 0).key());
                        }
                    }
                    // The number may be offered next.
                    cancelled.remove(&next);
                    next += 1;
                }
            }
        }
        for task in queue.take(Timestamp::EPOCH) {
            let number = task.scheduled.operation.get();
            let begins = pool.begin(&task, Timestamp::EPOCH);
            assert_eq!(begins, !cancelled.contains(&number), "{number}");
        }
        pool.cancel(task(next, 0).key());
        assert_eq!(pool.cancelled_len(), 0, "its queue is empty");
    }
}
