//! The futures of publishing: one envelope, one within a time, a batch.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock::Alarm;
use crate::envelope::{Envelope, EnvelopeId};
use crate::offer::{Offer, Patience};
use crate::outcome::{PublishBatchError, PublishError, Published, Refused};
use crate::route::{Route, Target};
use crate::topic::TopicCore;

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

impl<T> RouteRef<'_, T> {
    #[inline]
    fn get(&self) -> &Route<T> {
        match self {
            Self::Cached(route) => route,
            Self::Loaded(route) => route,
        }
    }
}

/// After how many publishes in a row that did not wait a publisher lets other tasks run once.
const PUBLISHES_IN_A_ROW_MAX: u32 = 512;

impl<'a, T: Send + Sync + 'static> Publish<'a, T> {
    /// Publishes without waiting.
    pub(crate) fn now(mut self) -> Result<Published, PublishError<T>> {
        self.begin();
        self.finish()
    }

    /// Waits no longer than `limit`.
    pub(crate) const fn within(self, limit: Duration) -> PublishWithin<'a, T> {
        PublishWithin {
            publish: self,
            limit,
            alarm: None,
        }
    }

    #[inline]
    fn begin(&mut self) {
        if let Some(envelope) = self.envelope.take() {
            if self.offer.topic.retains() {
                self.offer.topic.hand_out_retained(&mut self.offer, envelope);
            } else {
                self.offer.hand_out(self.route.get(), envelope);
            }
        }
    }

    #[inline]
    fn finish(&mut self) -> Result<Published, PublishError<T>> {
        match self.offer.outcome() {
            Ok(delivered) => Ok(Published {
                id: self.id,
                delivered,
            }),
            Err(refused) => Err(PublishError::Full(refused)),
        }
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
        if this.offer.poll(cx).is_pending() {
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

/// The future of a publish that waits for a limited time. The time starts with the first wait.
///
/// # Cancel safety
/// As [`Publish`].
#[must_use = "nothing is published unless it is awaited"]
pub struct PublishWithin<'a, T> {
    publish: Publish<'a, T>,
    limit: Duration,
    alarm: Option<Alarm>,
}

impl<T> Unpin for PublishWithin<'_, T> {}

impl<T: Send + Sync + 'static> Future for PublishWithin<'_, T> {
    type Output = Result<Published, PublishError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Poll::Ready(outcome) = Pin::new(&mut this.publish).poll(cx) {
            return Poll::Ready(outcome);
        }
        if this.publish.envelope.is_some() {
            // It only let others run.
            return Poll::Pending;
        }
        let hub = this.publish.offer.topic.hub();
        let alarm = this.alarm.get_or_insert_with(|| hub.alarm(this.limit));
        if Pin::new(alarm).poll(cx).is_pending() {
            return Poll::Pending;
        }
        this.publish.offer.stop_waiting();
        let id = this.publish.id;
        Poll::Ready(match this.publish.offer.outcome() {
            Ok(delivered) => Ok(Published { id, delivered }),
            Err(refused) => Err(PublishError::TimedOut(refused)),
        })
    }
}

impl<T> fmt::Debug for PublishWithin<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishWithin")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// The future of publishing a batch: each inbox gets all of it in order, at its own speed.
///
/// # Cancel safety
/// Dropped while it waits, each inbox has a beginning of the batch.
#[must_use = "nothing is published unless it is awaited"]
pub struct PublishBatch<'a, T> {
    pub(crate) topic: &'a TopicCore<T>,
    pub(crate) route: Arc<Route<T>>,
    pub(crate) envelopes: Vec<Arc<Envelope<T>>>,
    pub(crate) delivered: usize,
    refused: Vec<Refused<T>>,
    /// For each target that was full, what it has not got yet.
    behind: Vec<Behind<'a, T>>,
}

struct Behind<'a, T> {
    target: usize,
    rest: VecDeque<Arc<Envelope<T>>>,
    /// The first of the rest, while it waits.
    offer: Option<Offer<'a, T>>,
}

impl<'a, T: Send + Sync + 'static> PublishBatch<'a, T> {
    pub(crate) const fn new(
        topic: &'a TopicCore<T>,
        route: Arc<Route<T>>,
        envelopes: Vec<Arc<Envelope<T>>>,
    ) -> Self {
        Self {
            topic,
            route,
            envelopes,
            delivered: 0,
            refused: Vec::new(),
            behind: Vec::new(),
        }
    }

    fn begin(&mut self) {
        let envelopes = std::mem::take(&mut self.envelopes);
        let kept = self.topic.keep_last(&envelopes);
        let _keeping = kept.map(|(keeping, route)| {
            self.route = route;
            keeping
        });
        let targets = &self.route.targets;
        if targets.is_empty() {
            let nowhere = Offer::new(self.topic, Patience::Wait);
            envelopes
                .into_iter()
                .for_each(|envelope| nowhere.unrouted(envelope));
            return;
        }
        let last = targets.len() - 1;
        let mut envelopes = Some(envelopes);
        for (target, kind) in targets.iter().enumerate() {
            let mine = if target == last {
                envelopes.take()
            } else {
                envelopes.clone()
            };
            let mine = mine.expect("taken for the last target only");
            let rest = match kind {
                Target::One(lane) => {
                    let (taken, rest) = lane.line.try_push_batch(mine);
                    self.delivered += taken;
                    rest
                }
                Target::Group(_) => mine,
            };
            if !rest.is_empty() {
                self.behind.push(Behind {
                    target,
                    rest: rest.into(),
                    offer: None,
                });
            }
        }
    }
}

impl<'a, T: Send + Sync + 'static> Behind<'a, T> {
    /// Moves on; ready when this target has everything, or has refused or dropped it.
    fn poll(
        &mut self,
        topic: &'a TopicCore<T>,
        route: &Route<T>,
        delivered: &mut usize,
        refused: &mut Vec<Refused<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let target = &route.targets[self.target];
        loop {
            if let Some(offer) = &mut self.offer {
                if offer.poll(cx).is_pending() {
                    return Poll::Pending;
                }
                match offer.outcome() {
                    Ok(taken) => *delivered += taken,
                    Err(refusal) => refused.push(*refusal),
                }
                self.offer = None;
                if let Target::One(lane) = target {
                    let (taken, rest) = lane.line.try_push_batch(std::mem::take(&mut self.rest).into());
                    *delivered += taken;
                    self.rest = rest.into();
                }
            }
            let Some(envelope) = self.rest.pop_front() else {
                return Poll::Ready(());
            };
            let mut offer = Offer::new(topic, Patience::Wait);
            offer.hand_out_to(std::slice::from_ref(target), envelope);
            self.offer = Some(offer);
        }
    }
}

impl<T> Unpin for PublishBatch<'_, T> {}

impl<T: Send + Sync + 'static> Future for PublishBatch<'_, T> {
    type Output = Result<usize, PublishBatchError<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.envelopes.is_empty() {
            this.begin();
        }
        let (topic, route) = (this.topic, &this.route);
        let (delivered, refused) = (&mut this.delivered, &mut this.refused);
        this.behind
            .retain_mut(|behind| behind.poll(topic, route, delivered, refused, cx).is_pending());
        if !this.behind.is_empty() {
            return Poll::Pending;
        }
        let refused = std::mem::take(&mut this.refused);
        Poll::Ready(if refused.is_empty() {
            Ok(this.delivered)
        } else {
            Err(PublishBatchError { refused })
        })
    }
}

impl<T> fmt::Debug for PublishBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishBatch")
            .field("behind", &self.behind.len())
            .finish_non_exhaustive()
    }
}
