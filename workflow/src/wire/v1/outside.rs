//! The bodies of publishes, promises and checkpoints.

use std::borrow::Cow;

use bytes::Bytes;
use millrun_core::Timestamp;
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes as Raw;

use super::parts::{RecordedWire, payload, raw};
use super::receiving::TakenWire;
use crate::OperationId;
use crate::event::{Checkpoint, PublishScheduled, RecordTexts};

#[derive(Serialize, Deserialize)]
pub(super) struct PublishBody<'a> {
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "t", borrow)]
    topic: Cow<'a, str>,
    #[serde(rename = "v", borrow)]
    value: &'a Raw,
    #[serde(rename = "k", borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(rename = "c", borrow, default, skip_serializing_if = "Option::is_none")]
    correlation: Option<Cow<'a, str>>,
    #[serde(rename = "f", borrow, default, skip_serializing_if = "Option::is_none")]
    content_type: Option<Cow<'a, str>>,
}

impl<'a> PublishBody<'a> {
    pub(super) fn of(scheduled: &'a PublishScheduled) -> Self {
        let texts = RecordTexts::or_default(scheduled.texts.as_deref());
        let [key, correlation, content_type] = [&texts.key, &texts.correlation, &texts.content_type]
            .map(|text| text.as_deref().map(Cow::Borrowed));
        Self {
            operation: scheduled.operation.get(),
            topic: Cow::Borrowed(&scheduled.topic),
            value: raw(&scheduled.value),
            key,
            correlation,
            content_type,
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> PublishScheduled {
        let [key, correlation, content_type] =
            [self.key, self.correlation, self.content_type].map(|text| text.map(Box::from));
        let texts = RecordTexts {
            key,
            correlation,
            content_type,
        };
        PublishScheduled {
            operation: OperationId::new(self.operation),
            topic: Cow::Owned(self.topic.into_owned()),
            value: payload(body, self.value),
            texts: texts.boxed(),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct PublishedBody<'a> {
    #[serde(rename = "o")]
    pub(super) operation: u32,
    #[serde(rename = "e", borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Cow<'a, str>>,
    #[serde(rename = "u", default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_unknown: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SettledBody<'a> {
    #[serde(rename = "o")]
    pub(super) operation: u32,
    #[serde(rename = "e", borrow)]
    pub(super) end: RecordedWire<'a>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct CheckpointBody<'a> {
    #[serde(rename = "v", borrow)]
    state: &'a Raw,
    #[serde(rename = "s", borrow, default, skip_serializing_if = "Vec::is_empty")]
    signals: Vec<(Cow<'a, str>, &'a Raw)>,
    #[serde(rename = "o")]
    operations_len: u32,
    #[serde(rename = "r")]
    random_len: u64,
    #[serde(rename = "w")]
    is_whole: bool,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    now: Option<u64>,
    #[serde(rename = "d", borrow, default, skip_serializing_if = "Vec::is_empty")]
    taken: Vec<TakenWire<'a>>,
    #[serde(rename = "b", borrow, default, skip_serializing_if = "Vec::is_empty")]
    begun_with: Vec<(Cow<'a, str>, u32)>,
}

impl<'a> CheckpointBody<'a> {
    pub(super) fn of(checkpoint: &'a Checkpoint) -> Self {
        let signals = checkpoint.signals.iter();
        Self {
            state: raw(&checkpoint.state),
            signals: signals
                .map(|(name, value)| (Cow::Borrowed(&**name), raw(value)))
                .collect(),
            operations_len: checkpoint.operations_len,
            random_len: checkpoint.random_len,
            is_whole: checkpoint.is_whole,
            now: checkpoint.now.map(Timestamp::as_micros),
            taken: checkpoint.taken.iter().map(TakenWire::of).collect(),
            begun_with: (checkpoint.begun_with.iter())
                .map(|(name, len)| (Cow::Borrowed(&**name), *len))
                .collect(),
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> Box<Checkpoint> {
        let signals = self.signals.into_iter();
        Box::new(Checkpoint {
            state: payload(body, self.state),
            signals: signals
                .map(|(name, value)| (Cow::Owned(name.into_owned()), payload(body, value)))
                .collect(),
            operations_len: self.operations_len,
            random_len: self.random_len,
            is_whole: self.is_whole,
            now: self.now.map(Timestamp::from_micros),
            taken: self.taken.into_iter().map(TakenWire::into_event).collect(),
            begun_with: (self.begun_with.into_iter())
                .map(|(name, len)| (Cow::Owned(name.into_owned()), len))
                .collect(),
        })
    }
}
