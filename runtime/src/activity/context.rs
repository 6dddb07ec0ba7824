//! The runtime as an activity's code sees it.

use std::sync::Arc;

use millrun_core::{Cause, Host, InstanceId, RunId, TraceContext};
use millrun_workflow::{Payload, PayloadError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::{ActivityTask, PoolState};
use crate::streams::attempt::AttemptMark;
use crate::streams::durable::log::StreamLog;
use crate::streams::table::StreamUse;
use crate::{Runtime, StopCause};

/// What an activity knows about itself, and the way to report progress. A clone copies the details of the last heartbeat, if
/// there are any, and nothing else that is large.
#[derive(Clone, Debug)]
pub struct ActivityContext {
    task: ActivityTask,
    pool: Arc<PoolState>,
}

/// Why a heartbeat was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeartbeatError {
    /// This attempt is not waited for any more: it was cancelled, or is out of time, or the runtime has stopped. Stop.
    #[error("nobody waits for this attempt any more")]
    Cancelled,
    /// The details could not be encoded.
    #[error("the heartbeat's details could not be encoded")]
    Payload(#[from] PayloadError),
    /// The details are larger than a payload may be.
    #[error("the details have {bytes} bytes, a payload may have {bytes_max}: pass a reference instead")]
    TooLarge {
        /// Their encoded size.
        bytes: usize,
        /// The limit, `payload_bytes_max`.
        bytes_max: usize,
    },
}

impl ActivityContext {
    pub(super) fn new(task: ActivityTask, pool: Arc<PoolState>) -> Self {
        Self { task, pool }
    }

    pub(super) fn task(&self) -> &ActivityTask {
        &self.task
    }

    /// Lists a stream that ends with the attempt, and counts it as in use unless it is listed already; `None` if the attempt
    /// has ended.
    pub(crate) fn list_stream(
        &self,
        used: &mut Option<StreamUse>,
        log: Option<&Arc<StreamLog>>,
    ) -> Option<AttemptMark> {
        self.pool.list_stream(self.task(), used, log)
    }

    /// What a blocking attempt runs on.
    pub(super) fn host_and_threads(&self) -> (Arc<dyn Host>, Arc<Semaphore>) {
        self.pool.host_and_threads()
    }

    /// The runtime that the attempt runs on: to start, signal or ask other instances, or to publish.
    ///
    /// It is a handle like any other, and keeps the runtime alive: while an attempt has it, dropping the other handles does
    /// not end the runtime, but [`Runtime::shutdown`] does.
    ///
    /// ```
    /// use millrun::{Activity, ActivityContext, ActivityError, Runtime, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// const DOUBLED: Activity<u64, u64> = Activity::named("doubled");
    ///
    /// async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    ///     Ok(number * 2)
    /// }
    ///
    /// async fn doubled(cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    ///     let runtime = cx.runtime()?;
    ///     let run = runtime.start(DOUBLE, &format!("double-{number}"), number).await?;
    ///     Ok(run.result().await?)
    /// }
    /// let builder = Runtime::volatile().register(DOUBLE, double).register(DOUBLED, doubled);
    /// ```
    ///
    /// # Errors
    /// When the runtime has stopped, or its last handle was dropped: the attempt is given up then.
    pub fn runtime(&self) -> Result<Runtime, StopCause> {
        let runtime = self.pool.runtime().ok_or(StopCause::Shutdown)?;
        match runtime.stop_cause() {
            Some(cause) => Err(cause),
            None => Ok(runtime),
        }
    }

    /// A permanent name of this step: the same for each attempt, and different for every other step of any run. Pass it on to
    /// the system that the activity changes, so that a repeated attempt has the effect of one.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        self.cause().to_string()
    }

    /// The call that this is an attempt of, as the cause of further effects: pass it to
    /// [`Headers::caused_by_run`](millrun_broker::Headers::caused_by_run) of an envelope,
    /// [`Start::caused_by`](crate::builders::Start::caused_by) of a start, and
    /// [`signal_caused_by`](crate::RunHandle::signal_caused_by). Its text is the [idempotency key](Self::idempotency_key).
    #[must_use]
    pub fn cause(&self) -> Cause {
        Cause {
            run: self.task().run,
            operation: self.task().scheduled.operation.get(),
        }
    }

    /// The place of this call in a distributed trace, for the attempt's own calls: pass it on as a `traceparent` header,
    /// whose form its text has, to [`Headers::trace`](millrun_broker::Headers::trace) of an envelope, and to
    /// [`Start::traced`](crate::builders::Start::traced) of a start. `None` if the run has no trace: its start [named
    /// none](crate::builders::Start::traced), and the runtime did not [choose it](crate::RuntimeConfig::traced_per_million).
    ///
    /// Its span is that of the call, the same for each attempt and after a crash.
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        let trace = self.task().trace.as_deref()?;
        Some(trace.at_operation(self.cause()))
    }

    /// The number of this attempt: 1 for the first. It is higher than that of any earlier attempt of this step, also of one
    /// that a crash cut off. There is one exception: if a shard failed while the process lived, and the process is killed
    /// before the step records anything more, the next attempt may have the same number as the last.
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

    /// Reports that the attempt is alive, with its progress: if it fails or is cut off, the next attempt finds this in
    /// [`details`](Self::details). Never waits.
    ///
    /// Call it as often as is convenient: the runtime records a few per [heartbeat
    /// timeout](crate::workflow::Call::heartbeat), and always the last one of an attempt that fails. A crash of the process
    /// loses at most the heartbeats since the last recorded one.
    ///
    /// ```
    /// use millrun::{ActivityContext, ActivityError};
    ///
    /// /// Imports rows, and goes on where the attempt before got to.
    /// async fn import(cx: ActivityContext, rows: u64) -> Result<u64, ActivityError> {
    ///     let done = cx.details::<u64>().transpose()?.unwrap_or(0);
    ///     for row in done..rows {
    ///         // .. import the row ..
    ///         cx.heartbeat(&(row + 1))?;
    ///     }
    ///     Ok(rows)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`HeartbeatError::Cancelled`] when the attempt should stop; a `?` does that.
    pub fn heartbeat<T: Serialize + ?Sized>(&self, details: &T) -> Result<(), HeartbeatError> {
        let details = Payload::encode(details)?;
        self.pool.heartbeat(self.task(), details)
    }

    /// The details of the last heartbeat of an earlier attempt; `None` if there was none.
    ///
    /// # Errors
    /// When it does not decode as a `T`.
    #[must_use]
    pub fn details<T: DeserializeOwned>(&self) -> Option<Result<T, PayloadError>> {
        self.task().details.as_ref().map(|details| details.decode())
    }

    /// Whether this attempt is not waited for any more: it was cancelled, or is out of time, or the runtime has stopped.
    /// Async code is then dropped at its next await; blocking code has to check this.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        !self.pool.is_current(self.task())
    }
}
