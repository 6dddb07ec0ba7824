//! The topics of the journal: their state is in memory, their records are on the server, and the latest records are in both.

use millrun_core::{Offset, Sequence, Timestamp};
use millrun_persistence::{
    JournalFailure, LatestRecords, PurgedRecords, ReadError, TopicChangeRefused, TopicNumber, TopicPage,
    TopicRefused, TopicRename, TopicRetention, TopicStreams, TopicSummary, topic_page,
};

use crate::journal::PostgresJournal;

impl PostgresJournal {
    /// The record up to which a topic's records were dropped, and its last durable record.
    fn topic_bounds(&self, topic: TopicNumber) -> Result<(Sequence, Sequence), ReadError> {
        self.shared.lock().topics.bounds(topic)
    }
}

impl TopicStreams for PostgresJournal {
    fn declare(&self, name: &str, retention: TopicRetention) -> Result<TopicNumber, TopicRefused> {
        let mut state = self.shared.open_state()?;
        let number = state.topics.declare(name, retention)?;
        let has_changed = state.topics.has_changed();
        if has_changed {
            state.touch();
        }
        drop(state);
        if has_changed {
            self.shared.wake();
        }
        Ok(number)
    }

    fn list(&self) -> Vec<TopicSummary> {
        self.shared.lock().topics.list()
    }

    fn store_number(&self) -> u64 {
        self.store_number
    }

    fn summary(&self, topic: TopicNumber) -> Option<TopicSummary> {
        self.shared.lock().topics.summary(topic)
    }

    fn latest(
        &self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: usize,
    ) -> Result<LatestRecords, ReadError> {
        self.shared.readable()?;
        self.shared.lock().topics.latest(topic, after, bytes_max)
    }

    fn read(&self, topic: TopicNumber, after: Sequence, bytes_max: usize) -> Result<TopicPage, ReadError> {
        if let LatestRecords::Page(page) = self.latest(topic, after, bytes_max)? {
            return Ok(page);
        }
        let from = self.topic_bounds(topic)?.0.max(after);
        let rows =
            self.ask(move |seat| seat.ask(|session| session.topic_rows(topic, from, bytes_max as u64)))?;
        // Asked again after the answer: what the server had dropped by then counts as dropped here too.
        let (dropped, _) = self.topic_bounds(topic)?;
        topic_page(topic, after, dropped, rows)
    }

    fn at_time(&self, topic: TopicNumber, time: Timestamp) -> Result<Sequence, ReadError> {
        self.shared.readable()?;
        let (_, durable) = self.topic_bounds(topic)?;
        let found = self.ask(move |seat| seat.ask(|session| session.topic_at(topic, time)))?;
        let (dropped, _) = self.topic_bounds(topic)?;
        Ok(found.unwrap_or(durable).max(dropped))
    }

    fn note_reader(&self, topic: TopicNumber, reader: TopicNumber, through: Sequence) {
        self.shared.lock().topics.note_reader(topic, reader, through);
    }

    fn all_readers_noted(&self, topic: TopicNumber) {
        self.shared.lock().topics.all_readers_noted(topic);
    }

    fn appended_with(&self, topic: TopicNumber, id: u128) -> Option<Sequence> {
        self.shared.lock().topics.appended_with(topic, id)
    }

    fn purge(&self, topic: TopicNumber, through: Sequence) -> Result<PurgedRecords, TopicChangeRefused> {
        self.change(|state| {
            let purged = state.topics.purge(topic, through)?;
            let offset = state.touch();
            Ok(PurgedRecords { offset, ..purged })
        })
    }

    fn delete(&self, topics: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        self.change(|state| {
            state.topics.delete(topics)?;
            Ok(state.touch())
        })
    }

    fn replace(
        &self,
        topic: TopicNumber,
        from: &str,
        name: &str,
        retention: TopicRetention,
    ) -> Result<Offset, TopicChangeRefused> {
        self.change(|state| {
            state.topics.replace(topic, (from, name), retention)?;
            Ok(state.touch())
        })
    }

    fn rename(&self, renames: &[TopicRename], deleted: &[TopicNumber]) -> Result<Offset, TopicChangeRefused> {
        self.change(|state| {
            state.topics.rename(renames, deleted)?;
            Ok(state.touch())
        })
    }
}

impl PostgresJournal {
    fn change<T>(
        &self,
        change: impl FnOnce(&mut crate::shared::SharedState) -> Result<T, TopicChangeRefused>,
    ) -> Result<T, TopicChangeRefused> {
        let mut state = self
            .shared
            .open_state()
            .map_err(|failure: JournalFailure| TopicChangeRefused::from(failure))?;
        let changed = change(&mut state)?;
        drop(state);
        self.shared.wake();
        Ok(changed)
    }
}
