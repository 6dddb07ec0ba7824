//! Handlers that the broker calls, and what happens when they fail.
//!
//! ```text
//!   inbox ──► worker 1 ──► handler ──┬─ Ok ─────────────► counted
//!        └──► worker n               └─ Err or panic ──► pause, again ─┬─► dead letter
//!                                                                      └─► back to the inbox, stop
//! ```
//!
//! Workers are tasks of the broker's host. An envelope stays with its worker until the handler has succeeded or its policy is
//! exhausted; a worker that is dropped returns it to the front.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use millrun_core::TaskHandle;

use crate::envelope::AnyEnvelope;
use crate::envelope::Scope;
use crate::id::EnvelopeId;
use crate::inbox::Envelopes;
use crate::inbox::Inbox;
use crate::watch::dead_letter::Undeliverable;
use crate::watch::monitor::BrokerEvent;
use crate::watch::tap::{AtWork as Telling, FlowEvent};

/// How an inbox is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceConfig {
    /// How many envelopes are handled at the same time, each by its own task. Envelopes are begun in order; with more than
    /// one worker they may end out of order. Default 1.
    pub workers: usize,
    /// What happens when the handler fails or panics.
    pub failure: FailurePolicy,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            failure: FailurePolicy::default(),
        }
    }
}

/// What happens to an envelope whose handler fails or panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailurePolicy {
    /// How often the handler is tried in all; at least once. Default 3.
    pub attempts_max: u32,
    /// The pause before the second attempt. It doubles for each further one, and each is shortened by up to a half at random,
    /// so that envelopes that failed together are not retried together. Default 50 ms.
    pub pause_first: Duration,
    /// The longest pause. Default 5 s.
    pub pause_max: Duration,
    /// What happens after the last attempt. Default: [`LastResort::DeadLetter`].
    pub then: LastResort,
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            pause_first: Duration::from_millis(50),
            pause_max: Duration::from_secs(5),
            then: LastResort::default(),
        }
    }
}

/// What happens after the last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastResort {
    /// The envelope is given up, and the next one is handled.
    #[default]
    DeadLetter,
    /// The envelope returns to the front of the inbox and the service ends: the code that started it decides. The inbox
    /// remains, and fills.
    Stop,
}

/// Why an inbox cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The broker was built without a host, which would run the workers, and has been given none.
    #[error("a broker without a host has no tasks to run handlers on")]
    NoHost,
    /// [`ServiceConfig::workers`] is zero.
    #[error("a service needs at least 1 worker")]
    NoWorkers,
}

/// How a service ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServiceEnd {
    /// Its inbox was closed, and everything in it has been handled.
    Finished,
    /// [`Service::stop`] was called.
    Stopped,
    /// A handler failed as often as its policy allows, and the policy has [`LastResort::Stop`].
    Failed {
        /// The failed envelope; it is at the front of the inbox.
        envelope: EnvelopeId,
        /// The handler's last error.
        cause: String,
    },
}

/// Workers that serve an inbox. Dropping it ends them at their next await; envelopes that they had in hand return to the
/// inbox.
#[must_use = "dropping the service ends it"]
pub struct Service<E: AnyEnvelope + ?Sized> {
    pool: Arc<ServicePool<E>>,
    tasks: Vec<TaskHandle>,
}

struct ServicePool<E: AnyEnvelope + ?Sized> {
    inbox: Inbox<E>,
    failure: FailurePolicy,
    /// Lock order: hand, then sleepers. The bell takes the second only.
    hand: Mutex<Envelopes<E>>,
    sleepers: Arc<Mutex<Vec<Option<Waker>>>>,
    progress: Mutex<ServiceProgress>,
}

/// An envelope to be handled, and a guard that reports the end of that to the tap.
type ServiceBegun<E> = (Arc<E>, Option<Telling>);

struct ServiceProgress {
    end: Option<ServiceEnd>,
    workers: usize,
    observer: Option<Waker>,
}

impl<E: AnyEnvelope + ?Sized> Inbox<E> {
    /// Serves the inbox with `handler`, on tasks of the broker's host, and takes over its bell.
    ///
    /// Envelopes that the handler publishes while it runs name the handled envelope as their cause; this does not extend to
    /// tasks that it spawns.
    ///
    /// # Ordering
    /// Envelopes are begun in the inbox's order. With one worker each is finished, retries included, before the next begins.
    ///
    /// # Errors
    /// When the broker has no host or the configuration no workers.
    pub fn serve<F, H, X>(&self, config: ServiceConfig, handler: F) -> Result<Service<E>, ServeError>
    where
        F: Fn(Arc<E>) -> H + Send + Sync + 'static,
        H: Future<Output = Result<(), X>> + Send + 'static,
        X: fmt::Display + Send + 'static,
    {
        if config.workers == 0 {
            return Err(ServeError::NoWorkers);
        }
        let host = self.hub().clock().host().ok_or(ServeError::NoHost)?;
        let sleepers = Arc::new(Mutex::new(vec![None; config.workers]));
        let pool = Arc::new(ServicePool {
            inbox: self.clone(),
            failure: config.failure,
            hand: Mutex::new(self.take()),
            sleepers: Arc::clone(&sleepers),
            progress: Mutex::new(ServiceProgress {
                end: None,
                workers: config.workers,
                observer: None,
            }),
        });
        self.bell().connect(move || wake_one(&sleepers));
        let handler = Arc::new(handler);
        let tasks = (0..config.workers)
            .map(|worker| {
                let (pool, handler) = (Arc::clone(&pool), Arc::clone(&handler));
                host.spawn(
                    "broker worker",
                    Box::pin(async move { pool.work(worker, &*handler).await }),
                )
            })
            .collect();
        Ok(Service { pool, tasks })
    }
}

impl<E: AnyEnvelope + ?Sized> Service<E> {
    /// Makes each worker end after the envelope that it has. The rest stays in the inbox.
    pub fn stop(&self) {
        self.pool.end(ServiceEnd::Stopped);
    }

    /// Waits until all workers have ended.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn ended(&self) -> ServiceEnd {
        poll_fn(|cx| {
            let mut progress = self.pool.progress();
            if progress.workers > 0 {
                let stale = progress.observer.replace(cx.waker().clone());
                drop(progress);
                drop(stale);
                return Poll::Pending;
            }
            Poll::Ready(progress.end.clone().unwrap_or(ServiceEnd::Finished))
        })
        .await
    }
}

impl<E: AnyEnvelope + ?Sized> Drop for Service<E> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(TaskHandle::abort);
    }
}

impl<E: AnyEnvelope + ?Sized> fmt::Debug for Service<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("inbox", &self.pool.inbox)
            .field("workers", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

fn wake_one(sleepers: &Mutex<Vec<Option<Waker>>>) {
    let sleeper = {
        let mut sleepers = sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        sleepers.iter_mut().find_map(Option::take)
    };
    if let Some(sleeper) = sleeper {
        sleeper.wake();
    }
}

impl<E: AnyEnvelope + ?Sized> ServicePool<E> {
    async fn work<F, H, X>(self: &Arc<Self>, worker: usize, handler: &F)
    where
        F: Fn(Arc<E>) -> H,
        H: Future<Output = Result<(), X>>,
        X: fmt::Display,
    {
        let _at_work = ServiceAtWork { pool: self };
        while let Some(envelope) = poll_fn(|cx| self.poll_next(worker, cx.waker())).await {
            let (envelope, told) = envelope;
            let handling = ServiceHandling {
                pool: self,
                envelope: Some(envelope),
                _told: told,
            };
            handling.run(handler).await;
        }
    }

    /// The next envelope; `None` when the service or the inbox has ended.
    fn poll_next(&self, worker: usize, waker: &Waker) -> Poll<Option<ServiceBegun<E>>> {
        if self.progress().end.is_some() {
            return Poll::Ready(None);
        }
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(envelope) = self.next_in(&mut hand) {
            return Poll::Ready(Some(envelope));
        }
        // The waker is stored first, then the bell is answered, then the inbox is checked: a later push rings again and finds
        // the waker.
        let stale = self.sleepers()[worker].replace(waker.clone());
        self.inbox.bell().answer();
        let next = self.next_in(&mut hand);
        let finished = next.is_none() && self.inbox.is_finished();
        drop(hand);
        drop(stale);
        if finished {
            self.end(ServiceEnd::Finished);
            return Poll::Ready(None);
        }
        match next {
            Some(envelope) => {
                let awake = self.sleepers()[worker].take();
                drop(awake);
                Poll::Ready(Some(envelope))
            }
            None if self.progress().end.is_some() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    /// The next envelope that has not expired. If there are more, another worker is woken for them.
    fn next_in(&self, hand: &mut Envelopes<E>) -> Option<ServiceBegun<E>> {
        if hand.is_empty() {
            hand.refill();
        }
        if !hand.advance_in(&self.inbox) {
            return None;
        }
        let envelope = hand.give_away()?;
        hand.hand().announce_to_waiting();
        if !hand.is_empty() {
            wake_one(&self.sleepers);
        }
        // Reported while the hand is out, so that the inbox never looks idle.
        let told = self.inbox.hub().tap().begin(&*envelope, self.inbox.id());
        Some((envelope, told))
    }

    fn end(&self, end: ServiceEnd) {
        self.progress().end.get_or_insert(end);
        let sleepers: Vec<_> = self.sleepers().iter_mut().filter_map(Option::take).collect();
        sleepers.into_iter().for_each(Waker::wake);
    }

    /// Returns an envelope, and after it the others that were taken, to the front of the inbox.
    fn put_back(&self, envelope: Arc<E>) {
        self.hand
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .put_down();
        self.inbox.hub().tap().tell(FlowEvent::PutBack {
            envelope: envelope.as_dyn(),
            by: self.inbox.id(),
        });
        self.inbox.give_back(envelope);
    }

    fn progress(&self) -> MutexGuard<'_, ServiceProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleepers(&self) -> MutexGuard<'_, Vec<Option<Waker>>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pause after a failed attempt, counted from 1.
    fn pause_after(&self, attempt: u32) -> Duration {
        let FailurePolicy {
            pause_first,
            pause_max,
            ..
        } = self.failure;
        let doubled = pause_first.saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX));
        let pause = doubled.min(pause_max);
        let dice = self.inbox.hub().clock().host().map_or(0, |host| host.random());
        // Between a half and the whole of it.
        pause - pause.mul_f64((dice % 1_024) as f64 / 2_048.0)
    }
}

/// A worker that has not ended.
struct ServiceAtWork<'a, E: AnyEnvelope + ?Sized> {
    pool: &'a ServicePool<E>,
}

impl<E: AnyEnvelope + ?Sized> Drop for ServiceAtWork<'_, E> {
    fn drop(&mut self) {
        let mut progress = self.pool.progress();
        progress.workers -= 1;
        let last = progress.workers == 0;
        let observer = if last { progress.observer.take() } else { None };
        drop(progress);
        if last {
            self.pool
                .hand
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .put_down();
        }
        if let Some(observer) = observer {
            observer.wake();
        }
    }
}

/// An envelope that a worker handles; it returns to the inbox if the worker is dropped.
struct ServiceHandling<'a, E: AnyEnvelope + ?Sized> {
    pool: &'a ServicePool<E>,
    envelope: Option<Arc<E>>,
    /// Dropped last: by then the envelope is counted, given up or returned.
    _told: Option<Telling>,
}

impl<E: AnyEnvelope + ?Sized> ServiceHandling<'_, E> {
    async fn run<F, H, X>(mut self, handler: &F)
    where
        F: Fn(Arc<E>) -> H,
        H: Future<Output = Result<(), X>>,
        X: fmt::Display,
    {
        let Some(envelope) = self.envelope.clone() else {
            return;
        };
        let pool = self.pool;
        let (inbox, hub) = (&pool.inbox, pool.inbox.hub());
        let began = hub.clock().elapsed();
        let mut attempt = 1;
        let cause = loop {
            let Err(cause) = guarded(handler, &envelope, inbox).await else {
                self.envelope = None;
                hub.tap().tell(FlowEvent::Handled {
                    envelope: envelope.as_dyn(),
                    by: inbox.id(),
                });
                inbox
                    .core()
                    .count_handled(hub.clock().elapsed().saturating_sub(began));
                return;
            };
            let (id, subscription) = (envelope.id(), inbox.id());
            hub.tap().tell(FlowEvent::Failed {
                envelope: envelope.as_dyn(),
                by: subscription,
                attempt,
                cause: &cause,
            });
            hub.monitor().tell(|| BrokerEvent::HandlerFailed {
                subscription,
                envelope: id,
                attempt,
                cause: cause.clone(),
            });
            if attempt >= pool.failure.attempts_max {
                break cause;
            }
            hub.alarm(pool.pause_after(attempt)).await;
            attempt += 1;
        };
        inbox.core().count_failed();
        match pool.failure.then {
            LastResort::DeadLetter => {
                self.envelope = None;
                inbox.give_up(envelope, Undeliverable::Failed);
            }
            // When it is dropped, `self` returns the envelope.
            LastResort::Stop => pool.end(ServiceEnd::Failed {
                envelope: envelope.id(),
                cause,
            }),
        }
    }
}

impl<E: AnyEnvelope + ?Sized> Drop for ServiceHandling<'_, E> {
    fn drop(&mut self) {
        if let Some(envelope) = self.envelope.take() {
            self.pool.put_back(envelope);
        }
    }
}

/// Runs the handler once, in the scope of the envelope. A panic counts as an error.
async fn guarded<E, F, H, X>(handler: &F, envelope: &Arc<E>, inbox: &Inbox<E>) -> Result<(), String>
where
    E: AnyEnvelope + ?Sized,
    F: Fn(Arc<E>) -> H,
    H: Future<Output = Result<(), X>>,
    X: fmt::Display,
{
    let scope = Scope::new(&**envelope, inbox.id());
    let made = catch_unwind(AssertUnwindSafe(|| scope.enter(|| handler(Arc::clone(envelope)))));
    let mut future = pin!(made.map_err(panicked)?);
    poll_fn(|cx| {
        // A panic may leave the handler's own state inconsistent; it is not polled again.
        let polled = catch_unwind(AssertUnwindSafe(|| scope.enter(|| future.as_mut().poll(cx))));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
            Ok(Poll::Ready(Err(error))) => Poll::Ready(Err(error.to_string())),
            Err(panic) => Poll::Ready(Err(panicked(panic))),
        }
    })
    .await
}

/// Catches the panic, also if its payload panics when it is dropped.
fn panicked(panic: Box<dyn Any + Send>) -> String {
    format!("panicked: {}", millrun_core::panic_message(panic))
}
