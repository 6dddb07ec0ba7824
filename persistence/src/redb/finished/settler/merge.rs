//! Merging sorted runs into one of the next level.
//!
//! ```text
//!   row of input 0 ─┐
//!   row of input 1 ─┼─► heads: the least first ──► pairs, a row at a time ──► rows of the index
//!   row of input n ─┘
//! ```
//!
//! Invariants: one row of each input is in memory, and one of the output; pairs of runs that are forgotten are left out, and
//! of the runs of one instance only the latest is found by its id.
//!
//! Left out: the rows of finished runs, which do not change: pairs point at them by number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

use super::{INDEX_ROW_BYTES, IndexStep, is_older};
use crate::error::JournalFailure;
use crate::redb::database::moment::StoreMoment;
use crate::redb::finished::segment::Segment;
use crate::wire::settled::{self, PAIRS_PER_ROW, Pair};

/// Sorted runs that are being merged into one.
#[derive(Debug)]
pub(super) struct Merge {
    pub(super) inputs: Vec<Arc<Segment>>,
    cursors: Vec<Cursor>,
    /// The next pair of each input that has one, counted from the output's number.
    heads: BinaryHeap<Reverse<(Pair, usize)>>,
    /// Pairs that do not fill a row yet.
    pairs: Vec<Pair>,
    pub(super) segment: Segment,
    /// Pairs with lower numbers are left out.
    from: u64,
    is_begun: bool,
}

#[derive(Debug)]
struct Cursor {
    row: Vec<Pair>,
    at: usize,
    next_row: u32,
}

impl Merge {
    pub(super) fn new(id: u64, inputs: Vec<Arc<Segment>>, from: u64) -> Self {
        let base = inputs[0].entry.base;
        let end = inputs[inputs.len() - 1].entry.end;
        let level = inputs[0].entry.level + 1;
        let pairs: u64 = inputs.iter().map(|segment| segment.entry.pairs).sum();
        let pairs = usize::try_from(pairs).expect("its filter is in memory");
        let cursors = inputs
            .iter()
            .map(|_| Cursor {
                row: Vec::new(),
                at: 0,
                next_row: 0,
            })
            .collect();
        Self {
            segment: Segment::new(id, base, end, level, pairs),
            cursors,
            inputs,
            heads: BinaryHeap::new(),
            pairs: Vec::with_capacity(PAIRS_PER_ROW),
            from,
            is_begun: false,
        }
    }

    /// Returns whether that was all.
    pub(super) fn step(
        &mut self,
        moment: &StoreMoment,
        bytes: usize,
        step: &mut IndexStep,
    ) -> Result<bool, JournalFailure> {
        if !self.is_begun {
            self.is_begun = true;
            for (input, (segment, cursor)) in self.inputs.iter().zip(&mut self.cursors).enumerate() {
                let next = cursor.next(moment, segment, self.segment.entry.base)?;
                self.heads.extend(next.map(|pair| Reverse((pair, input))));
            }
        }
        let mut looked_at = bytes.div_ceil(INDEX_ROW_BYTES) * PAIRS_PER_ROW;
        while looked_at > 0 {
            let Some(mut least) = self.heads.peek_mut() else {
                if !self.pairs.is_empty() {
                    self.write(step);
                }
                return Ok(true);
            };
            looked_at -= 1;
            let Reverse((pair, input)) = *least;
            let cursor = &mut self.cursors[input];
            match cursor.next(moment, &self.inputs[input], self.segment.entry.base)? {
                Some(next) => {
                    *least = Reverse((next, input));
                    // Now it finds its place.
                    drop(least);
                }
                None => {
                    PeekMut::pop(least);
                }
            }
            if self.segment.entry.base + u64::from(pair.relative()) < self.from {
                continue;
            }
            match self.pairs.last_mut() {
                Some(last) if is_older(*last, pair) => *last = pair,
                _ => {
                    if self.pairs.len() == PAIRS_PER_ROW {
                        self.write(step);
                    }
                    self.pairs.push(pair);
                }
            }
        }
        Ok(false)
    }

    fn write(&mut self, step: &mut IndexStep) {
        let key = self.segment.push(&self.pairs);
        step.index
            .push((key, settled::index_row(self.segment.entry.base, &self.pairs)));
        self.pairs.clear();
    }
}

impl Cursor {
    /// The next pair of its input, counted from `base`; `None` at the end.
    fn next(
        &mut self,
        moment: &StoreMoment,
        segment: &Segment,
        base: u64,
    ) -> Result<Option<Pair>, JournalFailure> {
        while self.at == self.row.len() {
            if self.next_row == segment.entry.rows {
                return Ok(None);
            }
            self.row = segment.row(moment, self.next_row)?;
            self.at = 0;
            self.next_row += 1;
        }
        let shift = u32::try_from(segment.entry.base - base).expect("what spans more is not merged");
        let pair = self.row[self.at].shifted(shift);
        self.at += 1;
        Ok(Some(pair))
    }
}
