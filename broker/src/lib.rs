//! An in-process topic broker: typed topics, bounded subscriptions, backpressure.

pub mod mailbox;

mod sync;
