//! The engine from outside: every test runs event by event and by replay from every prefix.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod at_event;
mod bytes;
mod cancelling;
mod child_handles;
mod delaying;
mod entities;
mod exported;
mod family;
mod fuzz;
mod histories;
mod model;
mod mutants;
mod mutants_outside;
mod outside;
mod owed;
mod parking;
mod receiving;
mod recording;
mod renamed_topics;
mod resetting;
mod retrying;
mod run_retries;
mod run_timeouts;
mod signalling;
mod signals;
mod spans;
mod state;
mod steps;
mod structure;
mod time;
mod timeouts;
mod waking;
mod world;
