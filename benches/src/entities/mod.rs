//! Entities: how many commands a second, over many keys and to one, beside signals to one run and runs of one step.
//!
//! ```text
//!   N callers, each with its next request when the last one is durable ──► millrun, through its public API
//! ```
//!
//! All four in each round, each with a store of its own beside the results (one fsync per group commit), so that ratios
//! hold whatever the disk does.

mod cases;
mod definitions;

pub use cases::{Effort, measure};
