//! Durable subscriptions that start or signal workflows.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use millrun_core::TaskHandle;
use millrun_workflow::{DurableTopic, Name, Signal, Workflow};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::handle::DurableTopicHandle;
use super::reader::ReadFrom;
use super::record::DurableRecord;
use super::subscription::{
    DurableSubscription, SubscribeRecords, SubscriptionLost, SubscriptionOpenError, SubscriptionStatus,
    UndeliveredRecord,
};
use super::triggered::{
    AskedAs, Handing, TriggerOutcome, TriggerTally, TriggerWork, Triggered, UNKEPT_MAX, work,
};
use crate::Runtime;
use crate::topics::trigger::asked_by_trigger;

/// A trigger answers each record, or gives it back when it ends: this lease only matters if the journal does not answer.
const LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// A durable subscription that starts or signals workflows; made by [`DurableTopicHandle::trigger`]. It ends when this is
/// dropped or the runtime stops; a new trigger of its name continues from its place. It keeps the runtime alive.
#[must_use = "dropping it ends the trigger"]
pub struct DurableTrigger {
    task: TaskHandle,
    tally: Arc<TriggerTally>,
    has_begun_anew: bool,
    status: Box<dyn Fn() -> SubscriptionStatus + Send + Sync>,
}

impl fmt::Debug for DurableTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableTrigger")
            .field("handled", &self.handled())
            .field("refused", &self.refused())
            .finish_non_exhaustive()
    }
}

impl DurableTrigger {
    /// The state of its subscription.
    #[must_use]
    pub fn status(&self) -> SubscriptionStatus {
        (self.status)()
    }

    /// As [`DurableSubscription::has_begun_anew`]: then it may handle records again that a former trigger of its name has
    /// handled.
    #[must_use]
    pub fn has_begun_anew(&self) -> bool {
        self.has_begun_anew
    }

    /// How many records have started or signalled an instance in this process, or were found to have done so before.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.tally.handled.load(Ordering::Relaxed)
    }

    /// How many records this process has given up because no further delivery can succeed, or none is left. Each is also a
    /// warning. Records that have used up the deliveries of [`undelivered_to`](TriggerRecords::undelivered_to) are in that
    /// topic, and not counted here.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.tally.refused.load(Ordering::Relaxed)
    }

    /// Why it has ended; `None` while it runs.
    #[must_use]
    pub fn lost(&self) -> Option<SubscriptionLost> {
        self.tally.lost()
    }
}

impl Drop for DurableTrigger {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A prepared trigger; made by [`DurableTopicHandle::trigger`]. Its last method sets the effect of each record.
#[must_use = "nothing is triggered until it is said what becomes of a record"]
#[derive(Debug)]
pub struct TriggerRecords<'a, T> {
    topic: &'a DurableTopicHandle<T>,
    name: &'a str,
    subscribe: SubscribeRecords<'a, T>,
}

impl<T> DurableTopicHandle<T> {
    /// Lets each record start or signal a workflow, exactly once whatever crashes: a durable subscription of this name drives
    /// it, and a record is acknowledged when its effect is durable. A record that is delivered again after a crash finds its
    /// effect: a start by the id of its instance, a signal by a request that is made of the trigger's name and the record's
    /// token.
    ///
    /// **An instance remembers its last 1,000 requests**, also those of the runs that it continues. A trigger gives at most
    /// 960 records to one instance before their acknowledgements are saved. While it is unknown whether one of them had its
    /// effect, as after a failure of a shard, it gives the instance no other, and later records of the topic wait too.
    /// Besides the trigger there is room for 40 requests from elsewhere: if an instance gets more within the time of a
    /// commit, a record that is delivered again after a crash may have its effect a second time. In that case start an
    /// instance for each record.
    ///
    /// **A start is recognised by the retained finished run.** After a crash up to 3,840 started records are delivered again,
    /// or as many as [retention](crate::store::JournalConfig::retention) keeps finished runs, if that is less. If retention
    /// drops runs before the program is back, by their age for example, such a record may start its instance a second time.
    ///
    /// Up to 960 records are handled at once, and 3,840 including those whose acknowledgements are not saved yet; records of
    /// one key one at a time and in order. Records of different keys for one instance have no order.
    ///
    /// If the runtime does not accept a start or a signal for now (there are as many instances or unread signals as there may
    /// be, a partition has moved, a part restarts), the record is tried again after a pause, from 10 ms doubling up to 5 s,
    /// without limit: only its key waits, and occupies room among the records in hand. If the record is at fault, it goes to
    /// the topic for [undelivered](TriggerRecords::undelivered_to) records with the reason: at once if no delivery can
    /// succeed (the id is invalid or belongs to another workflow, the instance has ended, the code panics), after the
    /// configured number of deliveries if one may (there is no instance to signal, or it cannot be read). **Without such a
    /// topic** a record is skipped in these cases, in the second case after 10 deliveries, with a warning that has its token
    /// and the reason.
    ///
    /// ```
    /// use millrun::{DurableTopic, Runtime, Topic, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
    /// const ORDER: Workflow<u64, u64> = Workflow::named("order");
    ///
    /// async fn order(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    ///     Ok(number)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().durable_topic(PLACED).register(ORDER, order).start().await?;
    /// let placed = runtime.durable_topic(PLACED)?;
    /// let billing = placed.trigger("billing");
    /// let trigger = billing.start(ORDER, |record| (format!("order-{}", record.payload()), *record.payload())).await?;
    /// placed.publish(&7).key("order-7").await?;
    /// # while trigger.handled() == 0 { tokio::task::yield_now().await; }
    /// assert_eq!(runtime.attach(ORDER, "order-7")?.result().await?, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn trigger<'a>(&'a self, name: &'a str) -> TriggerRecords<'a, T> {
        TriggerRecords {
            topic: self,
            name,
            subscribe: self.subscribe(name).lease(LEASE),
        }
    }
}

impl<T> TriggerRecords<'_, T> {
    /// Where it begins, if it has no kept place; as [`SubscribeRecords::from`].
    pub fn from(mut self, from: ReadFrom) -> Self {
        self.subscribe = self.subscribe.from(from);
        self
    }

    /// The largest number of records in hand; as [`SubscribeRecords::in_flight_max`].
    pub fn in_flight_max(mut self, in_flight_max: usize) -> Self {
        self.subscribe = self.subscribe.in_flight_max(in_flight_max);
        self
    }

    /// The topic for records that cannot be handled, and after how many deliveries; as [`SubscribeRecords::undelivered_to`].
    pub fn undelivered_to(mut self, topic: DurableTopic<UndeliveredRecord>, deliveries_max: u32) -> Self {
        self.subscribe = self.subscribe.undelivered_to(topic, deliveries_max);
        self
    }

    /// Holds the key of a record that could not be handled, until the record is sent back or the key is released; as
    /// [`SubscribeRecords::hold_key_when_undelivered`].
    pub fn hold_key_when_undelivered(mut self) -> Self {
        self.subscribe = self.subscribe.hold_key_when_undelivered();
        self
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> TriggerRecords<'_, T> {
    /// Starts an instance for each record, with the id and the input that `make` returns. An id that is taken, by a live run
    /// of the workflow or by a retained finished one, is left alone; see [`Runtime::start`].
    ///
    /// # Errors
    /// See [`SubscriptionOpenError`].
    pub async fn start<I, O, E, F>(
        self,
        workflow: Workflow<I, O, E>,
        make: F,
    ) -> Result<DurableTrigger, SubscriptionOpenError>
    where
        I: Serialize + Send + 'static,
        O: 'static,
        E: 'static,
        F: Fn(&DurableRecord<T>) -> (String, I) + Send + Sync + 'static,
    {
        // A record that is delivered again finds its instance among the retained ones.
        let retained = self.topic.inner.shared.config.journal.retention.len_max;
        let unkept_max = retained.clamp(1, UNKEPT_MAX);
        let starts = Some(workflow.name().into());
        self.open_handing(
            unkept_max,
            starts,
            make,
            move |runtime, asked: Triggered<I>, to| {
                let request = asked.request();
                let start = runtime.start(workflow, &asked.id, asked.value);
                let start = asked_by_trigger(start, asked.stems).triggered_by(request);
                Handing::start(runtime, start, to)
            },
        )
        .await
    }

    /// As [`start`](Self::start), with an instance of its own for each record: its id is the name of the trigger, `/` and the
    /// token of the record.
    ///
    /// # Errors
    /// See [`SubscriptionOpenError`].
    pub async fn start_each<I, O, E, F>(
        self,
        workflow: Workflow<I, O, E>,
        make: F,
    ) -> Result<DurableTrigger, SubscriptionOpenError>
    where
        I: Serialize + Send + 'static,
        O: 'static,
        E: 'static,
        F: Fn(&DurableRecord<T>) -> I + Send + Sync + 'static,
    {
        let name = self.name.to_owned();
        let make = move |record: &DurableRecord<T>| (format!("{name}/{}", record.token()), make(record));
        self.start(workflow, make).await
    }

    /// Signals an instance for each record: the latest run of the id that `make` returns. A run remembers the requests of its
    /// last 1,000 signals, see [`signal_as`](crate::RunHandle::signal_as).
    ///
    /// # Errors
    /// See [`SubscriptionOpenError`].
    pub async fn signal<V, I, O, E, F>(
        self,
        workflow: Workflow<I, O, E>,
        signal: Signal<V>,
        make: F,
    ) -> Result<DurableTrigger, SubscriptionOpenError>
    where
        V: Serialize + Send + 'static,
        I: 'static,
        O: 'static,
        E: 'static,
        F: Fn(&DurableRecord<T>) -> (String, V) + Send + Sync + 'static,
    {
        self.open(UNKEPT_MAX, make, move |runtime, asked: Triggered<V>| {
            Box::pin(async move {
                let run = match runtime.attach(workflow, &asked.id) {
                    Ok(run) => run,
                    Err(error) => return TriggerOutcome::Never(error.to_string()),
                };
                let request = Some(asked.request());
                let cause = asked.stems.cause.map(Box::new);
                match run.send_signal(signal, asked.value, cause, request).await {
                    Ok(()) => TriggerOutcome::Done,
                    Err(error) => TriggerOutcome::of_signal(runtime, error),
                }
            })
        })
        .await
    }

    /// Signals an instance for each record, and starts it with that signal if it does not live: `make` returns the id, the
    /// input of a new run, and the signal's value. An instance that has ended and is retained is not started again, and takes
    /// no further signal.
    ///
    /// # Errors
    /// See [`SubscriptionOpenError`].
    pub async fn start_with_signal<I, V, O, E, F>(
        self,
        workflow: Workflow<I, O, E>,
        signal: Signal<V>,
        make: F,
    ) -> Result<DurableTrigger, SubscriptionOpenError>
    where
        I: Serialize + Send + 'static,
        V: Serialize + Send + 'static,
        O: 'static,
        E: 'static,
        F: Fn(&DurableRecord<T>) -> (String, I, V) + Send + Sync + 'static,
    {
        let make = move |record: &DurableRecord<T>| {
            let (id, input, value) = make(record);
            (id, (input, value))
        };
        self.open(UNKEPT_MAX, make, move |runtime, asked: Triggered<(I, V)>| {
            Box::pin(async move {
                let request = asked.request();
                let (input, value) = asked.value;
                let start = asked_by_trigger(runtime.start(workflow, &asked.id, input), asked.stems);
                match start.with_signal_as(signal, &request, value).await {
                    Ok(_) => TriggerOutcome::Done,
                    Err(error) => TriggerOutcome::of_both(runtime, error),
                }
            })
        })
        .await
    }

    /// Opens a trigger that waits for what `deliver` gives for each record.
    pub(super) async fn open<V, F, D>(
        self,
        unkept_max: usize,
        make: F,
        deliver: D,
    ) -> Result<DurableTrigger, SubscriptionOpenError>
    where
        V: Send + 'static,
        F: Fn(&DurableRecord<T>) -> (String, V) + Send + Sync + 'static,
        D: for<'r> Fn(&'r Runtime, Triggered<V>) -> BoxFuture<'r, TriggerOutcome> + Send + Sync + 'static,
    {
        self.open_handing(unkept_max, None, make, move |runtime, asked, _| {
            Handing::Future(deliver(runtime, asked))
        })
        .await
    }

    /// Opens a trigger that hands its records over by `hand_over`, which starts this workflow if it starts one.
    async fn open_handing<V, F, D>(
        self,
        unkept_max: usize,
        starts: Option<Name>,
        make: F,
        hand_over: D,
    ) -> Result<DurableTrigger, SubscriptionOpenError>
    where
        V: Send + 'static,
        F: Fn(&DurableRecord<T>) -> (String, V) + Send + Sync + 'static,
        D: for<'r> Fn(&'r Runtime, Triggered<V>, AskedAs<'_>) -> Handing<'r> + Send + Sync + 'static,
    {
        let inner = Arc::clone(&self.topic.inner);
        let subscription: DurableSubscription<T> = self.subscribe.await?;
        let tally = Arc::new(TriggerTally::default());
        let has_begun_anew = subscription.has_begun_anew();
        let status = {
            let subscription = subscription.clone();
            Box::new(move || subscription.status())
        };
        let work = work(
            Runtime::of(Arc::clone(&inner)),
            TriggerWork {
                name: self.name.into(),
                unkept_max,
                starts,
            },
            subscription,
            Arc::clone(&tally),
            make,
            hand_over,
        );
        let task = inner.shared.host.spawn("durable trigger", Box::pin(work));
        Ok(DurableTrigger {
            task,
            tally,
            has_begun_anew,
            status,
        })
    }
}
