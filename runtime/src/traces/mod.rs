//! Spans of traced runs, for a collector: made from their histories after they have ended.
//!
//! ```text
//!   shard ── commit of the end of a traced run ──► queue [ run │ run │ … ] ──► reader folds its history ──► spans
//!                              oldest dropped ◄─┘                                       exporter (feature `otel`)
//! ```
//!
//! Invariants: no span is made where code runs, so a replay makes none; the ids of spans follow from the run and its
//! operations, so a run that is passed on twice, after a crash say, has the same ids. A slow collector delays no run: the
//! queue drops the oldest, and counts them. For an untraced run, the only cost is a check at its end.

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
