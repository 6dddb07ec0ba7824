//! A line of a broker with a tap: the line of the inbox, which also reports what the inbox took.

use std::sync::Arc;
use std::task::Context;

use super::{Line, LinePlace};
use crate::envelope::{AnyEnvelope, Envelope};
use crate::id::SubscriptionId;
use crate::mailbox::{Closed, TryPushError};
use crate::watch::tap::{FlowEvent, Tap};

/// A line that reports what it took.
pub(crate) struct TappedLine<T> {
    line: Line<T>,
    tell: Teller,
}

/// Reports what one subscription's inbox took.
#[derive(Clone)]
struct Teller {
    id: SubscriptionId,
    tap: Arc<dyn Tap>,
}

impl Teller {
    fn delivered(&self, envelope: &dyn AnyEnvelope) {
        self.tap.on_flow(&FlowEvent::Delivered {
            envelope,
            to: self.id,
        });
    }
}

impl<T> TappedLine<T> {
    pub(crate) fn new(line: Line<T>, id: SubscriptionId, tap: &Arc<dyn Tap>) -> Self {
        let tell = Teller {
            id,
            tap: Arc::clone(tap),
        };
        Self { line, tell }
    }
}

impl<T> Clone for TappedLine<T> {
    fn clone(&self) -> Self {
        Self {
            line: self.line.clone(),
            tell: self.tell.clone(),
        }
    }
}

impl<T: Send + Sync + 'static> TappedLine<T> {
    pub(crate) fn try_push(&self, envelope: Arc<Envelope<T>>) -> Result<(), TryPushError<Arc<Envelope<T>>>> {
        let seen = Arc::clone(&envelope);
        self.line.try_push(envelope)?;
        self.tell.delivered(&*seen);
        Ok(())
    }

    pub(crate) fn try_push_batch(&self, envelopes: Vec<Arc<Envelope<T>>>) -> (usize, Vec<Arc<Envelope<T>>>) {
        let seen = envelopes.clone();
        let (taken, rest) = self.line.try_push_batch(envelopes);
        seen[..taken]
            .iter()
            .for_each(|envelope| self.tell.delivered(&**envelope));
        (taken, rest)
    }

    pub(crate) fn push_displacing(
        &self,
        envelope: Arc<Envelope<T>>,
        dropped: &mut dyn FnMut(Arc<dyn AnyEnvelope>),
    ) -> Result<(), Closed<Arc<Envelope<T>>>> {
        let seen = Arc::clone(&envelope);
        let mut displaced: Vec<Arc<dyn AnyEnvelope>> = Vec::new();
        self.line
            .push_displacing(envelope, &mut |envelope| displaced.push(envelope))?;
        if displaced.iter().all(|dropped| dropped.id() != seen.id()) {
            self.tell.delivered(&*seen);
        }
        displaced.into_iter().for_each(dropped);
        Ok(())
    }

    pub(crate) fn place(&self) -> TappedPlace<T> {
        TappedPlace {
            place: self.line.place(),
            tell: self.tell.clone(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }
}

/// A place in the line before a tapped inbox.
pub(crate) struct TappedPlace<T> {
    place: LinePlace<T>,
    tell: Teller,
}

impl<T: Send + Sync + 'static> TappedPlace<T> {
    pub(crate) fn poll(
        &mut self,
        envelope: &Arc<Envelope<T>>,
        cx: &mut Context<'_>,
    ) -> Result<(), TryPushError<()>> {
        self.place.poll(envelope, cx)?;
        self.tell.delivered(&**envelope);
        Ok(())
    }
}
