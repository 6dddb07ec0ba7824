//! Activities: their code, the queue they wait in, and the pool that runs them.
//!
//! ```text
//!   shard ──effect──► topic "millrun.tasks.<queue>" ──► pool ──► attempt (a task, unless quick)
//!     ▲                  bounded window                 limit      panic, timeout, cancel
//!     └──────────────── topic "millrun.reports.<shard>" ◄────────────┘
//! ```

mod attempt;
mod attempt_list;
mod blocking;
mod context;
mod pace;
mod pool;
mod queue;
mod reports;
mod running;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use millrun_core::{InstanceId, RunId, Timestamp};
use millrun_workflow::{Activity, ActivityFailure, ActivityScheduled, OperationId, Payload, TypedError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use pace::Pace;

pub use context::{ActivityContext, HeartbeatError};
pub(crate) use pool::Pool;
pub(crate) use queue::{TaskQueue, TaskQueues};
pub(crate) use reports::ActivityReports;
pub(crate) use running::PoolState;

/// One attempt to be made, as it travels to a pool.
#[derive(Clone, Debug)]
pub(crate) struct ActivityTask {
    pub(crate) run: RunId,
    pub(crate) id: InstanceId,
    pub(crate) attempt: u32,
    pub(crate) scheduled: Arc<ActivityScheduled>,
    /// What the last heartbeat of an earlier attempt said.
    pub(crate) details: Option<Box<Payload>>,
    /// Until when it must begin, as far as the history says.
    pub(crate) start_by: Option<Timestamp>,
}

impl ActivityTask {
    /// Names the step.
    pub(crate) fn key(&self) -> (RunId, OperationId) {
        (self.run, self.scheduled.operation)
    }
}

/// How an attempt went, as it travels back to the instance.
#[derive(Clone, Debug)]
pub(crate) struct ActivityReport {
    pub(crate) run: RunId,
    pub(crate) operation: OperationId,
    pub(crate) attempt: u32,
    pub(crate) outcome: AttemptOutcome,
}

/// A value, or why there is none.
pub(crate) type AttemptOutcome = Result<Payload, AttemptFailure>;

/// An attempt that gave no value.
#[derive(Clone, Debug)]
pub(crate) struct AttemptFailure {
    pub(crate) failure: ActivityFailure,
    /// Whether another attempt may help.
    pub(crate) is_retryable: bool,
    /// The kind of the activity's own error, if it has one.
    pub(crate) kind: Option<Box<str>>,
    /// What the last heartbeat said, if there was one.
    pub(crate) details: Option<Box<Payload>>,
}

impl AttemptFailure {
    const fn is_panic(&self) -> bool {
        matches!(self.failure, ActivityFailure::Panicked { .. })
    }

    pub(crate) fn retryable(failure: ActivityFailure) -> Self {
        Self {
            failure,
            is_retryable: true,
            kind: None,
            details: None,
        }
    }

    pub(crate) fn fatal(failure: ActivityFailure) -> Self {
        Self {
            failure,
            is_retryable: false,
            kind: None,
            details: None,
        }
    }
}

type AttemptFuture = Pin<Box<dyn Future<Output = AttemptOutcome> + Send>>;

type StartAttempt = dyn Fn(ActivityContext) -> AttemptFuture + Send + Sync;

/// The code of one activity, its types erased. A cheap clone.
#[derive(Clone)]
pub(crate) struct ActivityImplementation {
    pub(crate) name: &'static str,
    pub(crate) queue: &'static str,
    pace: Arc<Pace>,
    start: Arc<StartAttempt>,
}

impl ActivityImplementation {
    pub(crate) fn new<I, O, E, F, Fut>(activity: Activity<I, O, E>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: TypedError,
        F: Fn(ActivityContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let code = Arc::new(code);
        let start = move |cx: ActivityContext| -> AttemptFuture {
            let code = Arc::clone(&code);
            Box::pin(async move {
                let input = decode_input(&cx)?;
                encode_end(code(cx, input).await)
            })
        };
        Self {
            name: activity.name(),
            queue: activity.queue(),
            pace: Arc::default(),
            start: Arc::new(start),
        }
    }

    pub(crate) fn start(&self, cx: ActivityContext) -> AttemptFuture {
        (self.start)(cx)
    }
}

/// The argument of an attempt.
fn decode_input<I: DeserializeOwned>(cx: &ActivityContext) -> Result<I, AttemptFailure> {
    cx.task().scheduled.input.decode().map_err(|error| {
        let message = format!("the input is not of the activity's type: {error}");
        AttemptFailure::fatal(ActivityFailure::Unreadable { message })
    })
}

/// The end of an attempt, encoded.
fn encode_end<O: Serialize, E: TypedError>(end: Result<O, E>) -> AttemptOutcome {
    let unreadable = |what: &str, error: &dyn fmt::Display| {
        let message = format!("the activity's {what} could not be encoded: {error}");
        AttemptFailure::fatal(ActivityFailure::Unreadable { message })
    };
    match end {
        Ok(value) => Payload::encode(&value).map_err(|error| unreadable("result", &error)),
        Err(error) => {
            let message = error.to_string();
            let encoded = Payload::encode(&error).map_err(|error| unreadable("error", &error))?;
            Err(AttemptFailure {
                failure: ActivityFailure::Failed {
                    error: encoded,
                    message,
                },
                is_retryable: error.is_retryable(),
                kind: error.kind().map(Box::from),
                details: None,
            })
        }
    }
}

impl fmt::Debug for ActivityImplementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ActivityImplementation").field(&self.name).finish()
    }
}
