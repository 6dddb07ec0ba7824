//! Starting instances, and what happens when an id is taken.
//!
//! ```text
//!   start ─────────────┐              ┌─ the id is free ──► a run begins         one commit
//!   signal_with_start ─┴─► its shard ─┤
//!                                     └─ it is taken ─────► attach, refuse, or begin another
//! ```
//!
//! A run that a signal started has it in its first event, so that no crash comes between the two.

use std::sync::Arc;

use millrun_core::{InstanceId, RunId};
use millrun_workflow::{Payload, Refused, Signal, Workflow};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::handle::End;
use crate::runtime::Inner;
use crate::shard::{Reply, ShardMessage, SignalWithStart, StartRequest, StartedRun, Target};
use crate::{RunError, RunHandle, Runtime, SignalWithStartError, StartError};

/// What to do when the id of a start is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// Give a handle to the run that is there, live, or finished and
    /// [retained](crate::Retention): starting is idempotent for that long.
    #[default]
    Attach,
    /// Refuse, whether the run that is there is live or finished.
    Refuse,
    /// Attach to a live run, if it is of the same workflow; if the latest run has finished, start
    /// another.
    RestartFinished,
}

impl Inner {
    /// Whether a finished run is one of this workflow; if it is retained no longer, nobody knows.
    async fn check_workflow(&self, run: RunId, workflow: &'static str) -> Result<(), StartError> {
        match self.read(self.shared.reader.check_workflow(run, workflow)).await {
            Err(RunError::Stopped(cause)) => Err(cause.into()),
            Err(RunError::OtherWorkflow { expected, workflow }) => Err(StartError::OtherWorkflow {
                expected: expected.into(),
                workflow,
            }),
            Err(RunError::Read(error) | RunError::Damaged(error)) => Err(error.into()),
            Err(RunError::History(cause)) => Err(StartError::History { run, cause }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// What asks for a start, if the input is not too large.
    fn request<I, O, E>(
        &self,
        workflow: Workflow<I, O, E>,
        id: &InstanceId,
        input: Payload,
        on_conflict: OnConflict,
        reply: Reply<StartedRun, StartError>,
    ) -> Result<(StartRequest, End), StartError> {
        let bytes_max = self.shared.config.limits.payload_bytes_max;
        if input.len() > bytes_max {
            return Err(StartError::TooLarge {
                bytes: input.len(),
                bytes_max,
            });
        }
        let (told, end) = oneshot::channel();
        let request = StartRequest {
            id: id.clone(),
            workflow: workflow.name().into(),
            input,
            on_conflict,
            reply,
            end: told,
        };
        Ok((request, end))
    }

    /// Asks a shard for a start; gives the run that it led to.
    async fn ask_for_run(
        &self,
        id: &InstanceId,
        workflow: &'static str,
        on_conflict: OnConflict,
        message: ShardMessage,
        answer: oneshot::Receiver<Result<StartedRun, StartError>>,
    ) -> Result<RunId, StartError> {
        let door = self.doors.of(id.partition());
        let StartedRun { run, is_checked } = self.ask_at(door, message, answer).await?;
        if !is_checked && on_conflict == OnConflict::Attach {
            self.check_workflow(run, workflow).await?;
        }
        Ok(run)
    }
}

impl Runtime {
    /// Starts an instance of a workflow under an id of the caller's choice. Durable when this
    /// returns.
    ///
    /// If the id is taken, by a live run or by a finished one that is retained, this gives a
    /// handle to that run: a start can be repeated until it succeeds. For other policies see
    /// [`start_with`](Self::start_with). The workflow's code need not be registered here; the
    /// instance then waits for a runtime that has it.
    ///
    /// The id is taken for as long as its finished run is retained, by default for 72 hours, and less if
    /// many runs end: [`Retention`](crate::Retention) bounds their number and bytes as well, for all
    /// workflows together. **A start that is repeated after that begins another run**, and its activities
    /// have other [idempotency keys](crate::ActivityContext::idempotency_key): an order would be charged
    /// again. Where a start may be repeated later than retention is sure to reach, give the far side a key
    /// of your own, such as the number of the order, or ask it before.
    ///
    /// # Errors
    /// See [`StartError`].
    ///
    /// # Cancel safety
    /// Dropping the future may or may not leave the instance started; start it again.
    pub async fn start<I: Serialize, O, E>(
        &self,
        workflow: Workflow<I, O, E>,
        id: &str,
        input: I,
    ) -> Result<RunHandle<O, E>, StartError> {
        self.start_with(workflow, id, input, OnConflict::default()).await
    }

    /// As [`start`](Self::start), and says what to do when the id is taken. Under each policy an id is
    /// free again once its finished run is retained no longer.
    ///
    /// # Errors
    /// See [`StartError`].
    ///
    /// # Cancel safety
    /// As [`start`](Self::start).
    pub async fn start_with<I: Serialize, O, E>(
        &self,
        workflow: Workflow<I, O, E>,
        id: &str,
        input: I,
        on_conflict: OnConflict,
    ) -> Result<RunHandle<O, E>, StartError> {
        let inner = self.inner();
        let id = InstanceId::new(id)?;
        let encoded = Payload::encode(&input)?;
        // Its own code may panic: not when the start is durable.
        drop(input);
        let input = encoded;
        let (reply, answer) = oneshot::channel();
        let (request, end) = inner.request(workflow, &id, input, on_conflict, reply)?;
        let message = ShardMessage::Start(request);
        let run = inner
            .ask_for_run(&id, workflow.name(), on_conflict, message, answer)
            .await?;
        Ok(RunHandle::new(Arc::clone(inner), id, Target::Run(run)).with_end(end))
    }

    /// Signals an instance, and starts it with that signal if there is none: in one commit, so that
    /// no crash comes between the two. Durable when this returns.
    ///
    /// A run that begins finds the signal when its code does. One that is there gets it as by
    /// [`signal`](RunHandle::signal), whether in memory or not, and the input is not looked at.
    /// `on_conflict` says what to do when the id is taken: [`OnConflict::Attach`] signals a live run,
    /// and is an error when it has finished; [`OnConflict::RestartFinished`] starts another then;
    /// [`OnConflict::Refuse`] signals only what it starts.
    ///
    /// As with any signal, whoever repeats this after [`StartError::Stopped`] may signal twice. Repeated
    /// when a finished run is retained no longer, it begins another, as [`start`](Self::start) does.
    ///
    /// ```
    /// use millrun::{OnConflict, Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const ITEM: Signal<u64> = Signal::named("item");
    /// const BATCH: Workflow<usize, u64> = Workflow::named("batch");
    ///
    /// /// The sum of the first so many.
    /// async fn batch(cx: WorkflowContext, len: usize) -> Result<u64, WorkflowError> {
    ///     let mut sum = 0;
    ///     for _ in 0..len {
    ///         sum += cx.receive(ITEM).await?;
    ///     }
    ///     Ok(sum)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(BATCH, batch).start().await?;
    /// // Whoever comes first starts it; after three, the next one starts another.
    /// let on_conflict = OnConflict::RestartFinished;
    /// for item in [1, 2, 3] {
    ///     runtime.signal_with_start(BATCH, "today", 3, ITEM, item, on_conflict).await?;
    /// }
    /// assert_eq!(runtime.attach(BATCH, "today")?.result().await?, 6);
    /// assert_eq!(runtime.stats().started, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Ordering
    /// Signals from one caller that awaits each arrive in that order, with those of
    /// [`signal`](RunHandle::signal).
    ///
    /// # Errors
    /// See [`SignalWithStartError`].
    ///
    /// # Cancel safety
    /// Dropping the future may or may not leave the instance started and signalled; the one not
    /// without the other, if it was started by this.
    pub async fn signal_with_start<I: Serialize, O, E, T: Serialize>(
        &self,
        workflow: Workflow<I, O, E>,
        id: &str,
        input: I,
        signal: Signal<T>,
        value: T,
        on_conflict: OnConflict,
    ) -> Result<RunHandle<O, E>, SignalWithStartError> {
        let inner = self.inner();
        let id = InstanceId::new(id).map_err(StartError::from)?;
        let encoded = Payload::encode(&input).map_err(StartError::from)?;
        // Their own code may panic: not when the signal is durable.
        drop(input);
        let input = encoded;
        let encoded = Payload::encode(&value).map_err(RunError::from)?;
        drop(value);
        let value = encoded;
        let bytes_max = inner.shared.config.limits.payload_bytes_max;
        if value.len() > bytes_max {
            let bytes = value.len();
            return Err(RunError::Refused(Refused::TooLarge { bytes, bytes_max }).into());
        }
        loop {
            let (reply, answer) = oneshot::channel();
            let (told, taken) = oneshot::channel();
            let (start, end) = inner.request(workflow, &id, input.clone(), on_conflict, reply)?;
            let request = SignalWithStart {
                start,
                name: signal.name().into(),
                value: value.clone(),
                reply: told,
            };
            let message = ShardMessage::SignalWithStart(Box::new(request));
            let run = inner
                .ask_for_run(&id, workflow.name(), on_conflict, message, answer)
                .await?;
            let taken = inner.answered(taken).await;
            match taken {
                Ok(()) => return Ok(RunHandle::new(Arc::clone(inner), id, Target::Run(run)).with_end(end)),
                Err(RunError::Finished | RunError::NotFound) => {
                    if on_conflict != OnConflict::RestartFinished {
                        return Err(RunError::Finished.into());
                    }
                    // It ended before the signal came to it: there is room for another.
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
