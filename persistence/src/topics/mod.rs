//! Topics whose records a journal keeps: streams of records beside the histories, in the same commits.
//!
//! ```text
//!   Batch ── turns ───────────► histories        ┐
//!     └───── topic records ───► one stream each  ┴─ one commit: both, or neither
//!
//!   stream   │ 1 2 3 ... dropped │ first ............................ last │
//!                 by retention           on disk          └── latest, in memory
//! ```
//!
//! A topic's records are numbered from 1, without gaps, in the order in which the journal takes them. Each names the
//! partition that it belongs to: the store of one process has one order for all partitions, but a store that several
//! processes share need not.
//!
//! A purge drops records that retention would keep: they count as dropped at once, and their rows are removed like those that
//! retention drops. A deleted topic is a purged one that has lost its name; its number is not used again. A renamed topic
//! keeps its number, and leaves a deleted topic under its former name, so that a new topic of that name continues with higher
//! record numbers.
//!
//! Retention can hold back unread records. The code that keeps the readers' places tells the journal how far each reader has
//! read, and the journal forgets that when it is closed: after an opening every record counts as unread until the journal is
//! told again.
//!
//! Left out on purpose: the meaning of bodies, also of a record with a reader's place.

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
