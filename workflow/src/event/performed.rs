//! What an entity's command has decided.

use serde::{Deserialize, Serialize};

use super::Name;
use crate::Payload;

/// A command that was performed, as its entity's history has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommandPerformed {
    /// The request under which it was asked for, if it has one; a repetition is recognised by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<str>>,
    /// Its name.
    pub name: Name,
    /// The [version](crate::EntityState::VERSION) of the events.
    pub version: u32,
    /// The events that it has decided, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Payload>,
    /// Its answer.
    pub answer: Payload,
    /// The commands for which it has set timers, in the order of the timers' events, which follow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<Name>,
}
