//! The topics of the journal in a file: what is committed, and the latest records, which stay in memory.
//!
//! ```text
//!   append ──► TopicTable ──seal──► TopicWrites ──commit──► rows (see `database::topics`)
//!                                        └── committed ───► shelves of the latest chunks, bounded together
//! ```
//!
//! Invariants: everything on a shelf is durable; a shelf ends with its topic's last durable record, or is empty.
//!
//! Left out: reading, see [`reading`]; the transaction, see [`database`](super::database::topics).

mod reading;
mod writes;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use millrun_core::{Sequence, Timestamp};
use rustc_hash::FxHashSet;

pub(in crate::redb) use self::reading::check_row;
pub(in crate::redb) use self::writes::{SealedChunk, TopicTrim, TopicTrimmed, TopicWrites, TopicsCommitted};
use super::finished::age::AgeClock;
use crate::config::JournalConfig;
use crate::topics::{FrontRow, TopicChunk, TopicHead, TopicNumber, TopicShelf, TopicTable, frame_chunk};
use crate::wire::topic_row::{self, RowHeader, StoredId, StoredTopic};

/// How many topics without queued records each commit checks for records that retention drops.
const LOOKED_AT: u32 = 16;
/// What a chunk in memory counts besides its bytes.
const CHUNK_OVERHEAD: usize = 128;

#[derive(Debug)]
pub(in crate::redb) struct RedbTopics {
    pub(in crate::redb) table: TopicTable,
    /// The latest chunks, by the numbers of topics.
    latest: Vec<TopicShelf>,
    /// The topic of each of these chunks, in the order in which they became durable.
    order: VecDeque<TopicNumber>,
    latest_bytes: usize,
    latest_bytes_max: usize,
    /// Where the next check of topics without queued records begins.
    look_from: u32,
    /// All topics must be checked.
    pub(in crate::redb) looks_at_all: bool,
}

/// A topic as it was found in the store.
#[derive(Debug)]
pub(in crate::redb) struct FoundTopic {
    /// Its row; `None` if that is missing or damaged.
    pub(in crate::redb) stored: Option<StoredTopic>,
    /// The last record that was dropped, if known.
    pub(in crate::redb) dropped: u64,
    /// Its last record; if there is none, the last that was dropped.
    pub(in crate::redb) last: u64,
    /// Bytes of all records that it has had, and of those that were dropped.
    pub(in crate::redb) bytes: u64,
    pub(in crate::redb) bytes_dropped: u64,
    pub(in crate::redb) front: Option<FrontRow>,
    /// The data on where its records begin or end are damaged: none of its records is dropped.
    pub(in crate::redb) is_blocked: bool,
}

/// All topics of a store.
#[derive(Debug, Default)]
pub(in crate::redb) struct FoundTopics {
    pub(in crate::redb) topics: Vec<FoundTopic>,
    /// Rows of ids: the number of the first, and the ids.
    pub(in crate::redb) ids: Vec<(u64, Vec<StoredId>)>,
    /// Rows of ids that cannot be read: the number of the first, and why.
    pub(in crate::redb) damaged_ids: Vec<(u64, String)>,
}

impl RedbTopics {
    pub(in crate::redb) fn new(config: &JournalConfig, found: FoundTopics) -> Self {
        let mut table = TopicTable::new(config.topics_len_max, config.topic_ids_len_max);
        for topic in found.topics {
            let number = match topic.stored {
                Some(stored) => table.restore(stored),
                None => table.restore_nameless(topic.dropped),
            };
            let head = table.head_mut(number).expect("it was restored");
            (head.last, head.durable) = (topic.last, topic.last);
            (head.bytes_durable, head.bytes_dropped) = (topic.bytes, topic.bytes_dropped);
            (head.bytes_appended, head.bytes_sealed) = (topic.bytes, topic.bytes);
            (head.front, head.is_blocked) = (topic.front, topic.is_blocked);
        }
        for (first, ids) in found.ids {
            table.ids.restore(first, ids.into_iter());
        }
        Self {
            table,
            latest: Vec::new(),
            order: VecDeque::new(),
            latest_bytes: 0,
            latest_bytes_max: config.topic_latest_bytes_max,
            look_from: 0,
            looks_at_all: false,
        }
    }

    /// Takes what belongs to the next commit; `None` if there is nothing.
    pub(in crate::redb) fn seal(
        &mut self,
        age: &mut AgeClock,
        elapsed: Duration,
    ) -> Option<Box<TopicWrites>> {
        if self.table.len() == 0 {
            return None;
        }
        let mut looked_at = self.look_at_next();
        // Purged records are removed at the next commit.
        looked_at.extend(self.table.changed());
        let is_idle = self.table.queued_len == 0 && !self.table.has_changed();
        if is_idle && !self.has_due(&looked_at, age.now()) {
            return None;
        }
        let mut chunks = Vec::new();
        for queued in self.table.seal() {
            let head = self
                .table
                .head_mut(queued.topic)
                .expect("it was queued for a topic");
            let header = RowHeader {
                len: queued.len,
                before: head.bytes_sealed,
                last: age.see(queued.last, elapsed),
            };
            head.bytes_sealed += queued.frames().len() as u64;
            let mut row = queued.row;
            topic_row::put_header(&mut row, queued.topic, queued.first, header);
            row.shrink_to_fit();
            chunks.push(SealedChunk {
                topic: queued.topic,
                first: queued.first,
                header,
                row: row.into(),
            });
        }
        let trims = self.trims(&chunks, looked_at, age.now());
        let (ids_first, ids, ids_low) = self.table.ids.seal();
        Some(Box::new(TopicWrites {
            topics: self.table.seal_changed(),
            chunks,
            ids: (!ids.is_empty()).then(|| (ids_first, topic_row::ids(ids_first, &ids))),
            ids_low,
            trims,
        }))
    }

    /// The topics that this commit checks for records that retention drops. All topics come in turn.
    fn look_at_next(&mut self) -> Vec<TopicNumber> {
        let len = u32::try_from(self.table.len()).unwrap_or(u32::MAX);
        let most = if std::mem::take(&mut self.looks_at_all) {
            len
        } else {
            len.min(LOOKED_AT)
        };
        let from = self.look_from;
        self.look_from = (from + most) % len.max(1);
        (0..most).map(|at| TopicNumber::new((from + at) % len)).collect()
    }

    /// Whether one of these topics has something to drop, also if nothing is queued.
    fn has_due(&self, looked_at: &[TopicNumber], now: Timestamp) -> bool {
        let is_due = |number: &TopicNumber| self.table.head(*number).is_some_and(|head| head.is_due(now));
        looked_at.iter().any(is_due)
    }

    /// Whether any topic has a row that retention does not keep at `now`.
    pub(in crate::redb) fn is_due(&self, now: Timestamp) -> bool {
        self.table.iter().any(|(_, head)| head.is_due(now))
    }

    /// The topics that must be trimmed with a commit of these chunks.
    fn trims(
        &self,
        chunks: &[SealedChunk],
        mut looked_at: Vec<TopicNumber>,
        now: Timestamp,
    ) -> Vec<TopicTrim> {
        // The checked ones come first: a commit drops a bounded number of rows, and all topics come in turn.
        looked_at.extend(chunks.iter().map(|chunk| chunk.topic));
        let mut seen = FxHashSet::default();
        let numbers = looked_at.into_iter().filter(|number| seen.insert(*number));
        let due = numbers.filter_map(|number| {
            let head = self.table.head(number).filter(|head| head.is_due(now))?;
            Some(TopicTrim {
                topic: number,
                stored: head.stored(),
                last: head.durable,
                bytes: head.bytes_durable,
                bytes_dropped: head.bytes_dropped,
                read_through: head.read_through(),
                now,
            })
        });
        due.collect()
    }

    /// Notes that these writes are durable.
    pub(in crate::redb) fn committed(&mut self, writes: &TopicWrites, committed: &TopicsCommitted) {
        for chunk in &writes.chunks {
            let head = self
                .table
                .head_mut(chunk.topic)
                .expect("it was queued for a topic");
            // If there are rows and the first is not known, it stays unknown.
            if head.front.is_none() && head.durable <= head.dropped {
                head.front = Some(chunk.as_front());
            }
            head.durable = chunk.end();
            head.bytes_durable += chunk.frames().len() as u64;
            self.put_latest(chunk);
        }
        for trimmed in &committed.trimmed {
            let head = self.table.head_mut(trimmed.topic).expect("it was trimmed");
            // A purge may have happened in between.
            head.dropped = head.dropped.max(trimmed.dropped);
            head.bytes_dropped = trimmed.bytes_dropped;
            // If the first of the existing rows was not found, none can be dropped.
            let is_lost = trimmed.front.is_none() && head.durable > head.dropped;
            (head.front, head.is_blocked) = (trimmed.front, trimmed.is_blocked || is_lost);
            if head.is_blocked {
                tracing::error!(
                    topic = %head.name, behind = trimmed.dropped,
                    "retention has stopped for a topic: its first row is damaged or missing; it grows until the store is mended"
                );
            }
        }
    }

    fn put_latest(&mut self, chunk: &SealedChunk) {
        let index = index(chunk.topic);
        if self.latest.len() <= index {
            self.latest.resize_with(index + 1, TopicShelf::default);
        }
        let latest = chunk.as_chunk();
        self.latest_bytes += latest.bytes() + CHUNK_OVERHEAD;
        self.latest[index].push(latest, chunk.header.last);
        self.order.push_back(chunk.topic);
        while self.latest_bytes > self.latest_bytes_max {
            let Some(topic) = self.order.pop_front() else {
                break;
            };
            if let Some(gone) = self.latest[usize::try_from(topic.get()).unwrap_or(usize::MAX)].pop_first() {
                self.latest_bytes -= gone.bytes() + CHUNK_OVERHEAD;
            }
        }
    }

    /// The durable chunks after `after`, if they are in memory.
    pub(in crate::redb) fn latest(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Option<Vec<TopicChunk>> {
        let durable = Sequence::new(self.table.head(topic).map_or(0, |head| head.durable));
        match self.latest.get(index(topic)) {
            Some(shelf) => shelf.page(after, durable, bytes_max),
            None => (after >= durable).then(Vec::new),
        }
    }

    /// Whether the data on where a topic's records begin are damaged.
    pub(in crate::redb) fn is_blocked(&self) -> bool {
        self.table.iter().any(|(_, head)| head.is_blocked)
    }
}

impl SealedChunk {
    pub(in crate::redb) fn frames(&self) -> &[u8] {
        &self.row[topic_row::HEADER_BYTES..]
    }

    /// Its last record.
    pub(in crate::redb) fn end(&self) -> u64 {
        self.first + u64::from(self.header.len) - 1
    }

    pub(in crate::redb) fn as_chunk(&self) -> TopicChunk {
        let frames = self.row.slice(topic_row::HEADER_BYTES..);
        frame_chunk(Sequence::new(self.first), self.header.len, frames)
    }

    fn as_front(&self) -> FrontRow {
        FrontRow {
            end: self.end(),
            bytes_end: self.header.before + self.frames().len() as u64,
            last: self.header.last,
        }
    }
}

/// The queued records of a topic after `after`, as they would be read.
pub(in crate::redb) fn queued_chunks(
    table: &TopicTable,
    topic: TopicNumber,
    after: u64,
) -> impl Iterator<Item = TopicChunk> + '_ {
    table.queued(topic, after).map(|queued| {
        let frames = Bytes::copy_from_slice(queued.frames());
        frame_chunk(Sequence::new(queued.first), queued.len, frames)
    })
}

/// How many records after `after` retention has dropped.
pub(in crate::redb) fn dropped(head: &TopicHead, after: Sequence) -> u64 {
    head.dropped.saturating_sub(after.get())
}

fn index(number: TopicNumber) -> usize {
    usize::try_from(number.get()).unwrap_or(usize::MAX)
}
