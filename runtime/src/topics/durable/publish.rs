//! A publish to a durable topic by a caller outside of runs.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use millrun_core::{Cause, Partition, Sequence, TraceContext};
use millrun_persistence::TopicNumber;
use millrun_workflow::{Payload, PayloadError, RECORD_TEXT_BYTES_MAX};
use serde::Serialize;
use tokio::sync::oneshot;
use xxhash_rust::xxh3::xxh3_128;

use super::declared::KnownTopic;
use super::stored::{HEADER_BYTES_MAX, StoredHeader};
use super::token::RecordToken;
use crate::StopCause;
use crate::ending::stop::UnlessOver;
use crate::inner::{ForRoom, Inner};
use crate::mail::{AppendRequest, Reply, Request};

/// A prepared publish to a durable topic; made by
/// [`DurableTopicHandle::publish`](super::handle::DurableTopicHandle::publish). It is made when it is awaited, and completes
/// when the record is durable.
///
/// # Cancel safety
/// If it is dropped while it waits, the record may or may not be appended. With an [id](Self::id) the publish can be
/// repeated.
#[must_use = "nothing is published until it is awaited"]
pub struct PublishRecord<'a> {
    inner: &'a Arc<Inner>,
    known: KnownTopic,
    payload: Result<Payload, PayloadError>,
    header: StoredHeader<&'a str>,
    id: Option<&'a str>,
}

impl fmt::Debug for PublishRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishRecord")
            .field("topic", &self.known)
            .field("header", &self.header)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A durable record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedRecord {
    token: RecordToken,
    is_repeat: bool,
}

impl PublishedRecord {
    pub(super) fn new(token: RecordToken, is_repeat: bool) -> Self {
        Self { token, is_repeat }
    }

    /// Its place.
    #[must_use]
    pub fn token(&self) -> RecordToken {
        self.token
    }

    /// Its number within its topic, counted from 1 without gaps.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.token.sequence()
    }

    /// Whether a record with this id had been appended before: then the place is that record's, and nothing was added.
    #[must_use]
    pub fn is_repeat(&self) -> bool {
        self.is_repeat
    }
}

/// Why a value was not published to a durable topic.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurablePublishError {
    /// The value could not be encoded.
    #[error("the value could not be encoded")]
    Payload(#[from] PayloadError),
    /// The value is larger than a payload may be, or than fits a turn of the journal.
    #[error(
        "the value has {bytes} bytes, a record may have {bytes_max}, as `payload_bytes_max` and `turn_bytes_max` of the \
         configuration say: publish a reference instead"
    )]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A text of the record is longer than [`RECORD_TEXT_BYTES_MAX`].
    #[error("the {field} has {bytes} bytes, it may have {RECORD_TEXT_BYTES_MAX}")]
    TextTooLong {
        /// Which: `key`, `correlation`, `content type` or `id`.
        field: &'static str,
        /// Its size in bytes.
        bytes: usize,
    },
    /// The partition of the key has another owner, or had one before the record was durable: ask that owner, or repeat later
    /// here. It is unknown whether the record was appended.
    #[error("partition {} has another owner", partition.index())]
    Moved {
        /// The partition.
        partition: Partition,
    },
    /// The journal does not know the topic any more: it was [deleted](crate::Runtime::delete_durable_topic).
    #[error("the topic was deleted: the journal does not know it")]
    UnknownTopic,
    /// The runtime has stopped. It is unknown whether the record was appended.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

/// A shard's answer about a record: its number, and whether it existed before.
pub(crate) type Appended = (Sequence, bool);

impl<'a> PublishRecord<'a> {
    pub(super) fn new<T: Serialize>(inner: &'a Arc<Inner>, known: KnownTopic, value: &T) -> Self {
        Self {
            inner,
            known,
            payload: Payload::encode(value),
            header: StoredHeader {
                key: None,
                correlation: None,
                content_type: None,
                cause: None,
                trace: None,
                record: None,
            },
            id: None,
        }
    }

    /// Records with the same key have one order for all readers: the order of their publishes.
    pub fn key(mut self, key: &'a str) -> Self {
        self.header.key = Some(key);
        self
    }

    /// An id of the caller's choice: while the journal remembers it
    /// ([`topic_ids_len_max`](crate::store::JournalConfig::topic_ids_len_max)), a second record with the same id is not added
    /// to the topic. 128 bits of a hash of the id are kept.
    pub fn id(mut self, id: &'a str) -> Self {
        self.id = Some(id);
        self
    }

    /// The caller's name for the process or group that the record belongs to.
    pub fn correlation(mut self, correlation: &'a str) -> Self {
        self.header.correlation = Some(correlation);
        self
    }

    /// The format of the payload, for readers outside of millrun.
    pub fn content_type(mut self, content_type: &'a str) -> Self {
        self.header.content_type = Some(content_type);
        self
    }

    /// The run and the operation that the record stems from.
    pub fn caused_by(mut self, cause: Cause) -> Self {
        self.header.cause = Some(cause);
        self
    }

    /// The record's place in a distributed trace.
    pub fn traced(mut self, trace: TraceContext) -> Self {
        self.header.trace = Some(trace);
        self
    }

    fn check(&self, payload: &Payload) -> Result<(), DurablePublishError> {
        let texts = [
            ("key", self.header.key),
            ("correlation", self.header.correlation),
            ("content type", self.header.content_type),
            ("id", self.id),
        ];
        for (field, text) in texts {
            let bytes = text.map_or(0, str::len);
            if bytes > RECORD_TEXT_BYTES_MAX {
                return Err(DurablePublishError::TextTooLong { field, bytes });
            }
        }
        let config = &self.inner.shared.config;
        let bytes_max =
            (config.limits.payload_bytes_max).min(record_bytes_max(config.journal.turn_bytes_max));
        let bytes = payload.len();
        if bytes > bytes_max {
            return Err(DurablePublishError::TooLarge { bytes, bytes_max });
        }
        Ok(())
    }

    /// The partition for the record: that of its key, or else of its id, or else any that this runtime owns.
    fn partition(&self) -> Partition {
        if let Some(named) = self.header.key.or(self.id) {
            return Partition::of(named.as_bytes());
        }
        let shared = &self.inner.shared;
        let (random, owned) = (shared.host.random(), shared.claims.owned());
        let count = u64::from(Partition::COUNT);
        let nth = |offset: u64| {
            let index = (random % count + offset) % count;
            u16::try_from(index).ok().and_then(Partition::from_index)
        };
        let mut owned = (0..count)
            .filter_map(nth)
            .filter(|partition| owned.has(*partition));
        owned
            .next()
            .unwrap_or_else(|| Partition::of(&random.to_le_bytes()))
    }

    /// The record to append, if it is valid.
    fn record(self) -> Result<RecordToAppend, DurablePublishError> {
        let partition = self.partition();
        self.check(self.payload.as_ref().map_err(Clone::clone)?)?;
        let payload = self.payload?;
        Ok(RecordToAppend {
            topic: self.known.number,
            partition,
            id: self.id.map(|id| xxh3_128(id.as_bytes())),
            body: self.header.encode_before(payload.as_bytes()),
            payload_len: payload.len(),
            unless_changed: None,
        })
    }
}

/// A record to be appended on its own.
pub(crate) struct RecordToAppend {
    pub(crate) topic: TopicNumber,
    pub(crate) partition: Partition,
    pub(crate) id: Option<u128>,
    /// The header and the payload.
    pub(crate) body: Vec<u8>,
    pub(crate) payload_len: usize,
    /// The record is appended only if this is the last record of this topic; otherwise its partition is reported as
    /// [moved](DurablePublishError::Moved).
    pub(crate) unless_changed: Option<(TopicNumber, Sequence)>,
}

/// The channel for a shard's answer.
type AppendAnswer = oneshot::Receiver<Result<Appended, DurablePublishError>>;

impl RecordToAppend {
    fn request(self, reply: Reply<Appended, DurablePublishError>) -> Box<AppendRequest> {
        self.request_with(Vec::new(), reply)
    }

    fn request_with(
        self,
        more: Vec<Vec<u8>>,
        reply: Reply<Appended, DurablePublishError>,
    ) -> Box<AppendRequest> {
        let Self {
            topic,
            partition,
            id,
            body,
            payload_len,
            unless_changed,
        } = self;
        Box::new(AppendRequest {
            topic,
            partition,
            id,
            body,
            payload_len,
            more,
            unless_changed,
            reply,
        })
    }
}

/// Has the shard that owns its partition append a record, and waits until it is durable.
pub(super) async fn append_record(
    inner: &Inner,
    record: RecordToAppend,
) -> Result<Appended, DurablePublishError> {
    let door = inner.doors.of(record.partition);
    let (reply, answer) = oneshot::channel();
    inner
        .ask_in_little_memory(door, Request::Append(record.request(reply.into())), answer)
        .await
}

/// As [`append_record`], with the bodies of further records in the same batch: all are appended or none. Returns the place of
/// the last. It also works while the runtime is shutting down, since activities are still running then.
pub(crate) async fn append_records(
    inner: &Inner,
    record: RecordToAppend,
    more: Vec<Vec<u8>>,
) -> Result<Appended, DurablePublishError> {
    let door = inner.doors.of(record.partition);
    let (reply, answer) = oneshot::channel();
    let request = Request::Append(record.request_with(more, reply.into()));
    inner.ask_while_closing(door, request, answer).await
}

/// The largest payload of a record, if a turn may have this many bytes.
pub(crate) fn record_bytes_max(turn_bytes_max: usize) -> usize {
    /// More than a journal adds to a body.
    const FRAME_BYTES_MAX: usize = 64;
    turn_bytes_max.saturating_sub(HEADER_BYTES_MAX + FRAME_BYTES_MAX)
}

impl<'a> IntoFuture for PublishRecord<'a> {
    type Output = Result<PublishedRecord, DurablePublishError>;
    type IntoFuture = PublishingRecord<'a>;

    fn into_future(self) -> Self::IntoFuture {
        let (inner, known) = (self.inner, self.known);
        let (reply, answer) = oneshot::channel();
        PublishingRecord {
            inner,
            known,
            to_ask: Some(self.record().map(|record| record.request(reply.into()))),
            room: None,
            answer: inner.stop.unless_over(answer),
        }
    }
}

/// An awaited [`PublishRecord`]; it sends its request at the first poll. It is a hand-written future, so that it needs no
/// allocation: a thousand simultaneous publishers would exceed a cache.
#[must_use = "nothing is published until it is awaited"]
pub struct PublishingRecord<'a> {
    inner: &'a Arc<Inner>,
    known: KnownTopic,
    /// The request, until it is sent.
    to_ask: Option<Result<Box<AppendRequest>, DurablePublishError>>,
    /// The wait for room at the shard, if it had none.
    room: Option<ForRoom<'a>>,
    answer: UnlessOver<'a, AppendAnswer>,
}

impl fmt::Debug for PublishingRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishingRecord")
            .field("topic", &self.known)
            .finish_non_exhaustive()
    }
}

impl Future for PublishingRecord<'_> {
    type Output = Result<PublishedRecord, DurablePublishError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(request) = this.to_ask.take() {
            let request = request?;
            let door = this.inner.doors.of(request.partition);
            this.room = this.inner.push_or_wait(door, Request::Append(request))?;
        }
        if let Some(room) = &mut this.room {
            let is_pushed = ready!(room.as_mut().poll(cx));
            this.room = None;
            if !is_pushed {
                return Poll::Ready(Err(this.inner.stop_cause().into()));
            }
        }
        let Some(Ok(appended)) = ready!(Pin::new(&mut this.answer).poll(cx)) else {
            return Poll::Ready(Err(this.inner.stop_cause().into()));
        };
        let (sequence, is_repeat) = appended?;
        let token = RecordToken::new(this.known.store, this.known.number, sequence);
        Poll::Ready(Ok(PublishedRecord::new(token, is_repeat)))
    }
}
