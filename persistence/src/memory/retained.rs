//! The retained finished runs with their histories, and the names of those dropped last.
//!
//! ```text
//!   by_id, by_run ─► number
//!            │
//!            ├─ block ─────────┬─ block ──────────┬─ block ──────────┬─ block (grows) ─┐
//!            │ runs: run, id, …│ runs: run, id, … │                  │                 │
//!            │                 │ bytes: frames …  │                  │                 │
//!            │                 │ large: frames    │                  │                 │
//!            └───▲─────────────┴──▲───────────────┴──────────────────┴─────────────────┘
//!            forgotten          first ─► retention                                    end
//! ```
//!
//! A store may keep millions of finished runs and seldom look at one: the data of each is written right after that of the one
//! before, so it costs no allocation and little cache. The frames of a block are freed at once when retention has dropped its
//! runs, and the names when the last of them is forgotten. Large frames are not copied: they stay in the buffer in which the
//! run gathered them, beside its block, and are freed with their run.
//!
//! The index finds the last run of a name until that run is forgotten. Each start asks for a run by its instance's name, so a
//! closing run is indexed under that name at once, in place of the run before; it is indexed under its own id only when a
//! caller asks for a run by id, which few do. Forgotten runs are not removed from the index: their numbers show that they
//! match no run.
//!
//! Memory: at most about twice the retained bytes, three blocks more, 64 bytes for each run that is retained or remembered,
//! and the index. A run that is copied into a block is at most a quarter of a block, so little of a block stays empty when
//! the next run begins another one; a buffer of large frames may be up to twice as large as its contents. Part of the first
//! block may be dropped already, the last block is being filled, and one is spare.
//!
//! Invariants: numbers have no gaps; `forgotten <= first <= end` and `indexed <= end`; the first `dropped` blocks have no
//! frames, and the block after them holds the first retained run, unless there is none; a block's bytes never move, and every
//! block has the same capacity.

use std::collections::VecDeque;

use millrun_core::{RunId, Sequence, Timestamp};

use crate::config::Retention;
use crate::finished::IdHash;
use crate::numbers::{self, Numbers};
use crate::record::FinishedRun;
use crate::scan;
use crate::wire::settled::run_hash;

/// The most bytes of frames in a block; it has this capacity from the beginning.
const BLOCK_BYTES: usize = 256 << 10;

/// The most runs in a block.
const BLOCK_LEN_MAX: usize = 4_096;

/// The frames of a run with more bytes are not copied into a block.
const COPY_BYTES_MAX: usize = BLOCK_BYTES / 4;

/// An index grows in parts of about `PART_LEN` names, at most `PARTS_MAX` parts.
const PART_LEN: usize = 1_024;
const PARTS_MAX: usize = 512;

#[derive(Debug)]
pub(super) struct RetainedRuns {
    retention: Retention,
    by_id: Numbers,
    /// The runs with numbers below `indexed`.
    by_run: Numbers,
    indexed: u64,
    blocks: VecDeque<RetainedBlock>,
    /// How many blocks hold only the names of dropped runs.
    dropped: usize,
    /// The number of the earliest run whose name is remembered.
    forgotten: u64,
    /// The number of the earliest retained run.
    first: u64,
    /// The number of the next run that closes.
    end: u64,
    /// The size of the records of the retained runs.
    bytes: u64,
    /// The memory of a freed block.
    spare: RetainedBlock,
}

/// Runs that closed one after the other.
#[derive(Debug, Default)]
struct RetainedBlock {
    /// The number of its first run.
    first: u64,
    runs: Vec<RetainedRun>,
    bytes: Vec<u8>,
    /// Frames that were too large to be copied, with the index of their run in `runs`, in order.
    large: VecDeque<(usize, Vec<u8>)>,
}

/// How a run has closed, or will have once its last turn is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Close {
    pub(super) run: RunId,
    pub(super) id: IdHash,
    pub(super) closed_at: Timestamp,
    /// Sequence of the last record.
    pub(super) head: Sequence,
    /// The kind of the last record.
    pub(super) kind: u8,
}

impl Close {
    /// The run as it is returned, with its frames.
    pub(super) fn found(self, frames: &[u8]) -> FinishedRun {
        FinishedRun::new(self.run, scan::own_instance_id(frames), self.closed_at, self.head)
    }
}

#[derive(Clone, Copy, Debug)]
struct RetainedRun {
    close: Close,
    /// Where its frames end in the block's bytes; if they are large, the block has none of them.
    end: usize,
}

/// What is known of a run that has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownRun<'a> {
    /// It is retained, with these frames.
    Retained(Close, &'a [u8]),
    /// It was dropped recently.
    Expired(RunId),
}

impl RetainedRuns {
    pub(super) fn new(retention: Retention) -> Self {
        let names = retention.len_max.saturating_add(retention.expired_len_max);
        let parts = (names / PART_LEN).min(PARTS_MAX);
        Self {
            retention,
            by_id: Numbers::in_parts(parts),
            by_run: Numbers::in_parts(parts),
            indexed: 0,
            blocks: VecDeque::new(),
            dropped: 0,
            forgotten: 0,
            first: 0,
            end: 0,
            bytes: 0,
            spare: RetainedBlock::default(),
        }
    }

    /// Adds the run that closed last, with its frames. Returns the buffer if the frames were copied.
    pub(super) fn add(&mut self, close: Close, frames: Vec<u8>) -> Option<Vec<u8>> {
        let names = names(&self.blocks, self.forgotten, self.end);
        self.by_id.put(
            close.id.bits(),
            numbers::lower(self.end),
            |half| names.of(half).is_some_and(|known| known.id == close.id),
            |half| names.has(half),
        );
        let last = self.blocks.iter_mut().skip(self.dropped).next_back();
        if !last.is_some_and(|block| block.has_room(frames.len())) {
            let block = self.block();
            self.blocks.push_back(block);
            self.drop_blocks();
        }
        self.end += 1;
        self.bytes += frames.len() as u64;
        let block = self.blocks.back_mut().expect("there is one with room");
        block.add(close, frames)
    }

    /// An empty block for the next run.
    fn block(&mut self) -> RetainedBlock {
        let mut block = std::mem::take(&mut self.spare);
        block.first = self.end;
        block.bytes.reserve_exact(BLOCK_BYTES);
        block
    }

    /// Drops the earliest runs until the bounds of retention hold at `now`; returns how many.
    pub(super) fn trim(&mut self, now: Timestamp) -> u64 {
        let before = self.first;
        while let Some(block) = self.blocks.get_mut(self.dropped) {
            let at = index(self.first - block.first);
            let Some(kept) = block.runs.get(at) else { break };
            let (len, closed_at) = (self.end - self.first, kept.close.closed_at);
            if self.retention.retains(now, closed_at, len, self.bytes) {
                break;
            }
            self.bytes -= block.frames(at).len() as u64;
            block.large.pop_front_if(|(large, _)| *large == at);
            self.first += 1;
            if self.first == block.end() {
                self.drop_blocks();
            }
        }
        let dropped = self.first - before;
        if dropped > 0 {
            self.forget();
        }
        dropped
    }

    /// Frees the blocks whose runs were all dropped, except the one that is being filled.
    fn drop_blocks(&mut self) {
        while self.dropped + 1 < self.blocks.len() {
            let block = &mut self.blocks[self.dropped];
            if block.end() > self.first {
                break;
            }
            let mut bytes = std::mem::take(&mut block.bytes);
            bytes.clear();
            self.spare.bytes = bytes;
            self.dropped += 1;
        }
    }

    /// Forgets the names that were dropped first, if there are too many.
    fn forget(&mut self) {
        let earliest = self.first.saturating_sub(self.retention.expired_len_max as u64);
        self.forgotten = self.forgotten.max(earliest);
        while self.dropped > 0
            && let Some(block) = self.blocks.pop_front_if(|block| block.end() <= earliest)
        {
            let mut runs = block.runs;
            runs.clear();
            self.spare.runs = runs;
            self.dropped -= 1;
        }
    }

    /// Indexes runs below the number `end` under their own ids, at most `most`; returns whether all are indexed.
    pub(super) fn index_runs(&mut self, end: u64, most: u64) -> bool {
        let end = end.min(self.end);
        let from = self.indexed.max(self.forgotten);
        self.indexed = end.min(from + most).max(from);
        let names = names(&self.blocks, self.forgotten, self.end);
        for number in from..self.indexed {
            let Some(close) = names.at(number) else { continue };
            self.by_run.put(
                run_hash(close.run),
                numbers::lower(number),
                |half| names.of(half).is_some_and(|known| known.run == close.run),
                |half| names.has(half),
            );
        }
        self.indexed >= end
    }

    /// What is known of a run that is [indexed](Self::index_runs).
    pub(super) fn run(&self, run: RunId) -> Option<KnownRun<'_>> {
        self.known(self.run_number(run)?)
    }

    /// What is known of the run of this instance that closed last, unless another id has the same hash.
    pub(super) fn latest(&self, id: IdHash) -> Option<KnownRun<'_>> {
        let is_it = |half: u32| self.names().of(half).is_some_and(|known| known.id == id);
        let half = self.by_id.find(id.bits(), is_it)?;
        self.known(self.names().number(half))
    }

    /// The number of a run that is retained and [indexed](Self::index_runs).
    pub(super) fn number(&self, run: RunId) -> Option<u64> {
        self.run_number(run).filter(|number| *number >= self.first)
    }

    fn run_number(&self, run: RunId) -> Option<u64> {
        let is_it = |half: u32| self.names().of(half).is_some_and(|known| known.run == run);
        let half = self.by_run.find(run_hash(run), is_it)?;
        Some(self.names().number(half))
    }

    /// The retained runs from the one with this number on, in the order of closing.
    pub(super) fn list(&self, from: u64) -> impl Iterator<Item = (Close, &[u8])> {
        let first = from.max(self.first);
        let skipped = self.blocks.partition_point(|block| block.end() <= first);
        self.blocks.range(skipped..).flat_map(move |block| {
            let from = index(first.saturating_sub(block.first));
            (from..block.runs.len()).map(|at| (block.runs[at].close, block.frames(at)))
        })
    }

    /// The retained runs before the one with this number, with their numbers, the latest closed first.
    pub(super) fn back_from(&self, before: u64) -> impl Iterator<Item = (u64, Close)> {
        let (first, before) = (self.first, before.min(self.end));
        let behind = self.blocks.partition_point(|block| block.first < before);
        let blocks = self.blocks.range(..behind).rev();
        let blocks = blocks.take_while(move |block| block.end() > first);
        blocks.flat_map(move |block| {
            let (from, to) = (first.max(block.first), before.min(block.end()));
            (from..to).rev().map(|number| {
                let at = index(number - block.first);
                (number, block.runs[at].close)
            })
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.end - self.first
    }

    /// The number of the next run.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn known(&self, number: u64) -> Option<KnownRun<'_>> {
        let (block, at) = self.names().stands(number)?;
        let close = block.runs[at].close;
        Some(match number < self.first {
            true => KnownRun::Expired(close.run),
            false => KnownRun::Retained(close, block.frames(at)),
        })
    }

    fn names(&self) -> RetainedNames<'_> {
        names(&self.blocks, self.forgotten, self.end)
    }
}

impl RetainedBlock {
    /// One more than the number of its last run.
    fn end(&self) -> u64 {
        self.first + self.runs.len() as u64
    }

    /// Whether one more run with `bytes` bytes of frames fits.
    fn has_room(&self, bytes: usize) -> bool {
        let is_copied = bytes <= COPY_BYTES_MAX;
        self.runs.len() < BLOCK_LEN_MAX && !(is_copied && self.bytes.len() + bytes > BLOCK_BYTES)
    }

    fn add(&mut self, close: Close, frames: Vec<u8>) -> Option<Vec<u8>> {
        let given_back = if frames.len() <= COPY_BYTES_MAX {
            self.bytes.extend_from_slice(&frames);
            Some(frames)
        } else {
            self.large.push_back((self.runs.len(), frames));
            None
        };
        let end = self.bytes.len();
        self.runs.push(RetainedRun { close, end });
        given_back
    }

    fn frames(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.runs[before].end);
        let copied = &self.bytes[start..self.runs[at].end];
        if copied.is_empty()
            && let Ok(place) = self.large.binary_search_by_key(&at, |(large, _)| *large)
        {
            return &self.large[place].1;
        }
        copied
    }
}

/// The remembered names, while the index changes.
#[derive(Clone, Copy)]
struct RetainedNames<'a> {
    blocks: &'a VecDeque<RetainedBlock>,
    /// The number of the earliest run.
    first: u64,
    /// One more than the number of the last run.
    end: u64,
}

fn names(blocks: &VecDeque<RetainedBlock>, first: u64, end: u64) -> RetainedNames<'_> {
    RetainedNames { blocks, first, end }
}

impl<'a> RetainedNames<'a> {
    /// The number with this lower half.
    fn number(self, half: u32) -> u64 {
        numbers::widened(self.first, half)
    }

    /// Whether the run whose number has this lower half is remembered.
    fn has(self, half: u32) -> bool {
        self.number(half) < self.end
    }

    /// The run whose number has this lower half.
    fn of(self, half: u32) -> Option<&'a Close> {
        self.at(self.number(half))
    }

    fn at(self, number: u64) -> Option<&'a Close> {
        let (block, at) = self.stands(number)?;
        Some(&block.runs[at].close)
    }

    /// Where a retained or remembered run is.
    fn stands(self, number: u64) -> Option<(&'a RetainedBlock, usize)> {
        if number < self.first {
            return None;
        }
        let behind = self.blocks.partition_point(|block| block.first <= number);
        let block = self.blocks.get(behind.checked_sub(1)?)?;
        let at = index(number - block.first);
        (at < block.runs.len()).then_some((block, at))
    }
}

/// Turns a number of runs in memory into an index.
fn index(number: u64) -> usize {
    usize::try_from(number).expect("no more than are in memory")
}

#[cfg(test)]
mod tests;
