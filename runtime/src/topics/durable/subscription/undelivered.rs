//! Undelivered records: those that were delivered as often as a subscription allows, or that no consumer can take.

use std::fmt;

use millrun_core::{Partition, Sequence};
use millrun_workflow::{Payload, PayloadError};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use super::kept_before;
use super::shared::{SubscriptionLost, SubscriptionShared};
use crate::Runtime;
use crate::topics::durable::declared::DurableTopicError;
use crate::topics::durable::handle::DurableTopicHandle;
use crate::topics::durable::publish::{DurablePublishError, PublishedRecord, RecordToAppend, append_record};
use crate::topics::durable::reader::{ReadFrom, ReadFromError, TopicReadError};
use crate::topics::durable::stored::StoredHeader;
use crate::topics::durable::token::RecordToken;

/// A record that a durable subscription does not deliver any more, as it is in the topic for undelivered records
/// ([`SubscribeRecords::undelivered_to`](super::SubscribeRecords::undelivered_to)): with its bytes and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UndeliveredRecord {
    /// The name of its topic.
    pub topic: String,
    /// The name of the subscription.
    pub subscription: String,
    /// Its place in its topic.
    pub token: RecordToken,
    /// How often it was delivered.
    pub deliveries: u32,
    /// Why the last delivery failed.
    pub error: String,
    /// Its key.
    pub key: Option<String>,
    /// Its publisher's name for the process or group that it belongs to.
    pub correlation: Option<String>,
    /// The format of its payload, where its publisher said it.
    pub content_type: Option<String>,
    /// Its payload, as its publisher encoded it; all bytes of the record, if it [is whole](Self::is_whole).
    #[serde(serialize_with = "put_bytes", deserialize_with = "take_bytes")]
    pub payload: Vec<u8>,
    /// Whether the record's header could not be read, as that of a later release. Then [`payload`](Self::payload) has all
    /// bytes of the record, key and correlation are unknown, and sending it back appends the same bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_whole: bool,
}

/// Why an undelivered record was not sent back.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendBackError {
    /// The topic that it comes from is not registered with this runtime.
    #[error("the builder of this runtime was told of no durable topic {topic:?}")]
    NotDeclared {
        /// The topic.
        topic: String,
    },
    /// There is no undelivered record at this place: retention has dropped it, or it is another kind of record.
    #[error("there is no undelivered record at {token}: {problem}")]
    NoRecord {
        /// The place.
        token: RecordToken,
        /// What is there.
        problem: String,
    },
    /// The token does not name a place of this topic.
    #[error(transparent)]
    From(#[from] ReadFromError),
    /// The topic of undelivered records cannot be read.
    #[error(transparent)]
    Read(#[from] TopicReadError),
    /// It was not published again.
    #[error(transparent)]
    Publish(#[from] DurablePublishError),
}

/// The result of sending back a range of undelivered records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentBackStretch {
    /// How many records were sent back.
    pub sent_back: u64,
    /// How many had been sent back before.
    pub repeats: u64,
    /// How many were skipped: they are not undelivered records, or their topic refuses them. A warning names each.
    pub passed_over: u64,
    /// The place behind which there may be more.
    pub next: Option<RecordToken>,
}

impl Runtime {
    /// The handle to a durable topic of undelivered records by its name, for operators who send them back. Whether it has
    /// such records shows when it is read.
    ///
    /// # Errors
    /// If no durable topic of this name is registered with the builder.
    pub fn undelivered_topic(
        &self,
        name: &str,
    ) -> Result<DurableTopicHandle<UndeliveredRecord>, DurableTopicError> {
        let durable = &self.inner().shared.durable;
        let named = durable.iter().find(|(known, _)| *known == name);
        let found = named.and_then(|(name, _)| Some((name, durable.named(name)?)));
        let (name, known) = found.ok_or_else(|| DurableTopicError::NotDeclared {
            name: name.to_owned(),
        })?;
        Ok(DurableTopicHandle::of(self.inner(), known, name))
    }
}

impl SendBackError {
    /// Whether the error concerns one record, so that others can still be sent back.
    fn is_of_record(&self) -> bool {
        match self {
            Self::NotDeclared { .. } | Self::NoRecord { .. } => true,
            Self::Publish(error) => !matches!(
                error,
                DurablePublishError::Moved { .. } | DurablePublishError::Stopped(_)
            ),
            Self::From(_) | Self::Read(_) => false,
        }
    }
}

impl DurableTopicHandle<UndeliveredRecord> {
    /// As [`send_back`](Self::send_back), for the record at this place.
    ///
    /// # Errors
    /// See [`SendBackError`].
    ///
    /// # Cancel safety
    /// As [`send_back`](Self::send_back).
    pub async fn send_back_at(&self, token: RecordToken) -> Result<PublishedRecord, SendBackError> {
        let no_record = |problem: &str| SendBackError::NoRecord {
            token,
            problem: problem.to_owned(),
        };
        let before = token.sequence().get().checked_sub(1);
        let before = before.ok_or_else(|| no_record("records are counted from 1"))?;
        let before = RecordToken::new(token.store(), token.topic(), Sequence::new(before));
        let mut reader = self.read(ReadFrom::After(before)).await?;
        match reader.next_encoded_now().await {
            Ok(Some(record)) if record.token() == token => {
                let record = record.payload().decode();
                let record = record.map_err(|error: PayloadError| no_record(&error.to_string()))?;
                self.send_back(&record).await
            }
            Ok(Some(_)) | Err(TopicReadError::Dropped { .. }) => Err(no_record("it is not there any more")),
            Ok(None) => Err(no_record("it is not there yet")),
            Err(error @ TopicReadError::Undecodable { .. }) => Err(no_record(&error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`send_back`](Self::send_back), for all records behind this place, in order, at most `len_max`. One that cannot be
    /// sent back is skipped and counted.
    ///
    /// # Errors
    /// See [`SendBackError`]. Earlier ones are sent back; if the call is repeated, they count as repeats.
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, some are sent back. It can be repeated.
    pub async fn send_back_behind(
        &self,
        after: Option<RecordToken>,
        len_max: usize,
    ) -> Result<SentBackStretch, SendBackError> {
        let mut reader = self
            .read(after.map_or(ReadFrom::Beginning, ReadFrom::After))
            .await?;
        let mut done = SentBackStretch::default();
        for _ in 0..len_max {
            let record = match reader.next_encoded_now().await {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(done),
                Err(TopicReadError::Dropped { .. }) => continue,
                Err(error @ TopicReadError::Undecodable { .. }) => {
                    tracing::warn!(topic = self.name, %error, "a record is not sent back");
                    done.passed_over += 1;
                    continue;
                }
                Err(TopicReadError::Damaged { count, cause }) if count > 0 => {
                    tracing::warn!(topic = self.name, count, cause, "records are not sent back");
                    done.passed_over += count;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let sent = match record.payload().decode() {
                Ok(undelivered) => self.send_back(&undelivered).await,
                Err(error) => Err(SendBackError::NoRecord {
                    token: record.token(),
                    problem: error.to_string(),
                }),
            };
            match sent {
                Ok(sent) if sent.is_repeat() => done.repeats += 1,
                Ok(_) => done.sent_back += 1,
                Err(error) if error.is_of_record() => {
                    tracing::warn!(topic = self.name, record = %record.token(), %error, "a record is not sent back");
                    done.passed_over += 1;
                }
                Err(error) => return Err(error),
            }
        }
        done.next = reader.position();
        Ok(done)
    }

    /// Publishes an undelivered record to its own topic again, at the end, for all subscriptions. Repeated calls for a record
    /// publish it once, while the journal remembers the id that it gets. A record that [is
    /// whole](UndeliveredRecord::is_whole) is appended byte for byte, for a program that can read it. If the subscription
    /// [holds](super::SubscribeRecords::hold_key_when_undelivered) its key, the key is released.
    ///
    /// # Errors
    /// See [`SendBackError`].
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, the record may or may not be published. It can be repeated.
    pub async fn send_back(&self, record: &UndeliveredRecord) -> Result<PublishedRecord, SendBackError> {
        let declared = self.inner.shared.durable.named(&record.topic);
        let topic = declared.ok_or_else(|| SendBackError::NotDeclared {
            topic: record.topic.clone(),
        })?;
        let id = sent_back_id(&record.subscription, record.token);
        let key = record.key.as_deref();
        let body = if record.is_whole {
            // Another header before these bytes would hide theirs from a program that can read it.
            record.payload.clone()
        } else {
            let header = StoredHeader {
                key,
                correlation: record.correlation.as_deref(),
                content_type: record.content_type.as_deref(),
                cause: None,
                trace: None,
                record: Some(record.token),
            };
            header.encode_before(&record.payload)
        };
        let appended = RecordToAppend {
            topic: topic.number,
            partition: Partition::of(key.unwrap_or(&id).as_bytes()),
            id: Some(xxh3_128(id.as_bytes())),
            body,
            payload_len: record.payload.len(),
            unless_changed: None,
        };
        let (sequence, is_repeat) = append_record(&self.inner, appended).await?;
        let present = self.inner.shared.durable.present_name(&record.topic);
        let kept_name = format!("{}{}", kept_before(present), record.subscription);
        // A subscription that is opened later finds the append by its id.
        if let Some(open) = self.inner.shared.durable.subscriptions.get(&kept_name)
            && open.topic.store == record.token.store()
            && open.is_of(record.token.topic())
        {
            open.release_key(|in_hand| in_hand.release_behind(record.token.sequence().get()));
        }
        let token = RecordToken::new(topic.store, topic.number, sequence);
        Ok(PublishedRecord::new(token, is_repeat))
    }
}

/// The id with which a subscription's undelivered record is published again.
pub(crate) fn sent_back_id(subscription: &str, token: RecordToken) -> String {
    format!("sent back {subscription}/{token}")
}

/// The id with which an undelivered record goes to the topic for those.
pub(crate) fn burial_id(subscription: &str, token: RecordToken) -> String {
    format!("undelivered {subscription}/{token}")
}

/// Buries the next record, if there is one. Returns whether there was one.
pub(super) async fn bury_next(shared: &SubscriptionShared) -> Result<bool, SubscriptionLost> {
    let Some(topic) = shared.undelivered else {
        return Ok(false);
    };
    let (buried, appended) = {
        let state = shared.lock();
        let Some((record, returned)) = state.in_hand.next_spent() else {
            return Ok(false);
        };
        let token = RecordToken::new(shared.topic.store, shared.topic.number, record.sequence);
        let decoded = StoredHeader::decode(&record.body);
        let is_whole = decoded.is_err();
        // If a record's header cannot be read, all its bytes are kept as the payload.
        let (mut header, payload) =
            decoded.unwrap_or_else(|_| (StoredHeader::default(), record.body.clone()));
        let undelivered = UndeliveredRecord {
            topic: shared.topic_name.to_owned(),
            subscription: shared.name.clone(),
            token,
            deliveries: returned.deliveries,
            error: returned.error.as_deref().unwrap_or_default().to_owned(),
            key: header.key.as_deref().map(Into::into),
            correlation: header.correlation.as_deref().map(Into::into),
            content_type: header.content_type.as_deref().map(Into::into),
            payload: payload.to_vec(),
            is_whole,
        };
        let payload = Payload::encode(&undelivered).map_err(|error| SubscriptionLost::Refused {
            problem: error.to_string(),
        })?;
        header.record = Some(token);
        let id = burial_id(&shared.name, token);
        let appended = RecordToAppend {
            topic: topic.number,
            // In the subscription's own partition, which its owner can append to.
            partition: shared.partition,
            id: Some(xxh3_128(id.as_bytes())),
            body: header.encode_before(payload.as_bytes()),
            payload_len: payload.len(),
            // Another owner may have finished the record.
            unless_changed: Some((shared.kept_in, state.last_kept)),
        };
        (record.sequence.get(), appended)
    };
    append_record(&shared.inner, appended).await?;
    let mut state = shared.lock();
    // Checked under the lock: a record that is sent back from now on finds its key held.
    let is_sent_back = shared.is_sent_back(buried);
    state.in_hand.buried(buried, is_sent_back);
    state.undelivered += 1;
    Ok(true)
}

fn put_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

fn take_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    struct AnyBytes;

    impl<'de> Visitor<'de> for AnyBytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }

        /// For formats without a byte type.
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = seq.next_element()? {
                bytes.push(byte);
            }
            Ok(bytes)
        }
    }
    deserializer.deserialize_bytes(AnyBytes)
}
