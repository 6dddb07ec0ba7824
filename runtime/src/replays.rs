//! Bringing runs back from their histories. What a replay encoded otherwise than it was recorded is counted,
//! and said once per workflow and minute.
//!
//! Live code never comes here, and of a replay that finds nothing changed one number is looked at.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millrun_core::{RunId, Timestamp};
use millrun_workflow::{Implementation, Instance};

use crate::RunError;
use crate::shard::{ShardShared, Story};

/// A workflow whose values have changed is reported again after this time at the earliest.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The values that replays encoded otherwise than they were recorded.
#[derive(Debug, Default)]
pub(crate) struct ChangedValues {
    len: AtomicU64,
    /// When each workflow was last reported; no more than are registered.
    told_at: Mutex<BTreeMap<&'static str, Timestamp>>,
}

impl ChangedValues {
    /// How many there were since the runtime was started.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Counts some of a workflow; whether it is time to report them.
    fn add(&self, workflow: &'static str, len: u64, now: Timestamp) -> bool {
        self.len.fetch_add(len, Ordering::Relaxed);
        let mut told_at = self.told_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = told_at
            .get(workflow)
            .is_none_or(|told_at| now.saturating_since(*told_at) >= WARN_EVERY);
        if is_due {
            told_at.insert(workflow, now);
        }
        is_due
    }
}

impl ShardShared {
    /// Brings a run back from its history.
    ///
    /// # Errors
    /// When the events are no history, whatever the code.
    pub(crate) fn replay(
        &self,
        implementation: Option<&Implementation>,
        run: RunId,
        story: Story,
    ) -> Result<Instance, RunError> {
        let (events, limits) = (story.events, self.config.limits);
        let replayed = match story.kept {
            Some(kept) => Instance::replay_kept(implementation, run, *kept, events, limits),
            None => Instance::replay(implementation, run, events, limits),
        };
        let instance = replayed.map_err(|error| RunError::History(error.to_string()))?;
        let values = instance.changed_values();
        if values > 0
            && let Some(workflow) = implementation.map(Implementation::name)
            && self.changed_values.add(workflow, values, self.host.now())
        {
            tracing::warn!(
                workflow, %run, values,
                "a replay encoded values otherwise than they were recorded; further ones of this workflow \
                 are only counted for a minute"
            );
        }
        Ok(instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workflow_is_reported_once_a_minute_and_every_value_is_counted() {
        let changed = ChangedValues::default();
        let told = [
            ("a", 0),
            ("a", 59),
            ("b", 59),
            ("a", 60),
            ("a", 61),
            ("b", 118),
            ("b", 119),
        ]
        .map(|(workflow, second): (&'static str, u64)| {
            changed.add(workflow, 2, Timestamp::from_micros(second * 1_000_000))
        });
        assert_eq!(told, [true, false, true, true, false, false, true]);
        assert_eq!(changed.len(), 14);
    }
}
