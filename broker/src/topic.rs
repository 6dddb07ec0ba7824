//! Typed topics.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::ask::{AskError, Request};
use crate::dead_letter::{DeadLetter, Undeliverable};
use crate::delivery::Delivery;
use crate::envelope::{AnyEnvelope, Envelope};
use crate::header::{EnvelopeId, Headers, Mark, TopicId};
use crate::hub::Hub;
use crate::mailbox::{Mailbox, MailboxStats, TryPushError};
use crate::name::TopicName;
use crate::offer::{Offer, Patience, Pending};
use crate::outcome::{PublishError, Published};
use crate::publish::{Publish, PublishWithin, Source};
use crate::publisher::Publisher;
use crate::route::{GroupCore, Lane, Line, Route};
use crate::stage::Staging;
use crate::subscription::{SubscriptionCore, SubscriptionId};
use crate::tally::Tally;
use crate::tap::{InboxProbe, Tap, TappedLine};
use crate::topology::SubscriptionInfo;

/// How a topic treats its envelopes.
pub struct TopicConfig<T> {
    /// How many bytes a payload holds on to outside of itself. The default knows `Vec<u8>`,
    /// `Bytes`, `String` and their like, and says zero for all other types.
    pub weigh: fn(&T) -> usize,
    /// Whether the topic keeps its last envelope and hands it to each new subscription, so that a
    /// late subscriber sees the current state. Publishers of such a topic take turns. Default: no.
    pub retain: bool,
}

impl<T: 'static> Default for TopicConfig<T> {
    fn default() -> Self {
        Self {
            weigh: crate::envelope::bytes_held,
            retain: false,
        }
    }
}

impl<T> fmt::Debug for TopicConfig<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicConfig")
            .field("retain", &self.retain)
            .finish_non_exhaustive()
    }
}

/// What the broker holds of a topic.
///
/// Lock order: `retained`, then `lanes`, then a mailbox, then the stage.
pub(crate) struct TopicCore<T> {
    id: TopicId,
    name: TopicName,
    weigh: fn(&T) -> usize,
    hub: Arc<Hub>,
    pub(crate) route: ArcSwap<Route<T>>,
    /// All subscriptions that match, in the order in which they came.
    lanes: Mutex<Lanes<T>>,
    retain: bool,
    retained: Mutex<Option<Arc<Envelope<T>>>>,
    pub(crate) published: Tally,
}

/// The subscriptions of a topic, and which of them are served from its stage.
struct Lanes<T> {
    all: Vec<Lane<T>>,
    staging: Staging<T>,
}

/// See [`TopicCore::keep_last`]. The envelope that was kept before is dropped after the lock.
pub(crate) struct Keeping<'a, T> {
    _retained: MutexGuard<'a, Option<Arc<Envelope<T>>>>,
    _replaced: Option<Arc<Envelope<T>>>,
}

/// A topic, whatever its type.
pub(crate) trait AnyTopic: Send + Sync {
    fn payload_type(&self) -> &'static str;
    fn payload_type_id(&self) -> TypeId;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    /// Adds a subscription; false if it wants payloads of another type.
    fn attach(&self, subscribed: &Subscribed) -> bool;
    fn detach(&self, id: SubscriptionId);
    fn detach_all(&self);
    /// The subscriptions that it goes to.
    fn subscriptions(&self) -> Vec<SubscriptionId>;
    fn published(&self) -> u64;
    fn has_retained(&self) -> bool;
    /// Has every delivery told from now on.
    fn tap(&self, tap: &Arc<dyn Tap>);
}

/// A subscription as the table holds it. `mailbox` is one of an envelope type.
pub(crate) struct Subscribed {
    pub(crate) core: Arc<SubscriptionCore>,
    pub(crate) group: Option<Arc<GroupCore>>,
    pub(crate) mailbox: Arc<dyn AnyMailbox>,
}

/// A mailbox, whatever it holds.
pub(crate) trait AnyMailbox: Any + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn stats(&self) -> MailboxStats;
    fn capacity(&self) -> usize;
    fn is_finished(&self) -> bool;
    fn close(&self);
    fn watch(&self, emptied: Arc<dyn Fn() + Send + Sync>);
}

impl<E: ?Sized + Send + Sync + 'static> AnyMailbox for Mailbox<Delivery<E>> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn stats(&self) -> MailboxStats {
        Self::stats(self)
    }

    fn capacity(&self) -> usize {
        Self::capacity(self)
    }

    fn is_finished(&self) -> bool {
        Self::is_finished(self)
    }

    fn close(&self) {
        Self::close(self);
    }

    fn watch(&self, emptied: Arc<dyn Fn() + Send + Sync>) {
        Self::watch(self, emptied);
    }
}

impl Subscribed {
    pub(crate) fn info(&self) -> SubscriptionInfo {
        let core = &self.core;
        SubscriptionInfo {
            id: core.id,
            name: core.name.clone(),
            filter: core.filter.clone(),
            overflow: core.overflow,
            group: core.group.as_ref().map(|group| group.name.clone()),
            inbox: self.mailbox.stats(),
            capacity: self.mailbox.capacity(),
            stats: core.stats(),
        }
    }

    pub(crate) fn probe(&self) -> InboxProbe {
        InboxProbe {
            core: Arc::clone(&self.core),
            mailbox: Arc::clone(&self.mailbox),
        }
    }
}

impl<T> Lane<T> {
    fn tapped(self, tap: &Arc<dyn Tap>) -> Self {
        if let Line::Tapped(_) = self.line {
            return self;
        }
        let line = Line::Tapped(Box::new(TappedLine::new(self.line, self.core.id, tap)));
        Self { line, ..self }
    }
}

impl<T: Send + Sync + 'static> TopicCore<T> {
    pub(crate) fn new(id: TopicId, name: TopicName, config: &TopicConfig<T>, hub: Arc<Hub>) -> Self {
        Self {
            id,
            name,
            weigh: config.weigh,
            hub,
            route: ArcSwap::from_pointee(Route::build(&[], None)),
            lanes: Mutex::new(Lanes {
                all: Vec::new(),
                staging: Staging::new(),
            }),
            retain: config.retain,
            retained: Mutex::new(None),
            published: Tally::new(),
        }
    }

    pub(crate) const fn name(&self) -> &TopicName {
        &self.name
    }

    #[inline]
    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    pub(crate) const fn id(&self) -> TopicId {
        self.id
    }

    #[inline]
    pub(crate) const fn weigh(&self) -> fn(&T) -> usize {
        self.weigh
    }

    #[inline]
    pub(crate) const fn retains(&self) -> bool {
        self.retain
    }

    /// Hands the envelope to all that have room, by the route as it is now.
    pub(crate) fn hand_out(
        &self,
        envelope: Arc<Envelope<T>>,
        patience: Patience,
    ) -> Result<usize, Box<Pending<T>>> {
        if self.retain {
            return self.hand_out_retained(envelope, patience);
        }
        self.hand_out_by(&self.route.load(), envelope, patience)
    }

    pub(crate) fn hand_out_by(
        &self,
        route: &Route<T>,
        envelope: Arc<Envelope<T>>,
        patience: Patience,
    ) -> Result<usize, Box<Pending<T>>> {
        let mut offer = Offer::new(self, patience);
        offer.hand_out(route, envelope);
        offer.into_pending()
    }

    /// As [`TopicCore::hand_out_by`], by one push to those that share what they get.
    pub(crate) fn hand_out_staged(
        &self,
        route: &Route<T>,
        envelope: Arc<Envelope<T>>,
        patience: Patience,
    ) -> Result<usize, Box<Pending<T>>> {
        let Some(staged) = &route.staged else {
            return self.hand_out_by(route, envelope, patience);
        };
        if staged.has_all() {
            return match staged.try_push(envelope) {
                Ok(delivered) => Ok(delivered),
                Err(envelope) => self.hand_out_by(route, envelope, patience),
            };
        }
        match staged.try_push(Arc::clone(&envelope)) {
            Ok(delivered) => {
                let mut offer = Offer::behind(self, patience, delivered);
                offer.offer_each(staged.others_of(&route.targets), &envelope);
                offer.into_pending()
            }
            Err(_) => self.hand_out_by(route, envelope, patience),
        }
    }

    /// Keeps the envelope and hands it out. Who subscribes meanwhile gets it once: from the route,
    /// or as the retained one.
    #[cold]
    fn hand_out_retained(
        &self,
        envelope: Arc<Envelope<T>>,
        patience: Patience,
    ) -> Result<usize, Box<Pending<T>>> {
        let mut retained = self.retained();
        let replaced = retained.replace(Arc::clone(&envelope));
        let outcome = self.hand_out_by(&self.route.load(), envelope, patience);
        drop(retained);
        drop(replaced);
        outcome
    }

    /// Keeps the last envelope of a batch, if the topic retains. Until the guard is dropped nobody
    /// subscribes; the route is the one to hand the batch out to.
    pub(crate) fn keep_last(
        &self,
        envelopes: &[Arc<Envelope<T>>],
    ) -> Option<(Keeping<'_, T>, Arc<Route<T>>)> {
        let last = envelopes.last().filter(|_| self.retain)?;
        let mut retained = self.retained();
        let replaced = retained.replace(Arc::clone(last));
        let route = self.route.load_full();
        Some((
            Keeping {
                _retained: retained,
                _replaced: replaced,
            },
            route,
        ))
    }

    pub(crate) fn has_lanes(&self) -> bool {
        !self.route.load().targets.is_empty()
    }

    fn change_lanes(&self, change: impl FnOnce(&mut Vec<Lane<T>>)) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let Lanes { all, staging } = &mut *lanes;
        change(all);
        // Publishers of a topic that retains take turns, and push to each inbox themselves.
        let cast = if self.retain { None } else { staging.follow(all) };
        self.route.store(Arc::new(Route::build(all, cast)));
        drop(lanes);
        self.published.tell();
    }

    fn retained(&self) -> MutexGuard<'_, Option<Arc<Envelope<T>>>> {
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seal_one(&self, headers: Headers, payload: T) -> Arc<Envelope<T>> {
        let id = EnvelopeId::from_counter(self.hub.take_ids(1));
        self.published.add_one();
        let mark = Mark {
            id,
            topic: self.id,
            time: self.hub.clock().now(),
        };
        Arc::new(Envelope::new(mark, headers.in_scope(), self.weigh, payload))
    }

    fn publish(&self, headers: Headers, payload: T) -> Publish<'_, T> {
        let envelope = Delivery::Shared(self.seal_one(headers, payload));
        Publish::new(Source::Topic(self), envelope)
    }
}

impl TopicCore<DeadLetter> {
    /// False if somebody who wants it had no room.
    pub(crate) fn publish_dead_letter(&self, letter: DeadLetter) -> bool {
        let letter = self.seal_one(Headers::new(), letter);
        self.hand_out(letter, Patience::No).is_ok()
    }
}

impl<T: Send + Sync + 'static> AnyTopic for TopicCore<T> {
    fn payload_type(&self) -> &'static str {
        type_name::<T>()
    }

    fn payload_type_id(&self) -> TypeId {
        TypeId::of::<T>()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn attach(&self, subscribed: &Subscribed) -> bool {
        let mailbox = subscribed.mailbox.as_any();
        let line = if let Some(mailbox) = mailbox.downcast_ref::<Mailbox<Delivery<Envelope<T>>>>() {
            Line::Typed(mailbox.clone())
        } else if let Some(mailbox) = mailbox.downcast_ref::<Mailbox<Delivery<dyn AnyEnvelope>>>() {
            Line::Any(mailbox.clone())
        } else {
            return false;
        };
        let lane = Lane {
            core: Arc::clone(&subscribed.core),
            group: subscribed.group.clone(),
            line,
        };
        let lane = match self.hub.tap().get() {
            Some(tap) => lane.tapped(tap),
            None => lane,
        };
        let retained = self.retained();
        let welcome = retained
            .as_ref()
            .map(|envelope| lane.line.try_push(Arc::clone(envelope)));
        if let Some(Err(TryPushError::Full(envelope))) = welcome {
            // Its filter selects more retaining topics than it has room.
            lane.core.count_drop();
            self.hub
                .give_up(envelope, Undeliverable::DroppedNewest, Some(lane.core.id));
        }
        self.change_lanes(|lanes| lanes.push(lane));
        true
    }

    fn detach(&self, id: SubscriptionId) {
        self.change_lanes(|lanes| lanes.retain(|lane| lane.core.id != id));
    }

    fn detach_all(&self) {
        self.change_lanes(Vec::clear);
    }

    fn subscriptions(&self) -> Vec<SubscriptionId> {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.all.iter().map(|lane| lane.core.id).collect()
    }

    fn published(&self) -> u64 {
        self.published.total()
    }

    fn has_retained(&self) -> bool {
        self.retained().is_some()
    }

    fn tap(&self, tap: &Arc<dyn Tap>) {
        self.change_lanes(|lanes| {
            let untapped = std::mem::take(lanes);
            lanes.extend(untapped.into_iter().map(|lane| lane.tapped(tap)));
        });
    }
}

/// A topic whose envelopes carry a `T`. A cheap clone.
///
/// For many envelopes in a row a [`Publisher`] is cheaper.
pub struct TopicHandle<T>(Arc<TopicCore<T>>);

impl<T: Send + Sync + 'static> TopicHandle<T> {
    pub(crate) const fn new(core: Arc<TopicCore<T>>) -> Self {
        Self(core)
    }

    /// The topic's name.
    #[must_use]
    pub fn name(&self) -> &TopicName {
        &self.0.name
    }

    /// The topic's id, which its envelopes carry.
    #[must_use]
    pub fn id(&self) -> TopicId {
        self.0.id
    }

    /// How many envelopes were published to it.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.0.published.total()
    }

    /// The last envelope, if the topic [retains](TopicConfig::retain) it.
    #[must_use]
    pub fn last(&self) -> Option<Arc<Envelope<T>>> {
        self.0.retained().clone()
    }

    /// A publisher of its own for one task.
    #[must_use]
    pub fn publisher(&self) -> Publisher<T> {
        Publisher::new(Arc::clone(&self.0))
    }

    /// Publishes, waiting where [`Publisher::publish`] waits.
    ///
    /// # Ordering
    /// Two publishes by any handles of the topic, the second begun after the first returned, arrive
    /// in this order in each inbox that gets both. Those that overlap have no order.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    ///
    /// # Cancel safety
    /// See [`Publish`].
    pub fn publish(&self, payload: T) -> Publish<'_, T> {
        self.0.publish(Headers::new(), payload)
    }

    /// As [`TopicHandle::publish`], with headers.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    ///
    /// # Cancel safety
    /// See [`Publish`].
    pub fn publish_with(&self, headers: Headers, payload: T) -> Publish<'_, T> {
        self.0.publish(headers, payload)
    }

    /// As [`TopicHandle::publish`], waiting for full inboxes no longer than `limit` in all; see
    /// [`Publisher::publish_timeout`].
    ///
    /// # Errors
    /// As [`Publisher::publish_timeout`].
    ///
    /// # Cancel safety
    /// See [`Publish`].
    pub fn publish_timeout(&self, payload: T, limit: Duration) -> PublishWithin<'_, T> {
        self.0.publish(Headers::new(), payload).within(limit)
    }

    /// Publishes without waiting, see [`Publisher::try_publish`].
    ///
    /// # Errors
    /// As [`Publisher::try_publish`].
    pub fn try_publish(&self, payload: T) -> Result<Published, PublishError<T>> {
        let envelope = self.0.seal_one(Headers::new(), payload);
        Published::at_once(envelope.id(), self.0.hand_out(envelope, Patience::No))
    }
}

impl<Q: Send + Sync + 'static, R: Send + 'static> TopicHandle<Request<Q, R>> {
    /// Publishes a question and waits for the first answer, at most for `limit` in all.
    ///
    /// # Ordering
    /// The question keeps its turn with the other envelopes of the topic, as in [`TopicHandle::publish`];
    /// answers do not: two questions may be answered in any order.
    ///
    /// A question that is still in an inbox when its time is over has [expired](Headers::expires): a
    /// receiver, a service or an attached actor does not get it any more.
    ///
    /// # Errors
    /// When nobody is subscribed, no inbox takes the question in time, all who got it let go of it
    /// without an answer, or the time is over.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the question may be answered all the same; the answer is dropped.
    pub async fn ask(&self, question: Q, limit: Duration) -> Result<R, AskError> {
        let (request, answer) = Request::new(question);
        let clock = self.0.hub.clock();
        let expires = clock.exact_now() + limit;
        let publish = self.publish_with(Headers::new().expires(expires), request);
        crate::ask::ask(publish, answer, clock, expires).await
    }
}

impl<T> Clone for TopicHandle<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for TopicHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TopicHandle").field(&self.0.name).finish()
    }
}
