//! Access to the journal's file without the journal, for programs that measure what the journal costs (feature `floor`).
//!
//! ```text
//!   TurnTemplate ──► log bytes ──► rows ──► redb table LOG_TABLE, behind FIRST_PAGE_BYTES of the file
//!                                   ▲                         │
//!                             Lingering says when      zeroed_ahead disk
//! ```
//!
//! [`RedbJournal`](crate::RedbJournal) can read a log that was written with these functions. They check no heads, epochs or
//! ids: a caller that breaks the journal's rules writes a log that the journal refuses.

use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Host, RunId, Timestamp};

use crate::batch::Batch;
use crate::error::StoreError;
use crate::redb::commit::convoy::{Convoy, ConvoyDecision};
use crate::redb::database::slice;
use crate::redb::file::disk::Disk;
use crate::redb::opening::open;
use crate::wire::{superblock, v1};

/// The journal's own first page; redb's file begins behind it.
pub const FIRST_PAGE_BYTES: u64 = superblock::BYTES as u64;

/// The name of the table of the log. Its keys are positions (`u64`), its values bytes.
pub const LOG_TABLE: &str = crate::redb::LOG_TABLE;

/// The frames of one turn, written many times with different runs, times and places in the log.
#[derive(Debug)]
pub struct TurnTemplate {
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<usize>,
    is_sealed: bool,
}

impl TurnTemplate {
    /// The turns of `batch`, as one. If `is_sealed` is not set, their checksums are left out, as in a journal without a disk.
    #[must_use]
    pub fn new(batch: &Batch, is_sealed: bool) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for span in batch.spans() {
            bytes.extend_from_slice(batch.frames(span));
        }
        let mut end = 0;
        while end < bytes.len() {
            end += v1::len(&bytes[end..]);
            ends.push(end);
        }
        Self {
            bytes,
            ends,
            is_sealed,
        }
    }

    /// The bytes of the frames as they were given, in which a caller looks for places to fill in.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends the turn to a log. `back` is the position of the run's previous turn, and `fill` writes whatever else differs
    /// from the template into the frames, without changing a length.
    #[inline]
    pub fn put(
        &self,
        log: &mut Vec<u8>,
        (run, time): (RunId, Timestamp),
        back: Option<u64>,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let start = log.len();
        log.extend_from_slice(&self.bytes);
        let turn = &mut log[start..];
        fill(turn);
        let mut begin = 0;
        for end in &self.ends {
            let frame = &mut turn[begin..*end];
            v1::set_run(frame, run, time);
            if self.is_sealed {
                v1::seal(frame);
            }
            begin = *end;
        }
        v1::set_back(turn, back.unwrap_or(v1::NO_BACK));
    }
}

/// Cuts a stretch of the log into rows as the journal does: `put` gets the place of each in `frames`, and its
/// bytes.
///
/// # Errors
/// The first error of `put`.
pub fn rows<E>(frames: &[u8], mut put: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
    let (mut at, mut row) = (0, Vec::new());
    while at < frames.len() {
        let (len, count) = slice::cut(&frames[at..]);
        slice::lay_out(&mut row, &[&frames[at..at + len]], count);
        put(at as u64, &row)?;
        at += len;
    }
    Ok(())
}

/// Decides when the journal would commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lingering(Convoy);

/// What a writer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// It commits what is queued.
    Commit,
    /// The writer waits: it looks again after this time, or when this many turns are queued.
    Wait(Duration, usize),
    /// It looks again when anything is queued.
    Idle,
}

impl Lingering {
    /// Notes a commit: how many batches and turns it had, that it ended at `now` and took `took`, and how many turns were
    /// queued then.
    pub fn committed(&mut self, batches: (usize, usize), queued: usize, took: Duration, now: Duration) {
        self.0.committed(batches, queued, took, now);
    }

    /// What the writer does at `now`, given the number of queued turns.
    #[must_use]
    pub fn decide(&self, queued: usize, now: Duration) -> Linger {
        match self.0.decide(queued, now) {
            ConvoyDecision::Commit => Linger::Commit,
            ConvoyDecision::Wait { time, turns } => Linger::Wait(time, turns),
            ConvoyDecision::Idle => Linger::Idle,
        }
    }
}

/// The disk, with `bytes` bytes ahead of its writes kept zeroed by a part on `host`, as the journal does for its own file.
/// The part ends when the disk is dropped.
///
/// # Errors
/// When the length of the file cannot be read, or the host refuses the part.
pub fn zeroed_ahead(disk: Arc<dyn Disk>, bytes: u64, host: &dyn Host) -> Result<Arc<dyn Disk>, StoreError> {
    open::zeroed_ahead(disk, "the floor".as_ref(), bytes, host)
}
