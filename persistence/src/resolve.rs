//! What became of an append of which nobody heard the outcome.
//!
//! ```text
//!   batch (run, head, frames) ──► the run's records behind head ──► the same │ none │ others
//! ```
//!
//! Works on any journal: it only reads. The epoch of a turn does not matter here, since it is not
//! stored: a turn is the same if its records are.

use millrun_core::Sequence;

use crate::batch::{Batch, TurnSpan};
use crate::error::ReadError;
use crate::journal::Journal;
use crate::record::Record;
use crate::wire::v1::{self, Frame};

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolved {
    /// It is durable.
    Appended,
    /// It is not there, and its run is as the turn expects it: it may be appended.
    Absent,
    /// It is not there, and its run is not as the turn expects it.
    Conflict {
        /// The run's last durable sequence number.
        head: Sequence,
    },
    /// Its run is not known, or has been dropped: nobody can tell.
    Unknown,
}

pub(crate) fn resolve<J: Journal + ?Sized>(journal: &J, batch: &Batch) -> Result<Vec<Resolved>, ReadError> {
    let batch = batch.sealed();
    batch
        .spans()
        .iter()
        .map(|turn| resolve_turn(journal, turn, batch.frames(turn)))
        .collect()
}

fn resolve_turn<J: Journal + ?Sized>(
    journal: &J,
    turn: &TurnSpan,
    mut frames: &[u8],
) -> Result<Resolved, ReadError> {
    let page = match journal.history_page(turn.run, turn.head, frames.len()) {
        Ok(page) => page,
        Err(ReadError::UnknownRun { .. }) if turn.opens => return Ok(Resolved::Absent),
        Err(ReadError::UnknownRun { .. } | ReadError::Expired { .. }) => return Ok(Resolved::Unknown),
        Err(error) => return Err(error),
    };
    if page.head == turn.head {
        return Ok(Resolved::Absent);
    }
    let mut records = page.records.iter();
    while let Ok(frame) = v1::read(frames) {
        if !records.next().is_some_and(|record| is_same(record, &frame)) {
            return Ok(Resolved::Conflict { head: page.head });
        }
        frames = &frames[frame.len..];
    }
    Ok(Resolved::Appended)
}

fn is_same(record: &Record, frame: &Frame<'_>) -> bool {
    record.sequence == frame.sequence
        && record.kind == frame.kind
        && record.time == frame.time
        && record.closes == frame.has(v1::CLOSES)
        && record.body == frame.body
}
