//! Messages of timers, topics, pools and readers to the runs of a partition; they stay within one process.
//!
//! # Lives
//!
//! ```text
//!   shard, life 1 ── Load ──► reader ── Loaded, for life 1 ──► mailbox ──► shard, life 2: discarded
//!                                                                └ outlives the shard
//! ```
//!
//! A shard that fails leaves its mailbox to its successor, and with it the answers to its questions to other parts. An answer
//! describes the state at the time when it was made. The shard that asked keeps that state until the answer comes; a
//! successor does not, and may have changed it. So an answer that depends on the state names the life that asked, and no
//! other life sees it.
//!
//! All other messages are for any life: a fact that names the attempt or the publish that it is about, so that a run ignores
//! it if it has heard of it, or does not wait for it any more.

use millrun_core::{Epoch, RunId, Sequence, Timestamp};
use millrun_workflow::{Event, KeptBeginning, Name, OperationId, Payload, PublishOutcome, Started};

use super::finished::{ResetReading, ResetReads};
use crate::RunError;
use crate::code::version_trials::TriedRun;

/// A message of a part of the process to a run.
#[derive(Debug)]
pub(crate) enum LocalMessage {
    TimerFired {
        run: RunId,
        operation: OperationId,
        /// The life of the shard that had set the timer.
        life: Epoch,
    },
    ResumeDue {
        run: RunId,
        life: Epoch,
    },
    TimeOutDue {
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
        /// The topic, if other values may wait in line behind this one.
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
        /// `None` if the reader failed before it had read the history.
        history: Option<Result<Story, RunError>>,
    },
    /// The answer to a [`Load`] of a run that is to be reset.
    ReadToReset {
        load: Load,
        /// `None` if the reader failed before it had read it.
        read: Option<Box<ReadToReset>>,
    },
}

/// The reader's answer about a run that is to be reset.
#[derive(Debug)]
pub(crate) struct ReadToReset {
    pub(crate) reading: Result<ResetReading, RunError>,
    /// The story that brings the run back. `None` if the run is in memory, or is not reset and stays on disk.
    pub(crate) story: Option<Result<Story, RunError>>,
}

/// What a run is brought back from.
#[derive(Debug)]
pub(crate) struct Story {
    /// The kept beginning that replaces the events before, if `events` are not all.
    pub(crate) kept: Option<Box<KeptBeginning>>,
    pub(crate) events: Vec<(Event, Timestamp)>,
    /// The sequence of the last record: the journal refuses a turn that is not based on it.
    pub(crate) head: Sequence,
    /// The version of its workflow that the run has.
    pub(crate) version: u32,
    /// The run, replayed with newer code, if it moves to that.
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

    /// The beginning of the run.
    pub(crate) fn started(&self) -> Option<&Started> {
        match (&self.kept, self.events.first()) {
            (Some(kept), _) => kept.ledger().started(),
            (None, Some((Event::Started(started), _))) => Some(started),
            (None, _) => None,
        }
    }

    /// A copy for a trial replay, whose results are discarded.
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

/// A request for the history of a run, with the life of the shard that waits for it: the epoch of the run's partition, which
/// no two lives share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) run: RunId,
    pub(crate) life: Epoch,
    /// The reset that the run is read for, if it is read for one.
    pub(crate) to_reset: Option<LoadToReset>,
}

/// How much is read of a run that is to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadToReset {
    pub(crate) reads: ResetReads,
    /// Whether the run is in memory, so that it need not be brought back.
    pub(crate) is_in_memory: bool,
}

impl LocalMessage {
    /// The run that the message is about, and the only life of its shard that may use it; `None` if any may. A new kind of
    /// message has to decide here.
    #[inline]
    pub(crate) fn life(&self) -> Option<(RunId, Epoch)> {
        match self {
            // A history describes the run at the time when it was read.
            Self::Loaded { load, .. } | Self::ReadToReset { load, .. } => Some((load.run, load.life)),
            // A new life sets its timers anew, and begins at once what is due. If it also heard of its predecessor's timer,
            // an attempt would be started twice under one number.
            Self::TimerFired { run, life, .. }
            | Self::ResumeDue { run, life }
            | Self::TimeOutDue { run, life } => Some((*run, *life)),
            // What a topic did with a value does not depend on which shard handed it over.
            Self::PublishParked { .. } | Self::Published { .. } => None,
            // These name an attempt by its number.
            Self::AttemptStarted { .. } | Self::Heartbeat { .. } => None,
        }
    }
}
