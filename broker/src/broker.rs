//! The table of topics and subscriptions.
//!
//! The broker is not on the data path: it is a plain struct behind a lock that is taken when a
//! topic is declared and when a subscription comes or goes. Each change rebuilds the routes it
//! touches; publishers read those without a lock.
//!
//! Lock order: table, then a topic's lanes, then a mailbox, then the topic's stage.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrun_core::{Bell, Host, Timestamp};

use crate::dead_letter::{DEAD_LETTERS, Undeliverable};
use crate::delivery::Delivery;
use crate::envelope::{AnyEnvelope, Envelope, TopicId};
use crate::hub::Hub;
use crate::inbox::Inbox;
use crate::mailbox::{Mailbox, MailboxConfigError};
use crate::monitor::BrokerEvent;
use crate::name::{Filter, NameError, TopicName};
use crate::route::GroupCore;
use crate::subscription::{GroupConfig, SubscriptionConfig, SubscriptionCore, SubscriptionId};
use crate::tap::{AlreadyTapped, FlowEvent, InboxProbe, Tap};
use crate::topic::{AnyMailbox, AnyTopic, Subscribed, Topic, TopicConfig, TopicCore};
use crate::topology::{SubscriptionInfo, TopicInfo, Topology};
use crate::trie::Trie;
use crate::wait::LongWait;

/// The bounds of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    /// The most topics; one is the broker's own. When they are used up, those are forgotten that
    /// nobody holds, publishes to or listens to. Default 65,536.
    pub topics_max: usize,
    /// The most subscriptions. Default 65,536.
    pub subscriptions_max: usize,
    /// How long a publish may wait before it is reported. It goes on waiting. Default 5 s.
    pub wait_report_after: Duration,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            topics_max: 1 << 16,
            subscriptions_max: 1 << 16,
            wait_report_after: Duration::from_secs(5),
        }
    }
}

/// Why a topic cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The name breaks a rule.
    #[error("{name:?} is not a topic name")]
    Name {
        /// What was given.
        name: String,
        /// Which rule.
        #[source]
        source: NameError,
    },
    /// The topic carries payloads of another type.
    #[error("topic {topic} carries {declared}, not {wanted}")]
    PayloadType {
        /// The topic.
        topic: TopicName,
        /// The type it was first used with.
        declared: &'static str,
        /// The type asked for.
        wanted: &'static str,
    },
    /// There are [`BrokerConfig::topics_max`] topics.
    #[error("the broker has {topics_max} topics, which is its limit")]
    TooMany {
        /// The limit.
        topics_max: usize,
    },
}

/// Why a subscription cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The filter breaks a rule.
    #[error("{filter:?} is not a filter")]
    Filter {
        /// What was given.
        filter: String,
        /// Which rule.
        #[source]
        source: NameError,
    },
    /// The filter names one topic, and that cannot be had.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A bound of the inbox is zero.
    #[error(transparent)]
    Inbox(#[from] MailboxConfigError),
    /// The members of the queue group choose otherwise.
    #[error("queue group {group:?} chooses its members in another way")]
    GroupChoice {
        /// The group's name.
        group: String,
    },
    /// There are [`BrokerConfig::subscriptions_max`] subscriptions.
    #[error("the broker has {subscriptions_max} subscriptions, which is its limit")]
    TooMany {
        /// The limit.
        subscriptions_max: usize,
    },
}

/// The first topic of each broker.
const DEAD_LETTER_TOPIC: TopicId = TopicId(0);

/// Topics and subscriptions of one process. A cheap clone; all clones are the same broker.
#[derive(Clone)]
pub struct Broker(Arc<Shared>);

pub(crate) struct Shared {
    config: BrokerConfig,
    hub: Arc<Hub>,
    table: Mutex<Table>,
}

struct Table {
    topics: BTreeMap<TopicName, TopicId>,
    entries: BTreeMap<TopicId, (TopicName, Arc<dyn AnyTopic>)>,
    next_topic: u32,
    names: Trie<TopicId>,
    filters: Trie<SubscriptionId>,
    subscriptions: BTreeMap<SubscriptionId, Subscribed>,
    groups: BTreeMap<String, (usize, Arc<GroupCore>)>,
    next_subscription: u64,
    /// What is to be told once the table is free.
    news: Vec<BrokerEvent>,
}

impl Broker {
    /// A broker that takes its time, its dice and its tasks from `host`.
    #[must_use]
    pub fn new(config: BrokerConfig, host: Arc<dyn Host>) -> Self {
        Self::build(config, Some(host))
    }

    /// A broker without a host: envelopes carry the time that [`Broker::advance`] was last told.
    #[must_use]
    pub fn without_host(config: BrokerConfig) -> Self {
        Self::build(config, None)
    }

    fn build(config: BrokerConfig, host: Option<Arc<dyn Host>>) -> Self {
        let broker = Self(Arc::new(Shared {
            config,
            hub: Arc::new(Hub::new(host, DEAD_LETTER_TOPIC, config.wait_report_after)),
            table: Mutex::new(Table {
                topics: BTreeMap::new(),
                entries: BTreeMap::new(),
                next_topic: DEAD_LETTER_TOPIC.0,
                names: Trie::new(),
                filters: Trie::new(),
                subscriptions: BTreeMap::new(),
                groups: BTreeMap::new(),
                next_subscription: 1,
                news: Vec::new(),
            }),
        }));
        let name = TopicName::new(DEAD_LETTERS).expect("the name follows the rules");
        let dead_letters = broker
            .0
            .table()
            .declare(&broker.0.hub, name, &TopicConfig::default());
        broker.0.hub.set_dead_letters(&dead_letters);
        broker
    }

    /// Tells a broker without a host what time it is: deadlines pass, and publishes that have waited
    /// for long are reported. Time never moves backwards.
    pub fn advance(&self, now: Timestamp) {
        self.0.hub.clock().advance(now);
        self.0.hub.waits().report(now);
    }

    /// The topic with this name, declared now if it is new.
    ///
    /// # Errors
    /// When the name is not one, the topic carries another type, or there are too many.
    pub fn topic<T: Send + Sync + 'static>(&self, name: &str) -> Result<Topic<T>, TopicError> {
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
    ) -> Result<Topic<T>, TopicError> {
        let name = TopicName::new(name).map_err(|source| TopicError::Name {
            name: name.to_owned(),
            source,
        })?;
        let core = self.0.table().topic(&self.0, name, config);
        self.0.tell_news();
        Ok(Topic::new(core?))
    }

    /// The name of a topic of this broker.
    #[must_use]
    pub fn topic_name(&self, id: TopicId) -> Option<TopicName> {
        self.0.table().entries.get(&id).map(|(name, _)| name.clone())
    }

    /// Subscribes to all topics that the filter selects and that carry a `T`, present and future.
    /// A filter without wildcard declares its topic.
    ///
    /// A topic that a wildcard selects and that carries something else is passed over: that is
    /// counted in [`SubscriptionStats::topics_passed_over`](crate::SubscriptionStats) and told to the
    /// monitor as [`BrokerEvent::PassedOver`]. Use [`Broker::subscribe_any`] to have them all.
    ///
    /// # Ordering
    /// What is published after this returned is in the inbox; what is published meanwhile may be.
    ///
    /// # Errors
    /// When the filter or the configuration is wrong, the one topic it names carries another type,
    /// or there are too many.
    pub fn subscribe<T: Send + Sync + 'static>(
        &self,
        filter: &str,
        config: SubscriptionConfig,
    ) -> Result<Inbox<Envelope<T>>, SubscribeError> {
        let parsed = parse(filter)?;
        if let Some(name) = parsed.as_name() {
            self.0
                .table()
                .topic::<T>(&self.0, name, &TopicConfig::default())?;
        }
        let mailbox = Mailbox::lending(
            config.inbox,
            |envelope: &Delivery<Envelope<T>>| envelope.weight(),
            Delivery::empty,
            Bell::new(),
        )?;
        self.0.subscribe(parsed, config, mailbox)
    }

    /// Subscribes to all topics that the filter selects, whatever they carry.
    ///
    /// # Ordering
    /// As [`Broker::subscribe`].
    ///
    /// # Errors
    /// When the filter or the configuration is wrong, or there are too many.
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

    /// How many dead letters found no room in an inbox that wanted them.
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
    /// It is called on the thread on which the event happens and holds it up; it may use the
    /// broker's counters, but must neither block nor subscribe.
    pub fn monitor(&self, hook: impl Fn(&BrokerEvent) + Send + Sync + 'static) {
        self.0.hub.monitor().set(Arc::new(hook));
    }

    /// Has each step of each envelope told to `tap` from now on, for tests and tracing. It stays for
    /// the broker's life, and every envelope pays for it: it holds on to each until it has told of its
    /// delivery, so that [`Envelope::into_payload`] of a consumer on another thread may find it shared.
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

    /// What is known of one subscription, by the id that a refusal, a report or a dead letter
    /// names; none once it has ended.
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

impl Shared {
    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    pub(crate) fn unsubscribe(&self, id: SubscriptionId) {
        let removed = self.table().remove(id);
        if removed.is_some() {
            self.hub.monitor().tell(|| BrokerEvent::Unsubscribed(id));
        }
    }

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
        Ok(Inbox::new(core, mailbox, Arc::clone(self)))
    }

    fn tell_news(&self) {
        let news = std::mem::take(&mut self.table().news);
        for event in news {
            self.hub.monitor().tell(|| event);
        }
    }

    /// Tells the tap of an inbox, and of each time it is emptied.
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

impl Table {
    fn topic<T: Send + Sync + 'static>(
        &mut self,
        broker: &Shared,
        name: TopicName,
        config: &TopicConfig<T>,
    ) -> Result<Arc<TopicCore<T>>, TopicError> {
        if let Some(id) = self.topics.get(&name) {
            let (_, entry) = &self.entries[id];
            if entry.payload_type_id() != TypeId::of::<T>() {
                let declared = entry.payload_type();
                let wanted = std::any::type_name::<T>();
                return Err(TopicError::PayloadType {
                    topic: name,
                    declared,
                    wanted,
                });
            }
            let any = Arc::clone(entry).into_any();
            return Ok(any.downcast().expect("the payload's type was compared"));
        }
        let topics_max = broker.config.topics_max;
        if self.entries.len() >= topics_max {
            self.forget_unused();
        }
        if self.entries.len() >= topics_max || self.next_topic == u32::MAX {
            return Err(TopicError::TooMany { topics_max });
        }
        Ok(self.declare(&broker.hub, name, config))
    }

    fn declare<T: Send + Sync + 'static>(
        &mut self,
        hub: &Arc<Hub>,
        name: TopicName,
        config: &TopicConfig<T>,
    ) -> Arc<TopicCore<T>> {
        let id = TopicId(self.next_topic);
        self.next_topic += 1;
        let core = Arc::new(TopicCore::new(id, name.clone(), config, Arc::clone(hub)));
        for subscription in self.filters.matching_filters(name.tokens()) {
            let subscribed = &self.subscriptions[&subscription];
            if !core.attach(subscribed) {
                let payload = core.payload_type();
                self.news.push(subscribed.core.pass_over(name.clone(), payload));
            }
        }
        self.names.insert(name.tokens(), id);
        self.topics.insert(name.clone(), id);
        self.entries.insert(id, (name, Arc::<TopicCore<T>>::clone(&core)));
        core
    }

    /// Forgets topics that have no handle, no subscription and no retained envelope.
    fn forget_unused(&mut self) {
        let unused: Vec<TopicId> = self
            .entries
            .iter()
            .filter(|(id, (_, topic))| {
                **id != DEAD_LETTER_TOPIC
                    && Arc::strong_count(topic) == 1
                    && topic.subscriptions().is_empty()
                    && !topic.has_retained()
            })
            .map(|(id, _)| *id)
            .collect();
        for id in unused {
            if let Some((name, _)) = self.entries.remove(&id) {
                self.names.remove(name.tokens(), id);
                self.topics.remove(&name);
            }
        }
    }

    fn add(
        &mut self,
        bounds: BrokerConfig,
        filter: Filter,
        config: SubscriptionConfig,
        mailbox: Arc<dyn AnyMailbox>,
    ) -> Result<Arc<SubscriptionCore>, SubscribeError> {
        let subscriptions_max = bounds.subscriptions_max;
        if self.subscriptions.len() >= subscriptions_max {
            return Err(SubscribeError::TooMany { subscriptions_max });
        }
        let group = config.group.as_ref().map(|group| self.join(group)).transpose()?;
        let id = SubscriptionId(self.next_subscription);
        self.next_subscription += 1;
        let core = Arc::new(SubscriptionCore::new(id, filter, config));
        let subscribed = Subscribed {
            core: Arc::clone(&core),
            group,
            mailbox,
        };
        self.filters.insert(core.filter.tokens(), id);
        for topic in self.names.matching_names(core.filter.tokens()) {
            let (name, topic) = &self.entries[&topic];
            if !topic.attach(&subscribed) {
                let payload = topic.payload_type();
                self.news.push(subscribed.core.pass_over(name.clone(), payload));
            }
        }
        self.subscriptions.insert(id, subscribed);
        Ok(core)
    }

    fn remove(&mut self, id: SubscriptionId) -> Option<Subscribed> {
        let removed = self.subscriptions.remove(&id)?;
        let filter = &removed.core.filter;
        self.filters.remove(filter.tokens(), id);
        for topic in self.names.matching_names(filter.tokens()) {
            self.entries[&topic].1.detach(id);
        }
        if let Some(group) = &removed.core.group {
            self.leave(group);
        }
        Some(removed)
    }

    fn join(&mut self, group: &GroupConfig) -> Result<Arc<GroupCore>, SubscribeError> {
        let (members, core) = self
            .groups
            .entry(group.name.clone())
            .or_insert_with(|| (0, Arc::new(GroupCore::new(group.choice))));
        if core.choice != group.choice {
            return Err(SubscribeError::GroupChoice {
                group: group.name.clone(),
            });
        }
        *members += 1;
        Ok(Arc::clone(core))
    }

    fn leave(&mut self, group: &GroupConfig) {
        if let Some((members, _)) = self.groups.get_mut(&group.name) {
            *members -= 1;
            if *members == 0 {
                self.groups.remove(&group.name);
            }
        }
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
