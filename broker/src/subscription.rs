//! An interest in topics, and the inbox it fills.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun_core::Bell;

use crate::broker::Shared;
use crate::mailbox::{InHand, Mailbox, MailboxConfig, MailboxStats};
use crate::name::Filter;
use crate::receiver::Receiver;

/// Names a subscription within its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub(crate) u64);

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subscription-{}", self.0)
    }
}

/// What happens to an envelope that meets a full inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The publisher waits. Others, and other topics, are not held up.
    #[default]
    Block,
    /// The publisher is told, and gets the envelope back.
    Fail,
    /// The envelope is dropped and counted.
    DropNewest,
    /// The oldest queued envelopes are dropped and counted, until the new one fits.
    DropOldest,
}

/// How a subscription behaves. The default is an inbox of 256 envelopes or 16 MiB, `Block`, no
/// group.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionConfig {
    /// For people: the name that the topology shows. Default: empty.
    pub name: String,
    /// How much the inbox holds, queued and in hand. Default: 256 envelopes, 16 MiB.
    pub inbox: MailboxConfig,
    /// What happens when the inbox is full. Default: [`Overflow::Block`].
    pub overflow: Overflow,
    /// The queue group it belongs to: of all members that match a topic, one gets each envelope.
    /// Default: none.
    pub group: Option<GroupConfig>,
}

/// Membership of a queue group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// The group's name; members have it in common, whatever their filters are.
    pub name: String,
    /// Who gets the next envelope. All members must agree.
    pub choice: GroupChoice,
}

/// Which member of a queue group gets an envelope. Members without room are passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupChoice {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The one with the fewest envelopes queued and in hand.
    LeastLoaded,
}

/// What the broker knows of a subscription, whatever its type.
pub(crate) struct SubscriptionCore {
    pub(crate) id: SubscriptionId,
    pub(crate) name: String,
    pub(crate) filter: Filter,
    pub(crate) overflow: Overflow,
    pub(crate) group: Option<GroupConfig>,
    pub(crate) dropped_newest: AtomicU64,
    pub(crate) dropped_oldest: AtomicU64,
}

/// The receiving end of a subscription. A cheap clone; all clones are the same inbox, and the
/// subscription ends when the last is dropped: what is queued then is discarded and counted.
///
/// `E` is [`Envelope<T>`](crate::Envelope), or `dyn` [`AnyEnvelope`](crate::AnyEnvelope).
///
/// # Ordering
/// The envelopes of one publisher come out in the order in which it published them.
pub struct Inbox<E: ?Sized>(Arc<Owner<E>>);

struct Owner<E: ?Sized> {
    core: Arc<SubscriptionCore>,
    mailbox: Mailbox<Arc<E>>,
    broker: Arc<Shared>,
}

impl<E: ?Sized> Inbox<E> {
    pub(crate) fn new(core: Arc<SubscriptionCore>, mailbox: Mailbox<Arc<E>>, broker: Arc<Shared>) -> Self {
        Self(Arc::new(Owner {
            core,
            mailbox,
            broker,
        }))
    }

    /// The subscription's id.
    #[must_use]
    pub fn id(&self) -> SubscriptionId {
        self.0.core.id
    }

    /// Takes all that is queued, see [`Mailbox::take`].
    pub fn take(&self) -> InHand<Arc<E>> {
        self.0.mailbox.take()
    }

    /// The bell that rings when envelopes have come or the inbox was closed. Connect it to the
    /// consumer, and answer it before each [`Inbox::take`].
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

    /// Ends the subscription, leaving what is queued to be taken.
    pub fn close(&self) {
        self.0.broker.unsubscribe(self.0.core.id);
        self.0.mailbox.close();
    }

    /// Ends the subscription and drops what is queued; returns how many envelopes that were.
    pub fn close_discarding(&self) -> usize {
        self.0.broker.unsubscribe(self.0.core.id);
        self.0.mailbox.close_discarding().len()
    }

    /// What has happened in the inbox so far.
    #[must_use]
    pub fn stats(&self) -> MailboxStats {
        self.0.mailbox.stats()
    }

    /// How many envelopes [`Overflow::DropNewest`] and [`Overflow::DropOldest`] have dropped here.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.core.dropped_newest.load(Ordering::Relaxed)
            + self.0.core.dropped_oldest.load(Ordering::Relaxed)
    }

    /// A receiver to be awaited, which takes over the inbox's bell.
    #[must_use]
    pub fn into_receiver(self) -> Receiver<E> {
        Receiver::new(self)
    }
}

impl<E: ?Sized> Drop for Owner<E> {
    fn drop(&mut self) {
        self.broker.unsubscribe(self.core.id);
        drop(self.mailbox.close_discarding());
    }
}

impl<E: ?Sized> Clone for Inbox<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: ?Sized> fmt::Debug for Inbox<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("id", &self.0.core.id)
            .field("name", &self.0.core.name)
            .field("filter", &self.0.core.filter)
            .field("mailbox", &self.0.mailbox)
            .finish_non_exhaustive()
    }
}
