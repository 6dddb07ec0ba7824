//! Durable topics: what a publish costs over an append to the journal alone, and what readers cost and can do.
//!
//! ```text
//!   publish    N publishers ──► topic                    beside it, in the same rounds: N appenders ──► journal
//!   deliver    1 publisher  ──► topic ──► reader         beside it: 1 appender
//!   catch up   a store on disk ──► a new process ──► reader from the beginning
//!   stuck      N publishers ──► topic ──► a reader that keeps up    with, and without, one that does not read on
//! ```
//!
//! Everything goes through the public API. Stores are durable (one fsync per group commit) and lie beside the results.
//! Where memory is measured, each sample has a process of its own, which is this program again.

mod apart;
mod cases;
mod catching_up;
mod delivering;
mod publishing;
mod records;
mod stuck;

pub use apart::{Apart, Subject};
pub use cases::{Effort, measure};
