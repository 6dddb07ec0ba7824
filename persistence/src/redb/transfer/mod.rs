//! A whole store as lines of JSON, and back.
//!
//! ```text
//!   export:  finished runs in the order of closing, then live ones ──► file.new ──► sync, rename
//!   import:  lines ──► turns ──► JournalState (the same checks as ever) ──► commits into store.new ──► rename
//! ```
//!
//! Kept: every record of every run, and the order in which runs closed. Not kept: how turns of one time were grouped, epochs,
//! snapshots, and which runs were dropped.

mod export;
mod import;

pub use self::export::Exported;
pub use self::import::{ImportError, Imported, import};

/// How much of a history is in memory at a time, and how much is committed at a time.
const PAGE_BYTES: usize = 4 << 20;
