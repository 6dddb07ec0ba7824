//! The retained finished runs: those that wait in memory, and those that are settled on disk.
//!
//! ```text
//!   number:  forgotten        first             settled.end            end
//!            ├─ remembered ───┼─ settled ───────┼─ waiting in memory ──┤
//!            │ by name only   │ rows + filters  │ FinishedIndex        │
//!            └────────────────┴─────────────────┴──────────────────────┘
//!                      retention ──►    settling ──►          closing ──►
//! ```
//!
//! Invariants: numbers from `first` on have no gaps; settled runs closed before all others; everything settled could be
//! rebuilt from the log, until it is dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use millrun_core::{RunId, Timestamp};

use super::age::AgeClock;
use super::filter::Sought;
use super::outline::Outlines;
use super::segment::{By, Segment, damaged};
use crate::config::Retention;
use crate::error::{JournalFailure, ReadError};
use crate::finished::{Expired, Finished, FinishedIndex, IdHash, Place};
use crate::redb::database::moment::StoreMoment;
use crate::wire::settled;

/// How many of the earliest runs are kept in memory, so that retention seldom waits for the disk.
const AHEAD_LEN: usize = 256;

/// The sorted runs, the earliest first.
pub(crate) type Segments = Arc<Vec<Arc<Segment>>>;

#[derive(Debug)]
pub(crate) struct FinishedRuns {
    retention: Retention,
    /// The clock that their ages are measured by.
    pub(crate) age: AgeClock,
    /// The runs that are not settled yet.
    pub(crate) waiting: FinishedIndex<Place>,
    pub(crate) settled: Settled,
    /// The outlines of the settled runs.
    pub(crate) outlines: Outlines,
    expired: Expired,
    /// The number of the earliest retained run.
    first: u64,
    /// The first settled runs with their numbers, as far as they have been read.
    earliest: VecDeque<(u64, Finished<Place>)>,
    /// The settled rows cannot be read, so no run is dropped.
    is_blocked: bool,
    dropped: u64,
    /// Runs below this number are archived; `None` if there is no archive.
    archived: Option<u64>,
    /// Whether runs would have been dropped if they were archived.
    pub(crate) is_archive_wanted: bool,
}

/// What is on disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    pub(crate) segments: Segments,
    /// Runs whose closing turn begins before this log position are settled, or were dropped.
    pub(crate) position: u64,
    /// One more than the number of the last settled run.
    pub(crate) end: u64,
    /// Size of the records of the retained ones.
    pub(crate) bytes: u64,
}

/// What [`FinishedRuns::trim`] needs to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrimStep {
    Done,
    /// The settled runs from this number on, see [`FinishedRuns::load`].
    Load(u64),
}

impl FinishedRuns {
    /// `first` is the number of the earliest retained run.
    pub(crate) fn new(retention: Retention, settled: Settled, first: u64) -> Self {
        Self {
            retention,
            age: AgeClock::reading(retention.age_step_max, None),
            waiting: FinishedIndex::new(settled.end),
            settled,
            outlines: Outlines::default(),
            expired: Expired::new(retention.expired_len_max),
            first,
            earliest: VecDeque::new(),
            is_blocked: false,
            dropped: 0,
            archived: None,
            is_archive_wanted: false,
        }
    }

    /// From now on no run is dropped before it is archived; runs below the number `archived` are.
    pub(crate) fn archive(&mut self, archived: u64) {
        self.archived = Some(archived.max(self.first));
        self.is_archive_wanted = false;
    }

    /// Runs below this number are archived, or were dropped.
    pub(crate) fn archived(&self) -> u64 {
        self.archived.unwrap_or(self.first)
    }

    /// Removes the earliest runs until all bounds hold at `now`; `dropped` gets each.
    pub(crate) fn trim(&mut self, now: Timestamp, mut dropped: impl FnMut(&Finished<Place>)) -> TrimStep {
        loop {
            let (len, bytes) = (self.len(), self.bytes());
            let is_settled = self.first < self.settled.end;
            let earliest = if is_settled {
                if self.is_blocked {
                    return TrimStep::Done;
                }
                if self.earliest.is_empty() {
                    return TrimStep::Load(self.first);
                }
                self.earliest.front().map(|(_, finished)| finished)
            } else {
                self.waiting.earliest()
            };
            let Some(earliest) = earliest.copied() else {
                return TrimStep::Done;
            };
            if self.retention.retains(now, earliest.closed_at, len, bytes) {
                return TrimStep::Done;
            }
            if self.archived.is_some_and(|archived| self.first >= archived) {
                self.is_archive_wanted = true;
                return TrimStep::Done;
            }
            if is_settled {
                self.earliest.pop_front();
                self.settled.bytes = self.settled.bytes.saturating_sub(earliest.bytes);
                // Its row has its name for as long as it is remembered.
                self.expired.supersede(earliest.id);
            } else {
                self.waiting.drop_earliest();
                self.expired.add(earliest.run, earliest.id);
            }
            self.first += 1;
            self.dropped += 1;
            dropped(&earliest);
        }
    }

    /// Whether nothing is dropped because settled rows cannot be read.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Adds the row that [`TrimStep::Load`] asked for. If it could not be read, no run is dropped any more.
    pub(crate) fn load(&mut self, row: Result<Vec<(u64, Finished<Place>)>, ReadError>) {
        let first = self.first;
        if let Err(error) = &row {
            tracing::error!(
                number = first,
                %error,
                "finished runs are kept beyond their retention: where they stand cannot be read"
            );
        }
        let next = first + self.earliest.len() as u64;
        let runs = row.unwrap_or_default().into_iter();
        self.earliest
            .extend(runs.skip_while(|(number, _)| *number < next));
        self.is_blocked = self.earliest.front().is_none_or(|(number, _)| *number != first);
    }

    /// Below this position of the log, all closing turns are of dropped runs; above, of retained runs. `None` if that is not
    /// known.
    pub(crate) fn dropped_below(&self) -> Option<u64> {
        if self.first < self.settled.end {
            self.earliest.front().map(|(_, finished)| finished.place.last)
        } else {
            let earliest = self.waiting.earliest();
            Some(earliest.map_or(u64::MAX, |finished| finished.place.last))
        }
    }

    /// Notes that the waiting runs below the number `end` are settled.
    pub(crate) fn settle(&mut self, settled: Settled) {
        let bytes = self.settled.bytes;
        self.settled = Settled { bytes, ..settled };
        self.outlines.drop_before(self.first);
        for (number, finished) in self.waiting.numbered() {
            if number >= self.settled.end {
                break;
            }
            self.outlines.add(number, finished);
        }
        self.settled.bytes += self.waiting.drop_before(self.settled.end);
    }

    /// The number of the run whose row must be [loaded](Self::load) before anything is known of the earliest run.
    pub(crate) fn wanted(&self) -> Option<u64> {
        self.next_to_load(1)
    }

    /// The number of the run whose row should be loaded before retention comes to it.
    pub(crate) fn wanted_ahead(&self) -> Option<u64> {
        self.next_to_load(AHEAD_LEN)
    }

    /// The number of the first settled run that has not been read, if fewer than `len` have been.
    fn next_to_load(&self, len: usize) -> Option<u64> {
        let next = self.first + self.earliest.len() as u64;
        let is_wanted = !self.is_blocked && self.earliest.len() < len && next < self.settled.end;
        is_wanted.then_some(next)
    }

    /// Size of the records of the retained runs below the number `end`.
    pub(crate) fn bytes_below(&self, end: u64) -> u64 {
        let waiting = usize::try_from(end.saturating_sub(self.waiting.first())).unwrap_or(usize::MAX);
        let newly: u64 = self
            .waiting
            .list(0)
            .take(waiting)
            .map(|finished| finished.bytes)
            .sum();
        self.settled.bytes + newly
    }

    /// What is needed to look for a settled run.
    pub(crate) fn lookup(&self) -> Lookup {
        Lookup {
            segments: Arc::clone(&self.settled.segments),
            first: self.first,
        }
    }

    /// Whether the run was dropped recently.
    pub(crate) fn is_expired(&self, run: RunId) -> bool {
        self.expired.has_run(run)
    }

    /// The run of this instance that was dropped last, if recently.
    pub(crate) fn expired(&self, id: IdHash) -> Option<RunId> {
        self.expired.latest(id)
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Numbers below this one are not remembered.
    pub(crate) fn forgotten(&self) -> u64 {
        self.first.saturating_sub(self.retention.expired_len_max as u64)
    }

    /// The number of the next run that closes.
    pub(crate) fn end(&self) -> u64 {
        self.waiting.end()
    }

    pub(crate) fn len(&self) -> u64 {
        self.waiting.end() - self.first
    }

    pub(crate) fn len_max(&self) -> usize {
        self.retention.len_max
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.settled.bytes + self.waiting.bytes()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Memory held, estimated from capacities.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let segments: u64 = self
            .settled
            .segments
            .iter()
            .map(|segment| segment.memory_bytes())
            .sum();
        let earliest = self.earliest.capacity() * size_of::<(u64, Finished<Place>)>();
        let outlines = self.outlines.memory_bytes();
        segments + outlines + earliest as u64 + self.waiting.memory_bytes() + self.expired.memory_bytes()
    }
}

/// Looks up settled runs, in a moment of the store that was taken under the same lock.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    segments: Segments,
    /// The number of the earliest that is retained.
    first: u64,
}

/// A settled run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRun {
    pub(crate) number: u64,
    pub(crate) finished: Finished<Place>,
    /// Whether retention has dropped it.
    pub(crate) is_expired: bool,
}

impl Lookup {
    /// Whether a lookup of this run may find it retained; `false` is certain.
    pub(crate) fn may_retain(&self, run: RunId) -> bool {
        let sought = Sought::new(settled::run_hash(run));
        let mut retained = self
            .segments
            .iter()
            .filter(|segment| segment.entry.end > self.first);
        retained.any(|segment| segment.may_contain(&sought, By::Run))
    }

    /// Whether a lookup of runs of this instance may find any; `false` is certain.
    pub(crate) fn may_contain(&self, id: IdHash) -> bool {
        let sought = Sought::new(id.bits());
        let mut segments = self.segments.iter();
        segments.any(|segment| segment.may_contain(&sought, By::Id))
    }

    pub(crate) fn run(&self, moment: &StoreMoment, run: RunId) -> Result<Option<FoundRun>, ReadError> {
        self.latest(moment, settled::run_hash(run), By::Run, &|finished| {
            finished.run == run
        })
    }

    pub(crate) fn id(&self, moment: &StoreMoment, id: IdHash) -> Result<Option<FoundRun>, ReadError> {
        self.latest(moment, id.bits(), By::Id, &|finished| finished.id == id)
    }

    /// The latest run under a hash for which the check holds.
    fn latest(
        &self,
        moment: &StoreMoment,
        hash: u64,
        by: By,
        is_it: &dyn Fn(&Finished<Place>) -> bool,
    ) -> Result<Option<FoundRun>, ReadError> {
        for segment in self.segments.iter().rev() {
            for number in segment.find(moment, hash, by)? {
                let is_expired = number < self.first;
                let entry = row(moment, number).and_then(|row| {
                    let entry = row.into_iter().find(|(other, _)| *other == number);
                    entry.ok_or_else(|| damaged("a run is missing"))
                });
                match entry {
                    Ok((_, finished)) if is_it(&finished) => {
                        return Ok(Some(FoundRun {
                            number,
                            finished,
                            is_expired,
                        }));
                    }
                    Ok(_) => {}
                    // Unreadable rows of dropped runs are ignored.
                    Err(_) if is_expired => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(None)
    }
}

/// The settled runs of the row that has the run with this number, with their numbers.
pub(crate) fn row(moment: &StoreMoment, number: u64) -> Result<Vec<(u64, Finished<Place>)>, ReadError> {
    let Some((key, row)) = moment.closed_row(number)? else {
        return Err(damaged("a row is missing"));
    };
    match settled::read_closed(&row) {
        Ok((first, runs)) if first == key => Ok((first..).zip(runs).collect()),
        Ok(_) => Err(damaged("a row stands in another's place")),
        Err(error) => Err(damaged(&error.to_string())),
    }
}

/// Calls `visit` with each settled run from the number `from` on, below `end`, until it returns `false`.
pub(crate) fn each(
    moment: &StoreMoment,
    (from, end): (u64, u64),
    visit: &mut dyn FnMut(u64, Finished<Place>) -> bool,
) -> Result<(), ReadError> {
    let mut next = from;
    while next < end {
        let runs = row(moment, next)?;
        let before = next;
        for (number, finished) in runs {
            if number < next || number >= end {
                continue;
            }
            if number != next {
                return Err(damaged("a run is missing"));
            }
            if !visit(number, finished) {
                return Ok(());
            }
            next = number + 1;
        }
        if next == before {
            return Err(damaged("a run is missing"));
        }
    }
    Ok(())
}

impl From<ReadError> for JournalFailure {
    /// For a caller that cannot continue.
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Failed(failure) => failure,
            other => Self::new(crate::error::FailureKind::Corrupted, other.to_string()),
        }
    }
}
