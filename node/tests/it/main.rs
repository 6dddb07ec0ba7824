//! The real program, killed and started again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bulk;
mod checkout;
mod client;
mod closed;
mod command_line;
mod crash;
mod curl;
mod demo;
mod following;
mod import;
mod salvage;
mod schedules;
mod serve;
mod support;
mod webhooks;
