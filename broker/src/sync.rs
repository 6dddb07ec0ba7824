//! The locks and atomics the mailbox is built of, or those of `loom` when its model checker explores
//! the interleavings (`--cfg loom`).
//!
//! The lock spins. What runs under it moves words within the bounds of one inbox, or of the stage that
//! inboxes of one topic share, whose lock is taken under an inbox's. It runs no code of users (wakers
//! are cloned under it, but called and dropped outside). Mostly that is one push or the swap of two
//! buffers, so a thread that finds it taken is let in after some nanoseconds; if its holder was interrupted
//! just then, he gives up his time slice until it is back. A lock that can put its waiters to sleep pays
//! for that with a second atomic operation at each release, whether or not anybody sleeps: 7 % of a
//! message between two actors, 14 % of a delivery in a fan-out.
//!
//! Threads with real-time priorities (`SCHED_FIFO`) must not share an inbox or a topic with threads of
//! lower ones: giving up a time slice does not let those run.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(not(loom))]
pub(crate) type Mutex<T> = spin::mutex::SpinMutex<T, spin::Yield>;
#[cfg(not(loom))]
pub(crate) type MutexGuard<'a, T> = spin::mutex::SpinMutexGuard<'a, T>;

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
use std::sync::PoisonError;

/// Locks, whether or not an earlier holder panicked: no lock of this crate is held while code of
/// others runs, so what it protects is whole.
#[cfg(not(loom))]
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(loom)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
