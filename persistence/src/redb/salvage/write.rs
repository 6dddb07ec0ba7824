//! Writes the undamaged runs into a new store, one after the other.
//!
//! ```text
//!   parts ──► frames, each checked again ──► turns with new places ──► commits into store.new
//! ```
//!
//! Invariants: a record is copied unchanged, except for the place of its run's previous turn; a run is written completely or
//! not at all; some MiB are in memory, however long a history is.

use millrun_core::{InstanceId, RunId};

use super::runs::{SalvagedFrames, Whole};
use super::source::Bytes;
use crate::error::JournalFailure;
use crate::finished::IdHash;
use crate::redb::commit::queued::{Piece, Unlisted};
use crate::redb::database::moment::OpenedCount;
use crate::redb::database::store::{CopiedRows, Store};
use crate::wire::inventory::Listed;
use crate::wire::v1::{self, Frame};

/// How much is committed at a time.
const COMMIT_BYTES: usize = 4 << 20;

/// A new store that is being written.
pub(crate) struct SalvageTarget {
    store: Store,
    /// Where the committed log ends.
    end: u64,
    /// Frames that wait for the next commit.
    waiting: Vec<u8>,
    /// Their turns, for the inventory.
    listed: Vec<Listed>,
}

/// Why a run was not written.
pub(crate) enum Unwritten {
    /// Its records contradict each other.
    Contradiction(String),
    /// It was different when it was read again.
    Changed,
    Store(JournalFailure),
}

impl From<JournalFailure> for Unwritten {
    fn from(failure: JournalFailure) -> Self {
        Self::Store(failure)
    }
}

impl SalvageTarget {
    pub(crate) fn new(store: Store) -> Result<Self, JournalFailure> {
        store.count_open()?;
        Ok(Self {
            store,
            end: 0,
            waiting: Vec::new(),
            listed: Vec::new(),
        })
    }

    /// Writes a run; returns how many records it has.
    pub(crate) fn put<B: Bytes + ?Sized>(
        &mut self,
        bytes: &B,
        run: RunId,
        whole: &Whole,
    ) -> Result<u64, Unwritten> {
        let is_long = whole.bytes > COMMIT_BYTES as u64;
        if is_long {
            // Part of it will be committed before its end has been read.
            walk(bytes, run, whole, &mut |_, _| Ok(()))?;
        }
        let begin = (self.waiting.len(), self.listed.len());
        let mut back = v1::NO_BACK;
        let (mut id, mut first) = (IdHash::default(), 0);
        let written = walk(bytes, run, whole, &mut |found, frame| {
            let begins = frame.has(v1::TURN_FIRST);
            // A turn must be in one commit.
            if is_long && begins && self.waiting.len() > COMMIT_BYTES {
                self.commit()?;
            }
            let at = self.waiting.len();
            self.waiting.extend_from_slice(found);
            v1::set_back(&mut self.waiting[at..], if begins { back } else { v1::NO_BACK });
            if begins {
                back = self.end + at as u64;
                if let Some(opens) = frame.id {
                    (id, first) = (IdHash::of(opens), back);
                }
                self.listed.push(Listed {
                    position: back,
                    run,
                    last: 0,
                    closes: false,
                    id,
                    first,
                });
            }
            if let Some(turn) = self.listed.last_mut() {
                turn.last = u32::try_from(frame.sequence.get()).unwrap_or(u32::MAX);
                turn.closes = frame.has(v1::CLOSES);
            }
            Ok(())
        });
        match written {
            Ok(records) => {
                if self.waiting.len() > COMMIT_BYTES {
                    self.commit()?;
                }
                Ok(records)
            }
            Err(Unwritten::Contradiction(_)) if is_long => Err(Unwritten::Changed),
            Err(error) => {
                self.waiting.truncate(begin.0);
                self.listed.truncate(begin.1);
                Err(error)
            }
        }
    }

    fn commit(&mut self) -> Result<(), JournalFailure> {
        let piece = Piece {
            start: self.end,
            bytes: std::mem::take(&mut self.waiting),
            unlisted: Some(Unlisted {
                from: self.end,
                ..Unlisted::default()
            }),
            ..Piece::default()
        };
        self.store.commit_listing(&piece, &self.listed, None)?;
        self.end += piece.bytes.len() as u64;
        self.waiting = piece.bytes;
        self.waiting.clear();
        self.listed.clear();
        Ok(())
    }

    /// Commits the rest, and how often the source had been opened: later epochs are above its own.
    pub(crate) fn finish(mut self, opens: Option<u64>) -> Result<(), JournalFailure> {
        self.commit()?;
        let before = self.store.moment()?.opened()?.opens;
        let opens = opens.unwrap_or(0).max(before);
        self.store
            .put(&CopiedRows::default(), OpenedCount { opens, low: 0 })
    }
}

/// Gets the bytes of a frame, and the frame.
type Visit<'a> = dyn FnMut(&[u8], &Frame<'_>) -> Result<(), JournalFailure> + 'a;

/// Calls `visit` with each frame of a history; returns how many there are.
fn walk<B: Bytes + ?Sized>(
    bytes: &B,
    run: RunId,
    whole: &Whole,
    visit: &mut Visit<'_>,
) -> Result<u64, Unwritten> {
    let wrong = |cause: &str| Unwritten::Contradiction(cause.to_owned());
    let base = whole.parts.first().map_or(1, |part| part.from);
    let (mut records, mut is_in_turn, mut is_closed) = (base.saturating_sub(1), false, false);
    for part in &whole.parts {
        let mut frames = SalvagedFrames::of(bytes, &part.stretch);
        for sequence in part.from..=part.to {
            let Some((at, len)) = frames.find(sequence) else {
                return Err(wrong("a record is not where it was"));
            };
            let found = frames.window.get(at, len);
            let frame = v1::read(found).map_err(|error| Unwritten::Contradiction(error.to_string()))?;
            let begins = frame.has(v1::TURN_FIRST);
            if frame.run != run
                || records.checked_add(1) != Some(sequence)
                || begins == is_in_turn
                || is_closed
            {
                return Err(wrong("the records of its turns do not fit together"));
            }
            let (is_first, is_trimmed) = (sequence == base, sequence > 1);
            if frame.has(v1::OPENS) != is_first || frame.has(v1::TRIMS) != (is_first && is_trimmed) {
                return Err(wrong("its first record is not its first"));
            }
            if let Some(id) = frame.id {
                let id = InstanceId::new(id).map_err(|error| Unwritten::Contradiction(error.to_string()))?;
                if id.partition() != run.partition() {
                    return Err(wrong("its id does not belong to it"));
                }
            }
            visit(found, &frame)?;
            is_in_turn = !frame.has(v1::TURN_LAST);
            is_closed = frame.has(v1::CLOSES);
            records = sequence;
        }
    }
    if records < base || is_in_turn || is_closed != whole.is_closed {
        return Err(wrong("its last turn is cut off"));
    }
    Ok((records - base + 1).into())
}
