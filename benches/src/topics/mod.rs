//! Durable topics: what a publish costs over an append to the journal alone, what readers cost and can do, and workflows that
//! records start and signal; and the output streams of activities.
//!
//! ```text
//!   publish      N publishers ──► topic                beside it, in the same rounds: N appenders ──► journal; JetStream
//!   deliver      1 publisher  ──► topic ──► reader     beside it: 1 appender
//!   catch up     a store on disk ──► a new process ──► reader from the beginning, beside 1 publisher
//!   acknowledge  a store on disk ──► subscription ──► 1 consumer
//!   trigger      a store on disk ──► trigger ──► runs of one step    beside it: the same runs, started by callers
//!   decide       a store on disk ──► trigger ──► a run for each key ──► another topic
//!   stream       1 activity ──► output stream of its run ──► reader, in memory    beside it: a channel of tokio's
//!   stuck        N publishers ──► topic ──► reader     with, and without, a subscription that is stuck
//!   waiting      N publishers ──► topic     with few, and a million, runs that wait for other keys; then some of them are woken
//! ```
//!
//! Everything goes through the public API. Stores are durable (one fsync per group commit) and lie beside the results.
//! Where memory is measured, each sample has a process of its own, which is this program again.

mod acknowledging;
mod apart;
mod cases;
mod catching_up;
mod deciding;
mod delivering;
mod jetstream;
mod publishing;
mod records;
mod streaming;
mod stuck;
mod triggering;
mod waiting;

pub use apart::{Apart, Subject};
pub use cases::{Effort, measure};
