//! The receiving end of a subscription.

mod envelopes;
mod handling;
mod receiver;
mod service;

use std::fmt;
use std::sync::Arc;

use millrun_core::Bell;

pub use envelopes::Envelopes;
pub use handling::Handling;
pub use receiver::Receiver;
pub use service::{FailurePolicy, LastResort, ServeError, Service, ServiceConfig, ServiceEnd};

use crate::delivery::Delivery;
use crate::envelope::AnyEnvelope;
use crate::hub::Hub;
use crate::id::SubscriptionId;
use crate::mailbox::{Mailbox, MailboxStats};
use crate::subscription::{SubscriptionCore, SubscriptionStats, Unsubscribe};
use crate::watch::dead_letter::Undeliverable;

/// Holds the waiting envelopes of a subscription. A cheap clone; all clones are the same inbox, and the subscription ends
/// when the last is dropped: queued envelopes are then discarded and counted.
///
/// `E` is [`Envelope<T>`](crate::Envelope), or `dyn` [`AnyEnvelope`] for a subscription that takes payloads of any type.
///
/// The inbox outlives its consumer: a consumer that takes over a clone continues where the former consumer stopped; envelopes
/// that the former one had in hand are at the front again.
///
/// # Ordering
/// The envelopes of one publisher come out in the order in which it published them.
pub struct Inbox<E: AnyEnvelope + ?Sized>(Arc<InboxOwner<E>>);

struct InboxOwner<E: AnyEnvelope + ?Sized> {
    core: Arc<SubscriptionCore>,
    mailbox: Mailbox<Delivery<E>>,
    hub: Arc<Hub>,
    /// Kept as long as the inbox exists.
    broker: Arc<dyn Unsubscribe>,
}

impl<E: AnyEnvelope + ?Sized> Inbox<E> {
    pub(crate) fn new(
        core: Arc<SubscriptionCore>,
        mailbox: Mailbox<Delivery<E>>,
        hub: Arc<Hub>,
        broker: Arc<dyn Unsubscribe>,
    ) -> Self {
        Self(Arc::new(InboxOwner {
            core,
            mailbox,
            hub,
            broker,
        }))
    }

    /// The subscription's id.
    #[must_use]
    pub fn id(&self) -> SubscriptionId {
        self.0.core.id
    }

    /// Takes all that is queued, see [`Mailbox::take`]. Unlike the other ways to receive, it also hands out expired
    /// envelopes.
    pub fn take(&self) -> Envelopes<E> {
        Envelopes::new(self.0.mailbox.take())
    }

    pub(crate) fn empty_batch(&self) -> Envelopes<E> {
        Envelopes::new(self.0.mailbox.empty_hand())
    }

    /// The bell that rings when envelopes have arrived or the inbox was closed. Connect it to the consumer, and answer it
    /// before each [`Inbox::take`].
    #[must_use]
    pub fn bell(&self) -> &Bell {
        self.0.mailbox.bell()
    }

    /// How many envelopes are queued or in hand.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.mailbox.len()
    }

    /// Whether none is queued or in hand.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.mailbox.is_empty()
    }

    /// Whether nothing is left and nothing can come any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.mailbox.is_finished()
    }

    /// Ends the subscription; queued envelopes can still be taken.
    pub fn close(&self) {
        self.0.broker.unsubscribe(self.0.core.id);
        self.0.mailbox.close();
    }

    /// Ends the subscription and gives up queued envelopes; returns how many that were. Envelopes that a consumer has in hand
    /// are not counted: they are dropped when the hand is returned.
    pub fn close_discarding(&self) -> usize {
        self.0.broker.unsubscribe(self.0.core.id);
        let discarded = self.0.mailbox.close_discarding();
        let each = discarded.into_iter().flat_map(Delivery::into_each);
        each.map(|envelope| self.give_up(envelope, Undeliverable::Discarded))
            .count()
    }

    /// What has happened in the inbox so far.
    #[must_use]
    pub fn stats(&self) -> MailboxStats {
        self.0.mailbox.stats()
    }

    /// What has happened to envelopes outside of the inbox.
    #[must_use]
    pub fn subscription_stats(&self) -> SubscriptionStats {
        self.0.core.stats()
    }

    pub(crate) fn core(&self) -> &SubscriptionCore {
        &self.0.core
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.0.hub
    }

    /// Returns an envelope that was taken to the front.
    pub(crate) fn give_back(&self, envelope: Arc<E>) {
        if let Err(envelope) = self.0.mailbox.give_back(Delivery::Shared(envelope)) {
            self.give_up(envelope.into_shared(), Undeliverable::Discarded);
        }
    }

    pub(crate) fn give_up(&self, envelope: Arc<E>, reason: Undeliverable) {
        self.hub().give_up(envelope.into_dyn(), reason, Some(self.id()));
    }

    /// Counts and gives up an expired envelope.
    pub(crate) fn give_up_expired(&self, envelope: Arc<E>) {
        self.core().count_expired();
        self.give_up(envelope, Undeliverable::Expired);
    }
}

impl<E: AnyEnvelope + ?Sized> Envelopes<E> {
    /// As [`Envelopes::advance`], to the next one that has not expired.
    #[inline]
    pub(crate) fn advance_in(&mut self, inbox: &Inbox<E>) -> bool {
        while self.advance() {
            let Some(expires) = self.current().and_then(AnyEnvelope::expires) else {
                return true;
            };
            if inbox.hub().clock().exact_now() < expires {
                return true;
            }
            if let Some(expired) = self.give_away() {
                inbox.give_up_expired(expired);
            }
        }
        false
    }
}

impl<E: AnyEnvelope + ?Sized> Drop for InboxOwner<E> {
    fn drop(&mut self) {
        self.broker.unsubscribe(self.core.id);
        let discarded = self.mailbox.close_discarding();
        for envelope in discarded.into_iter().flat_map(Delivery::into_each) {
            self.hub
                .give_up(envelope.into_dyn(), Undeliverable::Discarded, Some(self.core.id));
        }
    }
}

impl<E: AnyEnvelope + ?Sized> Clone for Inbox<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: AnyEnvelope + ?Sized> fmt::Debug for Inbox<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("id", &self.0.core.id)
            .field("name", &self.0.core.name)
            .field("filter", &self.0.core.filter)
            .field("mailbox", &self.0.mailbox)
            .finish_non_exhaustive()
    }
}
