//! A summary in memory of the settled runs, with which a search skips most of their rows.
//!
//! ```text
//!   numbers:   0 ······ 127 │ 128 ······ 255 │ 256 ······
//!   outlines:  kinds, times │ kinds, times   │ kinds, times          a third of a byte for each run
//! ```
//!
//! Invariant: an outline is true for each run of its block that is settled and retained. It may include more: runs that were
//! dropped, and every kind for runs whose kind only their last record tells.

use std::collections::VecDeque;

use millrun_core::Timestamp;

use crate::finished::Finished;
use crate::search::{FinishedSearch, TimeRange};

/// How many consecutive runs an outline covers.
pub(crate) const BLOCK_LEN: u64 = 128;

/// The outlines of all settled runs.
#[derive(Debug, Default)]
pub(crate) struct Outlines {
    /// The number of the first block.
    first: u64,
    blocks: VecDeque<Outline>,
}

/// What is true for the runs of a block.
#[derive(Clone, Copy, Debug)]
struct Outline {
    /// One bit for each kind below 63 that a last record has; the highest bit for all other kinds.
    kinds: u64,
    /// The earliest and latest time.
    closed: (Timestamp, Timestamp),
    started: (Timestamp, Timestamp),
}

const NOTHING: (Timestamp, Timestamp) = (Timestamp::from_micros(u64::MAX), Timestamp::EPOCH);

impl Outline {
    const EMPTY: Self = Self {
        kinds: 0,
        closed: NOTHING,
        started: NOTHING,
    };

    fn add<P>(&mut self, finished: &Finished<P>) {
        self.kinds |= finished.kind.map_or(u64::MAX, |kind| bit_of(kind.get()));
        widen(&mut self.closed, finished.closed_at);
        widen(&mut self.started, finished.run.started());
    }

    fn may_match(&self, kinds: u64, search: &FinishedSearch) -> bool {
        self.kinds & kinds != 0 && meets(&search.closed, self.closed) && meets(&search.started, self.started)
    }
}

fn widen((from, to): &mut (Timestamp, Timestamp), time: Timestamp) {
    (*from, *to) = ((*from).min(time), (*to).max(time));
}

fn meets(range: &TimeRange, (from, to): (Timestamp, Timestamp)) -> bool {
    from < range.until && to >= range.from
}

fn bit_of(kind: u8) -> u64 {
    1 << kind.min(63)
}

impl Outlines {
    /// Adds a settled run; runs with lower numbers were added before, or are not retained.
    pub(crate) fn add<P>(&mut self, number: u64, finished: &Finished<P>) {
        let block = number / BLOCK_LEN;
        if self.blocks.is_empty() {
            self.first = block;
        }
        let Some(at) = block.checked_sub(self.first) else {
            return;
        };
        let at = usize::try_from(at).expect("no more than are in memory");
        while self.blocks.len() <= at {
            self.blocks.push_back(Outline::EMPTY);
        }
        self.blocks[at].add(finished);
    }

    /// Drops the blocks whose runs are all below the number `first`.
    pub(crate) fn drop_before(&mut self, first: u64) {
        while !self.blocks.is_empty() && (self.first + 1) * BLOCK_LEN <= first {
            self.blocks.pop_front();
            self.first += 1;
        }
    }

    /// Searches the next `looked_at_max` blocks with runs before the number `before`, the latest first: returns the numbers
    /// of the first runs of up to `len_max` blocks that may match, and the number before which the search continues; `None`
    /// if these were all.
    pub(crate) fn back_from(
        &self,
        before: u64,
        search: &FinishedSearch,
        (looked_at_max, len_max): (usize, usize),
    ) -> (Vec<u64>, Option<u64>) {
        let kinds = search.kinds.iter().fold(0, |kinds, kind| kinds | bit_of(kind));
        let end = before.div_ceil(BLOCK_LEN);
        let skipped = (self.first + self.blocks.len() as u64).saturating_sub(end);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let blocks = self.blocks.iter().enumerate().rev().skip(skipped);
        let mut found = Vec::new();
        for (looked_at, (at, outline)) in blocks.enumerate() {
            let block = self.first + at as u64;
            if looked_at == looked_at_max || found.len() == len_max {
                return (found, Some((block + 1) * BLOCK_LEN));
            }
            if outline.may_match(kinds, search) {
                found.push(block * BLOCK_LEN);
            }
        }
        (found, None)
    }

    /// Memory held, estimated from capacities.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.blocks.capacity() * size_of::<Outline>()) as u64
    }
}
