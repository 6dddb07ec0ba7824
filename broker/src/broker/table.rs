//! The table of topics and subscriptions: which exist, and which topics each subscription gets.
//!
//! ```text
//!   topic ──► names ─┐                       ┌─► attach: the topic's route has the mailbox
//!                    ├─ tokens that match ───┤
//!   filter ► filters ┘                       └─► pass over: another payload, which is news
//! ```
//!
//! Invariants: a subscription is in the routes of exactly the topics that its filter matches and whose payload type it takes;
//! a name refers to one topic until that is forgotten, which only happens to topics without handles; a group has as many
//! members as there are subscriptions that name it.
//!
//! Left out: the lock, and reporting news, which happens once the lock is released; see [`broker`](crate::broker).

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::config::BrokerConfig;
use super::error::{SubscribeError, TopicError, TopicInUse};
use crate::hub::Hub;
use crate::id::SubscriptionId;
use crate::id::TopicId;
use crate::mailbox::AnyMailbox;
use crate::name::trie::Trie;
use crate::name::{Filter, TopicName};
use crate::subscription::{GroupConfig, SubscriptionConfig, SubscriptionCore};
use crate::topic::TopicConfig;
use crate::topic::core::{AnyTopic, Subscribed, TopicCore};
use crate::topic::route::GroupCore;
use crate::watch::monitor::BrokerEvent;

/// The first topic of each broker.
pub(crate) const DEAD_LETTER_TOPIC: TopicId = TopicId(0);

pub(crate) struct Table {
    pub(crate) topics: BTreeMap<TopicName, TopicId>,
    pub(crate) entries: BTreeMap<TopicId, (TopicName, Arc<dyn AnyTopic>)>,
    next_topic: u32,
    names: Trie<TopicId>,
    filters: Trie<SubscriptionId>,
    pub(crate) subscriptions: BTreeMap<SubscriptionId, Subscribed>,
    groups: BTreeMap<String, (usize, Arc<GroupCore>)>,
    /// Names of durable topics: the broker has no topics of these names.
    durable: BTreeSet<Box<str>>,
    next_subscription: u64,
    /// What must be reported once the lock is released.
    pub(crate) news: Vec<BrokerEvent>,
    is_closed: bool,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            topics: BTreeMap::new(),
            entries: BTreeMap::new(),
            next_topic: DEAD_LETTER_TOPIC.0,
            names: Trie::new(),
            filters: Trie::new(),
            subscriptions: BTreeMap::new(),
            groups: BTreeMap::new(),
            durable: BTreeSet::new(),
            next_subscription: 1,
            news: Vec::new(),
            is_closed: false,
        }
    }

    pub(crate) fn topic<T: Send + Sync + 'static>(
        &mut self,
        bounds: BrokerConfig,
        hub: &Arc<Hub>,
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
        self.check_volatile(&name)?;
        let topics_max = bounds.topics_max;
        if self.entries.len() >= topics_max {
            self.forget_unused();
        }
        if self.entries.len() >= topics_max || self.next_topic == u32::MAX {
            return Err(TopicError::TooMany { topics_max });
        }
        Ok(self.declare(hub, name, config))
    }

    pub(crate) fn declare<T: Send + Sync + 'static>(
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
                self.news.push(passed_over(subscribed, &name, payload));
            }
        }
        self.names.insert(name.tokens(), id);
        self.topics.insert(name.clone(), id);
        self.entries.insert(id, (name, Arc::<TopicCore<T>>::clone(&core)));
        core
    }

    fn check_volatile(&self, name: &TopicName) -> Result<(), TopicError> {
        if self.durable.contains(name.as_str()) {
            let topic = name.clone();
            return Err(TopicError::Durable { topic });
        }
        Ok(())
    }

    /// See [`Broker::leave_durable`](super::Broker::leave_durable).
    pub(crate) fn leave_durable(&mut self, names: BTreeSet<Box<str>>) -> Result<(), TopicInUse> {
        let in_use = |topic: &str| TopicInUse {
            topic: topic.to_owned(),
        };
        for subscribed in self.subscriptions.values() {
            let filter = subscribed.core.filter.as_str();
            if names.contains(filter) && subscribed.core.filter.as_name().is_some() {
                return Err(in_use(filter));
            }
        }
        let known = names.iter().filter_map(|name| TopicName::new(name).ok());
        let known: Vec<_> = known
            .filter_map(|name| self.topics.get(&name).map(|id| (name.clone(), *id)))
            .collect();
        for (name, id) in &known {
            let (_, topic) = &self.entries[id];
            if Arc::strong_count(topic) > 1 {
                return Err(in_use(name.as_str()));
            }
        }
        for (name, id) in known {
            self.entries.remove(&id);
            self.names.remove(name.tokens(), id);
            self.topics.remove(&name);
        }
        self.durable = names;
        Ok(())
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

    pub(crate) fn add(
        &mut self,
        bounds: BrokerConfig,
        filter: Filter,
        config: SubscriptionConfig,
        mailbox: Arc<dyn AnyMailbox>,
    ) -> Result<Arc<SubscriptionCore>, SubscribeError> {
        if self.is_closed {
            return Err(SubscribeError::Closed);
        }
        if let Some(name) = filter.as_name() {
            self.check_volatile(&name)?;
        }
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
                self.news.push(passed_over(&subscribed, name, payload));
            }
        }
        self.subscriptions.insert(id, subscribed);
        Ok(core)
    }

    pub(crate) fn remove(&mut self, id: SubscriptionId) -> Option<Subscribed> {
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

    /// Ends all subscriptions and accepts no more. Returns them, to be closed once the lock is released.
    pub(crate) fn close(&mut self) -> Vec<Subscribed> {
        self.is_closed = true;
        for (_, topic) in self.entries.values() {
            topic.detach_all();
        }
        self.filters = Trie::new();
        self.groups = BTreeMap::new();
        std::mem::take(&mut self.subscriptions).into_values().collect()
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

/// Counts a topic whose payload type a subscription does not take, and returns what to report.
fn passed_over(subscribed: &Subscribed, topic: &TopicName, payload: &'static str) -> BrokerEvent {
    subscribed.core.count_passed_over();
    BrokerEvent::PassedOver {
        subscription: subscribed.core.id,
        topic: topic.clone(),
        payload,
    }
}
