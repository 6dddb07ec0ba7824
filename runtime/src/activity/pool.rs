//! A pool runs the activities of one task queue: each as a task of its own, as many at once as
//! the limit allows, each with its deadline.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrun_broker::Envelope;
use millrun_core::{Bell, Host, Next, Part, RunId, TaskHandle, Timestamp};
use millrun_workflow::{ActivityFailure, OperationId, TimeoutKind};
use rustc_hash::FxBuildHasher;

use super::{ActivityReport, ActivityTask, TaskQueue, TaskQueues, attempt};
use crate::shard::ShardDoors;

/// Names an attempt under way: a step has one at a time.
type Key = (RunId, OperationId);

/// How many steps cancelled in the queue a pool remembers.
const CANCELLED_LEN_MAX: usize = 65_536;

/// What a pool knows of its attempts. It outlives the pool's part, so that a restarted pool knows
/// what is still running.
#[derive(Debug)]
pub(crate) struct PoolState {
    /// The pool's bell: an attempt that is cancelled makes room.
    bell: Bell,
    running: Mutex<Running>,
    started: AtomicUsize,
    is_stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct Running {
    attempts: HashMap<Key, Attempt, FxBuildHasher>,
    /// Steps cancelled while they waited in the queue.
    cancelled: HashSet<Key, FxBuildHasher>,
    deadlines: BTreeSet<(Timestamp, Key)>,
}

#[derive(Debug)]
struct Attempt {
    number: u32,
    deadline: Timestamp,
    handle: Option<TaskHandle>,
}

impl PoolState {
    pub(crate) fn new(bell: Bell) -> Self {
        Self {
            bell,
            running: Mutex::default(),
            started: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many attempts are under way.
    pub(crate) fn running_len(&self) -> usize {
        self.lock().attempts.len()
    }

    /// How many attempts have been started since the runtime was.
    pub(crate) fn started_len(&self) -> usize {
        self.started.load(Ordering::Relaxed)
    }

    /// Starts nothing more.
    pub(crate) fn stop_starting(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Stops an attempt whose report nobody waits for, or keeps it from being started.
    pub(crate) fn cancel(&self, key: Key) {
        let mut running = self.lock();
        match running.remove(key, None) {
            Some(attempt) => {
                drop(running);
                if let Some(handle) = attempt.handle {
                    handle.abort();
                }
                self.bell.ring();
            }
            None => {
                // Forgetting them costs no more than an attempt that nobody waits for.
                if running.cancelled.len() >= CANCELLED_LEN_MAX {
                    running.cancelled.clear();
                }
                running.cancelled.insert(key);
            }
        }
    }
}

impl Running {
    /// Takes an attempt off the list, if it is still this one.
    fn remove(&mut self, key: Key, number: Option<u32>) -> Option<Attempt> {
        let current = self.attempts.get(&key)?;
        if number.is_some_and(|number| number != current.number) {
            return None;
        }
        let attempt = self.attempts.remove(&key)?;
        self.deadlines.remove(&(attempt.deadline, key));
        Some(attempt)
    }
}

/// The part.
#[derive(Debug)]
pub(crate) struct Pool {
    queue: Arc<TaskQueue>,
    queues: Arc<TaskQueues>,
    state: Arc<PoolState>,
    doors: ShardDoors,
    host: Arc<dyn Host>,
    running_max: usize,
    payload_bytes_max: usize,
}

impl Pool {
    pub(crate) fn new(
        queue: Arc<TaskQueue>,
        queues: Arc<TaskQueues>,
        state: Arc<PoolState>,
        doors: ShardDoors,
        host: Arc<dyn Host>,
        running_max: usize,
        payload_bytes_max: usize,
    ) -> Self {
        Self {
            queue,
            queues,
            state,
            doors,
            host,
            running_max,
            payload_bytes_max,
        }
    }

    fn start(&self, envelope: Arc<Envelope<ActivityTask>>, now: Timestamp) {
        let task = envelope.payload();
        let Some(implementation) = self.queues.activity(&task.scheduled.activity).cloned() else {
            // The shard sends only what is registered; what is not waits in its history.
            return;
        };
        let (key, number) = ((task.run, task.scheduled.operation), task.attempt);
        let deadline = now + task.scheduled.start_to_close;
        {
            let mut running = self.state.lock();
            if running.cancelled.remove(&key) {
                return;
            }
            if let Some(older) = running.remove(key, None)
                && let Some(handle) = older.handle
            {
                handle.abort();
            }
            running.attempts.insert(
                key,
                Attempt {
                    number,
                    deadline,
                    handle: None,
                },
            );
            running.deadlines.insert((deadline, key));
        }
        self.state.started.fetch_add(1, Ordering::Relaxed);
        let (state, doors, bell) = (
            Arc::clone(&self.state),
            self.doors.clone(),
            self.queue.inbox.bell().clone(),
        );
        let (running_max, payload_bytes_max) = (self.running_max, self.payload_bytes_max);
        let work = async move {
            let report = attempt::run(implementation, envelope, payload_bytes_max).await;
            let (was_listed, was_full) = {
                let mut running = state.lock();
                let was_full = running.attempts.len() >= running_max;
                (running.remove(key, Some(number)).is_some(), was_full)
            };
            if was_listed {
                doors.report(report).await;
            }
            if was_full {
                bell.ring();
            }
        };
        let handle = self.host.spawn("activity", Box::pin(work));
        if let Some(attempt) = self.state.lock().attempts.get_mut(&key)
            && attempt.number == number
        {
            attempt.handle = Some(handle);
        }
    }

    fn next_deadline(&self) -> Next {
        self.state
            .lock()
            .deadlines
            .first()
            .map_or(Next::Idle, |(deadline, _)| Next::At(*deadline))
    }

    /// Reports attempts whose time is up, and stops them.
    fn expire(&self, now: Timestamp) {
        loop {
            let expired = {
                let mut running = self.state.lock();
                let first = running
                    .deadlines
                    .first()
                    .filter(|(deadline, _)| *deadline <= now)
                    .copied();
                first.and_then(|(_, key)| running.remove(key, None).map(|attempt| (key, attempt)))
            };
            let Some((key, attempt)) = expired else {
                return;
            };
            if let Some(handle) = attempt.handle {
                handle.abort();
            }
            let failure = ActivityFailure::TimedOut(TimeoutKind::StartToClose);
            let (run, operation) = key;
            let outcome = Err((failure, true));
            let report = ActivityReport {
                run,
                operation,
                attempt: attempt.number,
                outcome,
            };
            let doors = self.doors.clone();
            // The shard may have no room; a pool does not wait for it.
            drop(
                self.host
                    .spawn("timeout", Box::pin(async move { doors.report(report).await })),
            );
        }
    }
}

impl Part for Pool {
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next {
        self.expire(now);
        let room = self
            .running_max
            .saturating_sub(self.state.running_len())
            .min(budget);
        // A hand that is put down unfinished rings again, so nothing is taken up without room.
        if room == 0 || self.state.is_stopping.load(Ordering::Acquire) {
            return self.next_deadline();
        }
        let mut hand = self.queue.inbox.take();
        for task in hand.by_ref().take(room) {
            self.start(task, now);
        }
        drop(hand);
        self.queue.announce_room();
        self.next_deadline()
    }
}
