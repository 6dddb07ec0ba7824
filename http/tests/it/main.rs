//! Requests to a router that no server carries: each is a call.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batches;
mod checks;
mod documents;
mod measuring;
mod polling;
mod reading;
mod refusing;
mod streaming;
mod support;
mod writing;
