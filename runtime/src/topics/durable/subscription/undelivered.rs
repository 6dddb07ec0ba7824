//! Records that were delivered as often as a subscription allows, or that no consumer can take.

use std::fmt;

use millrun_core::Partition;
use millrun_workflow::Payload;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use super::shared::{SubscriptionLost, SubscriptionShared};
use crate::topics::durable::handle::DurableTopicHandle;
use crate::topics::durable::publish::{DurablePublishError, PublishedRecord, RecordToAppend, append_record};
use crate::topics::durable::stored::StoredHeader;
use crate::topics::durable::token::RecordToken;

/// A record that a durable subscription does not deliver any more, as it stands in the topic for those
/// ([`SubscribeRecords::undelivered_to`](super::SubscribeRecords::undelivered_to)): with its bytes, and why.
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
    /// What its publisher called the whole that it belongs to.
    pub correlation: Option<String>,
    /// The format of its payload, where its publisher said it.
    pub content_type: Option<String>,
    /// Its payload, as its publisher encoded it; all bytes of the record, if it [is whole](Self::is_whole).
    #[serde(serialize_with = "put_bytes", deserialize_with = "take_bytes")]
    pub payload: Vec<u8>,
    /// What stands before its payload could not be read, as in a record of a later release. Then [`payload`](Self::payload) has
    /// all that the topic had of it, key and correlation are not known, and it is sent back as the same bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_whole: bool,
}

/// Why an undelivered record was not sent back.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendBackError {
    /// This runtime was not told of the topic that it comes from.
    #[error("the builder of this runtime was told of no durable topic {topic:?}")]
    NotDeclared {
        /// The topic.
        topic: String,
    },
    /// It was not published again.
    #[error(transparent)]
    Publish(#[from] DurablePublishError),
}

impl DurableTopicHandle<UndeliveredRecord> {
    /// Publishes an undelivered record to its own topic again, at the end: all subscriptions get it. Once, however often it
    /// is called for a record, as long as the journal remembers the id that it gets. One that [is whole](UndeliveredRecord::is_whole)
    /// is appended byte for byte, for a program that can read it.
    ///
    /// # Errors
    /// See [`SendBackError`].
    ///
    /// # Cancel safety
    /// Dropped while it waits, it may or may not be published, and can be sent back once more.
    pub async fn send_back(&self, record: &UndeliveredRecord) -> Result<PublishedRecord, SendBackError> {
        let declared = self.inner.shared.durable.named(&record.topic);
        let topic = declared.ok_or_else(|| SendBackError::NotDeclared {
            topic: record.topic.clone(),
        })?;
        let id = sent_back_id(&record.subscription, record.token);
        let key = record.key.as_deref();
        let body = if record.is_whole {
            // A header before these bytes would hide them from the program that can read them.
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
        let token = RecordToken::new(topic.store, topic.number, sequence);
        Ok(PublishedRecord::new(token, is_repeat))
    }
}

/// Under which id a record is published again that a subscription had given up.
pub(crate) fn sent_back_id(subscription: &str, token: RecordToken) -> String {
    format!("sent back {subscription}/{token}")
}

/// Under which id a record that a subscription gives up goes to the topic for those.
pub(crate) fn burial_id(subscription: &str, token: RecordToken) -> String {
    format!("undelivered {subscription}/{token}")
}

/// Buries the next record that is to be, in the topic for those. Whether there was one.
pub(super) async fn bury_next(shared: &SubscriptionShared) -> Result<bool, SubscriptionLost> {
    let Some(topic) = shared.undelivered else {
        return Ok(false);
    };
    let appended = {
        let state = shared.lock();
        let Some((record, returned)) = state.in_hand.next_spent() else {
            return Ok(false);
        };
        let token = RecordToken::new(shared.topic.store, shared.topic.number, record.sequence);
        let decoded = StoredHeader::decode(&record.body);
        let is_whole = decoded.is_err();
        // All bytes of a record whose header cannot be read are kept as its payload.
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
        RecordToAppend {
            topic: topic.number,
            // Where the subscription is kept: who has it can bury.
            partition: shared.partition,
            id: Some(xxh3_128(id.as_bytes())),
            body: header.encode_before(payload.as_bytes()),
            payload_len: payload.len(),
            // Another owner may have been done with the record.
            unless_changed: Some((shared.kept_in, state.last_kept)),
        }
    };
    append_record(&shared.inner, appended).await?;
    let mut state = shared.lock();
    state.in_hand.buried();
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

        /// As formats without bytes have them.
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
