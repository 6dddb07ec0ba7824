//! The locks and atomics the mailbox is built of: those of `std`, or those of `loom` when its model
//! checker explores the interleavings (`--cfg loom`).

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};

use std::sync::PoisonError;

/// Locks, whether or not an earlier holder panicked: no lock of this crate is held while code of
/// others runs, so what it protects is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
