//! The traced runs that have ended and whose spans have not been passed on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use millrun_core::RunId;
use tokio::sync::Notify;

/// Filled by the shards, emptied by one reader. No other lock is taken and nothing is waited for while its lock is held.
#[derive(Debug, Default)]
pub(crate) struct TracedEnds {
    /// `None` while there is no reader.
    waiting: Mutex<Option<WaitingEnds>>,
    news: Notify,
    told: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
struct WaitingEnds {
    runs: VecDeque<RunId>,
    len_max: usize,
}

impl TracedEnds {
    fn lock(&self) -> MutexGuard<'_, Option<WaitingEnds>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to gather up to `len_max` runs; `false` if there is a reader already.
    pub(super) fn open(&self, len_max: usize) -> bool {
        let mut waiting = self.lock();
        if waiting.is_some() {
            return false;
        }
        *waiting = Some(WaitingEnds {
            runs: VecDeque::new(),
            len_max: len_max.max(1),
        });
        true
    }

    /// The reader is gone: the waiting runs are lost.
    pub(super) fn close(&self) {
        let waiting = self.lock().take();
        self.note_lost(waiting.map_or(0, |waiting| waiting.runs.len()));
    }

    /// Adds traced runs whose ends are durable. A reader that opens the feed from here on finds them in the journal, if it
    /// looks back.
    pub(crate) fn push(&self, runs: impl Iterator<Item = RunId>) {
        let mut waiting = self.lock();
        let Some(ends) = &mut *waiting else {
            return;
        };
        for run in runs {
            if ends.runs.len() >= ends.len_max {
                ends.runs.pop_front();
                self.note_lost(1);
            }
            ends.runs.push_back(run);
        }
        drop(waiting);
        self.news.notify_waiters();
    }

    /// The oldest runs, up to `len_max` of them.
    pub(super) fn take(&self, len_max: usize) -> VecDeque<RunId> {
        let mut waiting = self.lock();
        let Some(ends) = &mut *waiting else {
            return VecDeque::new();
        };
        let len = len_max.min(ends.runs.len());
        ends.runs.drain(..len).collect()
    }

    /// Notified when a run has been added.
    pub(super) fn news(&self) -> &Notify {
        &self.news
    }

    /// Counts runs whose spans were passed on.
    pub(super) fn note_told(&self, len: usize) {
        self.told.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Counts runs whose spans are lost.
    pub(super) fn note_lost(&self, len: usize) {
        self.lost.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// How many runs were passed on with their spans, and how many were lost.
    pub(crate) fn told_and_lost(&self) -> (u64, u64) {
        (
            self.told.load(Ordering::Relaxed),
            self.lost.load(Ordering::Relaxed),
        )
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, Timestamp};

    use super::*;

    fn run(number: u64) -> RunId {
        RunId::new(Partition::of(b"order"), Timestamp::EPOCH, number)
    }

    #[test]
    fn what_is_oldest_is_dropped_and_counted() {
        let ends = TracedEnds::default();
        ends.push([0].map(run).into_iter());
        assert!(ends.open(2) && !ends.open(2));
        ends.push((1..=5).map(run));
        assert_eq!(ends.told_and_lost(), (0, 3));
        assert_eq!(ends.take(1), [run(4)]);
        ends.close();
        assert_eq!(ends.told_and_lost(), (0, 4));
        assert!(ends.open(2));
        assert_eq!(ends.take(9), []);
    }
}
