//! The locks and atomics of the bell: those of `std`, or those of `loom` when its model checker
//! explores the interleavings (`--cfg loom`).

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
