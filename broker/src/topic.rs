//! Typed topics, and the handles that publish to them.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Cache};

use crate::envelope::{AnyEnvelope, Envelope, EnvelopeId, Headers, TopicId};
use crate::hub::Hub;
use crate::mailbox::Mailbox;
use crate::name::TopicName;
use crate::publish::{Offer, Patience, Publish, PublishError, Published, Refused, RouteRef};
use crate::route::{GroupCore, Lane, Line, Route};
use crate::subscription::{SubscriptionCore, SubscriptionId};

/// How many ids a publisher takes from the broker at once.
const ID_BLOCK: u64 = 1_024;

/// How a topic treats its payloads.
pub struct TopicConfig<T> {
    /// How many bytes a payload holds on to outside of itself. The default knows `Vec<u8>`,
    /// `Bytes`, `String` and their like, and says zero for all other types.
    pub weigh: fn(&T) -> usize,
}

impl<T: 'static> Default for TopicConfig<T> {
    fn default() -> Self {
        Self {
            weigh: crate::envelope::bytes_held,
        }
    }
}

impl<T> fmt::Debug for TopicConfig<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicConfig").finish_non_exhaustive()
    }
}

/// What the broker holds of a topic.
pub(crate) struct TopicCore<T> {
    id: TopicId,
    name: TopicName,
    weigh: fn(&T) -> usize,
    hub: Arc<Hub>,
    route: ArcSwap<Route<T>>,
    /// All subscriptions that match, in the order in which they came.
    lanes: Mutex<Vec<Lane<T>>>,
    published: Tally,
}

/// A topic, whatever its type.
pub(crate) trait AnyTopic: Send + Sync {
    fn payload_type(&self) -> &'static str;
    fn payload_type_id(&self) -> TypeId;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    /// Adds a subscription; false if it wants payloads of another type.
    fn attach(&self, subscribed: &Subscribed) -> bool;
    fn detach(&self, id: SubscriptionId);
}

/// A subscription as the table holds it. `mailbox` is one of an envelope type.
pub(crate) struct Subscribed {
    pub(crate) core: Arc<SubscriptionCore>,
    pub(crate) group: Option<Arc<GroupCore>>,
    pub(crate) mailbox: Box<dyn Any + Send + Sync>,
}

impl<T: Send + Sync + 'static> TopicCore<T> {
    pub(crate) fn new(id: TopicId, name: TopicName, config: &TopicConfig<T>, hub: Arc<Hub>) -> Self {
        Self {
            id,
            name,
            weigh: config.weigh,
            hub,
            route: ArcSwap::from_pointee(Route::build(&[])),
            lanes: Mutex::new(Vec::new()),
            published: Tally::default(),
        }
    }

    fn seal(&self, id: EnvelopeId, headers: Headers, payload: T) -> Arc<Envelope<T>> {
        Arc::new(Envelope::new(
            id,
            self.id,
            self.hub.now(),
            headers,
            self.weigh,
            payload,
        ))
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.hub
    }

    fn change_lanes(&self, change: impl FnOnce(&mut Vec<Lane<T>>)) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut lanes);
        self.route.store(Arc::new(Route::build(&lanes)));
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
        let line = if let Some(mailbox) = subscribed.mailbox.downcast_ref::<Mailbox<Arc<Envelope<T>>>>() {
            Line::Typed(mailbox.clone())
        } else if let Some(mailbox) = subscribed.mailbox.downcast_ref::<Mailbox<Arc<dyn AnyEnvelope>>>() {
            Line::Any(mailbox.clone())
        } else {
            return false;
        };
        let lane = Lane {
            core: Arc::clone(&subscribed.core),
            group: subscribed.group.clone(),
            line,
        };
        self.change_lanes(|lanes| lanes.push(lane));
        true
    }

    fn detach(&self, id: SubscriptionId) {
        self.change_lanes(|lanes| lanes.retain(|lane| lane.core.id != id));
    }
}

/// A topic whose envelopes carry a `T`. A cheap clone.
///
/// For many envelopes in a row a [`Publisher`] is cheaper.
pub struct Topic<T>(Arc<TopicCore<T>>);

impl<T: Send + Sync + 'static> Topic<T> {
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

    /// A publisher of its own for one task.
    #[must_use]
    pub fn publisher(&self) -> Publisher<T> {
        Publisher {
            route: Cache::new(RouteOf(Arc::clone(&self.0))),
            tally: self.0.published.open_cell(),
            ids: Ids { next: 0, left: 0 },
            streak: 0,
            topic: Arc::clone(&self.0),
        }
    }

    /// Publishes, waiting where [`Publisher::publish`] waits.
    pub fn publish(&self, payload: T) -> Publish<'_, T> {
        self.begin(Headers::new(), payload, Patience::Wait)
    }

    /// Publishes with headers, waiting where [`Publisher::publish`] waits.
    pub fn publish_with(&self, headers: Headers, payload: T) -> Publish<'_, T> {
        self.begin(headers, payload, Patience::Wait)
    }

    /// Publishes without waiting, see [`Publisher::try_publish`].
    ///
    /// # Errors
    /// As [`Publisher::try_publish`].
    pub fn try_publish(&self, payload: T) -> Result<Published, PublishError<T>> {
        self.begin(Headers::new(), payload, Patience::No).now()
    }

    fn begin(&self, headers: Headers, payload: T, patience: Patience) -> Publish<'_, T> {
        let id = self.0.hub.take_ids(1);
        self.0.published.add_one();
        Publish {
            envelope: Some(self.0.seal(envelope_id(id), headers, payload)),
            id: envelope_id(id),
            route: RouteRef::Loaded(self.0.route.load_full()),
            offer: Offer {
                topic: &self.0,
                patience,
                only: None,
                delivered: 0,
                pending: None,
            },
            streak: None,
        }
    }
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Topic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Topic").field(&self.0.name).finish()
    }
}

/// Publishes to one topic. It keeps what a publish needs at hand (the route, a block of ids, a
/// counter) and is therefore owned by one task; each task makes its own.
///
/// # Ordering
/// Two publishes, the second begun after the first returned, arrive in this order in each inbox
/// that gets both. A member of a queue group sees its share in order.
pub struct Publisher<T> {
    route: Cache<RouteOf<T>, Arc<Route<T>>>,
    tally: Arc<AtomicU64>,
    ids: Ids,
    streak: u32,
    topic: Arc<TopicCore<T>>,
}

struct Ids {
    next: u64,
    left: u64,
}

/// Lets the route cache look into the topic.
struct RouteOf<T>(Arc<TopicCore<T>>);

impl<T> Deref for RouteOf<T> {
    type Target = ArcSwap<Route<T>>;

    fn deref(&self) -> &ArcSwap<Route<T>> {
        &self.0.route
    }
}

impl<T: Send + Sync + 'static> Publisher<T> {
    /// Hands the payload to every matching inbox and waits for those with the policy
    /// [`Overflow::Block`](crate::Overflow::Block) that are full. Each is its own wait: the others
    /// have their envelope at once.
    ///
    /// Ready means accepted by every matching inbox, or dropped and counted where that is the
    /// inbox's policy. With no matching inbox it is ready at once, and counted as unrouted.
    ///
    /// # Errors
    /// [`PublishError::Full`] when an inbox with the policy
    /// [`Overflow::Fail`](crate::Overflow::Fail) is full, once all others are served.
    ///
    /// # Cancel safety
    /// See [`Publish`].
    #[inline]
    pub fn publish(&mut self, payload: T) -> Publish<'_, T> {
        self.begin(Headers::new(), payload, Patience::Wait)
    }

    /// As [`Publisher::publish`], with headers.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn publish_with(&mut self, headers: Headers, payload: T) -> Publish<'_, T> {
        self.begin(headers, payload, Patience::Wait)
    }

    /// Hands the payload to every matching inbox that has room now.
    ///
    /// # Errors
    /// [`PublishError::Full`] when an inbox whose policy is to block or to fail is full.
    pub fn try_publish(&mut self, payload: T) -> Result<Published, PublishError<T>> {
        self.begin(Headers::new(), payload, Patience::No).now()
    }

    /// Tries a refused envelope again, at those inboxes only that refused it.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub async fn retry(&mut self, refused: Refused<T>) -> Result<Published, PublishError<T>> {
        let Refused {
            envelope,
            by,
            delivered,
        } = refused;
        Publish {
            id: envelope.id(),
            envelope: Some(envelope),
            route: RouteRef::Cached(self.route.load()),
            offer: Offer {
                topic: &self.topic,
                patience: Patience::Wait,
                only: Some(&by),
                delivered,
                pending: None,
            },
            streak: None,
        }
        .await
    }

    /// The topic's name.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        &self.topic.name
    }

    #[inline]
    fn begin(&mut self, headers: Headers, payload: T, patience: Patience) -> Publish<'_, T> {
        let id = self.next_id();
        // Only this publisher writes its cell.
        self.tally
            .store(self.tally.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Publish {
            envelope: Some(self.topic.seal(id, headers, payload)),
            id,
            route: RouteRef::Cached(self.route.load()),
            offer: Offer {
                topic: &self.topic,
                patience,
                only: None,
                delivered: 0,
                pending: None,
            },
            streak: Some(&mut self.streak),
        }
    }

    #[inline]
    fn next_id(&mut self) -> EnvelopeId {
        if self.ids.left == 0 {
            self.ids = Ids {
                next: self.topic.hub.take_ids(ID_BLOCK),
                left: ID_BLOCK,
            };
        }
        let id = self.ids.next;
        self.ids.next = id.wrapping_add(1);
        self.ids.left -= 1;
        envelope_id(id)
    }
}

impl<T> Drop for Publisher<T> {
    fn drop(&mut self) {
        self.topic.published.close_cell(&self.tally);
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Publisher").field(&self.topic.name).finish()
    }
}

fn envelope_id(number: u64) -> EnvelopeId {
    // After 2^64 envelopes the counter would pass zero once; that envelope shares its id.
    EnvelopeId::from_bits(number.max(1)).expect("at least 1")
}

/// A counter in cells, one for each publisher, so that counting takes no atomic addition.
#[derive(Default)]
struct Tally {
    rest: AtomicU64,
    cells: Mutex<Vec<Arc<AtomicU64>>>,
}

impl Tally {
    fn add_one(&self) {
        self.rest.fetch_add(1, Ordering::Relaxed);
    }

    fn open_cell(&self) -> Arc<AtomicU64> {
        let cell = Arc::new(AtomicU64::new(0));
        self.cells
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&cell));
        cell
    }

    fn close_cell(&self, cell: &Arc<AtomicU64>) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        cells.retain(|held| !Arc::ptr_eq(held, cell));
        self.rest
            .fetch_add(cell.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let open: u64 = cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum();
        self.rest.load(Ordering::Relaxed) + open
    }
}

impl<T: Send + Sync + 'static> Topic<T> {
    /// How many envelopes were published to it.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.0.published.total()
    }
}
