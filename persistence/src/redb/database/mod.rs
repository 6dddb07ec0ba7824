//! redb's tables, and the moments in which they are read.
//!
//! Invariant: transactions begin and end only in this module.

pub(crate) mod slice;
pub(crate) mod store;

pub(in crate::redb) mod guard;
pub(in crate::redb) mod kept;
pub(in crate::redb) mod moment;
pub(in crate::redb) mod tables;
pub(in crate::redb) mod topics;
