//! The table of topics and subscriptions.
//!
//! The broker is not on the data path: it is a plain struct behind a lock that is taken when a
//! topic is declared and when a subscription comes or goes. Each change rebuilds the routes it
//! touches; publishers read those without a lock.
//!
//! Lock order: table, then a topic's lanes. No mailbox is locked under either.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrun_core::{Bell, Host, Timestamp};

use crate::envelope::{AnyEnvelope, Envelope, TopicId};
use crate::hub::Hub;
use crate::mailbox::{Mailbox, MailboxConfigError};
use crate::name::{Filter, NameError, TopicName};
use crate::route::GroupCore;
use crate::subscription::{GroupConfig, Inbox, SubscriptionConfig, SubscriptionCore, SubscriptionId};
use crate::topic::{AnyTopic, Subscribed, Topic, TopicConfig, TopicCore};
use crate::trie::Trie;

/// The bounds of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    /// The most topics. Default 65,536.
    pub topics_max: usize,
    /// The most subscriptions. Default 65,536.
    pub subscriptions_max: usize,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            topics_max: 1 << 16,
            subscriptions_max: 1 << 16,
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
    entries: Vec<(TopicName, Arc<dyn AnyTopic>)>,
    names: Trie<TopicId>,
    filters: Trie<SubscriptionId>,
    subscriptions: BTreeMap<SubscriptionId, Subscribed>,
    groups: BTreeMap<String, (usize, Arc<GroupCore>)>,
    next_subscription: u64,
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
        Self(Arc::new(Shared {
            config,
            hub: Arc::new(Hub::new(host)),
            table: Mutex::new(Table {
                topics: BTreeMap::new(),
                entries: Vec::new(),
                names: Trie::new(),
                filters: Trie::new(),
                subscriptions: BTreeMap::new(),
                groups: BTreeMap::new(),
                next_subscription: 1,
            }),
        }))
    }

    /// Tells a broker without a host what time it is. Time never moves backwards.
    pub fn advance(&self, now: Timestamp) {
        self.0.hub.advance(now);
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
        let core = self.0.table().topic(&self.0, name, config)?;
        Ok(Topic::new(core))
    }

    /// The name of a topic of this broker.
    #[must_use]
    pub fn topic_name(&self, id: TopicId) -> Option<TopicName> {
        self.0
            .table()
            .entries
            .get(id.0 as usize)
            .map(|(name, _)| name.clone())
    }

    /// Subscribes to all topics that the filter selects and that carry a `T`, present and future.
    /// A filter without wildcard declares its topic.
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
        let mailbox = Mailbox::weighed(
            config.inbox,
            |envelope: &Arc<Envelope<T>>| envelope.weight(),
            Bell::new(),
        )?;
        self.0.subscribe(parsed, config, mailbox)
    }

    /// Subscribes to all topics that the filter selects, whatever they carry.
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
            |envelope: &Arc<dyn AnyEnvelope>| envelope.weight(),
            Bell::new(),
        )?;
        self.0.subscribe(parsed, config, mailbox)
    }

    /// How many envelopes found no inbox that wanted them.
    #[must_use]
    pub fn unrouted(&self) -> u64 {
        self.0.hub.unrouted()
    }

    /// How many envelopes full inboxes have dropped by their policy.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.hub.dropped()
    }
}

fn parse(filter: &str) -> Result<Filter, SubscribeError> {
    Filter::new(filter).map_err(|source| SubscribeError::Filter {
        filter: filter.to_owned(),
        source,
    })
}

impl Shared {
    pub(crate) fn unsubscribe(&self, id: SubscriptionId) {
        let removed = self.table().remove(id);
        drop(removed);
    }

    fn subscribe<E: ?Sized + Send + Sync + 'static>(
        self: &Arc<Self>,
        filter: Filter,
        config: SubscriptionConfig,
        mailbox: Mailbox<Arc<E>>,
    ) -> Result<Inbox<E>, SubscribeError> {
        let core = self
            .table()
            .add(self.config, filter, config, Box::new(mailbox.clone()))?;
        Ok(Inbox::new(core, mailbox, Arc::clone(self)))
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
            let (_, entry) = &self.entries[id.0 as usize];
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
            return Err(TopicError::TooMany { topics_max });
        }
        let id = u32::try_from(self.entries.len()).map_err(|_| TopicError::TooMany { topics_max })?;
        let id = TopicId(id);
        let core = Arc::new(TopicCore::new(id, name.clone(), config, Arc::clone(&broker.hub)));
        for subscription in self.filters.matching_filters(name.tokens()) {
            core.attach(&self.subscriptions[&subscription]);
        }
        self.names.insert(name.tokens(), id);
        self.topics.insert(name.clone(), id);
        self.entries.push((name, Arc::<TopicCore<T>>::clone(&core)));
        Ok(core)
    }

    fn add(
        &mut self,
        bounds: BrokerConfig,
        filter: Filter,
        config: SubscriptionConfig,
        mailbox: Box<dyn std::any::Any + Send + Sync>,
    ) -> Result<Arc<SubscriptionCore>, SubscribeError> {
        let subscriptions_max = bounds.subscriptions_max;
        if self.subscriptions.len() >= subscriptions_max {
            return Err(SubscribeError::TooMany { subscriptions_max });
        }
        let group = config.group.as_ref().map(|group| self.join(group)).transpose()?;
        let id = SubscriptionId(self.next_subscription);
        self.next_subscription += 1;
        let core = Arc::new(SubscriptionCore {
            id,
            name: config.name,
            filter,
            overflow: config.overflow,
            group: config.group,
            dropped_newest: AtomicU64::new(0),
            dropped_oldest: AtomicU64::new(0),
        });
        let subscribed = Subscribed {
            core: Arc::clone(&core),
            group,
            mailbox,
        };
        self.filters.insert(core.filter.tokens(), id);
        for topic in self.names.matching_names(core.filter.tokens()) {
            self.entries[topic.0 as usize].1.attach(&subscribed);
        }
        self.subscriptions.insert(id, subscribed);
        Ok(core)
    }

    fn remove(&mut self, id: SubscriptionId) -> Option<Subscribed> {
        let removed = self.subscriptions.remove(&id)?;
        let filter = &removed.core.filter;
        self.filters.remove(filter.tokens(), id);
        for topic in self.names.matching_names(filter.tokens()) {
            self.entries[topic.0 as usize].1.detach(id);
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
