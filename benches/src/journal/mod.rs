//! How fast is the journal, and what does it add to a bare commit?
//!
//! ```text
//!   N tasks ──► Appender ──► journal ──► one redb file        beside it, in the same rounds:
//!   each: append one event, wait until it is durable, again    redb alone, fdatasync alone
//! ```
//!
//! Every figure says what a crash would lose: a rate without its sync setting is not a rate.

mod appenders;
mod floor;
mod recovery;
mod row;
mod runner;
mod sustained;

pub(crate) use appenders::{Appends, append_to_file};
pub(crate) use recovery::fill_and_recover;
pub(crate) use row::Sample;
pub use row::{Row, charts, tables};
pub use runner::{Effort, Runner};
