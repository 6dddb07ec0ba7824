//! Handing one envelope to all that want it.
//!
//! ```text
//!   publish ──► route ─┬─► room: pushed
//!                      ├─► full, Block: waits, while the others get theirs
//!                      ├─► full, Fail: refused, named in the error
//!                      ├─► full, DropNewest or DropOldest: something is dropped and counted
//!                      └─► closed: passed over
//! ```
//!
//! Nothing is allocated for a publish that meets no full inbox, besides the envelope itself.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use crate::envelope::{Envelope, EnvelopeId};
use crate::mailbox::{Closed, TryPushError};
use crate::route::{Group, Lane, LinePlace, Route, Target};
use crate::subscription::{Overflow, SubscriptionId};
use crate::topic::TopicCore;

/// What became of an accepted envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The envelope's id.
    pub id: EnvelopeId,
    /// How many inboxes took it. None, if nobody is subscribed or all dropped it by policy.
    pub delivered: usize,
}

/// Why an envelope did not reach all that want it. It comes back, with the names of those it did
/// not reach; [`Publisher::retry`](crate::Publisher::retry) tries these again and no others.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PublishError<T> {
    /// An inbox has no room, and either its policy is to refuse or the publisher would not wait.
    #[error("{} of the topic's inboxes are full", .0.by().len())]
    Full(Box<Refused<T>>),
}

impl<T> PublishError<T> {
    /// The envelope, and who refused it.
    #[must_use]
    pub fn into_refused(self) -> Refused<T> {
        match self {
            Self::Full(refused) => *refused,
        }
    }

    /// Whether the same publish may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Full(_) => true,
        }
    }
}

impl<T> fmt::Debug for PublishError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(refused) => f.debug_tuple("Full").field(refused).finish(),
        }
    }
}

/// An envelope that some inboxes did not take.
pub struct Refused<T> {
    pub(crate) envelope: Arc<Envelope<T>>,
    pub(crate) by: Vec<SubscriptionId>,
    pub(crate) delivered: usize,
}

impl<T> Refused<T> {
    /// The envelope.
    #[must_use]
    pub const fn envelope(&self) -> &Arc<Envelope<T>> {
        &self.envelope
    }

    /// The subscriptions that did not take it. Of a queue group, all members.
    #[must_use]
    pub fn by(&self) -> &[SubscriptionId] {
        &self.by
    }

    /// How many inboxes took it.
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

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("envelope", &self.envelope)
            .field("by", &self.by)
            .field("delivered", &self.delivered)
            .finish()
    }
}

/// Whether full `Block` inboxes are waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Wait,
    No,
}

/// One envelope being handed out.
pub(crate) struct Offer<'a, T> {
    pub(crate) topic: &'a TopicCore<T>,
    pub(crate) patience: Patience,
    /// Only these, if a refused envelope is tried again.
    pub(crate) only: Option<&'a [SubscriptionId]>,
    pub(crate) delivered: usize,
    pub(crate) pending: Option<Box<Pending<T>>>,
}

/// What is left to do for an envelope that met a full inbox.
pub(crate) struct Pending<T> {
    pub(crate) envelope: Arc<Envelope<T>>,
    pub(crate) refused: Vec<SubscriptionId>,
    waits: Vec<Wait<T>>,
}

enum Wait<T> {
    One(LinePlace<T>),
    /// In several lines at once; the first that gets in ends it.
    Group(Vec<LinePlace<T>>),
}

impl<T: Send + Sync + 'static> Offer<'_, T> {
    /// Hands the envelope to all targets that have room, and notes the others.
    #[inline]
    pub(crate) fn hand_out(&mut self, route: &Route<T>, envelope: Arc<Envelope<T>>) {
        match &*route.targets {
            [Target::One(lane)] if self.only.is_none() => {
                if let Err(envelope) = self.offer(lane, envelope) {
                    self.topic.hub().on_unrouted(envelope);
                }
            }
            targets => self.hand_out_to(targets, envelope),
        }
    }

    fn hand_out_to(&mut self, targets: &[Target<T>], envelope: Arc<Envelope<T>>) {
        let mut wanted = false;
        for target in targets {
            let taken = match target {
                Target::One(lane) if self.is_meant(lane) => self.offer(lane, Arc::clone(&envelope)),
                Target::Group(group) if group.members.iter().any(|lane| self.is_meant(lane)) => {
                    self.offer_group(group, Arc::clone(&envelope))
                }
                Target::One(_) | Target::Group(_) => continue,
            };
            wanted |= taken.is_ok();
        }
        if !wanted {
            self.topic.hub().on_unrouted(envelope);
        }
    }

    fn is_meant(&self, lane: &Lane<T>) -> bool {
        self.only.is_none_or(|only| only.contains(&lane.core.id))
    }

    /// Offers it to one inbox; the envelope comes back if that is closed.
    #[inline]
    fn offer(&mut self, lane: &Lane<T>, envelope: Arc<Envelope<T>>) -> Result<(), Arc<Envelope<T>>> {
        match lane.line.try_push(envelope) {
            Ok(()) => {
                self.delivered += 1;
                Ok(())
            }
            Err(TryPushError::Closed(envelope)) => Err(envelope),
            Err(TryPushError::Full(envelope)) => self.on_full(lane, envelope),
        }
    }

    #[cold]
    fn on_full(&mut self, lane: &Lane<T>, envelope: Arc<Envelope<T>>) -> Result<(), Arc<Envelope<T>>> {
        match lane.core.overflow {
            Overflow::Block if self.patience == Patience::Wait => {
                let place = lane.line.place();
                self.pending(envelope).waits.push(Wait::One(place));
            }
            Overflow::Block | Overflow::Fail => {
                let id = lane.core.id;
                self.pending(envelope).refused.push(id);
            }
            Overflow::DropNewest => {
                lane.core.dropped_newest.fetch_add(1, Ordering::Relaxed);
                self.topic.hub().on_dropped(envelope);
            }
            Overflow::DropOldest => {
                let id = envelope.id();
                let mut taken = true;
                lane.line
                    .push_displacing(envelope, |dropped| {
                        taken &= dropped.id() != id;
                        lane.core.dropped_oldest.fetch_add(1, Ordering::Relaxed);
                        self.topic.hub().on_dropped(dropped);
                    })
                    .map_err(|Closed(envelope)| envelope)?;
                self.delivered += usize::from(taken);
            }
        }
        Ok(())
    }

    /// Offers it to the members in turn; the envelope comes back if all are closed.
    fn offer_group(
        &mut self,
        group: &Group<T>,
        mut envelope: Arc<Envelope<T>>,
    ) -> Result<(), Arc<Envelope<T>>> {
        let mut full: Option<&Lane<T>> = None;
        for lane in group.by_preference() {
            match lane.line.try_push(envelope) {
                Ok(()) => {
                    self.delivered += 1;
                    return Ok(());
                }
                Err(TryPushError::Full(back)) => {
                    full = full.or(Some(lane));
                    envelope = back;
                }
                Err(TryPushError::Closed(back)) => envelope = back,
            }
        }
        let Some(lane) = full else { return Err(envelope) };
        match lane.core.overflow {
            Overflow::Block if self.patience == Patience::Wait => {
                let places = group.members.iter().map(|lane| lane.line.place()).collect();
                self.pending(envelope).waits.push(Wait::Group(places));
                Ok(())
            }
            Overflow::Block | Overflow::Fail => {
                let refused = &mut self.pending(envelope).refused;
                refused.extend(group.members.iter().map(|lane| lane.core.id));
                Ok(())
            }
            Overflow::DropNewest | Overflow::DropOldest => self.on_full(lane, envelope),
        }
    }

    fn pending(&mut self, envelope: Arc<Envelope<T>>) -> &mut Pending<T> {
        self.pending.get_or_insert_with(|| {
            Box::new(Pending {
                envelope,
                refused: Vec::new(),
                waits: Vec::new(),
            })
        })
    }
}

impl<T: Send + Sync + 'static> Pending<T> {
    /// Moves on; ready when nobody is waited for any more, with the number of inboxes that took it.
    pub(crate) fn poll(&mut self, delivered: &mut usize, cx: &mut Context<'_>) -> Poll<()> {
        let envelope = &self.envelope;
        self.waits.retain_mut(|wait| match wait.poll(envelope, cx) {
            Ok(()) => {
                *delivered += 1;
                false
            }
            Err(TryPushError::Closed(())) => false,
            Err(TryPushError::Full(())) => true,
        });
        if self.waits.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl<T: Send + Sync + 'static> Wait<T> {
    fn poll(&mut self, envelope: &Arc<Envelope<T>>, cx: &mut Context<'_>) -> Result<(), TryPushError<()>> {
        let places = match self {
            Self::One(place) => return place.poll(envelope, cx),
            Self::Group(places) => places,
        };
        let mut outcome = Err(TryPushError::Closed(()));
        for place in places {
            match place.poll(envelope, cx) {
                Ok(()) => return Ok(()),
                Err(TryPushError::Full(())) => outcome = Err(TryPushError::Full(())),
                Err(TryPushError::Closed(())) => {}
            }
        }
        outcome
    }
}

/// The future of a publish.
///
/// # Cancel safety
/// Dropped before its first poll, nothing has happened. Dropped while it waits, the envelope is in
/// the inboxes that had room and in no other; it never gets into one twice.
#[must_use = "nothing is published unless it is awaited"]
pub struct Publish<'a, T> {
    pub(crate) offer: Offer<'a, T>,
    pub(crate) route: RouteRef<'a, T>,
    pub(crate) envelope: Option<Arc<Envelope<T>>>,
    pub(crate) id: EnvelopeId,
    pub(crate) streak: Option<&'a mut u32>,
}

pub(crate) enum RouteRef<'a, T> {
    Cached(&'a Route<T>),
    Loaded(Arc<Route<T>>),
}

/// After how many publishes in a row that did not wait a publisher lets other tasks run once.
const PUBLISHES_IN_A_ROW_MAX: u32 = 512;

impl<T: Send + Sync + 'static> Publish<'_, T> {
    /// Publishes without waiting.
    pub(crate) fn now(mut self) -> Result<Published, PublishError<T>> {
        self.begin();
        self.finish()
    }

    #[inline]
    fn begin(&mut self) {
        if let Some(envelope) = self.envelope.take() {
            let route = match &self.route {
                RouteRef::Cached(route) => route,
                RouteRef::Loaded(route) => &**route,
            };
            self.offer.hand_out(route, envelope);
        }
    }

    #[inline]
    fn finish(&mut self) -> Result<Published, PublishError<T>> {
        let delivered = self.offer.delivered;
        if let Some(pending) = self.offer.pending.take() {
            let Pending {
                envelope, refused, ..
            } = *pending;
            if !refused.is_empty() {
                let refused = Refused {
                    envelope,
                    by: refused,
                    delivered,
                };
                return Err(PublishError::Full(Box::new(refused)));
            }
        }
        Ok(Published {
            id: self.id,
            delivered,
        })
    }
}

impl<T> Unpin for Publish<'_, T> {}

impl<T: Send + Sync + 'static> Future for Publish<'_, T> {
    type Output = Result<Published, PublishError<T>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(streak) = &mut this.streak {
            **streak += 1;
            if **streak >= PUBLISHES_IN_A_ROW_MAX {
                **streak = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        this.begin();
        let Some(pending) = &mut this.offer.pending else {
            return Poll::Ready(this.finish());
        };
        if pending.poll(&mut this.offer.delivered, cx).is_pending() {
            if let Some(streak) = &mut this.streak {
                **streak = 0;
            }
            return Poll::Pending;
        }
        Poll::Ready(this.finish())
    }
}

impl<T> fmt::Debug for Publish<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
