//! Topics whose envelopes a journal keeps: streams of records beside the histories, in the same commits.
//!
//! ```text
//!   Batch ── turns ───────────► histories        ┐
//!     └───── topic records ───► one stream each  ┴─ one commit: both, or neither
//!
//!   stream   │ 1 2 3 ... dropped │ first ............................ last │
//!                 by retention           on disk          └── latest, in memory
//! ```
//!
//! A topic's records are numbered from 1, without gaps, in the order in which the journal takes them. Each names the partition
//! that it belongs to: a store of one process has one order for all, which a store that several processes share need
//! not have across partitions.
//!
//! Left out on purpose: who has read how far, and what a body means.

mod ids;
mod number;
mod record;
mod retention;
mod shelf;
mod streams;
mod table;

pub(crate) use self::ids::IdWindow;
pub use self::number::TopicNumber;
pub(crate) use self::record::frame_chunk;
pub use self::record::{TopicChunk, TopicPage, TopicRecord, TopicRecords};
pub use self::retention::TopicRetention;
pub(crate) use self::shelf::TopicShelf;
pub use self::streams::{LatestRecords, TopicAppend, TopicStreams, TopicSummary};
pub(crate) use self::table::{FrontRow, TopicHead, TopicTable};
