//! The task of a trigger on a durable topic.
//!
//! ```text
//!   subscription ─► record ─► start or signal, durable ─► acknowledged ─► kept
//!        ▲                          │
//!        ├── postponed ◄────────────┤ the runtime does not take it now: that is no delivery
//!        └── sent back, or given up ┘ the record is at fault
//! ```
//!
//! A record counts against [`AT_ONCE_MAX`] until its acknowledgement is kept, so that a crash brings back no more
//! than that many whose effect is there already.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use millrun_core::panic_message;
use serde::de::DeserializeOwned;

use super::record::DurableRecord;
use super::subscription::{DurableSubscription, RecordDelivery, SubscriptionLost, SubscriptionReadError};
use crate::mail::Provenance;
use crate::{RunError, Runtime, StartError, StartWithSignalError, StopCause};

/// How many records are started or signalled at once.
pub(super) const AT_ONCE_MAX: usize = 1_024;
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

    fn refuse(&self, record: &str, error: &str) {
        tracing::warn!(
            record,
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
    /// Names the signal: it is the same for each delivery of the record.
    pub(super) request: String,
    pub(super) value: V,
    pub(super) stems: Provenance,
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

/// The pause before the next attempt, after as many as this.
fn pause_after(attempts: u32) -> Duration {
    let (first, longest) = PAUSES;
    first.saturating_mul(1 << attempts.min(16)).min(longest)
}

pub(super) async fn work<T, V, F, D>(
    runtime: Runtime,
    name: String,
    subscription: DurableSubscription<T>,
    tally: Arc<TriggerTally>,
    make: F,
    deliver: D,
) where
    T: DeserializeOwned + Send + Sync + 'static,
    V: Send,
    F: Fn(&DurableRecord<T>) -> (String, V) + Sync,
    D: Fn(Runtime, Triggered<V>) -> BoxFuture<'static, TriggerOutcome> + Sync,
{
    enum Told<T> {
        Ended(Result<(), SubscriptionLost>),
        Next(Result<RecordDelivery<T>, SubscriptionReadError>),
    }

    let mut working = FuturesUnordered::new();
    let mut next = Box::pin(subscription.next());
    loop {
        let told = poll_fn(|cx| {
            if let Poll::Ready(Some(ended)) = working.poll_next_unpin(cx) {
                return Poll::Ready(Told::Ended(ended));
            }
            match working.len() < AT_ONCE_MAX {
                true => next.as_mut().poll(cx).map(Told::Next),
                false => Poll::Pending,
            }
        });
        let lost = match told.await {
            Told::Ended(Ok(())) => continue,
            Told::Ended(Err(lost)) | Told::Next(Err(SubscriptionReadError::Lost(lost))) => lost,
            Told::Next(Err(SubscriptionReadError::Missed(missed))) => {
                // Their count is in the status of the subscription.
                tracing::warn!(subscription = name, error = %missed, "records are passed over");
                next.set(subscription.next());
                continue;
            }
            Told::Next(Ok(delivery)) => {
                let (runtime, name, tally) = (&runtime, &name, &*tally);
                let (make, deliver) = (&make, &deliver);
                working.push(async move {
                    let token = delivery.record().token();
                    let one = one(runtime, name, tally, RecordAtWork(Some(delivery)), make, deliver);
                    // The payload's own code may panic as it is dropped: it is answered then.
                    let ended = AssertUnwindSafe(one).catch_unwind().await;
                    ended.unwrap_or_else(|panic| {
                        tally.refuse(&token.to_string(), &panic_message(panic));
                        Ok(())
                    })
                });
                next.set(subscription.next());
                continue;
            }
        };
        return tally.lose(lost);
    }
}

/// Handles one delivery, and waits until its answer is kept.
async fn one<T, V, F, D>(
    runtime: &Runtime,
    name: &str,
    tally: &TriggerTally,
    delivery: RecordAtWork<T>,
    make: &F,
    deliver: &D,
) -> Result<(), SubscriptionLost>
where
    F: Fn(&DurableRecord<T>) -> (String, V),
    D: Fn(Runtime, Triggered<V>) -> BoxFuture<'static, TriggerOutcome>,
{
    let Some(lent) = &delivery.0 else { return Ok(()) };
    let (record, deliveries, postponed) = (lent.record(), lent.deliveries(), lent.postponed());
    let (token, is_counted) = (record.token().to_string(), lent.is_counted());
    let stems = Provenance {
        cause: record.run_cause(),
        trace: record.trace().copied(),
    };
    let outcome = match catch_unwind(AssertUnwindSafe(|| make(record))) {
        Ok((id, value)) => {
            let request = format!("{name}/{token}");
            let triggered = Triggered {
                id,
                request,
                value,
                stems,
            };
            let attempt = async { deliver(runtime.clone(), triggered).await };
            let attempt = AssertUnwindSafe(attempt).catch_unwind().await;
            attempt.unwrap_or_else(|panic| TriggerOutcome::Never(panic_message(panic)))
        }
        Err(panic) => TriggerOutcome::Never(panic_message(panic)),
    };
    let answered = match outcome {
        TriggerOutcome::Stopped(cause) => return Err(cause.into()),
        TriggerOutcome::Later => {
            let pause = pause_after(postponed);
            let _is_given_again = delivery.answer(|delivery| delivery.postpone(pause));
            return Ok(());
        }
        TriggerOutcome::Done => {
            tally.handled.fetch_add(1, Ordering::Relaxed);
            delivery.answer(RecordDelivery::ack)
        }
        TriggerOutcome::Failed(error) if is_counted || deliveries < DELIVERIES_MAX => {
            let pause = pause_after(deliveries);
            delivery.answer(|delivery| delivery.send_back(pause, &error))
        }
        TriggerOutcome::Failed(error) | TriggerOutcome::Never(error) => {
            tally.refuse(&token, &error);
            delivery.answer(|delivery| delivery.give_up(&error))
        }
    };
    match answered {
        Some(Ok(saved)) => saved.await,
        // Its lease has ended: it is given again, and has no second effect.
        Some(Err(_)) | None => Ok(()),
    }
}
