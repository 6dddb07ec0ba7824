//! Which tasks are running, so that the end of the host is the end of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{mem, thread};

use millrun_core::{Stop, Task, TaskHandle};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::Instrument;

/// The tasks of a host. How many there may be is bounded by those who start them.
///
/// A task costs two short locks more here than in bare tokio. Its place is reserved before it is
/// spawned, for it may have ended, and given its place back, before the spawner holds its handle.
#[derive(Default)]
pub(super) struct Tasks {
    places: Mutex<Places>,
    empty: Notify,
}

#[derive(Default)]
struct Places {
    closed: bool,
    last_number: u64,
    all: Vec<Place>,
    free: Vec<usize>,
}

enum Place {
    Free,
    /// For the task with this number: a place may change hands before its spawner comes back.
    Reserved(u64),
    Taken(AbortHandle),
}

struct Aborter(AbortHandle);

impl Stop for Aborter {
    fn stop(&self) {
        self.0.abort();
    }
}

/// Gives the place back when the task's future is dropped: at its end, by an abort, by a panic.
struct Tenant {
    tasks: Arc<Tasks>,
    index: usize,
}

impl Drop for Tenant {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("a task panicked");
        }
        let mut places = self.tasks.places();
        let gone = mem::replace(&mut places.all[self.index], Place::Free);
        places.free.push(self.index);
        let empty = places.is_empty();
        drop(places);
        drop(gone);
        if empty {
            self.tasks.empty.notify_waiters();
        }
    }
}

impl Places {
    fn is_empty(&self) -> bool {
        self.free.len() == self.all.len()
    }

    /// A place, and the number of the task it is for.
    fn reserve(&mut self) -> (usize, u64) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Place::Free);
            self.all.len() - 1
        });
        self.last_number += 1;
        self.all[index] = Place::Reserved(self.last_number);
        (index, self.last_number)
    }
}

impl Tasks {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `task`; after [`Tasks::close`] it is dropped at its first await at the latest.
    pub(super) fn spawn(self: &Arc<Self>, tokio: &Handle, name: &'static str, task: Task) -> TaskHandle {
        let (index, number) = self.places().reserve();
        let tenant = Tenant {
            tasks: Arc::clone(self),
            index,
        };
        let span = tracing::debug_span!("task", name);
        let tenancy = async move {
            // Declared first, dropped last: the place is free only when the task is gone.
            let _tenant = tenant;
            task.await;
        };
        let abort = tokio.spawn(tenancy.instrument(span)).abort_handle();
        self.settle(index, number, &abort);
        TaskHandle::new(Aborter(abort))
    }

    /// Keeps the handle of a task that was just spawned, unless it has ended already.
    fn settle(&self, index: usize, number: u64, abort: &AbortHandle) {
        let mut places = self.places();
        if places.closed {
            drop(places);
            abort.abort();
        } else if matches!(places.all[index], Place::Reserved(reserved) if reserved == number) {
            places.all[index] = Place::Taken(abort.clone());
        }
    }

    /// Aborts every task, now and from now on.
    pub(super) fn close(&self) {
        let mut places = self.places();
        places.closed = true;
        let aborts: Vec<_> = places
            .all
            .iter()
            .filter_map(|place| match place {
                Place::Taken(abort) => Some(abort.clone()),
                Place::Free | Place::Reserved(_) => None,
            })
            .collect();
        drop(places);
        aborts.iter().for_each(AbortHandle::abort);
    }

    /// How many are running.
    pub(super) fn count(&self) -> usize {
        let places = self.places();
        places.all.len() - places.free.len()
    }

    /// Waits until no task runs.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let empty = self.empty.notified();
            if self.places().is_empty() {
                return;
            }
            empty.await;
        }
    }
}
