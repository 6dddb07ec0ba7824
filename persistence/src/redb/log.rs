//! Reads turns out of the log, trusting nothing that it finds.

use bytes::Bytes;
use millrun_core::{InstanceId, RunId};

use super::kept::KEPT_PIECE_BYTES;
use super::lanes::{self, Row, Source};
use super::moment::Moment;
use crate::error::{JournalFailure, ReadError};
use crate::finished::Place;
use crate::scan;
use crate::wire::piece;
use crate::wire::v1::{self, Frame};

/// The frames of the turns of `run`, in order, in pieces with their positions. `end` is where the
/// log ends.
pub(crate) fn turns(
    store: &Moment,
    run: RunId,
    place: &Place,
    end: u64,
) -> Result<Vec<(u64, Bytes)>, ReadError> {
    let low = store.opened()?.low;
    let mut pieces = Vec::new();
    let mut moved = 0;
    if place.first < low {
        moved = last_kept(store, run)?;
        pieces.extend(kept(store, run, 0, usize::MAX)?);
    }
    if place.last >= low {
        match follow(store, run, (place.last, moved), low)? {
            Some(turns) => pieces.extend(turns),
            // A back-pointer leads nowhere: they are hints, so look at everything instead.
            None => sweep(store, run, (low, end), place.last, &mut pieces)?,
        }
    }
    Ok(pieces)
}

/// The frames of the turns of `run` behind the record `after`, in order, as far as `bytes_max` bytes
/// of them need; and the sequence of its last record.
pub(crate) fn page(
    store: &Moment,
    run: RunId,
    place: &Place,
    end: u64,
    (after, bytes_max): (u64, usize),
) -> Result<(Vec<(u64, Bytes)>, u64), ReadError> {
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
    let starts = starts(store, run, (place.last, moved.max(after)), low)?;
    let last = turn_at(store, run, place.last)?;
    let (Some(starts), Some(last)) = (starts, last) else {
        // A back-pointer leads nowhere: look at everything instead.
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

/// Where the turns of `run` begin that hold records behind `after`, the last first; `None` if a
/// back-pointer does not lead to the run's previous turn.
fn starts(
    store: &Moment,
    run: RunId,
    (last, after): (u64, u64),
    low: u64,
) -> Result<Option<Vec<u64>>, JournalFailure> {
    let (mut starts, mut position) = (Vec::new(), last);
    loop {
        let Some((first, back)) = turn_head(store, run, position)? else {
            return Ok(None);
        };
        starts.push(position);
        if first <= after + 1 {
            return Ok(Some(starts));
        }
        if back >= position || back < low {
            return Ok(None);
        }
        position = back;
    }
}

/// The first sequence and the back-pointer of the turn of `run` that begins at `position`.
fn turn_head(store: &Moment, run: RunId, position: u64) -> Result<Option<(u64, u64)>, JournalFailure> {
    let mut head = None;
    store.rows(position, &mut |key, row| {
        let offset = position
            .checked_sub(key)
            .and_then(|offset| usize::try_from(offset).ok());
        if let (Ok((frames, _)), Some(offset)) = (piece::read(row), offset)
            && let Some(Ok(frame)) = frames.get(offset..).map(v1::read)
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
pub(crate) fn instance_id(store: &Moment, run: RunId, place: &Place) -> Result<InstanceId, ReadError> {
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

/// The frames of `run` that were moved out of the log, from the record with the sequence `from` on or
/// some records before it, as far as `bytes` bytes of them need.
fn kept(store: &Moment, run: RunId, from: u64, bytes: usize) -> Result<Vec<(u64, Bytes)>, ReadError> {
    let rows = store.kept(run, from, bytes)?;
    if rows.is_empty() {
        return Err(missing(run));
    }
    let mut pieces = Vec::with_capacity(rows.len());
    for row in rows {
        let (frames, _) = piece::read(&row).map_err(|error| scan::damaged(run, 0, &error))?;
        let len = frames.len();
        pieces.push((0, Bytes::from(row).split_off(piece::HEADER_BYTES).slice(..len)));
    }
    Ok(pieces)
}

/// The sequence of the last record of `run` that was moved out of the log.
fn last_kept(store: &Moment, run: RunId) -> Result<u32, ReadError> {
    let row = store.last_kept(run)?.ok_or_else(|| missing(run))?;
    let (frames, _) = piece::read(&row).map_err(|error| scan::damaged(run, 0, &error))?;
    Ok(scan::last_turn(frames).map_or(0, |turn| turn.last))
}

fn missing(run: RunId) -> ReadError {
    scan::damaged(run, 0, &"the kept turns of the run are missing")
}

/// Follows the back-pointers from the last turn, at `last`, to the first that was not moved: the one
/// behind the record `moved`. `None` if one does not lead to the run's previous turn.
fn follow(
    store: &Moment,
    run: RunId,
    (last, moved): (u64, u32),
    low: u64,
) -> Result<Option<Vec<(u64, Bytes)>>, ReadError> {
    let mut turns = Vec::new();
    let mut position = last;
    let mut expected = None;
    loop {
        let Some(turn) = turn_at(store, run, position)? else {
            return Ok(None);
        };
        if expected.is_some_and(|expected| expected != turn.last) {
            return Ok(None);
        }
        let before = turn.first - 1;
        let back = turn.back;
        turns.push((position, turn.bytes));
        if before == u64::from(moved) {
            turns.reverse();
            return Ok(Some(turns));
        }
        if back >= position || back < low {
            return Ok(None);
        }
        (expected, position) = (Some(before), back);
    }
}

/// One turn as it was found.
struct TurnBytes {
    bytes: Bytes,
    back: u64,
    first: u64,
    last: u64,
}

/// The turn of `run` that begins at `position`; `None` if none does.
fn turn_at(store: &Moment, run: RunId, position: u64) -> Result<Option<TurnBytes>, JournalFailure> {
    let mut bytes = Vec::new();
    let (mut back, mut first, mut last) = (v1::NO_BACK, 0, 0);
    let mut at = position;
    let mut is_whole = false;
    store.rows(position, &mut |key, row| {
        let Ok((frames, _)) = piece::read(row) else {
            return false;
        };
        let Some(offset) = at
            .checked_sub(key)
            .and_then(|offset| usize::try_from(offset).ok())
        else {
            return false;
        };
        let Some(mut rest) = frames.get(offset..) else {
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

/// Finds the run's frames by looking at the whole log. Its last turn, at `last`, must be among them.
fn sweep(
    store: &Moment,
    run: RunId,
    (low, end): (u64, u64),
    last: u64,
    pieces: &mut Vec<(u64, Bytes)>,
) -> Result<(), ReadError> {
    let mut problem = None;
    let (mut has_last, mut is_whole) = (false, false);
    store.rows(low, &mut |key, row| {
        walk(key, row, &mut |position, frame| match frame {
            Ok((frame, bytes)) if frame.run == run && position < end => {
                has_last |= position == last;
                is_whole = frame.has(v1::TURN_LAST);
                pieces.push((position, Bytes::copy_from_slice(bytes)));
            }
            Ok(_) => {}
            Err(damage) if damage.run.is_none_or(|of| of == run) => {
                problem.get_or_insert(damage.into_error());
            }
            Err(_) => {}
        });
        key < end
    })?;
    match (scan::history(run, pieces), problem) {
        (Ok(_), _) if has_last && is_whole => Ok(()),
        // What is left would pass for a shorter history.
        (Ok(_), _) => Err(scan::damaged(run, last, &"the last turn is damaged")),
        (Err(_), Some(problem)) => Err(problem),
        (Err(error), None) => Err(error),
    }
}

/// A place in the log that holds no frame.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    /// Whose record it seems to be, if its header can still be read.
    pub(crate) run: Option<RunId>,
    pub(crate) position: u64,
    pub(crate) cause: String,
}

impl Damage {
    pub(crate) fn into_error(self) -> ReadError {
        ReadError::Damaged {
            run: self.run,
            position: self.position,
            cause: self.cause,
        }
    }
}

/// What [`walk`] finds: a frame with its bytes, or damage.
pub(crate) type Found<'a> = Result<(Frame<'a>, &'a [u8]), Damage>;

/// Calls `visit` with each frame of a row of the log, and once for each stretch of it that holds none.
pub(crate) fn walk<'a>(key: u64, row: &'a [u8], visit: &mut dyn FnMut(u64, Found<'a>)) {
    walk_of(None, key, row, visit);
}

/// As [`walk`]; what holds no frame is damage of `of`, if all of the row is of that run.
fn walk_of<'a>(of: Option<RunId>, key: u64, row: &'a [u8], visit: &mut dyn FnMut(u64, Found<'a>)) {
    let (frames, count) = match piece::read(row) {
        Ok(piece) => piece,
        Err(error) => {
            let damage = Damage {
                run: None,
                position: key,
                cause: error.to_string(),
            };
            visit(key, Err(damage));
            // The frames have checksums of their own.
            (row.get(piece::HEADER_BYTES..).unwrap_or_default(), u32::MAX)
        }
    };
    let (mut at, mut seen) = (0, 0_u32);
    while at < frames.len() {
        let position = key + at as u64;
        match v1::read(&frames[at..]) {
            Ok(frame) => {
                visit(position, Ok((frame, &frames[at..at + frame.len])));
                at += frame.len;
            }
            Err(error) => {
                let run = of.or_else(|| peeked(&frames[at..]));
                visit(
                    position,
                    Err(Damage {
                        run,
                        position,
                        cause: error.to_string(),
                    }),
                );
                at = next_frame(frames, at);
            }
        }
        seen = seen.saturating_add(1);
    }
    if count != u32::MAX && count != seen {
        let cause = format!("the piece has {seen} frames, its header says {count}");
        visit(
            key,
            Err(Damage {
                run: None,
                position: key,
                cause,
            }),
        );
    }
}

/// As [`walk`], for the runs that are the lane's own: the frames of others are passed over by their
/// lengths, unchecked.
pub(crate) fn walk_share<'a>(row: &Row<'a>, visit: &mut dyn FnMut(u64, Found<'a>)) {
    let key = match row.source {
        Source::Kept(_) => 0,
        Source::Log(position) => position,
    };
    let of = row.source.run();
    let (Some(starts), Some(frames)) = (row.frames, row.bytes.get(piece::HEADER_BYTES..)) else {
        return walk_of(of, key, row.bytes, &mut |position, found| {
            let run = match &found {
                Ok((frame, _)) => Some(frame.run),
                Err(damage) => damage.run,
            };
            if row.is_mine(run) {
                visit(position, found);
            }
        });
    };
    for start in starts {
        let at = usize::try_from(*start).expect("a usize holds a u32 here");
        let position = key + at as u64;
        let found = match v1::read(&frames[at..]) {
            Ok(frame) => Ok((frame, &frames[at..at + frame.len])),
            Err(error) => Err(Damage {
                run: of.or_else(|| peeked(&frames[at..])),
                position,
                cause: error.to_string(),
            }),
        };
        visit(position, found);
    }
}

/// The runs that the lane's own frames in a row seem to be of, with where each frame begins; nothing if
/// the frames' lengths do not lead through the row. Unchecked: good for a look ahead.
pub(crate) fn runs<'a>(row: &Row<'a>) -> impl Iterator<Item = (u32, RunId)> + use<'a> {
    let frames = row.bytes.get(piece::HEADER_BYTES..).unwrap_or_default();
    row.frames.unwrap_or_default().iter().filter_map(move |start| {
        let (run, _) = v1::peek(frames.get(usize::try_from(*start).ok()?..)?).ok()?;
        Some((*start, RunId::from_bits(run)?))
    })
}

/// Where the frames of each lane begin in a row, behind its header; `None` unless the frames'
/// lengths lead, in the right number of steps, exactly to the row's end. All are of the lane of `of`, if
/// all of the row is of that run.
pub(crate) fn split(row: &[u8], of: Option<RunId>, lanes: usize) -> Option<Vec<Vec<u32>>> {
    let (frames, count) = piece::read(row).ok()?;
    // What the header says of its size is not trusted with memory.
    let most = (frames.len() / v1::HEADER_BYTES).min(count as usize);
    let mut starts = vec![Vec::with_capacity(most / lanes + 8); lanes];
    let mut at = 0;
    for _ in 0..count {
        let (run, len) = v1::peek(&frames[at..]).ok()?;
        starts[lanes::lane_of(of.or_else(|| RunId::from_bits(run)), lanes)].push(u32::try_from(at).ok()?);
        at += len;
    }
    (at == frames.len()).then_some(starts)
}

/// Whose frame this seems to be.
fn peeked(frame: &[u8]) -> Option<RunId> {
    let (run, _) = v1::peek(frame).ok()?;
    RunId::from_bits(run)
}

/// Where the next sound frame begins behind the damaged one at `at`.
fn next_frame(frames: &[u8], at: usize) -> usize {
    let behind = v1::peek(&frames[at..]).map_or(frames.len(), |(_, len)| at + len);
    if behind < frames.len() && v1::read(&frames[behind..]).is_ok() {
        return behind;
    }
    (at + 1..frames.len())
        .find(|at| v1::read(&frames[*at..]).is_ok())
        .unwrap_or(frames.len())
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, Sequence, Timestamp};

    use super::*;

    /// A row of nine frames of three partitions.
    fn row() -> (Vec<u8>, Vec<RunId>) {
        let runs: Vec<_> = (0..9)
            .map(|number| {
                let partition = Partition::from_index(number % 3).unwrap();
                RunId::new(partition, Timestamp::EPOCH, u64::from(number))
            })
            .collect();
        let mut frames = Vec::new();
        for run in &runs {
            let header = v1::FrameHeader {
                run: *run,
                sequence: Sequence::new(1),
                time: Timestamp::EPOCH,
                kind: 1,
            };
            let start = v1::begin(&mut frames, &header, Some("id"), v1::OPENS | v1::TURN_FIRST);
            frames.resize(frames.len() + frames.len() % 17, 7);
            v1::seal(&mut frames[start..], v1::TURN_LAST);
        }
        let mut row = piece::header(u32::try_from(frames.len()).unwrap(), 9).to_vec();
        row.extend_from_slice(&frames);
        (row, runs)
    }

    #[test]
    fn each_lane_learns_where_its_frames_begin() {
        let (row, runs) = row();
        for lanes in 1..=4 {
            let starts = split(&row, None, lanes).unwrap();
            assert_eq!(starts.len(), lanes);
            let found: Vec<Vec<_>> = starts
                .iter()
                .map(|starts| {
                    let frames = starts.iter().map(|at| &row[piece::HEADER_BYTES + *at as usize..]);
                    frames.map(|frame| v1::read(frame).unwrap().run).collect()
                })
                .collect();
            for (lane, found) in found.iter().enumerate() {
                let is_mine = |run: &&RunId| lanes::lane_of(Some(**run), lanes) == lane;
                let expected: Vec<_> = runs.iter().filter(is_mine).copied().collect();
                assert_eq!(*found, expected, "lane {lane} of {lanes}");
            }
        }
    }

    #[test]
    fn all_of_a_kept_row_goes_to_the_lane_of_the_run_that_its_key_names() {
        let (row, runs) = row();
        for run in &runs[..3] {
            let starts = split(&row, Some(*run), 3).unwrap();
            for (lane, starts) in starts.iter().enumerate() {
                let is_its = lane == lanes::lane_of(Some(*run), 3);
                assert_eq!(starts.len(), if is_its { runs.len() } else { 0 });
            }
        }
    }

    #[test]
    fn a_row_whose_lengths_lead_nowhere_is_not_split() {
        let (row, _) = row();
        let first = piece::HEADER_BYTES;
        // The length of the first frame, its neighbours and the header, each bit.
        for at in (0..piece::HEADER_BYTES).chain(first + 12..first + 16) {
            for bit in 0..8 {
                let mut bad = row.clone();
                bad[at] ^= 1 << bit;
                assert_eq!(split(&bad, None, 2), None, "bit {bit} of byte {at}");
            }
        }
        assert_eq!(split(&row[..row.len() - 1], None, 2), None);
    }
}
