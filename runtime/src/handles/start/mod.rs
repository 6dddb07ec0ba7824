//! Starting instances, and what happens when an id is taken.
//!
//! ```text
//!   start ──────────────┐              ┌─ the id is free ──► a run begins         one commit
//!   start, with_signal ─┼─► its shard ─┤
//!   start, with_update ─┤              └─ it is taken ─────► attach, refuse, or begin another
//!   start, only_after ──┘
//! ```
//!
//! A run that a signal started has the signal in its first event; one that an update started has the update in its first
//! turn. So no crash comes between the two.

mod after;
mod future;
mod with_signal;
mod with_update;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Cause, InstanceId, RunId, Timestamp, TraceContext};
use millrun_workflow::{
    NAME_BYTES_MAX, Name, Payload, PayloadError, Retry, RunFailure, RunTimeout, Signal, TypedError, Update,
    Workflow,
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
    /// Attach to the existing run, live, or finished and [retained](crate::store::Retention): so a start can be repeated for
    /// that long.
    #[default]
    Attach,
    /// Refuse, whether the existing run is live or finished.
    Refuse,
    /// Attach to a live run, if it is of the same workflow; if the latest run has finished, start
    /// another.
    RestartFinished,
    /// Attach to a live run, if it is of the same workflow; start another if the latest run has failed, been
    /// cancelled, terminated or out of time; refuse if it has finished with a value.
    RestartFailed,
    /// Terminate a live run, if it is of the same workflow, and start another in its place, in one commit; also start another
    /// if the latest run has finished. If nothing can be started, the live run continues. **Repeated after an error, it
    /// terminates the run that it may have started before**: to be able to repeat it, terminate the run that is meant, and
    /// start another [`only_after`](Start::only_after) it.
    TerminateRunning,
}

impl OnConflict {
    /// Whether the outcome of the latest run matters.
    pub(crate) fn looks_at_outcome(self) -> bool {
        self == Self::RestartFailed
    }

    /// Whether a start may be tried again if the live run that it has found has ended meanwhile.
    pub(crate) fn restarts(self) -> bool {
        match self {
            Self::Attach | Self::Refuse | Self::TerminateRunning => false,
            Self::RestartFinished | Self::RestartFailed => true,
        }
    }
}

/// A start in preparation, performed when it is awaited. Made by [`Runtime::start`] and [`Runtime::start_untyped`]; `H` is
/// the handle that it returns.
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
    /// The instance to be started, or why it cannot be.
    asked: Result<Asked, StartError>,
    on_conflict: OnConflict,
    handle: MakeHandle<H>,
}

/// Makes the handle for the started run.
type MakeHandle<H> = fn(RunHandle<Payload, RunFailure>) -> H;

/// The instance to be started, with its encoded input, whose size was checked.
#[derive(Clone, Debug)]
struct Asked {
    id: InstanceId,
    workflow: Name,
    input: Payload,
    details: Option<Box<StartDetails>>,
    /// Whether the returned handle will not wait for the run's end.
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

    /// Refuses it if the workflow's name is reserved.
    fn refuse_reserved(&mut self) {
        if let Ok(asked) = &self.asked
            && is_reserved(&asked.workflow)
        {
            let workflow = asked.workflow.to_string();
            self.asked = Err(StartError::ReservedName { workflow });
        }
    }

    /// Sets what happens when the id is taken; [`OnConflict::Attach`] by default. Under each policy an id is free again once
    /// its finished run is not retained any more.
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// Starts a run only as the successor of this one: if this is the latest run of the instance, and has finished. The shard
    /// checks and begins in one turn, so that repetitions with the same run start at most one run, even if other callers
    /// start runs of the instance meanwhile. It replaces [`on_conflict`](Self::on_conflict).
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
    /// [`StartError::AlreadyFinished`] if another has finished since, [`StartError::NotRetained`] if none is retained any
    /// more. Each names the run. For others see [`StartError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the run may be started or not.
    pub const fn only_after(self, run: RunId) -> StartAfter<'a, H> {
        StartAfter::new(self, run)
    }

    /// Sets the operation of a run that causes this start: the new run's history keeps it, and
    /// [`describe`](RunHandle::describe) shows it. An activity that starts something passes [its
    /// own](crate::ActivityContext::cause). A [trigger](Runtime::on) sets it by itself for what a run has published.
    pub fn caused_by(mut self, cause: Cause) -> Self {
        if let Ok(asked) = &mut self.asked {
            asked.details.get_or_insert_default().cause = Some(cause);
        }
        self
    }

    /// Delays the code of the new run by this time, counted from its first event, when the start was decided: a slow commit
    /// adds no delay. The run exists, under its id, as soon as the start has been awaited, and has the
    /// [status](crate::operating::RunStatus::Delayed) of a delayed one until its time has come; a crash in between changes
    /// nothing. Time without a running process counts, and the host's clock decides: the code never begins early by it. A
    /// start that attaches to a run does not change when that begins.
    ///
    /// Until then signals are kept for the code, which finds them when it begins, and callers wait for the result. A query or
    /// an update is refused, and nothing is started [with an update](Self::with_update). A request to
    /// [cancel](RunHandle::cancel) ends the run at once, as terminated, since it has no code yet that could answer.
    /// [`resume`](RunHandle::resume) lets it begin early. A [paused](RunHandle::pause) one does not begin, and is delayed
    /// again when it is resumed before its time. It counts among the live instances.
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

    /// As [`delayed_by`](Self::delayed_by), until that time. If the time has passed, the code begins at once.
    pub fn delayed_until(self, at: Timestamp) -> Self {
        self.delayed(StartDelay::Until(at))
    }

    fn delayed(mut self, delay: StartDelay) -> Self {
        if let Ok(asked) = &mut self.asked {
            asked.details.get_or_insert_default().delay = Some(delay);
        }
        self
    }

    /// Sets a retry policy for the whole run: when it fails, another run of the instance begins with the same input, under
    /// the same id, after the policy's pause. The failed run and the next one are in one commit, so a crash neither loses nor
    /// doubles a try; time without a running process counts for the pause. Handles, a parent, and other callers wait for the
    /// last try: the one that returns a value, or the final failure. A start that attaches to a run does not change that
    /// run's policy.
    ///
    /// Only an error of the workflow is a failure. A run is not tried again if it is cancelled or terminated, or fails after
    /// it was asked to cancel, if its error is not [retryable](crate::TypedError::is_retryable), like those of
    /// [`WorkflowError::fatal`](crate::WorkflowError::fatal), or if its input or result does not have the workflow's type.
    /// Code that panics does not fail its run: the run is parked, and brought back.
    ///
    /// A try begins as the first did: with the same initial signals, and at the same places in durable topics. Signals that
    /// came since and were not taken by any try are there as well. The effects of activities are not undone, and the next
    /// try's activities have other idempotency keys: use a [`Saga`](crate::workflow::Saga) to compensate effects that must
    /// not stay. A run that continues [as new](crate::WorkflowContext::continue_as_new) begins with its new input, and has
    /// all its tries again. While it waits for the next try, an instance is like one whose start is
    /// [delayed](Self::delayed_by): a request to cancel ends it, and [`resume`](RunHandle::resume) lets the try begin early.
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

    /// Bounds how long the run that begins may take, from when its code is to begin: a [delay](Self::delayed_by) does not count,
    /// even if the run is resumed before its time. When that time is over the run ends without its code, as one that is
    /// [terminated](RunHandle::terminate): its activities and children are told to stop, its timers are forgotten, and what it
    /// has published stays. Callers get [`ResultError::TimedOut`](crate::ResultError::TimedOut), and a parent
    /// [`ChildError::TimedOut`](crate::ChildError::TimedOut). Compensation that must happen belongs in code with a
    /// [sleep](crate::WorkflowContext::sleep) of its own, or in a parent.
    ///
    /// The host's clock counts, whether the code runs or is parked or paused, and whether a process runs or not: a run that is
    /// out of time while none does ends when the next one has opened the store. No run ends early by that clock.
    /// Each run of the instance has this time for itself: one that goes on [as new](crate::WorkflowContext::continue_as_new), one
    /// that is [tried again](Self::retried), and one that begins with a [reset](RunHandle::reset). A run that is out of time has
    /// failed, as far as [`retried`](Self::retried) is concerned, unless it is parked. A start that attaches to a run changes
    /// nothing of its time.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use millrun::workflow::RunTimeout;
    /// use millrun::{ResultError, Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const ANSWER: Signal<String> = Signal::named("answer");
    /// const ASK: Workflow<String, String> = Workflow::named("ask");
    ///
    /// async fn ask(cx: WorkflowContext, _question: String) -> Result<String, WorkflowError> {
    ///     Ok(cx.receive(ANSWER).await?)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(ASK, ask).start().await?;
    /// let start = runtime.start(ASK, "q", "who?".into()).run_timeout(Duration::from_millis(20));
    /// let result = start.await?.result().await;
    /// assert!(matches!(result, Err(ResultError::TimedOut(RunTimeout::Run))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A timeout of zero is refused, with [`StartError::NoTime`].
    pub fn run_timeout(self, timeout: Duration) -> Self {
        self.timing_out(RunTimeout::Run, timeout)
    }

    /// As [`run_timeout`](Self::run_timeout), of the whole chain: the run that begins and all in which it goes on as new, is tried
    /// again, or is reset to, with the pauses between them. A try that could begin only when this time is over is none: the run
    /// fails with its own error instead. A run whose chain's time is over cannot be reset.
    pub fn chain_timeout(self, timeout: Duration) -> Self {
        self.timing_out(RunTimeout::Chain, timeout)
    }

    fn timing_out(mut self, which: RunTimeout, timeout: Duration) -> Self {
        if timeout.is_zero() {
            self.asked = self.asked.and(Err(StartError::NoTime { timeout: which }));
        }
        if let Ok(asked) = &mut self.asked {
            let details = asked.details.get_or_insert_default();
            details.timeouts.get_or_insert_default().bound(which, timeout);
        }
        self
    }

    /// Sets the trigger and record that cause this start: the run's history keeps them.
    pub(crate) fn triggered_by(mut self, trigger: Box<str>) -> Self {
        if let Ok(asked) = &mut self.asked {
            asked.details.get_or_insert_default().triggered_by = Some(trigger);
        }
        self
    }

    /// The returned handle will not wait for the run's end: nothing is prepared for it.
    pub(crate) fn let_go(mut self) -> Self {
        if let Ok(asked) = &mut self.asked {
            asked.is_let_go = true;
        }
        self
    }

    /// Sets the place in a distributed trace from which this start comes: the caller's own span, or the `traceparent` header
    /// of the request that it serves. The new run keeps it in its first event, passes it on to its
    /// [activities](crate::ActivityContext::trace), its children and its publishes, and has spans below it if the trace is
    /// marked as recorded. A [trigger](Runtime::on) sets it by itself from an envelope that has one.
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
    /// Signals the instance, and starts it with that signal if it does not live: in one commit, so that no crash comes
    /// between the two. Both are durable when this has been awaited.
    ///
    /// A new run has the signal when its code begins. An existing one gets it as by [`signal`](RunHandle::signal), whether in
    /// memory or not, and the input is ignored. [`on_conflict`](Self::on_conflict) sets what happens when the id is taken:
    /// [`OnConflict::Attach`] signals a live run, and is an error when it has finished; [`OnConflict::RestartFinished`] then
    /// starts another; [`OnConflict::Refuse`] only signals what it starts.
    ///
    /// As with any signal, a caller that repeats this after [`StartError::Stopped`] may signal twice, unless it names the
    /// request: [`with_signal_as`](Self::with_signal_as). If it is repeated when a finished run is not retained any more, it
    /// begins another one, as [`start`](Runtime::start) does.
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
    /// If the future is dropped, the instance may be started and signalled or not, but never only one of both, if it was
    /// started by this.
    pub fn with_signal<T: Serialize>(
        self,
        signal: Signal<T>,
        value: T,
    ) -> StartWithSignal<'a, RunHandle<O, E>> {
        let encoded = Payload::encode(&value).map_err(RunError::from);
        // The value's own code may panic, which must not happen once the signal is durable.
        drop(value);
        StartWithSignal::new(self, signal.name().into(), encoded, None)
    }

    /// As [`with_signal`](Self::with_signal), with a request name of the caller's choice of 1 to 255 bytes: if it is repeated
    /// under the same name, the run has the signal once, as by [`signal_as`](RunHandle::signal_as), also when it has ended,
    /// unless [`OnConflict::RestartFinished`] then starts another.
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

    /// Updates the instance's [state](crate::workflow::State), and starts the instance first if it does not live. A new run
    /// is started and updated in one turn: both are durable, or neither has happened. The result is the handle and the
    /// update's answer.
    ///
    /// A new run runs up to its first wait, and is updated then: code that makes its state there can answer. If the update is
    /// refused at that point (its validator rejects it, there is no state yet, the code has ended or is not registered here),
    /// **nothing is started**, and the id stays free. An existing run is updated as by [`update`](RunHandle::update), whether
    /// in memory or not, and the input is ignored. [`on_conflict`](Self::on_conflict) sets what happens when the id is taken:
    /// [`OnConflict::Attach`] updates a live run; [`OnConflict::RestartFinished`] starts another if it has ended;
    /// [`OnConflict::Refuse`] only updates what it starts.
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
    /// If the future is dropped, the instance may be started and updated or not, but never only one of both, if it was
    /// started by this.
    pub fn with_update<S, I: Serialize, A: DeserializeOwned, R: TypedError>(
        self,
        update: Update<S, I, A, R>,
        input: I,
    ) -> StartWithUpdate<'a, RunHandle<O, E>, A, R> {
        let request = self.inner.request_name();
        self.with_update_as(update, &request, input)
    }

    /// As [`with_update`](Self::with_update), with a request name of the caller's choice of 1 to 255 bytes: if it is repeated
    /// under the same name, the run returns its earlier answer, as by [`update_as`](RunHandle::update_as), also when it has
    /// ended, unless [`OnConflict::RestartFinished`] then starts another.
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
    /// As [`with_signal`](Start::with_signal) of a typed start, with the signal's name and its encoded value.
    pub fn with_signal_untyped(
        self,
        signal: impl Into<String>,
        value: Payload,
    ) -> StartWithSignal<'a, UntypedHandle> {
        StartWithSignal::new(self, Name::Owned(signal.into()), Ok(value), None).by_name()
    }

    /// As [`with_signal_as`](Start::with_signal_as) of a typed start, with the signal's name and its encoded value.
    pub fn with_signal_untyped_as(
        self,
        signal: impl Into<String>,
        request: &str,
        value: Payload,
    ) -> StartWithSignal<'a, UntypedHandle> {
        let name = Name::Owned(signal.into());
        StartWithSignal::new(self, name, Ok(value), Some(request.into())).by_name()
    }

    /// As [`with_update_as`](Start::with_update_as) of a typed start, with the update's name; its input, the answer and a
    /// rejection are encoded.
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

    /// The request for a shard, and the receiver of the run's end, if that may be waited for.
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
    /// Checks that a finished run is of this workflow; if it is not retained any more, that is unknown.
    pub(crate) async fn check_workflow(&self, run: RunId, workflow: Name) -> Result<(), StartError> {
        match self.read(self.shared.reader.check_workflow(run, workflow)).await {
            Ok(()) => Ok(()),
            Err(RunError::OtherWorkflow { expected, workflow }) => {
                Err(StartError::OtherWorkflow { expected, workflow })
            }
            Err(error) => StartError::of_unread(run, error).map_or(Ok(()), Err),
        }
    }

    /// Checks whether a workflow may be started by this name with this input.
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

    /// The run that a start led to, if it is of the right workflow.
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

    /// A name for a request that is not repeated.
    pub(crate) fn request_name(&self) -> String {
        let host = &self.shared.host;
        format!("{:016x}{:016x}", host.random(), host.random())
    }
}

impl Runtime {
    /// Starts an instance of a workflow under an id of the caller's choice, once it is awaited. The start is durable then.
    ///
    /// If the id is taken, by a live run or by a retained finished one, this returns a handle to that run: a start can be
    /// repeated until it succeeds. For other policies see [`on_conflict`](Start::on_conflict). Before it is awaited, more can
    /// be added: [`with_signal`](Start::with_signal), [`with_update`](Start::with_update). The workflow's code need not be
    /// registered here; the instance then waits for a runtime that has it.
    ///
    /// The id is taken while its finished run is retained, by default for 72 hours, and for less if many runs end:
    /// [`Retention`](crate::store::Retention) bounds their number and bytes as well, for all workflows together. **A start
    /// that is repeated after that begins another run**, and its activities have other [idempotency
    /// keys](crate::ActivityContext::idempotency_key): an order would be charged again. If a start may be repeated later than
    /// that, give the remote side a key of your own, such as the number of the order, or ask it before.
    ///
    /// # Errors
    /// See [`StartError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the instance may be started or not; repeat the start.
    pub fn start<I: Serialize, O, E>(
        &self,
        workflow: Workflow<I, O, E>,
        id: &str,
        input: I,
    ) -> Start<'_, RunHandle<O, E>> {
        let encoded = Payload::encode(&input);
        // The value's own code may panic, which must not happen once the start is durable.
        drop(input);
        let (inner, name) = (self.inner(), workflow.name().into());
        let mut start = Start::new(inner, name, id, encoded, RunHandle::retyped);
        start.refuse_reserved();
        start
    }

    /// As [`start`](Self::start), for a built-in workflow.
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

    /// As [`start`](Self::start), with the workflow's name and its encoded input: for programs that learn them at run time.
    /// An input of another type than the workflow's is refused, and nothing is started; if the workflow is not registered
    /// here, the type is unknown, and the run fails where it is registered.
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

/// Makes the handle that an awaited start returns.
fn handle_of<H>(inner: &Arc<Inner>, id: InstanceId, run: RunId, end: Option<End>, make: MakeHandle<H>) -> H {
    let handle = RunHandle::new(Arc::clone(inner), id, Target::Run(run));
    make(match end {
        Some(end) => handle.with_end(end),
        None => handle,
    })
}

/// Sends a request to the shard of an id, and waits for the answer.
async fn ask<T, E: From<crate::StopCause>>(
    inner: &Inner,
    id: &InstanceId,
    request: Request,
    answer: oneshot::Receiver<Result<T, E>>,
) -> Result<T, E> {
    let door = inner.doors.of(id.partition());
    inner.ask_in_little_memory(door, request, answer).await
}
