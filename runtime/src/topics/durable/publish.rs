//! A publish to a durable topic from outside.

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

/// A publish to a durable topic that is described; made by
/// [`DurableTopicHandle::publish`](super::handle::DurableTopicHandle::publish). Awaited, it is made, and ends when the record is
/// durable.
///
/// # Cancel safety
/// Dropped while it waits, the record may or may not be appended. With an [id](Self::id) it can be published again.
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

/// A record is durable.
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

    /// Whether a record with this id had been appended before: that one is meant, and nothing was added.
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
    /// The value is larger than a payload may be, or than a turn of the journal has room for.
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
    /// A text that is said of the record is longer than [`RECORD_TEXT_BYTES_MAX`].
    #[error("the {field} has {bytes} bytes, it may have {RECORD_TEXT_BYTES_MAX}")]
    TextTooLong {
        /// Which: `key`, `correlation`, `content type` or `id`.
        field: &'static str,
        /// Its size in bytes.
        bytes: usize,
    },
    /// The partition of the key has another owner, or had one before the record was durable: ask that one, or here again later.
    /// Whether the record was appended is not known.
    #[error("partition {} has another owner", partition.index())]
    Moved {
        /// The partition.
        partition: Partition,
    },
    /// The journal does not know the topic any more: it was [deleted](crate::Runtime::delete_durable_topic).
    #[error("the topic was deleted: the journal does not know it")]
    UnknownTopic,
    /// The runtime has stopped. Whether the record was appended is not known.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

/// What a shard says of a record: its number, and whether it was there before.
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

    /// Records of one key have one order for all readers: that in which they were published.
    pub fn key(mut self, key: &'a str) -> Self {
        self.header.key = Some(key);
        self
    }

    /// An id of the caller's choice: a record of the topic that was published with it is not published again, as long as the
    /// journal remembers it ([`topic_ids_len_max`](crate::store::JournalConfig::topic_ids_len_max)). Of ids 128 bits of a hash
    /// are kept.
    pub fn id(mut self, id: &'a str) -> Self {
        self.id = Some(id);
        self
    }

    /// What the caller calls the whole that the record belongs to.
    pub fn correlation(mut self, correlation: &'a str) -> Self {
        self.header.correlation = Some(correlation);
        self
    }

    /// The format of the payload, for readers of other kinds.
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

    /// The partition that the record goes to: that of its key, or else of its id, or else any that this runtime owns.
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

    /// What is to be appended, if it is a record that a topic may take.
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

/// A record that is to be appended by itself.
pub(crate) struct RecordToAppend {
    pub(crate) topic: TopicNumber,
    pub(crate) partition: Partition,
    pub(crate) id: Option<u128>,
    /// What stands before the payload, and the payload.
    pub(crate) body: Vec<u8>,
    pub(crate) payload_len: usize,
    /// It is appended only if this is the last record of that topic; else, its partition is said to have
    /// [moved](DurablePublishError::Moved).
    pub(crate) unless_changed: Option<(TopicNumber, Sequence)>,
}

/// Where a shard answers.
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

/// Has the shard that owns its partition append a record; waits until it is durable.
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

/// As [`append_record`], with the bodies of more records that follow it in one batch: all are appended or none. Gives the place of
/// the last. It is asked for also while the runtime is shutting down, since activities go on then.
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

/// How many bytes the payload of a record may have where a turn has this many.
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

/// A [`PublishRecord`] that is awaited; it asks when it is polled first. Written out, so that it needs no memory of its own: a
/// thousand publishers at a time are more than a cache holds.
#[must_use = "nothing is published until it is awaited"]
pub struct PublishingRecord<'a> {
    inner: &'a Arc<Inner>,
    known: KnownTopic,
    /// What is asked, until it has been.
    to_ask: Option<Result<Box<AppendRequest>, DurablePublishError>>,
    /// The wait for room at the shard, if there was none.
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
