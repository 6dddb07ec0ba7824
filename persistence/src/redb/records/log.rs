//! Reads the turns of one run, without trusting what it finds.
//!
//! ```text
//!   moved out of the log │ low ... first ◄─back── turn ◄─back── last ... end
//!      (see `kept`)        │         └─ known from the run's place ─┘
//! ```
//!
//! Invariants: the result is all that was asked for, in order, or an error; a back-pointer is a hint, and if one is wrong the
//! whole log is searched.
//!
//! Left out: the contents of the frames; see `scan`.

use std::collections::BinaryHeap;

use bytes::Bytes;
use millrun_core::{InstanceId, RunId};

use super::frames::{Damage, walk};
use crate::error::{JournalFailure, ReadError};
use crate::finished::Place;
use crate::redb::database::kept::KEPT_PIECE_BYTES;
use crate::redb::database::moment::StoreMoment;
use crate::scan;
use crate::wire::piece;
use crate::wire::v1;

/// Frames, in pieces with their positions.
pub(crate) type Pieces = Vec<(u64, Bytes)>;

/// The frames of the turns of `run`, in order. `end` is where the log ends.
pub(crate) fn turns(store: &StoreMoment, run: RunId, place: &Place, end: u64) -> Result<Pieces, ReadError> {
    let mut turns = RunTurns::new(store, run, *place, store.opened()?.low)?;
    while turns.go_back(store)? {}
    turns.finish(store, end)
}

/// As [`turns`], for several runs whose places are known. They are followed side by side, from the end of the log on: runs
/// that advanced together have their turns in the same rows.
pub(crate) fn turns_together(
    store: &StoreMoment,
    wanted: &[(RunId, Result<Place, ReadError>)],
    end: u64,
) -> Vec<Result<Pieces, ReadError>> {
    let opened = store.opened();
    let begun = wanted.iter().map(|(run, place)| {
        let low = opened.as_ref().map_err(Clone::clone)?.low;
        RunTurns::new(store, *run, place.clone()?, low)
    });
    let mut each: Vec<Result<RunTurns, ReadError>> = begun.collect();
    let positions = each.iter().enumerate();
    let mut next: BinaryHeap<(u64, usize)> = positions
        .filter_map(|(index, turns)| Some((turns.as_ref().ok()?.position?, index)))
        .collect();
    while let Some((_, index)) = next.pop() {
        let Ok(turns) = &mut each[index] else { continue };
        match turns.go_back(store) {
            Ok(_) => next.extend(turns.position.map(|position| (position, index))),
            Err(error) => each[index] = Err(error),
        }
    }
    let finished = each.into_iter().map(|turns| turns?.finish(store, end));
    finished.collect()
}

/// The frames of the turns of `run` after the record `after`, in order, as many as `bytes_max` bytes need; and the sequence
/// of its last record.
pub(crate) fn page(
    store: &StoreMoment,
    run: RunId,
    place: &Place,
    end: u64,
    (after, bytes_max): (u64, usize),
) -> Result<(Pieces, u64), ReadError> {
    let low = store.opened()?.low;
    let (mut pieces, mut total, mut moved) = (Vec::new(), 0, 0);
    let mut is_whole = true;
    if place.first < low {
        moved = u64::from(last_kept(store, run)?);
        if moved > after {
            pieces = kept(store, run, after + 1, bytes_max.saturating_add(KEPT_PIECE_BYTES))?;
            total = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
            let last = pieces.last().and_then(|(_, bytes)| scan::last_turn(bytes));
            is_whole = last.is_some_and(|turn| u64::from(turn.last) == moved);
        }
    }
    if place.last < low {
        return Ok((pieces, moved));
    }
    let last = turn_at(store, run, place.last)?;
    if after == 0 && pieces.is_empty() {
        let first = turn_at(store, run, place.first)?;
        let first = first.filter(|turn| turn.bytes.len() > bytes_max);
        pieces.extend(first.map(|turn| (place.first, turn.bytes)));
        is_whole = pieces.is_empty();
    }
    // Back-pointers lead through all turns after the page, and are not followed if the page ends before any of those turns.
    if let Some(last) = &last
        && (total > bytes_max || !is_whole)
    {
        return Ok((pieces, last.last));
    }
    let starts = starts(store, run, place, (moved.max(after), low))?;
    let (Some(starts), Some(last)) = (starts, last) else {
        // A back-pointer is wrong: search everything instead.
        let pieces = turns(store, run, place, end)?;
        let head = scan::history(run, &pieces)?.head().get();
        return Ok((pieces, head));
    };
    for position in starts.into_iter().rev() {
        if total > bytes_max || !is_whole {
            break;
        }
        let turn = if position == place.last {
            last.bytes.clone()
        } else {
            let turn = turn_at(store, run, position)?;
            let cause = "the turn is damaged";
            turn.ok_or_else(|| scan::damaged(run, position, &cause))?.bytes
        };
        total += turn.len();
        pieces.push((position, turn));
    }
    Ok((pieces, last.last))
}

/// Where the turns of `run` begin that hold records after `after`, the last first; `None` if a back-pointer does not lead to
/// the run's previous turn.
fn starts(
    store: &StoreMoment,
    run: RunId,
    place: &Place,
    (after, low): (u64, u64),
) -> Result<Option<Vec<u64>>, JournalFailure> {
    let (mut starts, mut position) = (Vec::new(), place.last);
    loop {
        let Some((first, back)) = turn_head(store, run, position)? else {
            return Ok(None);
        };
        starts.push(position);
        if first <= after + 1 || position == place.first {
            return Ok(Some(starts));
        }
        if back >= position || back < low {
            return Ok(None);
        }
        position = back;
    }
}

/// The first sequence and the back-pointer of the turn of `run` that begins at `position`.
fn turn_head(store: &StoreMoment, run: RunId, position: u64) -> Result<Option<(u64, u64)>, JournalFailure> {
    let mut head = None;
    store.rows(position, &mut |key, row| {
        let offset = position
            .checked_sub(key)
            .and_then(|offset| usize::try_from(offset).ok());
        if let Some(offset) = offset
            && let Some(Ok(frame)) = piece::frames(row).get(offset..).map(v1::read)
            && frame.run == run
            && frame.has(v1::TURN_FIRST)
        {
            head = Some((frame.sequence.get(), frame.back));
        }
        false
    })?;
    Ok(head)
}

/// The instance id of `run`, from its first record.
pub(crate) fn instance_id(store: &StoreMoment, run: RunId, place: &Place) -> Result<InstanceId, ReadError> {
    let bytes = if place.first < store.opened()?.low {
        kept(store, run, 0, 1)?.into_iter().next().map(|(_, bytes)| bytes)
    } else {
        turn_at(store, run, place.first)?.map(|turn| turn.bytes)
    };
    bytes.and_then(|bytes| scan::instance_id(&bytes)).ok_or_else(|| {
        let cause = "the first record of the run is not where it was".to_owned();
        ReadError::Damaged {
            run: Some(run),
            position: place.first,
            cause,
        }
    })
}

/// The kind of the last record of `run`.
pub(crate) fn last_kind(store: &StoreMoment, run: RunId, place: &Place) -> Result<u8, ReadError> {
    let kind = if place.last < store.opened()?.low {
        let row = store.last_kept(run)?.ok_or_else(|| missing(run))?;
        scan::last_kind(piece::frames(&row))
    } else {
        turn_at(store, run, place.last)?.and_then(|turn| scan::last_kind(&turn.bytes))
    };
    kind.ok_or_else(|| scan::damaged(run, place.last, &"the last turn is damaged"))
}

/// The frames of `run` that were moved out of the log, from the record with the sequence `from` on or some records before it,
/// as many as `bytes` bytes need.
fn kept(store: &StoreMoment, run: RunId, from: u64, bytes: usize) -> Result<Pieces, ReadError> {
    let rows = store.kept(run, from, bytes)?;
    if rows.is_empty() {
        return Err(missing(run));
    }
    let mut pieces = Vec::with_capacity(rows.len());
    for row in rows {
        let header = piece::HEADER_BYTES.min(row.len());
        pieces.push((0, Bytes::from(row).split_off(header)));
    }
    Ok(pieces)
}

/// The sequence of the last record of `run` that was moved out of the log.
fn last_kept(store: &StoreMoment, run: RunId) -> Result<u32, ReadError> {
    let row = store.last_kept(run)?.ok_or_else(|| missing(run))?;
    Ok(scan::last_turn(piece::frames(&row)).map_or(0, |turn| turn.last))
}

fn missing(run: RunId) -> ReadError {
    scan::damaged(run, 0, &"the kept turns of the run are missing")
}

/// The turns of one run as far as the back-pointers were followed: from the last turn to the first that was not moved.
struct RunTurns {
    run: RunId,
    place: Place,
    low: u64,
    /// The frames that were moved out of the log,
    moved: Pieces,
    /// and the sequence of their last record.
    last_moved: u64,
    /// The turns of the log, the last first.
    turns: Pieces,
    /// The place of the turn before them; `None` when there is none, or it was not found.
    position: Option<u64>,
    /// The sequence that its last record must have.
    expected: Option<u64>,
    /// A back-pointer did not lead to the run's previous turn.
    is_lost: bool,
}

impl RunTurns {
    fn new(store: &StoreMoment, run: RunId, place: Place, low: u64) -> Result<Self, ReadError> {
        let (mut moved, mut last_moved) = (Vec::new(), 0);
        if place.first < low {
            last_moved = u64::from(last_kept(store, run)?);
            moved = kept(store, run, 0, usize::MAX)?;
        }
        Ok(Self {
            run,
            place,
            low,
            moved,
            last_moved,
            turns: Vec::new(),
            position: Some(place.last).filter(|last| *last >= low),
            expected: None,
            is_lost: false,
        })
    }

    /// Reads one more turn; `false` if there is none left, or it was not found.
    fn go_back(&mut self, store: &StoreMoment) -> Result<bool, ReadError> {
        let Some(position) = self.position.take() else {
            return Ok(false);
        };
        let turn = turn_at(store, self.run, position)?;
        let turn = turn.filter(|turn| self.expected.is_none_or(|expected| expected == turn.last));
        let Some(turn) = turn else {
            self.is_lost = true;
            return Ok(false);
        };
        self.turns.push((position, turn.bytes));
        let before = turn.first - 1;
        // Turns before the first one were trimmed.
        if before == self.last_moved || position == self.place.first {
            return Ok(false);
        }
        if turn.back >= position || turn.back < self.low {
            self.is_lost = true;
            return Ok(false);
        }
        (self.expected, self.position) = (Some(before), Some(turn.back));
        Ok(true)
    }

    /// All turns, in order. Back-pointers are hints: if one was wrong, everything is searched instead.
    fn finish(self, store: &StoreMoment, end: u64) -> Result<Pieces, ReadError> {
        let mut pieces = self.moved;
        if self.is_lost {
            sweep(store, self.run, (self.low, end), &self.place, &mut pieces)?;
        } else {
            pieces.extend(self.turns.into_iter().rev());
        }
        Ok(pieces)
    }
}

/// One turn as it was found.
struct TurnBytes {
    bytes: Bytes,
    back: u64,
    first: u64,
    last: u64,
}

/// The turn of `run` that begins at `position`; `None` if there is none.
fn turn_at(store: &StoreMoment, run: RunId, position: u64) -> Result<Option<TurnBytes>, JournalFailure> {
    let mut bytes = Vec::new();
    let (mut back, mut first, mut last) = (v1::NO_BACK, 0, 0);
    let mut at = position;
    let mut is_whole = false;
    store.rows(position, &mut |key, row| {
        let Some(offset) = at
            .checked_sub(key)
            .and_then(|offset| usize::try_from(offset).ok())
        else {
            return false;
        };
        let Some(mut rest) = piece::frames(row).get(offset..) else {
            return false;
        };
        while !rest.is_empty() {
            let Ok(frame) = v1::read(rest) else { return false };
            let is_next = if bytes.is_empty() {
                frame.has(v1::TURN_FIRST)
            } else {
                !frame.has(v1::TURN_FIRST) && frame.sequence.get() == last + 1
            };
            if frame.run != run || !is_next {
                return false;
            }
            if bytes.is_empty() {
                (back, first) = (frame.back, frame.sequence.get());
            }
            last = frame.sequence.get();
            bytes.extend_from_slice(&rest[..frame.len]);
            rest = &rest[frame.len..];
            at += frame.len as u64;
            if frame.has(v1::TURN_LAST) {
                is_whole = true;
                return false;
            }
        }
        true
    })?;
    Ok((is_whole && first > 0).then(|| TurnBytes {
        bytes: bytes.into(),
        back,
        first,
        last,
    }))
}

/// Finds the run's frames by searching the whole log, without what the run was trimmed of. Its last turn must be among them.
fn sweep(
    store: &StoreMoment,
    run: RunId,
    (low, end): (u64, u64),
    &Place { first, last, .. }: &Place,
    pieces: &mut Pieces,
) -> Result<(), ReadError> {
    let mut problem = None;
    let (mut has_last, mut is_whole) = (false, false);
    store.rows(low, &mut |key, row| {
        walk(key, row, &mut |position, frame| match frame {
            Ok((frame, bytes)) if frame.run == run && (first..end).contains(&position) => {
                has_last |= position == last;
                is_whole = frame.has(v1::TURN_LAST);
                pieces.push((position, Bytes::copy_from_slice(bytes)));
            }
            Ok(_) => {}
            Err(damage) if damage.end <= first => {}
            Err(damage) if damage.run.is_none_or(|of| of == run) => {
                let run = Some(run);
                problem.get_or_insert(Damage { run, ..damage }.into_error());
            }
            Err(_) => {}
        });
        key < end
    })?;
    match (scan::history(run, pieces), problem) {
        (Ok(_), _) if has_last && is_whole => Ok(()),
        // The rest would look like a shorter history.
        (Ok(_), _) => Err(scan::damaged(run, last, &"the last turn is damaged")),
        (Err(_), Some(problem)) => Err(problem),
        (Err(error), None) => Err(error),
    }
}
