//! The broker: its bounds, and access to its topics and subscriptions.
//!
//! ```text
//!   topic, subscribe ──► [ table ], locked ──► routes ◄── read by publishers, without a lock
//!                            └─ news ──► told to the monitor once the lock is released
//! ```
//!
//! The broker is not on the data path: it is a plain struct behind a lock that is taken when a topic is declared and when a
//! subscription begins or ends. Each change rebuilds the affected routes; publishers read those without a lock.
//!
//! Lock order: table, then a topic's lanes, then a mailbox, then the topic's stage.

mod config;
mod error;
mod table;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrun_core::{Bell, Host, Timestamp};

use crate::delivery::Delivery;
use crate::envelope::{AnyEnvelope, Envelope};
use crate::hub::Hub;
use crate::id::SubscriptionId;
use crate::id::TopicId;
use crate::inbox::Inbox;
use crate::mailbox::Mailbox;
use crate::name::{Filter, TopicName};
use crate::subscription::{SubscriptionConfig, Unsubscribe};
use crate::topic::core::Subscribed;
use crate::topic::{TopicConfig, TopicHandle};
use crate::watch::dead_letter::{DEAD_LETTERS, DeadLetterSink, Undeliverable};
use crate::watch::monitor::BrokerEvent;
use crate::watch::monitor::LongWait;
use crate::watch::tap::{AlreadyTapped, FlowEvent, InboxProbe, Tap};
use crate::watch::topology::{SubscriptionInfo, TopicInfo, Topology};
pub use config::BrokerConfig;
pub use error::{SubscribeError, TopicError, TopicInUse};
use table::{DEAD_LETTER_TOPIC, Table};

/// Topics and subscriptions of one process. A cheap clone; all clones are the same broker.
#[derive(Clone)]
pub struct Broker(Arc<BrokerInner>);

struct BrokerInner {
    config: BrokerConfig,
    /// Whether it was made with a host.
    has_own_host: bool,
    hub: Arc<Hub>,
    table: Mutex<Table>,
}

impl Broker {
    /// A broker that uses the clock, the random numbers and the tasks of `host`.
    #[must_use]
    pub fn new(config: BrokerConfig, host: Arc<dyn Host>) -> Self {
        Self::build(config, Some(host))
    }

    /// A broker without a host: its time is the one that [`Broker::advance`] was last given, also for time limits such as
    /// that of [`TopicHandle::ask`]. It may be [given a host](Self::run_on) later: millrun's runtime gives its own to the
    /// broker that it is built with.
    #[must_use]
    pub fn without_host(config: BrokerConfig) -> Self {
        Self::build(config, None)
    }

    fn build(config: BrokerConfig, host: Option<Arc<dyn Host>>) -> Self {
        let broker = Self(Arc::new(BrokerInner {
            config,
            has_own_host: host.is_some(),
            hub: Arc::new(Hub::new(host, DEAD_LETTER_TOPIC, config.wait_report_after)),
            table: Mutex::new(Table::new()),
        }));
        let name = TopicName::new(DEAD_LETTERS).expect("the name follows the rules");
        let dead_letters = broker
            .0
            .table()
            .declare(&broker.0.hub, name, &TopicConfig::default());
        let dead_letters: Arc<dyn DeadLetterSink> = dead_letters;
        broker.0.hub.set_dead_letters(Arc::downgrade(&dead_letters));
        broker
    }

    /// Uses the clock, the random numbers and the tasks of `host` from now on, in place of any other host and of
    /// [`Broker::advance`]. Waits for a time continue with that host's time.
    ///
    /// Running services stay on the host on which they were started.
    pub fn run_on(&self, host: Arc<dyn Host>) {
        self.0.hub.waits().forget_watch();
        self.0.hub.clock().run_on(host);
    }

    /// Whether it has a host by now.
    #[must_use]
    pub fn has_host(&self) -> bool {
        self.0.hub.clock().host().is_some()
    }

    /// Whether it was made with a host, so that the runtime need not [give it one](Self::run_on).
    #[must_use]
    pub fn has_own_host(&self) -> bool {
        self.0.has_own_host
    }

    /// Tells a broker without a host the time: deadlines pass, and publishes that have waited for long are reported. Time
    /// never moves backwards. Ignored by a broker with a host.
    pub fn advance(&self, now: Timestamp) {
        if self.has_host() {
            return;
        }
        self.0.hub.clock().advance(now);
        self.0.hub.waits().report(now);
    }

    /// Ends all subscriptions for good: the contents of an inbox can still be taken, and then each consumer finds the end.
    /// From now on a publish is refused with [`PublishError::Closed`](crate::PublishError::Closed), also one that waits for
    /// room, and a subscription with [`SubscribeError::Closed`]. A second call has no effect.
    ///
    /// # Ordering
    /// A publish that returned before this call is in its inboxes. One that overlaps with this call may have reached some of
    /// them; it is refused if it has reached none.
    pub fn close(&self) {
        self.0.hub.close();
        let ended = self.0.table().close();
        for subscribed in ended {
            subscribed.mailbox.close();
            let id = subscribed.core.id;
            self.0.hub.monitor().tell(|| BrokerEvent::Unsubscribed(id));
        }
    }

    /// Whether it has been [closed](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.hub.is_closed()
    }

    /// The topic with this name, declared now if it is new.
    ///
    /// # Errors
    /// When the name is not one, the topic carries another type or is [durable](Self::leave_durable), or there are too many.
    pub fn topic<T: Send + Sync + 'static>(&self, name: &str) -> Result<TopicHandle<T>, TopicError> {
        self.topic_with(name, &TopicConfig::default())
    }

    /// The topic with this name, declared now with this configuration if it is new.
    ///
    /// # Errors
    /// As [`Broker::topic`].
    pub fn topic_with<T: Send + Sync + 'static>(
        &self,
        name: &str,
        config: &TopicConfig<T>,
    ) -> Result<TopicHandle<T>, TopicError> {
        let name = TopicName::new(name).map_err(|source| TopicError::Name {
            name: name.to_owned(),
            source,
        })?;
        let core = self.0.table().topic(self.0.config, &self.0.hub, name, config);
        self.0.tell_news();
        Ok(TopicHandle::new(core?))
    }

    /// Sets which topics are durable, in place of any former list: a journal has their records, so the broker gives no handle
    /// to a topic of such a name and no subscription that names it ([`TopicError::Durable`]), which would hear nothing. A
    /// filter with a wildcard is accepted, and selects no durable topic. millrun's runtime calls this when it starts.
    ///
    /// ```
    /// use millrun_broker::{Broker, BrokerConfig, TopicError};
    ///
    /// let broker = Broker::without_host(BrokerConfig::default());
    /// broker.leave_durable(["orders.placed"])?;
    /// assert!(matches!(broker.topic::<u64>("orders.placed"), Err(TopicError::Durable { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When there is a handle to such a topic, or a subscription names it. Nothing is changed then.
    pub fn leave_durable<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(), TopicInUse> {
        let names = names.into_iter().map(Into::into).collect();
        self.0.table().leave_durable(names)
    }

    /// The name of a topic of this broker.
    #[must_use]
    pub fn topic_name(&self, id: TopicId) -> Option<TopicName> {
        self.0.table().entries.get(&id).map(|(name, _)| name.clone())
    }

    /// Subscribes to all topics that the filter selects and that carry a `T`, present and future.
    /// A filter without wildcard declares its topic.
    ///
    /// A topic that a wildcard selects but that carries another type is skipped: this is counted in
    /// [`SubscriptionStats::topics_passed_over`](crate::SubscriptionStats) and reported to the monitor as
    /// [`BrokerEvent::PassedOver`]. Use [`Broker::subscribe_any`] for all types.
    ///
    /// # Ordering
    /// Everything published after this has returned is in the inbox; envelopes published meanwhile may be.
    ///
    /// # Errors
    /// When the filter or the configuration is wrong, the one topic it names carries another type or is
    /// [durable](Self::leave_durable), or there are too many.
    pub fn subscribe<T: Send + Sync + 'static>(
        &self,
        filter: &str,
        config: SubscriptionConfig,
    ) -> Result<Inbox<Envelope<T>>, SubscribeError> {
        let parsed = parse(filter)?;
        if let Some(name) = parsed.as_name() {
            self.0
                .table()
                .topic::<T>(self.0.config, &self.0.hub, name, &TopicConfig::default())?;
        }
        let mailbox = Mailbox::lending(
            config.inbox,
            |envelope: &Delivery<Envelope<T>>| envelope.weight(),
            Delivery::empty,
            Bell::new(),
        )?;
        self.0.subscribe(parsed, config, mailbox)
    }

    /// Subscribes to all topics that the filter selects, whatever type they carry.
    ///
    /// # Ordering
    /// As [`Broker::subscribe`].
    ///
    /// # Errors
    /// When the filter or the configuration is wrong, the one topic it names is [durable](Self::leave_durable), or there are too
    /// many.
    pub fn subscribe_any(
        &self,
        filter: &str,
        config: SubscriptionConfig,
    ) -> Result<Inbox<dyn AnyEnvelope>, SubscribeError> {
        let parsed = parse(filter)?;
        let mailbox = Mailbox::weighed(
            config.inbox,
            |envelope: &Delivery<dyn AnyEnvelope>| envelope.weight(),
            Bell::new(),
        )?;
        self.0.subscribe(parsed, config, mailbox)
    }

    /// How many envelopes were given up for this reason.
    #[must_use]
    pub fn given_up(&self, reason: Undeliverable) -> u64 {
        self.0.hub.losses().of(reason)
    }

    /// How many dead letters found no room in the inbox of a subscription to them.
    #[must_use]
    pub fn dead_letters_lost(&self) -> u64 {
        self.0.hub.dead_letters_lost()
    }

    /// The publishes that have waited for longer than [`BrokerConfig::wait_report_after`], with the
    /// cycles they are part of.
    #[must_use]
    pub fn long_waits(&self) -> Vec<LongWait> {
        self.0.hub.waits().long_waits(self.0.hub.clock().exact_now())
    }

    /// Calls `hook` for each [`BrokerEvent`] from now on, in place of any former hook.
    ///
    /// It is called on the thread on which the event happens and delays that thread; it may use the broker's counters, but
    /// must neither block nor subscribe.
    pub fn monitor(&self, hook: impl Fn(&BrokerEvent) + Send + Sync + 'static) {
        self.0.hub.monitor().set(Arc::new(hook));
    }

    /// Reports each step of each envelope to `tap` from now on, for tests and tracing. It stays for the broker's life, and
    /// every envelope pays for it: the broker keeps each envelope until its delivery is reported, so
    /// [`Envelope::into_payload`] of a consumer on another thread may find it shared.
    ///
    /// # Errors
    /// When the broker has a tap already.
    pub fn tap(&self, tap: Arc<dyn Tap>) -> Result<(), AlreadyTapped> {
        self.0.hub.tap().set(Arc::clone(&tap))?;
        let probes: Vec<InboxProbe> = {
            let table = self.0.table();
            table.entries.values().for_each(|(_, topic)| topic.tap(&tap));
            table.subscriptions.values().map(Subscribed::probe).collect()
        };
        for probe in probes {
            self.0.show_to(&tap, &probe);
        }
        Ok(())
    }

    /// How many publishes wait for room now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.hub.waits().len()
    }

    /// The state of one subscription, by the id that a refusal, a report or a dead letter names; `None` once it has ended.
    #[must_use]
    pub fn subscription(&self, id: SubscriptionId) -> Option<SubscriptionInfo> {
        self.0.table().subscriptions.get(&id).map(Subscribed::info)
    }

    /// All topics and subscriptions with their counters.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let table = self.0.table();
        let topics = table.topics.iter().map(|(name, id)| {
            let (_, entry) = &table.entries[id];
            TopicInfo {
                name: name.clone(),
                payload: entry.payload_type(),
                published: entry.published(),
                subscriptions: entry.subscriptions(),
            }
        });
        let subscriptions = table.subscriptions.values().map(Subscribed::info);
        Topology {
            topics: topics.collect(),
            subscriptions: subscriptions.collect(),
            given_up: self.0.hub.losses().all(),
            waiting: self.0.hub.waits().len(),
            long_waits: self.long_waits(),
        }
    }
}

fn parse(filter: &str) -> Result<Filter, SubscribeError> {
    Filter::new(filter).map_err(|source| SubscribeError::Filter {
        filter: filter.to_owned(),
        source,
    })
}

impl Unsubscribe for BrokerInner {
    fn unsubscribe(&self, id: SubscriptionId) {
        let removed = self.table().remove(id);
        if removed.is_some() {
            self.hub.monitor().tell(|| BrokerEvent::Unsubscribed(id));
        }
    }
}

impl BrokerInner {
    fn subscribe<E: AnyEnvelope + ?Sized>(
        self: &Arc<Self>,
        filter: Filter,
        config: SubscriptionConfig,
        mailbox: Mailbox<Delivery<E>>,
    ) -> Result<Inbox<E>, SubscribeError> {
        let core = self
            .table()
            .add(self.config, filter, config, Arc::new(mailbox.clone()))?;
        self.tell_news();
        if let Some(tap) = self.hub.tap().get() {
            let probe = InboxProbe {
                core: Arc::clone(&core),
                mailbox: Arc::new(mailbox.clone()),
            };
            self.show_to(tap, &probe);
        }
        self.hub.monitor().tell(|| BrokerEvent::Subscribed(core.id));
        let (hub, broker) = (Arc::clone(&self.hub), Arc::<Self>::clone(self));
        Ok(Inbox::new(core, mailbox, hub, broker))
    }

    fn tell_news(&self) {
        let news = std::mem::take(&mut self.table().news);
        for event in news {
            self.hub.monitor().tell(|| event);
        }
    }

    /// Connects the tap to an inbox, and reports each time it is emptied.
    fn show_to(&self, tap: &Arc<dyn Tap>, probe: &InboxProbe) {
        // Weakly: a tap may keep the probe, and with it the mailbox.
        let (id, told) = (probe.id(), Arc::downgrade(tap));
        probe.mailbox.watch(Arc::new(move || {
            if let Some(tap) = told.upgrade() {
                tap.on_flow(&FlowEvent::Emptied(id));
            }
        }));
        tap.on_flow(&FlowEvent::Subscribed(probe));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.0.table();
        f.debug_struct("Broker")
            .field("topics", &table.entries.len())
            .field("subscriptions", &table.subscriptions.len())
            .finish_non_exhaustive()
    }
}
