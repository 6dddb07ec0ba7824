//! The entries that wait for the next flush, in the order in which callers queued them.

use bytes::Bytes;
use millrun_core::{RunId, Sequence, Timestamp};
use millrun_persistence::{Snapshot, TurnView};

/// One entry of the queue.
#[derive(Debug)]
pub(crate) enum QueuedEntry {
    Turn(QueuedTurn),
    Snapshot(Snapshot),
    NoSnapshot(RunId),
}

/// A turn that was accepted.
#[derive(Debug)]
pub(crate) struct QueuedTurn {
    pub(crate) run: RunId,
    pub(crate) first: Sequence,
    pub(crate) last: Sequence,
    pub(crate) time: Timestamp,
    /// The id of the instance, in the first turn of a run.
    pub(crate) opens: Option<Box<str>>,
    pub(crate) trims: bool,
    pub(crate) closes: bool,
    /// The kind of the last record.
    pub(crate) last_kind: u8,
    pub(crate) frames: Bytes,
    /// Bytes of all turns of the run up to this one.
    pub(crate) run_bytes: u64,
}

impl QueuedTurn {
    /// The turn, out of a sealed batch.
    pub(crate) fn new(turn: &TurnView<'_>, run_bytes: u64) -> Self {
        let closes = turn.closes();
        Self {
            run: turn.run(),
            first: turn.head().next(),
            last: turn.last(),
            time: turn.time(),
            opens: turn.opens().map(Into::into),
            trims: turn.trims().is_some(),
            closes,
            last_kind: if closes {
                turn.records().last().map_or(0, |record| record.kind)
            } else {
                0
            },
            frames: Bytes::copy_from_slice(turn.frames()),
            run_bytes,
        }
    }
}
