//! The parts that runs were trimmed of and that are not archived yet.
//!
//! ```text
//!   log:   ├── before ──┤T├─── before ───┤T├──── the run goes on
//!                        └── archived ──► gone, and the log may begin behind it
//! ```
//!
//! Invariants: the log begins before the first held trimming turn, so all that the held turns have trimmed their runs of is
//! still there, in the log or moved out of it. Parts are archived in the order of the log, and no later part of a run before
//! an earlier one.
//!
//! Without an archive no part is held.

use std::collections::VecDeque;

use millrun_core::RunId;
use rustc_hash::FxHashMap;

use super::queued::TrimTurn;

#[derive(Debug, Default)]
pub(crate) struct HeldTrims {
    /// Whether there is an archive.
    is_archiving: bool,
    /// In the order of the log.
    trims: VecDeque<TrimTurn>,
    /// Everything below this position of the log is archived.
    archived: u64,
    /// The same position as far as the store knows it.
    stored: u64,
    archived_parts: u64,
}

impl HeldTrims {
    /// For a store with an archive that has everything below this position of the log.
    pub(in crate::redb) fn archiving(archived: u64) -> Self {
        Self {
            is_archiving: true,
            archived,
            stored: archived,
            ..Self::default()
        }
    }

    /// Whether the records that this turn has trimmed its run of must be archived; then the turn is held.
    pub(in crate::redb) fn hold(&mut self, trim: &TrimTurn) -> bool {
        let is_held = self.is_archiving && trim.position >= self.archived;
        if is_held {
            self.trims.push_back(*trim);
        }
        is_held
    }

    pub(in crate::redb) fn len(&self) -> usize {
        self.trims.len()
    }

    pub(in crate::redb) fn is_empty(&self) -> bool {
        self.trims.is_empty()
    }

    /// The first held turns, at most `len_max`.
    pub(in crate::redb) fn first(&self, len_max: usize) -> Vec<TrimTurn> {
        self.trims.iter().take(len_max).copied().collect()
    }

    /// The position before which the log has to begin.
    pub(in crate::redb) fn log_begins_before(&self) -> Option<u64> {
        self.trims.front().map(|trim| trim.position)
    }

    /// Releases the first held turns: `archived` ones that are in the archive, and `damaged` ones that cannot get there.
    pub(in crate::redb) fn release(&mut self, archived: usize, damaged: usize) {
        let mut released = self.trims.drain(..(archived + damaged).min(self.trims.len()));
        if let Some(last) = released.next_back() {
            self.archived = last.position + 1;
        }
        self.archived_parts += archived as u64;
    }

    /// Removes what is held from `dead`, the positions before which nothing of a run is needed.
    pub(in crate::redb) fn keep(&self, dead: &mut FxHashMap<RunId, u64>) {
        // Of several turns of a run, the first one counts.
        for trim in self.trims.iter().rev() {
            if let Some(position) = dead.get_mut(&trim.run) {
                *position = trim.before.first;
            }
        }
    }

    /// The position below which everything is archived, if the store should be told.
    pub(in crate::redb) fn next_to_store(&mut self) -> Option<u64> {
        (self.stored < self.archived).then(|| {
            self.stored = self.archived;
            self.archived
        })
    }

    /// How many parts have been archived.
    pub(in crate::redb) fn archived_parts(&self) -> u64 {
        self.archived_parts
    }
}
