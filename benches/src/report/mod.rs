//! Results as one page, and two sets of results against each other.
//!
//! ```text
//!   target/bench/*.json, *.svg ──► SuiteResult ──┬──► report.html (one self-contained file)
//!                                                ├──► report.md
//!   another folder ──────────────► SuiteResult ──┴──► what moved by more than the noise
//! ```
//!
//! Everything here reads the files that the suites wrote; it knows no suite by name. So a row
//! must say everything about itself, and a new suite needs no change here.

mod beside;
mod compare;
mod grid;
mod page;
mod results;

pub use beside::{Beside, allocators, engines};
pub use compare::{Change, Comparison, Tolerance, compare};
#[cfg(feature = "suites")]
pub(crate) use page::escaped;
pub use page::{html, markdown};
pub use results::SuiteResult;
pub(crate) use results::charts_of;
