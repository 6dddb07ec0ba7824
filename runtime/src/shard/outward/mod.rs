//! What leaves a shard for other parts of its process, when it is durable: tasks for the queues, values for the topics, what
//! is wanted of the timers.
//!
//! Invariant: nothing here waits. What finds no room is kept in line, in a few bytes; all else of it stands in the history
//! of its run.

pub(super) mod alarms;
pub(super) mod appending;
pub(super) mod dispatch;
pub(super) mod publishing;
mod receiving;
