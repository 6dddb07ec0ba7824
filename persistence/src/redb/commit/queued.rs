//! The queued turns on their way to the disk: the turns of one commit and everything that is committed with them.

use millrun_core::{Offset, RunId, Timestamp};

use crate::finished::{Finished, Place};
use crate::redb::commit::snapshots::SnapshotRows;
use crate::redb::topics::TopicWrites;
use crate::wire::inventory::Listed;

/// Turns on their way to the disk, exactly as they will be in the log.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// Log position of the first byte.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    /// How many callers they come from: joined batches count each.
    pub(crate) batches: usize,
    pub(crate) turns: usize,
    /// The offset of the last batch in it.
    pub(crate) offset: Offset,
    /// Runs that close in it.
    pub(crate) finishing: Vec<Finished<Place>>,
    /// Runs that are trimmed in it.
    pub(crate) trims: Vec<TrimTurn>,
    /// Snapshots that are written with it.
    pub(crate) snapshots: SnapshotRows,
    /// The number of openings that the store has from then on, if partitions were taken over.
    pub(crate) opens: Option<u64>,
    /// The log position below which all trimmed records are archived by then, if it has to be stored.
    pub(crate) trims_archived: Option<u64>,
    /// The time that ages are measured by from then on, if it has to be stored.
    pub(crate) aged: Option<Timestamp>,
    /// What must be listed in the inventory with it, if anything.
    pub(crate) unlisted: Option<Unlisted>,
    /// What is written of topics.
    pub(in crate::redb) topics: Option<Box<TopicWrites>>,
    /// Where the log began when the piece was sealed.
    pub(crate) low: u64,
}

/// A turn that trims its run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrimTurn {
    pub(crate) run: RunId,
    /// Where it begins.
    pub(crate) position: u64,
    /// Where the run's records were before it.
    pub(crate) before: Place,
}

/// The runs with turns in a stretch of the log that is not listed in its inventory yet.
#[derive(Debug, Default)]
pub(crate) struct Unlisted {
    /// Where the stretch begins.
    pub(crate) from: u64,
    /// Runs that were live when they had their first turn in it.
    pub(crate) live: Vec<RunId>,
    /// The last turns of those that have closed in it.
    pub(crate) closed: Vec<Listed>,
}

impl Unlisted {
    pub(in crate::redb) fn len(&self) -> usize {
        self.live.len() + self.closed.len()
    }
}

/// A stretch of the log is listed with a commit when this many runs have had turns in it,
pub(in crate::redb) const UNLISTED_LEN_MAX: usize = 4_096;
/// or when it is as long as this.
pub(in crate::redb) const UNLISTED_BYTES_MAX: u64 = 4 << 20;

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// How many turns wait in it; a piece without turns that must be committed (with a number that the store counts) counts
    /// as one.
    pub(crate) fn len(&self) -> usize {
        self.turns.max(self.batches)
    }

    /// The bytes from a log position on, if it is in this piece.
    pub(in crate::redb) fn at(&self, position: u64) -> Option<&[u8]> {
        let offset = usize::try_from(position.checked_sub(self.start)?).ok()?;
        self.bytes.get(offset..).filter(|bytes| !bytes.is_empty())
    }
}

/// When a producer should ring the writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingAt {
    pub(crate) turns: usize,
    pub(crate) bytes: usize,
}

impl RingAt {
    /// Never: while the writer is busy it looks by itself.
    pub(crate) const NEVER: Self = Self {
        turns: usize::MAX,
        bytes: usize::MAX,
    };
    pub(crate) const FIRST: Self = Self { turns: 1, bytes: 1 };
}
