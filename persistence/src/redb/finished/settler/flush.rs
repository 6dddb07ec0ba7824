//! Writing the runs that wait in memory as one sorted run of level 0.
//!
//! ```text
//!   runs ──► rows of finished runs, by number
//!       └──► pairs, sorted ──► rows of the index
//! ```
//!
//! Invariants: the rows of runs are written before those that point at them; of the runs of one instance
//! only the latest is found by its id.

use super::{INDEX_ROW_BYTES, IndexRows, IndexStep, is_older};
use crate::finished::{Finished, Place};
use crate::redb::finished::segment::Segment;
use crate::wire::settled::{self, CLOSED_PER_ROW, PAIRS_PER_ROW, Pair};

/// Bytes of a row of finished runs, for the budget.
const CLOSED_ROW_BYTES: usize = 8_192;

/// Waiting runs on their way to disk.
#[derive(Debug)]
pub(super) struct Flush {
    pub(super) number: u64,
    pub(super) runs: Vec<Finished<Place>>,
    written: usize,
    pairs: Vec<Pair>,
    indexed: usize,
    pub(super) segment: Segment,
    pub(super) position: u64,
}

impl Flush {
    pub(super) fn new(id: u64, number: u64, runs: Vec<Finished<Place>>, position: u64) -> Self {
        let mut pairs: Vec<_> = (0..)
            .zip(&runs)
            .flat_map(|(relative, finished)| {
                [
                    Pair::of_run(finished.run, relative),
                    Pair::of_id(finished.id, relative),
                ]
            })
            .collect();
        pairs.sort_unstable();
        // The latest run of an id comes last among its equals.
        pairs.dedup_by(|later, earlier| {
            let is_older = is_older(*earlier, *later);
            if is_older {
                *earlier = *later;
            }
            is_older
        });
        Self {
            number,
            written: 0,
            indexed: 0,
            segment: Segment::new(id, number, number + runs.len() as u64, 0, pairs.len()),
            runs,
            pairs,
            position,
        }
    }

    /// Returns whether that was all.
    pub(super) fn step(&mut self, bytes: usize, step: &mut IndexStep, rows: &mut IndexRows) -> bool {
        let mut written = 0;
        while written < bytes {
            if self.written < self.runs.len() {
                let next = (self.written + CLOSED_PER_ROW).min(self.runs.len());
                let number = self.number + self.written as u64;
                step.closed.push((
                    number,
                    settled::closed_row(number, &self.runs[self.written..next]),
                ));
                rows.closed.push_back(number);
                self.written = next;
                written += CLOSED_ROW_BYTES;
            } else if self.indexed < self.pairs.len() {
                let next = (self.indexed + PAIRS_PER_ROW).min(self.pairs.len());
                let pairs = &self.pairs[self.indexed..next];
                let key = self.segment.push(pairs);
                step.index.push((key, settled::index_row(self.number, pairs)));
                self.indexed = next;
                written += INDEX_ROW_BYTES;
            } else {
                return true;
            }
        }
        self.written == self.runs.len() && self.indexed == self.pairs.len()
    }
}
