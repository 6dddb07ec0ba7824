//! What supervisor and worker say to each other: one line of JSON each, in one write.
//!
//! ```text
//!   supervisor ── Request ──► worker        (its standard input)
//!   supervisor ◄── Report ─── worker        (its standard output)
//! ```
//!
//! A worker that is killed leaves whole lines and at most one torn one, at the end.

use serde::{Deserialize, Serialize};

use crate::programs::{Kind, ProgramResult, Shown};

/// A request under a number that no other request of the round has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) number: u64,
    /// The caller's future is dropped after this many microseconds; after its first poll, if zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) drop_after_us: Option<u64>,
    pub(crate) ask: Ask,
}

/// What is asked of the runtime, or of the worker itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Ask {
    Start {
        kind: Kind,
        id: String,
        len: u32,
    },
    SignalWithStart {
        kind: Kind,
        id: String,
        note: u64,
    },
    Note {
        kind: Kind,
        id: String,
        note: u64,
    },
    Change {
        kind: Kind,
        id: String,
        request: String,
        change: Change,
    },
    Show {
        kind: Kind,
        id: String,
    },
    Result {
        kind: Kind,
        id: String,
    },
    Describe {
        kind: Kind,
        id: String,
    },
    Cancel {
        kind: Kind,
        id: String,
    },
    Terminate {
        kind: Kind,
        id: String,
    },
    Pause {
        kind: Kind,
        id: String,
    },
    Resume {
        kind: Kind,
        id: String,
    },
    Settle {
        id: String,
        token: String,
        value: u64,
    },
    /// Publishes a letter to the durable topic, with the instance's id as its key and an id made of both.
    Publish {
        id: String,
        value: u64,
    },
    /// Answered when all that the topic's subscription had before has been reported.
    Fence,
    Kill {
        part: String,
    },
    MoveClock {
        by_ms: i64,
    },
    Disk {
        trouble: Trouble,
    },
    Stats,
    List,
    Shutdown,
}

impl Ask {
    /// The instance that is meant.
    pub(crate) fn instance(&self) -> Option<&str> {
        match self {
            Self::Start { id, .. }
            | Self::SignalWithStart { id, .. }
            | Self::Note { id, .. }
            | Self::Change { id, .. }
            | Self::Show { id, .. }
            | Self::Result { id, .. }
            | Self::Describe { id, .. }
            | Self::Cancel { id, .. }
            | Self::Terminate { id, .. }
            | Self::Pause { id, .. }
            | Self::Resume { id, .. }
            | Self::Settle { id, .. }
            | Self::Publish { id, .. } => Some(id),
            Self::Fence
            | Self::Kill { .. }
            | Self::MoveClock { .. }
            | Self::Disk { .. }
            | Self::Stats
            | Self::List
            | Self::Shutdown => None,
        }
    }

    /// The program whose handle asks.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Self::Start { kind, .. }
            | Self::SignalWithStart { kind, .. }
            | Self::Note { kind, .. }
            | Self::Change { kind, .. }
            | Self::Show { kind, .. }
            | Self::Result { kind, .. }
            | Self::Describe { kind, .. }
            | Self::Cancel { kind, .. }
            | Self::Terminate { kind, .. }
            | Self::Pause { kind, .. }
            | Self::Resume { kind, .. } => Some(*kind),
            Self::Settle { .. }
            | Self::Publish { .. }
            | Self::Fence
            | Self::Kill { .. }
            | Self::MoveClock { .. }
            | Self::Disk { .. }
            | Self::Stats
            | Self::List
            | Self::Shutdown => None,
        }
    }

    /// What kind of load or fault it is, for the counts.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::SignalWithStart { .. } => "signal_with_start",
            Self::Note { .. } => "signal",
            Self::Change { kind: Kind::Till, .. } => "command",
            Self::Show { kind: Kind::Till, .. } => "read of an entity",
            Self::Change { .. } => "update",
            Self::Show { .. } => "query",
            Self::Result { .. } => "result",
            Self::Describe { .. } => "describe",
            Self::Cancel { .. } => "cancel",
            Self::Terminate { .. } => "terminate",
            Self::Pause { .. } => "pause",
            Self::Resume { .. } => "resume",
            Self::Settle { .. } => "settle a promise",
            Self::Publish { .. } => "publish a record",
            Self::Fence => "fence",
            Self::Kill { .. } => "kill a part",
            Self::MoveClock { .. } => "move the clock",
            Self::Disk { .. } => "trouble the disk",
            Self::Stats => "stats",
            Self::List => "list",
            Self::Shutdown => "shutdown",
        }
    }
}

/// A change of an instance's register, by an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    /// Gives the new value.
    Add(u64),
    /// Gives the value before.
    Swap(u64),
}

/// What the worker's disk does from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Trouble {
    /// Nothing goes wrong.
    None,
    /// There is no room: what would make the file longer or write to it fails.
    Full,
    /// One in this many writes fails.
    Writes { one_in: u64 },
    /// One in this many syncs fails.
    Syncs { one_in: u64 },
}

/// What the worker reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The store is open.
    Open { live: u64, is_repaired: bool },
    /// An answer to the request of this number.
    Answer { number: u64, answer: Answer },
    /// An attempt of the activity `effect` ran, and is about to give this token.
    Ran(Ran),
    /// A run has made a promise.
    Promised { id: String, token: String },
    /// The subscription of the topic got a value.
    Heard { value: u64 },
    /// The durable subscription came so far with a letter.
    Letter { sequence: u64, step: LetterStep },
    /// The durable subscription of the replies came so far with one.
    Reply { sequence: u64, step: LetterStep },
    /// A part of the runtime failed.
    PartFailed { part: String, message: String },
    /// The runtime has stopped by itself.
    Stopped { cause: String },
}

/// What happened to a letter at the durable subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LetterStep {
    /// It was given to the consumer, who has not answered yet.
    Given,
    /// The consumer is about to acknowledge it.
    Acknowledging,
    /// The runtime said that the acknowledgement is kept.
    Kept,
}

/// One execution of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ran {
    pub(crate) id: String,
    pub(crate) run: String,
    pub(crate) step: u32,
    pub(crate) key: String,
    pub(crate) attempt: u32,
    pub(crate) token: u64,
}

/// What the runtime answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Started {
        run: String,
    },
    Changed {
        value: u64,
    },
    /// The record of this number is durable.
    Published {
        sequence: u64,
    },
    Shown(Shown),
    Ended(ProgramResult),
    Cancelled,
    Terminated {
        reason: String,
    },
    Described(Described),
    Listed {
        ids: Vec<String>,
    },
    Stats(Stats),
    /// It was refused, with nothing done.
    Refused {
        why: Refusal,
        message: String,
    },
    /// The run's code does not run.
    Parked {
        reason: String,
        is_paused: bool,
    },
    /// The run ended with an error, or something else that no program asks for.
    Wrong {
        message: String,
    },
    /// A part was restarted, or the runtime has stopped: whether it was done is not known.
    Unknown {
        message: String,
    },
    /// The caller's future was dropped.
    Dropped,
    /// The worker ended before it answered. Only the supervisor says so.
    Lost,
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    NotFound,
    Finished,
    Expired,
    Stale,
    /// The handle is one of another workflow than the instance.
    OtherWorkflow,
    /// The part cannot be killed now.
    Part,
    Other,
}

/// What `describe` said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Described {
    pub(crate) run: String,
    pub(crate) status: String,
    pub(crate) parked: Option<String>,
    pub(crate) is_paused: bool,
    pub(crate) sequence: u64,
    pub(crate) pending: String,
}

/// Counters that must return to zero when nothing lives, and two that count restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stats {
    pub(crate) live: u64,
    pub(crate) hot: u64,
    pub(crate) parked: u64,
    /// How many of those that live are entities, which nobody ends.
    pub(crate) entities: u64,
    pub(crate) attempts_running: u64,
    /// Records that the durable subscription or trigger which is furthest behind has not acknowledged.
    pub(crate) letters_behind: u64,
    /// Parts that do not run.
    pub(crate) parts_down: Vec<String>,
    pub(crate) restarts: u64,
    /// Finished runs that did not replay as they ran.
    pub(crate) replay_differences: u64,
}
