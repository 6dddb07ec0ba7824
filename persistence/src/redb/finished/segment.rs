//! A sorted run: an immutable part of the index of finished runs, in rows on disk.
//!
//! ```text
//!   in memory   fences: the first hash of each row · filters: 22 bits per id, 10 per run
//!   on disk     │ row 0: hash ─► number, … │ row 1 │ row 2 │
//! ```
//!
//! Each finished run is in one sorted run twice: under the hash of its own id, and under that of its instance's id. If a
//! sorted run holds several runs of one instance, only the latest is under the instance's id.
//!
//! Each start of an instance asks all filters for its id, which is mostly new: one false "may be" makes the start wait for a
//! reader thread, which is woken and reads a row of the index for nothing. A run's own id is asked for seldom, and by callers
//! that read anyway, so its filter has fewer bits. Both together take four bytes per run.

use super::filter::{RunFilter, Sought};
use crate::error::ReadError;
use crate::redb::database::moment::StoreMoment;
use crate::wire::settled::{self, PAIRS_PER_ROW, Pair, SegmentEntry, SettledError};

const BITS_PER_ID: usize = 22;
const BITS_PER_RUN: usize = 10;

/// The part of a sorted run that is in memory.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) entry: SegmentEntry,
    fences: Vec<u64>,
    ids: RunFilter,
    runs: RunFilter,
}

/// Which hash to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Run,
    Id,
}

impl Segment {
    /// An empty sorted run that will have about `pairs` pairs.
    pub(crate) fn new(id: u64, base: u64, end: u64, level: u32, pairs: usize) -> Self {
        Self {
            entry: SegmentEntry {
                id,
                base,
                end,
                pairs: 0,
                rows: 0,
                level,
            },
            fences: Vec::with_capacity(pairs.div_ceil(PAIRS_PER_ROW)),
            ids: RunFilter::with_capacity(pairs.div_ceil(2), BITS_PER_ID),
            runs: RunFilter::with_capacity(pairs.div_ceil(2), BITS_PER_RUN),
        }
    }

    /// Adds the next row; returns its key.
    pub(crate) fn push(&mut self, pairs: &[Pair]) -> u64 {
        let key = self.key(self.entry.rows);
        self.fences.extend(pairs.first().map(|pair| pair.hash));
        for pair in pairs {
            let filter = if pair.is_run() {
                &mut self.runs
            } else {
                &mut self.ids
            };
            filter.insert(pair.hash);
        }
        self.entry.pairs += pairs.len() as u64;
        self.entry.rows += 1;
        key
    }

    pub(crate) fn may_contain(&self, sought: &Sought, by: By) -> bool {
        let filter = match by {
            By::Run => &self.runs,
            By::Id => &self.ids,
        };
        filter.may_contain(sought)
    }

    /// The numbers under a hash, the greatest first.
    pub(crate) fn find(&self, moment: &StoreMoment, hash: u64, by: By) -> Result<Vec<u64>, ReadError> {
        let mut found = Vec::new();
        if !self.may_contain(&Sought::new(hash), by) {
            return Ok(found);
        }
        // Equal hashes may begin at the end of the row before.
        let before = self.fences.partition_point(|fence| *fence < hash);
        for (index, fence) in self.fences.iter().enumerate().skip(before.saturating_sub(1)) {
            if *fence > hash {
                break;
            }
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let equal = self.read(moment, index, |row| settled::find_index(row, hash))?;
            let numbers = equal
                .into_iter()
                .filter(|pair| pair.is_run() == (by == By::Run))
                .map(|pair| self.entry.base + u64::from(pair.relative()));
            found.extend(numbers);
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        Ok(found)
    }

    /// Reads one row.
    pub(crate) fn row(&self, moment: &StoreMoment, index: u32) -> Result<Vec<Pair>, ReadError> {
        self.read(moment, index, settled::read_index)
    }

    fn read(
        &self,
        moment: &StoreMoment,
        index: u32,
        read: impl FnOnce(&[u8]) -> Result<(u64, Vec<Pair>), SettledError>,
    ) -> Result<Vec<Pair>, ReadError> {
        match moment.index_row(self.key(index), read)? {
            Some(Ok((base, pairs))) if base == self.entry.base => Ok(pairs),
            Some(Err(error)) => Err(damaged(&error.to_string())),
            _ => Err(damaged("a row is missing")),
        }
    }

    /// The key of a row. Room for 16 million rows.
    pub(crate) fn key(&self, row: u32) -> u64 {
        key(self.entry.id, row)
    }

    /// Memory held.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let filters = self.ids.memory_bytes() + self.runs.memory_bytes();
        filters + (self.fences.capacity() * size_of::<u64>() + size_of::<Self>()) as u64
    }
}

/// The key of a row of the sorted run `id`.
pub(crate) fn key(id: u64, row: u32) -> u64 {
    id << 24 | u64::from(row)
}

/// The error that the index is damaged: it is rebuilt from the log when the store is opened again.
pub(crate) fn damaged(cause: &str) -> ReadError {
    ReadError::Damaged {
        run: None,
        position: 0,
        cause: format!("the index of finished runs: {cause}; opening the store again rebuilds it"),
    }
}
