//! The finished runs that are retained, with their histories, and those dropped last, by name.
//!
//! ```text
//!   by_id, by_run ─► number
//!            │
//!            ├─ names ─────────┬─ block ──────────┬─ block ──────────┬─ block (grows) ─┐
//!            │ run, id         │ runs: run, id, … │                  │                 │
//!            │                 │ bytes: frames …  │                  │                 │
//!            │                 │ large: frames    │                  │                 │
//!            └─────────────────┴──────────────────┴──────────────────┴─────────────────┘
//!            forgotten         first ─► retention                                    end
//! ```
//!
//! A store may keep millions of them and seldom look at one: what is written for each lies behind what was
//! written for the one before, so that it costs no allocation and little of the caches, and goes with its
//! block, all at once. Large frames are not copied: they stay where the run has gathered them, beside its
//! block, and go with their run. The index tells the last run of a name, until that is forgotten: a run
//! is entered under its own name and its instance's, in the place of the one before.
//!
//! How much memory: at most about twice the bytes that are retained, three blocks more, and what the runs
//! and the index take. What a block copies is at most a quarter of it, so that little of it stays empty
//! when the next run begins another; the buffer of large frames has grown to up to twice what is in it. Of
//! the first block a part may be dropped already, the last is being filled, and one is spare.
//!
//! Invariants: numbers have no gaps; the first block holds the first that is retained, unless there is
//! none; a block's bytes never move, and have room for as many as any other's.

use std::collections::VecDeque;

use millrun_core::{RunId, Sequence, Timestamp};

use crate::config::Retention;
use crate::finished::IdHash;
use crate::numbers::{self, Numbers};
use crate::wire::settled::run_hash;

/// A block has at most so many bytes of frames, and has room for them from the beginning.
const BLOCK_BYTES: usize = 256 << 10;

/// A block has at most so many runs.
const BLOCK_LEN_MAX: usize = 4_096;

/// The frames of a run that has more bytes are not copied into a block.
const COPY_BYTES_MAX: usize = BLOCK_BYTES / 4;

/// In so many parts an index grows.
const INDEX_PARTS: usize = 512;

#[derive(Debug)]
pub(super) struct RetainedRuns {
    retention: Retention,
    by_run: Numbers,
    by_id: Numbers,
    /// Those that were dropped last.
    names: VecDeque<(RunId, IdHash)>,
    blocks: VecDeque<Block>,
    /// The number of the earliest that is retained.
    first: u64,
    /// The number of the next.
    end: u64,
    /// Size of the records of those that are retained.
    bytes: u64,
    /// The memory of a block that was dropped.
    spare: Option<Block>,
}

/// Some runs that closed one after the other.
#[derive(Debug, Default)]
struct Block {
    /// The number of the first.
    first: u64,
    runs: Vec<Kept>,
    bytes: Vec<u8>,
    /// Frames that were too large to be copied, with the place of their run in `runs`, in order.
    large: VecDeque<(usize, Vec<u8>)>,
}

/// How a run has closed, or will once its last turn is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Close {
    pub(super) run: RunId,
    pub(super) id: IdHash,
    pub(super) closed_at: Timestamp,
    /// Sequence of the last record.
    pub(super) head: Sequence,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    close: Close,
    /// Where its frames end in the block's bytes; it has none there if they are large.
    end: usize,
}

/// What is known of a run that has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known<'a> {
    /// It is retained: these are its frames.
    Retained(Close, &'a [u8]),
    /// It was dropped lately.
    Expired(RunId),
}

impl RetainedRuns {
    pub(super) fn new(retention: Retention) -> Self {
        Self {
            retention,
            by_run: Numbers::in_parts(INDEX_PARTS),
            by_id: Numbers::in_parts(INDEX_PARTS),
            names: VecDeque::new(),
            blocks: VecDeque::new(),
            first: 0,
            end: 0,
            bytes: 0,
            spare: None,
        }
    }

    /// Adds a run that has closed, the latest so far, with its frames. Gives the buffer back if it has
    /// copied them.
    pub(super) fn add(&mut self, close: Close, frames: Vec<u8>) -> Option<Vec<u8>> {
        let half = numbers::lower(self.end);
        let names = Names {
            names: &self.names,
            blocks: &self.blocks,
            first: self.first,
        };
        self.by_run.put(run_hash(close.run), half, |half| {
            names.of(half).is_some_and(|(run, _)| run == close.run)
        });
        self.by_id.put(close.id.bits(), half, |half| {
            names.of(half).is_some_and(|(_, id)| id == close.id)
        });
        let has_room = |block: &&mut Block| block.has_room(frames.len());
        if self.blocks.back_mut().filter(has_room).is_none() {
            let block = self.block();
            self.blocks.push_back(block);
        }
        self.end += 1;
        self.bytes += frames.len() as u64;
        let block = self.blocks.back_mut().expect("there is one with room");
        block.add(close, frames)
    }

    /// An empty block for the next run.
    fn block(&mut self) -> Block {
        let spare = self.spare.take();
        let mut block = spare.unwrap_or_else(|| Block {
            bytes: Vec::with_capacity(BLOCK_BYTES),
            ..Block::default()
        });
        block.first = self.end;
        block
    }

    /// Drops the earliest until the bounds of retention hold at `now`; returns how many.
    pub(super) fn trim(&mut self, now: Timestamp) -> u64 {
        let before = self.first;
        while let Some(block) = self.blocks.front_mut() {
            let at = index(self.first - block.first);
            let close = block.runs[at].close;
            let len = self.end - self.first;
            if self.retention.retains(now, close.closed_at, len, self.bytes) {
                break;
            }
            self.bytes -= block.frames(at).len() as u64;
            self.names.push_back((close.run, close.id));
            self.first += 1;
            block.large.pop_front_if(|(large, _)| *large == at);
            if at + 1 == block.runs.len() {
                self.drop_block();
            }
            if self.names.len() > self.retention.expired_len_max {
                self.forget();
            }
        }
        self.first - before
    }

    fn drop_block(&mut self) {
        let Some(mut block) = self.blocks.pop_front() else {
            return;
        };
        block.runs.clear();
        block.bytes.clear();
        block.large.clear();
        self.spare = Some(block);
    }

    /// Forgets the name of the one that was dropped first.
    fn forget(&mut self) {
        let half = numbers::lower(self.first - self.names.len() as u64);
        if let Some((run, id)) = self.names.pop_front() {
            self.by_run.remove(run_hash(run), half);
            self.by_id.remove(id.bits(), half);
        }
    }

    /// What is known of a run.
    pub(super) fn run(&self, run: RunId) -> Option<Known<'_>> {
        self.known(self.run_number(run)?)
    }

    /// What is known of the run of this instance that closed last, unless another id has the same hash.
    pub(super) fn latest(&self, id: IdHash) -> Option<Known<'_>> {
        let is_it = |half: u32| self.names().of(half).is_some_and(|(_, other)| other == id);
        let half = self.by_id.find(id.bits(), is_it)?;
        self.known(numbers::widened(self.names().forgotten(), half))
    }

    /// The number of a run that is retained.
    pub(super) fn number(&self, run: RunId) -> Option<u64> {
        self.run_number(run).filter(|number| *number >= self.first)
    }

    fn run_number(&self, run: RunId) -> Option<u64> {
        let is_it = |half: u32| self.names().of(half).is_some_and(|(other, _)| other == run);
        let half = self.by_run.find(run_hash(run), is_it)?;
        Some(numbers::widened(self.names().forgotten(), half))
    }

    /// Those that are retained, from the one with this number on, in the order of closing.
    pub(super) fn list(&self, from: u64) -> impl Iterator<Item = (Close, &[u8])> {
        let first = from.max(self.first);
        let skipped = self.blocks.partition_point(|block| block.end() <= first);
        self.blocks.iter().skip(skipped).flat_map(move |block| {
            let from = index(first.saturating_sub(block.first));
            (from..block.runs.len()).map(|at| (block.runs[at].close, block.frames(at)))
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.end - self.first
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn known(&self, number: u64) -> Option<Known<'_>> {
        if number < self.first {
            let (run, _) = self.names().at(number)?;
            return Some(Known::Expired(run));
        }
        let (block, at) = self.names().stands(number)?;
        Some(Known::Retained(block.runs[at].close, block.frames(at)))
    }

    fn names(&self) -> Names<'_> {
        Names {
            names: &self.names,
            blocks: &self.blocks,
            first: self.first,
        }
    }
}

impl Block {
    /// Behind the number of the last.
    fn end(&self) -> u64 {
        self.first + self.runs.len() as u64
    }

    /// Whether it takes one more run, with so many bytes of frames.
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
        self.runs.push(Kept { close, end });
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

/// All that are remembered, while the index changes.
#[derive(Clone, Copy)]
struct Names<'a> {
    names: &'a VecDeque<(RunId, IdHash)>,
    blocks: &'a VecDeque<Block>,
    first: u64,
}

impl<'a> Names<'a> {
    /// The number of the earliest.
    fn forgotten(&self) -> u64 {
        self.first - self.names.len() as u64
    }

    /// The one whose number has this lower half.
    fn of(&self, half: u32) -> Option<(RunId, IdHash)> {
        self.at(numbers::widened(self.forgotten(), half))
    }

    fn at(&self, number: u64) -> Option<(RunId, IdHash)> {
        if number < self.first {
            let place = number.checked_sub(self.forgotten())?;
            return self.names.get(index(place)).copied();
        }
        let (block, at) = self.stands(number)?;
        let close = &block.runs[at].close;
        Some((close.run, close.id))
    }

    /// Where a run stands that is retained.
    fn stands(&self, number: u64) -> Option<(&'a Block, usize)> {
        let behind = self.blocks.partition_point(|block| block.first <= number);
        let block = self.blocks.get(behind.checked_sub(1)?)?;
        let at = index(number - block.first);
        (at < block.runs.len()).then_some((block, at))
    }
}

/// A number of runs that are in memory.
fn index(number: u64) -> usize {
    usize::try_from(number).expect("no more than are in memory")
}

#[cfg(test)]
mod tests;
