//! What leaves a shard for other parts of its process once it is durable: tasks for the queues, values for the topics,
//! commands for the timers.
//!
//! Invariant: nothing here waits. What finds no room is kept in line, in a few bytes each; the rest of it stands in its run's
//! history.

pub(super) mod alarms;
pub(super) mod appending;
pub(super) mod dispatch;
pub(super) mod publishing;
mod receiving;
