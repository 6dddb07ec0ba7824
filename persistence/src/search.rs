//! Searches among the finished runs, the latest closed first.
//!
//! ```text
//!   earliest closed ···································· latest closed
//!                     ◄── next ──┤ examined ├◄── before
//! ```
//!
//! A journal compares what it has in memory of each run: its times, and the kind of its last record. The contents of records
//! only matter to the run's owner.

use millrun_core::{RunId, Sequence, Timestamp};

use crate::error::ReadError;
use crate::journal::Reads;

/// About how many runs one call examines at most, without those that are skipped by their outlines: 65,536.
pub(crate) const EXAMINED_MAX: usize = 1 << 16;

/// The conditions of a search for finished runs. The default finds all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishedSearch {
    /// Only runs that closed before this one, which is retained or was when it was found; `None` for all runs.
    pub before: Option<RunId>,
    /// The kinds that the last record may have.
    pub kinds: RecordKinds,
    /// When the run closed.
    pub closed: TimeRange,
    /// When the run began, as its [id](RunId::started) says, in whole milliseconds.
    pub started: TimeRange,
}

impl FinishedSearch {
    /// All finished runs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the times of a run match; the kind of its last record is not compared.
    pub(crate) fn matches(&self, run: RunId, closed_at: Timestamp) -> bool {
        self.closed.contains(closed_at) && self.started.contains(run.started())
    }
}

/// Times from `from` on, and before `until`. The default is any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first time in the range.
    pub from: Timestamp,
    /// The first time after the range.
    pub until: Timestamp,
}

impl Default for TimeRange {
    fn default() -> Self {
        Self {
            from: Timestamp::EPOCH,
            until: Timestamp::MAX,
        }
    }
}

impl TimeRange {
    /// Whether a time is in it.
    #[must_use]
    pub fn contains(&self, time: Timestamp) -> bool {
        self.from <= time && time < self.until
    }
}

/// A set of [kinds](crate::Record::kind) of records. The default has all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordKinds([u64; 4]);

impl Default for RecordKinds {
    fn default() -> Self {
        Self::all()
    }
}

impl RecordKinds {
    /// Every kind.
    #[must_use]
    pub const fn all() -> Self {
        Self([u64::MAX; 4])
    }

    /// Whether a kind is in the set.
    #[must_use]
    pub const fn contains(&self, kind: u8) -> bool {
        self.0[(kind / 64) as usize] >> (kind % 64) & 1 == 1
    }

    /// The kinds in the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|kind| self.contains(*kind))
    }
}

impl FromIterator<u8> for RecordKinds {
    fn from_iter<T: IntoIterator<Item = u8>>(kinds: T) -> Self {
        let mut set = Self([0; 4]);
        for kind in kinds {
            set.0[usize::from(kind / 64)] |= 1 << (kind % 64);
        }
        set
    }
}

/// The result of a search, and where to continue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishedFound {
    /// The latest closed first.
    pub runs: Vec<FinishedHead>,
    /// The [`before`](FinishedSearch::before) of the next call; `None` if there are no more runs. One call examines a bounded
    /// number of runs, so it may find fewer than were asked for, even none, and still have a next.
    pub next: Option<RunId>,
    /// For each run that was skipped because its records cannot be read, how many of [`runs`](Self::runs) come before it: a
    /// caller that takes only some of them counts those in between, and meets the rest with its next search.
    pub unreadable: Vec<usize>,
}

impl FinishedFound {
    /// How many runs were skipped before the last of the first `len` that were found; if `len` is all of
    /// [`runs`](Self::runs), also those after it.
    #[must_use]
    pub fn unreadable_among(&self, len: usize) -> u64 {
        let is_all = len >= self.runs.len();
        let passed = self.unreadable.iter().filter(|before| is_all || **before < len);
        passed.count() as u64
    }
}

/// A finished run, as known without its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishedHead {
    /// The run.
    pub run: RunId,
    /// As [`FinishedRun::closed_at`](crate::FinishedRun::closed_at).
    pub closed_at: Timestamp,
    /// The sequence number of its last record.
    pub head: Sequence,
    /// The kind of its last record.
    pub kind: u8,
}

impl FinishedHead {
    /// The run that finished at `closed_at` with the record `head` of this kind.
    #[must_use]
    pub fn new(run: RunId, closed_at: Timestamp, head: Sequence, kind: u8) -> Self {
        Self {
            run,
            closed_at,
            head,
            kind,
        }
    }
}

/// How many finished runs are listed at a time.
const LISTED: usize = 4_096;

/// Searches by listing all finished runs and reading the last record of each that may match.
pub(crate) fn by_listing(
    journal: &(impl Reads + ?Sized),
    search: &FinishedSearch,
    len_max: usize,
) -> Result<FinishedFound, ReadError> {
    let (mut known, mut after) = (Vec::new(), None);
    let mut is_before_known = search.before.is_none();
    'all: loop {
        let page = journal.list_finished(after, LISTED)?;
        let Some(last) = page.last() else { break };
        after = Some(last.run);
        for finished in page {
            if search.before == Some(finished.run) {
                is_before_known = true;
                break 'all;
            }
            known.push((finished.run, finished.closed_at, finished.head));
        }
    }
    let mut found = FinishedFound::default();
    if !is_before_known {
        return Ok(found);
    }
    let mut last = search.before;
    for (run, closed_at, head) in known.into_iter().rev() {
        if found.runs.len() == len_max {
            found.next = last;
            break;
        }
        last = Some(run);
        if !search.matches(run, closed_at) {
            continue;
        }
        match last_kind(journal, run, head) {
            Ok(kind) if search.kinds.contains(kind) => {
                found.runs.push(FinishedHead::new(run, closed_at, head, kind));
            }
            Ok(_) => {}
            Err(error @ ReadError::Failed(_)) => return Err(error),
            Err(_) => found.unreadable.push(found.runs.len()),
        }
    }
    Ok(found)
}

fn last_kind(journal: &(impl Reads + ?Sized), run: RunId, head: Sequence) -> Result<u8, ReadError> {
    let before = Sequence::new(head.get().saturating_sub(1));
    let page = journal.history_page(run, before, 0)?;
    let last = page.records.last();
    last.map(|last| last.kind).ok_or(ReadError::UnknownRun { run })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_kinds_it_was_made_of() {
        let kinds = [0, 3, 63, 64, 200, 255];
        let set: RecordKinds = kinds.into_iter().collect();
        assert!(set.iter().eq(kinds));
        assert_eq!(RecordKinds::all().iter().count(), 256);
        assert_eq!(RecordKinds::from_iter([]).iter().count(), 0);
    }

    #[test]
    fn what_is_passed_over_counts_for_the_runs_that_it_lies_between() {
        let id: millrun_core::InstanceId = "a".parse().unwrap();
        let run = |number| RunId::new(id.partition(), Timestamp::EPOCH, number);
        let head = |number| FinishedHead::new(run(number), Timestamp::EPOCH, Sequence::ZERO, 1);
        let found = FinishedFound {
            runs: (1..4).map(head).collect(),
            next: None,
            unreadable: vec![0, 1, 1, 2, 3, 3],
        };
        let counted: Vec<_> = (0..5).map(|len| found.unreadable_among(len)).collect();
        assert_eq!(counted, [0, 1, 3, 6, 6]);
        let none_found = FinishedFound {
            unreadable: vec![0, 0],
            ..FinishedFound::default()
        };
        assert_eq!(none_found.unreadable_among(0), 2);
    }

    #[test]
    fn a_time_range_has_its_first_and_not_its_end() {
        let [a, b, c] = [1, 2, 3].map(Timestamp::from_micros);
        let range = TimeRange { from: a, until: c };
        assert!(range.contains(a) && range.contains(b) && !range.contains(c));
        assert!(!range.contains(Timestamp::EPOCH));
        assert!(TimeRange::default().contains(Timestamp::EPOCH));
    }
}
