//! A pool runs the activities of one task queue, as many at once as the limit allows, each with its
//! deadlines: those that are quick where they arrive, every other as a task of its own.
//!
//! ```text
//!                            ┌─ quick ──► ended ────────────► reports of this turn ─┐
//!   inbox ──► room? ──► begun┤              └ has to wait ─┐                        ├─► shards
//!                            └─ not known to be quick ─────┴► task ──► its report ──┘
//! ```
//!
//! A pool that cannot get rid of its reports begins nothing more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use millrun_core::{Host, Next, Part, Timestamp};

use super::attempt_list::Key;
use super::code::AnySeat;
use super::pace::Stretch;
use super::{
    ActivityContext, ActivityReport, ActivityTask, AttemptOutcome, LastActivity, PoolState, TaskQueue,
    TaskQueues, attempt,
};
use crate::mail::ShardDoors;

/// How long a turn runs attempts itself, those apart that are measured together with its last. Then others
/// have their turn.
const TURN_MAX: Duration = Duration::from_millis(1);

/// How often a pool looks whether attempts may begin again, while its node cannot write.
const HELD_PAUSE: Duration = Duration::from_millis(50);

/// The part.
pub(crate) struct Pool {
    queue: Arc<TaskQueue>,
    queues: Arc<TaskQueues>,
    state: Arc<PoolState>,
    doors: ShardDoors,
    host: Arc<dyn Host>,
    running_max: usize,
    payload_bytes_max: usize,
    /// For the next attempt of each activity that its pool runs itself, by the activity's number.
    seats: Vec<Option<AnySeat>>,
    last_activity: LastActivity,
    stretch: Stretch,
    /// Of attempts that ended in this turn.
    reports: Vec<ActivityReport>,
    /// Whether a task waits for room for former reports.
    is_reporting: Arc<AtomicBool>,
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
        let seats = (0..queues.activities_len()).map(|_| None).collect();
        Self {
            queue,
            queues,
            state,
            doors,
            host,
            running_max,
            payload_bytes_max,
            seats,
            last_activity: LastActivity::default(),
            stretch: Stretch::default(),
            reports: Vec::new(),
            is_reporting: Arc::default(),
        }
    }

    /// Begins an attempt at the time `now`.
    fn start(&mut self, task: ActivityTask, now: Timestamp) {
        // The shard sends only what is registered; what is not waits in its history.
        let found = self
            .queues
            .activity(&task.scheduled.activity, &mut self.last_activity);
        let Some((place, implementation)) = found else {
            return;
        };
        let pace = &implementation.pace;
        if !self.stretch.takes(pace) {
            self.stretch.end(self.host.elapsed());
        }
        if !self.state.begin(&task, now) {
            // Many of these may follow each other, before one that is measured.
            return self.stretch.end(self.host.elapsed());
        }
        let (key, number) = (task.key(), task.attempt);
        let is_limited = task.scheduled.schedule_to_start.is_some();
        let payload_bytes_max = self.payload_bytes_max;
        let cx = ActivityContext::new(task, Arc::clone(&self.state));
        if pace.is_quick() {
            if self.stretch.has_lapsed() {
                self.stretch.begin(self.host.elapsed());
            }
            match attempt::begin(implementation, &mut self.seats[place], cx, payload_bytes_max) {
                Ok(outcome) => {
                    // Perhaps of this place: nobody's code is run here twice to find out.
                    if matches!(&outcome, Err(failure) if failure.is_panic()) {
                        pace.give_up();
                    }
                    if let Some(attempt) = self.state.end_unsent(key, number) {
                        self.reports.push(attempt.report(key, outcome));
                    }
                    if self.stretch.add(pace) {
                        self.stretch.end(self.host.elapsed());
                    }
                    return;
                }
                Err(rest) => {
                    pace.note(None);
                    if self.state.expect_end(key, number) {
                        if is_limited {
                            self.state.tell_started(key, number);
                        }
                        self.spawn(key, number, attempt::resume(rest, payload_bytes_max));
                    } else {
                        attempt::discard(rest);
                    }
                }
            }
        } else if self.state.expect_end(key, number) {
            if is_limited {
                self.state.tell_started(key, number);
            }
            let attempt = attempt::run(implementation, cx, payload_bytes_max, Arc::clone(&self.host));
            self.spawn(key, number, attempt);
        }
        // What that took is not the next attempt's.
        self.stretch.lapse();
    }

    /// Gives an attempt a task of its own.
    fn spawn(&self, key: Key, number: u32, attempt: impl Future<Output = AttemptOutcome> + Send + 'static) {
        let (state, doors, bell) = (
            Arc::clone(&self.state),
            self.doors.clone(),
            self.queue.bell().clone(),
        );
        let running_max = self.running_max;
        let work = attempt.then(move |outcome| async move {
            let (report, mut was_full) = state.end(key, number, outcome, running_max);
            if let Some(report) = report {
                doors.report(report).await;
                was_full = state.sent_report(running_max);
            }
            if was_full {
                bell.ring();
            }
        });
        let handle = self.host.spawn("activity", Box::pin(work));
        self.state.keep_handle(key, number, handle);
    }

    /// Sends the reports of this turn; what finds no room is sent by a task, and the pool's bell rung.
    fn send_reports(&mut self) {
        let count = self.reports.len();
        let rest = self.doors.try_report(&mut self.reports);
        let left: usize = rest.iter().map(|(_, reports)| reports.len()).sum();
        self.state.sent_reports(count - left);
        if rest.is_empty() {
            return;
        }
        self.is_reporting.store(true, Ordering::Release);
        let (doors, is_reporting) = (self.doors.clone(), Arc::clone(&self.is_reporting));
        let (state, bell) = (Arc::clone(&self.state), self.queue.bell().clone());
        let work = async move {
            for (shard, reports) in rest {
                let count = reports.len();
                doors.report_to(shard, reports).await;
                state.sent_reports(count);
            }
            is_reporting.store(false, Ordering::Release);
            bell.ring();
        };
        drop(self.host.spawn("reports", Box::pin(work)));
    }

    fn next_deadline(&self) -> Next {
        self.state.next_deadline().map_or(Next::Idle, Next::At)
    }

    /// Reports attempts whose time is up, and stops them.
    fn expire(&self, now: Timestamp) {
        while let Some(report) = self.state.take_expired(now) {
            let (doors, state) = (self.doors.clone(), Arc::clone(&self.state));
            let bell = self.queue.bell().clone();
            // The shard may have no room; a pool does not wait for it.
            let work = async move {
                doors.report(report).await;
                state.sent_reports(1);
                bell.ring();
            };
            drop(self.host.spawn("timeout", Box::pin(work)));
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
        if room == 0 || self.state.is_stopping() || self.is_reporting.load(Ordering::Acquire) {
            return self.next_deadline();
        }
        if !self.state.may_begin() {
            let again = now + HELD_PAUSE;
            return match self.state.next_deadline() {
                Some(deadline) => Next::At(deadline.min(again)),
                None => Next::At(again),
            };
        }
        let (host, queue) = (Arc::clone(&self.host), Arc::clone(&self.queue));
        host.within(&mut || {
            self.stretch.begin(host.elapsed());
            let until = self.stretch.began_at() + TURN_MAX;
            let mut hand = queue.take(now);
            for task in hand.by_ref().take(room) {
                self.start(task, now);
                if self.stretch.began_at() >= until || self.state.is_stopping() {
                    break;
                }
            }
            if !self.stretch.is_empty() {
                self.stretch.end(host.elapsed());
            }
        });
        self.send_reports();
        self.next_deadline()
    }
}

impl Drop for Pool {
    /// What has ended is reported, also if the turn in which it ended did not.
    fn drop(&mut self) {
        if !self.reports.is_empty() {
            self.send_reports();
        }
    }
}
