//! Builds histories from stretches: chooses a copy of each record, and checks that none is missing.
//!
//! ```text
//!   stretches of a run:   1─────4 current     5──8 unsure
//!                         1──3 stale    4─────7 stale
//!                         └─ next ──►
//!   parts:                1─────4        5──8
//! ```
//!
//! The most certain copy is used. Equally certain copies must be the same; a stale copy only fills a gap in which a record is
//! known to have been.
//!
//! Invariants: a history begins with the run's first record, or the last one that trims it, and has no gap; its last turn is
//! complete; no record that is known to have followed is missing.

use millrun_core::RunId;

use super::scan::{FoundTurn, Rank, ScanStretch};
use super::source::{Bytes, Window};
use crate::wire::v1;

/// Consecutive records of a history that are adjacent in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunPart {
    pub(crate) stretch: ScanStretch,
    /// The records of the stretch that are used.
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// A complete history.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) parts: Vec<RunPart>,
    pub(crate) is_closed: bool,
    /// The size of the data that its parts are read from.
    pub(crate) bytes: u64,
}

/// The result for the stretches of a run.
#[derive(Clone, Debug)]
pub(crate) enum History {
    Whole(Whole),
    /// No current part of the run is left: it was dropped, or never acknowledged.
    Gone,
    /// The end of a run whose beginning was dropped.
    Rest,
    Broken {
        /// How many records come before the first that is missing.
        records: u32,
        cause: String,
    },
}

/// What is known of a run besides its stretches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownOfRun<'a> {
    /// The sequences of damaged records in current rows; zero for one that is not known.
    pub(crate) damaged: &'a [u32],
    /// Its last record, and whether the run ends with it, according to a second source; it may have had more.
    pub(crate) listed: Option<(u32, bool)>,
    /// Where the log begins, if all turns of the run that were moved out of it were found.
    pub(crate) low: Option<u64>,
}

/// Combines the stretches of one run, which are sorted by their first record.
pub(crate) fn history<B: Bytes + ?Sized>(
    bytes: &B,
    found: &FoundTurn,
    stretches: &[ScanStretch],
    known: KnownOfRun<'_>,
) -> History {
    let surest = stretches.iter().map(|stretch| stretch.rank).max();
    let is_listed = known.listed.is_some();
    let Some(surest) = surest.filter(|rank| is_listed || *rank > Rank::Stale) else {
        return History::Gone;
    };
    // Records before the last one that trims the run are dead.
    let begins = stretches.iter().filter(|stretch| stretch.opens);
    let begins = begins.filter(|stretch| stretch.rank > Rank::Stale || surest == Rank::Stale);
    let base = begins.map(|stretch| stretch.first).max().unwrap_or(1);
    let stretches = &stretches[stretches.partition_point(|stretch| stretch.first < base)..];
    // A record that must be there: it is current itself, or a later one is, or its damaged bytes are.
    let kept = stretches.iter().filter(|stretch| stretch.rank > Rank::Stale);
    let needed = kept.map(|stretch| stretch.last).max().unwrap_or(0);
    let damaged = || known.damaged.iter().copied().filter(|at| *at == 0 || *at >= base);
    let needed = damaged().fold(needed, u32::max);
    let needed = needed.max(known.listed.map_or(0, |(last, _)| last));
    let mut choice = Choice {
        stretches,
        needed,
        surest,
        next: base.into(),
        from: 0,
        open: Vec::new(),
    };
    let mut parts: Vec<RunPart> = Vec::new();
    let conflict = loop {
        match choice.best(bytes) {
            Ok(Some(part)) => {
                let is_closed = parts.last().is_some_and(closes);
                let begins = part.from == base && part.from == part.stretch.first;
                if is_closed || begins != part.stretch.opens || !fits(parts.last(), &part) {
                    break Some("the records of its turns do not fit together".to_owned());
                }
                choice.next = u64::from(part.to) + 1;
                parts.push(part);
            }
            Ok(None) => break None,
            Err(sequence) => break Some(format!("there are two records {sequence}, and both are sound")),
        }
    };
    let head = parts.last().map_or(0, |part| part.to);
    if let Some(cause) = conflict {
        return History::Broken { records: head, cause };
    }
    if parts.is_empty() && is_rest(bytes, found, stretches, known) {
        return History::Rest;
    }
    let is_closed = parts.last().is_some_and(closes);
    let is_unknown = !is_closed && damaged().any(|at| at == 0);
    let is_cut = known
        .listed
        .is_some_and(|(last, closes)| closes && !(is_closed && head == last));
    if head < needed || is_unknown || is_cut {
        let missing = head.saturating_add(1);
        let cause = if is_unknown || damaged().any(|at| at == missing) {
            format!("record {missing} is damaged")
        } else {
            format!("record {missing} is missing")
        };
        return History::Broken { records: head, cause };
    }
    let whole = cut_to_turn(&mut parts, known);
    if let Err(cause) = whole {
        return History::Broken { records: head, cause };
    }
    if parts.is_empty() {
        return History::Gone;
    }
    let bytes = parts.iter().map(|part| u64::from(part.stretch.bytes)).sum();
    History::Whole(Whole {
        is_closed,
        bytes,
        parts,
    })
}

struct Choice<'a> {
    stretches: &'a [ScanStretch],
    needed: u32,
    surest: Rank,
    /// The record that is looked for.
    next: u64,
    /// The first stretch that has not been looked at.
    from: usize,
    /// The stretches that were looked at and reach as far as `next`.
    open: Vec<ScanStretch>,
}

impl Choice<'_> {
    /// The most certain stretch that has the next record, up to where a more certain one begins; or the record that has two
    /// different copies.
    fn best<B: Bytes + ?Sized>(&mut self, bytes: &B) -> Result<Option<RunPart>, u32> {
        let Ok(next) = u32::try_from(self.next) else {
            return Ok(None);
        };
        while let Some(stretch) = self.stretches.get(self.from)
            && stretch.first <= next
        {
            self.open.push(*stretch);
            self.from += 1;
        }
        self.open.retain(|stretch| stretch.last >= next);
        let Some(rank) = self.open.iter().map(|stretch| stretch.rank).max() else {
            return Ok(None);
        };
        // A stale copy tells which record was there, not that one was.
        if rank == Rank::Stale && self.surest == Rank::Current && next > self.needed {
            return Ok(None);
        }
        let mut equal = self.open.iter().filter(|stretch| stretch.rank == rank);
        let Some(mut best) = equal.next().copied() else {
            return Ok(None);
        };
        for other in equal {
            let to = best.last.min(other.last);
            if let Some(sequence) = difference(bytes, &best, other, (next, to)) {
                return Err(sequence);
            }
            if other.last > best.last {
                best = *other;
            }
        }
        let ahead = self.stretches[self.from..].iter();
        let surer = ahead
            .take_while(|stretch| stretch.first <= best.last)
            .find(|stretch| stretch.rank > rank);
        let mut to = surer.map_or(best.last, |stretch| stretch.first - 1);
        if rank == Rank::Stale && self.surest == Rank::Current {
            to = to.min(self.needed);
        }
        Ok(Some(RunPart {
            stretch: best,
            from: next,
            to,
        }))
    }
}

/// Whether the run ends with this part.
fn closes(part: &RunPart) -> bool {
    part.stretch.closes && part.to == part.stretch.last
}

/// Whether a part may follow another, as far as that is known without reading it.
fn fits(before: Option<&RunPart>, part: &RunPart) -> bool {
    let is_known =
        part.from == part.stretch.first && before.is_none_or(|before| before.to == before.stretch.last);
    let ends = before.is_none_or(|before| before.stretch.turn_end == before.to);
    !is_known || ends == part.stretch.begins
}

/// Removes the beginning of a turn that was not written completely: it was never acknowledged.
fn cut_to_turn(parts: &mut Vec<RunPart>, known: KnownOfRun<'_>) -> Result<(), String> {
    while let Some(part) = parts.last_mut() {
        let end = part.stretch.turn_end.min(part.to);
        // A stretch that was cut before its end may end with a turn although that is not noted; this is checked when it is
        // read.
        if part.to == end || (part.to < part.stretch.last && end < part.stretch.turn_end) {
            return Ok(());
        }
        if part.stretch.rank == Rank::Current || known.listed.is_some_and(|(last, _)| part.to <= last) {
            return Err("its last turn is cut off".to_owned());
        }
        if end >= part.from {
            part.to = end;
            return Ok(());
        }
        parts.pop();
    }
    Ok(())
}

/// Whether the rest of a run is the end of one whose beginning was dropped: its first turn is known to follow one before the
/// log's beginning.
fn is_rest<B: Bytes + ?Sized>(
    bytes: &B,
    found: &FoundTurn,
    stretches: &[ScanStretch],
    known: KnownOfRun<'_>,
) -> bool {
    let kept = stretches.iter().filter(|stretch| stretch.rank > Rank::Stale);
    let (Some(first), Some(low)) = (kept.min_by_key(|stretch| stretch.first), known.low) else {
        return false;
    };
    let mut window = Window::of(bytes, v1::HEADER_BYTES);
    let back = v1::back(window.get(first.at, v1::HEADER_BYTES));
    let is_in_log = found.position(first.piece, first.at).is_some();
    // Records that do not follow it may continue from a lost record that trimmed the run.
    let mut last = first.last;
    let mut later = stretches.iter().filter(|stretch| stretch.rank > Rank::Stale);
    let has_gap = later.any(|stretch| {
        let is_behind = stretch.first > last.saturating_add(1);
        last = last.max(stretch.last);
        is_behind
    });
    let ends_early = known.listed.is_some_and(|(listed, _)| listed > last);
    if has_gap || ends_early {
        return false;
    }
    known.damaged.is_empty() && is_in_log && first.begins && back.is_some_and(|back| back < low)
}

/// The first record, from one to another, that differs between two stretches.
fn difference<B: Bytes + ?Sized>(
    bytes: &B,
    one: &ScanStretch,
    other: &ScanStretch,
    (from, to): (u32, u32),
) -> Option<u32> {
    let (mut one, mut other) = (SalvagedFrames::of(bytes, one), SalvagedFrames::of(bytes, other));
    for sequence in from..=to {
        let same = one.find(sequence).zip(other.find(sequence));
        let same = same.is_some_and(|((at, len), (place, other_len))| {
            let one = v1::comparable(one.window.get(at, len));
            len == other_len && one == v1::comparable(other.window.get(place, len))
        });
        if !same {
            return Some(sequence);
        }
    }
    None
}

/// The frames of a stretch, one after the other.
pub(crate) struct SalvagedFrames<'a, B: Bytes + ?Sized> {
    pub(crate) window: Window<'a, B>,
    run: RunId,
    at: u64,
    end: u64,
}

impl<'a, B: Bytes + ?Sized> SalvagedFrames<'a, B> {
    pub(crate) fn of(bytes: &'a B, stretch: &ScanStretch) -> Self {
        Self {
            window: Window::of(bytes, 16 << 10),
            run: stretch.run,
            at: stretch.at,
            end: stretch.at + u64::from(stretch.bytes),
        }
    }

    /// The place and length of the record with this sequence; records before it are skipped.
    pub(crate) fn find(&mut self, sequence: u32) -> Option<(u64, usize)> {
        loop {
            let (at, found, len) = self.next()?;
            if found == sequence {
                return Some((at, len));
            }
        }
    }

    /// The next record: its place, its sequence and its length. It is checked again.
    pub(crate) fn next(&mut self) -> Option<(u64, u32, usize)> {
        let head = self.window.get(self.at, v1::HEADER_BYTES);
        if self.at >= self.end || head.len() < v1::HEADER_BYTES {
            return None;
        }
        let len = v1::len(head);
        if len as u64 > self.end - self.at {
            return None;
        }
        let frame = v1::read(self.window.get(self.at, len)).ok()?;
        if frame.run != self.run {
            return None;
        }
        let found = u32::try_from(frame.sequence.get()).ok()?;
        let at = self.at;
        self.at += len as u64;
        Some((at, found, len))
    }
}
