//! The index of finished runs: in memory, in the store, and the searches among them.
//!
//! Invariant: all of it can be rebuilt from the log and the settled rows.

pub(in crate::redb) mod age;
pub(in crate::redb) mod filter;
pub(in crate::redb) mod finished_runs;
pub(in crate::redb) mod index;
pub(in crate::redb) mod outline;
pub(in crate::redb) mod searching;
pub(in crate::redb) mod segment;
pub(in crate::redb) mod settler;
