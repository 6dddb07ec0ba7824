//! The running tasks, so that they end when the host ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{mem, thread};

use millrun_core::{Stop, Task, TaskHandle};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// The tasks of a host. Whatever starts them bounds their number.
///
/// A task costs two more short locks than in bare tokio. Its slot is reserved before it is spawned, since it may end, and
/// give its slot back, before the spawner holds its handle. A task has no span, since each attempt of an activity may be one:
/// its name is logged if it panics.
#[derive(Default)]
pub(super) struct Tasks {
    slots: Mutex<Slots>,
    empty: Notify,
}

#[derive(Default)]
struct Slots {
    closed: bool,
    last_number: u64,
    all: Vec<Slot>,
    free: Vec<usize>,
}

enum Slot {
    Free,
    /// Reserved for the task with this number: the slot may be used by another task before the spawner comes back.
    Reserved(u64),
    Taken(AbortHandle),
}

struct Aborter(AbortHandle);

impl Stop for Aborter {
    fn stop(&self) {
        self.0.abort();
    }
}

/// Gives the slot back when the task's future is dropped: at its end, by an abort, by a panic.
struct Tenant {
    tasks: Arc<Tasks>,
    index: usize,
    /// The task's name, for log messages.
    name: &'static str,
}

impl Drop for Tenant {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!(task = self.name, "a task panicked");
        }
        let mut slots = self.tasks.slots();
        let gone = mem::replace(&mut slots.all[self.index], Slot::Free);
        slots.free.push(self.index);
        let empty = slots.is_empty();
        drop(slots);
        drop(gone);
        if empty {
            self.tasks.empty.notify_waiters();
        }
    }
}

impl Slots {
    fn is_empty(&self) -> bool {
        self.free.len() == self.all.len()
    }

    /// A slot, and the number of the task it is for.
    fn reserve(&mut self) -> (usize, u64) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Slot::Free);
            self.all.len() - 1
        });
        self.last_number += 1;
        self.all[index] = Slot::Reserved(self.last_number);
        (index, self.last_number)
    }
}

impl Tasks {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `task`. After [`Tasks::close`] the task is dropped, at the latest at its first await.
    pub(super) fn spawn(self: &Arc<Self>, tokio: &Handle, name: &'static str, task: Task) -> TaskHandle {
        let (index, number) = self.slots().reserve();
        let tenant = Tenant {
            tasks: Arc::clone(self),
            index,
            name,
        };
        let tenancy = async move {
            // Declared first, so dropped last: the slot is free only when the task is gone.
            let _tenant = tenant;
            task.await;
        };
        let abort = tokio.spawn(tenancy).abort_handle();
        self.take(index, number, &abort);
        TaskHandle::new(Aborter(abort))
    }

    /// Keeps the handle of a task that was just spawned, unless it has ended already.
    fn take(&self, index: usize, number: u64, abort: &AbortHandle) {
        let mut slots = self.slots();
        if slots.closed {
            drop(slots);
            abort.abort();
        } else if matches!(slots.all[index], Slot::Reserved(reserved) if reserved == number) {
            slots.all[index] = Slot::Taken(abort.clone());
        }
    }

    /// Aborts every task, and every later one.
    pub(super) fn close(&self) {
        let mut slots = self.slots();
        slots.closed = true;
        let aborts: Vec<_> = slots
            .all
            .iter()
            .filter_map(|slot| match slot {
                Slot::Taken(abort) => Some(abort.clone()),
                Slot::Free | Slot::Reserved(_) => None,
            })
            .collect();
        drop(slots);
        aborts.iter().for_each(AbortHandle::abort);
    }

    /// The number of running tasks.
    pub(super) fn count(&self) -> usize {
        let slots = self.slots();
        slots.all.len() - slots.free.len()
    }

    /// Waits until no task runs.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let empty = self.empty.notified();
            if self.slots().is_empty() {
                return;
            }
            empty.await;
        }
    }
}
