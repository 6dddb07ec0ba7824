//! Finds pieces and frames in raw bytes, without redb.
//!
//! ```text
//!   page by page:   leaf of redb ──► rows ──► piece ──► frame, frame, ??? , frame
//!                   anything else ──► byte by byte: a frame whose sum holds, or a piece's header
//!                                                       │
//!                   stretches: consecutive records of a run that stand side by side
//! ```
//!
//! The scan only skips bytes that a checksum confirms, so it misses nothing behind a wrong length, and takes nothing inside
//! of a valid record (a payload may well hold frames) for a frame.
//!
//! Invariants: any bytes give stretches, and a scan ends: it moves forward with each step, and checksums of bytes that turn
//! out to be no frame cost at most about as much as the scan itself.

use millrun_core::RunId;

use super::hints::{Hints, Holds};
use super::pages::{self, PAGE_BYTES};
use super::source::{Bytes, Window};
use crate::wire::piece;
use crate::wire::v1::{self, Frame};

const PAGE: u64 = PAGE_BYTES as u64;
/// The place in the log is not known.
pub(crate) const NOWHERE: u64 = u64::MAX;
/// How many damaged records are listed; the rest is counted.
pub(crate) const DAMAGED_LEN_MAX: usize = 65_536;
/// How many bytes may be summed in vain, for bytes that are no frames: this much,
const WASTED_BYTES: u64 = 64 << 20;
/// and this many times what has been scanned.
const WASTED_TIMES: u64 = 8;
/// Beyond that, only frames up to this size are looked for at every byte.
const SMALL_BYTES: usize = 512;

/// How certain it is that bytes are current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// No current page leads to them, and all current pages are known.
    Stale,
    /// They may be.
    Unsure,
    /// A current row is there.
    Current,
}

/// Consecutive records of a run that are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanStretch {
    pub(crate) run: RunId,
    /// Where it begins in the file.
    pub(crate) at: u64,
    pub(crate) first: u32,
    pub(crate) last: u32,
    /// The last record that ends a turn; zero if none does.
    pub(crate) turn_end: u32,
    pub(crate) bytes: u32,
    /// The piece, or [`NO_PIECE`].
    pub(crate) piece: u32,
    pub(crate) rank: Rank,
    /// Whether its first record is the first remaining one of a run.
    pub(crate) opens: bool,
    /// Whether its last record is a run's last.
    pub(crate) closes: bool,
    /// Whether its first record begins a turn.
    pub(crate) begins: bool,
}

/// A frame outside of any piece.
pub(crate) const NO_PIECE: u32 = u32::MAX;

/// A row of turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScannedPiece {
    /// Where its frames begin in the file,
    pub(crate) at: u64,
    /// and in the log; [`NOWHERE`] if that is not known, or they were moved out of it.
    pub(crate) position: u64,
    pub(crate) bytes: u32,
    pub(crate) rank: Rank,
    /// Whether its turns were moved out of the log.
    pub(crate) is_kept: bool,
}

impl ScannedPiece {
    /// Where it begins and ends in the log, if its place is known.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.position, self.position.saturating_add(self.bytes.into()))
    }
}

/// Bytes of a current row that hold no valid record.
#[derive(Clone, Debug)]
pub(crate) struct DamagedRange {
    /// Where they begin in the file,
    pub(crate) at: u64,
    /// and in the log, if that is known.
    pub(crate) position: Option<u64>,
    /// The run that their header names, which may be damaged itself.
    pub(crate) named: Option<RunId>,
    /// The run that the row's key names, or that of the record before, whose turn continues.
    pub(crate) of: Option<RunId>,
    pub(crate) sequence: u32,
    /// The log position of the run's previous turn, if the record begins a turn.
    pub(crate) back: u64,
    pub(crate) cause: v1::FrameError,
}

/// Everything that was found.
#[derive(Debug, Default)]
pub(crate) struct FoundTurn {
    pub(crate) stretches: Vec<ScanStretch>,
    pub(crate) pieces: Vec<ScannedPiece>,
    pub(crate) damaged: Vec<DamagedRange>,
    /// The number of damaged records beyond [`DAMAGED_LEN_MAX`].
    pub(crate) damaged_more: u64,
    pub(crate) frames: u64,
    /// Bytes that the device refused to read.
    pub(crate) refused: u64,
}

impl FoundTurn {
    fn memory_bytes(&self) -> usize {
        self.stretches.capacity() * size_of::<ScanStretch>()
            + self.pieces.capacity() * size_of::<ScannedPiece>()
    }

    /// The log position of a byte of a piece.
    pub(crate) fn position(&self, piece: u32, at: u64) -> Option<u64> {
        let piece = self.pieces.get(usize::try_from(piece).ok()?)?;
        (piece.position != NOWHERE).then(|| piece.position.saturating_add(at.saturating_sub(piece.at)))
    }
}

/// The runs that a scan is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanShare {
    pub(crate) index: u16,
    pub(crate) of: u16,
}

impl ScanShare {
    pub(crate) fn has(self, run: RunId) -> bool {
        run.partition().index() % self.of == self.index
    }
}

/// The bounds of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanBounds {
    pub(crate) index_bytes_max: usize,
    pub(crate) frame_bytes_max: usize,
}

/// The results do not fit into their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Scans all bytes; `seen` is called with the position reached.
pub(crate) fn scan<B: Bytes + ?Sized>(
    bytes: &B,
    hints: &Hints,
    (share, bounds): (ScanShare, ScanBounds),
    seen: &mut dyn FnMut(u64),
) -> Result<FoundTurn, Full> {
    let mut scan = Scan {
        window: Window::new(bytes),
        hints,
        share,
        bounds,
        wasted: 0,
        found: FoundTurn::default(),
    };
    let (mut at, mut told) = (0, 0);
    while at < scan.window.len() {
        if at >= told {
            seen(at);
            told = at + (1 << 20);
            if scan.found.memory_bytes() > bounds.index_bytes_max {
                return Err(Full);
            }
        }
        let next = if at.is_multiple_of(PAGE) {
            scan.page(at)
        } else {
            None
        };
        let next = next.unwrap_or_else(|| scan.raw(at));
        at = next.max(at + 1).min(scan.window.len());
    }
    seen(at);
    scan.found.refused = scan.window.refused;
    if scan.found.memory_bytes() > bounds.index_bytes_max {
        return Err(Full);
    }
    Ok(scan.found)
}

/// What is noted of a frame.
#[derive(Clone, Copy)]
struct SeenTurns {
    run: RunId,
    sequence: u32,
    flags: u8,
    len: usize,
}

impl SeenTurns {
    fn of(frame: &Frame<'_>) -> Self {
        Self {
            run: frame.run,
            sequence: u32::try_from(frame.sequence.get()).unwrap_or(u32::MAX),
            flags: frame.flags,
            len: frame.len,
        }
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The key of a row of turns.
#[derive(Clone, Copy, Debug)]
enum ScanKey {
    Log(u64),
    Kept(Holds, u128),
}

struct Scan<'a, B: Bytes + ?Sized> {
    window: Window<'a, B>,
    hints: &'a Hints,
    share: ScanShare,
    bounds: ScanBounds,
    /// How many bytes were summed in vain.
    wasted: u64,
    found: FoundTurn,
}

impl<B: Bytes + ?Sized> Scan<'_, B> {
    /// Reads a page that is empty, or a leaf with rows of turns; returns where it ends.
    fn page(&mut self, at: u64) -> Option<u64> {
        let page = self.window.get(at, PAGE_BYTES);
        if page.iter().all(|byte| *byte == 0) {
            return Some(at + page.len() as u64);
        }
        let rows = self.rows(at)?;
        let mut row = at + rows.first()?.1 as u64;
        for (key, _, end) in rows {
            let begin = row + piece::HEADER_BYTES as u64;
            // The piece's own header has a checksum; if that is wrong, the leaf gives the length, too.
            let said = (at + end as u64).saturating_sub(begin);
            let len = self.piece_at(row).map_or(said, |len| len as u64);
            let end = self.piece(begin, len, Some(key));
            // Something else is where the row should continue.
            if end < begin + len {
                return Some(end.max(at + 1));
            }
            row = end;
        }
        Some(row.next_multiple_of(PAGE))
    }

    /// The rows of turns in a leaf, each with its key and its bounds in the page.
    fn rows(&mut self, at: u64) -> Option<Vec<(ScanKey, usize, usize)>> {
        let current = self.hints.key_width(at);
        for width in [8, 16, 24] {
            let page = self.window.get(at, PAGE_BYTES);
            let values = pages::leaf_head(page, width)?.into_iter();
            let rows = values.map(|(key, from, len)| Some((key_of(key)?, from, from + len)));
            let rows: Vec<_> = rows.collect::<Option<_>>()?;
            let is_row = |scan: &mut Self, (_, from, end): &(ScanKey, usize, usize)| {
                let said = scan.piece_at(at + *from as u64);
                said.is_some_and(|said| from + piece::HEADER_BYTES + said == *end)
            };
            // The beginning of the first row shows how wide the keys are.
            let is_it = rows.first().is_some_and(|row| is_row(self, row));
            if is_it || (current == Some(width) && rows.iter().any(|row| is_row(self, row))) {
                return Some(rows);
            }
        }
        None
    }

    /// How many bytes of frames the piece has whose header is here.
    fn piece_at(&mut self, at: u64) -> Option<usize> {
        let header = self.window.get(at, piece::HEADER_BYTES).first_chunk()?;
        Some(piece::read_header(header).ok()?.0)
    }

    /// Walks over the frames of a piece. Returns where it ends, or where something else begins.
    fn piece(&mut self, begin: u64, len: u64, key: Option<ScanKey>) -> u64 {
        let end = (begin + len).min(self.window.len());
        let rank = self.rank(begin, key);
        let index = u32::try_from(self.found.pieces.len()).unwrap_or(NO_PIECE);
        self.found.pieces.push(ScannedPiece {
            at: begin,
            position: match key {
                Some(ScanKey::Log(position)) => position,
                Some(ScanKey::Kept(..)) | None => NOWHERE,
            },
            bytes: u32::try_from(len).unwrap_or(u32::MAX),
            rank,
            is_kept: matches!(key, Some(ScanKey::Kept(..))),
        });
        let owner = match key {
            Some(ScanKey::Kept(_, run)) => RunId::from_bits(run),
            Some(ScanKey::Log(_)) | None => None,
        };
        let (mut at, mut goes_on) = (begin, None);
        while at < end {
            match self.frame(at, end - at) {
                Ok(frame) => {
                    self.push(at, frame, index, rank);
                    goes_on = (!frame.has(v1::TURN_LAST)).then_some(frame.run);
                    at += frame.len as u64;
                }
                Err(cause) => {
                    if rank > Rank::Stale {
                        self.damaged(at, index, owner.or(goes_on), cause);
                    }
                    goes_on = None;
                    match self.behind(at, end, rank) {
                        ScanBehind::Frame(next) => at = next,
                        ScanBehind::Other(next) => return next,
                    }
                }
            }
        }
        end
    }

    /// Where the walk over a piece continues after bytes that are no frame.
    fn behind(&mut self, at: u64, end: u64, rank: Rank) -> ScanBehind {
        let head = self.window.get(at, v1::HEADER_BYTES);
        if head.len() == v1::HEADER_BYTES {
            let next = at + v1::len(head) as u64;
            let is_sound = next > at && next < end && self.frame(next, end - next).is_ok();
            if next == end || is_sound {
                // The frames have one size, and the damaged byte may be one of its length.
                return ScanBehind::Frame(self.nearer(at, next).unwrap_or(next));
            }
        }
        let mut at = at + 1;
        while at < end {
            let to = (at + 1).next_multiple_of(PAGE).min(end);
            // Nothing else can be inside of a current row.
            if at.is_multiple_of(PAGE) && rank < Rank::Current && self.rows(at).is_some() {
                return ScanBehind::Other(at);
            }
            match self.find(at, to, end) {
                Some(next) => return ScanBehind::Frame(next),
                None => at = to,
            }
        }
        ScanBehind::Frame(end)
    }

    /// Where the frame at `at` ends, if that is before `next` and only its length is damaged.
    fn nearer(&mut self, at: u64, next: u64) -> Option<u64> {
        let mut from = at + v1::HEADER_BYTES as u64;
        while from < next {
            let to = (from + 1).next_multiple_of(PAGE).min(next);
            let Some(found) = self.find(from, to, next) else {
                from = to;
                continue;
            };
            let len = usize::try_from(found - at).ok()?;
            return v1::is_sound_but_for_its_length(self.window.get(at, len)).then_some(found);
        }
        None
    }

    /// Scans bytes that no page leads to, up to the end of their page.
    fn raw(&mut self, at: u64) -> u64 {
        let to = (at + 1).next_multiple_of(PAGE);
        let len = self.window.len();
        let Some(next) = self.find_any(at, to) else {
            return to.min(len);
        };
        match next {
            Any::Frame(at, frame) => {
                let rank = self.rank(at, None);
                self.push(at, frame, NO_PIECE, rank);
                at + frame.len as u64
            }
            Any::ScannedPiece(at, bytes) => {
                let begin = at + piece::HEADER_BYTES as u64;
                self.piece(begin, bytes as u64, None).max(begin)
            }
        }
    }

    /// The first valid frame that begins at or after `at`, before `to`; it ends at `end` at the latest.
    fn find(&mut self, mut at: u64, to: u64, end: u64) -> Option<u64> {
        while at < to {
            let len = usize::try_from(to - at).unwrap_or(usize::MAX);
            let bytes = self.window.get(at, len.saturating_add(v1::HEADER_BYTES - 1));
            let starts = bytes.windows(v1::HEADER_BYTES).take(len);
            let found = starts.enumerate().find(|(_, head)| v1::may_begin(head));
            at += found.map(|(skipped, _)| skipped as u64)?;
            if self.frame_if_cheap(at, end - at).is_some() {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    /// The first valid frame, or header of a piece, that begins at or after `at`, before `to`.
    fn find_any(&mut self, mut at: u64, to: u64) -> Option<Any> {
        let end = self.window.len();
        while at < to {
            let len = usize::try_from(to - at).unwrap_or(usize::MAX);
            let bytes = self.window.get(at, len.saturating_add(v1::HEADER_BYTES - 1));
            let found = (0..len.min(bytes.len())).find(|skipped| {
                let head = &bytes[*skipped..];
                piece::may_begin(head) || (head.len() >= v1::HEADER_BYTES && v1::may_begin(head))
            });
            at += found.map(|skipped| skipped as u64)?;
            if let Some(bytes) = self.piece_at(at) {
                return Some(Any::ScannedPiece(at, bytes));
            }
            if let Some(frame) = self.frame_if_cheap(at, end - at) {
                return Some(Any::Frame(at, frame));
            }
            at += 1;
        }
        None
    }

    /// The frame at a place that may not hold one.
    fn frame_if_cheap(&mut self, at: u64, rest: u64) -> Option<SeenTurns> {
        let head = self.window.get(at, v1::HEADER_BYTES);
        if head.len() < v1::HEADER_BYTES || !v1::may_begin(head) {
            return None;
        }
        let len = v1::len(head);
        if self.wasted > WASTED_BYTES + WASTED_TIMES * at && len > SMALL_BYTES {
            return None;
        }
        let frame = self.frame(at, rest).ok();
        if frame.is_none() && len <= self.bounds.frame_bytes_max {
            self.wasted += len as u64;
        }
        frame
    }

    /// The frame at a place, which ends within `rest` bytes.
    fn frame(&mut self, at: u64, rest: u64) -> Result<SeenTurns, v1::FrameError> {
        let head = self.window.get(at, v1::HEADER_BYTES);
        if head.len() < v1::HEADER_BYTES || rest < v1::HEADER_BYTES as u64 {
            let have = head.len();
            let need = v1::HEADER_BYTES;
            return Err(v1::FrameError::Short { have, need });
        }
        let len = v1::len(head);
        if len < v1::HEADER_BYTES || len > self.bounds.frame_bytes_max || len as u64 > rest {
            return Err(v1::FrameError::Length { len });
        }
        v1::read(self.window.get(at, len)).map(|frame| SeenTurns::of(&frame))
    }

    fn rank(&self, at: u64, key: Option<ScanKey>) -> Rank {
        if self.hints.is_current(at) {
            return Rank::Current;
        }
        let is_unsure = match key {
            Some(ScanKey::Log(position)) => {
                self.hints.log.may_hold(position.into()) && self.hints.low.is_none_or(|low| low <= position)
            }
            Some(ScanKey::Kept(Holds::More, run)) => self.hints.more.may_hold(run),
            Some(ScanKey::Kept(_, run)) => self.hints.kept.may_hold(run),
            None => self.hints.is_any_unknown(),
        };
        if is_unsure { Rank::Unsure } else { Rank::Stale }
    }

    /// Notes a frame.
    fn push(&mut self, at: u64, frame: SeenTurns, piece: u32, rank: Rank) {
        if !self.share.has(frame.run) {
            return;
        }
        self.found.frames += 1;
        let turn_end = if frame.has(v1::TURN_LAST) {
            frame.sequence
        } else {
            0
        };
        if let Some(last) = self.found.stretches.last_mut()
            && last.run == frame.run
            && last.piece == piece
            && last.rank == rank
            && last.at + u64::from(last.bytes) == at
            && last.last.checked_add(1) == Some(frame.sequence)
            && (last.turn_end == last.last) == frame.has(v1::TURN_FIRST)
            && !last.closes
            && !frame.has(v1::OPENS)
            && let Some(bytes) = grown(last.bytes, frame.len)
        {
            last.last = frame.sequence;
            last.bytes = bytes;
            last.turn_end = last.turn_end.max(turn_end);
            last.closes = frame.has(v1::CLOSES);
            return;
        }
        self.found.stretches.push(ScanStretch {
            run: frame.run,
            at,
            first: frame.sequence,
            last: frame.sequence,
            turn_end,
            bytes: u32::try_from(frame.len).unwrap_or(u32::MAX),
            piece,
            rank,
            opens: frame.has(v1::OPENS),
            closes: frame.has(v1::CLOSES),
            begins: frame.has(v1::TURN_FIRST),
        });
    }

    fn damaged(&mut self, at: u64, piece: u32, of: Option<RunId>, cause: v1::FrameError) {
        if self.found.damaged.len() >= DAMAGED_LEN_MAX {
            self.found.damaged_more += 1;
            return;
        }
        let guess = v1::guess(self.window.get(at, v1::HEADER_BYTES));
        self.found.damaged.push(DamagedRange {
            at,
            position: self.found.position(piece, at),
            named: guess.and_then(|guess| guess.run),
            of,
            sequence: guess.map_or(0, |guess| guess.sequence),
            back: guess.map_or(v1::NO_BACK, |guess| guess.back),
            cause,
        });
    }
}

/// Where a walk continues.
enum ScanBehind {
    Frame(u64),
    /// Something else has replaced the piece.
    Other(u64),
}

enum Any {
    Frame(u64, SeenTurns),
    ScannedPiece(u64, usize),
}

fn grown(bytes: u32, by: usize) -> Option<u32> {
    bytes.checked_add(u32::try_from(by).ok()?)
}

fn key_of(key: &[u8]) -> Option<ScanKey> {
    let run = || Some(u128::from_le_bytes(*key.first_chunk()?));
    match key.len() {
        8 => Some(ScanKey::Log(u64::from_le_bytes(*key.first_chunk()?))),
        16 => Some(ScanKey::Kept(Holds::Kept, run()?)),
        24 => Some(ScanKey::Kept(Holds::More, run()?)),
        _ => None,
    }
}
