//! Activities: their code, the queue they wait in, and the pool that runs them.
//!
//! ```text
//!   shard ──effect──► topic "millrun.tasks.<queue>" ──► pool ──► attempt (a task of its own)
//!     ▲                  bounded window                 limit      panic, timeout, cancel
//!     └──────────────── topic "millrun.reports.<shard>" ◄────────────┘
//! ```

mod attempt;
mod pool;
mod queue;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use millrun_broker::Envelope;
use millrun_core::{InstanceId, RunId};
use millrun_workflow::{Activity, ActivityFailure, ActivityScheduled, OperationId, Payload, TypedError};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use pool::{Pool, PoolState};
pub(crate) use queue::{TaskQueue, TaskQueues};

/// One attempt to be made, as it travels to a pool.
#[derive(Debug)]
pub(crate) struct ActivityTask {
    pub(crate) run: RunId,
    pub(crate) id: InstanceId,
    pub(crate) attempt: u32,
    pub(crate) scheduled: Arc<ActivityScheduled>,
}

/// How an attempt went, as it travels back to the instance.
#[derive(Clone, Debug)]
pub(crate) struct ActivityReport {
    pub(crate) run: RunId,
    pub(crate) operation: OperationId,
    pub(crate) attempt: u32,
    pub(crate) outcome: AttemptOutcome,
}

/// A value, or a failure and whether another attempt may help.
pub(crate) type AttemptOutcome = Result<Payload, (ActivityFailure, bool)>;

/// What an activity knows about itself. A cheap clone.
#[derive(Clone, Debug)]
pub struct ActivityContext {
    envelope: Arc<Envelope<ActivityTask>>,
}

impl ActivityContext {
    pub(crate) fn new(envelope: Arc<Envelope<ActivityTask>>) -> Self {
        Self { envelope }
    }

    fn task(&self) -> &ActivityTask {
        self.envelope.payload()
    }

    /// Names this step for ever: the same for each attempt, another for every other step of any
    /// run. Hand it to whatever the activity changes, so that doing it twice has the effect of
    /// doing it once.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}-{}", self.task().run, self.task().scheduled.operation)
    }

    /// The number of this attempt: 1 for the first. Higher than that of any earlier attempt of
    /// this step, also of one that a crash cut off.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.task().attempt
    }

    /// The id of the instance that called.
    #[must_use]
    pub fn instance_id(&self) -> &InstanceId {
        &self.task().id
    }

    /// The run that called.
    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.task().run
    }

    /// The name of the activity.
    #[must_use]
    pub fn activity(&self) -> &str {
        &self.task().scheduled.activity
    }
}

type AttemptFuture = Pin<Box<dyn Future<Output = AttemptOutcome> + Send>>;

type StartAttempt = dyn Fn(ActivityContext) -> AttemptFuture + Send + Sync;

/// The code of one activity, its types erased. A cheap clone.
#[derive(Clone)]
pub(crate) struct ActivityImplementation {
    pub(crate) name: &'static str,
    pub(crate) queue: &'static str,
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
                let input = cx.task().scheduled.input.decode().map_err(|error| {
                    let message = format!("the input is not of the activity's type: {error}");
                    (ActivityFailure::Unreadable { message }, false)
                })?;
                let unreadable = |what: &str, error: &dyn fmt::Display| {
                    let message = format!("the activity's {what} could not be encoded: {error}");
                    (ActivityFailure::Unreadable { message }, false)
                };
                match code(cx, input).await {
                    Ok(value) => Payload::encode(&value).map_err(|error| unreadable("result", &error)),
                    Err(error) => {
                        let message = error.to_string();
                        let encoded = Payload::encode(&error).map_err(|error| unreadable("error", &error))?;
                        Err((
                            ActivityFailure::Failed {
                                error: encoded,
                                message,
                            },
                            error.is_retryable(),
                        ))
                    }
                }
            })
        };
        Self {
            name: activity.name(),
            queue: activity.queue(),
            start: Arc::new(start),
        }
    }

    pub(crate) fn start(&self, cx: ActivityContext) -> AttemptFuture {
        (self.start)(cx)
    }
}

impl fmt::Debug for ActivityImplementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ActivityImplementation").field(&self.name).finish()
    }
}
