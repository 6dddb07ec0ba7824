//! The bodies of waits for records of durable topics, and of the records.

use std::borrow::Cow;

use bytes::Bytes;
use millrun_core::{Sequence, Timestamp};
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes as Raw;

use super::family::CauseWire;
use super::parts::{payload, raw};
use crate::OperationId;
use crate::event::{EventError, KeyFilter, RawRecord, ReceiveScheduled, RecordFilter, TakenThrough};

#[derive(Serialize, Deserialize)]
pub(super) struct ReceiveBody<'a> {
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "t", borrow)]
    topic: Cow<'a, str>,
    #[serde(rename = "k", borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(rename = "p", borrow, default, skip_serializing_if = "Option::is_none")]
    key_prefix: Option<Cow<'a, str>>,
    #[serde(rename = "c", borrow, default, skip_serializing_if = "Option::is_none")]
    correlation: Option<Cow<'a, str>>,
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    behind: Option<u64>,
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
}

impl<'a> ReceiveBody<'a> {
    pub(super) fn of(scheduled: &'a ReceiveScheduled) -> Self {
        let [key, key_prefix, correlation] = texts_of(&scheduled.filter);
        Self {
            operation: scheduled.operation.get(),
            topic: Cow::Borrowed(&scheduled.topic),
            key,
            key_prefix,
            correlation,
            behind: scheduled.behind.map(Sequence::get),
            since: scheduled.since.map(Timestamp::as_micros),
        }
    }

    pub(super) fn into_event(self) -> ReceiveScheduled {
        ReceiveScheduled {
            operation: OperationId::new(self.operation),
            topic: Cow::Owned(self.topic.into_owned()),
            filter: filter_of([self.key, self.key_prefix, self.correlation]),
            behind: self.behind.map(Sequence::new),
            since: self.since.map(Timestamp::from_micros),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ReceivedBody<'a> {
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "s")]
    sequence: u64,
    #[serde(rename = "t")]
    time: u64,
    #[serde(rename = "k", borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(rename = "c", borrow, default, skip_serializing_if = "Option::is_none")]
    correlation: Option<Cow<'a, str>>,
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    cause: Option<CauseWire>,
    #[serde(rename = "v", borrow)]
    value: &'a Raw,
}

impl<'a> ReceivedBody<'a> {
    pub(super) fn of(operation: OperationId, record: &'a RawRecord) -> Self {
        Self {
            operation: operation.get(),
            sequence: record.sequence.get(),
            time: record.time.as_micros(),
            key: record.key.as_deref().map(Cow::Borrowed),
            correlation: record.correlation.as_deref().map(Cow::Borrowed),
            cause: record.cause.map(CauseWire::of),
            value: raw(&record.value),
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> Result<(OperationId, Box<RawRecord>), EventError> {
        let record = RawRecord {
            sequence: Sequence::new(self.sequence),
            time: Timestamp::from_micros(self.time),
            key: self.key.map(|key| key.into()),
            correlation: self.correlation.map(|correlation| correlation.into()),
            cause: self.cause.map(CauseWire::into_event).transpose()?,
            value: payload(body, self.value),
        };
        Ok((OperationId::new(self.operation), Box::new(record)))
    }
}

/// How far a run has come in a durable topic.
#[derive(Serialize, Deserialize)]
pub(super) struct TakenWire<'a> {
    #[serde(rename = "t", borrow)]
    topic: Cow<'a, str>,
    #[serde(rename = "k", borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(rename = "p", borrow, default, skip_serializing_if = "Option::is_none")]
    key_prefix: Option<Cow<'a, str>>,
    #[serde(rename = "c", borrow, default, skip_serializing_if = "Option::is_none")]
    correlation: Option<Cow<'a, str>>,
    #[serde(rename = "s")]
    sequence: u64,
}

impl<'a> TakenWire<'a> {
    pub(super) fn of(taken: &'a TakenThrough) -> Self {
        let [key, key_prefix, correlation] = texts_of(&taken.filter);
        Self {
            topic: Cow::Borrowed(&taken.topic),
            key,
            key_prefix,
            correlation,
            sequence: taken.sequence.get(),
        }
    }

    pub(super) fn into_event(self) -> TakenThrough {
        TakenThrough {
            topic: Cow::Owned(self.topic.into_owned()),
            filter: filter_of([self.key, self.key_prefix, self.correlation]),
            sequence: Sequence::new(self.sequence),
        }
    }
}

/// The key, the beginning of the key and the correlation that records have.
fn texts_of(filter: &RecordFilter) -> [Option<Cow<'_, str>>; 3] {
    let (key, prefix) = match &filter.key {
        None => (None, None),
        Some(KeyFilter::Is(key)) => (Some(&**key), None),
        Some(KeyFilter::StartsWith(prefix)) => (None, Some(&**prefix)),
    };
    [key, prefix, filter.correlation.as_deref()].map(|text| text.map(Cow::Borrowed))
}

fn filter_of(texts: [Option<Cow<'_, str>>; 3]) -> RecordFilter {
    let [key, prefix, correlation] = texts.map(|text| text.map(Box::from));
    RecordFilter {
        key: key
            .map(KeyFilter::Is)
            .or_else(|| prefix.map(KeyFilter::StartsWith)),
        correlation,
    }
}
