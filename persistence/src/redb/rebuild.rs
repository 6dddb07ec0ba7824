//! Rebuilds what is known of runs from the log: heads, finished runs, damage.
//!
//! ```text
//!   (none) ── first record ──► live ── closes ──► finished
//!                               │
//!                               └── gap or damage ──► quarantined (named, left out, kept on disk)
//! ```

use millrun_core::RunId;
use rustc_hash::FxHashMap;

use super::log::{self, Damage, Found};
use super::store::Store;
use crate::config::Retention;
use crate::error::{JournalFailure, ReadError};
use crate::finished::{Finished, FinishedIndex, IdHash};
use crate::scan::LastTurn;
use crate::wire::v1::{self, Frame};

/// Where a run's records stand in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Where the run's last turn begins.
    pub(crate) last: u64,
    /// Where the run's first turn begins.
    pub(crate) first: u64,
    /// Size of its records in bytes.
    pub(crate) bytes: u64,
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
    /// Where the log ends.
    pub(crate) end: u64,
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

/// Reads the whole log.
pub(crate) fn rebuild(store: &Store, retention: Retention) -> Result<Rebuilt, JournalFailure> {
    let mut rebuilt = Rebuilt {
        live: FxHashMap::default(),
        finished: FinishedIndex::new(retention),
        damaged: Damaged::default(),
        end: 0,
    };
    let mut is_first = true;
    store.rows(0, &mut |key, row| {
        if !is_first && key != rebuilt.end {
            rebuilt.gap(key);
        }
        is_first = false;
        log::walk(key, row, &mut |position, found| rebuilt.found(position, found));
        rebuilt.end = key + row.len().saturating_sub(crate::wire::piece::HEADER_BYTES) as u64;
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

    fn found(&mut self, position: u64, found: Found<'_>) {
        match found {
            Ok((frame, _)) => self.frame(position, &frame),
            Err(damage) => self.damage(damage),
        }
    }

    fn frame(&mut self, position: u64, frame: &Frame<'_>) {
        if self.damaged.runs.contains_key(&frame.run) {
            return;
        }
        let live = self.live.entry(frame.run).or_default();
        let expected = u64::from(live.turn.last) + 1;
        if frame.sequence.get() != expected || frame.has(v1::OPENS) != (expected == 1) {
            let cause = format!("expected sequence {expected}, found {}", frame.sequence);
            self.damage(Damage {
                run: Some(frame.run),
                position,
                cause,
            });
            return;
        }
        if let Some(id) = frame.id {
            live.place.id = IdHash::of(id);
            live.place.first = position;
        }
        if frame.has(v1::TURN_FIRST) {
            live.place.last = position;
        }
        live.place.bytes += frame.len as u64;
        live.turn.push(frame);
        if frame.has(v1::CLOSES) {
            let place = live.place;
            self.live.remove(&frame.run);
            self.finished.add(Finished {
                run: frame.run,
                id: place.id,
                closed_at: frame.time,
                head: frame.sequence,
                bytes: place.bytes,
                place,
            });
            self.finished.trim(frame.time);
        }
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
