//! How activities get from a shard to their task queues: in envelopes of several tasks, in the order in which they were
//! decided. Tasks for which a queue has no room become backlog, which takes 32 bytes for each; the call itself stands in its
//! run's history.
//!
//! ```text
//!   effect ──► staged, by queue ── room ───────────────► queue
//!                   └── none, or others wait ─► backlog ─► queue, as room appears
//! ```
//!
//! Invariants: tasks of one queue reach it in the order of their decisions, except that a task whose run had to be read goes
//! first. A cancel goes only to the pool of its call's queue, after all tasks of the call.

use std::collections::{BTreeSet, VecDeque};

use millrun_core::{Bell, RunId, Timestamp};
use millrun_workflow::{DEFAULT_QUEUE, Name, OperationId};
use rustc_hash::FxHashSet;

use crate::activity::{ActivityTask, LastActivity, PutAside, TaskQueues};
use crate::ownership::partition_set::PartitionSet;
use crate::shard::Shard;
use crate::shard::commands::Deed;
use crate::shard::partitions::owned::of_no_run;
use crate::shard::runs::entry::{Errand, Residence};
use crate::shard::sweeps::effects::CancelledCall;
use crate::shared::ShardShared;

/// What is on its way from a shard to the task queues.
#[derive(Debug)]
pub(in crate::shard) struct Dispatch {
    /// By the number of the queue.
    outlets: Vec<Outlet>,
    last_activity: LastActivity,
    /// Cancelled calls whose pools have not been told yet.
    cancelled: Vec<CancelledCall>,
    /// Activities and queues for which a warning was logged that calls wait for them.
    warned: BTreeSet<(Name, Name)>,
    /// Whether a failed predecessor may have left tasks in the queues.
    is_successor: bool,
}

/// What is on its way from a shard to one task queue.
#[derive(Debug, Default)]
struct Outlet {
    /// To be offered to the queue once the effects of all durable sweeps have been performed.
    staged: Vec<ActivityTask>,
    /// Tasks for which the queue's window had no room.
    backlog: VecDeque<(RunId, OperationId)>,
}

impl Dispatch {
    pub(in crate::shard) fn new(queues: &TaskQueues) -> Self {
        Self {
            outlets: queues.all().iter().map(|_| Outlet::default()).collect(),
            last_activity: LastActivity::default(),
            cancelled: Vec::new(),
            warned: BTreeSet::new(),
            is_successor: false,
        }
    }

    /// This shard replaces a failed one, which may have left tasks in the queues.
    pub(in crate::shard) fn succeed(&mut self) {
        self.is_successor = true;
    }

    /// Notes a cancelled call. Its pool is [told](Self::tell_cancelled) after the tasks that are on their way.
    #[inline]
    pub(in crate::shard) fn cancel(&mut self, call: CancelledCall) {
        self.cancelled.push(call);
    }

    /// Drops the tasks and cancels of runs of these partitions.
    pub(in crate::shard) fn lose(&mut self, lost: &PartitionSet) {
        self.cancelled.retain(|call| !lost.contains(call.run.partition()));
        for Outlet { staged, backlog } in &mut self.outlets {
            staged.retain(|task| !lost.contains(task.run.partition()));
            backlog.retain(|(run, _)| !lost.contains(run.partition()));
        }
    }

    /// Takes back tasks that the pool of this queue has not begun. They have waited longer than the backlog, and go first.
    pub(in crate::shard) fn take_back(&mut self, number: usize, tasks: Vec<PutAside>) {
        if let Some(outlet) = self.outlets.get_mut(number) {
            for (key, _) in tasks.into_iter().rev() {
                outlet.backlog.push_front(key);
            }
        }
    }

    /// Collects a task for its queue. If no code here serves the queue, the task stays in its run's history.
    pub(in crate::shard) fn stage(&mut self, task: ActivityTask, shared: &ShardShared) {
        if let Some(timeout) = task.scheduled.schedule_to_start {
            // A queue without a pool here has its calls' deadlines watched by the default pool, which always exists.
            let queue = shared.pool(&task.scheduled.queue);
            if let Some(pool) = queue.or_else(|| shared.pool(DEFAULT_QUEUE)) {
                pool.expect_start(&task, timeout);
            }
        }
        let number = shared.queues.number_for(&task.scheduled, &mut self.last_activity);
        match number.and_then(|number| self.outlets.get_mut(number)) {
            Some(outlet) => outlet.staged.push(task),
            None => self.warn_of(&task),
        }
    }

    /// Logs that calls wait for an activity or queue that is not registered here: once for each, at most `WARNED_LEN_MAX`
    /// times.
    fn warn_of(&mut self, task: &ActivityTask) {
        const WARNED_LEN_MAX: usize = 64;
        let (activity, queue) = (&task.scheduled.activity, &task.scheduled.queue);
        if self.warned.len() < WARNED_LEN_MAX && self.warned.insert((activity.clone(), queue.clone())) {
            tracing::warn!(
                run = %task.run,
                activity = &**activity,
                queue = &**queue,
                "a call waits: its activity, or one on its queue, is not registered here"
            );
        }
    }

    /// Hands the collected tasks to their queues, in order. Tasks that do not fit become backlog.
    #[inline]
    pub(in crate::shard) fn send(&mut self, shared: &ShardShared, bell: &Bell) {
        for (outlet, queue) in self.outlets.iter_mut().zip(shared.queues.all()) {
            let Outlet { staged, backlog } = outlet;
            if staged.is_empty() {
                continue;
            }
            // Backlog has waited longer and goes first.
            if backlog.is_empty() {
                queue.offer(staged);
            }
            if !staged.is_empty() {
                if backlog.is_empty() && queue.wait_for_room(bell) {
                    bell.ring();
                }
                backlog.extend(staged.drain(..).map(|task| task.key()));
            }
        }
    }

    /// Tells the pools which calls were cancelled, each pool those of its own queue.
    #[inline]
    pub(in crate::shard) fn tell_cancelled(&mut self, shared: &ShardShared) {
        if self.cancelled.is_empty() {
            return;
        }
        // Not after a restart: a failed predecessor may have left a task of the same call in the queue.
        if !self.is_successor {
            self.drop_cancelled_backlog(shared);
        }
        for CancelledCall {
            run,
            operation,
            queue,
        } in self.cancelled.drain(..)
        {
            match queue.and_then(|number| shared.pools.get(number as usize)) {
                Some(pool) => pool.cancel((run, operation)),
                // As in `stage`: the default pool watches deadlines of queues without a pool.
                None => {
                    if let Some(pool) = shared.pool(DEFAULT_QUEUE) {
                        pool.forget_start((run, operation));
                    }
                }
            }
        }
    }

    /// Removes cancelled calls from the backlogs, once they are so many that a pass over all costs little for each. Their
    /// pools never had these tasks, and need not remember the cancels. Other cancelled calls are skipped when their turn
    /// comes.
    fn drop_cancelled_backlog(&mut self, shared: &ShardShared) {
        const LOOKS_MAX: usize = 64;
        let looks_max = LOOKS_MAX.saturating_mul(self.cancelled.len());
        for (number, outlet) in self.outlets.iter_mut().enumerate() {
            if outlet.backlog.is_empty() || outlet.backlog.len() > looks_max {
                continue;
            }
            let of_queue = |call: &&CancelledCall| call.queue.is_some_and(|queue| queue as usize == number);
            let mut calls: FxHashSet<_> = (self.cancelled.iter().filter(of_queue))
                .map(|call| (call.run, call.operation))
                .collect();
            if calls.is_empty() {
                continue;
            }
            let mut dropped = FxHashSet::default();
            outlet
                .backlog
                .retain(|key| !calls.remove(key) || !dropped.insert(*key));
            let pool = &shared.pools[number];
            dropped.iter().for_each(|key| pool.forget_start(*key));
            self.cancelled
                .retain(|call| !dropped.contains(&(call.run, call.operation)));
        }
    }

    /// Offers a queue the task of a run that was read for it, ahead of the rest of the backlog.
    pub(in crate::shard) fn send_loaded(&mut self, task: ActivityTask, shared: &ShardShared, bell: &Bell) {
        let number = shared.queues.number_for(&task.scheduled, &mut self.last_activity);
        let Some(number) = number.filter(|number| *number < self.outlets.len()) else {
            return;
        };
        let queue = &shared.queues.all()[number];
        let mut tasks = vec![task];
        queue.offer(&mut tasks);
        if let Some(refused) = tasks.pop() {
            // Another task has taken its place meanwhile.
            self.outlets[number].backlog.push_front(refused.key());
            if queue.wait_for_room(bell) {
                bell.ring();
            }
        }
    }
}

impl Shard {
    /// Moves backlog into the queues, as far as there is room.
    pub(in crate::shard) fn feed_queues(&mut self, now: Timestamp) {
        for number in 0..self.dispatch.outlets.len() {
            if !self.dispatch.outlets[number].backlog.is_empty() {
                self.feed_queue(number, now);
            }
        }
    }

    /// Tasks of runs that are not in memory have to be read first; their places in the queue stay reserved meanwhile.
    fn feed_queue(&mut self, number: usize, now: Timestamp) {
        const FED_MAX: usize = 256;
        let moment = of_no_run(now);
        let Some(queue) = self.shared.queues.all().get(number).cloned() else {
            return;
        };
        let mut tasks = Vec::new();
        let mut cold = Vec::new();
        let loading_len = self.residency.loading_len();
        let room = queue.room();
        // At least one: runs may be read all the time for other reasons.
        let room = room.min(room.saturating_sub(loading_len).max(1)).min(FED_MAX);
        while tasks.len() + cold.len() < room
            && let Some((run, operation)) = self.dispatch.outlets[number].backlog.pop_front()
        {
            match self.entries.get(run).map(|entry| &entry.residence) {
                Some(Residence::Hot(_)) => {
                    if let Some(Deed::Task(task)) = self.outstanding(run, operation, moment) {
                        tasks.push(task);
                    }
                }
                Some(Residence::Cold) => cold.push((run, operation)),
                Some(Residence::Loading(_)) => {
                    self.dispatch.outlets[number].backlog.push_front((run, operation));
                    break;
                }
                None if self.entries.contains(run) => cold.push((run, operation)),
                Some(Residence::Ended(_)) | None => {}
            }
        }
        for (run, operation) in cold {
            self.with_run(run, Errand::Dispatch(operation), moment);
        }
        queue.offer(&mut tasks);
        let backlog = &mut self.dispatch.outlets[number].backlog;
        for refused in tasks.iter().rev() {
            backlog.push_front(refused.key());
        }
        if !backlog.is_empty() {
            let has_room = queue.wait_for_room(&self.bell);
            // While runs are being read, each that arrives brings a turn of its own.
            if has_room && self.residency.loading_len() == 0 {
                self.bell.ring();
            }
        }
    }
}
