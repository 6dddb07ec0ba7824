//! The log of turns in a moment of the store: where it begins, its rows, their frames, and what in it is damaged.
//!
//! Invariant: the log is the truth; nothing here writes.

pub(in crate::redb) mod damaged;
pub(in crate::redb) mod frames;
pub(in crate::redb) mod lanes;
pub(in crate::redb) mod listing;
pub(in crate::redb) mod log;
pub(in crate::redb) mod row;
