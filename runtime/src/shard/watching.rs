//! Callers that want to know when a run makes progress. Each is told once, when the run's next turn is durable, and then has
//! to ask again.
//!
//! ```text
//!   Watch ──► listed by run ──► a turn of the run with events ──► effect of its sweep ──► told
//! ```
//!
//! Loading or unloading a run's code is no progress. A shard that fails drops the list; its callers notice and ask again.

use std::collections::BTreeMap;

use millrun_core::RunId;
use tokio::sync::oneshot;

use super::Shard;
use super::sweeps::answers::Response;
use super::sweeps::effects::Effects;
use crate::RunError;
use crate::mail::{Changed, Reply, Target};
use crate::ownership::partition_set::PartitionSet;

/// Callers to be told when a run makes progress, by run.
#[derive(Debug, Default)]
pub(super) struct Watchers(BTreeMap<RunId, Vec<oneshot::Sender<()>>>);

impl Watchers {
    /// Lists a caller, if fewer than `len_max` watch this run.
    fn list(&mut self, run: RunId, len_max: usize) -> Result<Changed, RunError> {
        let (told, changed) = oneshot::channel();
        let watchers = self.0.entry(run).or_default();
        if watchers.len() == watchers.capacity().min(len_max) {
            // Callers who have given up make room before the list grows.
            watchers.retain(|watcher| !watcher.is_closed());
        }
        if watchers.len() >= len_max {
            return Err(RunError::TooManyWatchers { len_max });
        }
        watchers.push(told);
        Ok(changed)
    }

    /// Tells the watchers of a run that it has made progress.
    #[inline]
    pub(super) fn tell(&mut self, run: RunId, effects: &mut Effects) {
        if !self.0.is_empty()
            && let Some(watchers) = self.0.remove(&run)
        {
            effects.answer(Response::Changed(watchers));
        }
    }

    /// Drops the watchers of runs in these partitions.
    pub(super) fn lose(&mut self, lost: &PartitionSet) {
        self.0.retain(|run, _| !lost.contains(run.partition()));
    }
}

impl Shard {
    /// Lists a caller as a watcher of a run. The caller looks at the run only after it is listed, so it misses no change.
    pub(super) fn on_watch(&mut self, target: &Target, reply: Reply<Changed>) {
        let len_max = self.shared.config.watchers_len_max;
        let found = self.find_live(target);
        let answer = found.and_then(|run| self.watchers.list(run, len_max));
        self.effects.answer(Response::Watched(reply, answer));
    }
}
