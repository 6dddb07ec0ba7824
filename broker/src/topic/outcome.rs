//! The results of a publish.

use std::fmt;
use std::sync::Arc;

use crate::envelope::Envelope;
use crate::id::EnvelopeId;
use crate::id::SubscriptionId;

/// What happened to an accepted envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The envelope's id.
    pub id: EnvelopeId,
    /// How many inboxes took it. Zero if there is no subscription or all dropped it by policy.
    pub delivered: usize,
}

/// Why an envelope did not reach all inboxes that want it. It comes back, with the subscriptions that it did not reach;
/// [`Publisher::retry`](crate::Publisher::retry) tries only these again.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PublishError<T> {
    /// An inbox has no room, and either its policy is to refuse or the publisher would not wait.
    #[error("the publish met full inboxes: {}", .0.by().len())]
    Full(Box<RefusedEnvelope<T>>),
    /// An inbox had no room for as long as the publisher would wait.
    #[error("the publish waited at inboxes that stayed full: {}", .0.by().len())]
    TimedOut(Box<RefusedEnvelope<T>>),
    /// The broker has been [closed](crate::Broker::close), and no inbox has the envelope.
    #[error("the broker is closed")]
    Closed(Box<RefusedEnvelope<T>>),
}

impl<T> PublishError<T> {
    /// The error for a refusal where the publisher has not waited for a limited time.
    pub(crate) fn of(refused: Box<RefusedEnvelope<T>>) -> Self {
        if refused.is_closed {
            Self::Closed(refused)
        } else {
            Self::Full(refused)
        }
    }

    /// The envelope, and the subscriptions that refused it; none, if the broker is closed.
    #[must_use]
    pub fn into_refused(self) -> RefusedEnvelope<T> {
        match self {
            Self::Full(refused) | Self::TimedOut(refused) | Self::Closed(refused) => *refused,
        }
    }

    /// Whether the same publish may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Full(_) | Self::TimedOut(_) => true,
            Self::Closed(_) => false,
        }
    }
}

impl<T> fmt::Debug for PublishError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(refused) => f.debug_tuple("Full").field(refused).finish(),
            Self::TimedOut(refused) => f.debug_tuple("TimedOut").field(refused).finish(),
            Self::Closed(refused) => f.debug_tuple("Closed").field(refused).finish(),
        }
    }
}

/// An envelope that some inboxes did not take.
pub struct RefusedEnvelope<T> {
    pub(crate) envelope: Arc<Envelope<T>>,
    pub(crate) by: Vec<SubscriptionId>,
    pub(crate) delivered: usize,
    /// An inbox has dropped it by its policy or, for a batch, has it.
    pub(crate) is_settled: bool,
    pub(crate) is_closed: bool,
}

impl<T> RefusedEnvelope<T> {
    /// The result for an envelope that a closed broker refuses.
    pub(crate) const fn closed(envelope: Arc<Envelope<T>>) -> Self {
        Self {
            envelope,
            by: Vec::new(),
            delivered: 0,
            is_settled: false,
            is_closed: true,
        }
    }

    /// Whether no inbox has it because the broker has been [closed](crate::Broker::close).
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The envelope.
    #[must_use]
    pub const fn envelope(&self) -> &Arc<Envelope<T>> {
        &self.envelope
    }

    /// The subscriptions that did not take it; for a queue group, all its members.
    /// [`Broker::subscription`](crate::Broker::subscription) has their names.
    #[must_use]
    pub fn by(&self) -> &[SubscriptionId] {
        &self.by
    }

    /// How many inboxes took it. Not known for an envelope of a batch, and then zero.
    #[must_use]
    pub const fn delivered(&self) -> usize {
        self.delivered
    }

    /// The payload, if no inbox took the envelope.
    ///
    /// # Errors
    /// The envelope, when others hold it too.
    pub fn into_payload(self) -> Result<T, Arc<Envelope<T>>> {
        self.envelope.into_payload()
    }
}

impl<T> fmt::Debug for RefusedEnvelope<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedEnvelope")
            .field("envelope", &self.envelope)
            .field("by", &self.by)
            .field("delivered", &self.delivered)
            .finish()
    }
}

/// Part of a batch did not reach all that want it.
#[derive(thiserror::Error)]
#[error("{} deliveries of the batch met a full inbox or a closed broker", .refused.len())]
pub struct PublishBatchError<T> {
    /// Each envelope that was refused, once for each target that refused it, in order per target.
    pub refused: Vec<RefusedEnvelope<T>>,
}

impl<T> fmt::Debug for PublishBatchError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishBatchError")
            .field("refused", &self.refused)
            .finish()
    }
}
