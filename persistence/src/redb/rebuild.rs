//! Rebuilds what is known of runs from what is stored: heads, finished runs, damage.
//!
//! ```text
//!   kept turns, then the log:
//!   (none) ── first record ──► live ── closes ──► finished
//!     │                         │
//!     │                         └── gap or damage ──► quarantined (named, left out, kept on disk)
//!     └── a later record ──► the rest of a run that was dropped, or quarantined if its previous
//!                            turn should still be there
//! ```

use millrun_core::RunId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::log::{self, Damage};
use super::store::{Opened, Snapshot};
use crate::config::Retention;
use crate::error::{JournalFailure, ReadError};
use crate::finished::{Finished, FinishedIndex, IdHash};
use crate::scan::LastTurn;
use crate::wire::piece;
use crate::wire::v1::{self, Frame};

/// Where a run's records stand in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Where the run's last turn begins.
    pub(crate) last: u64,
    /// Where the run's first turn began, if it was not moved since.
    pub(crate) first: u64,
    /// Size of its records in bytes,
    pub(crate) bytes: u64,
    /// and of those that were moved out of the log.
    pub(crate) kept_bytes: u64,
    /// Sequence of the last record that was moved; zero if none was.
    pub(crate) kept: u32,
    pub(crate) id: IdHash,
}

/// A live run as far as it has been read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Live {
    pub(crate) turn: LastTurn,
    pub(crate) place: Place,
}

/// Everything that the log says of runs.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) live: FxHashMap<RunId, Live>,
    pub(crate) finished: FinishedIndex<Place>,
    pub(crate) damaged: Damaged,
    /// How many records there are.
    pub(crate) records: u64,
    /// Where the log begins,
    pub(crate) low: u64,
    /// and where it ends.
    pub(crate) end: u64,
    /// Runs that were dropped, of which the log still has a rest.
    rests: FxHashSet<RunId>,
    /// Runs that retention dropped while turns of theirs are kept.
    pub(crate) gone: Vec<RunId>,
}

/// The damage found in a log.
#[derive(Debug, Default)]
pub(crate) struct Damaged {
    /// The runs that are quarantined, each with the first thing that is wrong with it.
    pub(crate) runs: FxHashMap<RunId, ReadError>,
    /// Damage that could not be put down to a run.
    pub(crate) places: Vec<ReadError>,
}

impl Damaged {
    /// All of it, by position.
    pub(crate) fn list(&self) -> Vec<ReadError> {
        let mut list: Vec<_> = self.runs.values().chain(&self.places).cloned().collect();
        list.sort_by_key(|error| match error {
            ReadError::Damaged { position, .. } => *position,
            _ => 0,
        });
        list
    }
}

/// Reads everything.
pub(crate) fn rebuild(store: &Snapshot, retention: Retention) -> Result<Rebuilt, JournalFailure> {
    let Opened { low, .. } = store.opened()?;
    let mut rebuilt = Rebuilt {
        live: FxHashMap::default(),
        finished: FinishedIndex::new(retention),
        damaged: Damaged::default(),
        records: 0,
        low,
        end: low,
        rests: FxHashSet::default(),
        gone: Vec::new(),
    };
    let mut closed = Vec::new();
    store.kept_rows(&mut |_, row| {
        log::walk(0, row, &mut |_, found| match found {
            Ok((frame, _)) => closed.extend(rebuilt.frame(None, &frame)),
            Err(damage) => rebuilt.damage(damage),
        });
        true
    })?;
    // They closed before everything that is in the log; among themselves they are ordered by time.
    closed.sort_by_key(|finished| finished.closed_at);
    for finished in closed {
        rebuilt.finish(finished);
    }
    store.rows(low, &mut |key, row| {
        if key != rebuilt.end {
            rebuilt.gap(key);
        }
        log::walk(key, row, &mut |position, found| match found {
            Ok((frame, _)) => {
                if let Some(finished) = rebuilt.frame(Some(position), &frame) {
                    rebuilt.finish(finished);
                }
            }
            Err(damage) => rebuilt.damage(damage),
        });
        rebuilt.end = key + row.len().saturating_sub(piece::HEADER_BYTES) as u64;
        true
    })?;
    Ok(rebuilt)
}

impl Rebuilt {
    fn gap(&mut self, key: u64) {
        let cause = format!("the log goes on at {key}: a piece is missing");
        self.damaged.places.push(ReadError::Damaged {
            run: None,
            position: self.end,
            cause,
        });
    }

    /// Takes in the next frame: at a position of the log, or kept outside of it. Returns the run
    /// if it closes.
    fn frame(&mut self, position: Option<u64>, frame: &Frame<'_>) -> Option<Finished<Place>> {
        self.records += 1;
        if self.damaged.runs.contains_key(&frame.run) {
            return None;
        }
        if !frame.has(v1::OPENS) && !self.live.contains_key(&frame.run) && self.is_rest(frame) {
            return None;
        }
        let live = self.live.entry(frame.run).or_default();
        let expected = u64::from(live.turn.last) + 1;
        if frame.sequence.get() != expected || frame.has(v1::OPENS) != (expected == 1) {
            let cause = format!("expected sequence {expected}, found {}", frame.sequence);
            let position = position.unwrap_or(self.low);
            self.damage(Damage {
                run: Some(frame.run),
                position,
                cause,
            });
            return None;
        }
        let place = &mut live.place;
        if let Some(id) = frame.id {
            place.id = IdHash::of(id);
            place.first = position.unwrap_or(0);
        }
        place.bytes += frame.len as u64;
        match position {
            Some(position) if frame.has(v1::TURN_FIRST) => place.last = position,
            Some(_) => {}
            None => {
                place.kept_bytes += frame.len as u64;
                place.kept = narrow(frame);
            }
        }
        live.turn.push(frame);
        if !frame.has(v1::CLOSES) {
            return None;
        }
        let place = live.place;
        self.live.remove(&frame.run);
        Some(Finished {
            run: frame.run,
            id: place.id,
            closed_at: frame.time,
            head: frame.sequence,
            bytes: place.bytes,
            place,
        })
    }

    /// Whether a frame in the middle of an unknown run is what is left of a run that was dropped:
    /// then its previous turn stood below where the log begins now, or was such a rest itself.
    fn is_rest(&mut self, frame: &Frame<'_>) -> bool {
        let is_known = self.rests.contains(&frame.run);
        let begins = frame.has(v1::TURN_FIRST) && frame.back < self.low;
        if begins && !is_known {
            self.rests.insert(frame.run);
        }
        is_known || begins
    }

    fn finish(&mut self, finished: Finished<Place>) {
        let now = finished.closed_at;
        self.finished.add(finished);
        self.finished.trim(now, |dropped| {
            if dropped.place.kept > 0 {
                self.gone.push(dropped.run);
            }
        });
    }

    fn damage(&mut self, damage: Damage) {
        // A header that cannot be trusted may name a run that does not exist; only a run that
        // is known is quarantined for it.
        let known = damage
            .run
            .filter(|run| self.live.contains_key(run) || self.finished.run(*run).is_some());
        let error = damage.into_error();
        match known {
            Some(run) => {
                self.live.remove(&run);
                self.damaged.runs.entry(run).or_insert(error);
            }
            None => self.damaged.places.push(error),
        }
    }
}

fn narrow(frame: &Frame<'_>) -> u32 {
    u32::try_from(frame.sequence.get()).expect("a frame holds 32 bits of sequence")
}
