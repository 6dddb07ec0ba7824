//! The broker's data on a topic: its lanes, the route made from them, the envelope that it retains.

use std::any::{Any, TypeId, type_name};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::config::TopicConfig;
use super::line::Line;
use super::offer::{Offer, Patience, Pending};
use super::route::{GroupCore, Lane, Route};
use super::tally::Tally;
use crate::delivery::Delivery;
use crate::envelope::{AnyEnvelope, Envelope, Headers, Mark};
use crate::hub::Hub;
use crate::id::{EnvelopeId, SubscriptionId, TopicId};
use crate::mailbox::{AnyMailbox, Mailbox, TryPushError};
use crate::name::TopicName;
use crate::stage::Staging;
use crate::subscription::SubscriptionCore;
use crate::watch::dead_letter::{DeadLetter, DeadLetterSink, Undeliverable};
use crate::watch::tap::{InboxProbe, Tap};
use crate::watch::topology::SubscriptionInfo;

/// The broker's data on a topic.
///
/// Lock order: `retained`, then `lanes`, then a mailbox, then the stage.
pub(crate) struct TopicCore<T> {
    id: TopicId,
    pub(super) name: TopicName,
    weigh: fn(&T) -> usize,
    hub: Arc<Hub>,
    pub(crate) route: ArcSwap<Route<T>>,
    /// All subscriptions that match, in the order in which they came.
    lanes: Mutex<TopicLanes<T>>,
    retain: bool,
    retained: Mutex<Option<Arc<Envelope<T>>>>,
    pub(crate) published: Tally,
}

/// The subscriptions of a topic, and which of them are served from its stage.
struct TopicLanes<T> {
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
    /// Reports every delivery to the tap from now on.
    fn tap(&self, tap: &Arc<dyn Tap>);
}

/// A subscription as the table holds it. `mailbox` is one of an envelope type.
pub(crate) struct Subscribed {
    pub(crate) core: Arc<SubscriptionCore>,
    pub(crate) group: Option<Arc<GroupCore>>,
    pub(crate) mailbox: Arc<dyn AnyMailbox>,
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

impl<T: Send + Sync + 'static> TopicCore<T> {
    pub(crate) fn new(id: TopicId, name: TopicName, config: &TopicConfig<T>, hub: Arc<Hub>) -> Self {
        Self {
            id,
            name,
            weigh: config.weigh,
            hub,
            route: ArcSwap::from_pointee(Route::build(&[], None)),
            lanes: Mutex::new(TopicLanes {
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
    pub(crate) fn hub(&self) -> &Arc<Hub> {
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

    /// Gives the envelope to all inboxes that have room, by the present route.
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
        let mut offer = Offer::new(&self.hub, patience);
        offer.hand_out(route, envelope);
        offer.into_pending()
    }

    /// As [`TopicCore::hand_out_by`], with one push to the inboxes that share envelopes.
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
                let mut offer = Offer::behind(&self.hub, patience, delivered);
                let others = staged.others().iter().map(|index| &route.targets[*index]);
                offer.offer_each(others, &envelope);
                offer.into_pending()
            }
            Err(_) => self.hand_out_by(route, envelope, patience),
        }
    }

    /// Keeps the envelope and hands it out. A subscriber that comes meanwhile gets it once: from the route, or as the
    /// retained one.
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

    /// Keeps the last envelope of a batch, if the topic retains. Until the guard is dropped no subscriber is added; the batch
    /// must be handed out by this route.
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

    fn change_lanes(&self, change: impl FnOnce(&mut Vec<Lane<T>>)) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let TopicLanes { all, staging } = &mut *lanes;
        change(all);
        // Publishers of a topic that retains take turns, and push to each inbox themselves.
        let cast = if self.retain {
            None
        } else {
            staging.follow(all.iter().filter_map(Lane::shareable))
        };
        self.route.store(Arc::new(Route::build(all, cast)));
        drop(lanes);
        self.published.tell();
    }

    /// The envelope that the topic retains, if it does and there is one.
    pub(super) fn last(&self) -> Option<Arc<Envelope<T>>> {
        self.retained().clone()
    }

    fn retained(&self) -> MutexGuard<'_, Option<Arc<Envelope<T>>>> {
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn seal_one(&self, headers: Headers, payload: T) -> Arc<Envelope<T>> {
        let id = EnvelopeId::from_counter(self.hub.take_ids(1));
        self.published.add_one();
        let mark = Mark {
            id,
            topic: self.id,
            time: self.hub.clock().now(),
        };
        Arc::new(Envelope::new(mark, headers.in_scope(), self.weigh, payload))
    }
}

impl DeadLetterSink for TopicCore<DeadLetter> {
    fn is_wanted(&self) -> bool {
        !self.route.load().targets.is_empty()
    }

    fn publish_dead_letter(&self, letter: DeadLetter) -> bool {
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
            // Its filter selects more retaining topics than it has room for.
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
