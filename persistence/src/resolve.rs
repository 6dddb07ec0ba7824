//! Finds out what happened to an append whose outcome is not known.
//!
//! ```text
//!   batch (run, head, frames) ──► the run's records behind head ──► the same │ none │ others
//! ```
//!
//! It works on any journal, since it only reads. The epoch of a turn does not matter, since it is not stored: a turn is the
//! same if its records are.

use millrun_core::Sequence;

use crate::batch::{Batch, TurnView};
use crate::error::ReadError;
use crate::journal::Reads;

/// What happened to a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolved {
    /// It is durable.
    Appended,
    /// It is not there, and its run is in the state that the turn expects: it may be appended.
    Absent,
    /// It is not there, and its run is in another state than the turn expects.
    Conflict {
        /// The run's last durable sequence number.
        head: Sequence,
    },
    /// Its run is not known, or was dropped, or was [trimmed](crate::TurnWriter::trim) after the turn: the answer is lost.
    Unknown,
}

pub(crate) fn resolve<J: Reads + ?Sized>(journal: &J, batch: &Batch) -> Result<Vec<Resolved>, ReadError> {
    let mut answers = Vec::with_capacity(batch.turns());
    for group in batch.groups() {
        let from = answers.len();
        for (_, turn) in group.turns() {
            answers.push(resolve_turn(journal, turn)?);
        }
        let answers = &mut answers[from..];
        if !answers.contains(&Resolved::Appended) {
            continue;
        }
        for (answer, (_, turn)) in answers.iter_mut().zip(group.turns()) {
            // The commit happened after this turn was looked for, and before another one of the group was.
            if *answer == Resolved::Absent {
                *answer = resolve_turn(journal, turn)?;
            }
            if *answer == Resolved::Unknown {
                *answer = Resolved::Appended;
            }
        }
    }
    Ok(answers)
}

fn resolve_turn<J: Reads + ?Sized>(journal: &J, turn: TurnView<'_>) -> Result<Resolved, ReadError> {
    let page = match journal.history_page(turn.run(), turn.head(), turn.bytes()) {
        Ok(page) => page,
        Err(ReadError::UnknownRun { .. }) if turn.opens().is_some() => return Ok(Resolved::Absent),
        Err(ReadError::UnknownRun { .. } | ReadError::Expired { .. }) => return Ok(Resolved::Unknown),
        Err(error) => return Err(error),
    };
    if page.head == turn.head() {
        return Ok(Resolved::Absent);
    }
    let expected = turn.head().next();
    if page.trimmed.is_some_and(|trimmed| trimmed.before > expected) {
        return Ok(Resolved::Unknown);
    }
    let mut records = page.records.iter();
    let is_there = turn
        .records()
        .all(|record| records.next().is_some_and(|found| found.is_same_as(&record)));
    Ok(if is_there {
        Resolved::Appended
    } else {
        Resolved::Conflict { head: page.head }
    })
}
