//! An interest in topics, and how it is served.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::id::SubscriptionId;
use crate::mailbox::MailboxConfig;
use crate::name::Filter;

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
    dropped: AtomicU64,
    expired: AtomicU64,
    failed: AtomicU64,
    handled: AtomicU64,
    handler_nanos: AtomicU64,
    passed_over: AtomicU64,
}

/// What has happened to the envelopes of a subscription after they left its inbox, or because they
/// could not get in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionStats {
    /// Dropped by [`Overflow::DropNewest`] or [`Overflow::DropOldest`].
    pub dropped: u64,
    /// Handed out after their time, and given up.
    pub expired: u64,
    /// Given up by a service because its handler kept failing.
    pub failed: u64,
    /// Handled by a service.
    pub handled: u64,
    /// How long a service's handler took for all of them, pauses before retries included.
    pub handler_time: std::time::Duration,
    /// Topics that the filter selects and that carry payloads of another type than the
    /// subscription takes, as they were declared or found.
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

/// Ends subscriptions. The broker does; an inbox knows it by this alone.
pub(crate) trait Unsubscribe: Send + Sync {
    /// Removes the subscription from all routes, if it is still there.
    fn unsubscribe(&self, id: SubscriptionId);
}
