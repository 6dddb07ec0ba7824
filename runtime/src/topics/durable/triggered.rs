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
use std::future::{self, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use millrun_core::{RunId, panic_message};
use millrun_workflow::{ANSWERS_LEN_MAX, Name, SIGNAL_REQUESTS_LEN_MAX};
use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;
use slab::Slab;
use tokio::task::coop;
use xxhash_rust::xxh3::xxh3_64;

use super::record::DurableRecord;
use super::subscription::{DurableSubscription, RecordDelivery, SubscriptionLost, SubscriptionReadError};
use super::token::RecordToken;
use crate::builders::Start;
use crate::inner::ForRoom;
use crate::mail::{GatheredAnswer, GatheredAnswers, StartedRun};
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
            error @ (StartError::Damaged(_)
            | StartError::Read(_)
            | StartError::History { .. }
            | StartError::Elsewhere { .. }) => Self::Failed(error.to_string()),
            error => Self::Never(error.to_string()),
        }
    }

    pub(super) fn of_signal(runtime: &Runtime, error: RunError) -> Self {
        match error {
            RunError::Stopped(cause) => Self::stopped(runtime, cause),
            error if error.is_retryable() => Self::Later,
            // The instance may be started later, or salvaged.
            error @ (RunError::NotFound
            | RunError::Damaged(_)
            | RunError::Read(_)
            | RunError::History(_)
            | RunError::Elsewhere { .. }) => Self::Failed(error.to_string()),
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

/// A record that is tried, in the slot whose number its answer has.
struct TriedRecord<T> {
    record: RecordAtWork<T>,
    instance: InstanceHash,
    /// How many attempts for this record came before, of which nobody knows what they did.
    unknown: u32,
}

/// A record that waits for others of its instance; those behind it in the topic wait too.
struct HeldRecord<T, V> {
    record: RecordAtWork<T>,
    instance: InstanceHash,
    asked: Result<Triggered<V>, String>,
}

/// The runs that the starts of a trigger have led to.
pub(super) type StartAnswers = GatheredAnswers<StartedRun, StartError>;

/// Where what becomes of a record is told: the number of its slot, and the answers to all starts.
#[derive(Clone, Copy)]
pub(super) struct AskedAs<'t> {
    slot: usize,
    starts: &'t StartAnswers,
}

/// How a record is handed over.
pub(super) enum Handing<'r> {
    /// It was asked for a start, whose answer is gathered.
    Gathered,
    /// As `Gathered`, once there is room for it.
    WaitsForRoom(ForRoom<'r>),
    /// What this gives is what becomes of it.
    Future(BoxFuture<'r, TriggerOutcome>),
}

impl<'r> Handing<'r> {
    fn told(outcome: TriggerOutcome) -> Self {
        Self::Future(Box::pin(future::ready(outcome)))
    }

    /// Asks for a start.
    pub(super) fn start<H>(runtime: &'r Runtime, start: Start<'r, H>, to: AskedAs<'_>) -> Self {
        let Ok(number) = u32::try_from(to.slot) else {
            unreachable!("there are few slots");
        };
        match start.asks(to.starts, number) {
            Ok(None) => Self::Gathered,
            Ok(Some(room)) => Self::WaitsForRoom(room),
            Err(error) => Self::told(TriggerOutcome::of_start(runtime, error)),
        }
    }
}

/// What a trigger waits for because of the record in a slot.
struct PendingHandover<'r> {
    slot: usize,
    step: PendingStep<'r>,
}

enum PendingStep<'r> {
    Outcome(BoxFuture<'r, TriggerOutcome>),
    Room(ForRoom<'r>),
    /// The pause before it is tried again.
    Pause(BoxFuture<'r, ()>),
}

/// What a trigger has waited for.
enum PendingOver {
    Outcome(TriggerOutcome),
    /// The answer is gathered.
    HasRoom,
    Again,
}

impl Future for PendingHandover<'_> {
    type Output = (usize, PendingOver);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let slot = self.slot;
        let over = match &mut self.step {
            PendingStep::Outcome(outcome) => {
                let outcome = outcome.as_mut();
                PendingOver::Outcome(match catch_unwind(AssertUnwindSafe(|| outcome.poll(cx))) {
                    Ok(polled) => ready!(polled),
                    Err(panic) => TriggerOutcome::Never(panic_message(panic)),
                })
            }
            // Without room the reply has been dropped, which is an answer too.
            PendingStep::Room(room) => {
                let _has_room = ready!(room.as_mut().poll(cx));
                PendingOver::HasRoom
            }
            PendingStep::Pause(pause) => {
                ready!(pause.as_mut().poll(cx));
                PendingOver::Again
            }
        };
        Poll::Ready((slot, over))
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
    Started(GatheredAnswer<StartedRun, StartError>),
    Over(usize, PendingOver),
    /// All answers up to this version are kept.
    Kept(Result<u64, SubscriptionLost>),
    Next(Result<Box<RecordDelivery<T>>, SubscriptionReadError>),
    /// Nothing that was asked is answered any more.
    Stopped,
}

/// What the task of a trigger is given beside its records.
pub(super) struct TriggerWork {
    pub(super) name: Arc<str>,
    pub(super) unkept_max: usize,
    /// What is started for each record, if that is what the trigger does.
    pub(super) starts: Option<Name>,
}

pub(super) async fn work<T, V, F, D>(
    runtime: Runtime,
    of: TriggerWork,
    subscription: DurableSubscription<T>,
    tally: Arc<TriggerTally>,
    make: F,
    deliver: D,
) where
    T: DeserializeOwned + Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(&DurableRecord<T>) -> (String, V) + Sync,
    D: for<'r> Fn(&'r Runtime, Triggered<V>, AskedAs<'_>) -> Handing<'r> + Sync,
{
    let starts = StartAnswers::default();
    let mut started = VecDeque::new();
    let mut tried: Slab<TriedRecord<T>> = Slab::new();
    let mut pending = FuturesUnordered::new();
    let mut unkept = Unkept::default();
    // The versions of answers that are not saved, in order.
    let mut answered: VecDeque<(u64, InstanceHash)> = VecDeque::new();
    let mut held: Option<HeldRecord<T, V>> = None;
    let mut keeping: Option<BoxFuture<'_, Result<u64, SubscriptionLost>>> = None;
    let (host, subscription) = (&runtime.inner().shared.host, &subscription);
    let mut stopped = runtime.inner().stop.unless_over(future::pending::<()>());
    let next_after = |pause: Duration| async move {
        if !pause.is_zero() {
            host.sleep_until(host.now() + pause).await;
        }
        subscription.next().await.map(Box::new)
    };
    let mut next = Box::pin(next_after(Duration::ZERO));
    let hand_over = |asked: Result<Triggered<V>, String>, slot: usize| {
        let to = AskedAs {
            slot,
            starts: &starts,
        };
        let handing = match asked {
            Ok(asked) => catch_unwind(AssertUnwindSafe(|| deliver(&runtime, asked, to)))
                .unwrap_or_else(|panic| Handing::told(TriggerOutcome::Never(panic_message(panic)))),
            Err(panic) => Handing::told(TriggerOutcome::Never(panic)),
        };
        let step = match handing {
            Handing::Gathered => return None,
            Handing::WaitsForRoom(room) => PendingStep::Room(room),
            Handing::Future(outcome) => PendingStep::Outcome(outcome),
        };
        Some(PendingHandover { slot, step })
    };
    loop {
        if let (None, Some((first, _))) = (&keeping, answered.front()) {
            keeping = Some(Box::pin(subscription.kept(*first)));
        }
        if let Some(HeldRecord {
            record,
            instance,
            asked,
        }) = held.take_if(|held| unkept.may_take(held.instance))
        {
            unkept.take(instance);
            let slot = tried.insert(TriedRecord {
                record,
                instance,
                unknown: 0,
            });
            pending.extend(hand_over(asked, slot));
        }
        let has_room = held.is_none() && unkept.len < of.unkept_max && tried.len() < AT_ONCE_MAX;
        let mut look = |cx: &mut Context<'_>| {
            if started.is_empty() && of.starts.is_some() {
                // What is found is in the list.
                let _is_found = starts.poll_take(cx, &mut started);
            }
            if let Some(answer) = started.pop_front() {
                return Poll::Ready(TriggerNews::Started(answer));
            }
            if let Poll::Ready(Some((slot, over))) = pending.poll_next_unpin(cx) {
                return Poll::Ready(TriggerNews::Over(slot, over));
            }
            if let Some(keeping) = &mut keeping
                && let Poll::Ready(kept) = keeping.as_mut().poll(cx)
            {
                return Poll::Ready(TriggerNews::Kept(kept));
            }
            if has_room && let Poll::Ready(next) = next.as_mut().poll(cx) {
                return Poll::Ready(TriggerNews::Next(next));
            }
            Pin::new(&mut stopped).poll(cx).map(|_| TriggerNews::Stopped)
        };
        let news = poll_fn(|cx| {
            // Gathered answers do not count as work of the task by themselves, as those of channels do: with many of them it
            // would keep its worker thread from other tasks.
            let budget = ready!(coop::poll_proceed(cx));
            let news = ready!(look(cx));
            budget.made_progress();
            Poll::Ready(news)
        });
        let (slot, outcome) = match news.await {
            TriggerNews::Started((number, answer)) => {
                let outcome = match answer {
                    Some(Ok(begun)) if begun.is_checked => TriggerOutcome::Done,
                    Some(Ok(found)) => {
                        let workflow = of.starts.clone().expect("only starts are answered here");
                        let step = PendingStep::Outcome(Box::pin(check(&runtime, found.run, workflow)));
                        let slot = number as usize;
                        pending.push(PendingHandover { slot, step });
                        continue;
                    }
                    Some(Err(error)) => TriggerOutcome::of_start(&runtime, error),
                    None => TriggerOutcome::stopped(&runtime, runtime.inner().stop_cause()),
                };
                (number as usize, outcome)
            }
            TriggerNews::Over(slot, PendingOver::Outcome(outcome)) => (slot, outcome),
            TriggerNews::Over(_, PendingOver::HasRoom) => continue,
            TriggerNews::Over(slot, PendingOver::Again) => {
                if let Some(delivery) = tried.get(slot).and_then(|tried| tried.record.0.as_ref()) {
                    let (_, asked) = ask(&of.name, delivery.record(), &make);
                    pending.extend(hand_over(asked, slot));
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
            TriggerNews::Kept(Err(lost)) | TriggerNews::Next(Err(SubscriptionReadError::Lost(lost))) => {
                return tally.lose(lost);
            }
            TriggerNews::Stopped => return tally.lose(runtime.inner().stop_cause().into()),
            TriggerNews::Next(Err(SubscriptionReadError::Missed(missed))) => {
                // Their count is in the status of the subscription.
                tracing::warn!(subscription = &*of.name, error = %missed, "records are passed over");
                next.set(next_after(Duration::ZERO));
                continue;
            }
            TriggerNews::Next(Err(SubscriptionReadError::Unreadable { problem })) => {
                tracing::warn!(
                    subscription = &*of.name,
                    problem,
                    "the topic of a trigger cannot be read now"
                );
                next.set(next_after(PAUSES.1));
                continue;
            }
            TriggerNews::Next(Ok(delivery)) => {
                let (instance, asked) = ask(&of.name, delivery.record(), &make);
                held = Some(HeldRecord {
                    record: RecordAtWork(Some(delivery)),
                    instance,
                    asked,
                });
                next.set(next_after(Duration::ZERO));
                continue;
            }
        };
        match outcome {
            TriggerOutcome::Stopped(cause) => return tally.lose(cause.into()),
            TriggerOutcome::Unknown => {
                let Some(tried) = tried.get_mut(slot) else {
                    continue;
                };
                if tried.unknown == 0 {
                    unkept.note_unknown(tried.instance);
                }
                let pause = host.sleep_until(host.now() + pause_after(tried.unknown));
                tried.unknown = tried.unknown.saturating_add(1);
                let step = PendingStep::Pause(Box::pin(pause));
                pending.push(PendingHandover { slot, step });
            }
            outcome => {
                let Some(TriedRecord {
                    record,
                    instance,
                    unknown,
                }) = tried.try_remove(slot)
                else {
                    continue;
                };
                if unknown > 0 {
                    unkept.note_known(instance);
                }
                match answer(&tally, record, outcome) {
                    Some(version) => answered.push_back((version, instance)),
                    None => unkept.leave(instance),
                }
            }
        }
    }
}

/// What becomes of a record whose id is taken by a run of which the shard does not know the workflow.
async fn check(runtime: &Runtime, run: RunId, workflow: Name) -> TriggerOutcome {
    match runtime.inner().check_workflow(run, workflow).await {
        Ok(()) => TriggerOutcome::Done,
        Err(error) => TriggerOutcome::of_start(runtime, error),
    }
}

/// What one record asks for, and of which instance; what its code has panicked with, if it has.
fn ask<T, V, F>(
    name: &Arc<str>,
    record: &DurableRecord<T>,
    make: &F,
) -> (InstanceHash, Result<Triggered<V>, String>)
where
    F: Fn(&DurableRecord<T>) -> (String, V),
{
    match catch_unwind(AssertUnwindSafe(|| make(record))) {
        Ok((id, value)) => {
            let instance = xxh3_64(id.as_bytes());
            let triggered = Triggered {
                id,
                value,
                stems: Provenance {
                    cause: record.run_cause(),
                    trace: record.trace().copied(),
                },
                trigger: Arc::clone(name),
                token: record.token(),
            };
            (instance, Ok(triggered))
        }
        Err(panic) => (0, Err(panic_message(panic))),
    }
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
