//! The damage found in a store, and which runs it concerns or may concern.
//!
//! ```text
//!   a frame's header, the key of a row,
//!   the inventory of the log           ──► the run
//!   its back-pointer                   ──► the run whose last turn stands there
//!   nothing                            ──► every run that may have had a turn there
//! ```
//!
//! A run that may have lost a record is quarantined: the rest of it would look like a shorter history. Its instance's id
//! stays taken. Where not even the instance is known, all ids that it may have are refused.

use millrun_core::{InstanceId, Partition, RunId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::ReadError;
use crate::finished::IdHash;

/// The damage found in a log.
#[derive(Debug, Default)]
pub(crate) struct Damaged {
    /// The runs that are quarantined.
    pub(crate) runs: FxHashMap<RunId, Quarantined>,
    /// Damage that could not be attributed to a run.
    pub(crate) places: Vec<ReadError>,
    /// Places where runs may have begun of which nothing is left: of an instance in this partition, or in any.
    pub(crate) unknown: Vec<(Option<Partition>, ReadError)>,
    /// The instances of the quarantined runs, as far as they are known.
    ids: FxHashMap<IdHash, RunId>,
}

/// A run of which a record is damaged.
#[derive(Clone, Debug)]
pub(crate) struct Quarantined {
    /// The first error that was found.
    pub(crate) error: ReadError,
    /// Where it closes, if that is known.
    pub(crate) closes: Option<u64>,
}

impl Damaged {
    pub(crate) fn has(&self, run: RunId) -> bool {
        !self.runs.is_empty() && self.runs.contains_key(&run)
    }

    /// Whether nothing is damaged.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.places.is_empty()
    }

    /// Quarantines a run, unless it is quarantined already.
    pub(crate) fn quarantine(&mut self, run: RunId, error: ReadError, id: Option<IdHash>) {
        self.runs
            .entry(run)
            .or_insert(Quarantined { error, closes: None });
        if let Some(id) = id {
            self.is_of(run, id);
        }
    }

    /// Notes the instance of a quarantined run.
    pub(crate) fn is_of(&mut self, run: RunId, id: IdHash) {
        if id == IdHash::default() {
            return;
        }
        // The latest run of an instance is the one that callers ask for.
        let latest = self.ids.entry(id).or_insert(run);
        *latest = (*latest).max(run);
    }

    /// Whether a run is quarantined for damage at this position.
    pub(crate) fn names(&self, position: u64) -> bool {
        let mut errors = self.runs.values().map(|quarantined| &quarantined.error);
        errors.any(|error| matches!(error, ReadError::Damaged { position: at, .. } if *at == position))
    }

    /// Notes where a quarantined run closes.
    pub(crate) fn closes(&mut self, run: RunId, position: u64) {
        if let Some(quarantined) = self.runs.get_mut(&run) {
            quarantined.closes = Some(position);
        }
    }

    /// Finds the instances of the quarantined runs, with `id_of` where they are not known yet. For the rest, every instance
    /// of the run's partition may be the one.
    pub(crate) fn name(&mut self, mut id_of: impl FnMut(RunId) -> Option<IdHash>) {
        let known: FxHashSet<RunId> = self.ids.values().copied().collect();
        let nameless: Vec<_> = self
            .runs
            .keys()
            .filter(|run| !known.contains(run))
            .copied()
            .collect();
        for run in nameless {
            match id_of(run) {
                Some(id) => self.is_of(run, id),
                None => {
                    let error = self.runs[&run].error.clone();
                    self.unknown.push((Some(run.partition()), error));
                }
            }
        }
    }

    /// Forgets the damage of a run that needs nothing before the record that comes now; returns whether there was any.
    pub(crate) fn forgive(&mut self, run: RunId) -> bool {
        let was_there = self.runs.remove(&run).is_some();
        if was_there {
            self.ids.retain(|_, of| *of != run);
        }
        was_there
    }

    /// Removes the runs for which `is_kept` returns `false`.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(RunId, &Quarantined) -> bool) {
        self.runs.retain(|run, quarantined| is_kept(*run, quarantined));
        let runs = &self.runs;
        self.ids.retain(|_, run| runs.contains_key(run));
    }

    /// The latest quarantined run of an instance, with its error: the id is not free.
    pub(crate) fn of_instance(&self, id: IdHash) -> Option<(RunId, &ReadError)> {
        if self.ids.is_empty() {
            return None;
        }
        let run = self.ids.get(&id)?;
        Some((*run, &self.runs.get(run)?.error))
    }

    /// Why an instance that is not known may have had a run all the same.
    pub(crate) fn may_be_lost(&self, id: &InstanceId) -> Option<&ReadError> {
        let mut unknown = self.unknown.iter();
        let found = unknown.find(|(partition, _)| partition.is_none_or(|of| of == id.partition()));
        found.map(|(_, error)| error)
    }

    /// All of it, by position.
    pub(crate) fn list(&self) -> Vec<ReadError> {
        let runs = self.runs.values().map(|quarantined| &quarantined.error);
        let mut list: Vec<_> = runs.chain(&self.places).cloned().collect();
        list.sort_by_key(|error| match error {
            ReadError::Damaged { position, .. } => *position,
            _ => 0,
        });
        list
    }

    /// Adds what another lane has found.
    pub(crate) fn extend(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.places.extend(other.places);
        self.unknown.extend(other.unknown);
        for (id, run) in other.ids {
            let latest = self.ids.entry(id).or_insert(run);
            *latest = (*latest).max(run);
        }
    }
}
