//! What this thread is handling now.
//!
//! A handler's future is polled inside a [`Scope`], so that envelopes it publishes name the handled envelope as their cause,
//! and so that its waits are known to delay its own subscription. A service does that for its handler; other consumers use
//! [`Inbox::handling`](crate::Inbox::handling). The scope is entered for each poll and left after it; tasks that the handler
//! spawns are outside of it.

use std::cell::Cell;

use super::AnyEnvelope;
use super::header::{Headers, Lineage};
use crate::id::SubscriptionId;

#[derive(Clone, Copy)]
pub(crate) struct Scope {
    pub(crate) lineage: Lineage,
    pub(crate) subscription: SubscriptionId,
}

thread_local! {
    static CURRENT: Cell<Option<Scope>> = const { Cell::new(None) };
}

impl Scope {
    pub(crate) fn new(envelope: &(impl AnyEnvelope + ?Sized), subscription: SubscriptionId) -> Self {
        let lineage = Lineage {
            correlation: envelope.correlation(),
            causation: envelope.id(),
        };
        Self {
            lineage,
            subscription,
        }
    }

    /// The innermost scope of this thread.
    #[inline]
    pub(crate) fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Runs `work` inside this scope.
    pub(crate) fn enter<R>(self, work: impl FnOnce() -> R) -> R {
        struct Leave(Option<Scope>);
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _leave = Leave(CURRENT.replace(Some(self)));
        work()
    }
}

impl Headers {
    /// The envelope is a consequence of `cause`: it gets its correlation id, and its causation id is the id of `cause`.
    #[must_use]
    pub fn caused_by(mut self, cause: &dyn AnyEnvelope) -> Self {
        self.lineage = Some(Lineage {
            correlation: cause.correlation(),
            causation: cause.id(),
        });
        self
    }

    /// Names the envelope that this thread handles as the cause, unless there is one already.
    #[inline]
    pub(crate) fn in_scope(mut self) -> Self {
        if self.lineage.is_none() {
            self.lineage = Scope::current().map(|scope| scope.lineage);
        }
        self
    }
}
