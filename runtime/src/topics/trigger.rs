//! Triggers: subscriptions that start or signal workflows.
//!
//! ```text
//!   topic ──► inbox, bounded ──► task ──► start or signal, as many as have arrived at once
//! ```
//!
//! If a shard fails during a request, the request is repeated: a start is still made once, but a signal may arrive twice.
//! Envelopes in the inbox are in memory, as their topic is. If a publisher must wait for room, the backpressure comes from
//! the runtime's own mailboxes: a start that is not durable yet keeps its place.
//!
//! If an instance accepts no more signals for now, or there are as many instances as may be, the trigger tries again after a
//! growing pause: there is no notification of room. Nothing else in the runtime waits for room in this way.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use millrun_broker::{Envelope, Inbox, Receiver, SubscribeError, SubscriptionConfig};
use millrun_core::{Cause, Host, TaskHandle, TraceContext, panic_message};
use millrun_workflow::{Signal, Topic, Workflow};
use serde::Serialize;

use crate::builders::Start;
use crate::ending::stop::StopCell;
use crate::inner::Inner;
use crate::{OnConflict, RunError, Runtime, StartError, StartWithSignalError, StopCause};

/// How many envelopes are started or signalled at once.
const BATCH_MAX: usize = 256;

/// Retry backoff for an envelope that is refused for now: the first pause and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(5));

/// A subscription that starts or signals workflows; made by an [`On`]. It ends when this is dropped: waiting envelopes are
/// discarded.
#[must_use = "dropping it ends the subscription"]
pub struct Trigger {
    task: TaskHandle,
    stop: Box<dyn Fn() + Send + Sync>,
    counts: Arc<Counts>,
}

impl fmt::Debug for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trigger")
            .field("handled", &self.handled())
            .field("refused", &self.refused())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Counts {
    handled: AtomicU64,
    refused: AtomicU64,
}

impl Trigger {
    /// How many envelopes have started or signalled an instance, durably.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.counts.handled.load(Ordering::Relaxed)
    }

    /// How many envelopes could not be handled: their instance does not exist or has ended, say, or the code for them
    /// panicked. Each is reported as a warning too.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::Relaxed)
    }
}

impl Counts {
    fn refuse(&self, id: &str, error: &str) {
        tracing::warn!(id, error, "an envelope could not be handed to its instance");
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Closes the subscription when its task ends, for any reason, so that no publisher waits there.
struct Ending<T: Send + Sync + 'static>(Inbox<Envelope<T>>);

impl<T: Send + Sync + 'static> Drop for Ending<T> {
    fn drop(&mut self) {
        self.0.close_discarding();
    }
}

impl Drop for Trigger {
    fn drop(&mut self) {
        (self.stop)();
        self.task.abort();
    }
}

/// A value of a user's type whose destructor may panic. The panic is caught, so that no second value is dropped while a panic
/// unwinds.
struct Given<V>(Option<V>);

impl<V> Drop for Given<V> {
    fn drop(&mut self) {
        let value = self.0.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
            let message = panic_message(panic);
            tracing::debug!(message, "a value panicked as it was given up");
        }
    }
}

/// The effect of one envelope.
struct Asked<V> {
    value: Given<V>,
    /// The run that published the envelope, if one did, and the envelope's place in a distributed trace.
    stems: Provenance,
}

/// The origin of a record or an envelope, as far as it is known: the operation that published it, and a place in a
/// distributed trace.
#[derive(Clone, Debug)]
pub(super) struct Provenance {
    pub(super) cause: Option<Cause>,
    pub(super) trace: Option<TraceContext>,
}

/// The start for a trigger: with its origin, and without a receiver for the run's end.
pub(super) fn asked_by_trigger<H>(start: Start<'_, H>, stems: Provenance) -> Start<'_, H> {
    let mut start = start.let_go();
    if let Some(cause) = stems.cause {
        start = start.caused_by(cause);
    }
    match stems.trace {
        Some(trace) => start.traced(trace),
        None => start,
    }
}

/// The outcome for one envelope.
enum Handling {
    Done,
    /// Not now; perhaps later.
    Later,
    Refused(String),
    Stopped,
}

impl Handling {
    /// No answer came: the runtime has stopped, or one of its shards restarts.
    fn stopped(runtime: &Runtime, cause: &StopCause) -> Self {
        match cause {
            StopCause::Part { .. } if runtime.stop_cause().is_none() => Self::Later,
            StopCause::Part { .. }
            | StopCause::Shutdown
            | StopCause::Journal(_)
            | StopCause::HostEnded
            | StopCause::ReadOnly => Self::Stopped,
        }
    }
}

/// A prepared trigger; made by [`Runtime::on`] and [`Runtime::on_topic`]. Its last method sets the effect of each envelope.
#[must_use = "nothing is subscribed until it is said what becomes of an envelope"]
#[derive(Clone)]
pub struct On<'a, T> {
    runtime: &'a Runtime,
    topic: String,
    config: SubscriptionConfig,
    on_conflict: OnConflict,
    payload: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for On<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("On")
            .field("topic", &self.topic)
            .field("config", &self.config)
            .field("on_conflict", &self.on_conflict)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Lets each envelope on a topic, or on all topics that a filter such as `orders.*.placed` selects, start
    /// or signal a workflow.
    ///
    /// ```
    /// use millrun::{Runtime, Topic, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const PLACED: Topic<u64> = Topic::named("orders.placed");
    /// const ORDER: Workflow<u64, u64> = Workflow::named("order");
    ///
    /// async fn order(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    ///     Ok(number)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(ORDER, order).start().await?;
    /// let trigger = runtime.on(PLACED).start(ORDER, |envelope| {
    ///     (format!("order-{}", envelope.payload()), *envelope.payload())
    /// })?;
    /// runtime.broker().topic::<u64>("orders.placed")?.publish(7).await?;
    /// # while trigger.handled() == 0 { tokio::task::yield_now().await; }
    /// assert_eq!(runtime.attach(ORDER, "order-7")?.result().await?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on<T>(&self, topic: Topic<T>) -> On<'_, T> {
        self.on_topic(topic.name())
    }

    /// As [`on`](Self::on), for a topic or filter whose name is only known at run time. The broker bounds the number of
    /// topics.
    pub fn on_topic<T>(&self, topic: impl Into<String>) -> On<'_, T> {
        On {
            runtime: self,
            topic: topic.into(),
            config: SubscriptionConfig::default(),
            on_conflict: OnConflict::default(),
            payload: PhantomData,
        }
    }
}

impl<T: Send + Sync + 'static> On<'_, T> {
    /// Sets how many envelopes wait, and what happens beyond that: by default publishers wait.
    pub fn subscription(mut self, config: SubscriptionConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets what happens when the id of a start is taken; [`OnConflict::Attach`] by default.
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// Starts an instance for each envelope, with the id and the input that `make` returns. An id that is taken is left
    /// alone, so that the same event twice starts one instance, unless [`on_conflict`](Self::on_conflict) says otherwise; if
    /// the second event comes when the first run has finished and is not retained any more, it starts another one, as
    /// [`Runtime::start`] does.
    ///
    /// # Errors
    /// When the broker refuses the subscription: the topic has another type, say, or is durable in this runtime
    /// ([`TopicError::Durable`](crate::broker::TopicError::Durable)); for those use
    /// [`trigger`](crate::topics::DurableTopicHandle::trigger).
    pub fn start<I, O, E, F>(self, workflow: Workflow<I, O, E>, make: F) -> Result<Trigger, SubscribeError>
    where
        I: Serialize + Clone + Send + Sync + 'static,
        O: 'static,
        E: 'static,
        F: Fn(&Envelope<T>) -> (String, I) + Send + Sync + 'static,
    {
        let on_conflict = self.on_conflict;
        self.trigger(make, move |runtime, id, input: I, stems| {
            Box::pin(async move {
                let start = runtime.start(workflow, &id, input).on_conflict(on_conflict);
                match asked_by_trigger(start, stems).await {
                    Ok(_) => Handling::Done,
                    Err(StartError::Stopped(cause)) => Handling::stopped(&runtime, &cause),
                    Err(error) if error.is_retryable() => Handling::Later,
                    Err(error) => Handling::Refused(error.to_string()),
                }
            })
        })
    }

    /// Signals an instance for each envelope: the latest run of the id that `make` returns. Signals to one instance keep the
    /// order of their envelopes.
    ///
    /// If an instance has as many unread signals as it may, the trigger waits, and so do all envelopes behind, for any
    /// instance: in the end their publishers wait, as the [subscription](Self::subscription) says.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn signal<V, I, O, E, F>(
        self,
        workflow: Workflow<I, O, E>,
        signal: Signal<V>,
        make: F,
    ) -> Result<Trigger, SubscribeError>
    where
        V: Serialize + Clone + Send + Sync + 'static,
        I: 'static,
        O: 'static,
        E: 'static,
        F: Fn(&Envelope<T>) -> (String, V) + Send + Sync + 'static,
    {
        self.trigger(make, move |runtime, id, value: V, stems| {
            Box::pin(async move {
                let run = match runtime.attach(workflow, &id) {
                    Ok(run) => run,
                    Err(error) => return Handling::Refused(error.to_string()),
                };
                let sent = match stems.cause {
                    Some(cause) => run.signal_caused_by(cause, signal, value).await,
                    None => run.signal(signal, value).await,
                };
                match sent {
                    Ok(()) => Handling::Done,
                    Err(RunError::Stopped(cause)) => Handling::stopped(&runtime, &cause),
                    Err(error) if error.is_retryable() => Handling::Later,
                    Err(error) => Handling::Refused(error.to_string()),
                }
            })
        })
    }

    /// Signals an instance for each envelope, and starts it with that signal if it does not live: `make` returns the id, the
    /// input of a new run, and the signal's value. [`on_conflict`](Self::on_conflict) is as in
    /// [`with_signal`](crate::builders::Start::with_signal). Signals to one instance keep the order of their envelopes.
    ///
    /// ```
    /// use millrun::{OnConflict, Runtime, Signal, Topic, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const SOLD: Topic<(String, u64)> = Topic::named("items.sold");
    /// const ITEM: Signal<u64> = Signal::named("item");
    /// const BILL: Workflow<usize, u64> = Workflow::named("bill");
    ///
    /// async fn bill(cx: WorkflowContext, len: usize) -> Result<u64, WorkflowError> {
    ///     let mut sum = 0;
    ///     for _ in 0..len {
    ///         sum += cx.receive(ITEM).await?;
    ///     }
    ///     Ok(sum)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(BILL, bill).start().await?;
    /// let on_sold = runtime.on(SOLD).on_conflict(OnConflict::RestartFinished);
    /// let trigger = on_sold.start_with_signal(BILL, ITEM, |sold| {
    ///     let (customer, cents) = sold.payload();
    ///     (format!("bill-{customer}"), 2, *cents)
    /// })?;
    /// let sold = runtime.broker().topic::<(String, u64)>(SOLD.name())?;
    /// sold.publish(("ada".into(), 300)).await?;
    /// sold.publish(("ada".into(), 199)).await?;
    /// # while trigger.handled() < 2 { tokio::task::yield_now().await; }
    /// assert_eq!(runtime.attach(BILL, "bill-ada")?.result().await?, 499);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with_signal<I, V, O, E, F>(
        self,
        workflow: Workflow<I, O, E>,
        signal: Signal<V>,
        make: F,
    ) -> Result<Trigger, SubscribeError>
    where
        I: Serialize + Clone + Send + Sync + 'static,
        V: Serialize + Clone + Send + Sync + 'static,
        O: 'static,
        E: 'static,
        F: Fn(&Envelope<T>) -> (String, I, V) + Send + Sync + 'static,
    {
        let on_conflict = self.on_conflict;
        let make = move |envelope: &Envelope<T>| {
            let (id, input, value) = make(envelope);
            (id, (input, value))
        };
        self.trigger(make, move |runtime, id, (input, value): (I, V), stems| {
            Box::pin(async move {
                let start = runtime.start(workflow, &id, input).on_conflict(on_conflict);
                match asked_by_trigger(start, stems).with_signal(signal, value).await {
                    Ok(_) => Handling::Done,
                    Err(
                        StartWithSignalError::Start(StartError::Stopped(cause))
                        | StartWithSignalError::Signal(RunError::Stopped(cause)),
                    ) => Handling::stopped(&runtime, &cause),
                    Err(error) if error.is_retryable() => Handling::Later,
                    Err(error) => Handling::Refused(error.to_string()),
                }
            })
        })
    }

    fn trigger<V, F, D>(self, make: F, deliver: D) -> Result<Trigger, SubscribeError>
    where
        V: Clone + Send + Sync + 'static,
        F: Fn(&Envelope<T>) -> (String, V) + Send + Sync + 'static,
        D: Fn(Runtime, String, V, Provenance) -> BoxFuture<'static, Handling> + Send + Sync + 'static,
    {
        let Self {
            runtime,
            topic,
            mut config,
            ..
        } = self;
        if config.name.is_empty() {
            config.name = format!("trigger {topic}");
        }
        let inner = runtime.inner();
        let inbox: Inbox<Envelope<T>> = runtime.broker().subscribe(&topic, config)?;
        let counts = Arc::new(Counts::default());
        let stop = {
            let inbox = inbox.clone();
            Box::new(move || {
                inbox.close_discarding();
            })
        };
        let ending = Ending(inbox.clone());
        let work = work(
            Arc::downgrade(inner),
            Arc::clone(&inner.stop),
            inbox.into_receiver(),
            Arc::clone(&counts),
            make,
            deliver,
        );
        let abandoned = inner.stop.abandoned();
        let work = async move {
            let _ending = ending;
            work.await;
            // A shard that still runs would take a closed inbox for a topic without listeners, and record values that wait
            // for room there as published.
            abandoned.await;
        };
        let task = inner.shared.host.spawn("trigger", Box::pin(work));
        Ok(Trigger { task, stop, counts })
    }
}

async fn work<T, V, F, D>(
    inner: Weak<Inner>,
    stop: Arc<StopCell>,
    mut envelopes: Receiver<Envelope<T>>,
    counts: Arc<Counts>,
    make: F,
    deliver: D,
) where
    T: Send + Sync + 'static,
    V: Clone + Send + Sync,
    F: Fn(&Envelope<T>) -> (String, V),
    D: Fn(Runtime, String, V, Provenance) -> BoxFuture<'static, Handling>,
{
    // An envelope that is taken after a shutdown has begun would be lost, and would let another one into the inbox.
    while !stop.is_closing()
        && let Some(first) = envelopes.recv().await
    {
        // Held only while there is work: a trigger does not keep the runtime alive.
        let Some(runtime) = inner.upgrade().map(Runtime::of) else {
            return;
        };
        let mut by_id: BTreeMap<String, Vec<Asked<V>>> = BTreeMap::new();
        let more = std::iter::from_fn(|| envelopes.try_recv()).take(BATCH_MAX - 1);
        for envelope in std::iter::once(first).chain(more) {
            // The trigger's code and the payload's own code may panic.
            let envelope = Given(Some(envelope));
            let Some(lent) = &envelope.0 else { continue };
            match catch_unwind(AssertUnwindSafe(|| make(lent))) {
                Ok((id, value)) => by_id.entry(id).or_default().push(Asked {
                    value: Given(Some(value)),
                    stems: Provenance {
                        cause: lent.run_cause(),
                        trace: lent.trace(),
                    },
                }),
                Err(panic) => {
                    let message = panic_message(panic);
                    counts.refuse("", &format!("envelope {:?}: {message}", lent.id()));
                }
            }
        }
        let host = runtime.inner().shared.host.as_ref();
        let deliveries = by_id.iter().map(async |(id, values)| {
            for asked in values {
                if !deliver_one(&runtime, host, &counts, id, asked, &deliver).await {
                    return false;
                }
            }
            true
        });
        if join_all(deliveries).await.contains(&false) {
            return;
        }
    }
}

/// Delivers one value, again and again if it is refused for now. Returns whether the runtime still runs.
async fn deliver_one<V, D>(
    runtime: &Runtime,
    host: &dyn Host,
    counts: &Counts,
    id: &str,
    asked: &Asked<V>,
    deliver: &D,
) -> bool
where
    V: Clone,
    D: Fn(Runtime, String, V, Provenance) -> BoxFuture<'static, Handling>,
{
    let (mut pause, pause_max) = PAUSES;
    let Some(value) = &asked.value.0 else {
        return true;
    };
    loop {
        // The value's own code, which clones or encodes it, may panic.
        let delivery = async {
            deliver(
                runtime.clone(),
                id.to_string(),
                value.clone(),
                asked.stems.clone(),
            )
            .await
        };
        let answer = AssertUnwindSafe(delivery).catch_unwind().await;
        match answer.unwrap_or_else(|panic| Handling::Refused(panic_message(panic))) {
            Handling::Done => {
                counts.handled.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Handling::Refused(error) => {
                counts.refuse(id, &error);
                return true;
            }
            Handling::Stopped => return false,
            Handling::Later => {
                host.sleep_until(host.now() + pause).await;
                pause = (pause * 2).min(pause_max);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Undroppable;

    impl Drop for Undroppable {
        fn drop(&mut self) {
            panic!("it cannot be dropped");
        }
    }

    #[test]
    fn many_values_that_panic_when_they_are_dropped_end_nothing() {
        let values: Vec<_> = (0..3).map(|_| Given(Some(Undroppable))).collect();
        drop(values);
    }
}
