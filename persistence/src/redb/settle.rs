//! Lets go of the log's dead beginning, a slice at a time.
//!
//! ```text
//!   low                    slice end                                  end
//!   ├──────────────────────┼──────────────────────────────────────────┤
//!   │ dead │ needed │ dead │ the log goes on                          │
//!   └──────┴───┬────┴──────┴──────────────────────────────────────────┘
//!              └──► table of kept turns, one row per run
//! ```
//!
//! A slice leaves in the same transaction as a commit, so it costs no sync of its own. Turns of
//! runs that are live, retained or quarantined are moved; each turn is moved once. Kept turns
//! of a run that retention has dropped go before, or with, the next slice: otherwise a crash could
//! find the beginning of a run whose end is gone.
//!
//! Damaged rows are never dropped: settling stops before them until the store is mended.

use std::collections::HashSet;

use millrun_core::RunId;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::log;
use super::shared::Shared;
use super::state::State;
use super::store::{Slice, Snapshot, Store};
use crate::error::JournalFailure;
use crate::wire::{piece, v1};

/// How much of the log goes at a time: this share of `dead_bytes_max` (1 MiB by default), and at
/// least a page.
const SLICE_SHARE: u64 = 64;
const SLICE_BYTES_MIN: u64 = 4_096;
/// How many kept rows are removed at a time, at most.
const GONE_LEN_MAX: usize = 1_024;

/// Plans the next slice; `None` if none is due. `bytes` are about to be appended: the slice is
/// larger than that, so that settling keeps up.
pub(crate) fn plan(store: &Store, shared: &Shared, bytes: usize) -> Result<Option<Slice>, JournalFailure> {
    let (low, end, gone) = {
        let mut state = shared.lock();
        if state.is_settling_blocked || !state.is_settling_due(shared.config.dead_bytes_max) {
            return Ok(None);
        }
        let from = state.gone.len().saturating_sub(GONE_LEN_MAX);
        let gone = state.gone.split_off(from);
        if !state.gone.is_empty() {
            // All of them must have gone before the log's beginning may.
            return Ok(Some(Slice {
                low: state.low,
                gone,
                ..Slice::default()
            }));
        }
        (state.low, state.durable_end(), gone)
    };
    let slice_bytes = (shared.config.dead_bytes_max / SLICE_SHARE)
        .max(SLICE_BYTES_MIN)
        .max(2 * bytes as u64);
    let Some(rows) = rows(&store.snapshot()?, low, end, slice_bytes)? else {
        let mut state = shared.lock();
        state.is_settling_blocked = true;
        state.gone.extend(gone);
        return Ok(None);
    };
    let mut runs: HashSet<RunId, FxBuildHasher> = HashSet::default();
    for (key, row) in &rows {
        log::walk(*key, row, &mut |_, found| {
            if let Ok((frame, _)) = found {
                runs.insert(frame.run);
            }
        });
    }
    {
        let state = shared.lock();
        runs.retain(|run| state.is_needed(*run));
    }
    let mut moved: FxHashMap<RunId, Vec<u8>> = FxHashMap::default();
    let mut low = low;
    for (key, row) in &rows {
        log::walk(*key, row, &mut |_, found| {
            if let Ok((frame, bytes)) = found
                && runs.contains(&frame.run)
            {
                moved.entry(frame.run).or_default().extend_from_slice(bytes);
            }
        });
        low = key + (row.len() - piece::HEADER_BYTES) as u64;
    }
    let mut moved: Vec<_> = moved.into_iter().collect();
    moved.sort_unstable_by_key(|(run, _)| *run);
    Ok(Some(Slice {
        low,
        rows: rows.iter().map(|(key, _)| *key).collect(),
        moved,
        gone,
    }))
}

/// Notes that a slice has left, after the commit that it left with.
pub(crate) fn done(slice: &Slice, state: &mut State) {
    state.low = slice.low;
    for (run, frames) in &slice.moved {
        let (last, bytes) = (last_sequence(frames), frames.len() as u64);
        state.moved(*run, last, bytes);
    }
}

/// Rows with their keys.
type Rows = Vec<(u64, Vec<u8>)>;

/// Copies the first rows of the log, at least `bytes` of them and up to the end of a turn; `None`
/// if one of them is damaged.
fn rows(store: &Snapshot, low: u64, end: u64, bytes: u64) -> Result<Option<Rows>, JournalFailure> {
    let mut rows = Vec::new();
    let (mut total, mut is_damaged, mut is_between_turns) = (0, false, true);
    store.rows(low, &mut |key, row| {
        if (total >= bytes && is_between_turns) || key >= end {
            return false;
        }
        log::walk(key, row, &mut |_, found| match found {
            Ok((frame, _)) => is_between_turns = frame.has(v1::TURN_LAST),
            Err(_) => is_damaged = true,
        });
        total += row.len() as u64;
        rows.push((key, row.to_vec()));
        !is_damaged
    })?;
    Ok((!is_damaged).then_some(rows))
}

fn last_sequence(mut frames: &[u8]) -> u32 {
    let mut last = 0;
    while let Ok(frame) = v1::read(frames) {
        last = u32::try_from(frame.sequence.get()).expect("a frame holds 32 bits of sequence");
        frames = &frames[frame.len..];
    }
    last
}
