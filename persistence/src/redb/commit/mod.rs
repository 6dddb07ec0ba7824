//! From queued turns to a commit: the writer, when it commits, and what goes with a commit.
//!
//! Invariant: only the writer writes.

pub(crate) mod convoy;

pub(in crate::redb) mod archive;
pub(in crate::redb) mod held;
pub(in crate::redb) mod queued;
pub(in crate::redb) mod settle;
pub(in crate::redb) mod snapshots;
pub(in crate::redb) mod unwritten;
pub(in crate::redb) mod writer;
