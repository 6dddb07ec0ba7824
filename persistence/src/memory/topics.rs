//! The topics of a journal in memory, with their durable records on shelves.

use std::sync::MutexGuard;

use millrun_core::{Offset, Sequence, Timestamp};

use super::state::MemoryState;
use super::{MemoryJournal, ring};
use crate::error::{ReadError, TopicChangeRefused, TopicRefused};
use crate::topics::{
    FrontRow, LatestRecords, PurgedRecords, TopicNumber, TopicPage, TopicRename, TopicRetention, TopicShelf,
    TopicStreams, TopicSummary, TopicTable, without_purged,
};

/// Topics, and their durable records.
#[derive(Debug)]
pub(super) struct MemoryTopics {
    pub(super) table: TopicTable,
    /// Indexed by the numbers of topics.
    shelves: Vec<TopicShelf>,
}

impl MemoryTopics {
    pub(super) fn new(len_max: usize, ids_len_max: usize) -> Self {
        Self {
            table: TopicTable::new(len_max, ids_len_max),
            shelves: Vec::new(),
        }
    }

    /// Copies what is durable in `old`.
    pub(super) fn take_over_durable(&mut self, old: &Self) {
        for (number, head) in old.table.iter() {
            let again = self.table.restore(head.stored());
            let head_again = self.table.head_mut(again).expect("it was restored");
            (head_again.last, head_again.durable) = (head.durable, head.durable);
            head_again.bytes_appended = head.bytes_durable;
            (head_again.bytes_durable, head_again.bytes_dropped) = (head.bytes_durable, head.bytes_dropped);
            head_again.front = head.front;
            let shelf = self.shelf(again);
            for (chunk, last) in old
                .shelves
                .get(index(number))
                .into_iter()
                .flat_map(TopicShelf::iter)
            {
                shelf.push(chunk.clone(), last);
            }
        }
        let is_durable = |topic, sequence| old.table.head(topic).is_some_and(|head| sequence <= head.durable);
        let ids = old.table.ids.iter();
        let durable = ids.filter(|stored| is_durable(stored.topic, stored.sequence));
        self.table.ids.restore(0, durable);
    }

    fn shelf(&mut self, number: TopicNumber) -> &mut TopicShelf {
        let index = index(number);
        if self.shelves.len() <= index {
            self.shelves.resize_with(index + 1, TopicShelf::default);
        }
        &mut self.shelves[index]
    }

    /// Makes the queued records durable, and drops what retention does not keep of their topics.
    pub(super) fn commit(&mut self) {
        if self.table.queued_len == 0 {
            return;
        }
        for queued in self.table.seal() {
            let (number, last) = (queued.topic, queued.last);
            let head = self.table.head_mut(number).expect("it was queued for a topic");
            head.durable = queued.end();
            head.bytes_durable += queued.frames().len() as u64;
            self.shelf(number).push(queued.into_chunk(), last);
            self.trim(number, last);
        }
        // The ids are remembered already, and are not stored anywhere.
        self.table.ids.seal();
        self.table.seal_changed();
    }

    /// Drops what retention does not keep at `now`.
    pub(super) fn trim_all(&mut self, now: Timestamp) {
        for number in 0..self.shelves.len() {
            self.trim(TopicNumber::new(u32::try_from(number).unwrap_or(u32::MAX)), now);
        }
    }

    fn trim(&mut self, number: TopicNumber, now: Timestamp) {
        let (Some(head), Some(shelf)) = (self.table.head_mut(number), self.shelves.get_mut(index(number)))
        else {
            return;
        };
        loop {
            let bytes_dropped = head.bytes_dropped;
            head.front = shelf.first().map(|(chunk, last)| FrontRow {
                end: chunk.last().get(),
                bytes_end: bytes_dropped + chunk.bytes() as u64,
                last,
            });
            let Some(front) = head.front.filter(|_| head.is_due(now)) else {
                return;
            };
            shelf.pop_first();
            // A purge may have dropped more than this row.
            (head.dropped, head.bytes_dropped) = (head.dropped.max(front.end), front.bytes_end);
        }
    }

    /// Drops the purged records of a topic.
    fn trim_purged(&mut self, number: TopicNumber) {
        self.trim(number, Timestamp::EPOCH);
    }

    fn page(&self, topic: TopicNumber, after: Sequence, bytes_max: usize) -> Result<TopicPage, ReadError> {
        let head = self.table.head(topic).filter(|head| !head.is_deleted);
        let head = head.ok_or(ReadError::UnknownTopic { topic })?;
        let dropped = head.dropped.saturating_sub(after.get());
        let from = Sequence::new(after.get() + dropped);
        let shelf = self.shelves.get(index(topic));
        let chunks = shelf.and_then(|shelf| shelf.page(from, Sequence::new(head.durable), bytes_max));
        Ok(TopicPage {
            after,
            dropped,
            chunks: without_purged(chunks.unwrap_or_default(), head.dropped),
        })
    }
}

fn index(number: TopicNumber) -> usize {
    usize::try_from(number.get()).unwrap_or(usize::MAX)
}

impl MemoryJournal {
    fn readable(&self) -> Result<MutexGuard<'_, MemoryState>, ReadError> {
        let state = self.lock();
        state.readable()?;
        Ok(state)
    }
}

impl TopicStreams for MemoryJournal {
    fn declare(&self, name: &str, retention: TopicRetention) -> Result<TopicNumber, TopicRefused> {
        let mut state = self.lock();
        match &state.failure {
            Some(failure) => Err(TopicRefused::Failed(failure.clone())),
            None => state.topics.table.declare(name, retention),
        }
    }

    fn list(&self) -> Vec<TopicSummary> {
        let state = self.lock();
        let numbers = state.topics.table.iter().map(|(number, _)| number);
        numbers
            .filter_map(|number| state.topics.table.summary(number, false))
            .collect()
    }

    fn number(&self, name: &str) -> Option<TopicNumber> {
        self.lock().topics.table.number(name)
    }

    fn store_number(&self) -> u64 {
        0
    }

    fn summary(&self, topic: TopicNumber) -> Option<TopicSummary> {
        self.lock().topics.table.summary(topic, false)
    }

    fn latest(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Result<LatestRecords, ReadError> {
        Ok(LatestRecords::Page(self.read(topic, after, bytes_max)?))
    }

    fn read(&self, topic: TopicNumber, after: Sequence, bytes_max: usize) -> Result<TopicPage, ReadError> {
        self.readable()?.topics.page(topic, after, bytes_max)
    }

    fn purge(&self, topic: TopicNumber, through: Sequence) -> Result<PurgedRecords, TopicChangeRefused> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone().into());
        }
        let (count, first) = state.topics.table.purge(topic, through, false)?;
        state.topics.trim_purged(topic);
        // Queued records are not included.
        let offset = state.durable;
        let watchers = state.watchers.clone();
        drop(state);
        ring(&watchers);
        Ok(PurgedRecords { count, first, offset })
    }

    fn delete(&self, topics: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone().into());
        }
        state.topics.table.delete(topics)?;
        topics.iter().for_each(|topic| state.topics.trim_purged(*topic));
        let (offset, watchers) = (state.durable, state.watchers.clone());
        drop(state);
        ring(&watchers);
        Ok(offset)
    }

    fn replace(
        &self,
        topic: TopicNumber,
        from: &str,
        name: &str,
        retention: TopicRetention,
    ) -> Result<Offset, TopicChangeRefused> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone().into());
        }
        state
            .topics
            .table
            .replace(topic, (from, name), retention, false)?;
        state.topics.trim_purged(topic);
        let (offset, watchers) = (state.durable, state.watchers.clone());
        drop(state);
        ring(&watchers);
        Ok(offset)
    }

    fn rename(&self, renames: &[TopicRename], deleted: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone().into());
        }
        state.topics.table.rename(renames, deleted)?;
        deleted.iter().for_each(|topic| state.topics.trim_purged(*topic));
        let (offset, watchers) = (state.durable, state.watchers.clone());
        drop(state);
        ring(&watchers);
        Ok(offset)
    }

    fn note_reader(&self, topic: TopicNumber, reader: TopicNumber, through: Sequence) {
        let mut state = self.lock();
        state.topics.table.note_reader(topic, reader, through);
    }

    fn all_readers_noted(&self, topic: TopicNumber) {
        self.lock().topics.table.all_readers_noted(topic);
    }

    fn appended_with(&self, topic: TopicNumber, id: u128) -> Option<Sequence> {
        self.lock().topics.table.appended_with(topic, id)
    }

    fn at_time(&self, topic: TopicNumber, time: Timestamp) -> Result<Sequence, ReadError> {
        let state = self.readable()?;
        let head = state
            .topics
            .table
            .head(topic)
            .filter(|head| !head.is_deleted)
            .ok_or(ReadError::UnknownTopic { topic })?;
        let chunks = state
            .topics
            .shelves
            .get(index(topic))
            .into_iter()
            .flat_map(TopicShelf::iter);
        let mut behind = Sequence::new(head.dropped);
        for (chunk, last) in chunks {
            if last >= time {
                break;
            }
            behind = chunk.last();
        }
        Ok(behind)
    }
}
