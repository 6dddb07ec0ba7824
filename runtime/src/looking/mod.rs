//! What operators see: descriptions of runs, why one makes no progress, pages of its history, the catalogue, the parts of the
//! runtime, and durations.
//!
//! Looking changes nothing, and wakes no sleeping run unless a method says so.

pub(crate) mod at_event;
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
