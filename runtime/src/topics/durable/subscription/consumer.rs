//! A consumer of a durable subscription.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::stream::{self, Stream};
use millrun_core::{Host, Timestamp};
use millrun_workflow::Payload;
use serde::de::DeserializeOwned;
use tokio::sync::futures::Notified;

use super::deliveries::LeasedRecord;
use super::delivery::RecordDelivery;
use super::shared::{HeldSubscription, SubscriptionLost, SubscriptionState};
use super::summary::SubscriptionStatus;
use crate::topics::durable::reader::TopicReadError;
use crate::topics::durable::record::DurableRecord;
use crate::topics::durable::stored::StoredHeader;
use crate::topics::durable::token::RecordToken;

/// Why a subscription has no record to deliver. Unless it is [lost](Self::Lost), the next call continues.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscriptionReadError {
    /// Records are not delivered: retention or a purge had dropped them, or they are damaged or cannot be decoded. The
    /// subscription has skipped and counted them ([`SubscriptionStatus::missed`]).
    #[error("records are passed over")]
    Missed(#[source] TopicReadError),
    /// The topic cannot be read now. No record is skipped: the next call tries again.
    #[error("the topic cannot be read now: {problem}")]
    Unreadable {
        /// What is wrong.
        problem: String,
    },
    /// The subscription has ended here.
    #[error(transparent)]
    Lost(#[from] SubscriptionLost),
}

/// What a consumer finds that only waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// A record, or the news of missed ones.
    Ready,
    /// The news that the topic cannot be read now.
    Unreadable,
    /// The news that the subscription is lost; nothing follows.
    Lost,
}

fn readiness(state: &mut SubscriptionState, now: Timestamp) -> Option<Readiness> {
    match state.told.front() {
        Some(TopicReadError::Unreadable { .. }) => Some(Readiness::Unreadable),
        Some(_) => Some(Readiness::Ready),
        None if state.lost.is_some() => Some(Readiness::Lost),
        None => state.in_hand.is_ready(now).then_some(Readiness::Ready),
    }
}

/// Whether the journal has to be told something. After the end of a lease, a delivery has to be counted or a record buried.
fn has_to_save(state: &SubscriptionState) -> bool {
    state.in_hand.version() != state.saved || state.in_hand.next_spent().is_some()
}

/// A consumer of a durable subscription; made by [`DurableTopicHandle::subscribe`](crate::topics::DurableTopicHandle::subscribe).
/// Clones are consumers of the same subscription, and share its records. It keeps the runtime alive, as a handle does.
pub struct DurableSubscription<T> {
    shared: HeldSubscription,
    payload: PhantomData<fn() -> T>,
}

impl<T> Clone for DurableSubscription<T> {
    fn clone(&self) -> Self {
        Self::new(self.shared.clone())
    }
}

impl<T> std::fmt::Debug for DurableSubscription<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DurableSubscription").field(&self.shared).finish()
    }
}

impl<T> DurableSubscription<T> {
    pub(super) fn new(shared: HeldSubscription) -> Self {
        Self {
            shared,
            payload: PhantomData,
        }
    }

    /// The state of the subscription.
    #[must_use]
    pub fn status(&self) -> SubscriptionStatus {
        SubscriptionStatus::of_open(&self.shared)
    }

    pub(super) fn host(&self) -> &Arc<dyn Host> {
        &self.shared.inner.shared.host
    }

    /// Waits until [`try_next`](Self::try_next) would return something.
    pub(super) async fn until_ready(&self) -> Readiness {
        loop {
            let changed = self.shared.changed.notified();
            let (ready, is_changed) = {
                let mut state = self.shared.lock();
                let ready = readiness(&mut state, self.host().now());
                state.is_waited_for |= ready.is_none();
                (ready, has_to_save(&state))
            };
            if is_changed {
                self.shared.to_save.notify_one();
            }
            if let Some(ready) = ready {
                return ready;
            }
            if let Err(lost) = self.until_changed(changed).await {
                self.shared.lock().lost.get_or_insert(lost);
            }
        }
    }

    /// Waits for a change: an answer to a delivery, the end of a lease or a pause, or new records in hand.
    async fn until_changed(&self, changed: Notified<'_>) -> Result<(), SubscriptionLost> {
        let (due, has_room) = {
            let state = self.shared.lock();
            (state.in_hand.next_due(), state.in_hand.has_room())
        };
        let mut changed = pin!(changed);
        let mut sleep = due.map(|due| self.host().sleep_until(due));
        let mut stopped = Box::pin(self.shared.inner.stop.stopped());
        let mut read = pin!(async {
            match has_room {
                true => self.take_in().await,
                false => std::future::pending().await,
            }
        });
        let stopped = poll_fn(|cx| {
            if changed.as_mut().poll(cx).is_ready() || read.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            if let Some(sleep) = &mut sleep
                && sleep.as_mut().poll(cx).is_ready()
            {
                return Poll::Ready(None);
            }
            stopped.as_mut().poll(cx).map(Some)
        });
        stopped.await.map_or(Ok(()), |cause| Err(cause.into()))
    }

    /// Takes records in hand: waits for one, and takes as many more as exist and have room.
    async fn take_in(&self) {
        let mut reader = self.shared.reader.lock().await;
        let before = reader.read_through().get();
        let first = reader.next_raw().await;
        let mut state = self.shared.lock();
        let mut next = Some(first);
        while let Some(read) = next {
            match read {
                Ok(record) => {
                    // A clone shares the bytes.
                    let body = record.body.clone();
                    let key = StoredHeader::read(&body).ok().and_then(|(header, _)| header.key);
                    state.in_hand.take_in(record, key);
                }
                Err(TopicReadError::Stopped(cause)) => {
                    state.lost.get_or_insert(cause.into());
                }
                Err(TopicReadError::Deleted) => {
                    state.lost.get_or_insert(SubscriptionLost::Deleted);
                }
                Err(error @ TopicReadError::Unreadable { .. }) => state.told.push_back(error),
                Err(mut error) => {
                    let through = reader.read_through().get();
                    if let TopicReadError::Dropped { count } | TopicReadError::Damaged { count, .. } =
                        &mut error
                    {
                        let first = (through + 1).saturating_sub(*count).max(before + 1);
                        // Acknowledged ones among the dropped records are not missed.
                        let acknowledged = state.in_hand.acknowledged();
                        *count =
                            acknowledged.missing_before(through + 1) - acknowledged.missing_before(first);
                        state.missed += *count;
                        state.in_hand.pass_over(first, through);
                        if *count == 0 {
                            next = reader.raw_in_hand();
                            continue;
                        }
                    }
                    state.told.push_back(error);
                }
            }
            next = if state.in_hand.has_room() && state.told.is_empty() {
                reader.raw_in_hand()
            } else {
                None
            };
        }
        drop(state);
        self.shared.changed.notify_waiters();
    }

    /// Waits until this version is kept. Returns the version that is kept then.
    pub(in crate::topics::durable) async fn kept(&self, version: u64) -> Result<u64, SubscriptionLost> {
        self.shared.until_saved(version).await?;
        Ok(self.shared.lock().saved)
    }
}

impl<T: DeserializeOwned> DurableSubscription<T> {
    /// Waits for the next record that may be delivered: one that has come back, or the next of the topic.
    ///
    /// # Errors
    /// The reason why there is no record, see [`SubscriptionReadError`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&self) -> Result<RecordDelivery<T>, SubscriptionReadError> {
        loop {
            // Registered before it looks, so that no change is missed.
            let changed = self.shared.changed.notified();
            if let Some(next) = self.try_next() {
                return next;
            }
            self.until_changed(changed).await?;
        }
    }

    /// What can be delivered now, without waiting.
    pub(super) fn try_next(&self) -> Option<Result<RecordDelivery<T>, SubscriptionReadError>> {
        loop {
            let now = self.host().now();
            let (next, is_changed) = {
                let mut state = self.shared.lock();
                let next = match state.told.pop_front() {
                    Some(TopicReadError::Unreadable { problem }) => {
                        Some(Err(SubscriptionReadError::Unreadable { problem }))
                    }
                    Some(missed) => Some(Err(SubscriptionReadError::Missed(missed))),
                    None => match &state.lost {
                        Some(lost) => return Some(Err(lost.clone().into())),
                        None => state.in_hand.give(now).map(Ok),
                    },
                };
                state.is_waited_for |= next.is_none();
                (next, has_to_save(&state))
            };
            if is_changed {
                self.shared.to_save.notify_one();
            }
            let leased = match next? {
                Ok(leased) => leased,
                Err(told) => return Some(Err(told)),
            };
            match self.decode(&leased) {
                Ok(record) => return Some(Ok(RecordDelivery::new(record, self.shared.clone(), leased))),
                Err(error) => self.pass_over(&leased, error),
            }
        }
    }

    /// Whether a former subscription of this name has [expired](millrun_workflow::DurableTopic::subscription_idle_max) or was
    /// [removed](crate::Runtime::remove_durable_subscription): this one began where its opening said, and not at the former
    /// one's place. It says so until this subscription is closed.
    #[must_use]
    pub fn has_begun_anew(&self) -> bool {
        self.shared.has_begun_anew
    }

    /// The deliveries as a stream, which ends after the error that the subscription is [lost](SubscriptionReadError::Lost).
    pub fn into_stream(self) -> impl Stream<Item = Result<RecordDelivery<T>, SubscriptionReadError>> + Send
    where
        T: Send,
    {
        stream::unfold(Some(self), |consumer| async {
            let consumer = consumer?;
            let next = consumer.next().await;
            let is_last = matches!(next, Err(SubscriptionReadError::Lost(_)));
            Some((next, (!is_last).then_some(consumer)))
        })
    }

    fn decode(&self, leased: &LeasedRecord) -> Result<DurableRecord<T>, TopicReadError> {
        let topic = self.shared.topic;
        let token = RecordToken::new(topic.store, topic.number, leased.record.sequence);
        let undecodable = |problem: String| TopicReadError::Undecodable { token, problem };
        let (header, payload) =
            StoredHeader::decode(&leased.record.body).map_err(|error| undecodable(error.to_string()))?;
        let payload = Payload::from_bytes(payload).decode();
        let payload = payload.map_err(|error| undecodable(error.to_string()))?;
        Ok(DurableRecord {
            token,
            time: leased.record.time,
            header,
            payload,
        })
    }

    /// A record cannot be decoded as this consumer's type: it goes to the topic for undelivered records, or is skipped if
    /// there is none.
    fn pass_over(&self, leased: &LeasedRecord, error: TopicReadError) {
        let mut state = self.shared.lock();
        let (sequence, lease) = (leased.record.sequence.get(), leased.lease);
        state.missed += 1;
        if self.shared.undelivered.is_some() {
            state.in_hand.spend(sequence, lease, &error.to_string());
        } else {
            let now = self.shared.inner.shared.host.now();
            // Its lease began just now; if it has ended nevertheless, the record is delivered again.
            if state.in_hand.acknowledge(sequence, lease, now).is_ok() {
                state.told.push_back(error);
            }
        }
    }
}
