//! A record that a subscription has delivered to a consumer, and its answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::deliveries::{LeasedRecord, NotLeased};
use super::shared::{HeldSubscription, SubscriptionLost, SubscriptionState};
use crate::topics::durable::record::DurableRecord;

/// The lease of a delivery ended before its answer: the record was or will be delivered again, or is acknowledged. Nothing
/// has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease of this delivery has ended: the record is given again")]
pub struct LeaseLost;

impl From<NotLeased> for LeaseLost {
    fn from(_: NotLeased) -> Self {
        Self
    }
}

/// A record of a durable topic that is delivered to a consumer, until the consumer answers or the lease ends.
///
/// If it is dropped without an answer, the record is delivered again when the lease has ended.
pub struct RecordDelivery<T> {
    record: DurableRecord<T>,
    shared: HeldSubscription,
    lease: u64,
    deliveries: u32,
    last_error: Option<Box<str>>,
    postponed: u32,
}

impl<T: fmt::Debug> fmt::Debug for RecordDelivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordDelivery")
            .field("record", &self.record)
            .field("deliveries", &self.deliveries)
            .field("last_error", &self.last_error)
            .finish_non_exhaustive()
    }
}

impl<T> RecordDelivery<T> {
    pub(super) fn new(record: DurableRecord<T>, shared: HeldSubscription, leased: LeasedRecord) -> Self {
        Self {
            record,
            shared,
            lease: leased.lease,
            deliveries: leased.deliveries,
            last_error: leased.last_error,
            postponed: leased.postponed,
        }
    }

    /// The name of the record's topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        self.shared.topic_name
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> &DurableRecord<T> {
        &self.record
    }

    /// What it carries.
    #[must_use]
    pub fn payload(&self) -> &T {
        self.record.payload()
    }

    /// How often the record was delivered, including this time, as far as the journal knows: deliveries that the end of a
    /// process cut off do not count.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// Why it was sent back the last time.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Acknowledges the record. The returned future completes when the journal holds the acknowledgement, so that the record
    /// is never delivered again. It may be dropped: the acknowledgement still goes with the subscription's next commit,
    /// unless the runtime is shut down first.
    ///
    /// # Errors
    /// [`LeaseLost`]: the lease has ended.
    pub fn ack(self) -> Result<AckSaved, LeaseLost> {
        let (sequence, lease, now) = self.named();
        self.answer(|state| state.in_hand.acknowledge(sequence, lease, now))
    }

    /// As [`ack`](Self::ack), for this record and all earlier ones that are delivered to consumers.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn ack_through(self) -> Result<AckSaved, LeaseLost> {
        let (sequence, lease, now) = self.named();
        self.answer(|state| state.in_hand.acknowledge_through(sequence, lease, now))
    }

    /// Sends the record back, with an error: it is delivered again after `pause`, to any consumer. 512 bytes of the error are
    /// kept.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub fn send_back(self, pause: Duration, error: &str) -> Result<AckSaved, LeaseLost> {
        let (sequence, lease, now) = self.named();
        self.answer(|state| state.in_hand.send_back(sequence, lease, (pause, error, now)))
    }

    /// How often it was [postponed](Self::postpone) in this process.
    pub(in crate::topics::durable) fn postponed(&self) -> u32 {
        self.postponed
    }

    /// Sends the record back for a reason that is not the record's fault: it is delivered again after `pause`, and this does
    /// not count as a delivery.
    pub(in crate::topics::durable) fn postpone(self, pause: Duration) -> Result<(), LeaseLost> {
        let (sequence, lease, now) = self.named();
        let postponed = self.answer(|state| state.in_hand.postpone(sequence, lease, (pause, now)));
        postponed.map(drop)
    }

    /// Gives up a record that can never be handled: it is buried, or skipped if there is no topic for that.
    pub(in crate::topics::durable) fn give_up(self, error: &str) -> Result<AckSaved, LeaseLost> {
        if self.shared.undelivered.is_none() {
            return self.ack();
        }
        let (sequence, lease, _) = self.named();
        self.answer(|state| {
            state.in_hand.spend(sequence, lease, error);
            Ok(())
        })
    }

    /// Whether the subscription counts deliveries, and buries a record after too many.
    pub(in crate::topics::durable) fn is_counted(&self) -> bool {
        self.shared.undelivered.is_some()
    }

    fn named(&self) -> (u64, u64, millrun_core::Timestamp) {
        let sequence = self.record.token().sequence().get();
        (sequence, self.lease, self.shared.inner.shared.host.now())
    }

    fn answer(
        self,
        answer: impl FnOnce(&mut SubscriptionState) -> Result<(), NotLeased>,
    ) -> Result<AckSaved, LeaseLost> {
        let (version, is_waited_for) = {
            let mut state = self.shared.lock();
            let outcome = answer(&mut state);
            (outcome.map(|()| state.in_hand.version()), state.is_waited_for)
        };
        self.shared.to_save.notify_one();
        if is_waited_for {
            self.shared.changed.notify_waiters();
        }
        let (version, shared) = (version?, self.shared);
        Ok(AckSaved {
            shared,
            version,
            waiting: None,
        })
    }
}

/// Completes when the journal holds an answer to a delivery; see [`RecordDelivery::ack`].
pub struct AckSaved {
    shared: HeldSubscription,
    version: u64,
    /// Made at the first poll: most are dropped before.
    waiting: Option<BoxFuture<'static, Result<(), SubscriptionLost>>>,
}

impl AckSaved {
    /// The version that includes the answer.
    pub(in crate::topics::durable) fn version(&self) -> u64 {
        self.version
    }
}

impl Future for AckSaved {
    type Output = Result<(), SubscriptionLost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let waiting = this.waiting.get_or_insert_with(|| {
            let (shared, version) = (this.shared.clone(), this.version);
            Box::pin(async move { shared.until_saved(version).await })
        });
        waiting.as_mut().poll(cx)
    }
}

impl fmt::Debug for AckSaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AckSaved")
    }
}
