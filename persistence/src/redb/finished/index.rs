//! Reads and checks the settled finished runs when a store is opened.
//!
//! ```text
//!   manifest ──► sorted runs: rows ──► fences and filters in memory
//!            └─► finished runs: rows ──► checked, summed up
//!   rows that the manifest does not name ──► orphans of a crash, to be removed
//! ```
//!
//! A single mismatch makes the whole index worthless, which costs time but no data: it is deleted, and finished runs are
//! found in the log again.

use std::collections::HashSet;
use std::sync::Arc;

use millrun_core::RunId;
use rustc_hash::FxHashSet;

use super::finished_runs::{self, Settled};
use super::outline::Outlines;
use super::segment::{Segment, damaged};
use super::settler::IndexRows;
use crate::error::ReadError;
use crate::redb::database::moment::StoreMoment;
use crate::wire::settled::{self, Manifest, SegmentEntry};

/// What is settled.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) settled: Settled,
    /// The number of the earliest retained run.
    pub(crate) first: u64,
    /// Runs below this number are archived.
    pub(crate) archived: u64,
    pub(crate) rows: IndexRows,
    /// Of the settled runs.
    pub(crate) outlines: Outlines,
    /// Whether there is a manifest: then finished runs in the kept rows are settled, or dropped.
    pub(crate) is_begun: bool,
}

impl Index {
    /// Reads and checks all of it.
    ///
    /// # Errors
    /// `Damaged` when the index must be deleted, `Failed` when the store cannot be read.
    pub(crate) fn read(moment: &StoreMoment) -> Result<Self, ReadError> {
        let (closed_keys, index_keys) = moment.settled_keys()?;
        let Some(row) = moment.manifest()? else {
            return Ok(Self {
                rows: IndexRows {
                    closed_orphans: closed_keys,
                    index_orphans: index_keys,
                    ..IndexRows::default()
                },
                ..Self::default()
            });
        };
        let manifest = settled::read_manifest(&row).map_err(|error| damaged(&error.to_string()))?;
        if manifest.first > manifest.end {
            return Err(damaged("the manifest contradicts itself"));
        }
        let mut segments = Vec::with_capacity(manifest.segments.len());
        for entry in &manifest.segments {
            segments.push(Arc::new(segment(moment, entry)?));
        }
        let (mut bytes, mut outlines) = (0, Outlines::default());
        finished_runs::each(moment, (manifest.first, manifest.end), &mut |number, finished| {
            bytes += finished.bytes;
            outlines.add(number, &finished);
            true
        })?;
        let named: HashSet<u64> = segments
            .iter()
            .flat_map(|segment| (0..segment.entry.rows).map(|row| segment.key(row)))
            .collect();
        let (closed, closed_orphans): (Vec<_>, Vec<_>) =
            closed_keys.into_iter().partition(|key| *key < manifest.end);
        let rows = IndexRows {
            closed: closed.into(),
            closed_orphans,
            index_orphans: index_keys
                .into_iter()
                .filter(|key| !named.contains(key))
                .collect(),
            next_segment: manifest.next_segment,
        };
        let Manifest {
            position,
            first,
            end,
            archived,
            ..
        } = manifest;
        Ok(Self {
            settled: Settled {
                segments: Arc::new(segments),
                position,
                end,
                bytes,
            },
            first,
            archived,
            rows,
            outlines,
            is_begun: true,
        })
    }

    /// Removes the runs that are settled and retained from `runs`.
    pub(crate) fn remove_retained(
        &self,
        moment: &StoreMoment,
        runs: &mut FxHashSet<RunId>,
    ) -> Result<(), ReadError> {
        if runs.is_empty() {
            return Ok(());
        }
        finished_runs::each(moment, (self.first, self.settled.end), &mut |_, finished| {
            runs.remove(&finished.run);
            !runs.is_empty()
        })
    }
}

/// Reads the rows of a sorted run to build its fences and its filter.
fn segment(moment: &StoreMoment, entry: &SegmentEntry) -> Result<Segment, ReadError> {
    let pairs = usize::try_from(entry.pairs).unwrap_or(usize::MAX);
    let rows_max = usize::try_from(entry.rows).unwrap_or(usize::MAX);
    // The size in the manifest is not trusted for allocating memory.
    let pairs_max = rows_max.saturating_mul(settled::PAIRS_PER_ROW);
    if pairs > pairs_max || entry.base > entry.end {
        return Err(damaged("the manifest contradicts itself"));
    }
    let mut segment = Segment::new(entry.id, entry.base, entry.end, entry.level, pairs);
    for row in 0..entry.rows {
        let pairs = segment.row(moment, row)?;
        segment.push(&pairs);
    }
    if segment.entry == *entry {
        Ok(segment)
    } else {
        Err(damaged("a sorted run is not as the manifest says"))
    }
}
