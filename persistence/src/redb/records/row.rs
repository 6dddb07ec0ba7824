//! A row of turns for the lanes that read it, and which lane reads what.

use millrun_core::RunId;

/// Where a row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameSource {
    /// Turns of this run that were moved out of the log; `None` if the row's key names no run.
    Kept(Option<RunId>),
    /// How far the kept turns of this run reach.
    KeptHead(RunId),
    /// The list of the turns that are in the log from this position on.
    Inventory(u64),
    /// The log, at this position.
    Log(u64),
}

impl FrameSource {
    /// The run that the whole row belongs to, if that is known without reading it.
    pub(crate) fn run(self) -> Option<RunId> {
        match self {
            Self::Kept(run) => run,
            Self::KeptHead(run) => Some(run),
            Self::Inventory(_) | Self::Log(_) => None,
        }
    }

    /// Whether the row holds frames.
    pub(in crate::redb) fn has_frames(self) -> bool {
        matches!(self, Self::Kept(_) | Self::Log(_))
    }
}

/// A row as a lane gets it.
pub(crate) struct Row<'a> {
    pub(crate) source: FrameSource,
    pub(crate) bytes: &'a [u8],
    /// Where the frames of this lane begin, after the piece's header; `None` if the lengths of the row's frames do not lead
    /// through it.
    pub(crate) frames: Option<&'a [u32]>,
    pub(in crate::redb) lane: usize,
    pub(in crate::redb) lanes: usize,
}

impl<'a> Row<'a> {
    /// The row with fewer frames, if it is known where its frames begin.
    pub(crate) fn only(&self, frames: &'a [u32]) -> Self {
        Self {
            frames: self.frames.map(|_| frames),
            ..*self
        }
    }

    /// Whether this lane must read this run. Data that cannot be attributed to a run are read by the first lane; a row of
    /// kept turns as a whole by the lane of its run.
    pub(crate) fn is_mine(&self, run: Option<RunId>) -> bool {
        lane_of(self.source.run().or(run), self.lanes) == self.lane
    }

    /// Whether this lane reads the data that cannot be attributed to a run.
    pub(crate) fn is_first(&self) -> bool {
        self.lane == 0
    }
}

/// The lane, of `lanes`, that reads this run.
pub(crate) fn lane_of(run: Option<RunId>, lanes: usize) -> usize {
    run.map_or(0, |run| usize::from(run.partition().index()) % lanes)
}
