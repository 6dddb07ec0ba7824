//! What timers, topics, pools and readers tell the runs of a partition: never more than one process hears of it.
//!
//! # Lives
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
//! Everything else that comes is for any life: a fact that names the attempt, or the publish, that it is about, so that
//! a run which has heard of it, or waits for it no longer, passes it over.

use millrun_core::{Epoch, RunId, Sequence, Timestamp};
use millrun_workflow::{Event, KeptBeginning, Name, OperationId, Payload, PublishOutcome, Started};

use crate::RunError;
use crate::code::version_trials::TriedRun;

/// What a part of the process tells a run.
#[derive(Debug)]
pub(crate) enum LocalMessage {
    TimerFired {
        run: RunId,
        operation: OperationId,
        /// Of the shard that had set the timer.
        life: Epoch,
    },
    ResumeDue {
        run: RunId,
        life: Epoch,
    },
    PublishParked {
        run: RunId,
        operation: OperationId,
    },
    Published {
        run: RunId,
        operation: OperationId,
        outcome: Result<PublishOutcome, String>,
        /// The topic, if others may wait for it behind this one.
        topic: Option<Name>,
    },
    AttemptStarted {
        run: RunId,
        operation: OperationId,
        attempt: u32,
    },
    Heartbeat {
        run: RunId,
        operation: OperationId,
        attempt: u32,
        details: Payload,
    },
    /// The answer to a [`Load`].
    Loaded {
        load: Load,
        /// `None` if the reader failed before it had read it.
        history: Option<Result<Story, RunError>>,
    },
}

/// What a run is brought back from.
#[derive(Debug)]
pub(crate) struct Story {
    /// What was kept of the events before, if that is not all of them.
    pub(crate) kept: Option<Box<KeptBeginning>>,
    pub(crate) events: Vec<(Event, Timestamp)>,
    /// The sequence of the last record: the journal takes no turn of a run that believes to be elsewhere.
    pub(crate) head: Sequence,
    /// The version of its workflow that the run has.
    pub(crate) version: u32,
    /// The run with newer code, if it moves there.
    pub(crate) tried: Option<TriedRun>,
}

impl Story {
    pub(crate) fn new(
        kept: Option<Box<KeptBeginning>>,
        events: Vec<(Event, Timestamp)>,
        head: Sequence,
    ) -> Self {
        let mut version = kept.as_ref().map_or(0, |kept| kept.ledger().version());
        for (event, _) in &events {
            match event {
                Event::Started(started) => version = started.version,
                Event::VersionChanged { version: newer } => version = *newer,
                _ => {}
            }
        }
        Self {
            kept,
            events,
            head,
            version,
            tried: None,
        }
    }

    /// How the run began.
    pub(crate) fn started(&self) -> Option<&Started> {
        match (&self.kept, self.events.first()) {
            (Some(kept), _) => kept.ledger().started(),
            (None, Some((Event::Started(started), _))) => Some(started),
            (None, _) => None,
        }
    }

    /// A copy for a replay of which nothing may come.
    pub(crate) fn to_try(&self) -> Self {
        Self {
            kept: self.kept.clone(),
            events: self.events.clone(),
            head: self.head,
            version: self.version,
            tried: None,
        }
    }
}

/// A request for the history of a run, and the life of the shard that waits for it: the epoch of the run's
/// partition, which no two lives of a shard share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) run: RunId,
    pub(crate) life: Epoch,
    /// Whether all that the history has is read, though less would bring the run back.
    pub(crate) is_whole: bool,
}

impl LocalMessage {
    /// The run that it is about, and the only life of its shard that may believe it; `None` if any may. A new
    /// kind of message has to decide here.
    #[inline]
    pub(crate) fn life(&self) -> Option<(RunId, Epoch)> {
        match self {
            // A history is what the run was when it was read.
            Self::Loaded { load, .. } => Some((load.run, load.life)),
            // A life that begins sets its timers anew, and begins at once what is due: an attempt that was due
            // for its predecessor too would be started twice under one number.
            Self::TimerFired { run, life, .. } | Self::ResumeDue { run, life } => Some((*run, *life)),
            // What a topic did with a value does not depend on the shard that handed it over.
            Self::PublishParked { .. } | Self::Published { .. } => None,
            // About an attempt, by its number.
            Self::AttemptStarted { .. } | Self::Heartbeat { .. } => None,
        }
    }
}
