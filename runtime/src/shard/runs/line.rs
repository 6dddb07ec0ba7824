//! A queue of runs' operations that wait for something: twelve bytes each, since a million may wait.
//!
//! ```text
//!   line:  [ 17·tag·op │ 4·tag·op │ … ]        slots: [ … │ 17: run, asleep │ … ]
//!             └──────────── the run in that slot, if the tag still matches        ─┘
//! ```
//!
//! An operation that gives up is not removed from the middle of a line: a run that has ended leaves its slot to another run,
//! and the tag, a part of the run's id, tells the two apart.

use std::collections::VecDeque;

use millrun_core::RunId;
use millrun_workflow::OperationId;

/// The slot of a run in its shard's roster, with 32 bits of the run's id that tell whether the slot still holds that run. One
/// later run in four billion is mistaken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) struct Spot {
    pub(in crate::shard) slot: u32,
    tag: u32,
}

impl Spot {
    pub(in crate::shard) fn new(slot: u32, run: RunId) -> Self {
        Self {
            slot,
            tag: Self::tag_of(run),
        }
    }

    /// Whether this may be the spot of `run`, which is in the slot now.
    pub(in crate::shard) fn is_of(self, run: RunId) -> bool {
        self.tag == Self::tag_of(run)
    }

    /// The lower half of a run's id is random.
    fn tag_of(run: RunId) -> u32 {
        u32::try_from(run.bits() & u128::from(u32::MAX)).expect("masked to 32 bits")
    }
}

/// Operations of runs, in the order of their arrival.
#[derive(Debug, Default)]
pub(in crate::shard) struct Line(VecDeque<(Spot, OperationId)>);

impl Line {
    pub(in crate::shard) fn push(&mut self, spot: Spot, operation: OperationId) {
        self.0.push_back((spot, operation));
    }

    pub(in crate::shard) fn pop(&mut self) -> Option<(Spot, OperationId)> {
        let first = self.0.pop_front();
        if self.0.len() < self.0.capacity() / 4 {
            // After a million entries, most of the memory is given back.
            self.0.shrink_to(self.0.len() * 2);
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, Timestamp};

    use super::*;

    #[test]
    fn a_million_in_line_take_twelve_bytes_each_and_leave_none_behind() {
        assert_eq!(size_of::<(Spot, OperationId)>(), 12);
        let run = RunId::new(Partition::of(b"p"), Timestamp::EPOCH, 7);
        let mut line = Line::default();
        for slot in 0..1_000_000 {
            line.push(Spot::new(slot, run), OperationId::new(slot));
        }
        assert!(line.0.capacity() <= 1 << 20);
        for slot in 0..1_000_000 {
            assert_eq!(line.pop(), Some((Spot::new(slot, run), OperationId::new(slot))));
        }
        assert_eq!(line.pop(), None);
        assert!(line.0.capacity() <= 8);
    }
}
