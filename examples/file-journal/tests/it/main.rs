//! What the journal in a plain file promises.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod contract;
mod crash;
mod workflows;
