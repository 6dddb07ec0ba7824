//! Runs of workflows of any engine: closed loops of clients, what they took, and rows of that.
//!
//! This part knows no engine, so that programs for others' engines can use it.

mod peer;
mod row;
mod saturate;

pub use peer::{NOT_RUN, PEERS, PeerArguments, Setting, Shape, Workload, measure_peer, not_run};
pub use row::{Level, Row, Store, charts, table};
pub use saturate::{Sample, Saturation, saturate};
