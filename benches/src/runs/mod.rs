//! Runs of workflows, whoever's: closed loops of clients, what they took, and rows of that.
//!
//! This part knows no engine, so that programs for others' engines can use it.

mod row;
mod saturate;

pub use row::{Level, Row, Store, table};
pub use saturate::{Sample, Saturation, saturate};
