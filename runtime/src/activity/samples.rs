//! Attempts for tests.

use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Epoch, InstanceId, RunId, Timestamp};
use millrun_workflow::{ActivityScheduled, OperationId, Payload, Retry};

use super::ActivityTask;
use crate::looking::durations::DurationTallies;
use crate::ownership::claims::OwnedTable;

/// The epoch of the partition of all samples.
const LIFE: Epoch = Epoch::new(1);

/// A table in which the samples' partition is owned.
pub(super) fn owned() -> OwnedTable {
    let id = InstanceId::new("order-1").unwrap();
    OwnedTable::new([(id.partition(), LIFE)])
}

/// Durations that are not recorded.
pub(super) fn durations() -> Arc<DurationTallies> {
    Arc::new(DurationTallies::new(0))
}

/// The first attempt of a call with this input, whose operation has this number.
pub(super) fn task(number: u32, input: u32) -> ActivityTask {
    let id = InstanceId::new("order-1").unwrap();
    let scheduled = ActivityScheduled {
        operation: OperationId::new(number),
        activity: "step".into(),
        queue: "default".into(),
        input: Payload::encode(&input).unwrap(),
        retry: Retry::default(),
        retry_on: None,
        start_to_close: Duration::from_secs(1),
        schedule_to_start: None,
        schedule_to_close: None,
        heartbeat: None,
        epoch: 1,
    };
    ActivityTask {
        life: LIFE,
        run: RunId::new(id.partition(), Timestamp::EPOCH, 1),
        id,
        attempt: 1,
        scheduled: Arc::new(scheduled),
        details: None,
        trace: None,
        start_by: None,
    }
}
