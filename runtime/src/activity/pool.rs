//! A pool runs the activities of one task queue, up to a number at once, each with its deadlines: quick ones on its own
//! thread, every other in a task.
//!
//! ```text
//!                            ┌─ quick ──► ended ────────────► reports of this turn ─┐
//!   inbox ──► room? ──► begun┤              └ has to wait ─┐                        ├─► shards
//!                            └─ not known to be quick ─────┴► task ──► its report ──┘
//! ```
//!
//! A pool that cannot send its reports begins no more attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use millrun_core::{Host, Next, Part, Timestamp};

use super::attempt_list::Key;
use super::code::AnySeat;
use super::drained::ReportPage;
use super::pace::Stretch;
use super::{
    ActivityContext, ActivityReport, ActivityTask, AttemptOutcome, LastActivity, PoolState, TaskQueue,
    TaskQueues, attempt,
};
use crate::mail::ShardDoors;

/// How long a turn runs attempts itself, apart from those that are measured together with its last. Then other parts have
/// their turns.
const TURN_MAX: Duration = Duration::from_millis(1);

/// How often a pool checks whether attempts may begin again, while its node cannot write.
const HELD_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Pool {
    queue: Arc<TaskQueue>,
    queues: Arc<TaskQueues>,
    state: Arc<PoolState>,
    doors: ShardDoors,
    host: Arc<dyn Host>,
    running_max: usize,
    payload_bytes_max: usize,
    /// By activity number: the seat for the next attempt that the pool runs itself.
    seats: Vec<Option<AnySeat>>,
    last_activity: LastActivity,
    stretch: Stretch,
    /// The reports of attempts that ended in this turn.
    reports: Vec<ActivityReport>,
    /// The page on which these stand.
    page: Option<ReportPage>,
    /// Whether a task waits for room for earlier reports.
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
            page: None,
            is_reporting: Arc::default(),
        }
    }

    /// Begins an attempt at the time `now`.
    fn start(&mut self, task: ActivityTask, now: Timestamp) {
        // A shard only sends registered activities; others wait in their histories.
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
            // Many of these may follow each other before a measured one.
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
                    // The panic may come from running here: the code is not run here again to find out.
                    if matches!(&outcome, Err(failure) if failure.is_panic()) {
                        pace.give_up();
                    }
                    if let Some(attempt) = self.state.end_unsent(key, number, &mut self.page) {
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
        // The time for this does not count for the next attempt.
        self.stretch.lapse();
    }

    /// Runs an attempt in a task of its own.
    fn spawn(&self, key: Key, number: u32, attempt: impl Future<Output = AttemptOutcome> + Send + 'static) {
        let (state, doors, bell) = (
            Arc::clone(&self.state),
            self.doors.clone(),
            self.queue.bell().clone(),
        );
        let running_max = self.running_max;
        let work = attempt.then(move |outcome| async move {
            let (report, mut was_full) = state.end(key, number, outcome, running_max);
            if let Some((report, page)) = report {
                doors.report(report).await;
                was_full = state.sent_report(page, running_max);
            }
            if was_full {
                bell.ring();
            }
        });
        let handle = self.host.spawn("activity", Box::pin(work));
        self.state.keep_handle(key, number, handle);
    }

    /// Sends the reports of this turn. Reports without room are sent by a task, which then rings the pool's bell.
    fn send_reports(&mut self) {
        let Some(page) = self.page.take() else {
            return;
        };
        let count = self.reports.len();
        let rest = self.doors.try_report(&mut self.reports);
        let left: usize = rest.iter().map(|(_, reports)| reports.len()).sum();
        self.state.sent_reports(page, count - left);
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
                state.sent_reports(page, count);
            }
            is_reporting.store(false, Ordering::Release);
            bell.ring();
        };
        drop(self.host.spawn("reports", Box::pin(work)));
    }

    fn next_deadline(&self) -> Next {
        self.state.next_deadline().map_or(Next::Idle, Next::At)
    }

    /// Reports attempts whose time is over, and stops them.
    fn expire(&self, now: Timestamp) {
        while let Some((report, page)) = self.state.take_expired(now) {
            let (doors, state) = (self.doors.clone(), Arc::clone(&self.state));
            let bell = self.queue.bell().clone();
            // The shard may have no room, and a pool does not wait for it.
            let work = async move {
                doors.report(report).await;
                state.sent_reports(page, 1);
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
        // Dropping an unfinished hand would ring again, so nothing is taken without room.
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
    /// Sends the reports of ended attempts, also if the turn in which they ended did not finish.
    fn drop(&mut self) {
        if !self.reports.is_empty() {
            self.send_reports();
        }
    }
}
