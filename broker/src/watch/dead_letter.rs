//! What happens to envelopes that reach no inbox.
//!
//! Each is counted by its reason and, if there is a subscription to [`DEAD_LETTERS`], published there. A dead letter never
//! waits, and never becomes a dead letter again: one that finds no room is only counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::envelope::AnyEnvelope;
use crate::id::SubscriptionId;

/// The topic of [`DeadLetter`]s. Its first token starts with `$`, so no wildcard selects it by
/// chance.
pub const DEAD_LETTERS: &str = "$broker.dead-letters";

/// An envelope that reached no inbox, or not that of this subscription.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Why.
    pub reason: Undeliverable,
    /// The subscription that it did not reach; `None` if no subscription matched.
    pub subscription: Option<SubscriptionId>,
    /// The envelope.
    pub envelope: Arc<dyn AnyEnvelope>,
}

/// Why an envelope was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Undeliverable {
    /// No subscription matched its topic, or all that did were closed while it waited for room.
    Unrouted,
    /// The inbox was full, and its policy is [`Overflow::DropNewest`](crate::Overflow::DropNewest).
    DroppedNewest,
    /// It was the oldest in a full inbox with the policy [`Overflow::DropOldest`](crate::Overflow::DropOldest), or all
    /// envelopes of that inbox were in hand.
    DroppedOldest,
    /// It was handed out after its expiry.
    Expired,
    /// Its inbox was closed or dropped with it inside.
    Discarded,
    /// Its handler failed as often as its policy allows.
    Failed,
}

impl Undeliverable {
    const ALL: [Self; 6] = [
        Self::Unrouted,
        Self::DroppedNewest,
        Self::DroppedOldest,
        Self::Expired,
        Self::Discarded,
        Self::Failed,
    ];

    /// Its name in metrics: lower case, with underscores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unrouted => "unrouted",
            Self::DroppedNewest => "dropped_newest",
            Self::DroppedOldest => "dropped_oldest",
            Self::Expired => "expired",
            Self::Discarded => "discarded",
            Self::Failed => "failed",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Unrouted => 0,
            Self::DroppedNewest => 1,
            Self::DroppedOldest => 2,
            Self::Expired => 3,
            Self::Discarded => 4,
            Self::Failed => 5,
        }
    }
}

/// Takes dead letters: the topic that carries them, as the code that gives envelopes up sees it.
pub(crate) trait DeadLetterSink: Send + Sync {
    /// Whether there is a subscription.
    fn is_wanted(&self) -> bool;

    /// Publishes the letter; false if an inbox that wants it had no room.
    fn publish_dead_letter(&self, letter: DeadLetter) -> bool;
}

/// How many envelopes were given up, by reason.
#[derive(Default)]
pub(crate) struct Losses([AtomicU64; Undeliverable::ALL.len()]);

impl Losses {
    pub(crate) fn count(&self, reason: Undeliverable) {
        self.0[reason.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// The reasons that occurred.
    pub(crate) fn all(&self) -> Vec<(Undeliverable, u64)> {
        let all = Undeliverable::ALL
            .iter()
            .map(|reason| (*reason, self.of(*reason)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    pub(crate) fn of(&self, reason: Undeliverable) -> u64 {
        self.0[reason.index()].load(Ordering::Relaxed)
    }
}
