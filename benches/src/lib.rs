//! What the benchmark programs share, and the workloads themselves.
//!
//! ```text
//!   contestants ──► rounds ──► rows ──┬──► tables on the terminal
//!   (one sample      (interleaved,    ├──► target/bench/<suite>.json
//!    at a time)       medians)        └──► bars ──► target/bench/<suite>-bars.json
//! ```
//!
//! The suites themselves are behind the feature `suites`, on by default; without it this is only
//! what they share, for programs that measure other engines.
//!
//! A *suite* is one program (`bench-a2a`); a *cell* is one combination of sizes; a *row* is what
//! one contestant did in one cell. A row says everything that is needed to read it alone.

mod bars;
mod error;
mod machine;
mod measured;
mod output;
mod plots;
mod process;
mod program;
mod progress;
mod rounds;
mod stores;
mod tables;

#[cfg(feature = "suites")]
pub mod a2a;
#[cfg(feature = "suites")]
pub mod entities;
#[cfg(feature = "suites")]
pub mod figures;
#[cfg(feature = "suites")]
pub mod http;
#[cfg(feature = "suites")]
pub mod instructions;
#[cfg(feature = "suites")]
pub mod journal;
#[cfg(feature = "suites")]
pub mod profile;
#[cfg(feature = "suites")]
pub mod scale;
#[cfg(feature = "scale-out")]
pub mod scale_out;
#[cfg(feature = "suites")]
pub mod topics;
#[cfg(feature = "suites")]
pub mod workflows;

pub mod report;
pub mod runs;

pub use bars::{Bars, Verdict};
pub use error::BenchError;
pub use machine::{ALLOCATOR, Machine, locked_version};
pub use measured::{Failure, Measured};
pub use output::Output;
pub use plots::{Axis, BarChart, Chart, LineChart};
pub use process::{
    cpu_time, end_with_parent, free_bytes, raise_file_limit, resident_bytes, resident_bytes_of, written_bytes,
};
pub use program::{CommonArguments, Program, ThreadArguments, exit, workers};
pub use progress::Progress;
pub use rounds::{Spread, Turns, each_interleaved, interleaved};
pub use stores::{StoreFolder, end_after, store_in};
pub use tables::{Table, approximate, grouped};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;
