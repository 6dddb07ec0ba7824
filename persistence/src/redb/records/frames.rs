//! Finds the frames in the rows of the log, without trusting their contents.
//!
//! ```text
//!   row:           header │ frame │ frame │ ???? │ frame
//!   walk:                     ▼       ▼    damage    ▼     each with its checksum
//!   split, runs:  by the lengths, unchecked; nothing, unless these lead through the row
//! ```
//!
//! Invariants: any bytes give frames or damage, and a walk ends; after damage the next valid frame is looked for, so that
//! only the damaged part is lost; frames that were separated by their lengths alone are checked by the lane that reads them.
//!
//! Left out: which turns are wanted; see `log` for one run, and `rebuild` for all.

use millrun_core::{InstanceId, RunId};

use super::row::{self, FrameSource, Row};
use crate::error::ReadError;
use crate::wire::piece::{self, PieceError};
use crate::wire::v1::{self, Frame, FrameError};

/// A place in the log that holds no frame.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    /// The run that the record seems to belong to, if its header can still be read.
    pub(crate) run: Option<RunId>,
    pub(crate) position: u64,
    /// Where the next valid frame begins, or the row ends; the position itself if no frame is lost.
    pub(crate) end: u64,
    /// What the header says, if the damage is in a single frame.
    pub(crate) seems: Option<Seems>,
    pub(crate) cause: String,
}

/// What can be read of the header of a damaged frame; it may be wrong.
#[derive(Clone, Debug)]
pub(crate) struct Seems {
    /// The log position of the run's previous turn.
    pub(crate) back: u64,
    /// The instance, if there is one: then the frame may open its run.
    pub(crate) id: Option<InstanceId>,
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
pub(crate) type FoundFrame<'a> = Result<(Frame<'a>, &'a [u8]), Damage>;

/// Calls `visit` with each frame of a row of the log, and once for each stretch without a valid frame.
pub(crate) fn walk<'a>(key: u64, row: &'a [u8], visit: &mut dyn FnMut(u64, FoundFrame<'a>)) {
    walk_of(None, key, row, visit);
}

/// As [`walk`]; a stretch without a valid frame is damage of `of`, if the row only holds that run.
fn walk_of<'a>(of: Option<RunId>, key: u64, row: &'a [u8], visit: &mut dyn FnMut(u64, FoundFrame<'a>)) {
    let (frames, count) = match piece::read(row) {
        Ok(piece) => piece,
        Err(error) => {
            let frames = row.get(piece::HEADER_BYTES..).unwrap_or_default();
            // The frames have their own checksums, so a damaged header does not make them unreadable.
            let end = match error {
                PieceError::Short => key + 1,
                PieceError::Length { have, said } if said > have => key + said as u64,
                _ => key,
            };
            let damage = Damage {
                run: of.filter(|_| end > key),
                position: key,
                end,
                seems: None,
                cause: error.to_string(),
            };
            visit(key, Err(damage));
            (frames, u32::MAX)
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
                let next = next_frame(frames, at);
                let damage = damaged(of, position, &frames[at..next], &error);
                visit(position, Err(damage));
                at = next;
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
                end: key,
                seems: None,
                cause,
            }),
        );
    }
}

/// As [`walk`], for the lane's own runs: the frames of other lanes are skipped by their lengths, unchecked.
pub(crate) fn walk_share<'a>(row: &Row<'a>, visit: &mut dyn FnMut(u64, FoundFrame<'a>)) {
    let key = match row.source {
        FrameSource::Log(position) => position,
        _ => 0,
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
            Err(error) => {
                let len = v1::peek(&frames[at..]).map_or(0, |(_, len)| len);
                Err(damaged(of, position, &frames[at..at + len], &error))
            }
        };
        visit(position, found);
    }
}

/// The runs that the lane's own frames in a row seem to belong to, with where each frame begins; nothing if the frames'
/// lengths do not lead through the row. Unchecked: only for a look ahead.
pub(crate) fn runs<'a>(row: &Row<'a>) -> impl Iterator<Item = (u32, RunId)> + use<'a> {
    let frames = row.bytes.get(piece::HEADER_BYTES..).unwrap_or_default();
    row.frames.unwrap_or_default().iter().filter_map(move |start| {
        let (run, _) = v1::peek(frames.get(usize::try_from(*start).ok()?..)?).ok()?;
        Some((*start, RunId::from_bits(run)?))
    })
}

/// Where the frames of each lane begin in a row, after its header; `None` unless the frames' lengths lead, in the right
/// number of steps, exactly to the row's end. All belong to the lane of `of`, if the row only holds that run.
pub(crate) fn split(row: &[u8], of: Option<RunId>, lanes: usize) -> Option<Vec<Vec<u32>>> {
    let (frames, count) = piece::read(row).ok()?;
    // The size in the header is not trusted for allocating memory.
    let most = (frames.len() / v1::HEADER_BYTES).min(count as usize);
    let mut starts = vec![Vec::with_capacity(most / lanes + 8); lanes];
    let mut at = 0;
    for _ in 0..count {
        let (run, len) = v1::peek(&frames[at..]).ok()?;
        starts[row::lane_of(of.or_else(|| RunId::from_bits(run)), lanes)].push(u32::try_from(at).ok()?);
        at += len;
    }
    (at == frames.len()).then_some(starts)
}

/// The damage that fills `bytes`, up to where the next frame begins: a single frame, if its length field leads to its end, or
/// would if nothing else were wrong.
fn damaged(of: Option<RunId>, position: u64, bytes: &[u8], error: &FrameError) -> Damage {
    let end = position + bytes.len() as u64;
    let cause = error.to_string();
    let peeked = v1::peek(bytes)
        .ok()
        .map(|(run, len)| (RunId::from_bits(run), len));
    let mended = v1::mended(bytes);
    let (run, seems) = match (&mended, peeked) {
        (Some(mended), _) => (v1::read(mended).ok().map(|frame| frame.run), seems(mended)),
        (None, Some((run, len))) if len == bytes.len() => (run, seems(bytes)),
        (None, peeked) => (peeked.and_then(|(run, _)| run), None),
    };
    Damage {
        run: of.or(run),
        position,
        end,
        seems,
        cause,
    }
}

fn seems(frame: &[u8]) -> Option<Seems> {
    let (back, id) = v1::hints(frame)?;
    let id = id.and_then(|id| InstanceId::new(id).ok());
    Some(Seems { back, id })
}

/// Where the next valid frame begins after the damaged one at `at`: where its length leads, unless an earlier frame begins at
/// an offset where the damaged one would be valid if its length said so. Anything before that which looks like a frame is
/// part of its body.
fn next_frame(frames: &[u8], at: usize) -> usize {
    let is_sound = |at: &usize| v1::read(&frames[*at..]).is_ok();
    let next = (at + 1..frames.len()).find(is_sound).unwrap_or(frames.len());
    let behind = v1::peek(&frames[at..]).map_or(frames.len(), |(_, len)| at + len);
    let leads = behind == frames.len() || is_sound(&behind);
    if next < behind && leads && v1::mended(&frames[at..next]).is_none() {
        behind
    } else {
        next
    }
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
            v1::end(&mut frames[start..], v1::TURN_LAST);
            v1::seal(&mut frames[start..]);
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
                let is_mine = |run: &&RunId| row::lane_of(Some(**run), lanes) == lane;
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
                let is_its = lane == row::lane_of(Some(*run), 3);
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
