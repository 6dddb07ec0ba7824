//! The topics of a journal, and what is queued for them.
//!
//! ```text
//!   declare ─► TopicHead ◄─ admit: the next sequence, the frame behind those that are queued
//!                  │ seal: all that is queued, as chunks ─► the commit
//!                  └ trims: which topics have more than their retention keeps
//! ```
//!
//! Both journals have one, under their lock. The numbers of topics are their indexes in the list.

use std::sync::Arc;

use bytes::Bytes;
use millrun_core::{Sequence, Timestamp};
use rustc_hash::FxHashMap;

use super::readers::TopicReaders;
use super::{
    IdWindow, TOPIC_NUMBERS_MAX, TopicAppend, TopicChunk, TopicNumber, TopicRename, TopicRetention,
    TopicSummary, frame_chunk,
};
use crate::batch::{BatchTopics, TopicRecordSpan};
use crate::error::{TopicChangeRefused, TopicRefused};
use crate::journal::RefusedTurn;
use crate::owners::OwnerTable;
use crate::wire::topic_row::{self, StoredId, StoredTopic};

/// The size at which a queued chunk takes no more frames: a row of a store is then just under 128 KiB.
const CHUNK_BYTES: usize = (128 << 10) - 48 - topic_row::HEADER_BYTES;
/// The stored name of a deleted topic begins with this; its former name follows.
const DELETED_BEFORE: char = '\0';
/// The longest name of a topic, in bytes.
const NAME_BYTES_MAX: usize = 255;

#[derive(Debug)]
pub(crate) struct TopicTable {
    heads: Vec<TopicHead>,
    by_name: FxHashMap<Arc<str>, TopicNumber>,
    /// How many of them were deleted.
    deleted_len: usize,
    pub(crate) ids: IdWindow,
    len_max: usize,
    numbers_max: u32,
    /// A topic whose name is lost.
    name_lost: Option<TopicNumber>,
    /// Topics with queued records.
    touched: Vec<TopicNumber>,
    /// Topics whose row must be written.
    changed: Vec<TopicNumber>,
    /// Bytes, and number, of the records that are queued.
    pub(crate) queued_bytes: usize,
    pub(crate) queued_len: usize,
}

/// A topic.
#[derive(Debug)]
pub(crate) struct TopicHead {
    pub(crate) name: Arc<str>,
    pub(crate) retention: TopicRetention,
    /// The last record that was dropped.
    pub(crate) dropped: u64,
    /// The last record, queued ones included.
    pub(crate) last: u64,
    /// The last durable record.
    pub(crate) durable: u64,
    /// Bytes of all records that it has had: queued ones included, up to the last durable one, and up to the last dropped
    /// one.
    pub(crate) bytes_appended: u64,
    pub(crate) bytes_durable: u64,
    pub(crate) bytes_dropped: u64,
    /// Its first row, if that is known.
    pub(crate) front: Option<FrontRow>,
    /// Bytes of all records that it has had, those of a commit under way included.
    pub(crate) bytes_sealed: u64,
    /// Its first row cannot be read, so nothing is dropped of it.
    pub(crate) is_blocked: bool,
    /// It was deleted: its number stays taken, and nothing else of it is left once its rows are removed.
    pub(crate) is_deleted: bool,
    /// The readers for which retention holds records back.
    readers: TopicReaders,
    queued: Vec<QueuedChunk>,
    is_changed: bool,
}

/// The first row of a topic's records: what retention drops next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrontRow {
    /// Its last record.
    pub(crate) end: u64,
    /// Bytes of all records that the topic has had up to there.
    pub(crate) bytes_end: u64,
    /// The time of its last record.
    pub(crate) last: Timestamp,
}

/// Records of a topic that wait for a commit: a row, with room for the header.
#[derive(Clone, Debug)]
pub(crate) struct QueuedChunk {
    pub(crate) topic: TopicNumber,
    pub(crate) first: u64,
    pub(crate) len: u32,
    /// The time of its last record.
    pub(crate) last: Timestamp,
    /// Room for a row's header, and the frames.
    pub(crate) row: Vec<u8>,
}

impl QueuedChunk {
    pub(crate) fn frames(&self) -> &[u8] {
        &self.row[topic_row::HEADER_BYTES..]
    }

    /// Its last record.
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.len) - 1
    }

    /// The chunk as readers get it.
    pub(crate) fn into_chunk(self) -> TopicChunk {
        let (first, len) = (Sequence::new(self.first), self.len);
        frame_chunk(first, len, self.into_frames())
    }

    /// Its records as they are stored.
    pub(crate) fn into_frames(mut self) -> Bytes {
        // A vector that has grown step by step may have twice the memory that it needs.
        self.row.shrink_to_fit();
        Bytes::from(self.row).slice(topic_row::HEADER_BYTES..)
    }
}

impl TopicTable {
    /// A table for at most `len_max` topics, which remembers `ids_len_max` ids.
    pub(crate) fn new(len_max: usize, ids_len_max: usize) -> Self {
        Self {
            heads: Vec::new(),
            by_name: FxHashMap::default(),
            deleted_len: 0,
            ids: IdWindow::new(ids_len_max),
            len_max,
            numbers_max: TOPIC_NUMBERS_MAX,
            name_lost: None,
            touched: Vec::new(),
            changed: Vec::new(),
            queued_bytes: 0,
            queued_len: 0,
        }
    }

    /// How many numbers are taken.
    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    /// How many topics there are, deleted ones not counted.
    pub(crate) fn named_len(&self) -> usize {
        self.heads.len() - self.deleted_len
    }

    /// Bytes of the durable records of all topics.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.heads.iter().map(TopicHead::bytes);
        bytes.sum()
    }

    /// See [`TopicStreams::declare`](super::TopicStreams::declare).
    pub(crate) fn declare(
        &mut self,
        name: &str,
        retention: TopicRetention,
    ) -> Result<TopicNumber, TopicRefused> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with(DELETED_BEFORE) {
            return Err(TopicRefused::Name { bytes: name.len() });
        }
        if retention.len_max == 0 || retention.bytes_max == 0 {
            return Err(TopicRefused::Retention);
        }
        let number = match self.by_name.get(name) {
            Some(number) => *number,
            None if let Some(topic) = self.name_lost => {
                let name = name.to_owned();
                return Err(TopicRefused::NameLost { topic, name });
            }
            None if self.named_len() >= self.len_max => {
                return Err(TopicRefused::TooMany { max: self.len_max });
            }
            None if self.heads.len() >= usize::try_from(self.numbers_max).unwrap_or(usize::MAX) => {
                return Err(TopicRefused::NumbersUsed {
                    max: self.numbers_max,
                });
            }
            None => {
                let stored = StoredTopic {
                    name: name.to_owned(),
                    retention,
                    // Its numbers continue where those of deleted topics with its name ended, so that none identifies two
                    // records.
                    dropped: self.last_of_deleted(name),
                };
                let number = self.restore(stored);
                self.change(number);
                return Ok(number);
            }
        };
        let head = &mut self.heads[index(number)];
        if head.retention != retention {
            head.retention = retention;
            self.change(number);
        }
        Ok(number)
    }

    /// See [`TopicStreams::purge`](super::TopicStreams::purge): how many records were dropped, and the first remaining one.
    pub(crate) fn purge(
        &mut self,
        number: TopicNumber,
        through: Sequence,
        with_queued: bool,
    ) -> Result<(u64, Sequence), TopicChangeRefused> {
        let unknown = TopicChangeRefused::Unknown { topic: number };
        let head = self.head_mut(number).filter(|head| !head.is_deleted);
        let head = head.ok_or(unknown)?;
        let last = if with_queued { head.last } else { head.durable };
        let through = through.get().min(last);
        let count = through.saturating_sub(head.dropped);
        head.dropped += count;
        let first = Sequence::new(head.dropped + 1);
        if count > 0 {
            self.change(number);
        }
        Ok((count, first))
    }

    /// See [`TopicStreams::delete`](super::TopicStreams::delete).
    pub(crate) fn delete(&mut self, numbers: &[TopicNumber]) -> Result<(), TopicChangeRefused> {
        let is_known = |number: TopicNumber| {
            // A topic whose name is lost is kept, since its name may be any.
            let head = self.head(number);
            head.is_some_and(|head| !head.is_deleted && !head.name.is_empty())
        };
        if let Some(topic) = numbers.iter().find(|number| !is_known(**number)) {
            return Err(TopicChangeRefused::Unknown { topic: *topic });
        }
        for number in numbers {
            let head = &mut self.heads[index(*number)];
            if std::mem::replace(&mut head.is_deleted, true) {
                // It was listed twice.
                continue;
            }
            head.dropped = head.last;
            self.by_name.remove(&head.name);
            self.deleted_len += 1;
            self.change(*number);
        }
        self.heads
            .iter_mut()
            .for_each(|head| head.readers.forget(numbers));
        Ok(())
    }

    /// See [`TopicStreams::replace`](super::TopicStreams::replace).
    pub(crate) fn replace(
        &mut self,
        number: TopicNumber,
        (from, name): (&str, &str),
        retention: TopicRetention,
        with_queued: bool,
    ) -> Result<(), TopicChangeRefused> {
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with(DELETED_BEFORE);
        let is_retention = retention.len_max > 0 && retention.bytes_max > 0;
        if !is_name || !is_retention || self.by_name.contains_key(name) {
            let name = name.to_owned();
            return Err(TopicChangeRefused::Name { name });
        }
        let head = self.heads.get_mut(index(number));
        let is_it = |head: &&mut TopicHead| !head.is_deleted && !from.is_empty() && *head.name == *from;
        let head = head.filter(is_it);
        let head = head.ok_or(TopicChangeRefused::Unknown { topic: number })?;
        if !with_queued && head.last != head.durable {
            return Err(TopicChangeRefused::Queued { topic: number });
        }
        self.by_name.remove(&head.name);
        head.name = name.into();
        self.by_name.insert(Arc::clone(&head.name), number);
        head.retention = retention;
        head.dropped = head.last;
        head.readers = TopicReaders::default();
        self.change(number);
        self.heads
            .iter_mut()
            .for_each(|head| head.readers.forget(&[number]));
        Ok(())
    }

    /// See [`TopicStreams::rename`](super::TopicStreams::rename).
    pub(crate) fn rename(
        &mut self,
        renames: &[TopicRename],
        deleted: &[TopicNumber],
    ) -> Result<(), TopicChangeRefused> {
        for (at, rename) in renames.iter().enumerate() {
            let head = self.head(rename.topic);
            let head = head.filter(|head| !head.is_deleted && !rename.from.is_empty());
            let head = head.filter(|head| *head.name == *rename.from);
            let last = head.map(|head| head.last);
            let last = last.ok_or(TopicChangeRefused::Unknown { topic: rename.topic })?;
            let name = rename.to.as_str();
            let is_name =
                !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with(DELETED_BEFORE);
            let holder = self.number(name);
            let holder_last = holder.and_then(|holder| self.head(holder)).map(|head| head.last);
            // A name that is not known may be the lost one.
            let is_taken =
                holder.is_some_and(|holder| !deleted.contains(&holder)) || self.name_lost.is_some();
            let is_twice = renames[..at]
                .iter()
                .any(|other| other.topic == rename.topic || other.to == rename.to);
            if !is_name || is_taken || is_twice || deleted.contains(&rename.topic) {
                let name = rename.to.clone();
                return Err(TopicChangeRefused::Name { name });
            }
            let deleted_last = self.last_of_deleted(name).max(holder_last.unwrap_or(0));
            if deleted_last > last {
                let name = rename.to.clone();
                return Err(TopicChangeRefused::Numbers {
                    name,
                    deleted: deleted_last,
                    last,
                });
            }
        }
        let max = self.numbers_max;
        if self.heads.len() + renames.len() > usize::try_from(max).unwrap_or(usize::MAX) {
            return Err(TopicChangeRefused::NumbersUsed { max });
        }
        self.delete(deleted)?;
        for rename in renames {
            let head = &mut self.heads[index(rename.topic)];
            let (former, last) = (
                std::mem::replace(&mut head.name, rename.to.as_str().into()),
                head.last,
            );
            self.by_name.insert(Arc::clone(&head.name), rename.topic);
            self.by_name.remove(&former);
            self.change(rename.topic);
            let left = self.restore(StoredTopic {
                name: format!("{DELETED_BEFORE}{former}"),
                retention: TopicRetention::unbounded(),
                dropped: last,
            });
            self.change(left);
        }
        Ok(())
    }

    /// See [`TopicStreams::note_reader`](super::TopicStreams::note_reader).
    pub(crate) fn note_reader(&mut self, number: TopicNumber, reader: TopicNumber, through: Sequence) {
        let is_there = |head: &TopicHead| !head.is_deleted;
        if self.head(reader).is_some_and(is_there)
            && let Some(head) = self.head_mut(number).filter(|head| !head.is_deleted)
        {
            head.readers.note(reader, through);
        }
    }

    /// See [`TopicStreams::all_readers_noted`](super::TopicStreams::all_readers_noted).
    pub(crate) fn all_readers_noted(&mut self, number: TopicNumber) {
        if let Some(head) = self.head_mut(number) {
            head.readers.all_are_noted();
        }
    }

    /// The last record of the deleted topics that had this name.
    fn last_of_deleted(&self, name: &str) -> u64 {
        if self.deleted_len == 0 {
            return 0;
        }
        let deleted = self
            .heads
            .iter()
            .filter(|head| head.is_deleted && *head.name == *name);
        deleted.map(|head| head.last).max().unwrap_or(0)
    }

    /// Adds a stored topic; it gets the next number.
    pub(crate) fn restore(&mut self, stored: StoredTopic) -> TopicNumber {
        let number = u32::try_from(self.heads.len()).expect("there are fewer topics than 32 bits count");
        let number = TopicNumber::new(number);
        let deleted = stored.name.strip_prefix(DELETED_BEFORE);
        let is_deleted = deleted.is_some();
        let name: Arc<str> = deleted.unwrap_or(&stored.name).into();
        if is_deleted {
            self.deleted_len += 1;
        } else {
            self.by_name.insert(Arc::clone(&name), number);
        }
        self.heads.push(TopicHead {
            name,
            retention: stored.retention,
            dropped: stored.dropped,
            last: stored.dropped,
            durable: stored.dropped,
            bytes_appended: 0,
            bytes_durable: 0,
            bytes_dropped: 0,
            front: None,
            bytes_sealed: 0,
            is_blocked: false,
            is_deleted,
            readers: TopicReaders::default(),
            queued: Vec::new(),
            is_changed: false,
        });
        number
    }

    /// Adds a topic whose row is lost: it gets the next number, and none of its records is dropped.
    pub(crate) fn restore_nameless(&mut self, dropped: u64) -> TopicNumber {
        let number = self.restore(StoredTopic {
            name: String::new(),
            retention: TopicRetention::unbounded(),
            dropped,
        });
        self.by_name.remove("");
        self.name_lost = Some(number);
        number
    }

    /// Has the row of this topic written.
    pub(crate) fn change(&mut self, number: TopicNumber) {
        let head = &mut self.heads[index(number)];
        if !std::mem::replace(&mut head.is_changed, true) {
            self.changed.push(number);
        }
    }

    pub(crate) fn head(&self, number: TopicNumber) -> Option<&TopicHead> {
        self.heads.get(index(number))
    }

    pub(crate) fn head_mut(&mut self, number: TopicNumber) -> Option<&mut TopicHead> {
        self.heads.get_mut(index(number))
    }

    /// All topics, in the order of their numbers, deleted ones too; a lost name is empty.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TopicNumber, &TopicHead)> + '_ {
        (0..).map(TopicNumber::new).zip(&self.heads)
    }

    /// The number of the topic of this name.
    pub(crate) fn number(&self, name: &str) -> Option<TopicNumber> {
        self.by_name.get(name).copied()
    }

    /// The summary of a topic, up to its last durable record, or up to the last queued one if `with_queued`.
    pub(crate) fn summary(&self, number: TopicNumber, with_queued: bool) -> Option<TopicSummary> {
        let head = self.head(number).filter(|head| !head.is_deleted)?;
        let (last, bytes) = if with_queued {
            (head.last, head.bytes_appended)
        } else {
            (head.durable, head.bytes_durable)
        };
        Some(TopicSummary {
            number,
            name: head.name.to_string(),
            retention: head.retention,
            first: Sequence::new(head.dropped + 1),
            last: Sequence::new(last),
            bytes: if last > head.dropped {
                bytes.saturating_sub(head.bytes_dropped)
            } else {
                0
            },
        })
    }

    /// The durable record that was appended with this id, as far as ids are remembered.
    pub(crate) fn appended_with(&self, number: TopicNumber, id: u128) -> Option<Sequence> {
        let head = self.head(number).filter(|head| !head.is_deleted)?;
        let sequence = self.ids.sequence(number, id)?;
        (sequence <= head.durable).then(|| Sequence::new(sequence))
    }

    /// Takes the records of a batch, of which these turns were refused, if their partitions are owned under their epochs;
    /// returns the outcome of each.
    pub(crate) fn append(
        &mut self,
        records: &BatchTopics,
        refused: &[RefusedTurn],
        owners: &OwnerTable,
    ) -> Vec<TopicAppend> {
        let mut appends = Vec::with_capacity(records.len());
        for record in records.spans() {
            let is_refused = |turn: usize| {
                refused
                    .binary_search_by_key(&turn, |refused| refused.turn)
                    .is_ok()
            };
            appends.push(if record.with.is_some_and(is_refused) {
                TopicAppend::WithTurn
            } else if let Err(current) = owners.check(record.partition, record.epoch) {
                TopicAppend::Fenced { current }
            } else {
                self.admit(record, records.frame(record))
            });
        }
        appends
    }

    /// Takes a record whose writer owns its partition, with its frame.
    fn admit(&mut self, record: &TopicRecordSpan, frame: &[u8]) -> TopicAppend {
        let head = self.heads.get_mut(index(record.topic));
        let Some(head) = head.filter(|head| !head.is_deleted) else {
            return TopicAppend::UnknownTopic;
        };
        if let Some(id) = record.id
            && let Some(sequence) = self.ids.sequence(record.topic, id)
        {
            return TopicAppend::AlreadyAppended(Sequence::new(sequence));
        }
        head.last += 1;
        head.bytes_appended += frame.len() as u64;
        if head.queued.is_empty() {
            self.touched.push(record.topic);
        }
        let has_room = |chunk: &&mut QueuedChunk| chunk.row.len() + frame.len() <= CHUNK_BYTES;
        if let Some(chunk) = head.queued.last_mut().filter(has_room) {
            chunk.row.extend_from_slice(frame);
            chunk.len += 1;
            chunk.last = record.time;
        } else {
            let mut row = Vec::with_capacity(topic_row::HEADER_BYTES + frame.len());
            row.resize(topic_row::HEADER_BYTES, 0);
            row.extend_from_slice(frame);
            head.queued.push(QueuedChunk {
                topic: record.topic,
                first: head.last,
                len: 1,
                last: record.time,
                row,
            });
        }
        if let Some(id) = record.id {
            self.ids.add(StoredId {
                topic: record.topic,
                id,
                sequence: head.last,
            });
        }
        self.queued_bytes += frame.len();
        self.queued_len += 1;
        TopicAppend::Appended(Sequence::new(head.last))
    }

    /// Takes all that is queued, as chunks in the order of each topic.
    pub(crate) fn seal(&mut self) -> Vec<QueuedChunk> {
        let mut chunks = Vec::new();
        for number in self.touched.drain(..) {
            chunks.append(&mut self.heads[index(number)].queued);
        }
        (self.queued_bytes, self.queued_len) = (0, 0);
        chunks
    }

    /// Takes the rows of topics that must be written.
    pub(crate) fn seal_changed(&mut self) -> Vec<(TopicNumber, Vec<u8>)> {
        let changed = self.seal_changed_heads();
        let row = |number: TopicNumber| topic_row::topic(number, &self.heads[index(number)].stored());
        changed.into_iter().map(|number| (number, row(number))).collect()
    }

    /// Takes the topics that must be written.
    pub(crate) fn seal_changed_heads(&mut self) -> Vec<TopicNumber> {
        let changed = std::mem::take(&mut self.changed);
        for number in &changed {
            self.heads[index(*number)].is_changed = false;
        }
        changed
    }

    /// The topics whose row must be written.
    pub(crate) fn changed(&self) -> impl Iterator<Item = TopicNumber> + '_ {
        self.changed.iter().copied()
    }

    /// Whether rows of topics must be written.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The queued chunks of a topic after `after`.
    pub(crate) fn queued(&self, number: TopicNumber, after: u64) -> impl Iterator<Item = &QueuedChunk> + '_ {
        let queued = self.head(number).map_or(&[][..], |head| &head.queued);
        queued.iter().filter(move |chunk| chunk.end() > after)
    }
}

impl TopicHead {
    /// Bytes of its durable records.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_durable.saturating_sub(self.bytes_dropped)
    }

    pub(crate) fn stored(&self) -> StoredTopic {
        StoredTopic {
            name: if self.is_deleted {
                format!("{DELETED_BEFORE}{}", self.name)
            } else {
                self.name.to_string()
            },
            retention: self.retention,
            dropped: self.dropped,
        }
    }

    /// Whether retention does not keep its first row at `now`, or that row is not known.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let Some(front) = self.front.filter(|_| !self.is_blocked) else {
            return !self.is_blocked && self.durable > self.dropped;
        };
        let len = self.durable.saturating_sub(front.end);
        let bytes = self.bytes_durable.saturating_sub(front.bytes_end);
        let is_read = front.end <= self.read_through();
        // Purged rows are due whatever retention says.
        front.end <= self.dropped || self.retention.drops(now, front.last, (len, bytes), is_read)
    }

    /// All records up to this one have been read by every known reader.
    pub(crate) fn read_through(&self) -> u64 {
        if self.retention.unread_bytes_max == 0 {
            return u64::MAX;
        }
        self.readers.read_through()
    }
}

fn index(number: TopicNumber) -> usize {
    usize::try_from(number.get()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_has_given_all_numbers_refuses_a_new_topic_and_keeps_those_that_it_has() {
        let mut table = TopicTable::new(3, 10);
        table.numbers_max = 3;
        let all = TopicRetention::unbounded();
        let numbers: Vec<_> = ["a", "b", "c"]
            .iter()
            .map(|name| table.declare(name, all).expect("there is a number for it"))
            .collect();
        table.delete(&numbers[1..]).expect("they are known");
        let refused = table.declare("d", all);
        assert_eq!(refused, Err(TopicRefused::NumbersUsed { max: 3 }));
        // One that was deleted needs a new number, too.
        let refused = table.declare("b", all);
        assert_eq!(refused, Err(TopicRefused::NumbersUsed { max: 3 }));
        assert_eq!(table.declare("a", all), Ok(numbers[0]));
        assert_eq!((table.len(), table.named_len()), (3, 1));
    }
}
