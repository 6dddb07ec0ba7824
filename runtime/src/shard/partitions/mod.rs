//! The partitions of a shard: which it owns and under which epochs, what it drops with a lost one and takes in with a granted
//! one, and the ways to other partitions.
//!
//! Invariant: what a shard does for a run, it does under the epoch that the run's partition has in its table.

pub(super) mod loss;
pub(super) mod owned;
pub(super) mod ways;
