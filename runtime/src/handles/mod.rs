//! What a program holds: handles of runs, typed and by name, and the start that gives one.
//!
//! A handle is a cheap clone that sends requests to shards and follows a run that goes on in another. It has no state
//! of the run.

pub(crate) mod entity;
pub(crate) mod entity_untyped;
pub(crate) mod run;
pub(crate) mod start;
pub(crate) mod untyped;

pub(crate) mod follow;
pub(crate) mod updated;
