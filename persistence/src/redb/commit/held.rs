//! What runs were trimmed of and the archive does not have yet.
//!
//! ```text
//!   log:   ├── before ──┤T├─── before ───┤T├──── the run goes on
//!                        └── archived ──► gone, and the log may begin behind it
//! ```
//!
//! Invariants: the log begins before the first of the turns that are held, so that what they have trimmed their runs of
//! is there as a whole, in the log or moved out of it; it is archived in the order of the log, and no
//! part of a run behind one that is not archived.
//!
//! Without an archive nothing is held.

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
    /// All below this position of the log is archived.
    archived: u64,
    /// As far as the store knows.
    stored: u64,
    archived_parts: u64,
}

impl HeldTrims {
    /// For a store with an archive that has all below this position of the log.
    pub(in crate::redb) fn archiving(archived: u64) -> Self {
        Self {
            is_archiving: true,
            archived,
            stored: archived,
            ..Self::default()
        }
    }

    /// Whether what this turn has trimmed its run of must be archived; then it is held.
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

    /// The first ones, `len_max` at most.
    pub(in crate::redb) fn first(&self, len_max: usize) -> Vec<TrimTurn> {
        self.trims.iter().take(len_max).copied().collect()
    }

    /// Before which position the log has to begin.
    pub(in crate::redb) fn log_begins_before(&self) -> Option<u64> {
        self.trims.front().map(|trim| trim.position)
    }

    /// Lets the first ones go: this number is archived, and this number damaged.
    pub(in crate::redb) fn release(&mut self, archived: usize, damaged: usize) {
        let mut released = self.trims.drain(..(archived + damaged).min(self.trims.len()));
        if let Some(last) = released.next_back() {
            self.archived = last.position + 1;
        }
        self.archived_parts += archived as u64;
    }

    /// Takes out of `dead`, the positions before which nothing of a run is needed, what is held.
    pub(in crate::redb) fn keep(&self, dead: &mut FxHashMap<RunId, u64>) {
        // Of several turns of a run, the first one.
        for trim in self.trims.iter().rev() {
            if let Some(position) = dead.get_mut(&trim.run) {
                *position = trim.before.first;
            }
        }
    }

    /// The position below which all is archived, if the store is to be told.
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
