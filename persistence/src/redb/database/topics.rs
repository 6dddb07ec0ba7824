//! The rows of topics in redb: written with a commit, and read in a moment of the store.
//!
//! Invariants: a commit has all the rows of records, of topics and of ids that belong to it, or none; rows are removed from
//! the front of a topic, and the row of the topic says how far.

use std::ops::RangeInclusive;

use millrun_core::Sequence;
use redb::{ReadableTable, WriteTransaction};

use super::guard::guarded;
use super::moment::StoreMoment;
use super::tables::{TOPIC_IDS, TOPIC_RECORDS, TOPICS};
use crate::error::JournalFailure;
use crate::redb::topics::{FoundTopic, FoundTopics, TopicTrim, TopicTrimmed, TopicWrites, TopicsCommitted};
use crate::topics::{FrontRow, TOPIC_NUMBERS_MAX, TopicNumber};
use crate::wire::topic_row::{self, RowHeader, StoredTopic};

/// The most rows of records that one commit drops, unless it adds more than half as many: then twice as many as it adds.
const DROPPED_LEN_MAX: usize = 256;

/// A row of records as it was found.
pub(in crate::redb) struct FoundRow {
    /// The first record, from the row's key.
    pub(in crate::redb) first: u64,
    pub(in crate::redb) row: Vec<u8>,
}

/// Writes what belongs to a commit.
pub(in crate::redb) fn put(
    txn: &WriteTransaction,
    writes: &TopicWrites,
) -> Result<TopicsCommitted, redb::Error> {
    let mut committed = TopicsCommitted::default();
    if !writes.topics.is_empty() {
        let mut topics = txn.open_table(TOPICS)?;
        for (number, row) in &writes.topics {
            topics.insert(number.get(), row.as_slice())?;
        }
    }
    if !writes.chunks.is_empty() {
        let mut records = txn.open_table(TOPIC_RECORDS)?;
        for chunk in &writes.chunks {
            records.insert((chunk.topic.get(), chunk.first), &chunk.row[..])?;
        }
    }
    if let Some((first, row)) = &writes.ids {
        let mut ids = txn.open_table(TOPIC_IDS)?;
        let mut gone = Vec::new();
        for row in ids.range(..=writes.ids_low)? {
            gone.push(row?.0.value());
        }
        // The last of them may reach beyond the first remembered id.
        gone.pop();
        for first in gone {
            ids.remove(first)?;
        }
        ids.insert(*first, row.as_slice())?;
    }
    // Drops more rows than come in, so that no topic grows.
    let mut left = DROPPED_LEN_MAX.max(2 * writes.chunks.len());
    for trim in &writes.trims {
        if left == 0 {
            break;
        }
        committed.trimmed.push(drop_rows(txn, trim, &mut left)?);
    }
    Ok(committed)
}

/// Drops what retention does not keep of a topic, at most `left` rows.
fn drop_rows(
    txn: &WriteTransaction,
    trim: &TopicTrim,
    left: &mut usize,
) -> Result<TopicTrimmed, redb::Error> {
    let mut records = txn.open_table(TOPIC_RECORDS)?;
    let topic = trim.topic.get();
    let mut trimmed = TopicTrimmed {
        topic: trim.topic,
        dropped: trim.stored.dropped,
        bytes_dropped: trim.bytes_dropped,
        front: None,
        is_blocked: false,
    };
    let mut gone = Vec::new();
    for row in records.range(all_of(trim.topic))? {
        let (key, row) = row?;
        let (first, row) = (key.value().1, row.value());
        let Ok(header) = topic_row::read_header(row, trim.topic, first) else {
            trimmed.is_blocked = true;
            break;
        };
        let (end, bytes_end) = ends(first, header, row);
        let front = FrontRow {
            end,
            bytes_end,
            last: header.last,
        };
        let behind = (
            trim.last.saturating_sub(end),
            trim.bytes.saturating_sub(bytes_end),
        );
        trimmed.front = Some(front);
        let (retention, is_read) = (&trim.stored.retention, end <= trim.read_through);
        let drops = end <= trim.stored.dropped || retention.drops(trim.now, front.last, behind, is_read);
        let is_kept = end > trim.last || !drops;
        if is_kept || *left == 0 {
            break;
        }
        *left -= 1;
        gone.push(first);
        trimmed.front = None;
        // A purge may have dropped more than this row.
        (trimmed.dropped, trimmed.bytes_dropped) = (trimmed.dropped.max(end), bytes_end);
    }
    for first in &gone {
        records.remove((topic, *first))?;
    }
    if !gone.is_empty() {
        let stored = StoredTopic {
            dropped: trimmed.dropped,
            ..trim.stored.clone()
        };
        let row = topic_row::topic(trim.topic, &stored);
        txn.open_table(TOPICS)?.insert(topic, row.as_slice())?;
    }
    Ok(trimmed)
}

/// The keys of all rows of records of a topic.
fn all_of(topic: TopicNumber) -> RangeInclusive<(u32, u64)> {
    (topic.get(), 0)..=(topic.get(), u64::MAX)
}

/// The last record of a row, and the bytes of all records that its topic has had up to there.
fn ends(first: u64, header: RowHeader, row: &[u8]) -> (u64, u64) {
    let bytes = row.len().saturating_sub(topic_row::HEADER_BYTES) as u64;
    let end = first.saturating_add(u64::from(header.len) - 1);
    (end, header.before.saturating_add(bytes))
}

/// A topic with this row; `None` if that is lost.
fn found_topic(
    records: &impl ReadableTable<(u32, u64), &'static [u8]>,
    number: TopicNumber,
    stored: Option<StoredTopic>,
) -> Result<FoundTopic, redb::Error> {
    let mut rows = records.range(all_of(number))?;
    let header = |key: u64, row: &[u8]| topic_row::read_header(row, number, key).ok();
    let front = records.range(all_of(number))?.next().transpose()?;
    let before_front = front
        .as_ref()
        .map_or(0, |(key, _)| key.value().1.saturating_sub(1));
    let dropped = stored.as_ref().map_or(before_front, |stored| stored.dropped);
    let mut topic = FoundTopic {
        is_blocked: stored.is_none(),
        stored,
        dropped,
        last: dropped,
        bytes: 0,
        bytes_dropped: 0,
        front: None,
    };
    if let Some((key, row)) = front {
        match header(key.value().1, row.value()) {
            Some(header) => {
                let (end, bytes_end) = ends(key.value().1, header, row.value());
                topic.bytes_dropped = header.before;
                topic.front = Some(FrontRow {
                    end,
                    bytes_end,
                    last: header.last,
                });
            }
            None => topic.is_blocked = true,
        }
    }
    // How many records an unreadable row has is not known: those after it get much higher numbers.
    let mut unread_bytes = 0;
    while let Some((key, row)) = rows.next_back().transpose()? {
        let (first, row) = (key.value().1, row.value());
        if let Some(header) = header(first, row) {
            let (end, bytes_end) = ends(first, header, row);
            topic.last = topic.last.max(end);
            topic.bytes = bytes_end + unread_bytes;
            break;
        }
        topic.last = topic.last.max(first.saturating_add(row.len() as u64));
        unread_bytes += row.len() as u64;
        topic.bytes = unread_bytes;
    }
    if topic.front.is_none() && !topic.is_blocked {
        topic.bytes_dropped = topic.bytes;
    }
    match &topic.stored {
        None => tracing::error!(
            topic = %number,
            "the row with the name of a topic is missing or damaged: no topic of a new name can be declared until the store is mended"
        ),
        Some(stored) if topic.is_blocked => tracing::error!(
            topic = %stored.name,
            "retention has stopped for a topic: its first row is damaged; it grows until the store is mended"
        ),
        Some(_) => {}
    }
    Ok(topic)
}

impl StoreMoment {
    /// What the store has of topics.
    pub(in crate::redb) fn topics(&self) -> Result<FoundTopics, JournalFailure> {
        guarded(|| {
            let mut found = FoundTopics::default();
            let table = self.transaction.open_table(TOPICS)?;
            let records = self.transaction.open_table(TOPIC_RECORDS)?;
            let last_row = table
                .last()?
                .map(|(key, _)| key.value())
                .filter(|last| *last < TOPIC_NUMBERS_MAX);
            let last_of_records = records.last()?.map(|(key, _)| key.value().0);
            // The row of the last topic may be lost.
            let last_of_records = last_of_records.filter(|last| *last < TOPIC_NUMBERS_MAX);
            let len = last_row
                .max(last_of_records)
                .map_or(0, |last| last.saturating_add(1));
            for number in (0..len).map(TopicNumber::new) {
                let stored = table.get(number.get())?;
                let stored = stored.and_then(|row| topic_row::read_topic(number, row.value()).ok());
                found.topics.push(found_topic(&records, number, stored)?);
            }
            for row in self.transaction.open_table(TOPIC_IDS)?.iter()? {
                let (first, row) = row?;
                match topic_row::read_ids(first.value(), row.value()) {
                    Ok(ids) => found.ids.push((first.value(), ids.collect())),
                    Err(error) => {
                        let first = first.value();
                        tracing::error!(
                            first, %error,
                            "ids of records of topics cannot be read: records that come again with them are appended again"
                        );
                        found.damaged_ids.push((first, error.to_string()));
                    }
                }
            }
            Ok(found)
        })
    }

    /// The last record of a topic that retention has dropped; `None` if there is no such topic yet.
    pub(in crate::redb) fn topic_dropped(&self, topic: TopicNumber) -> Result<Option<u64>, JournalFailure> {
        guarded(|| {
            let topics = self.transaction.open_table(TOPICS)?;
            let stored = topics.get(topic.get())?;
            let stored = stored.and_then(|row| topic_row::read_topic(topic, row.value()).ok());
            Ok(stored.map(|stored| stored.dropped))
        })
    }

    /// The rows of a topic from the one that may hold the record `from`, with `bytes_max` bytes in all and at least one row.
    pub(in crate::redb) fn topic_rows(
        &self,
        topic: TopicNumber,
        from: Sequence,
        bytes_max: usize,
    ) -> Result<Vec<FoundRow>, JournalFailure> {
        guarded(|| {
            let records = self.transaction.open_table(TOPIC_RECORDS)?;
            let number = topic.get();
            let before = records.range((number, 0)..=(number, from.get()))?.next_back();
            let first = before.transpose()?.map_or(0, |(key, _)| key.value().1);
            let (mut rows, mut bytes) = (Vec::new(), 0);
            for row in records.range((number, first)..=(number, u64::MAX))? {
                let (key, row) = row?;
                let row = row.value();
                if !rows.is_empty() && bytes + row.len() > bytes_max {
                    break;
                }
                bytes += row.len();
                rows.push(FoundRow {
                    first: key.value().1,
                    row: row.to_vec(),
                });
            }
            Ok(rows)
        })
    }

    /// The first record of the row after this one of a topic.
    pub(in crate::redb) fn topic_row_behind(
        &self,
        topic: TopicNumber,
        first: u64,
    ) -> Result<Option<u64>, JournalFailure> {
        guarded(|| {
            let records = self.transaction.open_table(TOPIC_RECORDS)?;
            let number = topic.get();
            let next = records.range((number, first + 1)..=(number, u64::MAX))?.next();
            Ok(next.transpose()?.map(|(key, _)| key.value().1))
        })
    }

    /// Calls `visit` with each row of records, of all topics in order, until it says `false`.
    pub(in crate::redb) fn all_topic_rows(
        &self,
        visit: &mut dyn FnMut(TopicNumber, u64, &[u8]) -> bool,
    ) -> Result<(), JournalFailure> {
        guarded(|| {
            for row in self.transaction.open_table(TOPIC_RECORDS)?.iter()? {
                let (key, row) = row?;
                let (topic, first) = key.value();
                if !visit(TopicNumber::new(topic), first, row.value()) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// The rows of topics themselves, and of ids, each with its key.
    pub(in crate::redb) fn topic_and_id_rows(&self) -> Result<TopicAndIdRows, JournalFailure> {
        guarded(|| {
            let mut rows = TopicAndIdRows::default();
            for row in self.transaction.open_table(TOPICS)?.iter()? {
                let (key, row) = row?;
                rows.topics.push((key.value(), row.value().to_vec()));
            }
            for row in self.transaction.open_table(TOPIC_IDS)?.iter()? {
                let (key, row) = row?;
                rows.ids.push((key.value(), row.value().to_vec()));
            }
            Ok(rows)
        })
    }
}

/// The rows of topics themselves, and of ids, each with its key.
#[derive(Debug, Default)]
pub(in crate::redb) struct TopicAndIdRows {
    pub(in crate::redb) topics: Vec<(u32, Vec<u8>)>,
    pub(in crate::redb) ids: Vec<(u64, Vec<u8>)>,
}
