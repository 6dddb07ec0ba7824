//! The task of a trigger on a durable topic.
//!
//! ```text
//!   subscription ─► record ─► start or signal, durable ─► acknowledged ─► kept
//!        ▲                          │
//!        ├── postponed ◄────────────┤ the runtime does not take it now: that is no delivery
//!        └── sent back, or given up ┘ the record is at fault
//! ```
//!
//! After a crash, records are delivered again whose effect is durable and whose acknowledgement is not saved: the *unkept*
//! ones. A signal and a command are recognised by the requests that an instance remembers, so each instance has fewer unkept
//! records than it remembers requests, see [`Unkept`]. A start is recognised by the id of its instance, while the finished
//! run is retained.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::future::{poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use millrun_core::panic_message;
use millrun_workflow::{ANSWERS_LEN_MAX, SIGNAL_REQUESTS_LEN_MAX};
use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_64;

use super::record::DurableRecord;
use super::subscription::{DurableSubscription, RecordDelivery, SubscriptionLost, SubscriptionReadError};
use super::token::RecordToken;
use crate::topics::trigger::Provenance;
use crate::{RunError, Runtime, StartError, StartWithSignalError, StopCause};

/// How many records are started, signalled or commanded at once, and how many records of one instance may be unkept. The
/// remaining requests that an instance remembers are for other senders.
const AT_ONCE_MAX: usize = 960;
const _: () = assert!(AT_ONCE_MAX < SIGNAL_REQUESTS_LEN_MAX && AT_ONCE_MAX < ANSWERS_LEN_MAX);
/// How many records of a trigger may be unkept. With fewer, it would wait for the commits of its acknowledgements.
pub(super) const UNKEPT_MAX: usize = 4 * AT_ONCE_MAX;
/// After how many deliveries a record is skipped, if there is no topic for undelivered records.
pub(super) const DELIVERIES_MAX: u32 = 10;
/// The first and the longest pause before a record is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));

/// The counts of a trigger.
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

/// The outcome of one attempt.
pub(super) enum TriggerOutcome {
    Done,
    /// The runtime does not accept it for now.
    Later,
    /// The part that was asked has failed and restarts: the effect may have happened, or not.
    Unknown,
    /// The record is at fault, but another delivery may succeed.
    Failed(String),
    /// No delivery can succeed.
    Never(String),
    Stopped(StopCause),
}

impl TriggerOutcome {
    fn stopped(runtime: &Runtime, cause: StopCause) -> Self {
        match (&cause, runtime.stop_cause()) {
            // One shard has stopped, and restarts.
            (StopCause::Part { .. }, None) => Self::Unknown,
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

/// The effect of one record.
pub(super) struct Triggered<V> {
    pub(super) id: String,
    pub(super) value: V,
    pub(super) stems: Provenance,
    trigger: Arc<str>,
    token: RecordToken,
}

impl<V> Triggered<V> {
    /// The request name of the signal: the same for each delivery of the record.
    pub(super) fn request(&self) -> Box<str> {
        let bytes = self.trigger.len() + 1 + RecordToken::TEXT_BYTES_MAX;
        let mut request = String::with_capacity(bytes);
        request.push_str(&self.trigger);
        request.push('/');
        self.token.write_onto(&mut request);
        request.into()
    }
}

/// A delivery that is given back if it is not answered, as when the trigger is dropped. Boxed, since it is moved a dozen
/// times.
struct RecordAtWork<T>(Option<Box<RecordDelivery<T>>>);

impl<T> RecordAtWork<T> {
    fn answer<A>(mut self, answer: impl FnOnce(RecordDelivery<T>) -> A) -> Option<A> {
        self.0.take().map(|delivery| answer(*delivery))
    }
}

impl<T> Drop for RecordAtWork<T> {
    fn drop(&mut self) {
        if let Some(delivery) = self.0.take() {
            // If its lease has ended, another consumer may have it.
            let _is_given_again = delivery.postpone(Duration::ZERO);
        }
    }
}

/// An attempt for one record. Hand-written and small: a trigger has hundreds of them.
struct RecordAttempt<'r, T> {
    record: Option<RecordAtWork<T>>,
    instance: InstanceHash,
    /// How many earlier attempts for this record have an unknown outcome.
    unknown: u32,
    attempt: BoxFuture<'r, TriggerOutcome>,
}

/// The result of one attempt.
struct TriedRecord<T> {
    record: RecordAtWork<T>,
    instance: InstanceHash,
    unknown: u32,
    outcome: TriggerOutcome,
}

// Only the boxed future needs to be pinned.
impl<T> Unpin for RecordAttempt<'_, T> {}

impl<T> Future for RecordAttempt<'_, T> {
    type Output = Option<TriedRecord<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let attempt = self.attempt.as_mut();
        let outcome = match catch_unwind(AssertUnwindSafe(|| attempt.poll(cx))) {
            Ok(polled) => std::task::ready!(polled),
            Err(panic) => TriggerOutcome::Never(panic_message(panic)),
        };
        Poll::Ready(self.record.take().map(|record| TriedRecord {
            record,
            instance: self.instance,
            unknown: self.unknown,
            outcome,
        }))
    }
}

/// The hash of an instance's id. Two instances with the same hash share a bound.
type InstanceHash = u64;

/// The unkept records by instance: those being tried, and those whose acknowledgements are not saved.
#[derive(Default)]
struct Unkept {
    len: usize,
    of: FxHashMap<InstanceHash, UnkeptOf>,
}

#[derive(Default)]
struct UnkeptOf {
    len: usize,
    /// How many of them have an unknown effect. The instance may remember their requests, so it gets no other request until
    /// the effect is known.
    unknown: usize,
}

impl Unkept {
    /// Whether one more record may be tried.
    fn may_take(&self, instance: InstanceHash) -> bool {
        let of = self.of.get(&instance);
        of.is_none_or(|of| of.len < AT_ONCE_MAX && of.unknown == 0)
    }

    fn take(&mut self, instance: InstanceHash) {
        self.len += 1;
        self.of.entry(instance).or_default().len += 1;
    }

    fn note_unknown(&mut self, instance: InstanceHash) {
        self.of.entry(instance).or_default().unknown += 1;
    }

    fn note_known(&mut self, instance: InstanceHash) {
        if let Some(of) = self.of.get_mut(&instance) {
            of.unknown = of.unknown.saturating_sub(1);
        }
    }

    fn leave(&mut self, instance: InstanceHash) {
        self.len = self.len.saturating_sub(1);
        if let Entry::Occupied(mut of) = self.of.entry(instance) {
            match of.get().len {
                0 | 1 => drop(of.remove()),
                len => of.get_mut().len = len - 1,
            }
        }
    }
}

/// The pause after this many attempts.
fn pause_after(attempts: u32) -> Duration {
    let (first, longest) = PAUSES;
    first.saturating_mul(1 << attempts.min(16)).min(longest)
}

/// The next event for a trigger.
enum TriggerNews<T> {
    Tried(TriedRecord<T>),
    /// All answers up to this version are saved.
    Kept(Result<u64, SubscriptionLost>),
    Next(Result<Box<RecordDelivery<T>>, SubscriptionReadError>),
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
    D: for<'r> Fn(&'r Runtime, Triggered<V>) -> BoxFuture<'r, TriggerOutcome> + Sync,
{
    let name: Arc<str> = name.into();
    let mut trying = FuturesUnordered::new();
    let mut unkept = Unkept::default();
    // The versions of answers that are not saved, in order.
    let mut answered: VecDeque<(u64, InstanceHash)> = VecDeque::new();
    // A record that waits for others of its instance; later records of the topic wait too.
    let mut held: Option<RecordAttempt<'_, T>> = None;
    let mut keeping: Option<BoxFuture<'_, Result<u64, SubscriptionLost>>> = None;
    let (host, subscription) = (&runtime.inner().shared.host, &subscription);
    let next_after = |pause: Duration| async move {
        if !pause.is_zero() {
            host.sleep_until(host.now() + pause).await;
        }
        subscription.next().await.map(Box::new)
    };
    let mut next = Box::pin(next_after(Duration::ZERO));
    loop {
        if let (None, Some((first, _))) = (&keeping, answered.front()) {
            keeping = Some(Box::pin(subscription.kept(*first)));
        }
        if let Some(attempt) = held.take_if(|held| unkept.may_take(held.instance)) {
            unkept.take(attempt.instance);
            trying.push(attempt);
        }
        let has_room = held.is_none() && unkept.len < unkept_max;
        let told = poll_fn(|cx| {
            if let Poll::Ready(Some(Some(tried))) = trying.poll_next_unpin(cx) {
                return Poll::Ready(TriggerNews::Tried(tried));
            }
            if let Some(keeping) = &mut keeping
                && let Poll::Ready(kept) = keeping.as_mut().poll(cx)
            {
                return Poll::Ready(TriggerNews::Kept(kept));
            }
            match has_room && trying.len() < AT_ONCE_MAX {
                true => next.as_mut().poll(cx).map(TriggerNews::Next),
                false => Poll::Pending,
            }
        });
        let lost = match told.await {
            TriggerNews::Tried(TriedRecord {
                outcome: TriggerOutcome::Stopped(cause),
                ..
            }) => cause.into(),
            TriggerNews::Tried(tried) => {
                let TriedRecord {
                    record,
                    instance,
                    unknown,
                    outcome,
                } = tried;
                if let (TriggerOutcome::Unknown, Some(delivery)) = (&outcome, &record.0) {
                    if unknown == 0 {
                        unkept.note_unknown(instance);
                    }
                    let again = attempt(&runtime, &name, delivery.record(), &make, &deliver).1;
                    let late = host.sleep_until(host.now() + pause_after(unknown));
                    trying.push(RecordAttempt {
                        record: Some(record),
                        instance,
                        unknown: unknown.saturating_add(1),
                        attempt: Box::pin(late.then(|()| again)),
                    });
                    continue;
                }
                if unknown > 0 {
                    unkept.note_known(instance);
                }
                match answer(&tally, record, outcome) {
                    Some(version) => answered.push_back((version, instance)),
                    None => unkept.leave(instance),
                }
                continue;
            }
            TriggerNews::Kept(Ok(kept)) => {
                keeping = None;
                let len = answered.partition_point(|(version, _)| *version <= kept);
                for (_, instance) in answered.drain(..len) {
                    unkept.leave(instance);
                }
                continue;
            }
            TriggerNews::Kept(Err(lost)) | TriggerNews::Next(Err(SubscriptionReadError::Lost(lost))) => lost,
            TriggerNews::Next(Err(SubscriptionReadError::Missed(missed))) => {
                // Their number is in the status of the subscription.
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
                let (instance, attempt) = attempt(&runtime, &name, delivery.record(), &make, &deliver);
                held = Some(RecordAttempt {
                    record: Some(RecordAtWork(Some(delivery))),
                    instance,
                    unknown: 0,
                    attempt,
                });
                next.set(next_after(Duration::ZERO));
                continue;
            }
        };
        return tally.lose(lost);
    }
}

/// Determines the effect of one record, and its instance.
fn attempt<'r, T, V, F, D>(
    runtime: &'r Runtime,
    name: &Arc<str>,
    record: &DurableRecord<T>,
    make: &F,
    deliver: &D,
) -> (InstanceHash, BoxFuture<'r, TriggerOutcome>)
where
    V: Send + 'static,
    F: Fn(&DurableRecord<T>) -> (String, V),
    D: Fn(&'r Runtime, Triggered<V>) -> BoxFuture<'r, TriggerOutcome>,
{
    let stems = Provenance {
        cause: record.run_cause(),
        trace: record.trace().copied(),
    };
    let asked = catch_unwind(AssertUnwindSafe(|| {
        let (id, value) = make(record);
        let instance = xxh3_64(id.as_bytes());
        let triggered = Triggered {
            id,
            value,
            stems,
            trigger: Arc::clone(name),
            token: record.token(),
        };
        (instance, deliver(runtime, triggered))
    }));
    asked.unwrap_or_else(|panic| (0, Box::pin(ready(TriggerOutcome::Never(panic_message(panic))))))
}

/// Answers one delivery. Returns the version that includes the answer, if it has to be saved.
fn answer<T>(tally: &TriggerTally, record: RecordAtWork<T>, outcome: TriggerOutcome) -> Option<u64> {
    let lent = record.0.as_ref()?;
    let (deliveries, postponed) = (lent.deliveries(), lent.postponed());
    let (token, is_counted) = (lent.record().token(), lent.is_counted());
    // The payload's own code may panic when it is dropped; the delivery is answered by then.
    let answered = catch_unwind(AssertUnwindSafe(|| match outcome {
        TriggerOutcome::Later | TriggerOutcome::Unknown | TriggerOutcome::Stopped(_) => {
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
        // If its lease has ended, it is delivered again, without a second effect.
        Ok(answered) => answered?.ok().map(|saved| saved.version()),
        Err(panic) => {
            tally.refuse(token, &panic_message(panic));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_fewer_unkept_records_than_it_remembers_requests_and_others_have_room() {
        let mut unkept = Unkept::default();
        for _ in 0..AT_ONCE_MAX {
            assert!(unkept.may_take(1));
            unkept.take(1);
        }
        assert!(!unkept.may_take(1));
        assert!(unkept.may_take(2));
        unkept.leave(1);
        assert!(unkept.may_take(1));
        assert_eq!(unkept.len, AT_ONCE_MAX - 1);
    }

    #[test]
    fn an_instance_of_which_nobody_knows_what_it_did_is_asked_for_nothing_else() {
        let mut unkept = Unkept::default();
        for _ in 0..2 {
            unkept.take(1);
            unkept.note_unknown(1);
        }
        unkept.note_known(1);
        assert!(!unkept.may_take(1));
        assert!(unkept.may_take(2));
        unkept.note_known(1);
        assert!(unkept.may_take(1));
        unkept.leave(1);
        unkept.leave(1);
        assert_eq!((unkept.len, unkept.of.len()), (0, 0));
    }
}
