//! Which parts are running, and how to stop them.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use millrun_core::{Placement, Stop, Timestamp};
use tokio::sync::Notify;

/// One running part, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartInfo {
    /// The name it was started with.
    pub name: String,
    /// On what it runs.
    pub placement: Placement,
    /// When it was started.
    pub started_at: Timestamp,
}

/// Tells the parts of one host apart; names may repeat while one part replaces another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartNumber(u64);

/// The running parts of a host.
#[derive(Default)]
pub(super) struct Parts {
    table: Mutex<Table>,
    /// Notified when a part is removed, for a waiter on a thread.
    removed: Condvar,
    /// Notified when the last part is removed, for a waiter on a task.
    empty: Notify,
}

#[derive(Default)]
struct Table {
    closed: bool,
    last_number: u64,
    running: BTreeMap<PartNumber, Running>,
}

struct Running {
    /// `None` once the part has ended and only its exit callback is left to run.
    info: Option<PartInfo>,
    thread: Option<ThreadId>,
    /// `None` until the driver exists.
    stop: Option<Box<dyn Stop>>,
}

impl Parts {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a part to the list; `None` once the host is closed.
    pub(super) fn add(&self, info: PartInfo, thread: Option<ThreadId>) -> Option<PartNumber> {
        let mut table = self.table();
        if table.closed {
            return None;
        }
        table.last_number += 1;
        let number = PartNumber(table.last_number);
        table.running.insert(
            number,
            Running {
                info: Some(info),
                thread,
                stop: None,
            },
        );
        Some(number)
    }

    /// Sets how a part that was added is stopped. If the host was closed meanwhile, the part is stopped at once.
    pub(super) fn set_stop(&self, number: PartNumber, stop: impl Stop) {
        let mut table = self.table();
        if table.closed {
            drop(table);
            stop.stop();
        } else if let Some(running) = table.running.get_mut(&number) {
            running.stop = Some(Box::new(stop));
        }
    }

    /// Removes the part from listings. The host still waits for its driver.
    pub(super) fn unlist(&self, number: PartNumber) {
        if let Some(running) = self.table().running.get_mut(&number) {
            running.info = None;
        }
    }

    /// The driver has ended too.
    pub(super) fn remove(&self, number: PartNumber) {
        let mut table = self.table();
        let removed = table.running.remove(&number);
        let empty = table.running.is_empty();
        drop(table);
        // Dropped outside of the lock: it may hold the last reference to an actor.
        drop(removed);
        self.removed.notify_all();
        if empty {
            self.empty.notify_waiters();
        }
    }

    /// Refuses new parts, and stops those that run.
    pub(super) fn close(&self) {
        let mut table = self.table();
        table.closed = true;
        let stops: Vec<_> = table
            .running
            .values_mut()
            .filter_map(|running| running.stop.take())
            .collect();
        drop(table);
        stops.iter().for_each(|stop| stop.stop());
    }

    /// Oldest first.
    pub(super) fn list(&self) -> Vec<PartInfo> {
        self.table()
            .running
            .values()
            .filter_map(|running| running.info.clone())
            .collect()
    }

    /// Waits until no part runs and every exit callback has returned.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let empty = self.empty.notified();
            if self.table().running.is_empty() {
                return;
            }
            empty.await;
        }
    }

    /// Blocks until no part runs on a thread, except on the calling one. False after `wait_max`.
    pub(super) fn wait_for_threads(&self, wait_max: Duration) -> bool {
        let me = thread::current().id();
        let others = |table: &mut Table| {
            table
                .running
                .values()
                .any(|running| running.thread.is_some_and(|thread| thread != me))
        };
        let (_table, outcome) = self
            .removed
            .wait_timeout_while(self.table(), wait_max, others)
            .unwrap_or_else(PoisonError::into_inner);
        !outcome.timed_out()
    }
}
