//! What one commit writes of topics, and the result.

use bytes::Bytes;
use millrun_core::Timestamp;

use crate::topics::{FrontRow, TopicNumber};
use crate::wire::topic_row::{RowHeader, StoredTopic};

/// Everything that belongs to one commit.
#[derive(Debug, Default)]
pub(in crate::redb) struct TopicWrites {
    /// Rows of topics themselves.
    pub(in crate::redb) topics: Vec<(TopicNumber, Vec<u8>)>,
    /// Records, those of a topic in their order.
    pub(in crate::redb) chunks: Vec<SealedChunk>,
    /// A row of ids with the number of the first.
    pub(in crate::redb) ids: Option<(u64, Vec<u8>)>,
    /// The number of the first remembered id.
    pub(in crate::redb) ids_low: u64,
    /// Topics from which retention drops records.
    pub(in crate::redb) trims: Vec<TopicTrim>,
}

/// Records of a topic as the row in which they are stored.
#[derive(Clone, Debug)]
pub(in crate::redb) struct SealedChunk {
    pub(in crate::redb) topic: TopicNumber,
    pub(in crate::redb) first: u64,
    pub(in crate::redb) header: RowHeader,
    pub(in crate::redb) row: Bytes,
}

/// A topic from which retention drops what it does not keep at `now`.
#[derive(Debug)]
pub(in crate::redb) struct TopicTrim {
    pub(in crate::redb) topic: TopicNumber,
    pub(in crate::redb) stored: StoredTopic,
    /// Its last durable record, before this commit.
    pub(in crate::redb) last: u64,
    /// Bytes of all records that it has had by then, and of the dropped ones.
    pub(in crate::redb) bytes: u64,
    pub(in crate::redb) bytes_dropped: u64,
    /// All records up to this one have been read by every reader.
    pub(in crate::redb) read_through: u64,
    pub(in crate::redb) now: Timestamp,
}

/// What a commit has done to topics.
#[derive(Debug, Default)]
pub(in crate::redb) struct TopicsCommitted {
    pub(in crate::redb) trimmed: Vec<TopicTrimmed>,
}

/// Where a topic begins after retention has dropped some of its records.
#[derive(Debug)]
pub(in crate::redb) struct TopicTrimmed {
    pub(in crate::redb) topic: TopicNumber,
    /// The last record that was dropped.
    pub(in crate::redb) dropped: u64,
    pub(in crate::redb) bytes_dropped: u64,
    /// The first remaining row; `None` if there is none, or it is not known.
    pub(in crate::redb) front: Option<FrontRow>,
    /// The first row cannot be read.
    pub(in crate::redb) is_blocked: bool,
}

impl TopicWrites {
    /// Bytes of the records.
    pub(in crate::redb) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.frames().len() as u64).sum()
    }
}
