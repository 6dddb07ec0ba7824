//! What every crate of millrun shares: identities, time, and the seam through which the
//! outside world (clock, dice, tasks, threads) is reached.
//!
//! This crate is a leaf. It knows nothing of brokers, journals or workflows.
//!
//! ```
//! use millrun_core::{Partition, RunId, Timestamp};
//!
//! let partition = Partition::of(b"order-42");
//! let run = RunId::new(partition, Timestamp::from_micros(1_700_000_000_000_000), 7);
//! assert_eq!(run.partition(), partition);
//! ```

// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod base64;
mod bell;
mod cause;
mod host;
mod identity;
mod panic;
#[cfg(feature = "serde")]
mod serialized;
mod sync;
mod time;
mod trace;

pub use bell::Bell;
pub use cause::{Cause, CauseError};
pub use host::{
    CrashCheck, Host, Next, OnExit, Part, PartExit, PartHandle, Placement, SpawnError, Stop, Task, TaskHandle,
};
pub use identity::{Epoch, InstanceId, InstanceIdError, Offset, Partition, RunId, Sequence};
pub use panic::panic_message;
pub use time::Timestamp;
pub use trace::{SpanId, TraceContext, TraceContextError, TraceId};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
