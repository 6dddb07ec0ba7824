//! Batches of many callers, enqueued together.
//!
//! ```text
//!   callers ──gather──► waiting together ──► journal ──durable──► wakers
//!   dropping, threads       order            failure               wakers      all at random: model
//! ```
//!
//! Invariants that are shown: what was taken is appended once, in the order of each run, and everybody
//! is told what became of his turns. All but `threads` run in one thread, on a host that is driven
//! by hand, and most on a journal that is too (`world`).

mod dropping;
mod failure;
mod model;
mod order;
mod threads;
mod wakers;
mod world;
