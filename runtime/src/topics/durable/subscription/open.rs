//! Opening a subscription.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Partition, Sequence, Timestamp};
use millrun_persistence::{ReadError, TopicNumber, TopicRefused, TopicRetention};
use millrun_workflow::DurableTopic;

use super::acknowledged::Acknowledged;
use super::config::{IN_FLIGHT_MAX, SubscriptionBounds};
use super::consumer::DurableSubscription;
use super::deliveries::RecordsInHand;
use super::expiry::EXPIRY_SHARE;
use super::shared::{HeldSubscription, SubscriptionLost, SubscriptionShared, SubscriptionState};
use super::stored::{self, KeptPlace, StoredSubscriptionError};
use super::undelivered::UndeliveredRecord;
use super::{keeper, kept_before};
use crate::StopCause;
use crate::topics::durable::declared::{DurableTopicError, KnownTopic};
use crate::topics::durable::handle::DurableTopicHandle;
use crate::topics::durable::reader::{ReadFrom, ReadFromError, TopicReadError, TopicReader};

/// The longest name of a subscription, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// Why a subscription was not opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscriptionOpenError {
    /// A name has 1 to 100 bytes, and together with its topic's name at most 230, in which each `/` and `%` counts as three.
    #[error(
        "the name of a subscription has 1 to 100 bytes, and 230 with that of its topic: this has {bytes}"
    )]
    Name {
        /// Its size in bytes.
        bytes: usize,
    },
    /// A bound is not valid.
    #[error("{field} {problem}")]
    Bound {
        /// Which.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// It is open in this runtime with other settings.
    #[error("the subscription is open already, with other bounds or another topic for what is not delivered")]
    Contradiction,
    /// The topic for undelivered records is not registered with this runtime.
    #[error(transparent)]
    Undelivered(#[from] DurableTopicError),
    /// The journal refuses the topic in which the subscription is kept.
    #[error("the journal does not keep the subscription: {0}")]
    Refused(#[from] TopicRefused),
    /// The subscription's place cannot be read.
    #[error("it cannot be read how far the subscription has come: {problem}")]
    Unreadable {
        /// What is wrong.
        problem: String,
    },
    /// The place where it should begin cannot be found.
    #[error(transparent)]
    From(#[from] ReadFromError),
    /// The subscription has ended here.
    #[error(transparent)]
    Lost(#[from] SubscriptionLost),
}

impl From<StopCause> for SubscriptionOpenError {
    fn from(cause: StopCause) -> Self {
        Self::Lost(cause.into())
    }
}

impl From<ReadError> for SubscriptionOpenError {
    fn from(error: ReadError) -> Self {
        Self::Unreadable {
            problem: error.to_string(),
        }
    }
}

impl From<StoredSubscriptionError> for SubscriptionOpenError {
    fn from(error: StoredSubscriptionError) -> Self {
        Self::Unreadable {
            problem: error.to_string(),
        }
    }
}

/// A prepared subscription; made by [`DurableTopicHandle::subscribe`]. It is opened when it is awaited.
#[must_use = "nothing is opened until it is awaited"]
pub struct SubscribeRecords<'a, T> {
    topic: &'a DurableTopicHandle<T>,
    name: &'a str,
    from: ReadFrom,
    bounds: SubscriptionBounds,
    undelivered: Option<DurableTopic<UndeliveredRecord>>,
}

impl<T> fmt::Debug for SubscribeRecords<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscribeRecords")
            .field("topic", &self.topic)
            .field("name", &self.name)
            .field("from", &self.from)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

impl<T> DurableTopicHandle<T> {
    /// Prepares a durable subscription with this name, which is opened when it is awaited: its consumers get each record,
    /// until one of them acknowledges it, also if the process ends meanwhile.
    ///
    /// By default, it begins with the first record that is left, has up to 1,024 records in hand, gives a consumer 30
    /// seconds, and delivers one record of a key at a time. Its progress is kept in the journal under its name; when it is
    /// opened again, it continues there, and ignores where it was to begin. If it is opened several times in a runtime, all
    /// consumers share the records.
    ///
    /// ```
    /// use millrun::{DurableTopic, Runtime, Topic};
    ///
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().durable_topic(PLACED).start().await?;
    /// let placed = runtime.durable_topic(PLACED)?;
    /// placed.publish(&7).key("order-7").await?;
    ///
    /// let billing = placed.subscribe("billing").await?;
    /// let delivery = billing.next().await?;
    /// assert_eq!((delivery.payload(), delivery.deliveries()), (&7, 1));
    /// delivery.ack()?.await?;
    /// assert_eq!(billing.status().lag, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscribe<'a>(&'a self, name: &'a str) -> SubscribeRecords<'a, T> {
        SubscribeRecords {
            topic: self,
            name,
            from: ReadFrom::Beginning,
            bounds: SubscriptionBounds::default(),
            undelivered: None,
        }
    }
}

impl<'a, T> SubscribeRecords<'a, T> {
    /// Where it begins, if it has no kept place.
    pub fn from(mut self, from: ReadFrom) -> Self {
        self.from = from;
        self
    }

    /// The largest number of records in hand, from 1 to 16,384: delivered, waiting to be delivered again, or behind another
    /// record of their key. At the limit, no further one is delivered until one is acknowledged. By default 1,024.
    pub fn in_flight_max(mut self, in_flight_max: usize) -> Self {
        self.bounds.in_flight_max = in_flight_max;
        self
    }

    /// How long a consumer has a record; then it is delivered again. By default 30 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.bounds.lease = lease;
        self
    }

    /// Delivers records of one key to several consumers at a time. By default, a record waits while another one of its key is
    /// in hand.
    pub fn unordered(mut self) -> Self {
        self.bounds.is_ordered = false;
        self
    }

    /// A record that was delivered this often without success goes to the given topic, with its bytes and the reason, and so
    /// does one that does not decode as the topic's type. Its key then continues, unless it is
    /// [held](Self::hold_key_when_undelivered). By default, a record is delivered again and again.
    pub fn undelivered_to(mut self, topic: DurableTopic<UndeliveredRecord>, deliveries_max: u32) -> Self {
        self.undelivered = Some(topic);
        self.bounds.deliveries_max = Some(deliveries_max);
        self
    }

    /// Holds the key of a record that has gone to the topic for [undelivered](Self::undelivered_to) records: no further
    /// record of the key is delivered, until the undelivered one is [sent back](DurableTopicHandle::send_back) or the key is
    /// [released](crate::Runtime::release_held_key). A record that is sent back comes at the end, after those that have
    /// waited. Held keys are kept in the journal, and counted in
    /// [`SubscriptionStatus::held_keys`](super::SubscriptionStatus::held_keys). A record without a key, or with an unreadable
    /// one, holds nothing.
    ///
    /// Records that wait behind a held key are in hand, and count for [`in_flight_max`](Self::in_flight_max): if only such
    /// records are in hand, the subscription stands still. At most 1,024 keys are held; at that limit, no further record with
    /// a key is given up, and its key waits as well.
    ///
    /// Opening a subscription without this setting releases all its keys.
    pub fn hold_key_when_undelivered(mut self) -> Self {
        self.bounds.holds_keys = true;
        self
    }

    pub(super) fn check(&self) -> Result<(), SubscriptionOpenError> {
        let bytes = self.name.len();
        let with_topic = bytes + kept_before(self.topic.name).len() - kept_before("").len();
        if bytes == 0 || bytes > NAME_BYTES_MAX || with_topic > 230 {
            return Err(SubscriptionOpenError::Name { bytes });
        }
        let bound = |field, problem: &str| {
            Err(SubscriptionOpenError::Bound {
                field,
                problem: problem.to_owned(),
            })
        };
        if self.bounds.in_flight_max == 0 || self.bounds.in_flight_max > IN_FLIGHT_MAX {
            return bound("in_flight_max", "must be from 1 to 16,384");
        }
        if self.bounds.lease.is_zero() {
            return bound("lease", "must not be zero");
        }
        if self.bounds.deliveries_max == Some(0) {
            return bound("deliveries_max", "must not be zero");
        }
        if self.bounds.holds_keys && (self.undelivered.is_none() || !self.bounds.is_ordered) {
            let problem = "needs a topic for undelivered records, and order by key";
            return bound("hold_key_when_undelivered", problem);
        }
        Ok(())
    }

    async fn open(self) -> Result<DurableSubscription<T>, SubscriptionOpenError> {
        self.check()?;
        let (inner, durable) = (&self.topic.inner, &self.topic.inner.shared.durable);
        let undelivered = self.undelivered.map(|topic| durable.known(topic)).transpose()?;
        let kept_name = format!("{}{}", kept_before(self.topic.name), self.name);
        let partition = Partition::of(kept_name.as_bytes());
        if !inner.shared.claims.owned().has(partition) {
            return Err(SubscriptionLost::Moved { partition }.into());
        }
        let opening = durable.subscriptions.opening.lock().await;
        let opened = durable.subscriptions.get(&kept_name);
        if let Some(shared) = opened.and_then(HeldSubscription::hold) {
            let is_alike = shared.bounds == self.bounds
                && shared.undelivered.map(|topic| topic.number) == undelivered.map(|topic| topic.number);
            if !is_alike {
                return Err(SubscriptionOpenError::Contradiction);
            }
            drop(opening);
            let version = shared.lock().in_hand.version();
            shared.until_saved(version).await?;
            return Ok(DurableSubscription::new(shared));
        }
        let streams = inner.streams();
        // While this is opening, no topic is deleted here.
        if streams.summary(self.topic.known.number).is_none() {
            return Err(SubscriptionLost::Deleted.into());
        }
        let last_only = TopicRetention {
            len_max: 1,
            ..TopicRetention::unbounded()
        };
        // A subscription that cannot begin leaves nothing behind.
        let beginning = match streams.number(&kept_name) {
            None => Some(self.begins_behind().await?),
            Some(_) => None,
        };
        let kept_in = streams.declare(&kept_name, last_only)?;
        let (last_kept, kept) = self.kept(kept_in).await?;
        let is_new = kept.is_none();
        // Record numbers continue after those of a former subscription with this name.
        let has_begun_anew = is_new && last_kept > Sequence::ZERO;
        let now = inner.shared.host.now();
        let last_kept_at = kept.as_ref().map_or(now, |(kept_at, _)| *kept_at);
        let idle_max = durable.subscription_idle_max(self.topic.name);
        let renewed_each = idle_max.map(|idle_max| idle_max / EXPIRY_SHARE);
        let kept = match kept {
            Some((_, kept)) => kept,
            None => {
                let through = match beginning {
                    Some(through) => through,
                    None => self.begins_behind().await?,
                };
                KeptPlace {
                    acknowledged: Acknowledged::up_to(through.get()),
                    ..KeptPlace::default()
                }
            }
        };
        if has_begun_anew {
            tracing::warn!(
                topic = self.topic.name,
                subscription = self.name,
                "a durable subscription begins anew: one of its name has expired, or was removed"
            );
        }
        let through = Sequence::new(kept.acknowledged.through());
        // Records behind its beginning are held back from now on, even before the place is saved.
        streams.note_reader(self.topic.known.number, kept_in, through);
        let reader = TopicReader::behind(Arc::clone(inner), self.topic.known, through);
        let in_hand = RecordsInHand::new(self.bounds, kept.acknowledged, kept.returned);
        let in_hand = in_hand.with_held_keys(kept.held_keys);
        let mut state = SubscriptionState::new(in_hand, (last_kept, last_kept_at), renewed_each);
        if is_new {
            state.begin();
        }
        let shared = Arc::new(SubscriptionShared::new(
            Arc::clone(inner),
            (self.topic.known, self.topic.name),
            self.name.to_owned(),
            self.bounds,
            (kept_in, partition),
            undelivered,
            has_begun_anew,
            reader,
            state,
        ));
        let held = HeldSubscription::hold(Arc::clone(&shared)).expect("it has just been made");
        keeper::start(&shared);
        durable.subscriptions.insert(kept_name, &shared);
        // A record that is sent back from now on finds the open subscription; those sent back before are found here.
        shared.release_sent_back();
        let version = shared.lock().in_hand.version();
        drop(opening);
        // Its beginning is saved before any record is delivered.
        held.until_saved(version).await?;
        Ok(DurableSubscription::new(held))
    }

    /// The record behind which the subscription begins if it has no kept place.
    async fn begins_behind(&self) -> Result<Sequence, ReadFromError> {
        let mut reader: TopicReader<()> =
            TopicReader::open(Arc::clone(&self.topic.inner), self.topic.known, self.from).await?;
        let through = reader.read_through();
        if !matches!(self.from, ReadFrom::Time(_)) {
            return Ok(through);
        }
        // Records with different times may be stored together.
        match reader.next_raw_now().await {
            Ok(Some(first)) => Ok(Sequence::new(first.sequence.get() - 1)),
            Ok(None) => Ok(reader.read_through()),
            Err(TopicReadError::Stopped(cause)) => Err(cause.into()),
            Err(TopicReadError::Deleted) => Err(ReadFromError::Deleted),
            // Consumers are told of the error when they get there.
            Err(_) => Ok(through),
        }
    }

    /// The kept state of the subscription, if any, with its record and time.
    async fn kept(
        &self,
        kept_in: TopicNumber,
    ) -> Result<(Sequence, Option<(Timestamp, KeptPlace)>), SubscriptionOpenError> {
        let inner = &self.topic.inner;
        let known = KnownTopic {
            number: kept_in,
            store: self.topic.known.store,
        };
        let streams = inner.shared.journal.topics();
        let summary = streams.and_then(|streams| streams.summary(kept_in));
        let last = summary.as_ref().map_or(Sequence::ZERO, |summary| summary.last);
        if summary.is_none_or(|summary| last < summary.first) {
            // If a subscription with this name was removed, record numbers continue after its last.
            return Ok((last, None));
        }
        let mut reader: TopicReader<()> =
            TopicReader::behind(Arc::clone(inner), known, Sequence::new(last.get() - 1));
        let record = reader
            .next_raw()
            .await
            .map_err(|error| SubscriptionOpenError::Unreadable {
                problem: error.to_string(),
            })?;
        let kept = stored::decode(&record.body)?;
        Ok((record.sequence, Some((record.time, kept))))
    }
}

impl<'a, T: Send + Sync + 'static> IntoFuture for SubscribeRecords<'a, T> {
    type Output = Result<DurableSubscription<T>, SubscriptionOpenError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}
