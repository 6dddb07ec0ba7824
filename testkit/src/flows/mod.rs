//! Records the envelopes that pass through a broker.
//!
//! ```text
//!   broker ──steps──► book: envelope → (subscription → fate), causes
//!                      │ wakes                    │
//!                      ▼                          ▼
//!                    settle()         flow_of, chain_of, assert_…
//! ```
//!
//! Invariants:
//!
//! - What is kept is bounded by [`FlowConfig::steps_max`].
//! - No envelope is kept: a recorded program sees the same reference counts as without a recorder.
//! - `settle` is ready only if at some moment after the call nothing moved.
//!
//! Left out on purpose: time. A recorder neither sleeps nor asks for the time.

mod book;
mod chain;
mod config;
mod expect;
mod flow;
mod recorder;
mod settle;

pub use chain::{Chain, Link};
pub use config::FlowConfig;
pub use expect::Subscriber;
pub use flow::{Delivery, Fate, Flow, Kept};
pub use recorder::FlowRecorder;
pub use settle::Unsettled;
