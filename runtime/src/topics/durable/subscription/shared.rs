//! The state that a subscription's consumers, deliveries and keeper share.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use millrun_core::{Partition, Sequence, Timestamp};
use millrun_persistence::TopicNumber;
use tokio::sync::Notify;
use xxhash_rust::xxh3::xxh3_128;

use super::config::SubscriptionBounds;
use super::deliveries::RecordsInHand;
use super::undelivered::sent_back_id;
use crate::StopCause;
use crate::inner::Inner;
use crate::topics::durable::declared::KnownTopic;
use crate::topics::durable::publish::DurablePublishError;
use crate::topics::durable::reader::{TopicReadError, TopicReader};
use crate::topics::durable::token::RecordToken;

/// The subscriptions that are open in a runtime, by the names of the topics in which they are kept.
#[derive(Debug, Default)]
pub(crate) struct OpenSubscriptions {
    /// Locked while one is opened, so that the same one is not opened twice at once.
    pub(in crate::topics::durable) opening: tokio::sync::Mutex<()>,
    open: Mutex<HashMap<String, Weak<SubscriptionShared>>>,
    /// How many have expired.
    expired: AtomicU64,
}

impl OpenSubscriptions {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<SubscriptionShared>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The subscription that is kept in this topic, if its keeper has not ended.
    pub(super) fn get(&self, kept_name: &str) -> Option<Arc<SubscriptionShared>> {
        self.lock().get(kept_name).and_then(Weak::upgrade)
    }

    /// All that are open and not lost, in no order.
    pub(in crate::topics::durable) fn all(&self) -> Vec<Arc<SubscriptionShared>> {
        let mut all: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        all.retain(|shared| shared.is_open());
        all
    }

    /// Marks those as removed for which `is_lost` holds.
    pub(in crate::topics::durable) fn lose_where(&self, is_lost: impl Fn(&SubscriptionShared) -> bool) {
        for shared in self.all().iter().filter(|shared| is_lost(shared)) {
            shared.lose(SubscriptionLost::Deleted);
        }
    }

    /// Whether the subscription that is kept in this topic is not lost, and is held by a consumer or a delivery.
    pub(super) fn is_open(&self, kept_name: &str) -> bool {
        self.get(kept_name).is_some_and(|shared| shared.is_open())
    }

    /// Marks the subscription that is kept in this topic as lost, unless it is held.
    pub(super) fn lose_where_not_held(&self, kept_in: TopicNumber, lost: &SubscriptionLost) {
        let all: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        for shared in all.iter().filter(|shared| shared.is_kept_in(kept_in)) {
            shared.lose(lost.clone());
        }
    }

    /// One has expired.
    pub(super) fn count_expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    /// How many have expired.
    pub(crate) fn expired_len(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    pub(super) fn insert(&self, kept_name: String, shared: &Arc<SubscriptionShared>) {
        let mut open = self.lock();
        open.retain(|_, shared| shared.strong_count() > 0);
        open.insert(kept_name, Arc::downgrade(shared));
    }
}

/// Why a subscription has ended here.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscriptionLost {
    /// The partition in which it is kept has another owner, where the subscription can be opened.
    #[error("the subscription has another owner, with partition {}", partition.index())]
    Moved {
        /// The partition.
        partition: Partition,
    },
    /// Its topic was [deleted](crate::Runtime::delete_durable_topic), or the subscription was
    /// [removed](crate::Runtime::remove_durable_subscription).
    #[error("the subscription was removed, or its topic deleted")]
    Deleted,
    /// It was unused for longer than
    /// [`subscription_idle_max`](millrun_workflow::DurableTopic::subscription_idle_max) of its topic.
    #[error("the subscription has expired: it was not used for longer than subscription_idle_max")]
    Expired,
    /// The journal refused to save its state.
    #[error("what the subscription is to keep was refused: {problem}")]
    Refused {
        /// What is wrong.
        problem: String,
    },
    /// The runtime has stopped.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

impl From<DurablePublishError> for SubscriptionLost {
    fn from(error: DurablePublishError) -> Self {
        match error {
            DurablePublishError::Moved { partition } => Self::Moved { partition },
            DurablePublishError::Stopped(cause) => Self::Stopped(cause),
            error => Self::Refused {
                problem: error.to_string(),
            },
        }
    }
}

/// The shared state of a subscription.
pub(in crate::topics::durable) struct SubscriptionShared {
    pub(super) inner: Arc<Inner>,
    pub(super) topic: KnownTopic,
    pub(super) topic_name: &'static str,
    pub(super) name: String,
    pub(super) bounds: SubscriptionBounds,
    /// The topic in which it is kept, and the partition of that topic's records.
    pub(super) kept_in: TopicNumber,
    pub(super) partition: Partition,
    /// The topic for undelivered records.
    pub(super) undelivered: Option<KnownTopic>,
    /// Whether a former subscription of its name has expired or was removed.
    pub(super) has_begun_anew: bool,
    /// The source of records, used by one consumer at a time.
    pub(super) reader: tokio::sync::Mutex<TopicReader<()>>,
    state: Mutex<SubscriptionState>,
    /// Notifies consumers that there may be something to deliver, or room.
    pub(super) changed: Notify,
    /// Notifies waiting tasks that more is saved.
    pub(super) saved: Notify,
    /// Wakes the keeper.
    pub(super) to_save: Notify,
    /// How many [`HeldSubscription`]s there are.
    held_len: AtomicUsize,
}

/// The part that changes.
#[derive(Debug)]
pub(super) struct SubscriptionState {
    pub(super) in_hand: RecordsInHand,
    /// The version that is saved, and its record.
    pub(super) saved: u64,
    pub(super) last_kept: Sequence,
    /// When that was appended.
    pub(super) last_kept_at: Timestamp,
    /// At this age the saved state is appended anew, so that the store shows that the subscription is in use.
    pub(super) renewed_each: Option<Duration>,
    pub(super) lost: Option<SubscriptionLost>,
    /// Skipped records that consumers have to be told of.
    pub(super) told: VecDeque<TopicReadError>,
    /// How many records were skipped.
    pub(super) missed: u64,
    /// How many have gone to the topic for undelivered records.
    pub(super) undelivered: u64,
    /// Whether a consumer has found nothing to deliver since the subscription was opened: it may be waiting for an answer.
    pub(super) is_waited_for: bool,
    /// Whether its keeper has ended, with everything saved: the subscription can be opened anew.
    pub(super) has_ended: bool,
}

impl SubscriptionState {
    pub(super) fn new(
        in_hand: RecordsInHand,
        (last_kept, last_kept_at): (Sequence, Timestamp),
        renewed_each: Option<Duration>,
    ) -> Self {
        Self {
            saved: in_hand.version(),
            last_kept,
            last_kept_at,
            renewed_each,
            in_hand,
            lost: None,
            told: VecDeque::new(),
            missed: 0,
            undelivered: 0,
            is_waited_for: false,
            has_ended: false,
        }
    }

    /// When the place has to be appended anew even without a change, as a sign of use.
    pub(super) fn renewed_at(&self) -> Option<Timestamp> {
        self.renewed_each.map(|each| self.last_kept_at + each)
    }

    /// Notes that the beginning has to be saved.
    pub(super) fn begin(&mut self) {
        let through = self.in_hand.acknowledged().through();
        self.in_hand.pass_over(through + 1, through);
    }
}

impl SubscriptionShared {
    #[expect(
        clippy::too_many_arguments,
        reason = "it is made in one place, of all that it consists of"
    )]
    pub(super) fn new(
        inner: Arc<Inner>,
        (topic, topic_name): (KnownTopic, &'static str),
        name: String,
        bounds: SubscriptionBounds,
        (kept_in, partition): (TopicNumber, Partition),
        undelivered: Option<KnownTopic>,
        has_begun_anew: bool,
        reader: TopicReader<()>,
        state: SubscriptionState,
    ) -> Self {
        Self {
            inner,
            topic,
            topic_name,
            name,
            bounds,
            kept_in,
            partition,
            undelivered,
            has_begun_anew,
            reader: tokio::sync::Mutex::new(reader),
            state: Mutex::new(state),
            changed: Notify::new(),
            saved: Notify::new(),
            to_save: Notify::new(),
            held_len: AtomicUsize::new(0),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SubscriptionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is a subscription of this topic.
    pub(in crate::topics::durable) fn is_of(&self, topic: TopicNumber) -> bool {
        self.topic.number == topic
    }

    /// Whether what it has come to is kept in this topic.
    pub(in crate::topics::durable) fn is_kept_in(&self, topic: TopicNumber) -> bool {
        self.kept_in == topic
    }

    /// Whether it is not lost, and is held by a consumer or a delivery.
    pub(super) fn is_open(&self) -> bool {
        self.held_len.load(Ordering::SeqCst) > 0 && self.lock().lost.is_none()
    }

    /// Marks the subscription as lost.
    pub(super) fn lose(&self, lost: SubscriptionLost) {
        self.lock().lost.get_or_insert(lost);
        self.saved.notify_waiters();
        self.changed.notify_waiters();
    }

    /// Whether a record that this subscription has buried was sent back, as far as the journal remembers.
    pub(super) fn is_sent_back(&self, sequence: u64) -> bool {
        let token = RecordToken::new(self.topic.store, self.topic.number, Sequence::new(sequence));
        let id = xxh3_128(sent_back_id(&self.name, token).as_bytes());
        let streams = self.inner.streams();
        streams.appended_with(self.topic.number, id).is_some()
    }

    /// Releases the keys whose buried records were sent back.
    pub(super) fn release_sent_back(&self) {
        let held: Vec<u64> = self.lock().in_hand.held_keys().values().copied().collect();
        for sequence in held.into_iter().filter(|sequence| self.is_sent_back(*sequence)) {
            self.release_key(|in_hand| in_hand.release_behind(sequence));
        }
    }

    /// Releases a key that waits behind a buried record. Returns whether it was held.
    pub(super) fn release_key(&self, release: impl FnOnce(&mut RecordsInHand) -> bool) -> bool {
        let is_released = release(&mut self.lock().in_hand);
        if is_released {
            self.to_save.notify_one();
            self.changed.notify_waiters();
        }
        is_released
    }

    /// Ends the keeper if nothing holds the subscription and everything is saved. Returns whether it ends.
    pub(super) fn ends_unless_held(&self) -> bool {
        let mut state = self.lock();
        let is_kept = state.in_hand.version() == state.saved && state.in_hand.next_spent().is_none();
        state.has_ended = is_kept && self.held_len.load(Ordering::SeqCst) == 0;
        state.has_ended
    }

    /// Waits until this version is saved.
    pub(super) async fn until_saved(&self, version: u64) -> Result<(), SubscriptionLost> {
        loop {
            // Registered before it looks, so that no save is missed.
            let mut saved = pin!(self.saved.notified());
            {
                let state = self.lock();
                if state.saved >= version {
                    return Ok(());
                }
                if let Some(lost) = &state.lost {
                    return Err(lost.clone());
                }
            }
            let mut stopped = Box::pin(self.inner.stop.stopped());
            let cause = poll_fn(|cx| match saved.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => stopped.as_mut().poll(cx).map(Some),
            });
            if let Some(cause) = cause.await {
                return Err(cause.into());
            }
        }
    }
}

/// Held by each consumer and delivery of a subscription: when the last is dropped, the keeper ends as soon as everything is
/// saved.
#[derive(Debug)]
pub(super) struct HeldSubscription(Arc<SubscriptionShared>);

impl HeldSubscription {
    /// Holds a subscription, unless it is lost.
    pub(super) fn hold(shared: Arc<SubscriptionShared>) -> Option<Self> {
        let state = shared.lock();
        let goes_on = state.lost.is_none() && !state.has_ended;
        if goes_on {
            shared.held_len.fetch_add(1, Ordering::SeqCst);
        }
        drop(state);
        goes_on.then(|| Self(shared))
    }
}

impl Clone for HeldSubscription {
    fn clone(&self) -> Self {
        self.0.held_len.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(&self.0))
    }
}

impl Deref for HeldSubscription {
    type Target = SubscriptionShared;

    fn deref(&self) -> &SubscriptionShared {
        &self.0
    }
}

impl Drop for HeldSubscription {
    fn drop(&mut self) {
        if self.0.held_len.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Wakes the keeper, so that it ends.
            self.0.to_save.notify_one();
        }
    }
}

impl fmt::Debug for SubscriptionShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionShared")
            .field("topic", &self.topic_name)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
