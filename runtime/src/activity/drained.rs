//! Partitions in which a pool begins no attempts, since they are about to be given to another node.
//!
//! ```text
//!   drain ──► tasks of these partitions are put aside ── resume ──► back to the backlogs of their shards
//!                                   └──────────────────── lose ───► dropped: the next owner makes these attempts
//! ```
//!
//! An attempt that has ended counts as under way until its report is in the inbox of its shard. Under load some report is
//! always on its way, so a drain cannot wait until there is none. The reports stand on two [pages](ReportPage): turning the page
//! separates those of attempts that ended before from later ones.

use std::sync::atomic::{AtomicUsize, Ordering};

use millrun_core::Epoch;

use super::ActivityTask;
use super::attempt_list::Key;
use crate::ownership::partition_set::PartitionSet;

/// A task that has not begun, with the epoch of its partition.
pub(crate) type PutAside = (Key, Epoch);

/// The drained partitions of a pool.
#[derive(Debug, Default)]
pub(super) struct DrainedTasks {
    /// `None` while no partition is drained.
    drained: Option<Box<DrainedInPool>>,
}

#[derive(Debug, Default)]
struct DrainedInPool {
    partitions: PartitionSet,
    /// In the order in which they would have begun, of 48 bytes each.
    tasks: Vec<PutAside>,
}

impl DrainedTasks {
    /// Drains these partitions too.
    pub(super) fn drain(&mut self, partitions: &PartitionSet) {
        let drained = self.drained.get_or_insert_default();
        partitions
            .iter()
            .for_each(|partition| drained.partitions.insert(partition));
    }

    /// Puts a task aside, if its partition is drained. Returns whether it is.
    #[inline]
    pub(super) fn put_aside(&mut self, task: &ActivityTask) -> bool {
        match &mut self.drained {
            None => false,
            Some(drained) => drained.put_aside(task),
        }
    }

    /// These partitions are not drained any more. Returns their tasks, in order.
    pub(super) fn resume(&mut self, partitions: &PartitionSet) -> Vec<PutAside> {
        let Some(drained) = &mut self.drained else {
            return Vec::new();
        };
        let still = drained.partitions.iter();
        drained.partitions = still
            .filter(|partition| !partitions.contains(*partition))
            .collect();
        let is_resumed = |(key, _): &mut PutAside| partitions.contains(key.0.partition());
        let resumed = drained.tasks.extract_if(.., is_resumed).collect();
        if drained.partitions.is_empty() {
            self.drained = None;
        }
        resumed
    }
}

impl DrainedInPool {
    #[cold]
    fn put_aside(&mut self, task: &ActivityTask) -> bool {
        let is_drained = self.partitions.contains(task.run.partition());
        if is_drained {
            self.tasks.push((task.key(), task.life));
        }
        is_drained
    }
}

/// One of the two pages of [`UnsentReports`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReportPage(usize);

impl ReportPage {
    fn other(self) -> Self {
        Self(1 - self.0)
    }
}

/// How many ended attempts have reports that are not sent yet, by the page on which each stands.
#[derive(Debug, Default)]
pub(super) struct UnsentReports([AtomicUsize; 2]);

impl UnsentReports {
    /// All of them.
    pub(super) fn len(&self) -> usize {
        let [first, second] = &self.0;
        first.load(Ordering::Acquire) + second.load(Ordering::Acquire)
    }

    /// Adds one; the caller has the lock of the list that the attempt leaves.
    pub(super) fn add(&self, page: ReportPage) {
        self.0[page.0].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sent(&self, page: ReportPage, count: usize) {
        self.0[page.0].fetch_sub(count, Ordering::Release);
    }

    /// Has later reports stand on the other page, if that is empty. Returns whether it is.
    pub(super) fn turn(&self, page: &mut ReportPage) -> bool {
        let is_empty = self.0[page.other().0].load(Ordering::Acquire) == 0;
        if is_empty {
            *page = page.other();
        }
        is_empty
    }

    /// Whether all reports from before the last turn to this page are sent.
    pub(super) fn are_former_sent(&self, page: ReportPage) -> bool {
        self.0[page.other().0].load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, RunId, Timestamp};

    use super::super::samples::task;
    use super::*;

    fn set(task: &ActivityTask) -> PartitionSet {
        [task.run.partition()].into_iter().collect()
    }

    #[test]
    fn tasks_of_drained_partitions_are_put_aside_until_these_are_resumed() {
        let mut drained = DrainedTasks::default();
        let [first, second, third] = [1, 2, 3].map(|number| {
            let partition = Partition::from_index(number).unwrap();
            let run = RunId::new(partition, Timestamp::EPOCH, 1);
            ActivityTask { run, ..task(1, 1) }
        });
        assert!(!drained.put_aside(&first), "nothing is drained");
        drained.drain(&set(&first));
        drained.drain(&set(&second));
        assert!(drained.put_aside(&second) && drained.put_aside(&first) && !drained.put_aside(&third));
        assert_eq!(drained.resume(&set(&first)), [(first.key(), first.life)]);
        assert!(!drained.put_aside(&first) && drained.put_aside(&second));
        let of_second = (second.key(), second.life);
        assert_eq!(drained.resume(&set(&second)), [of_second, of_second]);
        assert!(drained.drained.is_none());
        assert!(drained.resume(&set(&second)).is_empty());
    }

    #[test]
    fn reports_from_before_a_turned_page_are_told_from_later_ones() {
        let (unsent, mut page) = (UnsentReports::default(), ReportPage::default());
        let before = page;
        unsent.add(before);
        assert!(unsent.turn(&mut page) && !unsent.are_former_sent(page));
        unsent.add(page);
        assert!(!unsent.turn(&mut page), "the former page is not empty");
        unsent.sent(before, 1);
        assert!(unsent.are_former_sent(page), "later reports do not count");
        assert_eq!(unsent.len(), 1);
        assert!(unsent.turn(&mut page) && !unsent.are_former_sent(page));
    }
}
