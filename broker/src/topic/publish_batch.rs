//! Publishing many payloads at once.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::core::TopicCore;
use super::offer::{Offer, Patience, Pending};
use super::outcome::{PublishBatchError, RefusedEnvelope};
use super::publisher::Publisher;
use super::route::{Route, Target};
use crate::envelope::{Envelope, Headers};

/// The future of publishing a batch: each inbox gets all of it in order, at its own speed.
///
/// # Cancel safety
/// If it is dropped while it waits, each inbox has a beginning of the batch.
#[must_use = "nothing is published unless it is awaited"]
pub struct PublishBatch<'a, T> {
    topic: &'a TopicCore<T>,
    route: Arc<Route<T>>,
    envelopes: Vec<Arc<Envelope<T>>>,
    delivered: usize,
    refused: Vec<RefusedEnvelope<T>>,
    /// For each target that was full, the envelopes that it has not got yet.
    behind: Vec<Behind<T>>,
    /// The envelopes that targets did not get because they were closed meanwhile, in the order in which they gave them up.
    missed: Vec<Arc<Envelope<T>>>,
}

/// How far the targets that are behind have come.
struct BatchProgress<'a, T> {
    delivered: &'a mut usize,
    refused: &'a mut Vec<RefusedEnvelope<T>>,
    missed: &'a mut Vec<Arc<Envelope<T>>>,
}

struct Behind<T> {
    target: usize,
    rest: VecDeque<Arc<Envelope<T>>>,
    /// The first of the rest, while it waits.
    waiting: Option<Box<Pending<T>>>,
}

impl<T: Send + Sync + 'static> Publisher<T> {
    /// Publishes many payloads for the cost of one lock per inbox. Ready, with the number of deliveries, when every matching
    /// inbox has accepted all of them or dropped them by its policy.
    ///
    /// # Ordering
    /// Each inbox gets the batch in order. A full inbox gets the rest as it finds room, while the others are already ahead. A
    /// topic that retains keeps the last envelope.
    ///
    /// # Errors
    /// [`PublishBatchError`] lists the envelopes that inboxes with the policy [`Overflow::Fail`](crate::Overflow::Fail)
    /// refused.
    ///
    /// # Cancel safety
    /// See [`PublishBatch`].
    pub fn publish_batch(&mut self, payloads: Vec<T>) -> PublishBatch<'_, T> {
        let envelopes = payloads
            .into_iter()
            .map(|payload| {
                let mark = self.mark();
                let headers = Headers::new().in_scope();
                Arc::new(Envelope::new(mark, headers, self.weigh, payload))
            })
            .collect();
        self.follow_news();
        PublishBatch::new(&self.topic, Arc::clone(&self.route), envelopes)
    }
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

    /// Marks envelopes that some targets have refused and another has taken or dropped.
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

    /// Gives up the envelopes that all targets have missed. If one target did not get an envelope, another may have it.
    fn give_up_missed(&mut self) {
        let mut missed = std::mem::take(&mut self.missed);
        missed.sort_by_key(|envelope| envelope.id());
        for same in missed.chunk_by(|one, other| one.id() == other.id()) {
            if same.len() == self.route.targets.len() {
                self.unrouted(Arc::clone(&same[0]));
            }
        }
    }

    /// No inbox has this envelope.
    fn unrouted(&mut self, envelope: Arc<Envelope<T>>) {
        let mut nowhere = Offer::new(self.topic.hub(), Patience::Wait);
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
    /// Continues; ready when this target has taken, refused or dropped everything.
    fn poll(
        &mut self,
        topic: &TopicCore<T>,
        route: &Route<T>,
        progress: BatchProgress<'_, T>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let BatchProgress {
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
            let mut offer = Offer::new(topic.hub(), Patience::Wait);
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
            let progress = BatchProgress {
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
        // After that: an envelope that a closed broker refuses is in no inbox.
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
