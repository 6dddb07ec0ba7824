//! The broker from outside: what users see, property tests against naive models.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accounting;
mod asking;
mod churn;
mod delivery;
mod ending;
mod failure;
mod flows;
mod fuzz;
mod host;
mod lending;
mod model;
mod names;
mod overflow;
mod sharing;
mod threads;
mod waiting;
