//! The body of what a command of an entity has decided.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes as Raw;

use super::parts::{payload, raw};
use crate::event::CommandPerformed;

/// The version of events that most have, which is left out.
const FIRST_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
pub(super) struct CommandBody<'a> {
    #[serde(rename = "n", borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "r", borrow, default, skip_serializing_if = "Option::is_none")]
    request: Option<Cow<'a, str>>,
    #[serde(
        rename = "v",
        default = "first_version",
        skip_serializing_if = "is_first_version"
    )]
    version: u32,
    #[serde(rename = "e", borrow, default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<&'a Raw>,
    #[serde(rename = "a", borrow)]
    answer: &'a Raw,
    #[serde(rename = "t", borrow, default, skip_serializing_if = "Vec::is_empty")]
    timers: Vec<Cow<'a, str>>,
}

const fn first_version() -> u32 {
    FIRST_VERSION
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_first_version(version: &u32) -> bool {
    *version == FIRST_VERSION
}

impl<'a> CommandBody<'a> {
    pub(super) fn of(performed: &'a CommandPerformed) -> Self {
        let timers = performed.timers.iter();
        Self {
            name: Cow::Borrowed(&performed.name),
            request: performed.request.as_deref().map(Cow::Borrowed),
            version: performed.version,
            events: performed.events.iter().map(raw).collect(),
            answer: raw(&performed.answer),
            timers: timers.map(|name| Cow::Borrowed(&**name)).collect(),
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> Box<CommandPerformed> {
        let (events, timers) = (self.events.into_iter(), self.timers.into_iter());
        Box::new(CommandPerformed {
            request: self.request.map(|request| request.into()),
            name: Cow::Owned(self.name.into_owned()),
            version: self.version,
            events: events.map(|event| payload(body, event)).collect(),
            answer: payload(body, self.answer),
            timers: timers.map(|name| Cow::Owned(name.into_owned())).collect(),
        })
    }
}
