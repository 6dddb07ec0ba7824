//! What a commit does beside writing its turns: it removes a slice of the log's dead beginning, and writes a step of the
//! index of finished runs.
//!
//! ```text
//!   low                    slice end                 settled       end
//!   ├──────────────────────┼─────────────────────────┼─────────────┤
//!   │ dead │ needed │ dead │ the log goes on         │ closings not│
//!   └──────┴───┬────┴──────┴─────────────────────────┴─settled yet─┘
//!              └──► table of kept turns, one row per run
//! ```
//!
//! A slice is removed in the same transaction as a commit, so it costs no extra sync. Turns of runs that are live, retained
//! or quarantined are moved; each turn is moved once. Kept turns of a run that retention has dropped are removed before, or
//! with, the next slice: otherwise a crash could find the beginning of a run whose end is gone. No slice reaches beyond what
//! is settled: so what is known of finished runs is in the log or in settled rows at every moment. The same holds for the
//! kept turns of a run that was trimmed since: without the rest of its records, which are in the log, they would look like
//! the whole run.
//!
//! Damaged rows are never dropped: settling stops before them until the store is repaired.

use millrun_core::RunId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::JournalFailure;
use crate::redb::database::moment::StoreMoment;
use crate::redb::database::slice::Slice;
use crate::redb::database::store::Store;
use crate::redb::finished::finished_runs::{self, Settled};
use crate::redb::finished::settler::{IndexRows, IndexStep, Settler};
use crate::redb::records::frames;
use crate::redb::shared::JournalShared;
use crate::redb::state::JournalState;
use crate::wire::{piece, v1};

/// How many kept rows are removed at a time, at most.
const GONE_LEN_MAX: usize = 1_024;

/// The writer's part of settling.
#[derive(Debug)]
pub(crate) struct Settling {
    settler: Settler,
    /// The log cannot be shortened until more of the index is settled.
    is_index_wanted: bool,
    /// How many runs had closed when the last plan was made.
    closed: u64,
    /// More finished runs wait than may be held in memory.
    is_behind: bool,
    /// An upkeep is under way: each commit does as much of this work as it may.
    is_hurried: bool,
    planned: Planned,
}

/// How far the plan for the next commit has come. It is made in parts, so that a batch that comes meanwhile waits for at most
/// one part.
#[derive(Debug, Default)]
enum Planned {
    #[default]
    Nothing,
    /// The rows that retention needs next have been read.
    Ahead,
    /// What is removed from the log is planned; nothing of the index yet.
    Log(Option<LogSlice>),
    Whole(Option<Slice>),
}

/// About what a finished run costs in the index until it is dropped: a row's place, and three merges.
const INDEX_BYTES_PER_RUN: u64 = 256;
/// How many bytes of the index a commit writes, however few runs have closed in it.
const INDEX_STEP_BYTES: usize = 32 << 10;
/// When this many times `unsettled_len_max` runs wait to be settled, commits settle twice as many as have closed, at any
/// cost: memory is bounded, but the duration of a commit that closes hundreds of runs is not.
const BEHIND: u64 = 24;
/// How far after a slice the ends of its runs are looked for.
const LOOK_AHEAD_BYTES: u64 = 128 << 10;
/// A commit of an upkeep does about as much work on the log and the index as a commit that appends this number of bytes.
const UPKEEP_STEP_BYTES: usize = 1 << 20;
/// A slice of the log is larger than what is about to be appended by this fraction of the excess.
const EXCESS_SHARE: u64 = 16;

/// Frames that are moved out of the log, per run and in order.
type Moved = Vec<(RunId, Vec<u8>)>;

/// What is removed from the log, as far as it has been planned.
#[derive(Debug, Default)]
struct LogSlice {
    /// Where the log begins afterwards.
    low: u64,
    rows: Vec<u64>,
    moved: Moved,
    gone: Vec<RunId>,
}

impl Settling {
    pub(crate) fn new(rows: IndexRows) -> Self {
        Self {
            settler: Settler::new(rows),
            is_index_wanted: false,
            closed: 0,
            is_behind: false,
            is_hurried: false,
            planned: Planned::Nothing,
        }
    }

    /// Whether the plan for the next commit is complete.
    pub(crate) fn is_planned(&self) -> bool {
        matches!(self.planned, Planned::Whole(_))
    }

    /// Whether each commit must settle what is due, at any cost: more finished runs wait than may be held in memory.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Whether the plan so far has anything that must be committed. A plan without is dropped.
    pub(crate) fn has_slice(&mut self) -> bool {
        let has_slice = matches!(self.planned, Planned::Log(Some(_)) | Planned::Whole(Some(_)));
        if !has_slice {
            self.planned = Planned::Nothing;
        }
        has_slice
    }

    /// Plans the whole work of the next commit, as much as an upkeep does at once.
    pub(crate) fn plan_upkeep(
        &mut self,
        store: &Store,
        shared: &JournalShared,
    ) -> Result<(), JournalFailure> {
        self.is_hurried = true;
        let mut planned = Ok(());
        while planned.is_ok() && !self.is_planned() {
            planned = self.plan_on(store, shared, UPKEEP_STEP_BYTES);
        }
        self.is_hurried = false;
        planned
    }

    /// Plans the next part of the next commit's work. `bytes` are about to be appended: the work grows with that, and with
    /// the number of runs that closed since the last plan, so that settling keeps up. It is limited to that, so that each
    /// commit does its share and none a large one.
    pub(crate) fn plan_on(
        &mut self,
        store: &Store,
        shared: &JournalShared,
        bytes: usize,
    ) -> Result<(), JournalFailure> {
        self.planned = match std::mem::take(&mut self.planned) {
            Planned::Nothing => {
                load_ahead(store, shared)?;
                Planned::Ahead
            }
            Planned::Ahead => Planned::Log(self.plan_log(store, shared, bytes)?),
            Planned::Log(log) => Planned::Whole(self.plan_index(store, shared, log, bytes)?),
            whole @ Planned::Whole(_) => whole,
        };
        Ok(())
    }

    /// The plan for the commit that is made now; `None` if nothing is due, or nothing has been planned.
    pub(crate) fn take(&mut self, shared: &JournalShared) -> Option<Slice> {
        match std::mem::take(&mut self.planned) {
            Planned::Nothing | Planned::Ahead | Planned::Log(None) => None,
            Planned::Log(log) => {
                let settled = shared.lock().finished.settled.clone();
                Some(self.slice(shared, log, IndexStep::default(), &settled))
            }
            Planned::Whole(slice) => slice,
        }
    }

    fn plan_index(
        &mut self,
        store: &Store,
        shared: &JournalShared,
        log: Option<LogSlice>,
        bytes: usize,
    ) -> Result<Option<Slice>, JournalFailure> {
        let (begin, forgotten, newly) = {
            let state = shared.lock();
            let len_min = shared.config.store.unsettled_len_max;
            let begin = self.settler.next(
                &state.finished,
                self.is_index_wanted,
                state.durable_end(),
                len_min,
            );
            let closed = state.finished.end();
            let newly = closed - std::mem::replace(&mut self.closed, closed).min(closed);
            self.is_behind = state.finished.waiting.len() > BEHIND.saturating_mul(len_min as u64);
            (begin, state.finished.forgotten(), newly)
        };
        if let Some(begin) = begin {
            self.settler.begin(begin);
        }
        let settled = {
            let state = shared.lock();
            if log.is_none() && !self.settler.is_due(&state.finished) {
                return Ok(None);
            }
            state.finished.settled.clone()
        };
        let share = usize::try_from(newly * INDEX_BYTES_PER_RUN).unwrap_or(usize::MAX);
        let most = shared.config.store.settle_bytes_max.max(bytes / 2);
        let bytes = if self.is_behind || self.is_hurried {
            share.saturating_mul(2).max(most)
        } else {
            share.max(INDEX_STEP_BYTES).min(most)
        };
        let step = self.settler.step(&store.moment()?, &settled, forgotten, bytes)?;
        Ok(Some(self.slice(shared, log, step, &settled)))
    }

    /// What is removed from the log and written to the index, with the manifest that belongs to both.
    fn slice(
        &self,
        shared: &JournalShared,
        log: Option<LogSlice>,
        step: IndexStep,
        settled: &Settled,
    ) -> Slice {
        let state = shared.lock();
        let end = step.settled.as_ref().map_or(settled.end, |after| after.end);
        // Runs that were dropped before they were settled are dropped again after a crash.
        let closed = &state.finished;
        let retained = (
            closed.first().min(end),
            closed.bytes_below(end),
            closed.archived().min(end),
        );
        let low = state.low;
        drop(state);
        let step = self.settler.seal(step, settled, retained);
        let log = log.unwrap_or(LogSlice {
            low,
            ..LogSlice::default()
        });
        Slice {
            low: log.low,
            rows: log.rows,
            moved: log.moved,
            gone: log.gone,
            index: step,
        }
    }

    fn plan_log(
        &mut self,
        store: &Store,
        shared: &JournalShared,
        bytes: usize,
    ) -> Result<Option<LogSlice>, JournalFailure> {
        self.is_index_wanted = false;
        let (bounds, gone, excess) = {
            let mut state = shared.lock();
            let excess = state.excess(shared.config.store.dead_bytes_max);
            let is_due = !state.is_settling_blocked && excess > 0;
            if !is_due && state.gone.is_empty() {
                return Ok(None);
            }
            let from = state.gone.len().saturating_sub(GONE_LEN_MAX);
            let gone = state.gone.split_off(from);
            let only_gone = LogSlice {
                low: state.low,
                gone,
                ..LogSlice::default()
            };
            // All of them must be removed before the log's beginning may be.
            if !is_due || !state.gone.is_empty() {
                return Ok(Some(only_gone));
            }
            let settled = state.finished.settled.position;
            if state.low >= settled {
                self.is_index_wanted = true;
                return Ok((!only_gone.gone.is_empty()).then_some(only_gone));
            }
            let held = state.held().log_begins_before();
            ((state.low, settled, held), only_gone.gone, excess)
        };
        let most = shared.config.store.settle_bytes_max.max(2 * bytes) as u64;
        let slice_bytes = (bytes as u64 + excess / EXCESS_SHARE).min(most);
        let moment = store.moment()?;
        load_earliest(&moment, shared);
        let Some(slice) = LogBeginning::read(&moment, bounds, slice_bytes)? else {
            let mut state = shared.lock();
            state.block_settling();
            state.gone.extend(gone);
            return Ok(None);
        };
        if slice.rows.is_empty() {
            let low = bounds.0;
            return Ok((!gone.is_empty()).then(|| LogSlice {
                low,
                gone,
                ..LogSlice::default()
            }));
        }
        let moved = match needed(&moment, shared, &slice)? {
            Some(needed) => slice.turns_of(&moment, &needed, shared)?,
            None => None,
        };
        let Some(moved) = moved else {
            let mut state = shared.lock();
            state.block_settling();
            state.gone.extend(gone);
            return Ok(None);
        };
        Ok(Some(LogSlice {
            low: slice.end,
            moved,
            rows: slice.rows,
            gone,
        }))
    }
}

/// Reads the row of the earliest settled run, if it is wanted.
fn load_earliest(moment: &StoreMoment, shared: &JournalShared) {
    let wanted = shared.lock().finished.wanted();
    if let Some(number) = wanted {
        let row = finished_runs::row(moment, number);
        shared.lock().finished.load(row);
    }
}

/// Reads rows that retention will need soon; while a caller waits for a commit, retention only drops runs that are in memory.
fn load_ahead(store: &Store, shared: &JournalShared) -> Result<(), JournalFailure> {
    let mut wanted = shared.lock().finished.wanted_ahead();
    while let Some(number) = wanted {
        // A row that cannot be read is reported when retention comes to it.
        let Ok(row) = finished_runs::row(&store.moment()?, number) else {
            return Ok(());
        };
        let mut state = shared.lock();
        state.finished.load(Ok(row));
        wanted = state.finished.wanted_ahead().filter(|next| *next > number);
    }
    Ok(())
}

/// Notes that a slice has been removed, after its commit. `removed` bytes of kept turns were removed with it.
pub(crate) fn done(slice: &mut Slice, removed: u64, state: &mut JournalState) {
    state.begins_at(slice.low);
    let moved: u64 = slice.moved.iter().map(|(_, frames)| frames.len() as u64).sum();
    state.kept_bytes = (state.kept_bytes + moved).saturating_sub(removed);
    if let Some(settled) = slice.index.settled.take() {
        state.finished.settle(settled);
    }
}

/// The beginning of the log that is about to be removed.
struct LogBeginning {
    /// The keys of its rows.
    rows: Vec<u64>,
    end: u64,
    /// The runs in it, with where they close if that is inside of it.
    runs: FxHashMap<RunId, Option<u64>>,
}

impl LogBeginning {
    /// Reads the first rows of the log, at least `bytes` bytes and up to the end of a turn, but no row that reaches beyond
    /// the position `held`; `None` if one of them is damaged.
    fn read(
        moment: &StoreMoment,
        (low, end, held): (u64, u64, Option<u64>),
        bytes: u64,
    ) -> Result<Option<Self>, JournalFailure> {
        let mut beginning = Self {
            rows: Vec::new(),
            end: low,
            runs: FxHashMap::default(),
        };
        let (mut total, mut is_damaged, mut is_between_turns, mut last) = (0, false, true, None);
        // The end of the last whole turn.
        let mut whole = (0, low);
        moment.rows(low, &mut |key, row| {
            let row_end = key + row.len().saturating_sub(piece::HEADER_BYTES) as u64;
            let is_held = held.is_some_and(|held| row_end > held);
            if (total >= bytes && is_between_turns) || key >= end || is_held {
                return false;
            }
            frames::walk(key, row, &mut |position, found| match found {
                Ok((frame, _)) => {
                    is_between_turns = frame.has(v1::TURN_LAST);
                    // The frames of a turn follow each other.
                    if last != Some(frame.run) || frame.has(v1::CLOSES) {
                        let closes = beginning.runs.entry(frame.run).or_default();
                        if frame.has(v1::CLOSES) {
                            *closes = Some(position);
                        }
                        last = Some(frame.run);
                    }
                }
                Err(_) => is_damaged = true,
            });
            total += row.len() as u64;
            beginning.end = row_end;
            beginning.rows.push(key);
            if is_between_turns {
                whole = (beginning.rows.len(), row_end);
            }
            !is_damaged
        })?;
        if held.is_some() {
            beginning.rows.truncate(whole.0);
            beginning.end = whole.1;
        }
        Ok((!is_damaged).then_some(beginning))
    }

    /// The frames of these runs, in order, without what the runs were trimmed of; `None` if a row is damaged. The rows are
    /// read and checked again for this: mostly nothing in them is needed.
    fn turns_of(
        &self,
        moment: &StoreMoment,
        runs: &FxHashSet<RunId>,
        shared: &JournalShared,
    ) -> Result<Option<Moved>, JournalFailure> {
        let trims = shared.lock().trimmed(runs);
        let mut moved: FxHashMap<RunId, Vec<u8>> = FxHashMap::default();
        let (Some(first), false) = (self.rows.first(), runs.is_empty()) else {
            return Ok(Some(Vec::new()));
        };
        let mut is_damaged = false;
        moment.rows(*first, &mut |key, row| {
            if key >= self.end {
                return false;
            }
            let is_dead =
                |run: &RunId, position: u64| trims.get(run).is_some_and(|trimmed| position < *trimmed);
            frames::walk(key, row, &mut |position, found| match found {
                Ok((frame, _)) if is_dead(&frame.run, position) => {}
                Ok((frame, bytes)) if runs.contains(&frame.run) => {
                    moved.entry(frame.run).or_default().extend_from_slice(bytes);
                }
                Ok(_) => {}
                Err(_) => is_damaged = true,
            });
            !is_damaged
        })?;
        let mut moved: Vec<_> = moved.into_iter().collect();
        moved.sort_unstable_by_key(|(run, _)| *run);
        Ok((!is_damaged).then_some(moved))
    }
}

/// Removes from `runs` those whose last record comes soon after `from`, with its position: most runs of a slice that do not
/// end in it do. Asking the index for each costs much more.
fn close_soon(
    moment: &StoreMoment,
    from: u64,
    runs: &mut FxHashSet<RunId>,
    found: &mut dyn FnMut(RunId, u64),
) -> Result<(), JournalFailure> {
    if runs.is_empty() {
        return Ok(());
    }
    moment.rows(from, &mut |key, row| {
        if key < from {
            return true;
        }
        let frames = piece::frames(row);
        let mut at = 0;
        while let Some(Ok((run, len))) = frames.get(at..).map(v1::peek) {
            if let Some(run) = RunId::from_bits(run)
                && runs.contains(&run)
                && let Ok(frame) = v1::read(&frames[at..])
                && frame.has(v1::CLOSES)
            {
                runs.remove(&run);
                found(run, key + at as u64);
            }
            at += len;
        }
        !runs.is_empty() && key - from < LOOK_AHEAD_BYTES
    })
}

/// Which runs of a slice are live, retained or quarantined; `None` if that is not known.
fn needed(
    moment: &StoreMoment,
    shared: &JournalShared,
    slice: &LogBeginning,
) -> Result<Option<FxHashSet<RunId>>, JournalFailure> {
    let mut needed = FxHashSet::default();
    let mut unknown = FxHashSet::default();
    let state = shared.lock();
    let Some(dropped_below) = state.finished.dropped_below() else {
        return Ok(None);
    };
    for (run, closes) in &slice.runs {
        let is_needed = match closes {
            // Runs close in the order of the log, and retention drops them in that order.
            Some(position) => *position >= dropped_below || state.damaged.has(*run),
            None if state.is_unsettled(*run) => true,
            // It closes after the slice, where nothing has been dropped.
            None if dropped_below <= slice.end => true,
            None => {
                unknown.insert(*run);
                false
            }
        };
        if is_needed {
            needed.insert(*run);
        }
    }
    let lookup = state.finished.lookup();
    if !unknown.is_empty() {
        let finishing = state.finishing_runs();
        unknown.retain(|run| {
            if finishing.contains(run) {
                needed.insert(*run);
                return false;
            }
            true
        });
    }
    drop(state);
    close_soon(moment, slice.end, &mut unknown, &mut |run, position| {
        if position >= dropped_below {
            needed.insert(run);
        }
    })?;
    for run in unknown {
        if lookup.may_retain(run) && lookup.run(moment, run)?.is_some_and(|found| !found.is_expired) {
            needed.insert(run);
        }
    }
    Ok(Some(needed))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use millrun_core::{Epoch, InstanceId, Sequence, Timestamp};

    use super::*;
    use crate::batch::{Batch, TurnHeader};
    use crate::redb::commit::queued::Piece;
    use crate::redb::file::disk::FileDisk;

    /// Three commits; the second one holds a turn that needs many rows.
    #[test]
    fn a_slice_ends_with_a_whole_turn_before_what_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&folder.path().join("store")).unwrap();
        let store = Store::open(Arc::new(disk), 1 << 20).unwrap();
        store.count_open().unwrap();
        let id = InstanceId::new("long").unwrap();
        let run = RunId::new(id.partition(), Timestamp::EPOCH, 1);
        let (mut ends, mut head) = (vec![0], 0);
        for records in [1, 400, 1] {
            let mut batch = Batch::new();
            let mut writer = batch.turn(TurnHeader {
                run,
                head: Sequence::new(head),
                epoch: Epoch::new(1),
                time: Timestamp::EPOCH,
                opens: (head == 0).then_some(&id),
            });
            for _ in 0..records {
                let body = |bytes: &mut Vec<u8>| {
                    bytes.resize(bytes.len() + 900, 7);
                    Ok::<_, Infallible>(())
                };
                writer.record(1, body).unwrap();
            }
            writer.finish(false).unwrap();
            head += records;
            let start = *ends.last().unwrap();
            let bytes = batch.frames(&batch.spans()[0]).to_vec();
            ends.push(start + bytes.len() as u64);
            let piece = Piece {
                start,
                bytes,
                ..Piece::default()
            };
            store.commit(&piece, None).unwrap();
        }
        let moment = store.moment().unwrap();
        let end_before = |held| {
            let read = LogBeginning::read(&moment, (0, u64::MAX, held), u64::MAX);
            read.unwrap().unwrap().end
        };
        assert_eq!(end_before(None), ends[3]);
        assert_eq!(end_before(Some(ends[3])), ends[3]);
        assert_eq!(end_before(Some(ends[3] - 1)), ends[2]);
        assert_eq!(end_before(Some(ends[2])), ends[2]);
        assert_eq!(end_before(Some(ends[2] - 1)), ends[1]);
        assert_eq!(end_before(Some(ends[1] + 70_000)), ends[1]);
        assert_eq!(end_before(Some(ends[1] - 1)), 0);
    }
}
