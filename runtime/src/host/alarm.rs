//! One alarm clock for one part.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun_core::{Bell, Timestamp};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::clock::Clock;

/// Rings a bell when a time has come.
///
/// A part asks for another time after most of its turns, usually a later one. That costs two
/// atomic operations: the task sleeps on, looks at what is wanted when it wakes, and goes back to
/// sleep. Only an earlier time has to wake it.
///
/// ```text
///   part:  wanted := t ──► earlier than asleep_until? ──► wake the task
///   task:  asleep_until := wanted ──► wanted earlier by now? ──► sleep ──► due? ring
/// ```
///
/// Each side writes its own word before it reads the other's, so an earlier time is seen by one
/// of the two.
pub(super) struct Alarm {
    times: Arc<Times>,
    task: AbortHandle,
}

struct Times {
    /// Microseconds; `u64::MAX` when no time is wanted.
    wanted: AtomicU64,
    asleep_until: AtomicU64,
    earlier: Notify,
}

const NEVER: u64 = Timestamp::MAX.as_micros();

impl Alarm {
    /// Starts an alarm that is not set.
    pub(super) fn spawn(tokio: &Handle, clock: Clock, bell: Bell) -> Self {
        let times = Arc::new(Times {
            wanted: AtomicU64::new(NEVER),
            asleep_until: AtomicU64::new(NEVER),
            earlier: Notify::new(),
        });
        let task = tokio.spawn(watch(Arc::clone(&times), clock, bell)).abort_handle();
        Self { times, task }
    }

    /// Sets the alarm to `at`, in place of any former time.
    pub(super) fn set(&self, at: Timestamp) {
        self.times.wanted.store(at.as_micros(), Ordering::SeqCst);
        if at.as_micros() < self.times.asleep_until.load(Ordering::SeqCst) {
            self.times.earlier.notify_one();
        }
    }

    /// Unsets the alarm.
    pub(super) fn clear(&self) {
        self.times.wanted.store(NEVER, Ordering::SeqCst);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(times: Arc<Times>, clock: Clock, bell: Bell) {
    loop {
        let target = times.wanted.load(Ordering::SeqCst);
        times.asleep_until.store(target, Ordering::SeqCst);
        if times.wanted.load(Ordering::SeqCst) < target {
            continue;
        }
        if target == NEVER {
            times.earlier.notified().await;
        } else if clock.now().as_micros() < target {
            let moment = clock.instant(Timestamp::from_micros(target));
            // The time may have come, or an earlier time was set: the top of the loop finds out.
            tokio::time::timeout_at(moment.into(), times.earlier.notified())
                .await
                .ok();
        } else if times
            .wanted
            .compare_exchange(target, NEVER, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            bell.ring();
        }
    }
}
