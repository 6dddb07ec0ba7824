//! The partitions of a shard: which it owns and under which epochs, what is dropped with one that it loses and taken in with
//! one that it is granted, and the ways to all.
//!
//! Invariant: what a shard does for a run, it does under the epoch that the run's partition has in its table.

pub(super) mod loss;
pub(super) mod owned;
pub(super) mod ways;
