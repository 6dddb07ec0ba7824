//! Placeholder.

mod host;

pub use host::{HostConfig, HostError, PartInfo, StillRunning, TokioHost};
