//! The layer below redb: how a store reads and writes, and how it handles a full disk and power cuts.
//!
//! Invariant: nothing here depends on redb's tables or on the journal.

pub(crate) mod disk;

pub(in crate::redb) mod backend;
pub(in crate::redb) mod cut_off;
pub(in crate::redb) mod loss;
pub(crate) mod overlay;
pub(in crate::redb) mod room;
pub(in crate::redb) mod system;
pub(in crate::redb) mod zero_ahead;
