//! Requests to a router that no server carries: each is a call. Those of `serving` go to a server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batches;
mod bulk;
#[path = "../shared/causes.rs"]
mod causes;
mod causing;
mod checks;
mod client;
mod documents;
mod entities;
mod finding;
mod following;
mod keys;
mod killed;
mod measuring;
mod openapi;
mod output;
mod page;
mod past;
mod polling;
mod reading;
mod records;
mod redacting;
mod refusing;
#[cfg(feature = "serve")]
mod schedules;
mod sending_back;
mod serving;
mod store;
mod streaming;
mod support;
mod tailing;
mod topic_access;
mod traced;
mod webhooks;
mod writing;
