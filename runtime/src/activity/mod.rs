//! Activities: their code, their task queues, and the pools that run them.
//!
//! ```text
//!   shard ──effect──► topic "millrun.tasks.<queue>" ──► pool ──► attempt (a task, unless quick)
//!     ▲                  bounded window                 limit      panic, timeout, cancel
//!     └──────────────── topic "millrun.reports.<shard>" ◄────────────┘
//! ```

mod attempt;
mod attempt_list;
mod blocking;
mod cancelled;
mod code;
mod context;
mod drained;
mod pace;
mod pool;
mod queue;
mod reports;
mod running;
#[cfg(test)]
mod samples;
mod tap;

use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Epoch, InstanceId, RunId, Timestamp, TraceContext};
use millrun_workflow::{ActivityFailure, ActivityScheduled, OperationId, Payload};

pub(crate) use code::ActivityImplementation;
pub use context::{ActivityContext, HeartbeatError};
pub(crate) use drained::PutAside;
pub(crate) use pool::Pool;
pub(crate) use queue::{LastActivity, TaskQueue, TaskQueues};
pub(crate) use reports::ActivityReports;
pub(crate) use running::PoolState;
pub use tap::ActivityTap;

/// An attempt to be made, on its way to a pool.
#[derive(Clone, Debug)]
pub(crate) struct ActivityTask {
    pub(crate) run: RunId,
    /// The epoch of the run's partition at the decision: the attempt does not begin under another one.
    pub(crate) life: Epoch,
    pub(crate) id: InstanceId,
    pub(crate) attempt: u32,
    pub(crate) scheduled: Arc<ActivityScheduled>,
    /// The details of the last heartbeat of an earlier attempt.
    pub(crate) details: Option<Box<Payload>>,
    /// The place of the run in a distributed trace, if it has one.
    pub(crate) trace: Option<Box<TraceContext>>,
    /// Until when it must begin, as far as the history knows.
    pub(crate) start_by: Option<Timestamp>,
}

impl ActivityTask {
    /// The step that it belongs to.
    pub(crate) fn key(&self) -> (RunId, OperationId) {
        (self.run, self.scheduled.operation)
    }
}

/// The report of an attempt, on its way back to its run.
#[derive(Clone, Debug)]
pub(crate) struct ActivityReport {
    pub(crate) run: RunId,
    pub(crate) operation: OperationId,
    pub(crate) attempt: u32,
    pub(crate) outcome: AttemptOutcome,
}

/// A value, or a failure.
pub(crate) type AttemptOutcome = Result<Payload, Box<AttemptFailure>>;

/// An attempt that gave no value.
#[derive(Clone, Debug)]
pub(crate) struct AttemptFailure {
    pub(crate) failure: ActivityFailure,
    /// Whether another attempt may help.
    pub(crate) is_retryable: bool,
    /// The kind of the activity's own error, if it has one.
    pub(crate) kind: Option<Box<str>>,
    /// The pause that the activity's own error asks for, if it does.
    pub(crate) retry_after: Option<Duration>,
    /// The details of the last heartbeat, if there was one.
    pub(crate) details: Option<Box<Payload>>,
}

impl AttemptFailure {
    const fn is_panic(&self) -> bool {
        matches!(self.failure, ActivityFailure::Panicked { .. })
    }

    pub(crate) fn retryable(failure: ActivityFailure) -> Box<Self> {
        Box::new(Self {
            failure,
            is_retryable: true,
            kind: None,
            retry_after: None,
            details: None,
        })
    }

    pub(crate) fn fatal(failure: ActivityFailure) -> Box<Self> {
        Box::new(Self {
            failure,
            is_retryable: false,
            kind: None,
            retry_after: None,
            details: None,
        })
    }
}
