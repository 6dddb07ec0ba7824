//! Compares the turns that a lane finds in the log with those that the inventory lists.
//!
//! ```text
//!   inventory:  │ a │ b │ c │ d │        (position, run, last record), read before the frames
//!   log:        │ a │ b │ ? │ d │
//!                         └──────► c is lost, and it is known whose it was
//! ```
//!
//! Invariants: what is listed and not found is told once, by the lane of its run; turns that stand behind
//! the last stretch are gathered, so that they can be listed too.
//!
//! Left out: what becomes of the run; see `rebuild`.

use std::collections::VecDeque;
use std::ops::Range;

use millrun_core::RunId;

use crate::finished::IdHash;
use crate::wire::inventory::{self, InventoryError, Listed};
use crate::wire::v1::{self, Frame};

/// So many turns behind the last stretch are gathered for the inventory, per lane. A store that crashed
/// has fewer than a commit lists at once; more has one of an earlier format, which stays without.
const TAIL_LEN_MAX: usize = 4_096;

/// What one lane knows of the inventory.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// What is listed, joined where it meets.
    stretches: Vec<Range<u64>>,
    /// Turns of this lane that are listed and have not been reached.
    expected: VecDeque<Listed>,
    /// The listed turn whose records are being read.
    turn: Option<Listed>,
    /// The turns behind the last stretch; `None` if they are too many.
    tail: Option<Vec<Listed>>,
}

impl Listing {
    pub(crate) fn new() -> Self {
        Self {
            tail: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// Takes in a row, with the turns for which `is_mine` says so.
    pub(crate) fn add(&mut self, row: &[u8], is_mine: &dyn Fn(RunId) -> bool) -> Result<(), InventoryError> {
        let inventory = inventory::read(row)?;
        match self.stretches.last_mut() {
            Some(last) if last.end == inventory.from => last.end = inventory.end,
            _ => self.stretches.push(inventory.from..inventory.end),
        }
        self.expected
            .extend(inventory.turns.into_iter().filter(|turn| is_mine(turn.run)));
        self.tail = Some(Vec::new());
        Ok(())
    }

    /// Where the last stretch ends.
    pub(crate) fn end(&self) -> u64 {
        self.stretches.last().map_or(0, |stretch| stretch.end)
    }

    /// Whether all of a part of the log is listed.
    pub(crate) fn covers(&self, part: &Range<u64>) -> bool {
        let mut stretches = self.stretches.iter();
        stretches.any(|stretch| stretch.start <= part.start && part.end <= stretch.end)
    }

    /// A turn begins at `position`: those that should have come before it are lost, and so is the one that
    /// should stand there if it is another run's.
    pub(crate) fn begins(&mut self, position: u64, frame: &Frame<'_>, lost: &mut Vec<Listed>) {
        lost.extend(self.turn.take());
        while let Some(turn) = self.expected.pop_front_if(|turn| turn.position <= position) {
            if turn.position == position && turn.run == frame.run {
                self.turn = Some(turn);
            } else {
                lost.push(turn);
            }
        }
        if position < self.end() {
            return;
        }
        if let Some(tail) = self.tail.as_mut().filter(|tail| tail.len() < TAIL_LEN_MAX) {
            tail.push(Listed {
                position,
                run: frame.run,
                last: 0,
                closes: false,
                opens: frame.id.map(IdHash::of),
            });
        } else {
            self.tail = None;
        }
    }

    /// A turn ends with this frame: if it is not as it is listed, it is lost.
    pub(crate) fn ends(&mut self, position: u64, frame: &Frame<'_>, lost: &mut Vec<Listed>) {
        let last = u32::try_from(frame.sequence.get()).expect("a frame holds 32 bits of sequence");
        let closes = frame.has(v1::CLOSES);
        let is_as_listed = |turn: &Listed| (turn.run, turn.last, turn.closes) == (frame.run, last, closes);
        lost.extend(self.turn.take().filter(|turn| !is_as_listed(turn)));
        if position >= self.end()
            && let Some(turn) = self.tail.as_mut().and_then(|tail| tail.last_mut())
        {
            (turn.last, turn.closes) = (last, closes);
        }
    }

    /// The log is at its end: what has not been reached is lost.
    pub(crate) fn finish(&mut self, lost: &mut Vec<Listed>) {
        lost.extend(self.turn.take());
        lost.extend(self.expected.drain(..));
    }

    /// The turns behind the last stretch; `None` if they are too many.
    pub(crate) fn take_tail(&mut self) -> Option<Vec<Listed>> {
        self.tail.take()
    }
}
