//! The topics of a journal that keeps their rows in its own store: which there are, what is queued for them, which rows can
//! be removed, and the latest records.
//!
//! ```text
//!   declare, append ─► queued ─ seal ─► rows, ids, changed topics ─► the store ─ landed ─► durable, latest
//!                                                    ▲
//!                       drop_due ─► rows that go ────┘     fill ◄─ the earliest rows of a topic
//! ```
//!
//! A pure machine, for journals in other crates, like [`OwnerTable`]. The journal keeps it under its lock, and calls it in
//! the order in which its commits become durable. A journal that fails is opened anew: nothing is undone here.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use millrun_core::{Sequence, Timestamp};

use super::{
    FrontRow, LatestRecords, PurgedRecords, TopicAppend, TopicChunk, TopicNumber, TopicPage, TopicRename,
    TopicRetention, TopicShelf, TopicSummary, TopicTable, frame_chunk, without_purged,
};
use crate::batch::Batch;
use crate::config::JournalConfig;
use crate::error::{ReadError, TopicChangeRefused, TopicRefused};
use crate::journal::RefusedTurn;
use crate::owners::OwnerTable;
use crate::wire::topic_row::{StoredId, StoredTopic};

/// How many of a topic's earliest rows are read at a time, and have their outlines in memory.
const FRONT_LEN_MAX: usize = 64;

/// What a chunk in memory counts besides its bytes.
const CHUNK_OVERHEAD_BYTES: usize = 128;

/// The topics of a journal, and what is queued for them; see the module's documentation.
#[derive(Debug)]
pub struct TopicRegister {
    table: TopicTable,
    /// By the numbers of topics.
    fronts: Vec<TopicFront>,
    shelves: Vec<TopicShelf>,
    /// The topic of each chunk on the shelves and how much it counts, the earliest first.
    shelved: VecDeque<(TopicNumber, usize)>,
    shelved_bytes: usize,
    latest_bytes_max: usize,
    /// Topics with rows that may have to be removed.
    candidates: BTreeSet<TopicNumber>,
}

/// The earliest rows of a topic.
#[derive(Debug, Default)]
struct TopicFront {
    rows: VecDeque<TopicRowOutline>,
    /// All existing rows up to this record are known.
    until: u64,
}

/// A topic's own row, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTopicName {
    /// Its number.
    pub number: TopicNumber,
    /// Its name; for a deleted topic a zero byte and its former name.
    pub name: String,
    /// How long its records are kept.
    pub retention: TopicRetention,
    /// The last record that was dropped.
    pub dropped: Sequence,
}

/// The records of a topic that are in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTopicRow {
    /// The topic.
    pub topic: TopicNumber,
    /// The sequence of the first record.
    pub first: Sequence,
    /// How many records there are, at least one.
    pub len: u32,
    /// The time of the last record.
    pub last: Timestamp,
    /// The records, each with a checksum.
    pub frames: Bytes,
}

/// A row without its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicRowOutline {
    /// The sequence of its first record.
    pub first: Sequence,
    /// The sequence of its last record.
    pub end: Sequence,
    /// Bytes of its records.
    pub bytes: u64,
    /// The time of its last record.
    pub last: Timestamp,
}

/// An id by which a repeated record is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredTopicId {
    /// Ids are numbered in the order in which they were taken.
    pub number: u64,
    /// The topic of the record.
    pub topic: TopicNumber,
    /// The id.
    pub id: u128,
    /// The sequence of the record.
    pub sequence: Sequence,
}

/// What was queued, to be stored with one commit.
#[derive(Clone, Debug, Default)]
pub struct SealedTopics {
    /// New rows, those of a topic in order.
    pub rows: Vec<StoredTopicRow>,
    /// New ids.
    pub ids: Vec<StoredTopicId>,
    /// Ids with lower numbers are forgotten.
    pub ids_from: u64,
}

/// Rows to remove, and rows that must be read first.
#[derive(Clone, Debug, Default)]
pub struct TopicDrops {
    /// The rows to remove, by their topics and first records.
    pub rows: Vec<(TopicNumber, Sequence)>,
    /// The earliest rows of this topic after this record must be [filled in](TopicRegister::fill); then call again.
    pub unknown: Option<(TopicNumber, Sequence)>,
}

fn index(number: TopicNumber) -> usize {
    usize::try_from(number.get()).unwrap_or(usize::MAX)
}

impl TopicRegister {
    /// A register without topics; the bounds are those of the journal.
    #[must_use]
    pub fn new(config: &JournalConfig) -> Self {
        Self {
            table: TopicTable::new(config.topics_len_max, config.topic_ids_len_max),
            fronts: Vec::new(),
            shelves: Vec::new(),
            shelved: VecDeque::new(),
            shelved_bytes: 0,
            latest_bytes_max: config.topic_latest_bytes_max,
            candidates: BTreeSet::new(),
        }
    }

    /// Adds a stored topic: they come in the order of their numbers, which have no gap. `last` is the last record in its
    /// rows, if there are any, and `bytes` those of all its rows. `false` if the number is not the next.
    pub fn restore(&mut self, stored: StoredTopicName, last: Option<Sequence>, bytes: u64) -> bool {
        if index(stored.number) != self.table.len() {
            return false;
        }
        let number = self.table.restore(StoredTopic {
            name: stored.name,
            retention: stored.retention,
            dropped: stored.dropped.get(),
        });
        let head = self.table.head_mut(number).expect("it was restored");
        let last = last.map_or(head.dropped, |last| last.get().max(head.dropped));
        (head.last, head.durable) = (last, last);
        (head.bytes_appended, head.bytes_durable) = (bytes, bytes);
        if bytes > 0 {
            self.candidates.insert(number);
        }
        true
    }

    /// Adds the stored ids, in the order of their numbers.
    pub fn restore_ids(&mut self, ids: impl IntoIterator<Item = StoredTopicId>) {
        for stored in ids {
            let id = StoredId {
                topic: stored.topic,
                id: stored.id,
                sequence: stored.sequence.get(),
            };
            self.table.ids.restore(stored.number, std::iter::once(id));
        }
    }

    /// See [`TopicStreams::declare`](super::TopicStreams::declare).
    ///
    /// # Errors
    /// As there.
    pub fn declare(&mut self, name: &str, retention: TopicRetention) -> Result<TopicNumber, TopicRefused> {
        let number = self.table.declare(name, retention)?;
        self.candidates.insert(number);
        Ok(number)
    }

    /// See [`TopicStreams::purge`](super::TopicStreams::purge); the journal itself knows the offset.
    ///
    /// # Errors
    /// As there.
    pub fn purge(
        &mut self,
        topic: TopicNumber,
        through: Sequence,
    ) -> Result<PurgedRecords, TopicChangeRefused> {
        let (count, first) = self.table.purge(topic, through, false)?;
        self.candidates.insert(topic);
        let offset = millrun_core::Offset::ZERO;
        Ok(PurgedRecords { count, first, offset })
    }

    /// See [`TopicStreams::delete`](super::TopicStreams::delete).
    ///
    /// # Errors
    /// As there.
    pub fn delete(&mut self, topics: &[TopicNumber]) -> Result<(), TopicChangeRefused> {
        self.table.delete(topics)?;
        self.candidates.extend(topics);
        Ok(())
    }

    /// See [`TopicStreams::replace`](super::TopicStreams::replace).
    ///
    /// # Errors
    /// As there.
    pub fn replace(
        &mut self,
        topic: TopicNumber,
        from_to: (&str, &str),
        retention: TopicRetention,
    ) -> Result<(), TopicChangeRefused> {
        self.table.replace(topic, from_to, retention, false)?;
        self.candidates.insert(topic);
        Ok(())
    }

    /// See [`TopicStreams::rename`](super::TopicStreams::rename).
    ///
    /// # Errors
    /// As there.
    pub fn rename(
        &mut self,
        renames: &[TopicRename],
        deleted: &[TopicNumber],
    ) -> Result<(), TopicChangeRefused> {
        self.table.rename(renames, deleted)?;
        self.candidates.extend(deleted);
        Ok(())
    }

    /// See [`TopicStreams::note_reader`](super::TopicStreams::note_reader).
    pub fn note_reader(&mut self, topic: TopicNumber, reader: TopicNumber, through: Sequence) {
        self.table.note_reader(topic, reader, through);
        if index(topic) < self.table.len() {
            self.candidates.insert(topic);
        }
    }

    /// See [`TopicStreams::all_readers_noted`](super::TopicStreams::all_readers_noted).
    pub fn all_readers_noted(&mut self, topic: TopicNumber) {
        self.table.all_readers_noted(topic);
        if index(topic) < self.table.len() {
            self.candidates.insert(topic);
        }
    }

    /// See [`TopicStreams::list`](super::TopicStreams::list).
    #[must_use]
    pub fn list(&self) -> Vec<TopicSummary> {
        let numbers = self.table.iter().map(|(number, _)| number);
        numbers.filter_map(|number| self.summary(number)).collect()
    }

    /// See [`TopicStreams::summary`](super::TopicStreams::summary).
    #[must_use]
    pub fn summary(&self, topic: TopicNumber) -> Option<TopicSummary> {
        self.table.summary(topic, false)
    }

    /// See [`TopicStreams::appended_with`](super::TopicStreams::appended_with).
    #[must_use]
    pub fn appended_with(&self, topic: TopicNumber, id: u128) -> Option<Sequence> {
        self.table.appended_with(topic, id)
    }

    /// How many topics there are, and bytes of their durable records.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.table.named_len() as u64, self.table.bytes())
    }

    /// How many records are queued, and their bytes.
    #[must_use]
    pub fn queued(&self) -> (usize, usize) {
        (self.table.queued_len, self.table.queued_bytes)
    }

    /// Takes the records of topics of a batch, of which these turns were refused; returns the outcome of each.
    pub fn append(
        &mut self,
        batch: &Batch,
        refused: &[RefusedTurn],
        owners: &OwnerTable,
    ) -> Vec<TopicAppend> {
        match batch.topics() {
            Some(records) => self.table.append(records, refused, owners),
            None => Vec::new(),
        }
    }

    /// Takes all queued records, to be stored.
    pub fn seal(&mut self) -> SealedTopics {
        if self.table.queued_len == 0 {
            return SealedTopics::default();
        }
        let rows = self.table.seal().into_iter().map(|queued| {
            let (topic, first, len, last) = (queued.topic, queued.first, queued.len, queued.last);
            StoredTopicRow {
                topic,
                first: Sequence::new(first),
                len,
                last,
                frames: queued.into_frames(),
            }
        });
        let rows = rows.collect();
        let (first, ids, ids_from) = self.table.ids.seal();
        let ids = (first..).zip(ids).map(|(number, stored)| StoredTopicId {
            number,
            topic: stored.topic,
            id: stored.id,
            sequence: Sequence::new(stored.sequence),
        });
        SealedTopics {
            rows,
            ids: ids.collect(),
            ids_from,
        }
    }

    /// Whether a topic is new or has changed, and was not [taken](Self::seal_changed) to be stored since.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.table.has_changed()
    }

    /// Takes the topics that must be stored, because they are new or have changed.
    pub fn seal_changed(&mut self) -> Vec<StoredTopicName> {
        if !self.has_changed() {
            return Vec::new();
        }
        let changed = self.table.seal_changed_heads();
        let stored = changed.into_iter().filter_map(|number| {
            let stored = self.table.head(number)?.stored();
            Some(StoredTopicName {
                number,
                name: stored.name,
                retention: stored.retention,
                dropped: Sequence::new(stored.dropped),
            })
        });
        stored.collect()
    }

    /// What was sealed is durable.
    pub fn landed(&mut self, sealed: SealedTopics) {
        for row in sealed.rows {
            let bytes = row.frames.len();
            let end = row.first.get() + u64::from(row.len) - 1;
            let Some(head) = self.table.head_mut(row.topic) else {
                continue;
            };
            let had_rows = head.bytes() > 0;
            let before = std::mem::replace(&mut head.durable, end);
            head.bytes_durable += bytes as u64;
            let front = Self::place(&mut self.fronts, row.topic);
            // Outlines have no gaps: rows after one that is missing here are read when retention comes to them.
            let is_next = front.until >= before || !had_rows;
            if is_next && front.rows.len() < FRONT_LEN_MAX {
                front.until = end;
                front.rows.push_back(TopicRowOutline {
                    first: row.first,
                    end: Sequence::new(end),
                    bytes: bytes as u64,
                    last: row.last,
                });
            }
            self.candidates.insert(row.topic);
            let chunk = frame_chunk(row.first, row.len, row.frames);
            Self::place(&mut self.shelves, row.topic).push(chunk, row.last);
            let counted = bytes + CHUNK_OVERHEAD_BYTES;
            self.shelved.push_back((row.topic, counted));
            self.shelved_bytes += counted;
        }
        while self.shelved_bytes > self.latest_bytes_max
            && let Some((topic, counted)) = self.shelved.pop_front()
        {
            Self::place(&mut self.shelves, topic).pop_first();
            self.shelved_bytes -= counted;
        }
    }

    fn place<T: Default>(list: &mut Vec<T>, topic: TopicNumber) -> &mut T {
        let index = index(topic);
        if list.len() <= index {
            list.resize_with(index + 1, T::default);
        }
        &mut list[index]
    }

    /// Removes durable rows that retention does not keep at `now`, or that were purged, at most `len_max`: of topics that
    /// have changed since, or of all. If there are fewer than that, nothing more is due.
    pub fn drop_due(&mut self, now: Timestamp, of_all: bool, len_max: usize) -> TopicDrops {
        if of_all {
            self.candidates
                .extend((0..).map(TopicNumber::new).take(self.table.len()));
        }
        let mut drops = TopicDrops::default();
        while let Some(topic) = self.candidates.first().copied() {
            if drops.rows.len() >= len_max {
                break;
            }
            let Some(head) = self.table.head_mut(topic) else {
                self.candidates.pop_first();
                continue;
            };
            let front = Self::place(&mut self.fronts, topic);
            let Some(row) = front.rows.front().copied() else {
                if front.until >= head.durable || head.bytes() == 0 {
                    self.candidates.pop_first();
                    continue;
                }
                drops.unknown = Some((topic, Sequence::new(front.until)));
                break;
            };
            head.front = Some(FrontRow {
                end: row.end.get(),
                bytes_end: head.bytes_dropped + row.bytes,
                last: row.last,
            });
            if !head.is_due(now) {
                self.candidates.pop_first();
                continue;
            }
            front.rows.pop_front();
            head.bytes_dropped += row.bytes;
            if row.end.get() > head.dropped {
                head.dropped = row.end.get();
                self.table.change(topic);
            }
            drops.rows.push((topic, row.first));
        }
        drops
    }

    /// Adds the earliest rows of a topic after the record that was asked for, at most as many as `len_max` says; all of them
    /// if `is_all`.
    pub fn fill(&mut self, topic: TopicNumber, rows: Vec<TopicRowOutline>, is_all: bool) {
        let durable = self.table.head(topic).map_or(0, |head| head.durable);
        let front = Self::place(&mut self.fronts, topic);
        front.until = match rows.last() {
            _ if is_all => durable,
            Some(last) => last.end.get(),
            None => durable,
        };
        front.rows.extend(rows);
    }

    /// How many rows are asked for at a time.
    #[must_use]
    pub fn fill_len() -> usize {
        FRONT_LEN_MAX
    }

    /// See [`TopicStreams::latest`](super::TopicStreams::latest).
    ///
    /// # Errors
    /// [`ReadError::UnknownTopic`].
    pub fn latest(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Result<LatestRecords, ReadError> {
        let (dropped, durable) = self.bounds(topic)?;
        let gone = dropped.get().saturating_sub(after.get());
        let from = Sequence::new(after.get() + gone);
        let chunks = match self.shelves.get(index(topic)) {
            _ if from >= durable => Some(Vec::new()),
            Some(shelf) => shelf.page(from, durable, bytes_max),
            None => None,
        };
        Ok(match chunks {
            Some(chunks) => LatestRecords::Page(TopicPage {
                after,
                dropped: gone,
                chunks: without_purged(chunks, dropped.get()),
            }),
            None => LatestRecords::Ask,
        })
    }

    /// The last record of a topic that was dropped, and the last that is durable.
    ///
    /// # Errors
    /// [`ReadError::UnknownTopic`].
    pub fn bounds(&self, topic: TopicNumber) -> Result<(Sequence, Sequence), ReadError> {
        let head = self.table.head(topic).filter(|head| !head.is_deleted);
        let head = head.ok_or(ReadError::UnknownTopic { topic })?;
        Ok((Sequence::new(head.dropped), Sequence::new(head.durable)))
    }
}

/// The page after `after` of these rows, which were read from the one that holds the first existing record after `after`;
/// records up to `dropped` were dropped before.
///
/// # Errors
/// [`ReadError::TopicDamaged`] if the first row is damaged or missing. A page ends before a later damaged or missing row.
pub fn topic_page(
    topic: TopicNumber,
    after: Sequence,
    dropped: Sequence,
    rows: Vec<StoredTopicRow>,
) -> Result<TopicPage, ReadError> {
    let gone = dropped.get().saturating_sub(after.get());
    let from = after.get() + gone;
    let (mut chunks, mut before) = (Vec::new(), from);
    for row in rows {
        let (first, end) = (row.first.get(), row.first.get() + u64::from(row.len.max(1)) - 1);
        if end <= from {
            continue;
        }
        let checked = match first > before + 1 {
            true => Err((first - 1, "they are missing".to_owned())),
            false => {
                TopicChunk::checked(row.first, row.len, row.frames).map_err(|error| (end, error.to_string()))
            }
        };
        match checked {
            Ok(chunk) => chunks.push(chunk),
            Err((until, cause)) if chunks.is_empty() => {
                return Err(ReadError::TopicDamaged {
                    topic,
                    after: Sequence::new(from),
                    until: Sequence::new(until),
                    cause,
                });
            }
            Err(_) => break,
        }
        before = end;
    }
    Ok(TopicPage {
        after,
        dropped: gone,
        chunks: without_purged(chunks, dropped.get()),
    })
}

#[cfg(test)]
mod tests;
