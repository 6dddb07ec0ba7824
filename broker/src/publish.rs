//! The futures of publishing: one envelope, one within a time, a batch.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::clock::Alarm;
use crate::delivery::Delivery;
use crate::envelope::Envelope;
use crate::header::EnvelopeId;
use crate::hub::Hub;
use crate::offer::{Offer, Patience, Pending};
use crate::outcome::{PublishBatchError, PublishError, Published, Refused};
use crate::publisher::Publisher;
use crate::route::{Route, Target};
use crate::topic::TopicCore;

/// The future of a publish.
///
/// # Cancel safety
/// Dropped before its first poll, nobody has got anything. Dropped while it waits, the envelope is in
/// the inboxes that had room and in no other; it never gets into one twice. Either way it counts as
/// published; where it did not get to, it is counted nowhere else.
// It is moved once into the awaiting future, so it is kept small.
#[must_use = "nothing is published unless it is awaited"]
pub struct Publish<'a, T> {
    source: Source<'a, T>,
    envelope: Option<Delivery<Envelope<T>>>,
    pending: Option<(EnvelopeId, Box<Pending<T>>)>,
}

/// Who publishes.
pub(crate) enum Source<'a, T> {
    Publisher(&'a mut Publisher<T>),
    Topic(&'a TopicCore<T>),
}

/// After how many publishes in a row that did not wait a publisher lets other tasks run once.
pub(crate) const PUBLISHES_IN_A_ROW_MAX: u32 = 512;

impl<'a, T: Send + Sync + 'static> Publish<'a, T> {
    #[inline]
    pub(crate) const fn new(source: Source<'a, T>, envelope: Delivery<Envelope<T>>) -> Self {
        Self {
            source,
            envelope: Some(envelope),
            pending: None,
        }
    }

    /// Waits no longer than `limit`.
    pub(crate) const fn within(self, limit: Duration) -> PublishWithin<'a, T> {
        PublishWithin {
            publish: self,
            limit,
            alarm: None,
        }
    }

    fn hub(&self) -> &Hub {
        match &self.source {
            Source::Publisher(publisher) => publisher.core().hub(),
            Source::Topic(topic) => topic.hub(),
        }
    }
}

impl<T: Send + Sync + 'static> Publisher<T> {
    /// Whether others should run first. It says so once in a while to a publisher that never
    /// waits.
    #[inline]
    fn should_yield(&mut self) -> bool {
        let left = self.left_in_a_row_mut();
        // Counted down, which takes two instructions.
        *left -= 1;
        if *left > 0 {
            return false;
        }
        *left = PUBLISHES_IN_A_ROW_MAX;
        true
    }
}

impl<T> Unpin for Publish<'_, T> {}

impl<T: Send + Sync + 'static> Future for Publish<'_, T> {
    type Output = Result<Published, PublishError<T>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(envelope) = this.envelope.take() {
            let id = envelope.id();
            let handed_out = match &mut this.source {
                Source::Publisher(publisher) => {
                    if publisher.should_yield() {
                        this.envelope = Some(envelope);
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    publisher.hand_out(envelope, Patience::Wait)
                }
                Source::Topic(topic) => topic.hand_out(envelope.into_shared(), Patience::Wait),
            };
            match handed_out {
                Ok(delivered) => return Poll::Ready(Ok(Published { id, delivered })),
                Err(pending) => this.pending = Some((id, pending)),
            }
        }
        this.poll_pending(cx)
    }
}

impl<T: Send + Sync + 'static> Publish<'_, T> {
    #[cold]
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<Result<Published, PublishError<T>>> {
        let (id, mut pending) = self
            .pending
            .take()
            .expect("a future is not polled after it was ready");
        if pending.poll(self.hub(), cx).is_pending() {
            if let Source::Publisher(publisher) = &mut self.source {
                *publisher.left_in_a_row_mut() = PUBLISHES_IN_A_ROW_MAX;
            }
            self.pending = Some((id, pending));
            return Poll::Pending;
        }
        Poll::Ready(match pending.finish(self.hub()) {
            Ok(delivered) => Ok(Published { id, delivered }),
            Err(refused) => Err(PublishError::of(refused)),
        })
    }
}

impl<T> fmt::Debug for Publish<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish")
            .field("waits", &self.pending.is_some())
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
        let alarm = this
            .alarm
            .get_or_insert_with(|| this.publish.hub().alarm(this.limit));
        if Pin::new(alarm).poll(cx).is_pending() {
            return Poll::Pending;
        }
        let (id, mut pending) = this
            .publish
            .pending
            .take()
            .expect("it has begun and is not ready");
        pending.stop_waiting();
        Poll::Ready(match pending.outcome() {
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
    topic: &'a TopicCore<T>,
    route: Arc<Route<T>>,
    envelopes: Vec<Arc<Envelope<T>>>,
    delivered: usize,
    refused: Vec<Refused<T>>,
    /// For each target that was full, what it has not got yet.
    behind: Vec<Behind<T>>,
    /// What targets that were closed meanwhile did not get, in the order in which they gave it up.
    missed: Vec<Arc<Envelope<T>>>,
}

/// What the targets that are behind have come to so far.
struct Progress<'a, T> {
    delivered: &'a mut usize,
    refused: &'a mut Vec<Refused<T>>,
    missed: &'a mut Vec<Arc<Envelope<T>>>,
}

struct Behind<T> {
    target: usize,
    rest: VecDeque<Arc<Envelope<T>>>,
    /// The first of the rest, while it waits.
    waiting: Option<Box<Pending<T>>>,
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
            missed: Vec::new(),
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
            return envelopes.into_iter().for_each(|envelope| self.unrouted(envelope));
        }
        match &self.route.staged {
            None => self.push_to(&mut (0..targets.len()), envelopes),
            Some(staged) if staged.has_all() => match staged.try_push_all(envelopes) {
                Ok(delivered) => self.delivered = delivered,
                Err(envelopes) => self.push_to(&mut (0..targets.len()), envelopes),
            },
            Some(staged) => {
                let others = staged.others().to_vec();
                match staged.try_push_all(envelopes.clone()) {
                    Ok(delivered) => {
                        self.delivered = delivered;
                        self.push_to(&mut others.into_iter(), envelopes);
                    }
                    Err(_) => self.push_to(&mut (0..targets.len()), envelopes),
                }
            }
        }
    }

    /// Marks what some targets have refused and another has, or has dropped.
    fn mark_settled(&mut self) {
        let refused = self.refused.iter().map(|refused| refused.envelope.id());
        let missed = self.missed.iter().map(|envelope| envelope.id());
        let mut unsettled: Vec<_> = refused.chain(missed).collect();
        unsettled.sort_unstable();
        for refused in &mut self.refused {
            let id = refused.envelope.id();
            let first = unsettled.partition_point(|other| *other < id);
            let same = unsettled[first..].partition_point(|other| *other == id);
            refused.is_settled = same < self.route.targets.len();
        }
    }

    /// Gives up what all targets have missed. Another may have what one of them did not get.
    fn give_up_missed(&mut self) {
        let mut missed = std::mem::take(&mut self.missed);
        missed.sort_by_key(|envelope| envelope.id());
        for same in missed.chunk_by(|one, other| one.id() == other.id()) {
            if same.len() == self.route.targets.len() {
                self.unrouted(Arc::clone(&same[0]));
            }
        }
    }

    /// Nobody has this one.
    fn unrouted(&mut self, envelope: Arc<Envelope<T>>) {
        let mut nowhere = Offer::new(self.topic, Patience::Wait);
        nowhere.unrouted(envelope);
        if let Err(pending) = nowhere.into_pending()
            && let Err(refused) = pending.outcome()
        {
            self.refused.push(*refused);
        }
    }

    /// Gives each of these targets as much as it has room for.
    fn push_to(
        &mut self,
        targets: &mut dyn ExactSizeIterator<Item = usize>,
        envelopes: Vec<Arc<Envelope<T>>>,
    ) {
        let mut envelopes = Some(envelopes);
        while let Some(target) = targets.next() {
            let mine = if targets.len() == 0 {
                envelopes.take()
            } else {
                envelopes.clone()
            };
            let mine = mine.expect("taken for the last target only");
            let rest = match &self.route.targets[target] {
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
                    waiting: None,
                });
            }
        }
    }
}

impl<T: Send + Sync + 'static> Behind<T> {
    /// Moves on; ready when this target has everything, or has refused or dropped it.
    fn poll(
        &mut self,
        topic: &TopicCore<T>,
        route: &Route<T>,
        progress: Progress<'_, T>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let Progress {
            delivered,
            refused,
            missed,
        } = progress;
        let target = &route.targets[self.target];
        loop {
            if let Some(mut pending) = self.waiting.take() {
                if pending.poll(topic.hub(), cx).is_pending() {
                    self.waiting = Some(pending);
                    return Poll::Pending;
                }
                if pending.reached_nobody() {
                    missed.push(Arc::clone(pending.envelope()));
                }
                match pending.outcome() {
                    Ok(taken) => *delivered += taken,
                    Err(refusal) => refused.push(*refusal),
                }
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
            if !offer.offer_each(std::slice::from_ref(target), &envelope) {
                missed.push(envelope);
            }
            match offer.into_pending() {
                Ok(taken) => *delivered += taken,
                Err(pending) => self.waiting = Some(pending),
            }
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
        this.behind.retain_mut(|behind| {
            let progress = Progress {
                delivered: &mut this.delivered,
                refused: &mut this.refused,
                missed: &mut this.missed,
            };
            behind.poll(topic, route, progress, cx).is_pending()
        });
        if !this.behind.is_empty() {
            return Poll::Pending;
        }
        if !this.refused.is_empty() {
            this.mark_settled();
        }
        // Behind that: what a closed broker refuses has nobody.
        this.give_up_missed();
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
