//! The file below redb: what a store reads and writes with, and what it does about space and power cuts.
//!
//! Invariant: nothing here knows of redb's tables or of the journal.

pub(crate) mod disk;

pub(in crate::redb) mod backend;
pub(in crate::redb) mod cut_off;
pub(in crate::redb) mod loss;
pub(crate) mod overlay;
pub(in crate::redb) mod room;
pub(in crate::redb) mod system;
pub(in crate::redb) mod zero_ahead;
