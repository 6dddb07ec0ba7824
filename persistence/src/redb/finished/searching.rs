//! Searches among the finished runs of a store, see [`search`](crate::search).
//!
//! ```text
//!   waiting in memory ──► settled: outlines ──► rows of the blocks that may have something
//!     (under the lock, some at a time)            (a moment of the store)
//! ```
//!
//! Runs that are known to be damaged may be in the index or not, so they are counted where a search begins, and skipped
//! without a count where it meets them.
//!
//! Invariant: the lock is held for a bounded number of runs or outlines at a time, and never during disk access.

use millrun_core::RunId;

use super::finished_runs;
use super::outline::BLOCK_LEN;
use crate::error::ReadError;
use crate::finished::{Finished, Place};
use crate::redb::RedbJournal;
use crate::redb::database::moment::StoreMoment;
use crate::redb::records::log;
use crate::search::{EXAMINED_MAX, FinishedFound, FinishedHead, FinishedSearch};

/// How many of the runs in memory are examined each time the lock is taken.
const WAITING_STEP: usize = 2_048;
/// How many outlines are examined each time the lock is taken.
const OUTLINES_STEP: usize = 16_384;
/// A run whose last record has to be read from the disk counts as this many examined runs.
const READ_COST: usize = 64;

/// A search under way.
struct Searching<'a> {
    search: &'a FinishedSearch,
    len_max: usize,
    found: FinishedFound,
    /// The run that was examined last.
    last: Option<RunId>,
    examined: usize,
}

impl Searching<'_> {
    /// Whether the search must stop before the next run; it will continue after the last examined one.
    fn stops(&mut self) -> bool {
        let stops = self.found.runs.len() >= self.len_max || self.examined >= EXAMINED_MAX;
        if stops {
            self.found.next = self.last.or(self.search.before);
        }
        stops
    }

    /// Examines a run. Returns whether it matches, as far as is known without reading its last record.
    fn examine(&mut self, finished: &Finished<Place>) -> bool {
        self.last = Some(finished.run);
        self.examined += 1;
        let is_of_kind = finished
            .kind
            .is_none_or(|kind| self.search.kinds.contains(kind.get()));
        is_of_kind && self.search.matches(finished.run, finished.closed_at)
    }

    /// Adds a run to what was found if its last record has one of the kinds; the record is read if the kind is not in memory.
    fn take(&mut self, finished: &Finished<Place>, moment: &StoreMoment) -> Result<(), ReadError> {
        let kind = match finished.kind {
            Some(kind) => Ok(kind.get()),
            None => {
                self.examined += READ_COST;
                log::last_kind(moment, finished.run, &finished.place)
            }
        };
        match kind {
            Ok(kind) if self.search.kinds.contains(kind) => {
                let (run, closed_at, head) = (finished.run, finished.closed_at, finished.head);
                self.found
                    .runs
                    .push(FinishedHead::new(run, closed_at, head, kind));
            }
            Ok(_) => {}
            Err(error @ ReadError::Failed(_)) => return Err(error),
            Err(_) => self.found.unreadable.push(self.found.runs.len()),
        }
        Ok(())
    }
}

impl RedbJournal {
    /// See [`Reads::find_finished`](crate::Reads::find_finished).
    pub(in crate::redb) fn search_finished(
        &self,
        search: &FinishedSearch,
        len_max: usize,
    ) -> Result<FinishedFound, ReadError> {
        let mut searching = Searching {
            search,
            len_max,
            found: FinishedFound::default(),
            last: None,
            examined: 0,
        };
        if search.before.is_none() {
            let state = self.shared.lock();
            let damaged = state.damaged.runs.keys();
            let began_then = damaged.filter(|run| search.started.contains(run.started()));
            searching.found.unreadable = vec![0; began_then.count()];
        }
        let Some(mut before) = self.number_before(search.before)? else {
            return Ok(searching.found);
        };
        if self.search_waiting(&mut searching, &mut before)? {
            self.search_settled(&mut searching, before)?;
        }
        Ok(searching.found)
    }

    /// The number of the run that the search begins before; `None` if that run is not retained. Then no earlier one is:
    /// retention drops runs in the order of their numbers.
    fn number_before(&self, before: Option<RunId>) -> Result<Option<u64>, ReadError> {
        let Some(run) = before else {
            return Ok(Some(u64::MAX));
        };
        let ((waiting, lookup), moment) = self.moment(|state| {
            let closed = &state.finished;
            (closed.waiting.number(run), closed.lookup())
        })?;
        if waiting.is_some() {
            return Ok(waiting);
        }
        let settled = lookup.run(&moment, run)?;
        let retained = settled.filter(|found| !found.is_expired);
        Ok(retained.map(|found| found.number))
    }

    /// Searches among the runs that wait in memory. Returns whether the search continues among the settled runs.
    fn search_waiting(&self, searching: &mut Searching<'_>, before: &mut u64) -> Result<bool, ReadError> {
        loop {
            let (mut stops, mut is_end) = (false, true);
            // Both are taken together, so that the records are where the index says.
            let (matching, moment) = self.moment(|state| {
                let mut matching = Vec::new();
                for (step, (number, finished)) in state.finished.waiting.back_from(*before).enumerate() {
                    // The matching runs of this step count as found.
                    stops = matching.len() + searching.found.runs.len() >= searching.len_max;
                    if stops || step == WAITING_STEP {
                        is_end = false;
                        break;
                    }
                    *before = number;
                    if searching.examine(finished) && !state.damaged.runs.contains_key(&finished.run) {
                        matching.push(*finished);
                    }
                }
                matching
            })?;
            for finished in &matching {
                searching.take(finished, &moment)?;
            }
            if is_end {
                return Ok(true);
            }
            if searching.stops() {
                return Ok(false);
            }
        }
    }

    /// Searches among the settled runs before a number.
    fn search_settled(&self, searching: &mut Searching<'_>, before: u64) -> Result<(), ReadError> {
        let ((first, end, damaged), moment) = self.moment(|state| {
            let damaged: Vec<_> = state.damaged.runs.keys().copied().collect();
            (state.finished.first(), state.finished.settled.end, damaged)
        })?;
        let mut before = before.min(end);
        let blocks_max = EXAMINED_MAX / usize::try_from(BLOCK_LEN).unwrap_or(usize::MAX);
        loop {
            let (blocks, next) = {
                let state = self.shared.lock();
                let outlines = &state.finished.outlines;
                outlines.back_from(before, searching.search, (OUTLINES_STEP, blocks_max))
            };
            for block in blocks {
                let from = block.max(first);
                let to = (block + BLOCK_LEN).min(before).max(from);
                let mut runs = Vec::new();
                finished_runs::each(&moment, (from, to), &mut |_, finished| {
                    runs.push(finished);
                    true
                })?;
                for finished in runs.iter().rev() {
                    if searching.stops() {
                        return Ok(());
                    }
                    if searching.examine(finished) && !damaged.contains(&finished.run) {
                        searching.take(finished, &moment)?;
                    }
                }
            }
            match next {
                Some(next) if next > first => before = next.min(before),
                Some(_) | None => return Ok(()),
            }
        }
    }
}
