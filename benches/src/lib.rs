//! What the benchmark programs share, and the workloads themselves.
//!
//! ```text
//!   contestants ──► rounds ──► rows ──┬──► tables on the terminal
//!   (one sample      (interleaved,    ├──► target/bench/<suite>.json
//!    at a time)       medians)        └──► bars ──► target/bench/<suite>-bars.json
//! ```
//!
//! A *suite* is one program (`bench-a2a`); a *cell* is one combination of sizes; a *row* is what
//! one contestant did in one cell. A row says everything that is needed to read it alone.

mod bars;
mod error;
mod machine;
mod output;
mod plots;
mod progress;
mod rounds;
mod tables;

pub mod a2a;
pub mod workflows;

pub use bars::{Bars, Verdict};
pub use error::BenchError;
pub use machine::{ALLOCATOR, Machine, locked_version};
pub use output::Output;
pub use plots::BarChart;
pub use progress::Progress;
pub use rounds::{Spread, interleaved};
pub use tables::{Table, approximate, grouped};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;
