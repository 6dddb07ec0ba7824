//! The turns that a journal has acknowledged and not written yet, where it acknowledges before it commits.
//!
//! ```text
//!   store: rows of the log │ sealed piece │ open piece          what is read in a relaxed mode ends here ──┐
//!                          │◄────────── unwritten ────────────────────────────────────────────────────────►│
//! ```
//!
//! A reader must find all that was acknowledged to its caller. So a run's queued turns are copied for it, as rows that
//! continue those of the store, and finished runs are found by their id and run before their commit.
//!
//! Left out: a durable journal acknowledges nothing before it is written, and needs none of this.

use millrun_core::RunId;
use rustc_hash::FxHashMap;

use crate::finished::{Finished, IdHash, Place};
use crate::redb::commit::queued::Piece;
use crate::wire::{piece, v1};

/// The runs whose last turn is acknowledged and not written.
#[derive(Debug, Default)]
pub(in crate::redb) struct UnwrittenRuns {
    runs: FxHashMap<RunId, Finished<Place>>,
    /// The latest of each instance.
    latest: FxHashMap<IdHash, RunId>,
}

impl UnwrittenRuns {
    /// A run has closed in the piece that is being filled.
    pub(in crate::redb) fn add(&mut self, finished: Finished<Place>) {
        self.latest.insert(finished.id, finished.run);
        self.runs.insert(finished.run, finished);
    }

    /// The piece in which the run has closed is in the store.
    pub(in crate::redb) fn remove(&mut self, finished: &Finished<Place>) {
        self.runs.remove(&finished.run);
        if self.latest.get(&finished.id) == Some(&finished.run) {
            self.latest.remove(&finished.id);
        }
    }

    pub(in crate::redb) fn run(&self, run: RunId) -> Option<&Finished<Place>> {
        self.runs.get(&run)
    }

    /// The run of an instance that finished last.
    pub(in crate::redb) fn latest(&self, id: IdHash) -> Option<&Finished<Place>> {
        self.run(*self.latest.get(&id)?)
    }
}

/// Rows of the log by their positions: one turn in each.
pub(in crate::redb) type UnwrittenRows = Vec<(u64, Vec<u8>)>;

/// The turns of a run that are in these pieces, the last first, found by their back-pointers from its place on. Turns that
/// are in the store already are left out.
pub(in crate::redb) fn rows_of(place: &Place, pieces: &[&Piece]) -> UnwrittenRows {
    let (mut rows, mut position) = (Vec::new(), place.last);
    while let Some(bytes) = pieces.iter().find_map(|piece| piece.at(position)) {
        let Some(back) = v1::back(bytes) else { break };
        rows.push((position, row_of_turn(bytes)));
        if position == place.first || back >= position {
            break;
        }
        position = back;
    }
    rows
}

/// A row that holds the turn with which these bytes begin.
fn row_of_turn(bytes: &[u8]) -> Vec<u8> {
    let (mut len, mut count) = (0, 0);
    while let Ok(frame) = v1::read(&bytes[len..]) {
        (len, count) = (len + frame.len, count + 1);
        if frame.has(v1::TURN_LAST) {
            break;
        }
    }
    let header = piece::header(u32::try_from(len).unwrap_or(u32::MAX), count);
    let mut row = Vec::with_capacity(header.len() + len);
    row.extend_from_slice(&header);
    row.extend_from_slice(&bytes[..len]);
    row
}
