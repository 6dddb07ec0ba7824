//! What can be seen of an instance from outside.

use millrun_core::{InstanceId, RunId, Sequence, Timestamp};
use millrun_workflow::{OperationId, ParkReason};

/// A live instance, in one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InstanceSummary {
    /// The user's id.
    pub id: InstanceId,
    /// Its run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// What it does.
    pub status: InstanceStatus,
}

/// What an instance does.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InstanceStatus {
    /// It runs, or waits for something.
    Running,
    /// Its code does not run; its inputs are recorded.
    Parked,
    /// No workflow of its name is registered; its inputs are recorded.
    NotRegistered,
    /// It has ended.
    Finished,
}

/// A live instance in full: what it waits for, and since when.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InstanceDescription {
    /// The user's id.
    pub id: InstanceId,
    /// Its run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// What it does.
    pub status: InstanceStatus,
    /// When the run began.
    pub started_at: Timestamp,
    /// How many events its history has.
    pub sequence: Sequence,
    /// Whether it has been asked to cancel.
    pub is_cancel_requested: bool,
    /// Why its code does not run.
    pub parked: Option<ParkReason>,
    /// The operations it has begun and not ended.
    pub pending: Vec<PendingDescription>,
    /// The signals it waits for.
    pub awaited_signals: Vec<String>,
}

/// An operation that has begun and not ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PendingDescription {
    /// A call of an activity.
    Activity {
        /// The call.
        operation: OperationId,
        /// The activity's name.
        activity: String,
        /// The task queue.
        queue: String,
        /// The attempt under way or next.
        attempt: u32,
        /// When the next attempt begins, if the last one failed.
        retry_at: Option<Timestamp>,
        /// Whether its code is registered here; if not, it waits.
        is_registered: bool,
    },
    /// A timer.
    Timer {
        /// The timer.
        operation: OperationId,
        /// When it fires.
        deadline: Timestamp,
    },
}
