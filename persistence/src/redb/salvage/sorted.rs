//! The results of a scan, by run: which run each damaged record belongs to, and what of the log is missing.
//!
//! ```text
//!   found ──► gaps of the log, and the pieces that fill them
//!        ├──► damaged records ──► the run that their row, their header or their back-pointer names
//!        └──► stretches by run ──► histories
//! ```
//!
//! Invariants: a damaged record belongs to one run or to none; a record without a run is identified by its place.

use millrun_core::RunId;

use super::hints::Hints;
use super::report::{NAMED_MAX, SalvageReport, WithoutOwner};
use super::runs::{self, History, KnownOfRun, Whole};
use super::scan::{self, FoundTurn, Rank, ScanShare, ScanStretch};
use super::source::{Bytes, Window};
use crate::wire::v1;

/// Lists something in a report, or only counts it if enough are listed.
pub(super) fn note<T>(named: &mut Vec<T>, more: &mut u64, item: T) {
    if named.len() < NAMED_MAX {
        named.push(item);
    } else {
        *more += 1;
    }
}

/// The stretches of one run among all.
#[derive(Clone, Copy, Debug)]
pub(super) struct SortedGroup {
    pub(super) begin: usize,
    pub(super) len: u32,
}

impl SortedGroup {
    pub(super) fn run(&self, sorted: &Sorted) -> RunId {
        sorted.found.stretches[self.begin].run
    }
}

/// What was found, by run.
pub(super) struct Sorted {
    pub(super) share: ScanShare,
    pub(super) found: FoundTurn,
    /// Damaged records of current rows, by their run.
    damaged: Vec<(RunId, u32)>,
    /// Live runs whose last turn is before this position of the log may have had more.
    shorter_before: u64,
}

impl Sorted {
    pub(super) fn of<B: Bytes + ?Sized>(
        bytes: &B,
        hints: &Hints,
        (share, mut found): (ScanShare, FoundTurn),
        report: &mut SalvageReport,
    ) -> Self {
        let shorter_before = gaps(hints, &mut found, report);
        let owners = owners(bytes, &found);
        let damaged = std::mem::take(&mut found.damaged);
        found
            .stretches
            .sort_unstable_by_key(|stretch| (stretch.run, stretch.first, stretch.last, stretch.at));
        report.records_left += found.frames;
        let mut sorted = Self {
            share,
            found,
            damaged: Vec::with_capacity(damaged.len()),
            shorter_before,
        };
        for (damaged, owner) in damaged.into_iter().zip(owners) {
            let named = damaged.named.filter(|run| sorted.has_current(*run));
            match damaged.of.or(named).or(owner) {
                Some(run) => {
                    let sequence = sorted.sequence(run, damaged.sequence);
                    sorted.damaged.push((run, sequence));
                }
                // The runs that lost records there are known by name.
                None if damaged
                    .position
                    .is_some_and(|position| hints.second.has_all_below(position + 1)) => {}
                None => {
                    let lost = WithoutOwner {
                        at: damaged.at,
                        named: damaged.named,
                        cause: damaged.cause.to_string(),
                    };
                    note(&mut report.without_owner, &mut report.without_owner_more, lost);
                }
            }
        }
        sorted.damaged.sort_unstable();
        sorted
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = SortedGroup> {
        let mut begin = 0;
        self.found
            .stretches
            .chunk_by(|one, other| one.run == other.run)
            .map(move |chunk| {
                let group = SortedGroup {
                    begin,
                    len: u32::try_from(chunk.len()).unwrap_or(u32::MAX),
                };
                begin += chunk.len();
                group
            })
    }

    pub(super) fn stretches(&self, group: &SortedGroup) -> &[ScanStretch] {
        &self.found.stretches[group.begin..][..group.len as usize]
    }

    pub(super) fn of_run(&self, run: RunId) -> &[ScanStretch] {
        let stretches = &self.found.stretches;
        let begin = stretches.partition_point(|stretch| stretch.run < run);
        let len = stretches[begin..].partition_point(|stretch| stretch.run == run);
        &stretches[begin..begin + len]
    }

    fn has_current(&self, run: RunId) -> bool {
        self.of_run(run).iter().any(|stretch| stretch.rank > Rank::Stale)
    }

    /// The sequence of a damaged record, according to its header; zero if a current record has that one.
    fn sequence(&self, run: RunId, sequence: u32) -> u32 {
        let is_another = self.of_run(run).iter().any(|stretch| {
            stretch.rank == Rank::Current && (stretch.first..=stretch.last).contains(&sequence)
        });
        if is_another { 0 } else { sequence }
    }

    pub(super) fn history<B: Bytes + ?Sized>(
        &self,
        bytes: &B,
        hints: &Hints,
        group: &SortedGroup,
    ) -> History {
        let run = group.run(self);
        let begin = self.damaged.partition_point(|(of, _)| *of < run);
        let len = self.damaged[begin..].partition_point(|(of, _)| *of == run);
        let damaged: Vec<_> = self.damaged[begin..begin + len]
            .iter()
            .map(|(_, sequence)| *sequence)
            .collect();
        let has_all_kept = !hints.kept.may_hold(run.bits()) && !hints.more.may_hold(run.bits());
        let known = KnownOfRun {
            damaged: &damaged,
            listed: hints.second.last(run),
            low: hints.low.filter(|_| has_all_kept),
        };
        runs::history(bytes, &self.found, self.stretches(group), known)
    }

    /// Notes a live run that may have had more turns.
    pub(super) fn look_for_gaps(&self, whole: &Whole, report: &mut SalvageReport) {
        let Some(last) = whole.parts.last() else { return };
        let position = self
            .found
            .position(last.stretch.piece, last.stretch.at)
            .unwrap_or(0);
        if position >= self.shorter_before {
            return;
        }
        note(
            &mut report.maybe_shorter,
            &mut report.maybe_shorter_more,
            last.stretch.run,
        );
    }
}

/// Finds the missing parts of the log, and the places of pieces that fill them. Returns where the last one begins.
fn gaps(hints: &Hints, found: &mut FoundTurn, report: &mut SalvageReport) -> u64 {
    let is_of_log = |piece: &&scan::ScannedPiece| piece.rank > Rank::Stale && piece.position != scan::NOWHERE;
    let mut pieces: Vec<_> = found
        .pieces
        .iter()
        .filter(is_of_log)
        .map(scan::ScannedPiece::span)
        .collect();
    pieces.sort_unstable();
    let greatest = pieces.last().map_or(0, |(from, _)| *from);
    let mut end = hints
        .low
        .unwrap_or_else(|| pieces.first().map_or(0, |(from, _)| *from));
    for (from, to) in pieces {
        if from > end {
            // A row whose key was lost belongs where exactly its length is missing.
            let fills = |piece: &&mut scan::ScannedPiece| {
                piece.rank == Rank::Current
                    && piece.position == scan::NOWHERE
                    && !piece.is_kept
                    && u64::from(piece.bytes) == from - end
            };
            match found.pieces.iter_mut().find(fills) {
                Some(piece) => piece.position = end,
                None => report.gaps.push((end, Some(from))),
            }
        }
        end = end.max(to);
    }
    let has_unplaced = found
        .pieces
        .iter()
        .any(|piece| piece.rank == Rank::Current && piece.position == scan::NOWHERE && !piece.is_kept);
    if hints.log.is_end_missing(greatest.into()) && !has_unplaced {
        report.gaps.push((end, None));
    }
    let starts: Vec<_> = found.pieces.iter().map(|piece| piece.at).collect();
    report.lost_pages = hints.count_lost(|from, to| {
        let behind = starts.partition_point(|at| *at < from);
        starts.get(behind).is_some_and(|at| *at < to)
    });
    let mut unlisted = report.gaps.iter().filter(|(_, to)| {
        let is_listed = to.is_some_and(|to| hints.second.has_all_below(to));
        !is_listed
    });
    unlisted.next_back().map_or(0, |(from, _)| *from)
}

/// The runs of the damaged records, as far as their back-pointers tell.
fn owners<B: Bytes + ?Sized>(bytes: &B, found: &FoundTurn) -> Vec<Option<RunId>> {
    if found.damaged.is_empty() {
        return Vec::new();
    }
    let of_log = found.pieces.iter().filter(|piece| piece.rank > Rank::Stale);
    let mut of_log: Vec<_> = of_log.filter(|piece| piece.position != scan::NOWHERE).collect();
    of_log.sort_unstable_by_key(|piece| piece.position);
    let run_at = |position: u64| {
        let behind = of_log.partition_point(|piece| piece.position <= position);
        let piece = of_log.get(behind.checked_sub(1)?)?;
        let at = piece.at.checked_add(position - piece.position)?;
        let mut window = Window::of(bytes, v1::HEADER_BYTES);
        let len = v1::len(
            window
                .get(at, v1::HEADER_BYTES)
                .first_chunk::<{ v1::HEADER_BYTES }>()?,
        );
        let is_within = at + (len as u64) <= piece.at + u64::from(piece.bytes);
        let frame = is_within.then(|| v1::read(window.get(at, len)).ok().map(|frame| frame.run));
        frame.flatten()
    };
    let owner = |damaged: &scan::DamagedRange| (damaged.back != v1::NO_BACK).then(|| run_at(damaged.back));
    found
        .damaged
        .iter()
        .map(|damaged| owner(damaged).flatten())
        .collect()
}
