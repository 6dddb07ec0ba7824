//! Spans of runs that are traced, for a collector: made from their histories once they have ended.
//!
//! ```text
//!   shard ── commit of the end of a traced run ──► queue [ run │ run │ … ] ──► reader folds its history ──► spans
//!                              oldest dropped ◄─┘                                       exporter (feature `otel`)
//! ```
//!
//! Invariants: nothing is made where code runs, so that a replay makes no span; the ids of spans follow from the run and
//! its operations, so that what is told twice, behind a crash say, is told under the same ids. A slow collector holds up
//! no run: the queue drops what is oldest, and counts it. An untraced run pays for one question at its end.

mod ends;
#[cfg(feature = "otel")]
mod export;
mod feed;
#[cfg(feature = "otel")]
mod otel;

pub(crate) use ends::TracedEnds;
#[cfg(feature = "otel")]
pub use export::{SpanExport, SpanExportConfig};
pub use feed::{SpanFeed, SpanFeedConfig, SpanFeedTaken};
