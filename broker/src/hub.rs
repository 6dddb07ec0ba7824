//! What all topics of a broker share on the data path: time, ids, counters.
//!
//! It knows neither topics nor subscriptions, so that a topic can hold on to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun_core::{Host, Timestamp};

use crate::clock::Clock;
use crate::envelope::AnyEnvelope;

pub(crate) struct Hub {
    clock: Arc<Clock>,
    next_id: AtomicU64,
    unrouted: AtomicU64,
    dropped: AtomicU64,
}

impl Hub {
    pub(crate) fn new(host: Option<Arc<dyn Host>>) -> Self {
        // The low 40 bits count; the rest is the mark of this run.
        let mark = host.as_ref().map_or(0, |host| host.random()) << 40;
        Self {
            clock: Clock::new(host),
            next_id: AtomicU64::new(mark | 1),
            unrouted: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn advance(&self, now: Timestamp) {
        self.clock.advance(now);
    }

    /// Takes `count` consecutive ids and returns the first.
    pub(crate) fn take_ids(&self, count: u64) -> u64 {
        self.next_id.fetch_add(count, Ordering::Relaxed)
    }

    /// Nobody wants this envelope.
    pub(crate) fn on_unrouted(&self, envelope: Arc<dyn AnyEnvelope>) {
        self.unrouted.fetch_add(1, Ordering::Relaxed);
        drop(envelope);
    }

    /// An inbox let go of this envelope, as its policy says.
    pub(crate) fn on_dropped(&self, envelope: Arc<dyn AnyEnvelope>) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        drop(envelope);
    }

    pub(crate) fn unrouted(&self) -> u64 {
        self.unrouted.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
