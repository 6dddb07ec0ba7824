//! The futures that workflow code awaits. Each is lazy: it is decided when first polled, and dropping it afterwards cancels
//! it durably.

use std::convert::Infallible;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use millrun_core::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::requests;
use crate::context::scope::Scope;
use crate::context::shared::{Shared, Table};
use crate::context::slots::Resolution;
use crate::definition::NAME_BYTES_MAX;
use crate::event::{ActivityFailure, ActivityScheduled, Event, Name};
use crate::{
    Activity, CallError, Cancelled, ErrorKind, OperationId, Payload, PayloadError, Retry, Signal,
    SignalError, TypedError,
};

/// How long one attempt of an activity may take unless the call says otherwise.
pub const START_TO_CLOSE_DEFAULT: Duration = Duration::from_secs(600);

/// How many kinds of errors may have a [retry policy](Call::retry_on) of their own in one call.
pub const RETRY_KINDS_MAX: usize = 32;

/// The stage of an operation.
#[derive(Debug)]
pub(super) enum Stage {
    /// Not polled yet: nothing has been decided.
    New,
    /// Decided; the run waits for its end.
    Issued(OperationId),
    /// Has returned its value.
    Done,
}

/// The part that all operations share: the table, the stage, and the durable cancel on drop.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) shared: Arc<Shared>,
    pub(super) scope: Scope,
    location: &'static Location<'static>,
    pub(super) stage: Stage,
}

impl Operation {
    pub(super) fn new(shared: Arc<Shared>, scope: Scope, location: &'static Location<'static>) -> Self {
        Self {
            shared,
            scope,
            location,
            stage: Stage::New,
        }
    }

    /// Issues the operation at once, if the code is being polled, and returns its number.
    pub(super) fn issue_now(&mut self, event: impl FnOnce(OperationId) -> Event) -> Option<OperationId> {
        let mut table = self.shared.lock_polled()?;
        let operation = table.issue(&self.scope, std::task::Waker::noop(), self.location, event);
        self.stage = Stage::Issued(operation);
        Some(operation)
    }

    /// As [`issue_now`](Self::issue_now), for an operation that may be refused before it is decided.
    pub(super) fn issue_checked_now<R, F>(
        &mut self,
        request: impl FnOnce(&Table) -> Result<F, R>,
    ) -> Option<Result<OperationId, Stopped<R>>>
    where
        F: FnOnce(OperationId) -> Event,
    {
        let mut table = self.shared.lock_polled()?;
        let issued = request(&table).map_err(Stopped::Refused).and_then(|event| {
            let cancelled = table.cancelled(&self.scope);
            cancelled.map_or(Ok(event), |cancelled| Err(Stopped::Cancelled(cancelled)))
        });
        let issued =
            issued.map(|event| table.issue(&self.scope, std::task::Waker::noop(), self.location, event));
        self.stage = match &issued {
            Ok(operation) => Stage::Issued(*operation),
            Err(_) => Stage::Done,
        };
        Some(issued)
    }

    /// Issues the operation on the first poll, and looks for its resolution on each later one.
    pub(super) fn poll(
        &mut self,
        cx: &Context<'_>,
        event: impl FnOnce(OperationId, u64, Timestamp) -> Event,
    ) -> Poll<Result<Resolution, Cancelled>> {
        self.poll_checked(cx, |_| Ok(event))
            .map_err(|stopped| match stopped {
                Stopped::Cancelled(cancelled) => cancelled,
                Stopped::Refused::<Infallible>(never) => match never {},
            })
    }

    /// As [`poll`](Self::poll), for an operation that may be refused before it is decided: `request` is called on the first
    /// poll only.
    pub(super) fn poll_checked<R, F>(
        &mut self,
        cx: &Context<'_>,
        request: impl FnOnce(&Table) -> Result<F, R>,
    ) -> Poll<Result<Resolution, Stopped<R>>>
    where
        F: FnOnce(OperationId, u64, Timestamp) -> Event,
    {
        let Some(mut table) = self.shared.lock_polled() else {
            return Poll::Pending;
        };
        let resolution = match self.stage {
            Stage::New => {
                let event = match request(&table) {
                    Ok(event) => match table.cancelled(&self.scope) {
                        None => event,
                        Some(cancelled) => {
                            self.stage = Stage::Done;
                            return Poll::Ready(Err(Stopped::Cancelled(cancelled)));
                        }
                    },
                    Err(refused) => {
                        self.stage = Stage::Done;
                        return Poll::Ready(Err(Stopped::Refused(refused)));
                    }
                };
                let (epoch, now) = (table.epoch, table.time.host());
                let operation = table.issue(&self.scope, cx.waker(), self.location, |operation| {
                    event(operation, epoch, now)
                });
                self.stage = Stage::Issued(operation);
                return Poll::Pending;
            }
            Stage::Issued(operation) => match table.poll(operation, cx.waker()) {
                Some(resolution) => resolution,
                None => {
                    let Some(cancelled) = table.cancelled(&self.scope) else {
                        return Poll::Pending;
                    };
                    table.abandon(operation);
                    self.stage = Stage::Done;
                    return Poll::Ready(Err(Stopped::Cancelled(cancelled)));
                }
            },
            Stage::Done => panic!("an operation was polled after it had given its value"),
        };
        self.stage = Stage::Done;
        Poll::Ready(Ok(resolution))
    }
}

/// Why an operation has no resolution.
pub(super) enum Stopped<R> {
    /// Its scope is cancelled.
    Cancelled(Cancelled),
    /// It was not issued.
    Refused(R),
}

/// The bound that forbids an operation.
#[derive(Debug)]
pub(super) enum Unadmitted {
    TooLarge { bytes: usize, bytes_max: usize },
    TooManyPending { len_max: usize },
}

/// Whether the run's bounds leave room for one more operation, with a payload of `bytes` bytes.
pub(super) fn admit_payload(table: &Table, bytes: usize) -> Result<(), Unadmitted> {
    let (bytes_max, len_max) = (table.bounds.payload_bytes_max, table.bounds.pending_len_max);
    if bytes > bytes_max {
        return Err(Unadmitted::TooLarge { bytes, bytes_max });
    }
    if table.outstanding_len() >= len_max {
        return Err(Unadmitted::TooManyPending { len_max });
    }
    Ok(())
}

impl Drop for Operation {
    fn drop(&mut self) {
        // Only the running code itself decides anything by dropping a future. When the whole future is dropped (unloading, a
        // panic, the end), nothing is decided.
        if let Stage::Issued(operation) = self.stage
            && self.shared.is_polled_here()
        {
            self.shared.lock().abandon(operation);
        }
    }
}

/// A call of an activity; made by [`WorkflowContext::call`](crate::WorkflowContext::call).
///
/// # Cancel safety
/// Dropping it before it was polled does nothing. Dropping it later cancels the activity
/// durably: the attempt under way is told to stop, its result is not recorded.
#[derive(Debug)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Call<O, E> {
    operation: Operation,
    /// The request, until it is issued. It is already in its final allocation; its number and epoch are still to be filled
    /// in.
    request: Option<Result<Arc<ActivityScheduled>, PayloadError>>,
    types: PhantomData<fn() -> (O, E)>,
}

impl<O, E> Call<O, E> {
    pub(crate) fn new<I: Serialize>(
        shared: Arc<Shared>,
        scope: Scope,
        location: &'static Location<'static>,
        activity: Activity<I, O, E>,
        input: &I,
    ) -> Self {
        let request = Payload::encode(input).map(|input| {
            requests::build(ActivityScheduled {
                operation: OperationId::new(0),
                activity: activity.name().into(),
                queue: activity.queue().into(),
                input,
                retry: Retry::exponential(),
                retry_on: None,
                start_to_close: START_TO_CLOSE_DEFAULT,
                schedule_to_start: None,
                schedule_to_close: None,
                heartbeat: None,
                epoch: 0,
            })
        });
        Self {
            operation: Operation::new(shared, scope, location),
            request: Some(request),
            types: PhantomData,
        }
    }

    /// Changes the request, if it has not been issued.
    fn with(mut self, change: impl FnOnce(&mut ActivityScheduled)) -> Self {
        if let Some(Ok(request)) = &mut self.request {
            change(sole(request));
        }
        self
    }

    /// Sets the retry policy; [`Retry::exponential`] by default. No effect once polled.
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|request| request.retry = retry)
    }

    /// Sets the retry policy after an error of this [kind](ErrorKind), whatever the error itself says about retries. If a
    /// kind is set twice, the second policy counts. No effect once polled.
    ///
    /// Attempts, and the time they take, are counted from the call's beginning, whatever kind of error they ended with: after
    /// three failures of any kind, a policy of three attempts is exhausted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millrun_workflow::{Activity, ActivityError, ErrorKind, Retry, WorkflowContext, WorkflowError};
    ///
    /// const FETCH: Activity<String, String> = Activity::named("fetch");
    /// const BUSY: ErrorKind<ActivityError> = ErrorKind::named("busy");
    ///
    /// async fn page(cx: WorkflowContext, url: String) -> Result<String, WorkflowError> {
    ///     let patiently = Retry::exponential().first_pause(Duration::from_secs(30)).attempts(100);
    ///     let fetch = cx.call(FETCH, url).retry(Retry::exponential().attempts(3));
    ///     Ok(fetch.retry_on(BUSY, patiently).retry_on(ErrorKind::PANICKED, Retry::never()).await?)
    /// }
    /// ```
    pub fn retry_on(self, kind: ErrorKind<E>, retry: Retry) -> Self {
        self.with(|request| {
            let mut policies = request.retry_on.take().map_or_else(Vec::new, Vec::from);
            policies.retain(|(name, _)| name != kind.name());
            policies.push((kind.name().into(), retry));
            request.retry_on = Some(policies.into());
        })
    }

    /// Sets how long one attempt may take; [`START_TO_CLOSE_DEFAULT`] by default. No effect once
    /// polled.
    pub fn start_to_close(self, timeout: Duration) -> Self {
        self.with(|request| request.start_to_close = timeout)
    }

    /// Limits how long an attempt may wait to begin. An attempt that has not begun by then fails the call, since another
    /// attempt would only queue again. Not limited by default. No effect once polled.
    ///
    /// The time counts from when the call was issued, or from when the next attempt after a failure is due. It also runs
    /// while the queue is not served, the activity is not registered, or the process is down. With this limit, the beginning
    /// of an attempt is an event in the history, unless the attempt ends at once. If a crash cuts an attempt off after that,
    /// its successor's time counts from when the store is opened again.
    ///
    /// So this timeout says that no attempt is known to have begun. After a crash an attempt may still have run: one that
    /// ended at once, or whose beginning was not durable yet.
    pub fn schedule_to_start(self, timeout: Duration) -> Self {
        self.with(|request| request.schedule_to_start = Some(timeout))
    }

    /// Limits how long the whole call may take, with every attempt and pause. No attempt begins after that, and one under way
    /// is told to stop. Not limited by default. No effect once polled.
    pub fn schedule_to_close(self, timeout: Duration) -> Self {
        self.with(|request| request.schedule_to_close = Some(timeout))
    }

    /// Sets how long an attempt may be silent: an attempt whose last heartbeat is older fails, and the next one gets that
    /// heartbeat's details. Not limited by default. No effect once polled.
    pub fn heartbeat(self, timeout: Duration) -> Self {
        self.with(|request| request.heartbeat = Some(timeout))
    }

    /// Puts the call into another task queue than the activity's own. The name may be known only at run time: one for each
    /// tenant, say. A runtime serves the queues of the activities that are registered with it, and those that it was given by
    /// `RuntimeBuilder::queue`. A call in any other queue waits in its history until a runtime with that queue is opened, as
    /// a warning and `describe` say, or until one of its timeouts is over. A name that is empty or longer than 255 bytes is
    /// [refused](CallError::QueueName). No effect once polled.
    pub fn on_queue(self, queue: impl Into<Name>) -> Self {
        self.with(|request| request.queue = queue.into())
    }
}

impl<O: DeserializeOwned, E: TypedError> Future for Call<O, E> {
    type Output = Result<O, CallError<E>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            operation, request, ..
        } = self.get_mut();
        let resolution = operation.poll_checked(cx, |table| {
            let request = request.take().expect("the first poll finds the request");
            let mut request = admit(request, table)?;
            Ok(move |operation, epoch, _| {
                let scheduled = sole(&mut request);
                (scheduled.operation, scheduled.epoch) = (operation, epoch);
                Event::ActivityScheduled(request)
            })
        });
        resolution.map(|resolution| match resolution {
            Ok(Resolution::Value(value)) => value.decode().map_err(CallError::Payload),
            Ok(Resolution::Failure(failure)) => Err(into_call_error(failure)),
            Ok(_) => {
                panic!("a call was resolved as if it were something else")
            }
            Err(Stopped::Cancelled(cancelled)) => Err(CallError::Cancelled(cancelled)),
            Err(Stopped::Refused(error)) => Err(error),
        })
    }
}

/// The request, to be changed: nothing else holds it until it is issued.
fn sole(request: &mut Arc<ActivityScheduled>) -> &mut ActivityScheduled {
    Arc::get_mut(request).expect("a request is shared only when it has been issued")
}

/// The request, unless a bound forbids it.
fn admit<E>(
    request: Result<Arc<ActivityScheduled>, PayloadError>,
    table: &Table,
) -> Result<Arc<ActivityScheduled>, CallError<E>> {
    let request = request.map_err(CallError::Payload)?;
    if request.retry_on.as_ref().map_or(0, |policies| policies.len()) > RETRY_KINDS_MAX {
        return Err(CallError::TooManyKinds {
            len_max: RETRY_KINDS_MAX,
        });
    }
    if request.queue.is_empty() || request.queue.len() > NAME_BYTES_MAX {
        return Err(CallError::QueueName {
            bytes: request.queue.len(),
        });
    }
    admit_payload(table, request.input.len())?;
    Ok(request)
}

impl<E> From<Unadmitted> for CallError<E> {
    fn from(unadmitted: Unadmitted) -> Self {
        match unadmitted {
            Unadmitted::TooLarge { bytes, bytes_max } => Self::TooLarge { bytes, bytes_max },
            Unadmitted::TooManyPending { len_max } => Self::TooManyPending { len_max },
        }
    }
}

fn into_call_error<E: TypedError>(failure: ActivityFailure) -> CallError<E> {
    match failure {
        ActivityFailure::Failed { error, .. } => {
            error.decode().map_or_else(CallError::Payload, CallError::Failed)
        }
        ActivityFailure::TimedOut(kind) => CallError::TimedOut(kind),
        ActivityFailure::Panicked { message } => CallError::Panicked(message),
        ActivityFailure::Unreadable { message } => CallError::Payload(PayloadError::Decode(message)),
    }
}

/// A durable timer; made by [`WorkflowContext::sleep`](crate::WorkflowContext::sleep).
///
/// # Cancel safety
/// Dropping it after it was polled cancels the timer durably.
#[derive(Debug)]
#[must_use = "a timer does nothing until it is awaited"]
pub struct Sleep {
    operation: Operation,
    until: SleepUntil,
}

#[derive(Clone, Copy, Debug)]
enum SleepUntil {
    /// This long after the turn in which it is first polled.
    After(Duration),
    At(Timestamp),
}

impl Sleep {
    pub(crate) fn new(
        shared: Arc<Shared>,
        scope: Scope,
        location: &'static Location<'static>,
        duration: Duration,
    ) -> Self {
        Self {
            operation: Operation::new(shared, scope, location),
            until: SleepUntil::After(duration),
        }
    }

    pub(crate) fn until(mut self, deadline: Timestamp) -> Self {
        self.until = SleepUntil::At(deadline);
        self
    }
}

impl Future for Sleep {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let until = this.until;
        let resolution = this.operation.poll(cx, |operation, _, now| {
            let deadline = match until {
                SleepUntil::After(duration) => now + duration,
                SleepUntil::At(deadline) => deadline,
            };
            Event::TimerStarted { operation, deadline }
        });
        resolution.map(|resolution| match resolution? {
            Resolution::Fired => Ok(()),
            _ => {
                panic!("a timer was resolved as if it were something else")
            }
        })
    }
}

/// A wait for a signal; made by [`WorkflowContext::receive`](crate::WorkflowContext::receive).
///
/// # Cancel safety
/// Dropping it loses no signal: a signal is taken from the buffer only when the future returns it.
#[derive(Debug)]
#[must_use = "a wait does nothing until it is awaited"]
pub struct Receive<T> {
    shared: Arc<Shared>,
    scope: Scope,
    location: &'static Location<'static>,
    signal: Signal<T>,
    waiter: Option<u64>,
}

impl<T> Receive<T> {
    pub(crate) fn new(
        shared: Arc<Shared>,
        scope: Scope,
        location: &'static Location<'static>,
        signal: Signal<T>,
    ) -> Self {
        Self {
            shared,
            scope,
            location,
            signal,
            waiter: None,
        }
    }
}

impl<T: DeserializeOwned> Future for Receive<T> {
    type Output = Result<T, SignalError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let name = this.signal.name().into();
        let Some(mut table) = this.shared.lock_polled() else {
            return Poll::Pending;
        };
        let received = match table.take_signal(&name) {
            Some(value) => Ok(value),
            None => match table.cancelled(&this.scope) {
                Some(cancelled) => Err(SignalError::Cancelled(cancelled)),
                None => {
                    this.waiter =
                        Some(table.wait_signal(&name, this.waiter, &this.scope, cx.waker(), this.location));
                    return Poll::Pending;
                }
            },
        };
        if let Some(waiter) = this.waiter.take() {
            table.forget_signal(&name, waiter);
        }
        drop(table);
        Poll::Ready(received.and_then(|value| value.decode().map_err(SignalError::Payload)))
    }
}

impl<T> Drop for Receive<T> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.shared
                .lock()
                .forget_signal(&self.signal.name().into(), waiter);
        }
    }
}

/// Completes when the run is asked to cancel, with the reason; made by
/// [`WorkflowContext::cancelled`](crate::WorkflowContext::cancelled).
///
/// # Cancel safety
/// Dropping it changes nothing.
#[derive(Debug)]
#[must_use = "a wait does nothing until it is awaited"]
pub struct CancelRequest {
    shared: Arc<Shared>,
    scope: Scope,
    location: &'static Location<'static>,
    waiter: Option<u64>,
}

impl CancelRequest {
    pub(crate) fn new(shared: Arc<Shared>, scope: Scope, location: &'static Location<'static>) -> Self {
        Self {
            shared,
            scope,
            location,
            waiter: None,
        }
    }
}

impl Future for CancelRequest {
    type Output = Cancelled;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Cancelled> {
        let this = self.get_mut();
        let Some(mut table) = this.shared.lock_polled() else {
            return Poll::Pending;
        };
        if let Some(cancelled) = table.cancelled(&this.scope) {
            if let Some(waiter) = this.waiter.take() {
                table.forget_cancel(waiter);
            }
            return Poll::Ready(cancelled);
        }
        this.waiter = Some(table.wait_cancel(this.waiter, &this.scope, cx.waker(), this.location));
        Poll::Pending
    }
}

impl Drop for CancelRequest {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            self.shared.lock().forget_cancel(waiter);
        }
    }
}
