//! Reports to an observer what happens off the fast path.

use std::sync::{Arc, Mutex, PoisonError};

use millrun_core::Timestamp;

use crate::id::EnvelopeId;
use crate::id::SubscriptionId;
use crate::name::TopicName;
use crate::watch::dead_letter::Undeliverable;

/// An event that a broker's owner may want to log or count. Normal deliveries are not reported, only counted: see
/// [`Topology`](crate::Topology).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokerEvent {
    /// A subscription was added.
    Subscribed(SubscriptionId),
    /// A subscription was removed.
    Unsubscribed(SubscriptionId),
    /// A typed subscription skips a topic that its filter selects, because the topic carries another payload type. Reported
    /// once for each such pair, when the second of the two appears.
    PassedOver {
        /// Which subscription.
        subscription: SubscriptionId,
        /// Which topic.
        topic: TopicName,
        /// The topic's payload type.
        payload: &'static str,
    },
    /// An envelope was given up.
    GivenUp {
        /// Which.
        envelope: EnvelopeId,
        /// Why.
        reason: Undeliverable,
        /// The subscription that it did not reach; `None` if no subscription matched.
        subscription: Option<SubscriptionId>,
    },
    /// A handler failed or panicked; its policy says what happens next.
    HandlerFailed {
        /// Whose handler.
        subscription: SubscriptionId,
        /// With which envelope.
        envelope: EnvelopeId,
        /// At which attempt, counted from 1.
        attempt: u32,
        /// The handler's error.
        cause: String,
    },
    /// A publish has waited for longer than
    /// [`BrokerConfig::wait_report_after`](crate::BrokerConfig::wait_report_after).
    LongWait(LongWait),
}

/// A publish that has waited for long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LongWait {
    /// The subscription whose handler publishes; `None` for a publisher outside of any handler.
    pub held_up: Option<SubscriptionId>,
    /// The full inboxes.
    pub waits_for: Vec<SubscriptionId>,
    /// Since when, by the broker's coarse clock.
    pub since: Timestamp,
    /// The subscriptions that wait for each other, starting with `held_up`; empty if there is no cycle but only a slow
    /// consumer.
    pub cycle: Vec<SubscriptionId>,
}

type Hook = dyn Fn(&BrokerEvent) + Send + Sync;

#[derive(Default)]
pub(crate) struct Monitor(Mutex<Option<Arc<Hook>>>);

impl Monitor {
    pub(crate) fn set(&self, hook: Arc<Hook>) {
        let former = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(hook);
        drop(former);
    }

    pub(crate) fn tell(&self, event: impl FnOnce() -> BrokerEvent) {
        let hook = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(hook) = hook {
            hook(&event());
        }
    }
}
