//! Entities: state machines with a key, which take one command at a time. Each is a run of a special workflow.
//!
//! ```text
//!   command ──► handler: &state, input ──► rejected, nothing is recorded
//!                       │
//!                       └──► events, an answer, acts ──► CommandPerformed ── commit ──► the answer
//!                                                              │
//!                    state ◄── apply, once for each event ◄────┘     live as in a replay
//! ```
//!
//! A handler is called once for a command, and its decisions are recorded in the history. A replay folds the recorded events
//! and calls no handler, so changed code does not change the past. The acts of a command (publishes, starts, signals, timers)
//! are operations of the run, decided in the same turn, and outlast checkpoints.
//!
//! Left out: how the machine treats an entity (`machine/entity.rs`), and who sends the commands.

mod calling;
mod code;
mod context;
mod definition;
mod desk;

pub use calling::{ENTITY_COMMAND, EntityAnswer, EntityOrder, EntityStep, EntityStepError};
pub use code::{ENTITY_SNAPSHOT_EVERY, EntityCode};
pub use context::{EntityContext, EntityPublish};
pub use definition::EntityState;
pub use desk::StartRefused;

pub(crate) use code::{EntityHandlers, Situation};
pub(crate) use definition::key_of;
pub(crate) use desk::{EntityAct, EntityDesk};

use serde::{Deserialize, Serialize};

/// What a checkpoint of an entity holds, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct EntitySnapshot {
    /// The version of the state's stored form.
    #[serde(rename = "v")]
    version: u32,
    /// A payload.
    #[serde(rename = "s", with = "serde_bytes")]
    state: Vec<u8>,
    /// The timers that are set: the operation, and the command that it performs.
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    timers: Vec<(u32, String)>,
}
