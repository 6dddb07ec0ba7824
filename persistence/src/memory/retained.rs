//! The finished runs that are retained, with their histories, and those dropped last, by name.
//!
//! ```text
//!   by_id, by_run ─► number
//!            │
//!            ├─ names ─────────┬─ block ──────────┬─ block ──────────┬─ block (grows) ─┐
//!            │ run, id         │ runs: run, id, … │                  │                 │
//!            │                 │ bytes: frames …  │                  │                 │
//!            └─────────────────┴──────────────────┴──────────────────┴─────────────────┘
//!            forgotten         first ─► retention                                    end
//! ```
//!
//! A store may keep millions of them and seldom look at one: what is written for each lies behind what was
//! written for the one before, so that it costs no allocation and little of the caches, and goes with its
//! block, all at once. A name is entered in the index once, and stands there until it is forgotten.
//!
//! Invariants: numbers have no gaps; the first block holds the first that is retained, unless there is
//! none; a block's bytes never move.

use std::collections::VecDeque;
use std::hint::black_box;

use millrun_core::{RunId, Sequence, Timestamp};

use crate::config::Retention;
use crate::finished::IdHash;
use crate::numbers::{self, Numbers};
use crate::wire::settled::run_hash;

/// A block has so many bytes of frames, or those of one run that has more.
const BLOCK_BYTES: usize = 256 << 10;

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
}

/// A run that has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) run: RunId,
    pub(super) id: IdHash,
    pub(super) closed_at: Timestamp,
    /// Sequence of the last record.
    pub(super) head: Sequence,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    closed: Closed,
    /// Where its frames end in the block.
    end: usize,
}

/// What is known of a run that has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known<'a> {
    /// It is retained: these are its frames.
    Retained(Closed, &'a [u8]),
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

    /// Asks for the memory in which these will be entered, of all of them at once.
    pub(super) fn expect<'a>(&self, closing: impl Iterator<Item = &'a Closed>) {
        let fetched = closing
            .map(|closed| self.by_run.fetch(run_hash(closed.run)) ^ self.by_id.fetch(closed.id.bits()));
        black_box(fetched.fold(0, |all, some| all ^ some));
    }

    /// Adds a run that has closed, the latest so far, with its frames.
    pub(super) fn add(&mut self, closed: Closed, frames: &[u8]) {
        let (number, half) = (self.end, numbers::lower(self.end));
        let names = Names {
            names: &self.names,
            blocks: &self.blocks,
            first: self.first,
        };
        self.by_run.put(run_hash(closed.run), half, |half| {
            names.of(half).is_some_and(|(run, _)| run == closed.run)
        });
        self.by_id.put(closed.id.bits(), half, |half| {
            names.of(half).is_some_and(|(_, id)| id == closed.id)
        });
        let has_room = |block: &&mut Block| block.bytes.len() + frames.len() <= block.bytes.capacity();
        if self.blocks.back_mut().filter(has_room).is_none() {
            let block = self.block(number, frames.len());
            self.blocks.push_back(block);
        }
        let block = self.blocks.back_mut().expect("there is one with room");
        block.bytes.extend_from_slice(frames);
        let end = block.bytes.len();
        block.runs.push(Kept { closed, end });
        self.end += 1;
        self.bytes += frames.len() as u64;
    }

    /// An empty block with room for so many bytes.
    fn block(&mut self, first: u64, bytes: usize) -> Block {
        let spare = self.spare.take().filter(|_| bytes <= BLOCK_BYTES);
        let mut block = spare.unwrap_or_else(|| Block {
            bytes: Vec::with_capacity(bytes.max(BLOCK_BYTES)),
            ..Block::default()
        });
        block.first = first;
        block
    }

    /// Drops the earliest until the bounds of retention hold at `now`; returns how many.
    pub(super) fn trim(&mut self, now: Timestamp) -> u64 {
        let before = self.first;
        while let Some(block) = self.blocks.front() {
            let at = index(self.first - block.first);
            let closed = block.runs[at].closed;
            if self
                .retention
                .retains(now, closed.closed_at, self.len(), self.bytes)
            {
                break;
            }
            self.bytes -= block.frames(at).len() as u64;
            self.names.push_back((closed.run, closed.id));
            self.first += 1;
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
        // A larger one goes, so that what is kept has a bound.
        if block.bytes.capacity() == BLOCK_BYTES {
            block.runs.clear();
            block.bytes.clear();
            self.spare = Some(block);
        }
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
    pub(super) fn list(&self, from: u64) -> impl Iterator<Item = (Closed, &[u8])> {
        let first = from.max(self.first);
        let skipped = self.blocks.partition_point(|block| block.end() <= first);
        self.blocks.iter().skip(skipped).flat_map(move |block| {
            let from = index(first.saturating_sub(block.first));
            (from..block.runs.len()).map(|at| (block.runs[at].closed, block.frames(at)))
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
        Some(Known::Retained(block.runs[at].closed, block.frames(at)))
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

    fn frames(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.runs[before].end);
        &self.bytes[start..self.runs[at].end]
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
        let closed = &block.runs[at].closed;
        Some((closed.run, closed.id))
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
mod tests {
    use std::time::Duration;

    use millrun_core::Partition;

    use super::*;
    use crate::finished::{Expired, Finished, FinishedIndex};

    fn run(number: u64) -> RunId {
        RunId::new(Partition::from_index(0).unwrap(), Timestamp::EPOCH, number)
    }

    /// The same as an index of all that are retained, and one of names.
    struct Model {
        retention: Retention,
        finished: FinishedIndex<Vec<u8>>,
        expired: Expired,
    }

    impl Model {
        fn add(&mut self, closed: Closed, frames: &[u8]) {
            self.finished.add(Finished {
                run: closed.run,
                id: closed.id,
                closed_at: closed.closed_at,
                head: closed.head,
                bytes: frames.len() as u64,
                place: frames.to_vec(),
            });
        }

        fn trim(&mut self, now: Timestamp) -> u64 {
            let mut dropped = 0;
            while let Some(earliest) = self.finished.earliest()
                && !self.retention.retains(
                    now,
                    earliest.closed_at,
                    self.finished.len(),
                    self.finished.bytes(),
                )
                && let Some(gone) = self.finished.drop_earliest()
            {
                self.expired.add(gone.run, gone.id);
                dropped += 1;
            }
            dropped
        }

        fn known(found: Option<&Finished<Vec<u8>>>, expired: Option<RunId>) -> Option<Known<'_>> {
            let retained = found.map(|finished| Known::Retained(closed(finished), &finished.place));
            retained.or(expired.map(Known::Expired))
        }
    }

    fn closed(finished: &Finished<Vec<u8>>) -> Closed {
        Closed {
            run: finished.run,
            id: finished.id,
            closed_at: finished.closed_at,
            head: finished.head,
        }
    }

    fn compare(retention: Retention, frames_len: impl Fn(u64) -> usize) {
        let mut retained = RetainedRuns::new(retention);
        let mut model = Model {
            retention,
            finished: FinishedIndex::new(0),
            expired: Expired::new(retention.expired_len_max),
        };
        for number in 0..400 {
            // Of each id several runs follow each other, not far apart and far apart.
            let id = IdHash::of(&format!("{}", number % 13 * (number / 100)));
            let now = Timestamp::from_micros(1_000 * number);
            let closed_run = Closed {
                run: run(number),
                id,
                closed_at: now,
                head: Sequence::new(number),
            };
            let frames = vec![u8::try_from(number % 251).unwrap(); frames_len(number)];
            retained.add(closed_run, &frames);
            model.add(closed_run, &frames);
            assert_eq!(retained.trim(now), model.trim(now));
            assert_eq!(
                (retained.len(), retained.bytes()),
                (model.finished.len(), model.finished.bytes())
            );
            for other in 0..=number + 1 {
                let (found, expired) = (model.finished.run(run(other)), model.expired.has_run(run(other)));
                let expected = Model::known(found, expired.then_some(run(other)));
                assert_eq!(retained.run(run(other)), expected, "{other} at {number}");
                assert_eq!(retained.number(run(other)), model.finished.number(run(other)));
            }
            for name in 0..40 {
                let id = IdHash::of(&format!("{name}"));
                let expected = Model::known(model.finished.latest(id), model.expired.latest(id));
                assert_eq!(retained.latest(id), expected, "{name} at {number}");
            }
            for from in [0, number / 2, number, number + 1] {
                let expected = model.finished.list(from);
                let expected = expected.map(|finished| (closed(finished), &finished.place[..]));
                assert!(retained.list(from).eq(expected), "from {from} at {number}");
            }
        }
    }

    #[test]
    fn what_is_retained_and_what_is_remembered_is_that_of_two_separate_lists() {
        let retention = Retention {
            age_max: Duration::MAX,
            len_max: 50,
            bytes_max: u64::MAX,
            expired_len_max: 30,
        };
        compare(retention, |number| 100 + index(number % 7));
        // Blocks of some runs, and of one.
        compare(retention, |number| match number % 9 {
            0 => BLOCK_BYTES + 1,
            1 => 0,
            _ => 40_000,
        });
        let by_bytes = Retention {
            len_max: usize::MAX,
            bytes_max: 1_000_000,
            ..retention
        };
        compare(by_bytes, |number| 30_000 + 20_000 * index(number / 50));
        let by_age = Retention {
            len_max: usize::MAX,
            age_max: Duration::from_millis(20),
            expired_len_max: 0,
            ..retention
        };
        compare(by_age, |_| 100_000);
        let none = Retention {
            len_max: 0,
            ..retention
        };
        compare(none, |_| 10);
    }

    #[test]
    fn blocks_go_as_soon_as_none_of_their_runs_is_retained() {
        let retention = Retention {
            len_max: 10,
            ..Retention::default()
        };
        let mut retained = RetainedRuns::new(retention);
        for number in 0..200 {
            let closed = Closed {
                run: run(number),
                id: IdHash::of("a"),
                closed_at: Timestamp::EPOCH,
                head: Sequence::new(1),
            };
            retained.add(closed, &[0; 50_000]);
            retained.trim(Timestamp::EPOCH);
            // Five fit in a block: two of those that are retained stand in parts of blocks at most.
            assert!(retained.blocks.len() <= 3, "{number}");
            assert!(
                retained
                    .blocks
                    .iter()
                    .all(|block| block.bytes.capacity() == BLOCK_BYTES)
            );
        }
    }
}
