//! Hands one envelope to all inboxes that want it.
//!
//! ```text
//!   publish ──► route ─┬─► room: pushed
//!                      ├─► full, Block: waits, while the others get theirs
//!                      ├─► full, Fail: refused, named in the error
//!                      ├─► full, DropNewest or DropOldest: something is dropped and counted
//!                      └─► closed: passed over; if the whole broker is, refused
//! ```
//!
//! Nothing is allocated for an envelope that meets no full inbox.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::line::LinePlace;
use super::outcome::{PublishError, Published, RefusedEnvelope};
use super::route::{Group, Lane, Route, Target};
use crate::envelope::Envelope;
use crate::hub::Hub;
use crate::id::{EnvelopeId, SubscriptionId};
use crate::mailbox::{Closed, TryPushError};
use crate::subscription::Overflow;
use crate::watch::dead_letter::Undeliverable;
use crate::watch::tap::FlowEvent;
use crate::watch::wait::WaitEntry;

/// Whether full `Block` inboxes are waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Wait,
    No,
}

/// One envelope being handed out.
pub(crate) struct Offer<'a, T> {
    // The place where the topic keeps it: loading it would cost each publish an instruction or two.
    hub: &'a Arc<Hub>,
    patience: Patience,
    /// Only these, if a refused envelope is tried again.
    only: Option<&'a [SubscriptionId]>,
    delivered: usize,
    /// An inbox has dropped it by its policy, or another one has handled it before it is tried again.
    dropped: bool,
    pending: Option<Box<Pending<T>>>,
}

/// What is left to do for an envelope that met a full inbox.
pub(crate) struct Pending<T> {
    envelope: Arc<Envelope<T>>,
    refused: Vec<SubscriptionId>,
    delivered: usize,
    dropped: bool,
    /// No inbox can take it any more.
    is_closed: bool,
    waits: Vec<OfferWait<T>>,
    /// Shows to others that this publish waits.
    shown: Option<WaitEntry>,
}

enum OfferWait<T> {
    One {
        id: SubscriptionId,
        place: LinePlace<T>,
    },
    /// Waits in several lines at once; the first that has room ends the wait.
    Group {
        places: Vec<(SubscriptionId, LinePlace<T>)>,
    },
}

impl<'a, T: Send + Sync + 'static> Offer<'a, T> {
    #[inline]
    pub(crate) const fn new(hub: &'a Arc<Hub>, patience: Patience) -> Self {
        Self {
            hub,
            patience,
            only: None,
            delivered: 0,
            dropped: false,
            pending: None,
        }
    }

    /// For the remaining inboxes, when `delivered` inboxes have the envelope already.
    pub(crate) const fn behind(hub: &'a Arc<Hub>, patience: Patience, delivered: usize) -> Self {
        Self {
            hub,
            patience,
            only: None,
            delivered,
            dropped: false,
            pending: None,
        }
    }

    /// For the inboxes that refused the envelope, when `delivered` others have it already. A settled envelope is not given
    /// up, whatever the result.
    pub(crate) const fn retry(
        hub: &'a Arc<Hub>,
        only: &'a [SubscriptionId],
        delivered: usize,
        is_settled: bool,
    ) -> Self {
        Self {
            hub,
            patience: Patience::Wait,
            only: Some(only),
            delivered,
            dropped: is_settled,
            pending: None,
        }
    }

    /// Hands the envelope to all targets that have room, and notes the others.
    #[inline]
    pub(crate) fn hand_out(&mut self, route: &Route<T>, envelope: Arc<Envelope<T>>) {
        match &*route.targets {
            [Target::One(lane)] if self.only.is_none() => {
                if let Err(envelope) = self.offer(lane, envelope) {
                    self.unrouted(envelope);
                }
            }
            targets => self.hand_out_to(targets, envelope),
        }
    }

    pub(crate) fn hand_out_to(&mut self, targets: &[Target<T>], envelope: Arc<Envelope<T>>) {
        let is_wanted = self.offer_each(targets, &envelope);
        // Other inboxes may have had it before, if it is tried again.
        if !is_wanted && self.delivered == 0 && !self.dropped {
            self.unrouted(envelope);
        }
    }

    /// Offers it to all of these; false if all of them are closed.
    pub(crate) fn offer_each<'t>(
        &mut self,
        targets: impl IntoIterator<Item = &'t Target<T>>,
        envelope: &Arc<Envelope<T>>,
    ) -> bool {
        let mut wanted = false;
        for target in targets {
            let taken = match target {
                Target::One(lane) if self.is_meant(lane) => self.offer(lane, Arc::clone(envelope)),
                Target::Group(group) if group.members.iter().any(|lane| self.is_meant(lane)) => {
                    self.offer_group(group, Arc::clone(envelope))
                }
                Target::One(_) | Target::Group(_) => continue,
            };
            wanted |= taken.is_ok();
        }
        wanted
    }

    /// No inbox wants the envelope; if the broker is closed, none can take it.
    pub(crate) fn unrouted(&mut self, envelope: Arc<Envelope<T>>) {
        if self.hub.is_closed() {
            self.pending(envelope).is_closed = true;
        } else {
            self.hub.give_up(envelope, Undeliverable::Unrouted, None);
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

    /// Continues after the only inbox has refused.
    #[cold]
    pub(crate) fn refused_by(&mut self, lane: &Lane<T>, refused: TryPushError<Arc<Envelope<T>>>) {
        let left = match refused {
            TryPushError::Closed(envelope) => Err(envelope),
            TryPushError::Full(envelope) => self.on_full(lane, envelope),
        };
        if let Err(envelope) = left {
            self.unrouted(envelope);
        }
    }

    #[cold]
    fn on_full(&mut self, lane: &Lane<T>, envelope: Arc<Envelope<T>>) -> Result<(), Arc<Envelope<T>>> {
        match lane.core.overflow {
            Overflow::Block if self.patience == Patience::Wait => {
                self.tell_waits(&envelope, lane);
                let wait = OfferWait::One {
                    id: lane.core.id,
                    place: lane.line.place(),
                };
                self.pending(envelope).waits.push(wait);
            }
            Overflow::Block | Overflow::Fail => {
                let id = lane.core.id;
                self.tell_refused(&envelope, lane);
                self.pending(envelope).refused.push(id);
            }
            Overflow::DropNewest => {
                self.dropped = true;
                lane.core.count_drop();
                self.hub
                    .give_up(envelope, Undeliverable::DroppedNewest, Some(lane.core.id));
            }
            Overflow::DropOldest => {
                let id = envelope.id();
                let mut taken = true;
                lane.line
                    .push_displacing(envelope, &mut |dropped| {
                        taken &= dropped.id() != id;
                        lane.core.count_drop();
                        self.hub
                            .give_up(dropped, Undeliverable::DroppedOldest, Some(lane.core.id));
                    })
                    .map_err(|Closed(envelope)| envelope)?;
                self.delivered += usize::from(taken);
                self.dropped |= !taken;
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
                let members = group.members.iter();
                members.for_each(|lane| self.tell_waits(&envelope, lane));
                let places = group
                    .members
                    .iter()
                    .map(|lane| (lane.core.id, lane.line.place()))
                    .collect();
                self.pending(envelope).waits.push(OfferWait::Group { places });
                Ok(())
            }
            Overflow::Block | Overflow::Fail => {
                let members = group.members.iter();
                members.for_each(|lane| self.tell_refused(&envelope, lane));
                let refused = &mut self.pending(envelope).refused;
                refused.extend(group.members.iter().map(|lane| lane.core.id));
                Ok(())
            }
            Overflow::DropNewest | Overflow::DropOldest => self.on_full(lane, envelope),
        }
    }

    fn tell_waits(&self, envelope: &Arc<Envelope<T>>, lane: &Lane<T>) {
        self.hub.tap().tell(FlowEvent::Waits {
            envelope: &**envelope,
            at: lane.core.id,
        });
    }

    fn tell_refused(&self, envelope: &Arc<Envelope<T>>, lane: &Lane<T>) {
        self.hub.tap().tell(FlowEvent::Refused {
            envelope: &**envelope,
            by: lane.core.id,
        });
    }

    fn pending(&mut self, envelope: Arc<Envelope<T>>) -> &mut Pending<T> {
        self.pending.get_or_insert_with(|| {
            Box::new(Pending {
                envelope,
                refused: Vec::new(),
                delivered: 0,
                dropped: false,
                is_closed: false,
                waits: Vec::new(),
                shown: None,
            })
        })
    }

    /// The remaining work, with the number of inboxes reached so far; nothing in most cases.
    #[inline]
    pub(crate) fn into_pending(self) -> Result<usize, Box<Pending<T>>> {
        match self.pending {
            None => Ok(self.delivered),
            Some(mut pending) => {
                pending.delivered = self.delivered;
                pending.dropped = self.dropped;
                Err(pending)
            }
        }
    }
}

impl<T: Send + Sync + 'static> Pending<T> {
    /// Continues; ready when no inbox is waited for any more.
    pub(crate) fn poll(&mut self, hub: &Hub, cx: &mut Context<'_>) -> Poll<()> {
        let envelope = &self.envelope;
        let delivered = &mut self.delivered;
        self.waits.retain_mut(|wait| match wait.poll(envelope, cx) {
            Ok(()) => {
                *delivered += 1;
                false
            }
            Err(TryPushError::Closed(())) => false,
            Err(TryPushError::Full(())) => true,
        });
        if self.waits.is_empty() {
            self.shown = None;
            return Poll::Ready(());
        }
        if self.shown.is_none() {
            let waits_for = self.waits.iter().flat_map(OfferWait::ids).collect();
            self.shown = Some(hub.waits().enter(hub.clock(), envelope.id(), waits_for));
        }
        Poll::Pending
    }

    /// Ends all waits: the inboxes that were waited for have refused.
    pub(crate) fn stop_waiting(&mut self) {
        let ids: Vec<_> = self.waits.drain(..).flat_map(|wait| wait.ids()).collect();
        self.refused.extend(ids);
    }

    /// Whether all inboxes that it waited for were closed meanwhile, and no other has taken, refused or dropped it.
    pub(crate) const fn reached_nobody(&self) -> bool {
        self.delivered == 0 && self.refused.is_empty() && !self.dropped
    }

    /// As [`Pending::outcome`], for an envelope that was offered to all. If it reached no inbox, it is given up, or refused
    /// if the broker is closed.
    pub(crate) fn finish(mut self, hub: &Hub) -> Result<usize, Box<RefusedEnvelope<T>>> {
        if self.reached_nobody() && hub.is_closed() {
            self.is_closed = true;
        } else if self.reached_nobody() {
            hub.give_up(
                Arc::<Envelope<T>>::clone(&self.envelope),
                Undeliverable::Unrouted,
                None,
            );
        }
        self.outcome()
    }

    pub(crate) const fn envelope(&self) -> &Arc<Envelope<T>> {
        &self.envelope
    }

    /// The result, once no inbox is waited for any more.
    pub(crate) fn outcome(self) -> Result<usize, Box<RefusedEnvelope<T>>> {
        let Self {
            envelope,
            refused,
            delivered,
            dropped,
            is_closed,
            ..
        } = self;
        if refused.is_empty() && is_closed {
            return Err(Box::new(RefusedEnvelope::closed(envelope)));
        }
        if refused.is_empty() {
            return Ok(delivered);
        }
        Err(Box::new(RefusedEnvelope {
            envelope,
            by: refused,
            delivered,
            is_settled: dropped,
            is_closed: false,
        }))
    }
}

impl Published {
    /// The result of handing an envelope to all inboxes that have room, without waiting.
    pub(crate) fn at_once<T: Send + Sync + 'static>(
        id: EnvelopeId,
        outcome: Result<usize, Box<Pending<T>>>,
    ) -> Result<Self, PublishError<T>> {
        match outcome.or_else(|pending| pending.outcome()) {
            Ok(delivered) => Ok(Self { id, delivered }),
            Err(refused) => Err(PublishError::of(refused)),
        }
    }
}

impl<T> OfferWait<T> {
    fn ids(&self) -> Vec<SubscriptionId> {
        match self {
            Self::One { id, .. } => vec![*id],
            Self::Group { places } => places.iter().map(|(id, _)| *id).collect(),
        }
    }
}

impl<T: Send + Sync + 'static> OfferWait<T> {
    fn poll(&mut self, envelope: &Arc<Envelope<T>>, cx: &mut Context<'_>) -> Result<(), TryPushError<()>> {
        let places = match self {
            Self::One { place, .. } => return place.poll(envelope, cx),
            Self::Group { places } => places,
        };
        let mut outcome = Err(TryPushError::Closed(()));
        for (_, place) in places {
            match place.poll(envelope, cx) {
                Ok(()) => return Ok(()),
                Err(TryPushError::Full(())) => outcome = Err(TryPushError::Full(())),
                Err(TryPushError::Closed(())) => {}
            }
        }
        outcome
    }
}
