//! Reads records of topics: from memory if they are there, and otherwise row by row.

use bytes::Bytes;
use millrun_core::{Offset, Sequence, Timestamp};

use super::{dropped, queued_chunks};
use crate::config::Durability;
use crate::error::{ReadError, TopicChangeRefused, TopicRefused};
use crate::redb::RedbJournal;
use crate::redb::database::moment::StoreMoment;
use crate::redb::database::topics::FoundRow;
use crate::redb::state::JournalState;
use crate::topics::{
    LatestRecords, PurgedRecords, TopicChunk, TopicNumber, TopicPage, TopicRename, TopicRetention,
    TopicStreams, TopicSummary, without_purged,
};
use crate::wire::{topic_frame, topic_row};

impl TopicStreams for RedbJournal {
    fn declare(&self, name: &str, retention: TopicRetention) -> Result<TopicNumber, TopicRefused> {
        let mut state = self.shared.lock();
        state.check_open()?;
        state.topics.table.declare(name, retention)
    }

    fn list(&self) -> Vec<TopicSummary> {
        let with_queued = self.reads_unwritten();
        let state = self.shared.lock();
        let numbers = state.topics.table.iter().map(|(number, _)| number);
        numbers
            .filter_map(|number| state.topics.table.summary(number, with_queued))
            .collect()
    }

    fn number(&self, name: &str) -> Option<TopicNumber> {
        self.shared.lock().topics.table.number(name)
    }

    fn store_number(&self) -> u64 {
        self.opened.number
    }

    fn summary(&self, topic: TopicNumber) -> Option<TopicSummary> {
        let with_queued = self.reads_unwritten();
        self.shared.lock().topics.table.summary(topic, with_queued)
    }

    fn latest(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Result<LatestRecords, ReadError> {
        self.reader()?;
        let reads_unwritten = self.reads_unwritten();
        self.shared
            .lock()
            .latest_of_topic(topic, after, bytes_max, reads_unwritten)
    }

    fn read(&self, topic: TopicNumber, after: Sequence, bytes_max: usize) -> Result<TopicPage, ReadError> {
        if let LatestRecords::Page(page) = self.latest(topic, after, bytes_max)? {
            return Ok(page);
        }
        let store = self.reader()?;
        let summary = self.summary(topic);
        let last = summary.as_ref().map_or(after, |summary| summary.last);
        // Purged records count as dropped before the store has the purge.
        let dropped = summary.map_or(0, |summary| summary.first.get().saturating_sub(1));
        page(&store.moment()?, topic, (after, last, dropped), bytes_max)
    }

    fn purge(&self, topic: TopicNumber, through: Sequence) -> Result<PurgedRecords, TopicChangeRefused> {
        let with_queued = self.reads_unwritten();
        let mut state = self.shared.lock();
        state.check_open()?;
        let (count, first) = state.topics.table.purge(topic, through, with_queued)?;
        let (offset, rings) = state.queue_change_of_topics();
        drop(self.queued(state, offset, rings));
        Ok(PurgedRecords { count, first, offset })
    }

    fn delete(&self, topics: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        let mut state = self.shared.lock();
        state.check_open()?;
        state.topics.table.delete(topics)?;
        let (offset, rings) = state.queue_change_of_topics();
        drop(self.queued(state, offset, rings));
        Ok(offset)
    }

    fn replace(
        &self,
        topic: TopicNumber,
        from: &str,
        name: &str,
        retention: TopicRetention,
    ) -> Result<Offset, TopicChangeRefused> {
        let with_queued = self.reads_unwritten();
        let mut state = self.shared.lock();
        state.check_open()?;
        let table = &mut state.topics.table;
        table.replace(topic, (from, name), retention, with_queued)?;
        let (offset, rings) = state.queue_change_of_topics();
        drop(self.queued(state, offset, rings));
        Ok(offset)
    }

    fn rename(&self, renames: &[TopicRename], deleted: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        let mut state = self.shared.lock();
        state.check_open()?;
        state.topics.table.rename(renames, deleted)?;
        let (offset, rings) = state.queue_change_of_topics();
        drop(self.queued(state, offset, rings));
        Ok(offset)
    }

    fn note_reader(&self, topic: TopicNumber, reader: TopicNumber, through: Sequence) {
        let mut state = self.shared.lock();
        state.topics.table.note_reader(topic, reader, through);
    }

    fn all_readers_noted(&self, topic: TopicNumber) {
        self.shared.lock().topics.table.all_readers_noted(topic);
    }

    fn appended_with(&self, topic: TopicNumber, id: u128) -> Option<Sequence> {
        self.shared.lock().topics.table.appended_with(topic, id)
    }

    fn at_time(&self, topic: TopicNumber, time: Timestamp) -> Result<Sequence, ReadError> {
        let store = self.reader()?;
        let (first, durable, unwritten) = {
            let state = self.shared.lock();
            let summary = state.topics.table.summary(topic, false);
            let summary = summary.ok_or(ReadError::UnknownTopic { topic })?;
            let unwritten = state.unwritten_before(topic, summary.last, time);
            (summary.first, summary.last, unwritten)
        };
        let moment = store.moment()?;
        // It is not known whether the records from `low` on are after the time; those from `high` on are.
        let (mut low, mut high) = (first.get(), durable.get() + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let rows = moment.topic_rows(topic, Sequence::new(middle), 1)?;
            let Some(row) = rows.first().filter(|row| row.first <= middle) else {
                // The records there were dropped meanwhile.
                low = middle + 1;
                continue;
            };
            match last_time(&row.row, topic, row.first) {
                Some((len, last)) if last < time => low = (row.first + u64::from(len)).max(middle + 1),
                // An unreadable row is not skipped.
                Some(_) | None => high = row.first.min(middle),
            }
        }
        let is_all = low > durable.get() && self.reads_unwritten();
        let behind = if is_all { unwritten } else { Sequence::new(low - 1) };
        // A purge may not be written yet.
        Ok(behind.max(Sequence::new(first.get().saturating_sub(1))))
    }
}

impl RedbJournal {
    /// Whether records count as soon as they are queued.
    fn reads_unwritten(&self) -> bool {
        self.shared.config.journal.durability != Durability::Durable
    }
}

impl JournalState {
    /// The last record of a topic, after the durable ones, that comes before those of this time or later: exact to the chunk.
    fn unwritten_before(&self, topic: TopicNumber, durable: Sequence, time: Timestamp) -> Sequence {
        let sealed = self.sealed_topics().filter(|chunk| chunk.topic == topic);
        let sealed = sealed.map(|chunk| (chunk.end(), chunk.header.last));
        let queued = self.topics.table.queued(topic, durable.get());
        let ends = sealed.chain(queued.map(|chunk| (chunk.end(), chunk.last)));
        let before = ends.take_while(|(_, last)| *last < time).last();
        before.map_or(durable, |(end, _)| Sequence::new(end))
    }

    /// See [`TopicStreams::latest`]. In the modes that acknowledge before they write, unwritten records too.
    fn latest_of_topic(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
        reads_unwritten: bool,
    ) -> Result<LatestRecords, ReadError> {
        let topics = &self.topics;
        let head = topics
            .table
            .head(topic)
            .filter(|head| !head.is_deleted)
            .ok_or(ReadError::UnknownTopic { topic })?;
        let dropped = dropped(head, after);
        let from = Sequence::new(after.get() + dropped);
        let chunks = if reads_unwritten && from.get() >= head.durable {
            let sealed = self
                .sealed_topics()
                .filter(|chunk| chunk.topic == topic && chunk.end() > from.get());
            let sealed = sealed.map(super::SealedChunk::as_chunk);
            sealed
                .chain(queued_chunks(&topics.table, topic, from.get()))
                .collect()
        } else if let Some(chunks) = topics.latest(topic, from, bytes_max) {
            chunks
        } else {
            return Ok(LatestRecords::Ask);
        };
        Ok(LatestRecords::Page(TopicPage {
            after,
            dropped,
            chunks: without_purged(chunks, head.dropped),
        }))
    }
}

/// How many records a row has, and when the last of them was appended by the clock of its writer: the row's header has the
/// time that the store trusted then.
fn last_time(row: &[u8], topic: TopicNumber, first: u64) -> Option<(u32, Timestamp)> {
    let header = topic_row::read_header(row, topic, first).ok()?;
    let (mut rest, mut last) = (row.get(topic_row::HEADER_BYTES..)?, None);
    while !rest.is_empty() {
        let frame = topic_frame::read(rest).ok()?;
        last = Some(frame.time);
        rest = rest.get(frame.len..)?;
    }
    Some((header.len, last?))
}

/// The records after `after` as they are in the store at some moment; `last` is the topic's last, and those up to `dropped`
/// do not exist for readers.
pub(in crate::redb) fn page(
    moment: &StoreMoment,
    topic: TopicNumber,
    (after, last, dropped): (Sequence, Sequence, u64),
    bytes_max: usize,
) -> Result<TopicPage, ReadError> {
    let all_dropped = moment.topic_dropped(topic)?.unwrap_or(0).max(dropped);
    let dropped = all_dropped.saturating_sub(after.get());
    let mut wanted = after.get() + dropped + 1;
    let mut page = TopicPage {
        after,
        dropped,
        chunks: Vec::new(),
    };
    let rows = moment.topic_rows(topic, Sequence::new(wanted), bytes_max)?;
    for FoundRow { first, row } in rows {
        let damaged = |until: u64, cause: String| ReadError::TopicDamaged {
            topic,
            after: Sequence::new(wanted - 1),
            until: Sequence::new(until.max(wanted)),
            cause,
        };
        let outcome = if first > wanted {
            Err(damaged(first - 1, "they are not where they should be".to_owned()))
        } else {
            match chunk(topic, first, row) {
                Ok(chunk) if chunk.last().get() >= wanted => Ok(Some(chunk)),
                // It comes before the requested records, and nothing comes after.
                Ok(_) => Ok(None),
                Err(error) => {
                    let next = moment.topic_row_behind(topic, first)?;
                    // Without a later row there is nothing more.
                    let until = next.map_or(error.until.max(last.get()), |next| next - 1);
                    Err(damaged(until, error.cause))
                }
            }
        };
        match outcome {
            Ok(Some(chunk)) => {
                wanted = chunk.last().get() + 1;
                page.chunks.push(chunk);
            }
            Ok(None) => {}
            // The records before it are returned first.
            Err(_) if !page.chunks.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    page.chunks = without_purged(page.chunks, all_dropped);
    Ok(page)
}

/// Why a row is no valid chunk, and the last of its records if known.
struct BadChunk {
    until: u64,
    cause: String,
}

/// The records of a row, which begins with the record `first`.
fn chunk(topic: TopicNumber, first: u64, row: Vec<u8>) -> Result<TopicChunk, BadChunk> {
    let header = topic_row::read_header(&row, topic, first).map_err(|error| BadChunk {
        until: first,
        cause: error.to_string(),
    })?;
    let frames = Bytes::from(row).split_off(topic_row::HEADER_BYTES);
    TopicChunk::checked(Sequence::new(first), header.len, frames).map_err(|error| BadChunk {
        until: first + u64::from(header.len).saturating_sub(1),
        cause: error.to_string(),
    })
}

/// The error in a row of records, if any.
pub(in crate::redb) fn check_row(topic: TopicNumber, first: u64, row: &[u8]) -> Result<u32, ReadError> {
    match chunk(topic, first, row.to_vec()) {
        Ok(chunk) => Ok(u32::try_from(chunk.last().get() - first + 1).unwrap_or(u32::MAX)),
        Err(BadChunk { until, cause }) => Err(ReadError::TopicDamaged {
            topic,
            after: Sequence::new(first.saturating_sub(1)),
            until: Sequence::new(until),
            cause,
        }),
    }
}
