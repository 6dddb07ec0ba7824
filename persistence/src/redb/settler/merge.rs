//! Merging sorted runs into one of the next level.
//!
//! ```text
//!   row of input 0 ─┐
//!   row of input 1 ─┼─► heads: the least first ──► pairs, a row at a time ──► rows of the index
//!   row of input n ─┘
//! ```
//!
//! Invariants: one row of each input is in memory, and one of the output; pairs of runs that are forgotten
//! are left out, and of the runs of one instance only the latest is found by its id.
//!
//! Left out: the rows of finished runs, which stay as they are: pairs point at them by number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::{INDEX_ROW_BYTES, Step, is_older};
use crate::error::JournalFailure;
use crate::redb::moment::Moment;
use crate::redb::segment::Segment;
use crate::wire::settled::{self, PAIRS_PER_ROW, Pair};

/// Sorted runs on their way into one.
#[derive(Debug)]
pub(super) struct Merge {
    pub(super) inputs: Vec<Arc<Segment>>,
    cursors: Vec<Cursor>,
    /// The next pair of each input that has one, counted from the output's number.
    heads: BinaryHeap<Reverse<(Pair, usize)>>,
    /// Pairs that do not fill a row yet.
    pairs: Vec<Pair>,
    pub(super) segment: Segment,
    /// Numbers below are left out.
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

    /// Says whether that was all.
    pub(super) fn step(
        &mut self,
        moment: &Moment,
        bytes: usize,
        step: &mut Step,
    ) -> Result<bool, JournalFailure> {
        if !self.is_begun {
            self.is_begun = true;
            for input in 0..self.inputs.len() {
                self.advance(moment, input)?;
            }
        }
        let mut looked_at = bytes.div_ceil(INDEX_ROW_BYTES) * PAIRS_PER_ROW;
        while looked_at > 0 {
            let Some(Reverse((pair, input))) = self.heads.pop() else {
                if !self.pairs.is_empty() {
                    self.write(step);
                }
                return Ok(true);
            };
            looked_at -= 1;
            self.advance(moment, input)?;
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

    fn write(&mut self, step: &mut Step) {
        let key = self.segment.push(&self.pairs);
        step.index
            .push((key, settled::index_row(self.segment.entry.base, &self.pairs)));
        self.pairs.clear();
    }

    /// Puts the next pair of an input among the heads.
    fn advance(&mut self, moment: &Moment, input: usize) -> Result<(), JournalFailure> {
        let (segment, cursor) = (&self.inputs[input], &mut self.cursors[input]);
        while cursor.at == cursor.row.len() {
            if cursor.next_row == segment.entry.rows {
                return Ok(());
            }
            cursor.row = segment.row(moment, cursor.next_row)?;
            cursor.at = 0;
            cursor.next_row += 1;
        }
        let shift = u32::try_from(segment.entry.base - self.segment.entry.base)
            .expect("what spans more is not merged");
        let pair = cursor.row[cursor.at].shifted(shift);
        cursor.at += 1;
        self.heads.push(Reverse((pair, input)));
        Ok(())
    }
}
