//! Compares the turns that a lane finds in the log with those that the inventory lists.
//!
//! ```text
//!   inventory:      │ b │ c │ d │        (position, run, last record), read before the frames
//!   log:        │ a │ b │ ? │ d │
//!                         └──────► c is lost, and it is known whose it was
//! ```
//!
//! Invariant: a listed turn that is not found is reported once, by the lane of its run.
//!
//! Left out: what happens to the run; see `rebuild`.

use std::collections::VecDeque;
use std::ops::Range;

use millrun_core::RunId;

use crate::wire::inventory::{self, InventoryError, Listed};
use crate::wire::v1::{self, Frame};

/// What one lane knows of the inventory.
#[derive(Debug, Default)]
pub(crate) struct LogListing {
    /// The listed stretches; adjacent ones are joined.
    stretches: Vec<Range<u64>>,
    /// Turns of this lane that are listed and have not been reached.
    expected: VecDeque<Listed>,
    /// The listed turn whose records are being read.
    turn: Option<Listed>,
}

impl LogListing {
    /// Adds a row, with the turns for which `is_mine` holds.
    pub(crate) fn add(&mut self, row: &[u8], is_mine: &dyn Fn(RunId) -> bool) -> Result<(), InventoryError> {
        let inventory = inventory::read(row)?;
        match self.stretches.last_mut() {
            Some(last) if last.end == inventory.from => last.end = inventory.end,
            _ => self.stretches.push(inventory.from..inventory.end),
        }
        self.expected
            .extend(inventory.turns.into_iter().filter(|turn| is_mine(turn.run)));
        Ok(())
    }

    /// Where the last stretch ends.
    pub(crate) fn end(&self) -> u64 {
        self.stretches.last().map_or(0, |stretch| stretch.end)
    }

    /// Whether the whole part of the log is listed.
    pub(crate) fn covers(&self, part: &Range<u64>) -> bool {
        let mut stretches = self.stretches.iter();
        stretches.any(|stretch| stretch.start <= part.start && part.end <= stretch.end)
    }

    /// A turn begins at `position`: listed turns that should have come before it are lost, and so is one that should be here
    /// but is another run's.
    pub(crate) fn begins(&mut self, position: u64, frame: &Frame<'_>, lost: &mut Vec<Listed>) {
        lost.extend(self.turn.take());
        while let Some(turn) = self.expected.pop_front_if(|turn| turn.position <= position) {
            if turn.position == position && turn.run == frame.run {
                self.turn = Some(turn);
            } else {
                lost.push(turn);
            }
        }
    }

    /// The listed turn whose records are being read.
    pub(crate) fn turn(&self) -> Option<&Listed> {
        self.turn.as_ref()
    }

    /// A turn ends with this frame: if it differs from the list, it is lost.
    pub(crate) fn ends(&mut self, frame: &Frame<'_>, lost: &mut Vec<Listed>) {
        let last = u32::try_from(frame.sequence.get()).expect("a frame holds 32 bits of sequence");
        let closes = frame.has(v1::CLOSES);
        let is_as_listed = |turn: &Listed| (turn.run, turn.last, turn.closes) == (frame.run, last, closes);
        lost.extend(self.turn.take().filter(|turn| !is_as_listed(turn)));
    }

    /// The log has ended: listed turns that were not reached are lost.
    pub(crate) fn finish(&mut self, lost: &mut Vec<Listed>) {
        lost.extend(self.turn.take());
        lost.extend(self.expected.drain(..));
    }
}
