//! A subscription to topics, and its settings.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::id::SubscriptionId;
use crate::mailbox::MailboxConfig;
use crate::name::Filter;

/// What happens to an envelope when the inbox is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The publisher waits. Other publishers and other topics are not delayed.
    #[default]
    Block,
    /// The publisher gets the envelope back, with an error.
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
    /// The name that the topology shows to readers. Default: empty.
    pub name: String,
    /// How much the inbox holds, queued and in hand. Default: 256 envelopes, 16 MiB.
    pub inbox: MailboxConfig,
    /// What happens when the inbox is full. Default: [`Overflow::Block`].
    pub overflow: Overflow,
    /// The queue group it belongs to: one of all the members that match a topic gets each envelope. Default: none.
    pub group: Option<GroupConfig>,
}

/// Membership of a queue group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// The group's name, the same for all members, whatever their filters are.
    pub name: String,
    /// How the member that gets the next envelope is chosen. All members must agree.
    pub choice: GroupChoice,
}

/// Which member of a queue group gets an envelope. Members without room are skipped.
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
    dropped: AtomicU64,
    expired: AtomicU64,
    failed: AtomicU64,
    handled: AtomicU64,
    handler_nanos: AtomicU64,
    passed_over: AtomicU64,
}

/// What has happened to the envelopes of a subscription after they left its inbox, or because they found no room in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionStats {
    /// Dropped by [`Overflow::DropNewest`] or [`Overflow::DropOldest`].
    pub dropped: u64,
    /// Handed out after their expiry, and given up.
    pub expired: u64,
    /// Given up by a service because its handler kept failing.
    pub failed: u64,
    /// Handled by a service.
    pub handled: u64,
    /// The total time that a service's handler took, pauses before retries included.
    pub handler_time: std::time::Duration,
    /// Topics that the filter selects but that carry another payload type than the subscription takes.
    pub topics_passed_over: u64,
}

impl SubscriptionCore {
    pub(crate) fn new(id: SubscriptionId, filter: Filter, config: SubscriptionConfig) -> Self {
        Self {
            id,
            name: config.name,
            filter,
            overflow: config.overflow,
            group: config.group,
            dropped: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            handler_nanos: AtomicU64::new(0),
            passed_over: AtomicU64::new(0),
        }
    }

    pub(crate) fn count_drop(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_handled(&self, took: std::time::Duration) {
        self.handled.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.handler_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts a topic of another payload type.
    pub(crate) fn count_passed_over(&self) {
        self.passed_over.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> SubscriptionStats {
        SubscriptionStats {
            dropped: self.dropped.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            handled: self.handled.load(Ordering::Relaxed),
            handler_time: std::time::Duration::from_nanos(self.handler_nanos.load(Ordering::Relaxed)),
            topics_passed_over: self.passed_over.load(Ordering::Relaxed),
        }
    }
}

/// Ends subscriptions. The broker implements it; an inbox knows the broker only through this trait.
pub(crate) trait Unsubscribe: Send + Sync {
    /// Removes the subscription from all routes, if it is still there.
    fn unsubscribe(&self, id: SubscriptionId);
}
