//! A shard comes to rest: all that attempts had reported by a moment has been told to their runs, and is queued at the journal.
//!
//! ```text
//!   shutdown: these attempts have ended ── ask ──► the inbox of reports is empty ──► the runs that are being read are read ──► has come
//! ```
//!
//! The report of an attempt whose run is not in memory waits until the run has been read. With its door shut a shard hears of
//! no history any more: the report would be lost, and the attempt be made again by the next who has the run. So it would be with a
//! partition that is given back.

use std::sync::atomic::{AtomicU64, Ordering};

use millrun_core::RunId;

use super::Shard;
use super::runs::entry::Residence;

/// What a shutdown and a shard tell each other.
#[derive(Debug, Default)]
pub(crate) struct ShardRest {
    /// How often it was asked,
    asked: AtomicU64,
    /// and which of these has been answered.
    come: AtomicU64,
}

impl ShardRest {
    /// The shard, which is to be rung for, looks at it with its next turn. Gives the number of the question.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether all has been told that was in the inbox when this was asked.
    pub(crate) fn has_come(&self, number: u64) -> bool {
        self.come.load(Ordering::Acquire) >= number
    }
}

/// How far a shard is with that.
#[derive(Debug, Default)]
pub(super) struct Resting {
    /// The question that it is at, or has answered last.
    number: u64,
    has_come: bool,
    /// The runs that were being read when the inbox was empty; `None` until it is.
    left: Option<Vec<RunId>>,
}

impl Shard {
    /// Looks whether it is asked to come to rest, behind a turn of which everything is queued. One load if it is not.
    #[inline]
    pub(super) fn look_at_rest(&mut self) {
        let asked = self.shared.rests[self.ways.index()].asked.load(Ordering::Acquire);
        if asked > self.resting.number || !(self.resting.has_come || asked == 0) {
            self.come_to_rest(asked);
        }
    }

    #[cold]
    fn come_to_rest(&mut self, asked: u64) {
        if asked > self.resting.number {
            self.resting = Resting {
                number: asked,
                ..Resting::default()
            };
        }
        if !self.reports.is_empty() {
            return;
        }
        let (entries, residency) = (&self.entries, &self.residency);
        // Reads that begin later are not waited for: there may always be some.
        let left = &mut self.resting.left;
        let left = left.get_or_insert_with(|| residency.loading().collect());
        left.retain(|run| {
            let entry = entries.get(*run);
            entry.is_some_and(|entry| matches!(entry.residence, Residence::Loading(_)))
        });
        if left.is_empty() {
            self.resting.has_come = true;
            self.shared.rests[self.ways.index()]
                .come
                .store(asked, Ordering::Release);
        }
    }
}
