//! The handle of a task that publishes a lot.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use super::core::TopicCore;
use super::in_a_row::InARow;
use super::offer::{Offer, Patience, Pending};
use super::outcome::{PublishError, Published, RefusedEnvelope};
use super::route::{Boxes, Route, Target};
use super::tally::Cell;
use crate::clock::Clock;
use crate::delivery::Delivery;
use crate::envelope::Envelope;
use crate::envelope::{Headers, Mark};
use crate::id::{EnvelopeId, TopicId};
use crate::mailbox::{Mailbox, TryPushError};
use crate::name::TopicName;

/// How many ids a publisher takes from the broker at once.
const ID_BLOCK: u64 = 1_024;

/// Publishes to one topic. It keeps everything that a publish needs (the inbox if there is only one, the route, a block of
/// ids, a counter) and is therefore owned by one task; each task makes its own.
///
/// # Ordering
/// Two publishes, the second begun after the first returned, arrive in this order in each inbox
/// that gets both. A member of a queue group sees its share in order.
///
/// # Many inboxes
/// Where four or more inboxes want the same envelopes, it gives each envelope to all of them with one push. These inboxes
/// must have the policy [`Overflow::Block`](crate::Overflow::Block), room for at least eight envelopes, a payload type, the
/// topic's name as filter, and no queue group, in a broker without a tap, on a topic that does not retain. They share their
/// envelopes in bundles of at most a quarter of the smallest inbox, by count and by bytes, or of one heavier envelope. A
/// payload is then dropped when the slowest of their readers has finished with its bundle; a reader that waits for more has
/// finished with all. If dropping a payload is a message to other code, use
/// [`TopicHandle::publish`](crate::TopicHandle::publish), which shares nothing but the envelope.
// From envelope to envelope it does not touch the topic itself, except the cell in which it counts: a task that publishes to
// thousands of topics would wait for the memory of each.
pub struct Publisher<T> {
    published: Cell,
    /// The only inbox of the route, if it is a typed one and the topic does not retain.
    only: Option<Mailbox<Delivery<Envelope<T>>>>,
    ids: Ids,
    boxes: Boxes<T>,
    pub(super) in_a_row: InARow,
    topic_id: TopicId,
    pub(super) weigh: fn(&T) -> usize,
    clock: Arc<Clock>,
    pub(super) route: Arc<Route<T>>,
    pub(super) topic: Arc<TopicCore<T>>,
}

/// The ids from `next` to before `end` are this publisher's.
struct Ids {
    next: u64,
    end: u64,
}

impl<T: Send + Sync + 'static> Publisher<T> {
    pub(crate) fn new(topic: Arc<TopicCore<T>>) -> Self {
        topic.hub().clock().prepare();
        Self {
            published: topic.published.open_cell(),
            only: None,
            ids: Ids { next: 0, end: 0 },
            boxes: Boxes {
                spent: None,
                are_wanted: false,
            },
            in_a_row: InARow::new(),
            topic_id: topic.id(),
            weigh: topic.weigh(),
            clock: Arc::clone(topic.hub().clock()),
            // Its cell has news, so it checks the topic again before it is used.
            route: topic.route.load_full(),
            topic,
        }
    }

    /// Gives the payload to every matching inbox that has room now.
    ///
    /// # Errors
    /// [`PublishError::Full`] when an inbox whose policy is to block or to fail is full.
    pub fn try_publish(&mut self, payload: T) -> Result<Published, PublishError<T>> {
        let envelope = self.seal(Headers::new(), payload);
        Published::at_once(envelope.id(), self.hand_out(envelope, Patience::No))
    }

    /// Tries a refused envelope again, but only at the inboxes that refused it.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub async fn retry(&mut self, refused: RefusedEnvelope<T>) -> Result<Published, PublishError<T>> {
        let RefusedEnvelope {
            envelope,
            by,
            delivered,
            is_settled,
            ..
        } = refused;
        let id = envelope.id();
        self.follow_news();
        let mut offer = Offer::retry(self.topic.hub(), &by, delivered, is_settled);
        offer.hand_out(&self.route, envelope);
        let mut pending = match offer.into_pending() {
            Ok(delivered) => return Ok(Published { id, delivered }),
            Err(pending) => pending,
        };
        poll_fn(|cx| pending.poll(self.topic.hub(), cx)).await;
        match pending.finish(self.topic.hub()) {
            Ok(delivered) => Ok(Published { id, delivered }),
            Err(refused) => Err(PublishError::of(refused)),
        }
    }

    /// The topic's name.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        self.topic.name()
    }

    /// Hands the envelope to all that have room, by the present route.
    #[inline]
    pub(crate) fn hand_out(
        &mut self,
        delivery: Delivery<Envelope<T>>,
        patience: Patience,
    ) -> Result<usize, Box<Pending<T>>> {
        self.follow_news();
        let Some(mailbox) = &self.only else {
            return self.hand_out_shared(delivery.into_shared(), patience);
        };
        self.boxes.are_wanted = mailbox.is_borrowed_from();
        let weight = delivery.mailbox_weight();
        let spent = matches!(delivery, Delivery::Own(_)).then_some(&mut self.boxes.spent);
        match mailbox.try_push_weighed(delivery, weight, spent) {
            Ok(()) => {
                self.boxes.empty();
                Ok(1)
            }
            Err(refused) => self.refused_by_only(refused, patience),
        }
    }

    /// Boxes are of no use for an envelope with several readers.
    #[inline(never)]
    fn hand_out_shared(
        &mut self,
        envelope: Arc<Envelope<T>>,
        patience: Patience,
    ) -> Result<usize, Box<Pending<T>>> {
        self.boxes.spent = None;
        self.boxes.are_wanted = false;
        if self.topic.retains() {
            return self.topic.hand_out(envelope, patience);
        }
        self.topic.hand_out_staged(&self.route, envelope, patience)
    }

    #[cold]
    fn refused_by_only(
        &mut self,
        refused: TryPushError<Delivery<Envelope<T>>>,
        patience: Patience,
    ) -> Result<usize, Box<Pending<T>>> {
        // An envelope that has to wait is shared with its wait: during a wait boxes only cost.
        self.boxes.are_wanted = false;
        let mut offer = Offer::new(self.topic.hub(), patience);
        if let [Target::One(lane)] = &*self.route.targets {
            offer.refused_by(lane, refused.map(Delivery::into_shared));
        }
        offer.into_pending()
    }

    /// Checks the topic again if a subscription was added or removed.
    #[inline]
    pub(super) fn follow_news(&mut self) {
        if self.published.has_news() {
            self.follow();
        }
    }

    #[cold]
    fn follow(&mut self) {
        if self.published.take_news() {
            self.route = self.topic.route.load_full();
            self.only = if self.topic.retains() {
                None
            } else {
                self.route.only_mailbox().cloned()
            };
        }
    }

    pub(crate) fn core(&self) -> &TopicCore<T> {
        &self.topic
    }

    #[inline]
    pub(super) fn seal(&mut self, headers: Headers, payload: T) -> Delivery<Envelope<T>> {
        if self.boxes.are_wanted
            && let Some(Delivery::Own(mut envelope)) = self.boxes.spent.take()
        {
            let mark = self.mark();
            envelope.fill(mark, headers.in_scope(), self.weigh, payload);
            return Delivery::Own(envelope);
        }
        self.seal_anew(headers, payload)
    }

    /// Kept apart from the path of publishers that reuse boxes, which contains no call.
    #[inline(never)]
    fn seal_anew(&mut self, headers: Headers, payload: T) -> Delivery<Envelope<T>> {
        let (mark, headers) = (self.mark(), headers.in_scope());
        // Made in its final place: otherwise it would be copied once more.
        if self.boxes.are_wanted {
            Delivery::Own(Box::new(Envelope::new(mark, headers, self.weigh, payload)))
        } else {
            Delivery::Shared(Arc::new(Envelope::new(mark, headers, self.weigh, payload)))
        }
    }

    /// Marks and counts an envelope that is made now.
    #[inline]
    pub(super) fn mark(&mut self) -> Mark {
        if self.ids.next == self.ids.end {
            let next = self.topic.hub().take_ids(ID_BLOCK);
            let end = next.wrapping_add(ID_BLOCK);
            self.ids = Ids { next, end };
        }
        self.published.add(1);
        let id = EnvelopeId::from_counter(self.ids.next);
        self.ids.next = self.ids.next.wrapping_add(1);
        Mark {
            id,
            topic: self.topic_id,
            time: self.clock.now(),
        }
    }
}

impl<T> Drop for Publisher<T> {
    fn drop(&mut self) {
        self.topic.published.close_cell(&self.published);
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Publisher")
    }
}
