//! Which partitions this runtime owns: what it claims, gives back and loses.
//!
//! Nothing outside of this folder decides about ownership. A shard learns of it by news, and keeps the epochs of its own
//! partitions in a table (`shard/partitions`).

pub(crate) mod claims;
pub(crate) mod partition_set;
pub(crate) mod partitions;
