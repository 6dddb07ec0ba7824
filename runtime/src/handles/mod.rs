//! Handles of runs, typed and by name, and starts, which return one.
//!
//! A handle is a cheap clone that sends requests to shards, and follows a run that continues as new. It holds no state of the
//! run.

pub(crate) mod entity;
pub(crate) mod entity_untyped;
pub(crate) mod run;
pub(crate) mod start;
pub(crate) mod untyped;

pub(crate) mod follow;
pub(crate) mod updated;
