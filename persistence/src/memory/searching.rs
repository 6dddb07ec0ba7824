//! Searches among the finished runs in memory, see [`search`](crate::search).

use crate::error::ReadError;
use crate::search::{EXAMINED_MAX, FinishedFound, FinishedHead, FinishedSearch};

use super::MemoryJournal;

/// How many runs are examined before the lock is released.
const STEP: usize = 2_048;

impl MemoryJournal {
    /// See [`Reads::find_finished`](crate::Reads::find_finished).
    pub(super) fn search_finished(
        &self,
        search: &FinishedSearch,
        len_max: usize,
    ) -> Result<FinishedFound, ReadError> {
        let mut found = FinishedFound::default();
        let mut before = u64::MAX;
        if let Some(run) = search.before {
            let state = self.lock_indexed(|_| false);
            state.readable()?;
            match state.finished.number(run) {
                Some(number) => before = number,
                None => return Ok(found),
            }
        }
        let mut last = search.before;
        for _ in 0..EXAMINED_MAX / STEP {
            let state = self.lock();
            state.readable()?;
            let mut step = 0;
            for (number, close) in state.finished.back_from(before).take(STEP) {
                if found.runs.len() == len_max {
                    found.next = last;
                    return Ok(found);
                }
                step += 1;
                (before, last) = (number, Some(close.run));
                if search.kinds.contains(close.kind) && search.matches(close.run, close.closed_at) {
                    let head = FinishedHead::new(close.run, close.closed_at, close.head, close.kind);
                    found.runs.push(head);
                }
            }
            if step < STEP {
                return Ok(found);
            }
        }
        found.next = last;
        Ok(found)
    }
}
