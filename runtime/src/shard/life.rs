//! Which life of a shard a message is for.
//!
//! ```text
//!   shard, life 1 ── Load ──► reader ── Loaded, for life 1 ──► mailbox ──► shard, life 2: discarded
//!                                                                └ outlives the shard
//! ```
//!
//! A shard that fails leaves its mailbox to its successor, and with it the answers to what it had asked
//! other parts. An answer says how things stood when it was made. The shard that asked has kept still until
//! it came; the successor has not, and may have gone on before the answer gets to it. So an answer that only
//! holds as long as nobody moves names the life that asked, and no other life gets to see it.
//!
//! Everything else that comes is for any life: either a request that nobody has begun to work on, or a fact
//! that was durable before it was sent and names what it is about (an operation, an attempt, a child), so
//! that a run which has heard of it, or waits for it no longer, passes it over.

use millrun_core::{Epoch, RunId};

use super::message::ShardMessage;

/// A request for the history of a run, and the life of the shard that waits for it: the epoch of the run's
/// partition, which no two lives of a shard share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) run: RunId,
    pub(crate) life: Epoch,
}

impl ShardMessage {
    /// The run that it is about, and the only life of its shard that may believe it; `None` if any may. A new kind of message has to
    /// decide here.
    #[inline]
    pub(super) fn life(&self) -> Option<(RunId, Epoch)> {
        match self {
            // A history is what the run was when it was read.
            Self::Loaded { load, .. } => Some((load.run, load.life)),
            // Requests: nobody has begun to work on them.
            Self::Start(_)
            | Self::StartWith(_)
            | Self::Tell { .. }
            | Self::Await { .. }
            | Self::Describe { .. }
            | Self::Watch { .. }
            | Self::Query { .. }
            | Self::Update { .. }
            | Self::List { .. } => None,
            // A life that begins sets its timers anew, and begins at once what is due: an attempt that was due
            // for its predecessor too would be started twice under one number.
            Self::TimerFired { run, life, .. } | Self::ResumeDue { run, life } => Some((*run, *life)),
            // Durable facts about a parent's operation: taken once, while it is pending.
            Self::StartChild(_)
            | Self::ChildStarted { .. }
            | Self::ChildEnded { .. }
            | Self::CloseChild { .. }
            | Self::Begun { .. }
            | Self::Orphans { .. } => None,
            // What a topic did with a value does not depend on the shard that handed it over.
            Self::PublishParked { .. } | Self::Published { .. } => None,
            // About an attempt, by its number.
            Self::AttemptStarted { .. } | Self::Heartbeat { .. } => None,
        }
    }
}
