//! The root of a run's wakers. It distinguishes wake-ups by the machine from those by the outside.
//!
//! While the machine works on an instance, its thread is *inside* that instance. Whatever touches the code then is caused by
//! the workflow and happens again in a replay. Whatever touches the code at another time, or from another thread, does not
//! happen again: it is *foreign*, and the machine parks the run instead of recording what no replay could repeat.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

thread_local! {
    /// The pulse of the instance that this thread is inside; 0 if none.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Notes that the code was woken, and whether by something foreign.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    is_woken: AtomicBool,
    is_foreign: AtomicBool,
}

/// The thread is inside an instance while this lives.
#[derive(Debug)]
pub(crate) struct Inside {
    before: usize,
}

impl Pulse {
    fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Enters the instance, until the guard is dropped. Nests: the thread may be inside another instance already.
    pub(crate) fn enter(&self) -> Inside {
        Inside {
            before: INSIDE.replace(self.identity()),
        }
    }

    /// Whether this thread is inside the instance; if not, that is noted as foreign.
    pub(crate) fn check_inside(&self) -> bool {
        let is_inside = INSIDE.get() == self.identity();
        if !is_inside {
            self.is_foreign.store(true, Ordering::Release);
        }
        is_inside
    }

    /// Whether the code was woken from inside since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        // Only the thread inside writes and reads this: nothing comes between.
        let is_woken = self.is_woken.load(Ordering::Relaxed);
        if is_woken {
            self.is_woken.store(false, Ordering::Relaxed);
        }
        is_woken
    }

    /// Resets it for another run. Nothing else holds it.
    pub(crate) fn renew(&self) {
        self.is_woken.store(false, Ordering::Relaxed);
        self.is_foreign.store(false, Ordering::Relaxed);
    }

    /// Whether anything foreign has touched the code.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_foreign.load(Ordering::Acquire)
    }
}

impl Wake for Pulse {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.check_inside() {
            self.is_woken.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_wake_from_inside_is_told_from_one_outside() {
        let pulse = Arc::new(Pulse::default());
        let other = Arc::new(Pulse::default());
        let waker = Waker::from(Arc::clone(&pulse));

        let inside = pulse.enter();
        waker.wake_by_ref();
        assert!(pulse.take_woken() && !pulse.take_woken() && !pulse.is_foreign());
        {
            let _deeper = other.enter();
            waker.wake_by_ref();
            assert!(pulse.is_foreign(), "another instance is the world outside");
        }
        assert!(pulse.check_inside(), "back inside after the other one");
        drop(inside);
        assert!(!pulse.check_inside());
    }

    #[test]
    fn another_thread_is_outside_while_this_one_is_inside() {
        let pulse = Arc::new(Pulse::default());
        let waker = Waker::from(Arc::clone(&pulse));
        let _inside = pulse.enter();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake_by_ref());
        });
        assert!(pulse.is_foreign() && !pulse.take_woken());
    }
}
