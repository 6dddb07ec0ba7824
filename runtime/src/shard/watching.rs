//! Callers who want to be told that a run has gone on: each is told once, when the run's next turn is
//! durable, and comes again.
//!
//! ```text
//!   Watch ──► listed by run ──► a turn of the run with events ──► effect of its sweep ──► told
//! ```
//!
//! What becomes of a run without a turn (its code is let go of, or brought back) is no change. A shard that
//! fails drops the list, which its callers notice: they ask again.

use std::collections::BTreeMap;

use millrun_core::RunId;
use tokio::sync::oneshot;

use super::Shard;
use super::answers::Answer;
use crate::RunError;
use crate::mail::{Changed, Reply, Target};

/// Who is told that a run has gone on, by its run.
pub(super) type Watchers = BTreeMap<RunId, Vec<oneshot::Sender<()>>>;

impl Shard {
    /// Lists a caller, who looks at the run behind that: so it misses no change.
    pub(super) fn on_watch(&mut self, target: &Target, reply: Reply<Changed>) {
        let len_max = self.shared.config.watchers_len_max;
        let answer = self.find_live(target).and_then(|run| {
            let (told, changed) = oneshot::channel();
            let watchers = self.watchers.entry(run).or_default();
            if watchers.len() == watchers.capacity().min(len_max) {
                // Callers who have given up make room before the list grows.
                watchers.retain(|watcher| !watcher.is_closed());
            }
            if watchers.len() >= len_max {
                return Err(RunError::TooManyWatchers { len_max });
            }
            watchers.push(told);
            Ok(changed)
        });
        self.effects.answer(Answer::Watched(reply, answer));
    }

    /// A run has gone on.
    pub(super) fn tell_watchers(&mut self, run: RunId) {
        if let Some(watchers) = self.watchers.remove(&run) {
            self.effects.answer(Answer::Changed(watchers));
        }
    }
}
