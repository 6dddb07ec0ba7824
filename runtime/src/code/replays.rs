//! Brings runs back from their histories. Values that a replay encoded differently are counted, and reported once per
//! workflow and minute.
//!
//! Live code is not affected, and a replay without such values costs one check.

use crate::RunError;
use crate::mail::Story;
use crate::shared::ShardShared;
use millrun_core::RunId;
use millrun_workflow::{Implementation, Instance};

impl ShardShared {
    /// Brings a run back from its history.
    ///
    /// # Errors
    /// When the events are no history, or only a part of one.
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
        let (head, known) = (story.head, instance.sequence());
        if known != head {
            return Err(RunError::History(format!(
                "its events come to number {known}, and the last one is number {head}"
            )));
        }
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
