//! A shard comes to rest: everything that attempts had reported by a moment has been told to their runs, and is queued at the
//! journal.
//!
//! ```text
//!   shutdown, hand-over: these attempts have ended ── ask ──► the inbox of reports is empty ──► the runs that are being read are read ──► has come
//! ```
//!
//! The report of an attempt whose run is not in memory waits until the run has been read. A shard whose mailbox is closed
//! gets no more histories: the report would be lost, and the run's next owner would make the attempt again. The same holds
//! for a partition that is given back.

use std::sync::atomic::{AtomicU64, Ordering};

use millrun_core::RunId;

use super::Shard;
use super::runs::entry::Residence;

/// Shared between a shard and who asks it: a shutdown, or the part that drains partitions.
#[derive(Debug, Default)]
pub(crate) struct ShardRest {
    /// How often the shard was asked to come to rest.
    asked: AtomicU64,
    /// The last question that has been answered.
    come: AtomicU64,
}

impl ShardRest {
    /// Asks the shard to come to rest, and returns the number of the question. The caller has to ring the shard's bell.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether everything has been told that was in the inbox when this question was asked.
    pub(crate) fn has_come(&self, number: u64) -> bool {
        self.come.load(Ordering::Acquire) >= number
    }
}

/// How far a shard has come with coming to rest.
#[derive(Debug, Default)]
pub(super) struct Resting {
    /// The question that is being worked on, or was answered last.
    number: u64,
    has_come: bool,
    /// The runs that were being read when the inbox was found empty; `None` before.
    left: Option<Vec<RunId>>,
}

impl Shard {
    /// Checks, after a turn whose results are all queued, whether the shard is asked to come to rest. Costs one load if not.
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
