//! A kept beginning as bytes: a version, then a MessagePack map with short keys.
//!
//! Its events have the same bodies as in a history. The first is `Started` and the last is `Checkpointed`; between them are
//! those of the outstanding operations.

use std::borrow::Cow;

use bytes::Bytes;
use millrun_core::{Cause, Timestamp};
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes as Raw};

use super::family::no_bytes;
use super::parts::RecordedWire;
use super::signalling::{senders_of_bytes, senders_to_bytes};
use super::{decode, encode, kind, read, write};
use crate::Payload;
use crate::event::{Event, EventError};

const VERSION: u8 = 1;

/// The version with senders of signals. Releases that do not know it read the whole history instead.
const WITH_SENDERS: u8 = 2;

/// The version with requests of signals; likewise.
const WITH_SIGNAL_REQUESTS: u8 = 3;

/// The version for a run whose code has another version than the run began with; likewise.
const WITH_VERSION_CHANGED: u8 = 4;

/// What a kept beginning consists of.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptParts {
    pub(crate) sequence: u64,
    pub(crate) is_cancel_requested: bool,
    pub(crate) events: Vec<Noted>,
    /// The requests of updates that wait for the code, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) accepted: Vec<String>,
    /// The answers to others, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answers: Vec<(String, Result<Payload, String>)>,
    /// The senders of signals of other runs, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) senders: Vec<Cause>,
    /// The requests under which signals are recorded, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) signal_requests: Vec<String>,
}

/// An event, when it was recorded, and how many like it there were.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Noted {
    pub(crate) event: Event,
    #[serde(rename = "at_us")]
    pub(crate) time: Timestamp,
    pub(crate) count: u32,
}

impl Noted {
    pub(crate) fn once(event: Event, time: Timestamp) -> Self {
        let count = 1;
        Self { event, time, count }
    }
}

#[derive(Serialize, Deserialize)]
struct KeptBody<'a> {
    #[serde(rename = "s")]
    sequence: u64,
    #[serde(rename = "i", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "c", default, skip_serializing_if = "std::ops::Not::not")]
    is_cancel_requested: bool,
    #[serde(rename = "e", borrow)]
    events: Vec<NotedBody<'a>>,
    #[serde(rename = "u", default, skip_serializing_if = "Vec::is_empty")]
    accepted: Vec<String>,
    #[serde(rename = "a", borrow, default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<AnswerBody<'a>>,
    #[serde(rename = "r", default, skip_serializing_if = "no_bytes")]
    senders: ByteBuf,
    #[serde(rename = "q", default, skip_serializing_if = "Vec::is_empty")]
    signal_requests: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct NotedBody<'a> {
    #[serde(rename = "k")]
    kind: u8,
    #[serde(rename = "t")]
    time: u64,
    #[serde(rename = "n")]
    count: u32,
    #[serde(rename = "b", borrow)]
    body: Cow<'a, Raw>,
}

#[derive(Serialize, Deserialize)]
struct AnswerBody<'a> {
    #[serde(rename = "r")]
    request: String,
    #[serde(rename = "a", borrow)]
    answer: RecordedWire<'a>,
}

/// The bytes of a kept beginning.
///
/// # Errors
/// Never for events that this crate made.
pub(crate) fn encode_kept(parts: &KeptParts) -> Result<Vec<u8>, EventError> {
    let mut bodies = Vec::with_capacity(parts.events.len());
    for noted in &parts.events {
        let mut body = Vec::new();
        encode(&noted.event, &mut body)?;
        bodies.push(body);
    }
    let events = parts.events.iter().zip(&bodies).map(|(noted, body)| NotedBody {
        kind: kind(&noted.event),
        time: noted.time.as_micros(),
        count: noted.count,
        body: Cow::Borrowed(Raw::new(body)),
    });
    let answers = parts.answers.iter().map(|(request, answer)| AnswerBody {
        request: request.clone(),
        answer: RecordedWire::of(answer),
    });
    let id = match parts.events.first().map(|noted| &noted.event) {
        Some(Event::Started(started)) => started.id.as_str(),
        _ => "",
    };
    let is_changed = |noted: &Noted| matches!(noted.event, Event::VersionChanged { .. });
    let version = match (parts.senders.is_empty(), parts.signal_requests.is_empty()) {
        _ if parts.events.get(1).is_some_and(is_changed) => WITH_VERSION_CHANGED,
        (true, true) => VERSION,
        (false, true) => WITH_SENDERS,
        (_, false) => WITH_SIGNAL_REQUESTS,
    };
    let mut out = vec![version];
    write(
        &mut out,
        &KeptBody {
            sequence: parts.sequence,
            id: Cow::Borrowed(id),
            is_cancel_requested: parts.is_cancel_requested,
            events: events.collect(),
            accepted: parts.accepted.clone(),
            answers: answers.collect(),
            senders: ByteBuf::from(senders_to_bytes(&parts.senders)),
            signal_requests: parts.signal_requests.clone(),
        },
    )?;
    Ok(out)
}

/// Reads a kept beginning back.
///
/// # Errors
/// When the bytes are none, or of a later version.
pub(crate) fn decode_kept(bytes: &Bytes) -> Result<KeptParts, EventError> {
    let version = bytes.first();
    if !version.is_some_and(|version| (VERSION..=WITH_VERSION_CHANGED).contains(version)) {
        let known = WITH_VERSION_CHANGED;
        let message = format!("a kept beginning has version {version:?}, this release knows {known}");
        return Err(EventError::Malformed(message));
    }
    let body = bytes.slice(1..);
    let kept: KeptBody<'_> = read(&body)?;
    let mut events = Vec::with_capacity(kept.events.len());
    for (index, noted) in kept.events.iter().enumerate() {
        // A copy: what shares the memory of all would keep it for as long as one payload is there.
        let event = Bytes::copy_from_slice(noted.body.as_ref());
        let opens = (index == 0).then_some(&*kept.id);
        events.push(Noted {
            event: decode(noted.kind, &event, opens)?,
            time: Timestamp::from_micros(noted.time),
            count: noted.count,
        });
    }
    let answers = kept.answers.into_iter().map(|answer| {
        let value = answer.answer.into_event(&body);
        let alone = |value: Payload| Payload::from_bytes(Bytes::copy_from_slice(value.as_bytes()));
        (answer.request, value.map(alone))
    });
    Ok(KeptParts {
        sequence: kept.sequence,
        is_cancel_requested: kept.is_cancel_requested,
        events,
        accepted: kept.accepted,
        answers: answers.collect(),
        senders: senders_of_bytes(&kept.senders)?,
        signal_requests: kept.signal_requests,
    })
}
