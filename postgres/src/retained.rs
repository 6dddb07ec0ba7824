//! The finished runs that retention drops next: the earliest of the retained ones.
//!
//! ```text
//!   number   dropped │ first ───── window ───── until │ ............ │ next
//!                      in memory, at most WINDOW_LEN    on the server
//! ```
//!
//! A pure machine of the writer. Runs are numbered in the order in which they close; numbers grow, and may have gaps.
//! Invariant: the window holds all retained runs with numbers below `until`.
//!
//! A node that shares the store drops runs of the partitions that it owns. There the store gives the numbers: a run that a
//! flush adds is in the window without a number until the flush has landed, and is read from the store later. If all nodes
//! together retain more than a bound allows, each drops its own part of the excess.

use std::collections::{BTreeMap, VecDeque};

use millrun_core::{Partition, RunId, Timestamp};
use millrun_persistence::Retention;

/// How many of the earliest finished runs stay in memory, 48 bytes each.
pub(crate) const WINDOW_LEN: usize = 8_192;

/// The number of a run that the store has not numbered yet.
const UNNUMBERED: u64 = u64::MAX;

/// A finished run as retention sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrontRun {
    pub(crate) number: u64,
    pub(crate) run: RunId,
    pub(crate) closed_at: Timestamp,
    pub(crate) bytes: u64,
}

impl FrontRun {
    /// A run that the store will number in the flush that is being made.
    pub(crate) fn unnumbered(run: RunId, closed_at: Timestamp, bytes: u64) -> Self {
        Self {
            number: UNNUMBERED,
            run,
            closed_at,
            bytes,
        }
    }

    pub(crate) fn is_numbered(&self) -> bool {
        self.number != UNNUMBERED
    }
}

/// The number of finished runs, and the earliest of them.
#[derive(Debug)]
pub(crate) struct FinishedFront {
    retention: Retention,
    window: VecDeque<FrontRun>,
    /// All retained runs before this number are in the window.
    until: u64,
    /// The first number that is retained or will be given.
    first: u64,
    /// The next number.
    next: u64,
    len: u64,
    bytes: u64,
    /// Only for a node that shares the store.
    shared: Option<SharedCounts>,
}

/// The counts of a node that shares the store.
#[derive(Debug)]
struct SharedCounts {
    /// The retained runs of each owned partition, and their bytes.
    by_partition: BTreeMap<Partition, (u64, u64)>,
    /// The counts that have changed since the last flush.
    changed: BTreeMap<Partition, (u64, u64)>,
    /// Whether all retained runs are in the window.
    is_complete: bool,
    /// The number and bytes of runs that the other nodes retain.
    others: (u64, u64),
    /// The first number that was retained when the store was opened.
    first: u64,
}

/// Has to be read before drops can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowEmpty {
    /// Read the earliest retained runs from this number on.
    pub(crate) from: u64,
}

impl FinishedFront {
    /// For a store that retains `len` runs from the number `first` on, of `bytes` in all.
    pub(crate) fn new(retention: Retention, first: u64, next: u64, len: u64, bytes: u64) -> Self {
        Self {
            retention,
            window: VecDeque::new(),
            until: first,
            first,
            next,
            len,
            bytes,
            shared: None,
        }
    }

    /// For a node that owns nothing yet of a store whose runs before `first` are not retained.
    pub(crate) fn shared(retention: Retention, first: u64) -> Self {
        let counts = SharedCounts {
            by_partition: BTreeMap::new(),
            changed: BTreeMap::new(),
            is_complete: true,
            others: (0, 0),
            first,
        };
        Self {
            shared: Some(counts),
            ..Self::new(retention, first, first, 0, 0)
        }
    }

    /// Whether the store gives the numbers.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// The partitions that the node owns, in order.
    pub(crate) fn partitions(&self) -> Vec<Partition> {
        let counts = self.shared.iter().flat_map(|shared| shared.by_partition.keys());
        counts.copied().collect()
    }

    /// The counts of partitions that have changed since the last call: for the flush that is being made.
    pub(crate) fn take_changed(&mut self) -> BTreeMap<Partition, (u64, u64)> {
        let changed = self.shared.as_mut().map(|shared| &mut shared.changed);
        changed.map(std::mem::take).unwrap_or_default()
    }

    /// Counts the retained runs and bytes of a partition that this node owns from now on.
    pub(crate) fn adopt(&mut self, partition: Partition, (len, bytes): (u64, u64)) {
        self.release(partition);
        let Some(shared) = &mut self.shared else { return };
        shared.by_partition.insert(partition, (len, bytes));
        (self.len, self.bytes) = (self.len + len, self.bytes + bytes);
        // The partition's runs may be earlier than those in the window.
        self.window.clear();
        (self.until, shared.is_complete) = (shared.first, false);
    }

    /// A node owns a partition no longer.
    pub(crate) fn release(&mut self, partition: Partition) {
        let Some(shared) = &mut self.shared else { return };
        if let Some((len, bytes)) = shared.by_partition.remove(&partition) {
            self.len = self.len.saturating_sub(len);
            self.bytes = self.bytes.saturating_sub(bytes);
            self.window.retain(|run| run.run.partition() != partition);
        }
    }

    /// Notes that the added runs are in the store, and how many runs and bytes the other nodes retain.
    pub(crate) fn landed(&mut self, others: (u64, u64)) {
        let Some(shared) = &mut self.shared else { return };
        shared.others = others;
        let len = self.window.len();
        self.window.retain(FrontRun::is_numbered);
        shared.is_complete &= self.window.len() == len;
    }

    /// The bounds for the next drops: this node's part of the store's bounds.
    pub(crate) fn bounds(&self) -> Retention {
        let mut bounds = self.retention;
        if let Some(SharedCounts { others, .. }) = &self.shared {
            let part = |max: u64, own: u64, of_others: u64| {
                let all = own.saturating_add(of_others);
                match all <= max {
                    true => max,
                    false => {
                        u64::try_from(u128::from(max) * u128::from(own) / u128::from(all)).unwrap_or(max)
                    }
                }
            };
            let len_max = part(bounds.len_max as u64, self.len, others.0);
            bounds.len_max = usize::try_from(len_max).unwrap_or(bounds.len_max);
            bounds.bytes_max = part(bounds.bytes_max, self.bytes, others.1);
        }
        bounds
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The first number that is retained.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Runs with numbers below this are not remembered by name any more.
    pub(crate) fn forgotten(&self) -> u64 {
        let remembered = self.retention.expired_len_max as u64;
        self.first.saturating_sub(remembered)
    }

    /// Adds a run that has closed. Returns its number, unless the store gives it.
    pub(crate) fn add(&mut self, run: RunId, closed_at: Timestamp, bytes: u64) -> Option<u64> {
        if let Some(shared) = &mut self.shared {
            let counted = shared.by_partition.entry(run.partition()).or_default();
            *counted = (counted.0 + 1, counted.1 + bytes);
            shared.changed.insert(run.partition(), *counted);
            (self.len, self.bytes) = (self.len + 1, self.bytes + bytes);
            if shared.is_complete {
                self.window.push_back(FrontRun::unnumbered(run, closed_at, bytes));
            }
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.len += 1;
        self.bytes += bytes;
        if self.until == number && self.window.len() < WINDOW_LEN {
            self.window.push_back(FrontRun {
                number,
                run,
                closed_at,
                bytes,
            });
            self.until = self.next;
        }
        Some(number)
    }

    /// Fills the window with the earliest retained runs that were read: if `is_all`, these are all that the server has. The
    /// `unwritten` runs come after them; the flush that is being made adds these.
    pub(crate) fn fill(
        &mut self,
        runs: Vec<FrontRun>,
        is_all: bool,
        unwritten: impl Iterator<Item = FrontRun>,
    ) {
        if let Some(last) = runs.last() {
            self.until = last.number + 1;
        }
        self.window.extend(runs);
        if !is_all {
            return;
        }
        if let Some(shared) = &mut self.shared {
            self.window.extend(unwritten);
            shared.is_complete = true;
            // No others exist, so the counts are corrected to match.
            let counted_before = shared.by_partition.clone();
            shared
                .by_partition
                .values_mut()
                .for_each(|counted| *counted = (0, 0));
            for run in &self.window {
                let counted = shared.by_partition.entry(run.run.partition()).or_default();
                *counted = (counted.0 + 1, counted.1 + run.bytes);
            }
            let counted = shared.by_partition.iter();
            let changed = counted.filter(|(partition, counts)| counted_before.get(partition) != Some(counts));
            shared
                .changed
                .extend(changed.map(|(partition, counts)| (*partition, *counts)));
            self.len = self.window.len() as u64;
            self.bytes = self.window.iter().map(|run| run.bytes).sum();
            return;
        }
        let from = self.until;
        let mut unwritten = unwritten.filter(|run| run.number >= from);
        let room = WINDOW_LEN.saturating_sub(self.window.len());
        for run in unwritten.by_ref().take(room) {
            self.until = run.number + 1;
            self.window.push_back(run);
        }
        if unwritten.next().is_none() {
            self.until = self.next;
        }
    }

    /// Takes the earliest run out, if the [bounds](Self::bounds) do not keep it at `now`.
    ///
    /// # Errors
    /// When the earliest run is not in memory.
    pub(crate) fn drop_next(
        &mut self,
        now: Timestamp,
        bounds: &Retention,
    ) -> Result<Option<FrontRun>, WindowEmpty> {
        let Some(earliest) = self.window.front().copied() else {
            let is_all_known = match &self.shared {
                Some(shared) => shared.is_complete,
                None => self.until >= self.next,
            };
            return if self.len == 0 || is_all_known {
                Ok(None)
            } else {
                Err(WindowEmpty { from: self.until })
            };
        };
        if bounds.retains(now, earliest.closed_at, self.len, self.bytes) {
            return Ok(None);
        }
        self.window.pop_front();
        self.len = self.len.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(earliest.bytes);
        if earliest.is_numbered() {
            self.first = self.first.max(earliest.number + 1);
        }
        if let Some(shared) = &mut self.shared
            && let Some(counted) = shared.by_partition.get_mut(&earliest.run.partition())
        {
            *counted = (
                counted.0.saturating_sub(1),
                counted.1.saturating_sub(earliest.bytes),
            );
            shared.changed.insert(earliest.run.partition(), *counted);
        }
        Ok(Some(earliest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrun_core::Partition;

    fn run(number: u64) -> RunId {
        RunId::new(Partition::from_index(0).unwrap(), Timestamp::EPOCH, number)
    }

    fn front_run(number: u64) -> FrontRun {
        FrontRun {
            number,
            run: run(number),
            closed_at: Timestamp::from_micros(number),
            bytes: 100,
        }
    }

    /// Everything that is dropped by a flush that adds the runs behind the `written` ones.
    fn dropped(runs: &mut FinishedFront, closed: &[FrontRun], written: usize, now: u64) -> Vec<u64> {
        let mut dropped = Vec::new();
        let (store, unwritten) = closed.split_at(written);
        loop {
            let bounds = runs.bounds();
            match runs.drop_next(Timestamp::from_micros(now), &bounds) {
                Ok(Some(run)) => dropped.push(run.number),
                Ok(None) => return dropped,
                Err(WindowEmpty { from }) => {
                    let later = store.iter().filter(|run| run.number >= from);
                    let page: Vec<_> = later.copied().take(3).collect();
                    let is_all = page.len() < 3;
                    runs.fill(page, is_all, unwritten.iter().copied());
                }
            }
        }
    }

    #[test]
    fn the_earliest_are_dropped_whether_they_are_in_memory_or_not() {
        let mut retention = Retention::default();
        retention.len_max = 10;
        // The store has ten runs when it is opened.
        let mut runs = FinishedFront::new(retention, 0, 10, 10, 1_000);
        let mut closed: Vec<_> = (0..10).map(front_run).collect();
        assert!(dropped(&mut runs, &closed, 10, 10).is_empty());
        for number in 10..40 {
            let run = front_run(number);
            assert_eq!(runs.add(run.run, run.closed_at, run.bytes), Some(number));
            closed.push(run);
            let expected = number - 10;
            assert_eq!(dropped(&mut runs, &closed, closed.len() - 1, number), [expected]);
            assert_eq!(
                (runs.len(), runs.bytes(), runs.first()),
                (10, 1_000, expected + 1)
            );
        }
    }

    #[test]
    fn a_window_that_is_full_is_filled_again() {
        let mut retention = Retention::default();
        retention.age_max = std::time::Duration::from_micros(5);
        let count = 2 * WINDOW_LEN + 10;
        let closed: Vec<_> = (0..count as u64).map(front_run).collect();
        for written in [0, 5, WINDOW_LEN + 5, count] {
            let mut runs = FinishedFront::new(retention, 0, 0, 0, 0);
            for run in &closed {
                runs.add(run.run, run.closed_at, run.bytes);
            }
            let gone = dropped(&mut runs, &closed, written, 2 * count as u64);
            assert!(gone.iter().copied().eq(0..count as u64), "{written}");
            assert_eq!((runs.len(), runs.bytes(), runs.first()), (0, 0, count as u64));
        }
    }

    /// Regression: the flush that fills the window of a reopened store has added runs that the server does not have yet.
    #[test]
    fn what_closes_in_the_flush_that_fills_the_window_is_dropped_in_its_turn() {
        let mut retention = Retention::default();
        retention.len_max = 2;
        let mut runs = FinishedFront::new(retention, 0, 2, 2, 200);
        let closed: Vec<_> = (0..6).map(front_run).collect();
        for run in &closed[2..4] {
            runs.add(run.run, run.closed_at, run.bytes);
        }
        assert_eq!(dropped(&mut runs, &closed[..4], 2, 10), [0, 1]);
        for run in &closed[4..] {
            runs.add(run.run, run.closed_at, run.bytes);
        }
        assert_eq!(dropped(&mut runs, &closed, 4, 10), [2, 3]);
    }
}
