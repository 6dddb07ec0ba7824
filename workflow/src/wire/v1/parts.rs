//! What several bodies are made of: payloads, and values that were recorded.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes as Raw;

use crate::Payload;

pub(super) fn raw(payload: &Payload) -> &Raw {
    Raw::new(payload.as_bytes())
}

/// The payload at `value`, which lies inside `body`, sharing its memory unless it is small.
pub(super) fn payload(body: &Bytes, value: &Raw) -> Payload {
    Payload::from_bytes(body.slice_ref(value.as_ref()))
}

#[derive(Serialize, Deserialize)]
pub(super) enum RecordedWire<'a> {
    #[serde(rename = "v")]
    Value(#[serde(borrow)] &'a Raw),
    #[serde(rename = "e")]
    Error(#[serde(borrow)] Cow<'a, str>),
}

impl<'a> RecordedWire<'a> {
    pub(super) fn of(value: &'a Result<Payload, String>) -> Self {
        match value {
            Ok(value) => Self::Value(raw(value)),
            Err(message) => Self::Error(Cow::Borrowed(message)),
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> Result<Payload, String> {
        match self {
            Self::Value(value) => Ok(payload(body, value)),
            Self::Error(message) => Err(message.into_owned()),
        }
    }
}
