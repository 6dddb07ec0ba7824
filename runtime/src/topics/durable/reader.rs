//! Readers of durable topics, each with a place and a pace of its own.
//!
//! ```text
//!   page in hand ──► next record
//!        │ empty: listed for news, then what is in memory behind the last ──► page, or a gap that retention left
//!        │                             └ on disk alone: a lane reads ──────► page
//!        └──────── nothing: waits for news
//! ```
//!
//! Invariants: a reader never skips a record silently, and returns none twice. It holds at most one page, and another that a
//! lane is reading meanwhile, however far it lags, and delays no publisher.

use std::fmt;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::stream::{self, Stream};
use millrun_core::{Sequence, Timestamp};
use millrun_persistence::{
    FailureKind, JournalFailure, LatestRecords, ReadError, TopicChunk, TopicPage, TopicRecord, TopicRecords,
    TopicStreams, TopicSummary,
};
use millrun_workflow::Payload;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::declared::KnownTopic;
use super::record::DurableRecord;
use super::stored::StoredHeader;
use super::token::RecordToken;
use crate::StopCause;
use crate::inner::Inner;

/// The error of a read whose lane was restarted.
const LANE_LOST: FailureKind = FailureKind::Io(ErrorKind::Interrupted);

fn lane_lost() -> ReadError {
    let what = "the part that reads was restarted while it worked on this; ask again";
    JournalFailure::new(LANE_LOST, what).into()
}

/// Whether the part that reads was restarted meanwhile, so that the read has to be repeated.
pub(super) fn is_lane_lost(error: &ReadError) -> bool {
    matches!(error, ReadError::Failed(failure) if failure.kind() == LANE_LOST)
}

/// Where a reader of a durable topic begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// With the first record that is left.
    Beginning,
    /// With the first record that becomes durable from now on.
    Now,
    /// With the first record that was appended at this time or later, by the clocks of the writers.
    Time(Timestamp),
    /// With the record behind this one.
    After(RecordToken),
    /// With up to this many of the last records, and what follows.
    Last(u64),
}

/// Why a reader was not opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFromError {
    /// The token belongs to a record in another store.
    #[error("the token is of a record in another store")]
    OtherStore,
    /// The token belongs to a record of another topic.
    #[error("the token is of a record of another topic")]
    OtherTopic,
    /// The store has no such record yet: it is older than the token, restored from a backup say.
    #[error("the token is of record {sequence}, and the topic has {last} up to now")]
    NotYet {
        /// The record of the token.
        sequence: Sequence,
        /// The last record of the topic.
        last: Sequence,
    },
    /// The topic was [deleted](crate::Runtime::delete_durable_topic).
    #[error("the topic was deleted")]
    Deleted,
    /// The index of the records' places cannot be read.
    #[error("it cannot be read where the reader begins")]
    Read(#[source] ReadError),
    /// The runtime has stopped.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

/// Why a reader of a durable topic has no record at this place. Unless the runtime has [stopped](Self::Stopped) or the topic
/// is [deleted](Self::Deleted), the next call continues: at the same place if it is [unreadable](Self::Unreadable) now, and
/// behind it otherwise.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopicReadError {
    /// Retention or a [purge](crate::Runtime::purge_durable_topic) has dropped records before this reader reached them.
    #[error("retention or a purge has dropped {count} records before they were read")]
    Dropped {
        /// How many.
        count: u64,
    },
    /// Records are damaged, or cannot be read because they are stored together with a damaged one.
    #[error("{count} records cannot be read: {cause}")]
    Damaged {
        /// How many.
        count: u64,
        /// What is wrong with them.
        cause: String,
    },
    /// A record does not decode as the topic's type.
    #[error("the record {} cannot be decoded: {problem}", token.sequence())]
    Undecodable {
        /// The record.
        token: RecordToken,
        /// What is wrong with it.
        problem: String,
    },
    /// The topic was [deleted](crate::Runtime::delete_durable_topic): there is nothing further.
    #[error("the topic was deleted")]
    Deleted,
    /// The topic cannot be read now. No record is skipped: the next call tries again.
    #[error("the topic cannot be read now: {problem}")]
    Unreadable {
        /// What is wrong.
        problem: String,
    },
    /// The runtime has stopped.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

/// Reads a durable topic record by record, and waits for new ones; made by
/// [`DurableTopicHandle::read`](super::handle::DurableTopicHandle::read). It keeps the runtime alive, as a handle does.
///
/// Each reader has a place of its own. A reader that lags holds two pages, of about
/// [`topic_page_bytes_max`](crate::RuntimeConfig::topic_page_bytes_max) each, one in use while the other is being read, and
/// delays no publisher. If retention drops records that it has not reached, it is [told](TopicReadError::Dropped).
pub struct TopicReader<T> {
    inner: Arc<Inner>,
    known: KnownTopic,
    /// The last record that was returned or reported.
    after: Sequence,
    /// The page in use: the records of the present chunk, and the chunks behind it.
    records: Option<TopicRecords>,
    chunks: std::vec::IntoIter<TopicChunk>,
    /// The page that a lane is reading. If a call is dropped, the next one uses it.
    asked: Option<AskedPage>,
    /// Dropped records that have to be reported first.
    dropped: u64,
    /// Earlier records are skipped, up to the first that was not appended before this time.
    not_before: Option<Timestamp>,
    payload: PhantomData<fn() -> T>,
}

/// What a reader does at the end of its topic.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfNone {
    Wait,
    Return,
}

/// A page that a lane reads.
struct AskedPage {
    /// The record behind which the page begins.
    after: Sequence,
    answer: oneshot::Receiver<Result<TopicPage, ReadError>>,
    /// Whether it was requested while another page was in use.
    is_ahead: bool,
}

impl<T> fmt::Debug for TopicReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicReader")
            .field("topic", &self.known)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// The topics of the journal, which supports them if one was declared.
    pub(crate) fn streams(&self) -> &dyn TopicStreams {
        let streams = self.shared.journal.topics();
        streams.expect("the journal has declared the topic")
    }

    /// Why a read failed: because the runtime stops, or for its own reason.
    pub(crate) fn unless_stopped(&self, error: ReadError) -> Result<ReadError, StopCause> {
        match self.settled_cause() {
            Some(cause) => Err(cause),
            None if self.stop.is_closing() => Err(StopCause::Shutdown),
            None => Ok(error),
        }
    }

    /// Waits for the answer of a lane, unless the runtime stops.
    pub(crate) async fn lane_answer<A>(
        &self,
        answer: impl Future<Output = Option<Result<A, ReadError>>>,
    ) -> Result<Result<A, ReadError>, StopCause> {
        let answer = self.stop.unless_over(Box::pin(answer)).await.flatten();
        match answer.unwrap_or_else(|| Err(lane_lost())) {
            Ok(read) => Ok(Ok(read)),
            Err(error) => self.unless_stopped(error).map(Err),
        }
    }
}

impl<T> TopicReader<T> {
    pub(super) async fn open(
        inner: Arc<Inner>,
        known: KnownTopic,
        from: ReadFrom,
    ) -> Result<Self, ReadFromError> {
        let summary = |inner: &Inner| -> Result<TopicSummary, ReadFromError> {
            inner
                .streams()
                .summary(known.number)
                .ok_or(ReadFromError::Deleted)
        };
        let mut not_before = None;
        let after = match from {
            ReadFrom::Beginning => Sequence::new(summary(&inner)?.first.get().saturating_sub(1)),
            ReadFrom::Now => summary(&inner)?.last,
            ReadFrom::Time(time) => {
                not_before = Some(time);
                let answer = inner.lane_answer(inner.shared.reader.topic_at_time(known.number, time));
                answer.await?.map_err(|error| match error {
                    ReadError::UnknownTopic { .. } => ReadFromError::Deleted,
                    error => ReadFromError::Read(error),
                })?
            }
            ReadFrom::Last(len) => {
                let summary = summary(&inner)?;
                let last = summary.last.get().saturating_sub(len);
                Sequence::new(last.max(summary.first.get().saturating_sub(1)))
            }
            ReadFrom::After(token) if token.store() != known.store => return Err(ReadFromError::OtherStore),
            ReadFrom::After(token) if token.topic() != known.number => return Err(ReadFromError::OtherTopic),
            ReadFrom::After(token) => {
                let (sequence, last) = (token.sequence(), summary(&inner)?.last);
                if sequence > last {
                    return Err(ReadFromError::NotYet { sequence, last });
                }
                sequence
            }
        };
        Ok(Self {
            not_before,
            ..Self::behind(inner, known, after)
        })
    }

    /// A reader that begins behind this record.
    pub(crate) fn behind(inner: Arc<Inner>, known: KnownTopic, after: Sequence) -> Self {
        Self {
            inner,
            known,
            after,
            records: None,
            chunks: Vec::new().into_iter(),
            asked: None,
            dropped: 0,
            not_before: None,
            payload: PhantomData,
        }
    }

    /// The last record that was returned or reported.
    pub(crate) fn read_through(&self) -> Sequence {
        self.after
    }

    /// Waits for the next record, as it is in the journal; see [`next`](Self::next).
    pub(super) async fn next_raw(&mut self) -> Result<TopicRecord, TopicReadError> {
        loop {
            if let Some(next) = self.raw_in_hand() {
                return next;
            }
            self.turn_page(IfNone::Wait).await?;
        }
    }

    /// Waits for the next record as [`next`](Self::next) does, and returns its payload encoded: for programs that show
    /// records without knowing their type.
    ///
    /// # Errors
    /// As [`next`](Self::next). A record that is encoded as another type is no error.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next_encoded(&mut self) -> Result<DurableRecord<Payload>, TopicReadError> {
        let record = self.next_raw().await?;
        self.encoded(&record)
    }

    /// The next record, if it exists already, as [`next_encoded`](Self::next_encoded) returns it; otherwise `None`. This may
    /// read the store.
    ///
    /// # Errors
    /// As [`next_encoded`](Self::next_encoded).
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next_encoded_now(&mut self) -> Result<Option<DurableRecord<Payload>>, TopicReadError> {
        loop {
            if let Some(next) = self.raw_in_hand() {
                return self.encoded(&next?).map(Some);
            }
            if !self.turn_page(IfNone::Return).await? {
                return Ok(None);
            }
        }
    }

    /// The next record, if it exists already, as it is in the journal; see [`next_encoded_now`](Self::next_encoded_now).
    pub(crate) async fn next_raw_now(&mut self) -> Result<Option<TopicRecord>, TopicReadError> {
        loop {
            if let Some(next) = self.raw_in_hand() {
                return next.map(Some);
            }
            if !self.turn_page(IfNone::Return).await? {
                return Ok(None);
            }
        }
    }

    /// If no page is in use, waits for one.
    pub(crate) async fn until_page(&mut self) -> Result<(), TopicReadError> {
        self.turn_page(IfNone::Wait).await.map(|_| ())
    }

    /// The topic.
    pub(crate) fn known(&self) -> KnownTopic {
        self.known
    }

    fn encoded(&self, record: &TopicRecord) -> Result<DurableRecord<Payload>, TopicReadError> {
        let token = self.token(record.sequence);
        let decoded = StoredHeader::decode(&record.body);
        let (header, payload) = decoded.map_err(|error| TopicReadError::Undecodable {
            token,
            problem: error.to_string(),
        })?;
        Ok(DurableRecord {
            token,
            time: record.time,
            header,
            payload: Payload::from_bytes(payload),
        })
    }

    /// The record behind which the next one is read: `None` before the first of a topic.
    #[must_use]
    pub fn position(&self) -> Option<RecordToken> {
        (self.after > Sequence::ZERO).then(|| self.token(self.after))
    }

    fn token(&self, sequence: Sequence) -> RecordToken {
        RecordToken::new(self.known.store, self.known.number, sequence)
    }

    /// The next item of the page in use, if any.
    pub(crate) fn raw_in_hand(&mut self) -> Option<Result<TopicRecord, TopicReadError>> {
        if let Some(count) = self.take_dropped() {
            return Some(Err(TopicReadError::Dropped { count }));
        }
        loop {
            let Some(records) = &mut self.records else {
                self.records = Some(self.chunks.next()?.records());
                continue;
            };
            let Some(record) = records.next() else {
                self.records = None;
                continue;
            };
            if record.sequence <= self.after {
                continue;
            }
            self.after = record.sequence;
            if self.not_before.is_some_and(|time| record.time < time) {
                continue;
            }
            self.not_before = None;
            return Some(Ok(record));
        }
    }

    fn take_dropped(&mut self) -> Option<u64> {
        let count = std::mem::take(&mut self.dropped);
        self.after = Sequence::new(self.after.get() + count);
        (count > 0).then_some(count)
    }

    /// Takes the next page into use. Returns whether there is one; if not, the caller may wait for a record.
    async fn turn_page(&mut self, if_none: IfNone) -> Result<bool, TopicReadError> {
        let inner = Arc::clone(&self.inner);
        let bytes_max = inner.shared.config.topic_page_bytes_max;
        let (topic, after) = (self.known.number, self.after);
        loop {
            if let Some(asked) = self.asked.as_mut().filter(|asked| asked.after == after) {
                let is_ahead = asked.is_ahead;
                let answer = &mut asked.answer;
                let answer = inner.lane_answer(async { answer.await.ok() }).await;
                self.asked = None;
                match answer {
                    // The lane has failed meanwhile: another one is asked.
                    Ok(Err(ReadError::Failed(_))) if is_ahead => {}
                    // The page was empty when it was read ahead; there may be records by now.
                    Ok(Ok(page)) if is_ahead && page.chunks.is_empty() && page.dropped == 0 => {}
                    answer => {
                        let page = answer?;
                        self.ask_ahead(&page);
                        return self.take_page(page).map(|()| true);
                    }
                }
            }
            let Some(news) = inner.shared.durable.news() else {
                return Err(inner.stop_cause().into());
            };
            // Listed before it looks, so that no record is missed.
            let mut waiting = news.wait();
            let page = match inner.streams().latest(topic, after, bytes_max) {
                Ok(LatestRecords::Page(page)) => Ok(page),
                Ok(LatestRecords::Ask) => {
                    drop(waiting);
                    let asked = inner.shared.reader.ask_topic_page(topic, after, bytes_max);
                    let asked = inner.stop.unless_over(Box::pin(asked)).await.flatten();
                    let Some(answer) = asked else {
                        let error = inner.unless_stopped(lane_lost())?;
                        return self.take_page(Err(error)).map(|()| true);
                    };
                    self.asked = Some(AskedPage {
                        after,
                        answer,
                        is_ahead: false,
                    });
                    continue;
                }
                Err(error) => Err(inner.unless_stopped(error)?),
            };
            match page {
                Ok(page) if page.chunks.is_empty() && page.dropped == 0 => {}
                page => return self.take_page(page).map(|()| true),
            }
            if if_none == IfNone::Return {
                return Ok(false);
            }
            let mut stopped = Box::pin(inner.stop.stopped());
            let mut told = pin!(waiting.told());
            let cause = poll_fn(|cx| match told.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => stopped.as_mut().poll(cx).map(Some),
            });
            if let Some(cause) = cause.await {
                return Err(cause.into());
            }
        }
    }

    /// Has a lane read the page after this one, if that is probably on the disk as well and the lane has room.
    fn ask_ahead(&mut self, page: &Result<TopicPage, ReadError>) {
        let Ok(page) = page else { return };
        let bytes: usize = page.chunks.iter().map(TopicChunk::bytes).sum();
        let bytes_max = self.inner.shared.config.topic_page_bytes_max;
        // A smaller page was the last.
        if bytes >= bytes_max / 2 {
            let (topic, after) = (self.known.number, page.last());
            let reader = &self.inner.shared.reader;
            let answer = reader.ask_topic_page_if_room(topic, after, bytes_max);
            self.asked = answer.map(|answer| AskedPage {
                after,
                answer,
                is_ahead: true,
            });
        }
    }

    fn take_page(&mut self, page: Result<TopicPage, ReadError>) -> Result<(), TopicReadError> {
        match page {
            Ok(page) => {
                self.dropped = page.dropped;
                self.chunks = page.chunks.into_iter();
                self.records = None;
                Ok(())
            }
            Err(ReadError::TopicDamaged { until, cause, .. }) => {
                let count = until.get().saturating_sub(self.after.get());
                self.after = self.after.max(until);
                Err(TopicReadError::Damaged { count, cause })
            }
            Err(ReadError::UnknownTopic { .. }) => Err(TopicReadError::Deleted),
            Err(error) => Err(TopicReadError::Unreadable {
                problem: error.to_string(),
            }),
        }
    }
}

impl<T: DeserializeOwned> TopicReader<T> {
    /// Waits for the next record.
    ///
    /// # Errors
    /// The reason why there is no record, see [`TopicReadError`]: the next call continues behind it.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<DurableRecord<T>, TopicReadError> {
        let DurableRecord {
            token,
            time,
            header,
            payload,
        } = self.next_encoded().await?;
        let payload = payload.decode().map_err(|error| TopicReadError::Undecodable {
            token,
            problem: error.to_string(),
        })?;
        Ok(DurableRecord {
            token,
            time,
            header,
            payload,
        })
    }

    /// The records as a stream. It ends after the error that the runtime [has stopped](TopicReadError::Stopped) or that the
    /// topic is [deleted](TopicReadError::Deleted).
    pub fn into_stream(self) -> impl Stream<Item = Result<DurableRecord<T>, TopicReadError>> + Send
    where
        T: Send,
    {
        stream::unfold(Some(self), |reader| async {
            let mut reader = reader?;
            let next = reader.next().await;
            let is_last = matches!(next, Err(TopicReadError::Stopped(_) | TopicReadError::Deleted));
            Some((next, (!is_last).then_some(reader)))
        })
    }
}
