//! Has the records looked for that runs of a shard wait for.

use millrun_core::{RunId, Timestamp};
use millrun_workflow::ReceiveScheduled;

use crate::shard::Shard;
use crate::topics::durable::receiving::NewWait;

impl Shard {
    /// Has the record looked for that a run waits for, durably. One of a topic that is not durable here is waited for in the
    /// run's history alone.
    #[cold]
    pub(in crate::shard) fn receive(&self, run: RunId, scheduled: &ReceiveScheduled, run_began: Timestamp) {
        if self.shared.is_read_only {
            return;
        }
        let durable = &self.shared.durable;
        let Some(topic) = durable.number(&scheduled.topic) else {
            tracing::warn!(%run, topic = %scheduled.topic, "a durable topic is not registered: the run waits");
            return;
        };
        let wait = NewWait {
            run,
            scheduled,
            run_began,
        };
        durable.waits.list(&self.shared, &self.ways.doors(), topic, wait);
    }

    /// Nobody waits for a record any more.
    #[cold]
    pub(in crate::shard) fn cancel_receive(&self, run: RunId, scheduled: &ReceiveScheduled) {
        let durable = &self.shared.durable;
        if let Some(topic) = durable.number(&scheduled.topic) {
            durable.waits.cancel(topic, run, scheduled);
        }
    }
}
