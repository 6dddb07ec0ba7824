//! The task of a trigger on a durable topic.
//!
//! ```text
//!   subscription ─► record ─► start or signal, durable ─► acknowledged ─► kept
//!        ▲                          │
//!        ├── postponed ◄────────────┤ the runtime does not take it now: that is no delivery
//!        └── sent back, or given up ┘ the record is at fault
//! ```
//!
//! A crash brings back the records whose effect is there and whose acknowledgement is not kept. A signal and a command are known by
//! the requests that an instance remembers, so there are fewer of those records than of these requests. A start is known by
//! the id of its instance, as long as the finished run is retained: more may be on their way to be kept, so that starts do not
//! wait for the acknowledgements' commits.

use std::collections::VecDeque;
use std::future::{poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use millrun_core::panic_message;
use millrun_workflow::{ANSWERS_LEN_MAX, SIGNAL_REQUESTS_LEN_MAX};
use serde::de::DeserializeOwned;

use super::record::DurableRecord;
use super::subscription::{DurableSubscription, RecordDelivery, SubscriptionLost, SubscriptionReadError};
use super::token::RecordToken;
use crate::mail::Provenance;
use crate::{RunError, Runtime, StartError, StartWithSignalError, StopCause};

/// How many records are started, signalled or commanded at once. The rest of the requests that an instance remembers is for those
/// of others.
pub(super) const AT_ONCE_MAX: usize = 960;
const _: () = assert!(AT_ONCE_MAX < SIGNAL_REQUESTS_LEN_MAX && AT_ONCE_MAX < ANSWERS_LEN_MAX);
/// Where each record starts an instance: how many are being started, and those whose acknowledgements are not kept, together.
pub(super) const UNKEPT_STARTS_MAX: usize = 4 * AT_ONCE_MAX;
/// After how many deliveries a record is passed over, where there is no topic for what is not delivered.
pub(super) const DELIVERIES_MAX: u32 = 10;
/// The first pause before a record is tried again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));

/// What a trigger has come to.
#[derive(Debug, Default)]
pub(super) struct TriggerTally {
    pub(super) handled: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) lost: Mutex<Option<SubscriptionLost>>,
}

impl TriggerTally {
    pub(super) fn lost(&self) -> Option<SubscriptionLost> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lose(&self, lost: SubscriptionLost) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(lost);
    }

    fn refuse(&self, record: RecordToken, error: &str) {
        tracing::warn!(
            %record,
            error,
            "a record of a durable topic could not be handed to its instance"
        );
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// What became of one attempt.
pub(super) enum TriggerOutcome {
    Done,
    /// The runtime does not take it for now.
    Later,
    /// The record is at fault; another delivery may succeed all the same.
    Failed(String),
    /// No delivery can succeed.
    Never(String),
    Stopped(StopCause),
}

impl TriggerOutcome {
    fn stopped(runtime: &Runtime, cause: StopCause) -> Self {
        match (&cause, runtime.stop_cause()) {
            // One shard has, and is started again.
            (StopCause::Part { .. }, None) => Self::Later,
            _ => Self::Stopped(cause),
        }
    }

    pub(super) fn of_start(runtime: &Runtime, error: StartError) -> Self {
        match error {
            StartError::Stopped(cause) => Self::stopped(runtime, cause),
            error if error.is_retryable() => Self::Later,
            error @ (StartError::Damaged(_) | StartError::Read(_) | StartError::History { .. }) => {
                Self::Failed(error.to_string())
            }
            error => Self::Never(error.to_string()),
        }
    }

    pub(super) fn of_signal(runtime: &Runtime, error: RunError) -> Self {
        match error {
            RunError::Stopped(cause) => Self::stopped(runtime, cause),
            error if error.is_retryable() => Self::Later,
            // The instance may be started later, or salvaged.
            error
            @ (RunError::NotFound | RunError::Damaged(_) | RunError::Read(_) | RunError::History(_)) => {
                Self::Failed(error.to_string())
            }
            error => Self::Never(error.to_string()),
        }
    }

    pub(super) fn of_both(runtime: &Runtime, error: StartWithSignalError) -> Self {
        match error {
            StartWithSignalError::Start(error) => Self::of_start(runtime, error),
            StartWithSignalError::Signal(error) => Self::of_signal(runtime, error),
        }
    }
}

/// What is asked for because of one record.
pub(super) struct Triggered<V> {
    pub(super) id: String,
    pub(super) value: V,
    pub(super) stems: Provenance,
    trigger: Arc<str>,
    token: RecordToken,
}

impl<V> Triggered<V> {
    /// Names the signal: it is the same for each delivery of the record.
    pub(super) fn request(&self) -> String {
        let bytes = self.trigger.len() + 1 + RecordToken::TEXT_BYTES_MAX;
        let mut request = String::with_capacity(bytes);
        request.push_str(&self.trigger);
        request.push('/');
        request.push_str(&self.token.to_string());
        request
    }
}

/// A delivery that is given back where it is not answered, as when the trigger is dropped.
struct RecordAtWork<T>(Option<RecordDelivery<T>>);

impl<T> RecordAtWork<T> {
    fn answer<A>(mut self, answer: impl FnOnce(RecordDelivery<T>) -> A) -> Option<A> {
        self.0.take().map(answer)
    }
}

impl<T> Drop for RecordAtWork<T> {
    fn drop(&mut self) {
        if let Some(delivery) = self.0.take() {
            // Another's it is where its lease has ended.
            let _is_given_again = delivery.postpone(Duration::ZERO);
        }
    }
}

/// An attempt for one record. Written out, and small: a trigger has hundreds of them.
struct RecordAttempt<T> {
    record: Option<RecordAtWork<T>>,
    attempt: BoxFuture<'static, TriggerOutcome>,
}

// Nothing of it is pinned but what is in the box.
impl<T> Unpin for RecordAttempt<T> {}

impl<T> Future for RecordAttempt<T> {
    type Output = (Option<RecordAtWork<T>>, TriggerOutcome);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let attempt = self.attempt.as_mut();
        let outcome = match catch_unwind(AssertUnwindSafe(|| attempt.poll(cx))) {
            Ok(polled) => std::task::ready!(polled),
            Err(panic) => TriggerOutcome::Never(panic_message(panic)),
        };
        Poll::Ready((self.record.take(), outcome))
    }
}

/// The pause before the next attempt, after as many as this.
fn pause_after(attempts: u32) -> Duration {
    let (first, longest) = PAUSES;
    first.saturating_mul(1 << attempts.min(16)).min(longest)
}

/// What a trigger goes on with.
enum TriggerNews<T> {
    Tried(Option<RecordAtWork<T>>, TriggerOutcome),
    /// All answers up to this version are kept.
    Kept(Result<u64, SubscriptionLost>),
    Next(Result<RecordDelivery<T>, SubscriptionReadError>),
}

pub(super) async fn work<T, V, F, D>(
    runtime: Runtime,
    (name, unkept_max): (String, usize),
    subscription: DurableSubscription<T>,
    tally: Arc<TriggerTally>,
    make: F,
    deliver: D,
) where
    T: DeserializeOwned + Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(&DurableRecord<T>) -> (String, V) + Sync,
    D: Fn(Runtime, Triggered<V>) -> BoxFuture<'static, TriggerOutcome> + Sync,
{
    let name: Arc<str> = name.into();
    let mut trying = FuturesUnordered::new();
    // The versions of answers that are not kept, in order.
    let mut answered: VecDeque<u64> = VecDeque::new();
    let mut keeping: Option<BoxFuture<'_, Result<u64, SubscriptionLost>>> = None;
    let (host, subscription) = (&runtime.inner().shared.host, &subscription);
    let next_after = |pause: Duration| async move {
        if !pause.is_zero() {
            host.sleep_until(host.now() + pause).await;
        }
        subscription.next().await
    };
    let mut next = Box::pin(next_after(Duration::ZERO));
    loop {
        if let (None, Some(first)) = (&keeping, answered.front()) {
            keeping = Some(Box::pin(subscription.kept(*first)));
        }
        let told = poll_fn(|cx| {
            if let Poll::Ready(Some((record, outcome))) = trying.poll_next_unpin(cx) {
                return Poll::Ready(TriggerNews::Tried(record, outcome));
            }
            if let Some(keeping) = &mut keeping
                && let Poll::Ready(kept) = keeping.as_mut().poll(cx)
            {
                return Poll::Ready(TriggerNews::Kept(kept));
            }
            match trying.len() < AT_ONCE_MAX && trying.len() + answered.len() < unkept_max {
                true => next.as_mut().poll(cx).map(TriggerNews::Next),
                false => Poll::Pending,
            }
        });
        let lost = match told.await {
            TriggerNews::Tried(_, TriggerOutcome::Stopped(cause)) => cause.into(),
            TriggerNews::Tried(record, outcome) => {
                answered.extend(record.and_then(|record| answer(&tally, record, outcome)));
                continue;
            }
            TriggerNews::Kept(Ok(kept)) => {
                keeping = None;
                let len = answered.partition_point(|version| *version <= kept);
                answered.drain(..len);
                continue;
            }
            TriggerNews::Kept(Err(lost)) | TriggerNews::Next(Err(SubscriptionReadError::Lost(lost))) => lost,
            TriggerNews::Next(Err(SubscriptionReadError::Missed(missed))) => {
                // Their count is in the status of the subscription.
                tracing::warn!(subscription = &*name, error = %missed, "records are passed over");
                next.set(next_after(Duration::ZERO));
                continue;
            }
            TriggerNews::Next(Err(SubscriptionReadError::Unreadable { problem })) => {
                tracing::warn!(
                    subscription = &*name,
                    problem,
                    "the topic of a trigger cannot be read now"
                );
                next.set(next_after(PAUSES.1));
                continue;
            }
            TriggerNews::Next(Ok(delivery)) => {
                let attempt = attempt(&runtime, &name, delivery.record(), &make, &deliver);
                trying.push(RecordAttempt {
                    record: Some(RecordAtWork(Some(delivery))),
                    attempt,
                });
                next.set(next_after(Duration::ZERO));
                continue;
            }
        };
        return tally.lose(lost);
    }
}

/// Asks what becomes of one record.
fn attempt<T, V, F, D>(
    runtime: &Runtime,
    name: &Arc<str>,
    record: &DurableRecord<T>,
    make: &F,
    deliver: &D,
) -> BoxFuture<'static, TriggerOutcome>
where
    V: Send + 'static,
    F: Fn(&DurableRecord<T>) -> (String, V),
    D: Fn(Runtime, Triggered<V>) -> BoxFuture<'static, TriggerOutcome>,
{
    let stems = Provenance {
        cause: record.run_cause(),
        triggered_by: None,
        trace: record.trace().copied(),
    };
    let asked = catch_unwind(AssertUnwindSafe(|| {
        let (id, value) = make(record);
        let triggered = Triggered {
            id,
            value,
            stems,
            trigger: Arc::clone(name),
            token: record.token(),
        };
        deliver(runtime.clone(), triggered)
    }));
    asked.unwrap_or_else(|panic| Box::pin(ready(TriggerOutcome::Never(panic_message(panic)))))
}

/// Answers one delivery: gives the version with which that is kept, if it is to be.
fn answer<T>(tally: &TriggerTally, record: RecordAtWork<T>, outcome: TriggerOutcome) -> Option<u64> {
    let lent = record.0.as_ref()?;
    let (deliveries, postponed) = (lent.deliveries(), lent.postponed());
    let (token, is_counted) = (lent.record().token(), lent.is_counted());
    // The payload's own code may panic as it is dropped: it is answered then.
    let answered = catch_unwind(AssertUnwindSafe(|| match outcome {
        TriggerOutcome::Later | TriggerOutcome::Stopped(_) => {
            let pause = pause_after(postponed);
            let _is_given_again = record.answer(|delivery| delivery.postpone(pause));
            None
        }
        TriggerOutcome::Done => {
            tally.handled.fetch_add(1, Ordering::Relaxed);
            record.answer(RecordDelivery::ack)
        }
        TriggerOutcome::Failed(error) if is_counted || deliveries < DELIVERIES_MAX => {
            let pause = pause_after(deliveries);
            record.answer(|delivery| delivery.send_back(pause, &error))
        }
        TriggerOutcome::Failed(error) | TriggerOutcome::Never(error) => {
            tally.refuse(token, &error);
            record.answer(|delivery| delivery.give_up(&error))
        }
    }));
    match answered {
        // Where its lease has ended it is given again, and has no second effect.
        Ok(answered) => answered?.ok().map(|saved| saved.version()),
        Err(panic) => {
            tally.refuse(token, &panic_message(panic));
            None
        }
    }
}
