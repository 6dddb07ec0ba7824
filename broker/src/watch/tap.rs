//! Observing each step of each envelope, for tests and for tracing.
//!
//! ```text
//!   publisher ──► route ──► tapped lane ──► inbox ──► service or consumer
//!                              │ Delivered              │ Begun, Handled, …
//!                              └────────► Tap ◄─────────┘
//! ```
//!
//! A broker without a tap pays nothing for this on its data path: the lanes of a tapped broker are of another kind, and all
//! other steps are reported where an envelope has already left the path.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::envelope::AnyEnvelope;
use crate::id::EnvelopeId;
use crate::id::SubscriptionId;
use crate::mailbox::AnyMailbox;
use crate::mailbox::MailboxStats;
use crate::name::Filter;
use crate::subscription::SubscriptionCore;
use crate::watch::dead_letter::Undeliverable;

/// Gets each step of each envelope; see [`Broker::tap`](crate::Broker::tap).
///
/// # Ordering
/// The steps of one envelope at one subscription are reported in order as far as one thread causes them. A consumer on
/// another thread may be faster than the publisher: it may report [`Begun`](FlowEvent::Begun) before the publisher has
/// reported [`Delivered`](FlowEvent::Delivered).
pub trait Tap: Send + Sync + 'static {
    /// Called on the thread that makes the step, which it delays, and possibly while locks of the broker are held: it may
    /// only use the [probes](InboxProbe) that it was given, and nothing else of the broker. It must neither block nor panic.
    fn on_flow(&self, event: &FlowEvent<'_>);
}

/// One step of an envelope.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum FlowEvent<'a> {
    /// A subscription was added, or existed when the tap was added. It may be reported twice.
    Subscribed(&'a InboxProbe),
    /// An inbox took the envelope.
    Delivered {
        /// Which envelope.
        envelope: &'a dyn AnyEnvelope,
        /// Whose inbox.
        to: SubscriptionId,
    },
    /// An inbox is full, and the publisher waits for it.
    Waits {
        /// Which envelope.
        envelope: &'a dyn AnyEnvelope,
        /// Whose inbox.
        at: SubscriptionId,
    },
    /// The publisher waits no longer: if an inbox took the envelope, that was reported as `Delivered`.
    WaitOver {
        /// Which envelope.
        envelope: EnvelopeId,
    },
    /// An inbox is full, and the publisher got an error at once.
    Refused {
        /// Which envelope.
        envelope: &'a dyn AnyEnvelope,
        /// Whose inbox.
        by: SubscriptionId,
    },
    /// A consumer begins to handle the envelope: a service, or code that uses [`Inbox::handling`](crate::Inbox::handling).
    Begun {
        /// Which envelope.
        envelope: &'a dyn AnyEnvelope,
        /// Whose consumer.
        by: SubscriptionId,
    },
    /// A service's handler failed or panicked; its policy says what happens next.
    Failed {
        /// Which envelope.
        envelope: &'a dyn AnyEnvelope,
        /// Whose handler.
        by: SubscriptionId,
        /// At which attempt, counted from 1.
        attempt: u32,
        /// The handler's error.
        cause: &'a str,
    },
    /// A service's handler succeeded.
    Handled {
        /// Which envelope.
        envelope: &'a dyn AnyEnvelope,
        /// Whose handler.
        by: SubscriptionId,
    },
    /// A service was cut off or gave up, and the envelope is at the front of its inbox again.
    PutBack {
        /// Which envelope.
        envelope: &'a dyn AnyEnvelope,
        /// Whose inbox.
        by: SubscriptionId,
    },
    /// The handling that [`FlowEvent::Begun`] reported has ended, whatever the result.
    Ended {
        /// Which envelope.
        envelope: EnvelopeId,
        /// Whose consumer.
        by: SubscriptionId,
    },
    /// The envelope was given up.
    GivenUp {
        /// Which envelope.
        envelope: &'a dyn AnyEnvelope,
        /// Why.
        reason: Undeliverable,
        /// The subscription that it did not reach; `None` if no subscription matched.
        subscription: Option<SubscriptionId>,
    },
    /// A consumer has put its hand down, and its inbox is empty.
    Emptied(SubscriptionId),
}

/// Observes the inbox of one subscription, without keeping the subscription alive.
#[derive(Clone)]
pub struct InboxProbe {
    pub(crate) core: Arc<SubscriptionCore>,
    pub(crate) mailbox: Arc<dyn AnyMailbox>,
}

impl InboxProbe {
    /// The subscription's id.
    #[must_use]
    pub fn id(&self) -> SubscriptionId {
        self.core.id
    }

    /// The subscription's name for readers; may be empty.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// What the subscription selects.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.core.filter
    }

    /// What has happened in the inbox so far.
    #[must_use]
    pub fn stats(&self) -> MailboxStats {
        self.mailbox.stats()
    }

    /// Whether nothing is left in the inbox and nothing can come any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.mailbox.is_finished()
    }
}

impl fmt::Debug for InboxProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxProbe")
            .field("id", &self.core.id)
            .field("name", &self.core.name)
            .field("filter", &self.core.filter)
            .finish_non_exhaustive()
    }
}

/// A broker has one tap, and this one has it already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker has a tap already, and it stays for the broker's life")]
pub struct AlreadyTapped;

/// The broker's tap, if it has one.
#[derive(Default)]
pub(crate) struct TapSlot(OnceLock<Arc<dyn Tap>>);

impl TapSlot {
    pub(crate) fn set(&self, tap: Arc<dyn Tap>) -> Result<(), AlreadyTapped> {
        self.0.set(tap).map_err(|_| AlreadyTapped)
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&Arc<dyn Tap>> {
        self.0.get()
    }

    #[inline]
    pub(crate) fn tell(&self, event: FlowEvent<'_>) {
        if let Some(tap) = self.get() {
            tap.on_flow(&event);
        }
    }
}

/// Reports, when it is dropped, that the handling of an envelope has ended.
pub(crate) struct AtWork {
    slot: Arc<TapSlot>,
    envelope: EnvelopeId,
    by: SubscriptionId,
}

impl TapSlot {
    /// Reports that the handling has begun; does nothing without a tap.
    #[inline]
    pub(crate) fn begin(
        self: &Arc<Self>,
        envelope: &(impl AnyEnvelope + ?Sized),
        by: SubscriptionId,
    ) -> Option<AtWork> {
        let tap = self.get()?;
        tap.on_flow(&FlowEvent::Begun {
            envelope: envelope.as_dyn(),
            by,
        });
        Some(AtWork {
            slot: Arc::clone(self),
            envelope: envelope.id(),
            by,
        })
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.slot.tell(FlowEvent::Ended {
            envelope: self.envelope,
            by: self.by,
        });
    }
}
