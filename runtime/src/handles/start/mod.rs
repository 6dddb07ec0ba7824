//! Starting instances, and what happens when an id is taken.
//!
//! ```text
//!   start ──────────────┐              ┌─ the id is free ──► a run begins         one commit
//!   start, with_signal ─┼─► its shard ─┤
//!   start, with_update ─┤              └─ it is taken ─────► attach, refuse, or begin another
//!   start, only_after ──┘
//! ```
//!
//! A run that a signal started has it in its first event, and one that an update started has both in its
//! first turn, so that no crash comes between the two.

mod after;
mod future;
mod with_signal;
mod with_update;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Cause, InstanceId, RunId, Timestamp, TraceContext};
use millrun_workflow::{
    NAME_BYTES_MAX, Name, Payload, PayloadError, Retry, RunFailure, Signal, TypedError, Update, Workflow,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::code::workflows::is_reserved;
use crate::handles::run::End;
use crate::handles::updated::Decoder;
use crate::inner::Inner;
use crate::mail::{Reply, Request, StartDelay, StartDetails, StartRequest, StartedRun, Target};
use crate::{RunError, RunHandle, Runtime, StartError, UntypedHandle};

pub use after::StartAfter;
pub use future::Starting;
pub use with_signal::StartWithSignal;
pub use with_update::StartWithUpdate;

/// What to do when the id of a start is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// Give a handle to the run that is there, live, or finished and
    /// [retained](crate::store::Retention): starting is idempotent for that long.
    #[default]
    Attach,
    /// Refuse, whether the run that is there is live or finished.
    Refuse,
    /// Attach to a live run, if it is of the same workflow; if the latest run has finished, start
    /// another.
    RestartFinished,
    /// Attach to a live run, if it is of the same workflow; start another if the latest run has failed, been
    /// cancelled or been terminated; refuse if it has finished with a value.
    RestartFailed,
    /// Terminate a live run, if it is of the same workflow, and start another in its place, in one commit; start
    /// another as well if the latest run has finished. If nothing can be started, the live run goes on. **Repeated
    /// after an error, it terminates what it may have started before**: to be able to repeat it, terminate the run
    /// that is meant, and start another [`only_after`](Start::only_after) it.
    TerminateRunning,
}

impl OnConflict {
    /// Whether it makes a difference how the latest run has ended.
    pub(crate) fn looks_at_outcome(self) -> bool {
        self == Self::RestartFailed
    }

    /// Whether a start may be tried again when the live run that it has found has ended meanwhile.
    pub(crate) fn restarts(self) -> bool {
        match self {
            Self::Attach | Self::Refuse | Self::TerminateRunning => false,
            Self::RestartFinished | Self::RestartFailed => true,
        }
    }
}

/// A start that is described, and performed when it is awaited. Made by [`Runtime::start`] and
/// [`Runtime::start_untyped`]; `H` is the handle that it gives.
///
/// ```
/// use millrun::{OnConflict, Runtime, StartError, Workflow, WorkflowContext, WorkflowError};
///
/// const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
///
/// async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
///     Ok(number * 2)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
/// let run = runtime.start(DOUBLE, "d", 21).await?;
/// assert_eq!(run.result().await?, 42);
/// let again = runtime.start(DOUBLE, "d", 4).on_conflict(OnConflict::Refuse).await;
/// assert!(matches!(again, Err(StartError::AlreadyFinished { .. })));
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is started until this is awaited"]
pub struct Start<'a, H> {
    inner: &'a Arc<Inner>,
    /// What is to be started, or why it cannot be.
    asked: Result<Asked, StartError>,
    on_conflict: OnConflict,
    handle: MakeHandle<H>,
}

/// What makes the handle of the run that a start led to.
type MakeHandle<H> = fn(RunHandle<Payload, RunFailure>) -> H;

/// The instance that a start asks for, its input encoded and no larger than a payload may be.
#[derive(Clone, Debug)]
struct Asked {
    id: InstanceId,
    workflow: Name,
    input: Payload,
    details: Option<Box<StartDetails>>,
    /// Nobody waits for the end of the run by the handle that this gives.
    is_let_go: bool,
}

impl<H> fmt::Debug for Start<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start")
            .field("asked", &self.asked)
            .field("on_conflict", &self.on_conflict)
            .finish_non_exhaustive()
    }
}

impl<'a, H> Start<'a, H> {
    fn new(
        inner: &'a Arc<Inner>,
        workflow: Name,
        id: &str,
        input: Result<Payload, PayloadError>,
        handle: MakeHandle<H>,
    ) -> Self {
        Self {
            inner,
            asked: Asked::new(inner, workflow, id, input),
            on_conflict: OnConflict::default(),
            handle,
        }
    }

    /// Refuses it if the workflow has a name that is reserved for millrun's own.
    fn refuse_reserved(&mut self) {
        if let Ok(asked) = &self.asked
            && is_reserved(&asked.workflow)
        {
            let workflow = asked.workflow.to_string();
            self.asked = Err(StartError::ReservedName { workflow });
        }
    }

    /// Says what to do when the id is taken; [`OnConflict::Attach`] if this is not called. Under each
    /// policy an id is free again once its finished run is retained no longer.
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// Starts a run only in the place of this one: if it is the latest run of the instance, and has finished. The
    /// shard looks and begins in one turn, so that repeated under the same run this starts one run at most, also where
    /// other callers start runs of the instance meanwhile. It takes the place of [`on_conflict`](Self::on_conflict).
    ///
    /// ```
    /// use millrun::{Runtime, StartError, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const REPORT: Workflow<u64, u64> = Workflow::named("report");
    ///
    /// async fn report(_cx: WorkflowContext, day: u64) -> Result<u64, WorkflowError> {
    ///     Ok(day)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(REPORT, report).start().await?;
    /// let first = runtime.start(REPORT, "r", 1).await?;
    /// first.result().await?;
    /// let run = first.run_id().expect("it was started by this handle");
    /// let second = runtime.start(REPORT, "r", 2).only_after(run).await?;
    /// second.result().await?;
    /// // Repeated, it finds that another run has followed, and which.
    /// let third = runtime.start(REPORT, "r", 2).only_after(run).await;
    /// assert!(matches!(third, Err(StartError::AlreadyFinished { run }) if Some(run) == second.run_id()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StartError::AlreadyRunning`] while a run of the instance is live, this one or another;
    /// [`StartError::AlreadyFinished`] if another has finished since, [`StartError::NotRetained`] if none is retained
    /// any more. Each names the run. For others see [`StartError`].
    ///
    /// # Cancel safety
    /// Dropping the future may or may not leave the run started.
    pub const fn only_after(self, run: RunId) -> StartAfter<'a, H> {
        StartAfter::new(self, run)
    }

    /// Says which operation of a run causes this start: a run that begins keeps it in its history, and
    /// [`describe`](RunHandle::describe) gives it. An activity that starts something hands over
    /// [its own](crate::ActivityContext::cause). A [trigger](Runtime::on) says it by itself of what a run has
    /// published.
    pub fn caused_by(mut self, cause: Cause) -> Self {
        if let Ok(asked) = &mut self.asked {
            asked.details.get_or_insert_default().cause = Some(cause);
        }
        self
    }

    /// Delays the code of the run that begins by so long, counted from the time of its first event, which is when the start was
    /// decided: a store that is slow to keep it delays it no further. The run is there, under its id, as soon as the start is awaited, and has the [status](crate::operating::RunStatus::Delayed) of one that is
    /// delayed until its time has come; a crash in between changes nothing. Time at which no process runs counts, and
    /// the host's clock decides: the code never begins early by it. A start that attaches to a run changes nothing of
    /// when that begins.
    ///
    /// Until then signals are kept for the code, which finds them when it begins, and callers wait for the result. A
    /// query or an update is refused, and nothing is started [with an update](Self::with_update). A request to
    /// [cancel](RunHandle::cancel) ends the run at once, as terminated: it has no code yet that could answer.
    /// [`resume`](RunHandle::resume) has it begin before its time. One that is [paused](RunHandle::pause) does not begin,
    /// and is delayed again when it is resumed before its time. It counts among the live instances.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use millrun::operating::InstanceStatus;
    /// use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const REMIND: Workflow<String, String> = Workflow::named("remind");
    ///
    /// async fn remind(_cx: WorkflowContext, whom: String) -> Result<String, WorkflowError> {
    ///     Ok(format!("{whom} was reminded"))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(REMIND, remind).start().await?;
    /// let week = Duration::from_secs(7 * 24 * 3_600);
    /// let run = runtime.start(REMIND, "r", "ada".into()).delayed_by(week).await?;
    /// assert_eq!(run.describe().await?.status, InstanceStatus::Delayed);
    /// run.resume().await?; // there is no need to wait any more
    /// assert_eq!(run.result().await?, "ada was reminded");
    /// # Ok(())
    /// # }
    /// ```
    pub fn delayed_by(self, pause: Duration) -> Self {
        self.delayed(StartDelay::By(pause))
    }

    /// As [`delayed_by`](Self::delayed_by), until that time. If it has passed, the code begins at once.
    pub fn delayed_until(self, at: Timestamp) -> Self {
        self.delayed(StartDelay::Until(at))
    }

    fn delayed(mut self, delay: StartDelay) -> Self {
        if let Ok(asked) = &mut self.asked {
            asked.details.get_or_insert_default().delay = Some(delay);
        }
        self
    }

    /// Has the run that begins tried again by this policy when it fails: from its input, under its id, in another run of the
    /// instance, behind the policy's pause. The failed run, and the run in which it is tried next, are in one commit, so a crash
    /// neither loses nor doubles a try; time at which no process runs counts for the pause. Handles, a parent, and other callers
    /// wait for the last try: that of the first value, or the one that fails behind the last. A start that attaches to a run
    /// changes nothing of how that is tried.
    ///
    /// A failure is an error of the workflow. A run that is cancelled or terminated, or fails when it was asked to cancel, is not
    /// tried again, nor is one with an error that is not [retryable](crate::TypedError::is_retryable), as
    /// [`WorkflowError::fatal`](crate::WorkflowError::fatal) makes them, or with an input or result that is not of the workflow's
    /// type. Code that panics does not fail its run: it is parked, and brought back.
    ///
    /// A try begins as the first did: with the signals that the first began with, and behind the same places in durable topics.
    /// Signals that have come since and that no try has taken are there as well. What activities have done is not undone, and
    /// their idempotency keys are those of another run: compensate with a [`Saga`](crate::workflow::Saga) what must not stand. A run
    /// that goes on [as new](crate::WorkflowContext::continue_as_new) begins with what it goes on with, and has all its tries
    /// again. While it waits for the next try, an instance is as one whose start is [delayed](Self::delayed_by): a request to
    /// cancel ends it, and [`resume`](RunHandle::resume) has the try begin before its time.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use std::time::Duration;
    ///
    /// use millrun::{Retry, Runtime, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const IMPORT: Workflow<String, u32> = Workflow::named("import");
    ///
    /// static FILES_THERE: AtomicU32 = AtomicU32::new(0);
    ///
    /// async fn import(cx: WorkflowContext, _file: String) -> Result<u32, WorkflowError> {
    ///     match cx.record(|| FILES_THERE.fetch_add(1, Ordering::Relaxed)).await? {
    ///         0 => Err(WorkflowError::failed("the file is not there yet")),
    ///         files => Ok(files),
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(IMPORT, import).start().await?;
    /// let retry = Retry::exponential().attempts(5).first_pause(Duration::from_millis(10));
    /// let run = runtime.start(IMPORT, "i", "prices.csv".into()).retried(retry).await?;
    /// assert_eq!(run.result().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn retried(mut self, retry: Retry) -> Self {
        if let Ok(asked) = &mut self.asked {
            asked.details.get_or_insert_default().retry = Some(retry);
        }
        self
    }

    /// Says which trigger and record have this started: the run keeps it in its history.
    pub(crate) fn triggered_by(mut self, trigger: Box<str>) -> Self {
        if let Ok(asked) = &mut self.asked {
            asked.details.get_or_insert_default().triggered_by = Some(trigger);
        }
        self
    }

    /// Says that the end of the run is not waited for by the handle that this gives: nothing is made ready for it.
    pub(crate) fn let_go(mut self) -> Self {
        if let Ok(asked) = &mut self.asked {
            asked.is_let_go = true;
        }
        self
    }

    /// Says from which place in a distributed trace this start is asked for: that of the caller's own span, or the
    /// `traceparent` header of the request that it serves. A run that begins keeps it in its first event, hands it on to
    /// its [activities](crate::ActivityContext::trace), its children and what it publishes, and has spans under it if it
    /// says that the trace is recorded. A [trigger](Runtime::on) says it by itself of an envelope that has one.
    ///
    /// ```
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// // A header that is none is passed over, as the W3C recommendation asks for.
    /// let start = runtime.start(DOUBLE, "d", 21);
    /// let start = match header.parse() {
    ///     Ok(trace) => start.traced(trace),
    ///     Err(_) => start,
    /// };
    /// assert_eq!(start.await?.result().await?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn traced(mut self, trace: TraceContext) -> Self {
        if let Ok(asked) = &mut self.asked {
            asked.details.get_or_insert_default().trace = Some(trace);
        }
        self
    }
}

impl<'a, O, E> Start<'a, RunHandle<O, E>> {
    /// Signals the instance, and starts it with that signal if there is none: in one commit, so that
    /// no crash comes between the two. Both are durable when this has been awaited.
    ///
    /// A run that begins finds the signal when its code does. One that is there gets it as by
    /// [`signal`](RunHandle::signal), whether in memory or not, and the input is not looked at.
    /// [`on_conflict`](Self::on_conflict) says what to do when the id is taken: [`OnConflict::Attach`]
    /// signals a live run, and is an error when it has finished; [`OnConflict::RestartFinished`] starts
    /// another then; [`OnConflict::Refuse`] signals only what it starts.
    ///
    /// As with any signal, a caller that repeats this after [`StartError::Stopped`] may signal twice, unless it names
    /// the request: [`with_signal_as`](Self::with_signal_as).
    /// Repeated when a finished run is retained no longer, it begins another, as
    /// [`start`](Runtime::start) does.
    ///
    /// ```
    /// use millrun::{OnConflict, Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const ITEM: Signal<u64> = Signal::named("item");
    /// const BATCH: Workflow<usize, u64> = Workflow::named("batch");
    ///
    /// /// Adds up `len` items.
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
    /// // The first one starts it; after three, the next one would start another.
    /// for item in [1, 2, 3] {
    ///     let start = runtime.start(BATCH, "today", 3).on_conflict(OnConflict::RestartFinished);
    ///     start.with_signal(ITEM, item).await?;
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
    /// See [`StartWithSignalError`](crate::StartWithSignalError).
    ///
    /// # Cancel safety
    /// Dropping the future may or may not leave the instance started and signalled; the one not
    /// without the other, if it was started by this.
    pub fn with_signal<T: Serialize>(
        self,
        signal: Signal<T>,
        value: T,
    ) -> StartWithSignal<'a, RunHandle<O, E>> {
        let encoded = Payload::encode(&value).map_err(RunError::from);
        // Its own code may panic: not when the signal is durable.
        drop(value);
        StartWithSignal::new(self, signal.name().into(), encoded, None)
    }

    /// As [`with_signal`](Self::with_signal), under a name of the caller's choice of 1 to 255 bytes: repeated under
    /// the same name, the run has the signal once, as by [`signal_as`](RunHandle::signal_as), also when it has ended,
    /// unless [`OnConflict::RestartFinished`] starts another then.
    ///
    /// # Errors
    /// See [`StartWithSignalError`](crate::StartWithSignalError).
    ///
    /// # Cancel safety
    /// As [`with_signal`](Self::with_signal).
    pub fn with_signal_as<T: Serialize>(
        self,
        signal: Signal<T>,
        request: &str,
        value: T,
    ) -> StartWithSignal<'a, RunHandle<O, E>> {
        let encoded = Payload::encode(&value).map_err(RunError::from);
        drop(value);
        StartWithSignal::new(self, signal.name().into(), encoded, Some(request.into()))
    }

    /// Updates the instance's [state](crate::workflow::State), and starts it first if there is none. A run that
    /// begins is started and updated in one turn: both are durable, or neither has happened. Awaiting it
    /// gives the handle and the update's answer.
    ///
    /// A run that begins runs up to its first wait, and is updated then: code that makes its state there
    /// answers. If the update is refused at that point (its validator says no, there is no state yet, the
    /// code has ended or is not registered here), **nothing is started**, and the id stays free. A run that
    /// is there is updated as by [`update`](RunHandle::update), whether in memory or not, and the input is
    /// not looked at. [`on_conflict`](Self::on_conflict) says what to do when the id is taken:
    /// [`OnConflict::Attach`] updates a live run; [`OnConflict::RestartFinished`] starts another if it has
    /// ended; [`OnConflict::Refuse`] updates only what it starts.
    ///
    /// To be able to repeat it after an error, name the request:
    /// [`with_update_as`](Self::with_update_as).
    ///
    /// ```
    /// use millrun::{Runtime, Update, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const CART: Workflow<usize, Vec<String>> = Workflow::named("cart");
    /// const ADD: Update<Vec<String>, String, usize> = Update::named("add");
    ///
    /// async fn cart(cx: WorkflowContext, full: usize) -> Result<Vec<String>, WorkflowError> {
    ///     let items = cx.state(Vec::new());
    ///     items.until(move |items| items.len() >= full).await?;
    ///     Ok(items.read(Vec::clone))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let answering = CART.update(ADD).change(|items, item| {
    ///     items.push(item);
    ///     items.len()
    /// });
    /// let runtime = Runtime::volatile().register(answering, cart).start().await?;
    /// // Nobody needs to know whether the cart is there.
    /// let (_, len) = runtime.start(CART, "ada", 2).with_update(ADD, "bread".into()).await?;
    /// assert_eq!(len, 1);
    /// let (cart, len) = runtime.start(CART, "ada", 2).with_update(ADD, "milk".into()).await?;
    /// assert_eq!(len, 2);
    /// assert_eq!(cart.result().await?, ["bread", "milk"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`StartWithUpdateError`](crate::StartWithUpdateError).
    ///
    /// # Cancel safety
    /// Dropping the future may or may not leave the instance started and updated; the one not
    /// without the other, if it was started by this.
    pub fn with_update<S, I: Serialize, A: DeserializeOwned, R: TypedError>(
        self,
        update: Update<S, I, A, R>,
        input: I,
    ) -> StartWithUpdate<'a, RunHandle<O, E>, A, R> {
        let request = self.inner.request_name();
        self.with_update_as(update, &request, input)
    }

    /// As [`with_update`](Self::with_update), under a name of the caller's choice of 1 to 255 bytes:
    /// asked again under the same name, the run gives the answer it gave before, as by
    /// [`update_as`](RunHandle::update_as), also when it has ended, unless
    /// [`OnConflict::RestartFinished`] starts another then.
    ///
    /// # Errors
    /// See [`StartWithUpdateError`](crate::StartWithUpdateError).
    ///
    /// # Cancel safety
    /// As [`with_update`](Self::with_update).
    pub fn with_update_as<S, I: Serialize, A: DeserializeOwned, R: TypedError>(
        self,
        update: Update<S, I, A, R>,
        request: &str,
        input: I,
    ) -> StartWithUpdate<'a, RunHandle<O, E>, A, R> {
        let encoded = Payload::encode(&input);
        drop(input);
        StartWithUpdate::new(self, update.name().into(), request, encoded, Decoder::typed())
    }
}

impl<'a> Start<'a, UntypedHandle> {
    /// As [`with_signal`](Start::with_signal) of a typed start, with the signal's name and its value as
    /// encoded.
    pub fn with_signal_untyped(
        self,
        signal: impl Into<String>,
        value: Payload,
    ) -> StartWithSignal<'a, UntypedHandle> {
        StartWithSignal::new(self, Name::Owned(signal.into()), Ok(value), None).by_name()
    }

    /// As [`with_signal_as`](Start::with_signal_as) of a typed start, with the signal's name and its value as encoded.
    pub fn with_signal_untyped_as(
        self,
        signal: impl Into<String>,
        request: &str,
        value: Payload,
    ) -> StartWithSignal<'a, UntypedHandle> {
        let name = Name::Owned(signal.into());
        StartWithSignal::new(self, name, Ok(value), Some(request.into())).by_name()
    }

    /// As [`with_update_as`](Start::with_update_as) of a typed start, with the update's name, its input, the
    /// answer and a rejection as encoded.
    pub fn with_update_untyped(
        self,
        update: impl Into<String>,
        request: &str,
        input: Payload,
    ) -> StartWithUpdate<'a, UntypedHandle, Payload, Payload> {
        StartWithUpdate::new(
            self,
            Name::Owned(update.into()),
            request,
            Ok(input),
            Decoder::untyped(),
        )
    }
}

impl Asked {
    fn new(
        inner: &Inner,
        workflow: Name,
        id: &str,
        input: Result<Payload, PayloadError>,
    ) -> Result<Self, StartError> {
        let id = InstanceId::new(id)?;
        let input = input?;
        let bytes_max = inner.shared.config.limits.payload_bytes_max;
        if input.len() > bytes_max {
            let bytes = input.len();
            return Err(StartError::TooLarge { bytes, bytes_max });
        }
        Ok(Self {
            id,
            workflow,
            input,
            details: None,
            is_let_go: false,
        })
    }

    /// What a shard is asked, and where the end of the run is told, if that may be waited for.
    #[inline]
    fn request(
        self,
        on_conflict: OnConflict,
        reply: Reply<StartedRun, StartError>,
    ) -> (StartRequest, Option<End>) {
        let Self {
            id,
            workflow,
            input,
            details,
            is_let_go,
        } = self;
        let (told, end) = match is_let_go {
            false => Some(oneshot::channel()).unzip(),
            true => (None, None),
        };
        let request = StartRequest {
            id,
            workflow,
            input,
            details,
            on_conflict,
            reply,
            end: told,
        };
        (request, end)
    }
}

impl Inner {
    /// Whether a finished run is one of this workflow; if it is retained no longer, nobody knows.
    async fn check_workflow(&self, run: RunId, workflow: Name) -> Result<(), StartError> {
        match self.read(self.shared.reader.check_workflow(run, workflow)).await {
            Ok(()) => Ok(()),
            Err(RunError::OtherWorkflow { expected, workflow }) => {
                Err(StartError::OtherWorkflow { expected, workflow })
            }
            Err(error) => StartError::of_unread(run, error).map_or(Ok(()), Err),
        }
    }

    /// Whether a workflow may be started by this name with this input.
    pub(crate) fn check_untyped(&self, workflow: &str, input: &Payload) -> Result<(), StartError> {
        let bytes = workflow.len();
        if bytes == 0 || bytes > NAME_BYTES_MAX {
            return Err(StartError::Name { bytes });
        }
        if is_reserved(workflow) {
            let workflow = workflow.to_owned();
            return Err(StartError::ReservedName { workflow });
        }
        let code = self.shared.workflows.code_of(workflow);
        code.map_or(Ok(()), |code| code.check_input(input))?;
        Ok(())
    }

    /// Gives the run that a start led to, if it is one of the workflow that was asked for.
    async fn checked(
        &self,
        started: StartedRun,
        workflow: Name,
        on_conflict: OnConflict,
    ) -> Result<RunId, StartError> {
        let StartedRun { run, is_checked, .. } = started;
        if !is_checked && on_conflict == OnConflict::Attach {
            self.check_workflow(run, workflow).await?;
        }
        Ok(run)
    }

    /// A name for a request that is asked once.
    pub(crate) fn request_name(&self) -> String {
        let host = &self.shared.host;
        format!("{:016x}{:016x}", host.random(), host.random())
    }
}

impl Runtime {
    /// Starts an instance of a workflow under an id of the caller's choice, once it is awaited. Durable
    /// then.
    ///
    /// If the id is taken, by a live run or by a finished one that is retained, this gives a
    /// handle to that run: a start can be repeated until it succeeds. For other policies see
    /// [`on_conflict`](Start::on_conflict). What it gives can be told more before it is awaited:
    /// [`with_signal`](Start::with_signal), [`with_update`](Start::with_update). The workflow's code need
    /// not be registered here; the instance then waits for a runtime that has it.
    ///
    /// The id is taken for as long as its finished run is retained, by default for 72 hours, and less if
    /// many runs end: [`Retention`](crate::store::Retention) bounds their number and bytes as well, for all
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
    pub fn start<I: Serialize, O, E>(
        &self,
        workflow: Workflow<I, O, E>,
        id: &str,
        input: I,
    ) -> Start<'_, RunHandle<O, E>> {
        let encoded = Payload::encode(&input);
        // Its own code may panic: not when the start is durable.
        drop(input);
        let (inner, name) = (self.inner(), workflow.name().into());
        let mut start = Start::new(inner, name, id, encoded, RunHandle::retyped);
        start.refuse_reserved();
        start
    }

    /// As [`start`](Self::start), of a workflow of millrun's own.
    pub(crate) fn start_own<I, O, E>(
        &self,
        workflow: Workflow<I, O, E>,
        id: &str,
        input: Payload,
    ) -> Start<'_, RunHandle<O, E>> {
        Start::new(
            self.inner(),
            workflow.name().into(),
            id,
            Ok(input),
            RunHandle::retyped,
        )
    }

    /// As [`start`](Self::start), with the workflow's name and its input as encoded: for programs that
    /// learn them while they run. An input that is not of the type that the workflow takes is refused, and nothing is
    /// started; if the workflow is not registered here, nobody knows the type, and the run fails where it is.
    ///
    /// # Errors
    /// See [`StartError`].
    ///
    /// # Cancel safety
    /// As [`start`](Self::start).
    pub fn start_untyped(
        &self,
        workflow: impl Into<String>,
        id: &str,
        input: Payload,
    ) -> Start<'_, UntypedHandle> {
        let workflow: String = workflow.into();
        let refused = self.inner().check_untyped(&workflow, &input);
        let mut start = Start::new(self.inner(), workflow.into(), id, Ok(input), UntypedHandle::new);
        if let (Ok(_), Err(refused)) = (&start.asked, refused) {
            start.asked = Err(refused);
        }
        start
    }
}

/// What a start is awaited as.
fn handle_of<H>(inner: &Arc<Inner>, id: InstanceId, run: RunId, end: Option<End>, make: MakeHandle<H>) -> H {
    let handle = RunHandle::new(Arc::clone(inner), id, Target::Run(run));
    make(match end {
        Some(end) => handle.with_end(end),
        None => handle,
    })
}

/// Asks the shard of an id.
async fn ask<T, E: From<crate::StopCause>>(
    inner: &Inner,
    id: &InstanceId,
    request: Request,
    answer: oneshot::Receiver<Result<T, E>>,
) -> Result<T, E> {
    let door = inner.doors.of(id.partition());
    inner.ask_in_little_memory(door, request, answer).await
}
