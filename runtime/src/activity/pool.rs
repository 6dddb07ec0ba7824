//! A pool runs the activities of one task queue: each as a task of its own, as many at once as
//! the limit allows, each with its deadlines.

use std::sync::Arc;

use millrun_broker::Envelope;
use millrun_core::{Host, Next, Part, Timestamp};

use super::{ActivityContext, ActivityReport, ActivityTask, PoolState, TaskQueue, TaskQueues, attempt};
use crate::shard::ShardDoors;

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
        if !self.state.begin(task, now) {
            return;
        }
        let (key, number) = ((task.run, task.scheduled.operation), task.attempt);
        let (state, doors, bell) = (
            Arc::clone(&self.state),
            self.doors.clone(),
            self.queue.inbox.bell().clone(),
        );
        let (running_max, payload_bytes_max) = (self.running_max, self.payload_bytes_max);
        let work = async move {
            let cx = ActivityContext::new(envelope, Arc::clone(&state));
            let mut outcome = attempt::run(implementation, cx, payload_bytes_max).await;
            let (waited_for, was_full) = state.end(key, number, running_max);
            if let Some(last_words) = waited_for {
                if let Err(failure) = &mut outcome {
                    failure.details = last_words;
                }
                let (run, operation) = key;
                let report = ActivityReport {
                    run,
                    operation,
                    attempt: number,
                    outcome,
                };
                doors.report(report).await;
            }
            if was_full {
                bell.ring();
            }
        };
        let handle = self.host.spawn("activity", Box::pin(work));
        self.state.keep_handle(key, number, handle);
    }

    fn next_deadline(&self) -> Next {
        self.state.next_deadline().map_or(Next::Idle, Next::At)
    }

    /// Reports attempts whose time is up, and stops them.
    fn expire(&self, now: Timestamp) {
        while let Some(report) = self.state.take_expired(now) {
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
        if room == 0 || self.state.is_stopping() {
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
