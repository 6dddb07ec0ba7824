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
//! A purge drops records whatever retention keeps: they count as dropped at once, and their rows go as those do that retention
//! drops. A deleted topic is one that is purged and has lost its name; its number stays taken. A renamed topic keeps its number,
//! and leaves a deleted one under its former name, so that numbers of records go on there.
//!
//! Retention can hold back what has not been read. Who has read how far the journal is told by those who keep readers' places,
//! and it forgets that when it is closed: a store that was opened takes every record for unread until it is told again.
//!
//! Left out on purpose: what a body means, also that of a record with a reader's place.

mod ids;
mod number;
mod readers;
mod record;
mod register;
mod retention;
mod shelf;
mod streams;
mod table;

pub(crate) use self::ids::IdWindow;
pub(crate) use self::number::TOPIC_NUMBERS_MAX;
pub use self::number::TopicNumber;
pub use self::record::{TopicChunk, TopicPage, TopicRecord, TopicRecords};
pub(crate) use self::record::{frame_chunk, without_purged};
pub use self::register::{
    SealedTopics, StoredTopicId, StoredTopicName, StoredTopicRow, TopicDrops, TopicRegister, TopicRowOutline,
    topic_page,
};
pub use self::retention::TopicRetention;
pub(crate) use self::shelf::TopicShelf;
pub use self::streams::{LatestRecords, PurgedRecords, TopicAppend, TopicRename, TopicStreams, TopicSummary};
pub(crate) use self::table::{FrontRow, TopicHead, TopicTable};
