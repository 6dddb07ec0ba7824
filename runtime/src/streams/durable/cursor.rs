//! The place of a reader in a durable output stream.

use std::sync::Arc;

use millrun_core::{RunId, Sequence};
use millrun_persistence::TopicRecord;
use millrun_workflow::Payload;
use xxhash_rust::xxh3::xxh3_64;

use super::index::kept_name;
use super::log::StreamLog;
use super::record;
use crate::RunError;
use crate::inner::Inner;
use crate::operating::Lost;
use crate::streams::position::StreamPosition;
use crate::streams::reader::{StreamItem, StreamReadError};
use crate::streams::table::Stream;
use crate::streams::tail::TailItem;
use crate::topics::durable::reader::{TopicReadError, TopicReader};

/// See the [module](self).
pub(crate) struct LogCursor {
    topic: TopicReader<()>,
    run: RunId,
    /// The name of the topic, while the stream exists.
    name: String,
    /// Distinguishes the positions of this stream from those of others.
    life: u64,
    /// The position in another stream behind which it was opened; set until the loss is reported.
    unknown_since: Option<StreamPosition>,
    /// The error that the next call returns.
    failure: Option<StreamReadError>,
}

impl LogCursor {
    /// Begins behind a position, or with the first item.
    pub(crate) fn new(
        inner: &Arc<Inner>,
        stream: &Stream,
        log: &StreamLog,
        behind: Option<StreamPosition>,
    ) -> Self {
        let (run, name) = (stream.key.0, kept_name(stream.key.0, &stream.key.1));
        let known = log.known;
        let life = xxh3_64(format!("{}/{}/{name}", known.store, known.number.get()).as_bytes());
        let summary = inner.streams().summary(known.number);
        let (first, last) = summary.map_or((1, 0), |summary| (summary.first.get(), summary.last.get()));
        let before = first.saturating_sub(1);
        let is_known =
            |position: &StreamPosition| position.life == life && (before..=last).contains(&position.number);
        let (after, unknown_since) = match behind {
            None | Some(StreamPosition { number: 0, .. }) => (before, None),
            Some(position) if is_known(&position) => (position.number, None),
            Some(position) => (before, Some(position)),
        };
        Self {
            topic: TopicReader::behind(Arc::clone(inner), known, Sequence::new(after)),
            run,
            name,
            life,
            unknown_since,
            failure: None,
        }
    }

    pub(crate) fn position(&self) -> StreamPosition {
        let here = StreamPosition {
            life: self.life,
            number: self.topic.read_through().get(),
        };
        self.unknown_since.unwrap_or(here)
    }

    /// The next item in hand, if any; does not wait.
    pub(crate) fn in_hand(&mut self, inner: &Inner) -> Option<Result<StreamItem<Payload>, StreamReadError>> {
        if let Some(failure) = self.failure.take() {
            return Some(Err(failure));
        }
        if self.unknown_since.take().is_some() {
            return Some(Ok(StreamItem::Missed(Lost::Unknown)));
        }
        loop {
            let next = self.topic.raw_in_hand()?;
            if let Some(told) = self.told(inner, next) {
                return Some(told);
            }
        }
    }

    /// As [`in_hand`](Self::in_hand), which reports any error later.
    pub(crate) fn try_in_hand(&mut self, inner: &Inner) -> Option<StreamItem<Payload>> {
        if self.failure.is_some() {
            return None;
        }
        match self.in_hand(inner)? {
            Ok(item) => Some(item),
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }

    /// The next item, if it exists already. This may read the store.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next_now(
        &mut self,
        inner: &Inner,
    ) -> Result<Option<StreamItem<Payload>>, StreamReadError> {
        if let Some(next) = self.in_hand(inner) {
            return next.map(Some);
        }
        loop {
            let next = match self.topic.next_raw_now().await {
                Ok(None) => return Ok(None),
                Ok(Some(record)) => Ok(record),
                Err(error) => Err(error),
            };
            if let Some(told) = self.told(inner, next) {
                return told.map(Some);
            }
        }
    }

    /// Waits until there is something, and takes it in hand.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn until_news(&mut self) -> Result<(), StreamReadError> {
        self.topic.until_page().await.map_err(|error| self.failed(error))
    }

    /// Converts a record for a reader; `None` if the record belongs to another stream.
    fn told(
        &mut self,
        inner: &Inner,
        next: Result<TopicRecord, TopicReadError>,
    ) -> Option<Result<StreamItem<Payload>, StreamReadError>> {
        let record = match next {
            Ok(record) => record,
            Err(TopicReadError::Dropped { count }) if self.is_there(inner) => {
                return Some(Ok(StreamItem::Missed(Lost::Counted(count))));
            }
            Err(TopicReadError::Dropped { .. }) => return Some(Err(removed())),
            Err(error) => return Some(Err(self.failed(error))),
        };
        let item = match record::decode(&record.body) {
            Ok((run, item)) if run == self.run => item,
            Ok(_) if self.is_there(inner) => return None,
            Ok(_) => return Some(Err(removed())),
            Err(error) => {
                return Some(Err(StreamReadError::Undecodable {
                    problem: error.to_string(),
                }));
            }
        };
        Some(Ok(match item {
            TailItem::Began(attempt) => StreamItem::Began(attempt),
            TailItem::Chunk(attempt, payload) => StreamItem::Chunk(attempt, payload),
            TailItem::Ended(attempt, end) => StreamItem::Ended(attempt, end),
        }))
    }

    /// Whether its topic still belongs to the stream.
    fn is_there(&self, inner: &Inner) -> bool {
        let summary = inner.streams().summary(self.topic.known().number);
        summary.is_some_and(|summary| summary.name == self.name)
    }

    fn failed(&self, error: TopicReadError) -> StreamReadError {
        match error {
            TopicReadError::Stopped(cause) => cause.into(),
            TopicReadError::Deleted | TopicReadError::Dropped { .. } => removed(),
            TopicReadError::Damaged { count, cause } => StreamReadError::Damaged { count, cause },
            TopicReadError::Undecodable { problem, .. } => StreamReadError::Undecodable { problem },
            TopicReadError::Unreadable { problem } => StreamReadError::Unreadable { problem },
        }
    }
}

/// The run was removed, together with its streams.
fn removed() -> StreamReadError {
    StreamReadError::Run(RunError::Expired)
}
