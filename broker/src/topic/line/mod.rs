//! The access to one inbox for a topic's publishers.
//!
//! ```text
//!   Line ─┬─ Typed: an inbox of this payload type
//!         ├─ Any: an inbox of all types
//!         └─ Tapped: one of the two, in a broker with a tap (`tapped`)
//! ```

mod tapped;

use std::sync::Arc;
use std::task::Context;

pub(crate) use tapped::{TappedLine, TappedPlace};

use crate::delivery::Delivery;
use crate::envelope::{AnyEnvelope, Envelope};
use crate::mailbox::{Closed, Mailbox, PushPlace, TryPushError};

/// The mailbox of a lane.
pub(crate) enum Line<T> {
    Typed(Mailbox<Delivery<Envelope<T>>>),
    Any(Mailbox<Delivery<dyn AnyEnvelope>>),
    /// One of the two, in a tapped broker.
    Tapped(Box<TappedLine<T>>),
}

impl<T> Clone for Line<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Typed(mailbox) => Self::Typed(mailbox.clone()),
            Self::Any(mailbox) => Self::Any(mailbox.clone()),
            Self::Tapped(tapped) => Self::Tapped(tapped.clone()),
        }
    }
}

impl<T: Send + Sync + 'static> Line<T> {
    #[inline]
    pub(crate) fn try_push(&self, envelope: Arc<Envelope<T>>) -> Result<(), TryPushError<Arc<Envelope<T>>>> {
        match self {
            Self::Typed(mailbox) => {
                let weight = envelope.mailbox_weight();
                mailbox
                    .try_push_weighed(Delivery::Shared(envelope), weight, None)
                    .map_err(|refused| refused.map(Delivery::into_shared))
            }
            Self::Any(mailbox) => {
                let any: Arc<dyn AnyEnvelope> = Arc::<Envelope<T>>::clone(&envelope);
                mailbox
                    .try_push(Delivery::Shared(any))
                    .map_err(|error| match error {
                        TryPushError::Full(_) => TryPushError::Full(envelope),
                        TryPushError::Closed(_) => TryPushError::Closed(envelope),
                    })
            }
            Self::Tapped(tapped) => tapped.try_push(envelope),
        }
    }

    /// Pushes as many as fit, in order. Returns how many that were, with the others: all of them, if the inbox is closed.
    pub(crate) fn try_push_batch(&self, envelopes: Vec<Arc<Envelope<T>>>) -> (usize, Vec<Arc<Envelope<T>>>) {
        let all = envelopes.len();
        match self {
            Self::Typed(mailbox) => {
                let shared = envelopes.into_iter().map(Delivery::Shared).collect();
                let rest = match mailbox.try_push_batch(shared) {
                    Ok(()) => Vec::new(),
                    Err(refused) => refused.into_inner(),
                };
                let taken = all - rest.len();
                (taken, rest.into_iter().map(Delivery::into_shared).collect())
            }
            Self::Any(mailbox) => {
                let any: Vec<Delivery<dyn AnyEnvelope>> = envelopes
                    .iter()
                    .map(|envelope| Delivery::Shared(Arc::clone(envelope) as Arc<dyn AnyEnvelope>))
                    .collect();
                let rest = match mailbox.try_push_batch(any) {
                    Ok(()) => 0,
                    Err(refused) => refused.into_inner().len(),
                };
                let taken = all - rest;
                (taken, envelopes.into_iter().skip(taken).collect())
            }
            Self::Tapped(tapped) => tapped.try_push_batch(envelopes),
        }
    }

    /// Pushes and, if necessary, displaces the oldest envelopes, which go to `dropped`.
    pub(crate) fn push_displacing(
        &self,
        envelope: Arc<Envelope<T>>,
        dropped: &mut dyn FnMut(Arc<dyn AnyEnvelope>),
    ) -> Result<(), Closed<Arc<Envelope<T>>>> {
        match self {
            Self::Typed(mailbox) => {
                let mut displaced = Vec::new();
                mailbox
                    .push_displacing(Delivery::Shared(envelope), &mut displaced)
                    .map_err(|Closed(back)| Closed(back.into_shared()))?;
                displaced
                    .into_iter()
                    .for_each(|delivery| dropped(delivery.into_shared()));
            }
            Self::Any(mailbox) => {
                let mut displaced = Vec::new();
                let any: Arc<dyn AnyEnvelope> = Arc::<Envelope<T>>::clone(&envelope);
                mailbox
                    .push_displacing(Delivery::Shared(any), &mut displaced)
                    .map_err(|Closed(_)| Closed(envelope))?;
                displaced
                    .into_iter()
                    .for_each(|delivery| dropped(delivery.into_shared()));
            }
            Self::Tapped(tapped) => tapped.push_displacing(envelope, dropped)?,
        }
        Ok(())
    }

    pub(crate) fn place(&self) -> LinePlace<T> {
        match self {
            Self::Typed(mailbox) => LinePlace::Typed(PushPlace::new(mailbox.clone())),
            Self::Any(mailbox) => LinePlace::Any(PushPlace::new(mailbox.clone())),
            Self::Tapped(tapped) => LinePlace::Tapped(Box::new(tapped.place())),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Typed(mailbox) => mailbox.len(),
            Self::Any(mailbox) => mailbox.len(),
            Self::Tapped(tapped) => tapped.len(),
        }
    }
}

/// A publisher's place in the line before a full inbox.
pub(crate) enum LinePlace<T> {
    Typed(PushPlace<Delivery<Envelope<T>>>),
    Any(PushPlace<Delivery<dyn AnyEnvelope>>),
    Tapped(Box<TappedPlace<T>>),
}

impl<T: Send + Sync + 'static> LinePlace<T> {
    /// Pushes if this publisher is first in the line; else stays in it (`Full`).
    pub(crate) fn poll(
        &mut self,
        envelope: &Arc<Envelope<T>>,
        cx: &mut Context<'_>,
    ) -> Result<(), TryPushError<()>> {
        let refused = match self {
            Self::Typed(place) => place
                .poll(Delivery::Shared(Arc::clone(envelope)), cx)
                .map_err(|error| error.is_retryable()),
            Self::Any(place) => {
                let any: Arc<dyn AnyEnvelope> = Arc::<Envelope<T>>::clone(envelope);
                place
                    .poll(Delivery::Shared(any), cx)
                    .map_err(|error| error.is_retryable())
            }
            Self::Tapped(tapped) => return tapped.poll(envelope, cx),
        };
        refused.map_err(|full| {
            if full {
                TryPushError::Full(())
            } else {
                TryPushError::Closed(())
            }
        })
    }
}
