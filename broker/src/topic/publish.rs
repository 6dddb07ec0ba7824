//! The futures of publishing one envelope, with and without a limit of time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::core::TopicCore;
use super::offer::{Patience, Pending};
use super::outcome::{PublishError, Published};
use super::publisher::Publisher;
use crate::clock::Alarm;
use crate::delivery::Delivery;
use crate::envelope::{Envelope, Headers};
use crate::hub::Hub;
use crate::id::EnvelopeId;

/// The future of a publish.
///
/// # Cancel safety
/// If it is dropped before its first poll, nothing is published. If it is dropped while it waits, the envelope is in the
/// inboxes that had room and in no other; it is never in one twice. Either way it counts as published; the inboxes that it
/// did not reach count nothing.
// It is moved once into the awaiting future, so it is kept small.
#[must_use = "nothing is published unless it is awaited"]
pub struct Publish<'a, T> {
    source: Source<'a, T>,
    envelope: Option<Delivery<Envelope<T>>>,
    pending: Option<(EnvelopeId, Box<Pending<T>>)>,
}

/// The publisher of an envelope.
pub(crate) enum Source<'a, T> {
    Publisher(&'a mut Publisher<T>),
    Topic(&'a TopicCore<T>),
}

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
    /// Gives the payload to every matching inbox and waits for full ones that have the policy
    /// [`Overflow::Block`](crate::Overflow::Block). The waits are independent: the other inboxes have their envelope at once.
    ///
    /// Ready means that every matching inbox has accepted the envelope, or has dropped and counted it by its policy. With no
    /// matching inbox it is ready at once, and counted as unrouted.
    ///
    /// # Errors
    /// [`PublishError::Full`] when an inbox with the policy [`Overflow::Fail`](crate::Overflow::Fail) is full; all others are
    /// served first.
    ///
    /// # Cancel safety
    /// See [`Publish`].
    #[inline]
    pub fn publish(&mut self, payload: T) -> Publish<'_, T> {
        self.begin(Headers::new(), payload)
    }

    /// As [`Publisher::publish`], with headers.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn publish_with(&mut self, headers: Headers, payload: T) -> Publish<'_, T> {
        self.begin(headers, payload)
    }

    /// As [`Publisher::publish`], but waits for full inboxes no longer than `limit` in all.
    ///
    /// # Errors
    /// [`PublishError::TimedOut`] names the inboxes that stayed full; the others have the envelope.
    ///
    /// # Cancel safety
    /// See [`Publish`].
    pub fn publish_timeout(&mut self, payload: T, limit: Duration) -> PublishWithin<'_, T> {
        self.begin(Headers::new(), payload).within(limit)
    }

    #[inline]
    fn begin(&mut self, headers: Headers, payload: T) -> Publish<'_, T> {
        let envelope = self.seal(headers, payload);
        Publish::new(Source::Publisher(self), envelope)
    }
}

impl<T: Send + Sync + 'static> TopicCore<T> {
    // Inlined into the handle's module, as before, when both were in one module.
    #[inline]
    pub(super) fn publish(&self, headers: Headers, payload: T) -> Publish<'_, T> {
        let envelope = Delivery::Shared(self.seal_one(headers, payload));
        Publish::new(Source::Topic(self), envelope)
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
                    if publisher.in_a_row.should_yield() {
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
                publisher.in_a_row.begin();
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
            // It only let other tasks run.
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
