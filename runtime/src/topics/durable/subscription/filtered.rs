//! One named subscription of all durable topics that a filter selects: a subscription of each topic under the same name, with
//! one `next` for the records of all.
//!
//! ```text
//!   orders.placed ─► subscription "billing" of it ─┐
//!   orders.paid ───► subscription "billing" of it ─┴─ in turn ─► next() ─► delivery, which names its topic
//! ```
//!
//! Invariants: the topics are fixed when the handle is made. A member is a subscription like any other: it keeps its own
//! place, and has its own bounds. A member with a record waits at most for one record of each other member.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, select_all};
use futures_util::stream::{self, Stream};
use millrun_broker::{Filter, NameError, TopicName};
use millrun_workflow::DurableTopic;
use serde::de::DeserializeOwned;

use super::consumer::{DurableSubscription, SubscriptionReadError};
use super::delivery::RecordDelivery;
use super::open::{SubscribeRecords, SubscriptionOpenError};
use super::summary::SubscriptionStatus;
use super::undelivered::UndeliveredRecord;
use crate::Runtime;
use crate::topics::durable::handle::DurableTopicHandle;
use crate::topics::durable::reader::ReadFrom;

/// How many topics a subscription by a filter may have.
pub const FILTERED_TOPICS_MAX: usize = 64;

/// Why there is no handle to the durable topics of a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilteredTopicsError {
    /// The filter is not valid.
    #[error("it is no filter of topics")]
    Filter(#[from] NameError),
    /// The filter selects no durable topic that is registered with this runtime's builder.
    #[error("the builder of this runtime was told of no durable topic that {filter:?} selects")]
    NoTopic {
        /// The filter.
        filter: String,
    },
    /// A topic that the filter selects carries records of another type.
    #[error("the durable topic {name:?}, which the filter selects, carries records of type {carries}")]
    OtherType {
        /// The topic.
        name: &'static str,
        /// The type of its records.
        carries: &'static str,
    },
    /// It selects more topics than a subscription may have.
    #[error("the filter selects {len} durable topics, at most {FILTERED_TOPICS_MAX} are allowed")]
    TooMany {
        /// How many.
        len: usize,
    },
}

/// Why a subscription by a filter was not opened: see [`SubscribeFiltered`].
#[derive(Clone, Debug, thiserror::Error)]
#[error("the subscription of the topic {topic:?}")]
#[non_exhaustive]
pub struct FilteredOpenError {
    /// The topic whose subscription was not opened. Those of earlier topics, in the order of names, were opened, unless [a
    /// name](SubscriptionOpenError::Name) or [a bound](SubscriptionOpenError::Bound) is wrong.
    pub topic: &'static str,
    /// Why not.
    #[source]
    pub error: SubscriptionOpenError,
}

/// Why a topic of a subscription by a filter has no record to deliver. The next call continues with all topics whose
/// subscriptions are not [lost](SubscriptionReadError::Lost).
#[derive(Clone, Debug, thiserror::Error)]
#[error("the subscription of the topic {topic:?}")]
#[non_exhaustive]
pub struct FilteredReadError {
    /// The topic.
    pub topic: &'static str,
    /// The reason why there is no record.
    #[source]
    pub error: SubscriptionReadError,
}

/// The durable topics of a runtime that a filter selects, all with records of one type; made by
/// [`Runtime::durable_topics_of`]. A cheap clone, which keeps the runtime alive.
#[derive(Clone, Debug)]
pub struct FilteredTopics<T> {
    topics: Arc<[DurableTopicHandle<T>]>,
}

impl Runtime {
    /// The handle to the durable topics that this filter selects among those
    /// [registered](crate::RuntimeBuilder::durable_topic) with the builder. In it `*` stands for one token of a name, and a
    /// `>` at its end for one or more. All have to carry records of this type.
    ///
    /// ```
    /// use millrun::{DurableTopic, Runtime, Topic};
    ///
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
    /// const PAID: DurableTopic<u64> = Topic::named("orders.paid").durable();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().durable_topic(PLACED).durable_topic(PAID).start().await?;
    /// let audit = runtime.durable_topics_of::<u64>("orders.>")?.subscribe("audit").await?;
    /// runtime.durable_topic(PAID)?.publish(&7).key("order-7").await?;
    /// let delivery = audit.next().await?;
    /// assert_eq!((delivery.topic(), delivery.payload()), ("orders.paid", &7));
    /// delivery.ack()?.await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`FilteredTopicsError`].
    pub fn durable_topics_of<T: 'static>(
        &self,
        filter: &str,
    ) -> Result<FilteredTopics<T>, FilteredTopicsError> {
        let parsed = Filter::new(filter)?;
        let inner = self.inner();
        let selects = |name: &str| TopicName::new(name).is_ok_and(|name| parsed.matches(&name));
        let selected: Vec<_> = inner
            .shared
            .durable
            .carrying::<T>()
            .filter(|(name, known, _)| selects(name) && !inner.shared.durable.is_deleted(known.number))
            .collect();
        if selected.is_empty() {
            return Err(FilteredTopicsError::NoTopic {
                filter: filter.to_owned(),
            });
        }
        if selected.len() > FILTERED_TOPICS_MAX {
            return Err(FilteredTopicsError::TooMany { len: selected.len() });
        }
        let topics = selected.into_iter().map(|(name, known, other)| match other {
            None => Ok(DurableTopicHandle::of(inner, known, name)),
            Some(carries) => Err(FilteredTopicsError::OtherType { name, carries }),
        });
        Ok(FilteredTopics {
            topics: topics.collect::<Result<_, _>>()?,
        })
    }
}

impl<T> FilteredTopics<T> {
    /// The names of the topics, in their order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.topics.iter().map(|topic| topic.name)
    }

    /// Prepares a durable subscription with this name of each of the topics, which are opened when it is awaited: their
    /// records come from one [`next`](FilteredSubscription::next).
    ///
    /// Each topic has a place of its own under the name: it is the same subscription that the topic's
    /// [`subscribe`](DurableTopicHandle::subscribe) opens, is shown with its topic, and is removed and expires with it. A
    /// topic that a later runtime declares for the first time is added there, and begins where that opening says. Within a
    /// topic, records of one key come one at a time; records of different topics have no order.
    ///
    /// All are opened, or none is returned. If partitions are divided between runtimes, each place has its own owner, and a
    /// filter over several topics can only be opened where all of them are owned.
    pub fn subscribe<'a>(&'a self, name: &'a str) -> SubscribeFiltered<'a, T> {
        SubscribeFiltered {
            topics: self,
            name,
            from: ReadFrom::Beginning,
            in_flight_max: None,
            lease: None,
            is_unordered: false,
            undelivered: None,
            holds_keys: false,
        }
    }
}

/// A prepared subscription by a filter; made by [`FilteredTopics::subscribe`]. It is opened when it is awaited. Its settings
/// apply to the subscription of each topic, as for [`SubscribeRecords`].
#[must_use = "nothing is opened until it is awaited"]
#[derive(Debug)]
pub struct SubscribeFiltered<'a, T> {
    topics: &'a FilteredTopics<T>,
    name: &'a str,
    from: ReadFrom,
    in_flight_max: Option<usize>,
    lease: Option<Duration>,
    is_unordered: bool,
    undelivered: Option<(DurableTopic<UndeliveredRecord>, u32)>,
    holds_keys: bool,
}

impl<T> SubscribeFiltered<'_, T> {
    /// As [`SubscribeRecords::from`], for each topic without a kept place. A token names a record of one topic, so that a
    /// filter that selects several topics cannot begin [behind it](crate::topics::ReadFromError::OtherTopic).
    pub fn from(mut self, from: ReadFrom) -> Self {
        self.from = from;
        self
    }

    /// As [`SubscribeRecords::in_flight_max`], for each topic.
    pub fn in_flight_max(mut self, in_flight_max: usize) -> Self {
        self.in_flight_max = Some(in_flight_max);
        self
    }

    /// As [`SubscribeRecords::lease`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// As [`SubscribeRecords::unordered`].
    pub fn unordered(mut self) -> Self {
        self.is_unordered = true;
        self
    }

    /// As [`SubscribeRecords::undelivered_to`]: each record there names its topic.
    pub fn undelivered_to(mut self, topic: DurableTopic<UndeliveredRecord>, deliveries_max: u32) -> Self {
        self.undelivered = Some((topic, deliveries_max));
        self
    }

    /// As [`SubscribeRecords::hold_key_when_undelivered`], for each topic.
    pub fn hold_key_when_undelivered(mut self) -> Self {
        self.holds_keys = true;
        self
    }

    /// The settings, for one topic.
    fn of_topic<'t>(&'t self, topic: &'t DurableTopicHandle<T>) -> SubscribeRecords<'t, T> {
        let mut subscribe = topic.subscribe(self.name).from(self.from);
        if let Some(in_flight_max) = self.in_flight_max {
            subscribe = subscribe.in_flight_max(in_flight_max);
        }
        if let Some(lease) = self.lease {
            subscribe = subscribe.lease(lease);
        }
        if self.is_unordered {
            subscribe = subscribe.unordered();
        }
        if self.holds_keys {
            subscribe = subscribe.hold_key_when_undelivered();
        }
        match self.undelivered {
            Some((topic, deliveries_max)) => subscribe.undelivered_to(topic, deliveries_max),
            None => subscribe,
        }
    }
}

impl<'a, T: Send + Sync + 'static> IntoFuture for SubscribeFiltered<'a, T> {
    type Output = Result<FilteredSubscription<T>, FilteredOpenError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut members = Vec::with_capacity(self.topics.topics.len());
            let failed = |topic| move |error| FilteredOpenError { topic, error };
            // Wrong settings are reported before any subscription is opened.
            for topic in &*self.topics.topics {
                self.of_topic(topic).check().map_err(failed(topic.name))?;
            }
            for topic in &*self.topics.topics {
                let subscription = self.of_topic(topic).await.map_err(failed(topic.name))?;
                members.push(FilteredMember {
                    topic: topic.name,
                    subscription,
                    is_told_lost: AtomicBool::new(false),
                });
            }
            Ok(FilteredSubscription {
                members: members.into(),
                next: Arc::default(),
                taking_in: Arc::default(),
            })
        })
    }
}

/// A consumer of the durable subscriptions with one name of all topics of a filter; made by [`FilteredTopics::subscribe`].
/// Clones are consumers of the same subscriptions, and share their records.
pub struct FilteredSubscription<T> {
    members: Arc<[FilteredMember<T>]>,
    /// The member that is looked at first.
    next: Arc<AtomicUsize>,
    /// The member that takes in records next, even if others have some in hand.
    taking_in: Arc<AtomicUsize>,
}

struct FilteredMember<T> {
    topic: &'static str,
    subscription: DurableSubscription<T>,
    /// Whether a consumer was told that it is lost.
    is_told_lost: AtomicBool,
}

impl<T> Clone for FilteredSubscription<T> {
    fn clone(&self) -> Self {
        Self {
            members: Arc::clone(&self.members),
            next: Arc::clone(&self.next),
            taking_in: Arc::clone(&self.taking_in),
        }
    }
}

impl<T> fmt::Debug for FilteredSubscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subscriptions = self.members.iter().map(|member| &member.subscription);
        f.debug_list().entries(subscriptions).finish()
    }
}

impl<T> FilteredSubscription<T> {
    /// The topics in the order of their names, each with the consumer of its subscription, which also has its status.
    pub fn members(&self) -> impl Iterator<Item = (&'static str, &DurableSubscription<T>)> + '_ {
        self.members
            .iter()
            .map(|member| (member.topic, &member.subscription))
    }

    /// The states of the subscriptions, in the order of their topics' names.
    #[must_use]
    pub fn statuses(&self) -> Vec<(&'static str, SubscriptionStatus)> {
        self.members()
            .map(|(topic, member)| (topic, member.status()))
            .collect()
    }
}

impl<T: DeserializeOwned> FilteredSubscription<T> {
    /// Waits for a record of any of the topics that can be delivered, and delivers it for the time of a lease. Topics take
    /// turns.
    ///
    /// # Errors
    /// The reason why there is no record, see [`FilteredReadError`]. A lost subscription of one topic is reported once; when
    /// all are lost, each call reports it.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&self) -> Result<RecordDelivery<T>, FilteredReadError>
    where
        T: Send + Sync,
    {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            let live = self.in_turn().map(|(_, member)| member);
            let live = live.filter(|member| !member.is_lost());
            let waits: Vec<BoxFuture<'_, _>> = live
                .map(|member| -> BoxFuture<'_, _> { Box::pin(member.subscription.until_ready()) })
                .collect();
            // Another clone may have reported the last loss meanwhile: then it is reported here too.
            if !waits.is_empty() {
                select_all(waits).await;
            }
        }
    }

    /// The members with their indexes, beginning with the one whose turn it is.
    fn in_turn(&self) -> impl Iterator<Item = (usize, &FilteredMember<T>)> {
        let first = self.next.load(Ordering::Relaxed);
        let (before, from) = self.members.split_at(first);
        let from = from
            .iter()
            .enumerate()
            .map(move |(at, member)| (first + at, member));
        from.chain(before.iter().enumerate())
    }

    /// Has the next member take in records if it has none in hand: otherwise it would wait until the others have none either.
    fn let_one_take_in(&self) {
        let at = self.taking_in.fetch_add(1, Ordering::Relaxed) % self.members.len();
        let member = &self.members[at];
        if !member.is_lost() {
            let _is_ready = member.subscription.until_ready().now_or_never();
        }
    }

    /// What can be delivered now, from the first topic in turn that has something.
    fn try_next(&self) -> Option<Result<RecordDelivery<T>, FilteredReadError>> {
        let is_all_lost = self.members.iter().all(FilteredMember::is_lost);
        self.let_one_take_in();
        for (at, member) in self.in_turn() {
            if member.is_lost() && !is_all_lost {
                continue;
            }
            let Some(next) = member.subscription.try_next() else {
                continue;
            };
            self.next.store((at + 1) % self.members.len(), Ordering::Relaxed);
            return Some(next.map_err(|error| {
                if matches!(error, SubscriptionReadError::Lost(_)) {
                    member.is_told_lost.store(true, Ordering::Relaxed);
                }
                FilteredReadError {
                    topic: member.topic,
                    error,
                }
            }));
        }
        None
    }

    /// The deliveries as a stream, which ends after the error that reports the last subscription as lost.
    pub fn into_stream(self) -> impl Stream<Item = Result<RecordDelivery<T>, FilteredReadError>> + Send
    where
        T: Send + Sync,
    {
        stream::unfold(Some(self), |consumer| async {
            let consumer = consumer?;
            let next = consumer.next().await;
            let is_last = next.is_err() && consumer.members.iter().all(FilteredMember::is_lost);
            Some((next, (!is_last).then_some(consumer)))
        })
    }
}

impl<T> FilteredMember<T> {
    fn is_lost(&self) -> bool {
        self.is_told_lost.load(Ordering::Relaxed)
    }
}
