//! What an operator is shown: descriptions of runs, why one does not go on, pages of its history, what is registered,
//! the parts of the runtime, and how long things take.
//!
//! Looking changes nothing, and wakes no run that sleeps on disk, unless a method says so.

pub(crate) mod catalogue;
pub(crate) mod changes;
pub(crate) mod counts;
pub(crate) mod describe;
pub(crate) mod durations;
pub(crate) mod entities;
mod exporting;
pub(crate) mod find;
pub(crate) mod pages;
pub(crate) mod parts;
pub(crate) mod trace;
pub(crate) mod versions;
pub(crate) mod why;
