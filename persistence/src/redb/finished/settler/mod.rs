//! Settles finished runs into sorted runs on disk, and merges these, a few rows with each commit.
//!
//! ```text
//!   waiting in memory ──flush──► sorted run of level 0 ─┐
//!                                eight of a level ──────┴─merge──► one of the next level
//! ```
//!
//! Rows are written ahead, step by step; what they mean is said by the manifest, which names them
//! only when they are complete, in the transaction that writes the last of them. So a crash at any
//! point leaves the manifest of before and some rows that nobody names; these go when the store is
//! opened again. Nothing here is needed to keep what was acknowledged: the log has all of it.
//!
//! Here one job at a time is begun, goes on with each commit and is finished; what a job does stands in
//! `flush` and `merge`, and what is merged in `choice`.

mod choice;
mod flush;
mod merge;

use std::collections::VecDeque;
use std::sync::Arc;

use self::choice::mergeable;
use self::flush::Flush;
use self::merge::Merge;
use crate::error::JournalFailure;
use crate::finished::{Finished, Place};
use crate::redb::database::moment::StoreMoment;
use crate::redb::finished::finished_runs::{FinishedRuns, Settled};
use crate::redb::finished::segment::Segment;
use crate::wire::settled::{self, Manifest, Pair};

/// From this many sorted runs on, a merge follows each flush, however many runs wait meanwhile.
const CROWDED_LEN: usize = 64;
/// The most rows that are removed at a time.
const REMOVED_LEN_MAX: usize = 64;
/// Bytes of a row of the index, for the budget.
const INDEX_ROW_BYTES: usize = 16_384;

/// What one commit writes of the index.
#[derive(Debug, Default)]
pub(crate) struct IndexStep {
    pub(crate) closed: Vec<(u64, Vec<u8>)>,
    pub(crate) index: Vec<(u64, Vec<u8>)>,
    pub(crate) closed_removed: Vec<u64>,
    pub(crate) index_removed: Vec<u64>,
    /// What is settled once the step is durable, if that changes.
    pub(crate) settled: Option<Settled>,
    pub(crate) manifest: Vec<u8>,
}

/// The rows in the store besides the manifest.
#[derive(Debug, Default)]
pub(crate) struct IndexRows {
    /// The keys of the rows of finished runs.
    pub(crate) closed: VecDeque<u64>,
    /// Rows that no manifest names.
    pub(crate) closed_orphans: Vec<u64>,
    pub(crate) index_orphans: Vec<u64>,
    /// The number of the next sorted run.
    pub(crate) next_segment: u64,
}

/// The writer's state of settling: the job under way.
#[derive(Debug)]
pub(crate) struct Settler {
    rows: IndexRows,
    job: Option<Job>,
    /// The job before was a flush.
    has_flushed: bool,
    /// Rows of sorted runs that were merged or are not needed any more.
    garbage: VecDeque<u64>,
}

/// What a job begins with.
#[derive(Debug)]
pub(crate) enum BeginJob {
    Flush {
        /// The number of the first run.
        number: u64,
        runs: Vec<Finished<Place>>,
        /// Where the log ended.
        position: u64,
    },
    Merge {
        inputs: Vec<Arc<Segment>>,
        from: u64,
    },
}

#[derive(Debug)]
enum Job {
    Flush(Flush),
    Merge(Merge),
}

impl Settler {
    pub(crate) fn new(mut rows: IndexRows) -> Self {
        let garbage = std::mem::take(&mut rows.index_orphans).into();
        Self {
            rows,
            job: None,
            has_flushed: false,
            garbage,
        }
    }

    /// What to begin next, if anything: a flush of all waiting runs if `len_min` of them wait or `is_wanted`, else a merge.
    /// Where runs close as fast as they are flushed, flushes and merges take turns once there are too many sorted runs. `end`
    /// is where the durable log ends. The choice is made under the journal's lock, and the job is begun with
    /// [`begin`](Self::begin) outside of it.
    pub(crate) fn next(
        &self,
        closed: &FinishedRuns,
        is_wanted: bool,
        end: u64,
        len_min: usize,
    ) -> Option<BeginJob> {
        if self.job.is_some() || !self.rows.closed_orphans.is_empty() || !self.garbage.is_empty() {
            return None;
        }
        let waiting = &closed.waiting;
        let is_flush_due = waiting.len() >= len_min as u64 || is_wanted;
        let is_merge_first = self.has_flushed && closed.settled.segments.len() >= CROWDED_LEN;
        if (!is_flush_due || is_merge_first)
            && let Some(inputs) = mergeable(closed, len_min)
        {
            let from = closed.forgotten();
            return Some(BeginJob::Merge { inputs, from });
        }
        let number = waiting.first();
        is_flush_due.then(|| BeginJob::Flush {
            number,
            runs: waiting.list(number).copied().collect(),
            position: end,
        })
    }

    pub(crate) fn begin(&mut self, begin: BeginJob) {
        let id = self.rows.next_segment;
        self.rows.next_segment += 1;
        self.has_flushed = matches!(begin, BeginJob::Flush { .. });
        self.job = Some(match begin {
            BeginJob::Flush {
                number,
                runs,
                position,
            } => Job::Flush(Flush::new(id, number, runs, position)),
            BeginJob::Merge { inputs, from } => Job::Merge(Merge::new(id, inputs, from)),
        });
    }

    /// Whether a step is due.
    pub(crate) fn is_due(&self, closed: &FinishedRuns) -> bool {
        let forgotten = closed.forgotten();
        let oldest = closed.settled.segments.first();
        self.job.is_some()
            || !self.garbage.is_empty()
            || !self.rows.closed_orphans.is_empty()
            || self.rows.closed.get(1).is_some_and(|next| *next <= forgotten)
            || oldest.is_some_and(|oldest| oldest.entry.end <= forgotten)
    }

    /// The rows of the next step, of about `bytes` bytes; [`IndexStep::settled`] has what they change.
    pub(crate) fn step(
        &mut self,
        moment: &StoreMoment,
        before: &Settled,
        forgotten: u64,
        bytes: usize,
    ) -> Result<IndexStep, JournalFailure> {
        let mut step = IndexStep {
            closed_removed: std::mem::take(&mut self.rows.closed_orphans),
            ..IndexStep::default()
        };
        while step.closed_removed.len() < REMOVED_LEN_MAX
            && self.rows.closed.get(1).is_some_and(|next| *next <= forgotten)
        {
            step.closed_removed.extend(self.rows.closed.pop_front());
        }
        let removed = self.garbage.len().min(REMOVED_LEN_MAX);
        step.index_removed.extend(self.garbage.drain(..removed));
        match &mut self.job {
            Some(Job::Flush(flush)) => {
                if flush.step(bytes, &mut step, &mut self.rows) {
                    self.finish(before, forgotten, &mut step);
                }
            }
            Some(Job::Merge(merge)) => {
                if merge.step(moment, bytes, &mut step)? {
                    self.finish(before, forgotten, &mut step);
                }
            }
            None => {
                if before
                    .segments
                    .first()
                    .is_some_and(|first| first.entry.end <= forgotten)
                {
                    self.finish(before, forgotten, &mut step);
                }
            }
        }
        Ok(step)
    }

    /// The job's rows are complete: returns what is settled now.
    fn finish(&mut self, before: &Settled, forgotten: u64, step: &mut IndexStep) {
        let mut after = before.clone();
        let mut segments: Vec<_> = before.segments.to_vec();
        match self.job.take() {
            Some(Job::Flush(flush)) => {
                after.position = after.position.max(flush.position);
                after.end = flush.number + flush.runs.len() as u64;
                if flush.segment.entry.rows > 0 {
                    segments.push(Arc::new(flush.segment));
                }
            }
            Some(Job::Merge(merge)) => {
                let is_input = |segment: &Arc<Segment>| {
                    merge
                        .inputs
                        .iter()
                        .any(|input| input.entry.id == segment.entry.id)
                };
                let at = segments.iter().position(is_input).unwrap_or(segments.len());
                segments.retain(|segment| !is_input(segment));
                if merge.segment.entry.rows > 0 {
                    segments.insert(at, Arc::new(merge.segment));
                }
                for input in &merge.inputs {
                    self.garbage
                        .extend((0..input.entry.rows).map(|row| input.key(row)));
                }
            }
            None => {}
        }
        segments.retain(|segment| {
            let is_kept = segment.entry.end > forgotten;
            if !is_kept {
                self.garbage
                    .extend((0..segment.entry.rows).map(|row| segment.key(row)));
            }
            is_kept
        });
        after.segments = Arc::new(segments);
        step.settled = Some(after);
    }

    /// Completes a step with the manifest that belongs to it. `first` and `bytes` are for the retained runs; runs below
    /// `archived` are archived.
    pub(crate) fn seal(
        &self,
        mut step: IndexStep,
        before: &Settled,
        (first, bytes, archived): (u64, u64, u64),
    ) -> IndexStep {
        let settled = step.settled.as_ref().unwrap_or(before);
        step.manifest = settled::manifest_row(&Manifest {
            position: settled.position,
            first,
            end: settled.end,
            bytes,
            next_segment: self.rows.next_segment,
            archived,
            segments: settled.segments.iter().map(|segment| segment.entry).collect(),
        });
        step
    }
}

/// Whether both are for runs of the same instance, of which only the later is needed.
fn is_older(earlier: Pair, later: Pair) -> bool {
    earlier.hash == later.hash && !earlier.is_run() && !later.is_run()
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, RunId, Sequence, Timestamp};

    use super::*;
    use crate::config::Retention;
    use crate::finished::IdHash;
    use crate::redb::commit::queued::Piece;
    use crate::redb::database::slice::Slice;
    use crate::redb::database::store::Store;
    use crate::redb::file::disk::FileDisk;

    /// As many runs close with each commit as are settled at once; without a fixed turn, merging would wait forever.
    #[test]
    fn sorted_runs_are_merged_however_many_runs_close_with_a_commit() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&folder.path().join("store")).unwrap();
        let store = Store::open(Arc::new(disk), 1 << 20).unwrap();
        store.count_open().unwrap();
        let mut closed = FinishedRuns::new(Retention::default(), Settled::default(), 0);
        let mut settler = Settler::new(IndexRows::default());
        let partition = Partition::from_index(0).unwrap();
        let (mut number, mut merges) = (0, 0);
        for _ in 0..500 {
            for _ in 0..20 {
                number += 1;
                closed.waiting.add(Finished {
                    run: RunId::new(partition, Timestamp::EPOCH, number),
                    id: IdHash::from_bits(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                    closed_at: Timestamp::EPOCH,
                    head: Sequence::new(1),
                    kind: None,
                    bytes: 1,
                    place: Place::default(),
                });
            }
            if let Some(begin) = settler.next(&closed, false, 0, 10) {
                merges += u32::from(matches!(begin, BeginJob::Merge { .. }));
                settler.begin(begin);
            }
            let before = closed.settled.clone();
            let moment = store.moment().unwrap();
            let step = settler.step(&moment, &before, 0, 65_536).unwrap();
            drop(moment);
            let index = settler.seal(step, &before, (0, 0, 0));
            let mut slice = Slice {
                index,
                ..Slice::default()
            };
            store.commit(&Piece::default(), Some(&slice)).unwrap();
            if let Some(settled) = slice.index.settled.take() {
                closed.settle(settled);
            }
            let (sorted, waiting) = (closed.settled.segments.len(), closed.waiting.len());
            assert!(
                sorted <= 2 * CROWDED_LEN,
                "{sorted} sorted runs after {number} runs"
            );
            assert!(waiting < 2_000, "{waiting} wait after {number} runs");
        }
        assert!(merges > 1, "{merges} merges");
    }
}
