//! The attempts of a pool. This outlives the pool's part, so that a restarted pool knows what is still running.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use millrun_core::{Host, TaskHandle, Timestamp};
use millrun_workflow::{ActivityFailure, Payload, TimeoutKind};
use rustc_hash::FxBuildHasher;
use tokio::sync::Semaphore;

use super::attempt_list::{Attempt, AttemptList, Key};
use super::cancelled::CancelledCalls;
use super::drained::{DrainedTasks, PutAside, ReportPage, UnsentReports};
use super::{ActivityReport, ActivityTask, AttemptFailure, AttemptOutcome, HeartbeatError, TaskQueue};
use crate::Runtime;
use crate::cluster::shared::LeaseGate;
use crate::inner::Inner;
use crate::mail::{LocalMessage, ShardDoors};
use crate::ownership::claims::OwnedTable;
use crate::ownership::partition_set::PartitionSet;
use crate::streams::attempt::{AttemptEnd, AttemptMark};
use crate::streams::durable::log::StreamLog;
use crate::streams::table::StreamUse;

/// The attempts of one task queue.
#[derive(Debug)]
pub(crate) struct PoolState {
    /// The pool's queue. Its bell rings for a cancelled attempt, which makes room.
    queue: Arc<TaskQueue>,
    host: Arc<dyn Host>,
    doors: ShardDoors,
    payload_bytes_max: usize,
    /// One permit for each thread of blocking activities, in all pools together.
    threads: Arc<Semaphore>,
    owned: OwnedTable,
    gate: LeaseGate,
    running: Mutex<Running>,
    /// The reports of ended attempts that are not sent yet. Added under the lock of the list that they leave.
    unsent: UnsentReports,
    is_stopping: AtomicBool,
    runtime: OnceLock<Weak<Inner>>,
}

#[derive(Debug, Default)]
struct Running {
    attempts: AttemptList,
    /// The number of attempts started since the runtime started.
    started_len: usize,
    cancelled: CancelledCalls,
    /// Attempts that must begin before a deadline, and have not begun.
    queued: HashMap<Key, Queued, FxBuildHasher>,
    starts: BTreeSet<(Timestamp, Key)>,
    deadlines: BTreeSet<(Timestamp, Key)>,
    /// Whether no end of an attempt is reported any more.
    is_cut_off: bool,
    drained: DrainedTasks,
    /// On which the reports of attempts stand that end now.
    page: ReportPage,
}

/// An attempt under way, for observers.
#[derive(Clone, Debug)]
pub(crate) struct AttemptView {
    pub(crate) number: u32,
    pub(crate) began_at: Timestamp,
    pub(crate) close_at: Timestamp,
    /// When it will have been silent for too long.
    pub(crate) heartbeat_by: Option<Timestamp>,
    pub(crate) heartbeat: Option<Payload>,
}

/// An attempt that must begin before a deadline.
#[derive(Clone, Copy, Debug)]
struct Queued {
    number: u32,
    start_by: Timestamp,
    timeout: Duration,
}

impl PoolState {
    pub(crate) fn new(
        queue: Arc<TaskQueue>,
        host: Arc<dyn Host>,
        doors: ShardDoors,
        payload_bytes_max: usize,
        threads: Arc<Semaphore>,
        owned: OwnedTable,
        gate: LeaseGate,
    ) -> Self {
        Self {
            queue,
            host,
            doors,
            payload_bytes_max,
            threads,
            owned,
            gate,
            running: Mutex::default(),
            unsent: UnsentReports::default(),
            is_stopping: AtomicBool::new(false),
            runtime: OnceLock::new(),
        }
    }

    /// Sets the runtime that it belongs to, before its first attempt begins.
    pub(crate) fn connect(&self, runtime: Weak<Inner>) {
        // It always belongs to the same runtime.
        drop(self.runtime.set(runtime));
    }

    /// The runtime, unless its last handle was dropped.
    pub(super) fn runtime(&self) -> Option<Runtime> {
        self.runtime.get().and_then(Weak::upgrade).map(Runtime::of)
    }

    pub(super) fn host_and_threads(&self) -> (Arc<dyn Host>, Arc<Semaphore>) {
        (Arc::clone(&self.host), Arc::clone(&self.threads))
    }

    /// Whether attempts may begin: a node that cannot write for long may be taken for dead.
    #[inline]
    pub(super) fn may_begin(&self) -> bool {
        let until = self.gate.holds_until();
        until.is_none_or(|until| self.host.elapsed() < until)
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The attempt under way of this call, if there is one.
    pub(crate) fn view(&self, key: Key) -> Option<AttemptView> {
        let running = self.lock();
        let attempt = running.attempts.get(key)?;
        Some(AttemptView {
            number: attempt.number,
            began_at: attempt.began_at,
            close_at: attempt.close_at,
            heartbeat_by: attempt.silent_at(),
            heartbeat: attempt.said().cloned(),
        })
    }

    /// Until when the attempt of this call must have begun, if it is waiting and has such a limit.
    pub(crate) fn start_by(&self, key: Key) -> Option<Timestamp> {
        Some(self.lock().queued.get(&key)?.start_by)
    }

    /// The number of attempts under way, including ended ones whose reports are not sent.
    pub(crate) fn running_len(&self) -> usize {
        self.len_of(&self.lock())
    }

    fn len_of(&self, running: &Running) -> usize {
        running.attempts.len() + self.unsent.len()
    }

    /// Adds the partitions with attempts under way. False if the report of an ended one is not sent yet.
    pub(crate) fn note_busy(&self, busy: &mut PartitionSet) -> bool {
        let running = self.lock();
        let keys = running.attempts.keys();
        keys.for_each(|(run, _)| busy.insert(run.partition()));
        self.unsent.len() == 0
    }

    /// Lets no further attempt begin in these partitions, until they are [resumed](Self::resume) or [lost](Self::lose).
    pub(crate) fn drain(&self, partitions: &PartitionSet) {
        self.lock().drained.drain(partitions);
    }

    /// Lets attempts begin again in these partitions. Returns the tasks that were put aside, which are to be offered again.
    #[must_use]
    pub(crate) fn resume(&self, partitions: &PartitionSet) -> Vec<PutAside> {
        self.lock().drained.resume(partitions)
    }

    /// Tells the reports of attempts that have ended by now from later ones, for [`are_former_sent`](Self::are_former_sent).
    /// False if that is not possible yet.
    pub(crate) fn turn_page(&self) -> bool {
        self.unsent.turn(&mut self.lock().page)
    }

    /// Whether all reports of attempts are sent that had ended before the page was turned last.
    pub(crate) fn are_former_sent(&self) -> bool {
        self.unsent.are_former_sent(self.lock().page)
    }

    /// How many cancelled calls with queued tasks it remembers.
    #[cfg(test)]
    pub(super) fn cancelled_len(&self) -> usize {
        self.lock().cancelled.len()
    }

    /// The number of attempts started since the runtime started.
    pub(crate) fn started_len(&self) -> usize {
        self.lock().started_len
    }

    /// Lets no further attempt begin.
    pub(crate) fn stop_starting(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// The runtime ends: attempts under way are stopped, and code that cannot be stopped is told that it is not waited for.
    /// No further attempt begins.
    pub(crate) fn cut_off(&self) {
        let mut running = self.lock();
        running.is_cut_off = true;
        running.queued.clear();
        running.starts.clear();
        running.deadlines.clear();
        let attempts = std::mem::take(&mut running.attempts);
        drop(running);
        attempts.abort();
    }

    /// An attempt with a deadline for its beginning is about to be queued, or waits for a pool that has its code. The
    /// deadline is the history's, or `timeout` from now if the attempt before had begun.
    pub(crate) fn expect_start(&self, task: &ActivityTask, timeout: Duration) {
        let key = (task.run, task.scheduled.operation);
        let mut running = self.lock();
        if let Some(queued) = running.queued.get(&key).copied() {
            // It is in the queue or the backlog already.
            if queued.number == task.attempt {
                return;
            }
            running.starts.remove(&(queued.start_by, key));
        }
        // An attempt that continues while its shard restarts had begun, although no event says so yet.
        let start_by = task.start_by.filter(|_| running.attempts.get(key).is_none());
        let start_by = start_by.unwrap_or_else(|| self.host.now() + timeout);
        let number = task.attempt;
        let queued = Queued {
            number,
            start_by,
            timeout,
        };
        running.queued.insert(key, queued);
        running.starts.insert((start_by, key));
        drop(running);
        self.queue.bell().ring();
    }

    /// Lists an attempt that begins. `false` if it must not: it was cancelled while it waited, or waited too long, or the
    /// runtime ends.
    pub(super) fn begin(&self, task: &ActivityTask, now: Timestamp) -> bool {
        let (key, number) = ((task.run, task.scheduled.operation), task.attempt);
        let close_at = now + task.scheduled.start_to_close;
        let silence_max = task.scheduled.heartbeat;
        let mut running = self.lock();
        // A shutdown sets the flag first and takes the lock then, so it sees every attempt that has begun.
        let is_ending = running.is_cut_off || self.is_stopping();
        if is_ending || !self.owned.is_owned_under(task.run.partition(), task.life) {
            return false;
        }
        if !running.cancelled.is_empty() && running.cancelled.take(key, self.queue.offered_and_taken().1) {
            running.forget_queued(key);
            return false;
        }
        if task.scheduled.schedule_to_start.is_some() {
            let is_expected = running
                .queued
                .get(&key)
                .is_some_and(|queued| queued.number == number);
            if !is_expected {
                return false;
            }
        }
        // Its deadline is watched as before.
        if running.drained.put_aside(task) {
            return false;
        }
        if task.scheduled.schedule_to_start.is_some() {
            running.forget_queued(key);
        }
        let older = running.remove(key, None);
        let attempt = Attempt::new(number, close_at, silence_max, now);
        running.attempts.begin(key, attempt);
        running.started_len += 1;
        drop(running);
        if let Some(older) = older {
            older.abort();
        }
        true
    }

    /// An attempt is about to get a task: from now on its time is watched. `false` if it must not continue, since it was
    /// cancelled meanwhile.
    pub(super) fn expect_end(&self, key: Key, number: u32) -> bool {
        let mut running = self.lock();
        let Running {
            attempts, deadlines, ..
        } = &mut *running;
        attempts.go_on();
        let attempt = attempts.get_mut(key);
        let Some(attempt) = attempt.filter(|attempt| attempt.number == number) else {
            return false;
        };
        deadlines.insert((attempt.expect(), key));
        true
    }

    /// Notes that `count` reports have reached the inboxes of their shards. Until then their attempts count as under way, so
    /// that a shutdown waits for them.
    pub(super) fn sent_reports(&self, page: ReportPage, count: usize) {
        if count > 0 {
            self.unsent.sent(page, count);
        }
    }

    /// As [`sent_reports`](Self::sent_reports), for one report. Returns whether there was no room for another attempt with
    /// this `running_max`: then the pool may have found none, and has to be rung. This is checked now, since the pool may
    /// have begun others while the report was being sent.
    pub(super) fn sent_report(&self, page: ReportPage, running_max: usize) -> bool {
        let running = self.lock();
        let was_full = self.len_of(&running) >= running_max;
        self.unsent.sent(page, 1);
        was_full
    }

    /// Keeps the handle that stops an attempt, unless the attempt has ended by now: its task may be sending its report, and
    /// must not be stopped. If the runtime ends, reports are not read any more, and the attempt is stopped at once.
    pub(super) fn keep_handle(&self, key: Key, number: u32, handle: TaskHandle) {
        let mut running = self.lock();
        if running.is_cut_off {
            drop(running);
            return handle.abort();
        }
        if let Some(attempt) = running.attempts.get_mut(key)
            && attempt.number == number
        {
            attempt.handle = Some(handle);
        }
    }

    /// Removes an attempt that has ended. Returns its report, which has to be [sent](Self::sent_report), and its page, if it
    /// is waited for; otherwise whether there was no room for another attempt with this `running_max`.
    pub(super) fn end(
        &self,
        key: Key,
        number: u32,
        outcome: AttemptOutcome,
        running_max: usize,
    ) -> (Option<(ActivityReport, ReportPage)>, bool) {
        let mut running = self.lock();
        let was_full = self.len_of(&running) >= running_max;
        let attempt = running.remove(key, Some(number));
        let page = running.page;
        if attempt.is_some() {
            self.unsent.add(page);
        }
        drop(running);
        (
            attempt.map(|attempt| (attempt.report(key, outcome), page)),
            was_full,
        )
    }

    /// Removes an attempt that has ended, if it is waited for. The pool keeps its report until it can be
    /// [sent](Self::sent_reports), together with others: all of them stand on the page of the first.
    pub(super) fn end_unsent(&self, key: Key, number: u32, page: &mut Option<ReportPage>) -> Option<Attempt> {
        let mut running = self.lock();
        let attempt = match running.attempts.end_begun(key, number) {
            Some(attempt) => attempt,
            None => running.remove(key, Some(number))?,
        };
        self.unsent.add(*page.get_or_insert(running.page));
        Some(attempt)
    }

    /// Stops an attempt that is not waited for any more, or keeps it from being started if its task waits in the queue. No
    /// further task of this call is offered.
    pub(crate) fn cancel(&self, key: Key) {
        let mut running = self.lock();
        running.forget_queued(key);
        match running.remove(key, None) {
            Some(attempt) => {
                drop(running);
                attempt.cancel();
                self.queue.bell().ring();
            }
            None => {
                let offered_and_taken = self.queue.offered_and_taken();
                running.cancelled.insert(key, offered_and_taken);
            }
        }
    }

    /// These partitions have another owner: attempts of their runs are stopped, and no other of them begins.
    pub(crate) fn lose(&self, lost: &PartitionSet) {
        let is_lost = |key: &Key| lost.contains(key.0.partition());
        let mut running = self.lock();
        running.drained.resume(lost);
        let queued: Vec<Key> = running
            .queued
            .keys()
            .filter(|key| is_lost(key))
            .copied()
            .collect();
        for key in queued {
            running.forget_queued(key);
        }
        let mut stopped = Vec::new();
        for key in running.attempts.keys().filter(is_lost).collect::<Vec<_>>() {
            stopped.extend(running.remove(key, None));
        }
        drop(running);
        if stopped.is_empty() {
            return;
        }
        stopped.into_iter().for_each(Attempt::abort);
        self.queue.bell().ring();
    }

    /// Stops watching the deadline of a cancelled call on a queue without a pool.
    pub(crate) fn forget_start(&self, key: Key) {
        self.lock().forget_queued(key);
    }

    /// Whether this attempt is under way.
    pub(super) fn is_current(&self, task: &ActivityTask) -> bool {
        let key = (task.run, task.scheduled.operation);
        let running = self.lock();
        let attempt = running.attempts.get(key);
        attempt.is_some_and(|attempt| attempt.number == task.attempt)
    }

    /// Tells a run that an attempt has begun.
    pub(super) fn tell_started(&self, (run, operation): Key, attempt: u32) {
        let message = LocalMessage::AttemptStarted {
            run,
            operation,
            attempt,
        };
        // The place was reserved with the attempt, which sends one such message.
        self.doors.push(run, message);
    }

    /// Lists a stream that ends with an attempt, and counts it as in use unless it is listed already; `None` if the attempt
    /// has ended.
    pub(super) fn list_stream(
        &self,
        task: &ActivityTask,
        used: &mut Option<StreamUse>,
        log: Option<&Arc<StreamLog>>,
    ) -> Option<AttemptMark> {
        let operation = task.scheduled.operation;
        let mut running = self.lock();
        let attempt = running.attempts.get_mut((task.run, operation));
        let attempt = attempt.filter(|attempt| attempt.number == task.attempt);
        attempt?.list_stream(operation, used, log)
    }

    /// Takes a heartbeat of an attempt.
    pub(super) fn heartbeat(&self, task: &ActivityTask, details: Payload) -> Result<(), HeartbeatError> {
        let (bytes, bytes_max) = (details.len(), self.payload_bytes_max);
        if bytes > bytes_max {
            return Err(HeartbeatError::TooLarge { bytes, bytes_max });
        }
        let now = self.host.now();
        let (run, operation) = (task.run, task.scheduled.operation);
        let told = {
            let mut running = self.lock();
            let attempt = running.attempts.get_mut((run, operation));
            let attempt = attempt.filter(|attempt| attempt.number == task.attempt);
            let attempt = attempt.ok_or(HeartbeatError::Cancelled)?;
            attempt.hear(details, now)
        };
        if let Some(details) = told {
            let message = LocalMessage::Heartbeat {
                run,
                operation,
                attempt: task.attempt,
                details,
            };
            // The place was reserved with the attempt, which has at most one such message under way.
            self.doors.push(run, message);
        }
        Ok(())
    }

    /// When the next deadline has to be looked at.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        let running = self.lock();
        let first = |set: &BTreeSet<(Timestamp, Key)>| set.first().map(|(deadline, _)| *deadline);
        let earliest = [first(&running.deadlines), first(&running.starts)];
        earliest.into_iter().flatten().min()
    }

    /// Removes and stops an attempt whose time is over by now. Its report, on this page, has to be
    /// [sent](Self::sent_reports).
    pub(super) fn take_expired(&self, now: Timestamp) -> Option<(ActivityReport, ReportPage)> {
        let mut running = self.lock();
        let is_due = |(deadline, _): &&(Timestamp, Key)| *deadline <= now;
        while let Some((_, key)) = running.starts.first().filter(is_due).copied() {
            let (run, operation) = key;
            if running.waits_for_older(key, now) {
                continue;
            }
            let attempt = running.queued.get(&key)?.number;
            running.forget_queued(key);
            self.unsent.add(running.page);
            let failure = ActivityFailure::TimedOut(TimeoutKind::ScheduleToStart);
            let report = ActivityReport {
                run,
                operation,
                attempt,
                outcome: Err(AttemptFailure::fatal(failure)),
            };
            return Some((report, running.page));
        }
        loop {
            let (deadline, key) = running.deadlines.first().filter(is_due).copied()?;
            let (run, operation) = key;
            let Some(kind) = running.look_at(deadline, key, now) else {
                continue;
            };
            let attempt = running.remove(key, None)?;
            let page = running.page;
            self.unsent.add(page);
            drop(running);
            let number = attempt.number;
            if let Some(handle) = &attempt.handle {
                handle.abort();
            }
            let mut failure = AttemptFailure::retryable(ActivityFailure::TimedOut(kind));
            failure.details = attempt.last_words(AttemptEnd::Failed);
            let report = ActivityReport {
                run,
                operation,
                attempt: number,
                outcome: Err(failure),
            };
            return Some((report, page));
        }
    }
}

impl Running {
    /// Removes an attempt, if it is still this one.
    fn remove(&mut self, key: Key, number: Option<u32>) -> Option<Attempt> {
        let attempt = self.attempts.remove(key, number)?;
        if let Some(deadline) = attempt.deadline {
            self.deadlines.remove(&(deadline, key));
        }
        Some(attempt)
    }

    fn forget_queued(&mut self, key: Key) {
        if let Some(queued) = self.queued.remove(&key) {
            self.starts.remove(&(queued.start_by, key));
        }
    }

    /// Whether a waiting attempt needs room that an older attempt of its own step still takes, which the restarted shard does
    /// not know of. Its time then counts from the end of the older one's.
    fn waits_for_older(&mut self, key: Key, now: Timestamp) -> bool {
        let (Some(older), Some(queued)) = (self.attempts.get(key), self.queued.get_mut(&key)) else {
            return false;
        };
        let start_by = older.close_at.max(now) + queued.timeout.max(Duration::from_micros(1));
        self.starts.remove(&(queued.start_by, key));
        queued.start_by = start_by;
        self.starts.insert((start_by, key));
        true
    }

    /// Which time limit of an attempt has passed; if none, the attempt is listed for a later look.
    fn look_at(&mut self, deadline: Timestamp, key: Key, now: Timestamp) -> Option<TimeoutKind> {
        let Some(attempt) = self.attempts.get_mut(key) else {
            self.deadlines.remove(&(deadline, key));
            return None;
        };
        if attempt.close_at <= now {
            return Some(TimeoutKind::StartToClose);
        }
        if attempt.silent_at().is_some_and(|at| at <= now) {
            return Some(TimeoutKind::Heartbeat);
        }
        let next = attempt.expect();
        self.deadlines.remove(&(deadline, key));
        self.deadlines.insert((next, key));
        None
    }
}

#[cfg(test)]
mod tests;
