//! Typed topics.

mod ask;
mod config;
pub(crate) mod core;
mod in_a_row;
pub(crate) mod line;
pub(crate) mod offer;
mod outcome;
mod publish;
mod publish_batch;
mod publisher;
pub(crate) mod route;
mod tally;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::core::TopicCore;
pub use ask::{AskError, Request};
pub use config::TopicConfig;
use offer::Patience;
pub use outcome::{PublishBatchError, PublishError, Published, RefusedEnvelope};
pub use publish::{Publish, PublishWithin};
pub use publish_batch::PublishBatch;
pub use publisher::Publisher;

use crate::envelope::{Envelope, Headers};
use crate::id::TopicId;
use crate::name::TopicName;

/// A topic whose envelopes carry a `T`. A cheap clone.
///
/// For many envelopes in a row a [`Publisher`] is cheaper.
pub struct TopicHandle<T>(Arc<TopicCore<T>>);

impl<T: Send + Sync + 'static> TopicHandle<T> {
    pub(crate) const fn new(core: Arc<TopicCore<T>>) -> Self {
        Self(core)
    }

    /// The topic's name.
    #[must_use]
    pub fn name(&self) -> &TopicName {
        &self.0.name
    }

    /// The topic's id, which its envelopes carry.
    #[must_use]
    pub fn id(&self) -> TopicId {
        self.0.id()
    }

    /// How many envelopes were published to it.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.0.published.total()
    }

    /// The last envelope, if the topic [retains](TopicConfig::retain) it.
    #[must_use]
    pub fn last(&self) -> Option<Arc<Envelope<T>>> {
        self.0.last()
    }

    /// A publisher of its own for one task.
    #[must_use]
    pub fn publisher(&self) -> Publisher<T> {
        Publisher::new(Arc::clone(&self.0))
    }

    /// Publishes, waiting where [`Publisher::publish`] waits.
    ///
    /// # Ordering
    /// Two publishes by any handles of the topic, the second begun after the first returned, arrive
    /// in this order in each inbox that gets both. Those that overlap have no order.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    ///
    /// # Cancel safety
    /// See [`Publish`].
    pub fn publish(&self, payload: T) -> Publish<'_, T> {
        self.0.publish(Headers::new(), payload)
    }

    /// As [`TopicHandle::publish`], with headers.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    ///
    /// # Cancel safety
    /// See [`Publish`].
    pub fn publish_with(&self, headers: Headers, payload: T) -> Publish<'_, T> {
        self.0.publish(headers, payload)
    }

    /// As [`TopicHandle::publish`], waiting for full inboxes no longer than `limit` in all; see
    /// [`Publisher::publish_timeout`].
    ///
    /// # Errors
    /// As [`Publisher::publish_timeout`].
    ///
    /// # Cancel safety
    /// See [`Publish`].
    pub fn publish_timeout(&self, payload: T, limit: Duration) -> PublishWithin<'_, T> {
        self.0.publish(Headers::new(), payload).within(limit)
    }

    /// Publishes without waiting, see [`Publisher::try_publish`].
    ///
    /// # Errors
    /// As [`Publisher::try_publish`].
    pub fn try_publish(&self, payload: T) -> Result<Published, PublishError<T>> {
        let envelope = self.0.seal_one(Headers::new(), payload);
        Published::at_once(envelope.id(), self.0.hand_out(envelope, Patience::No))
    }
}

impl<Q: Send + Sync + 'static, R: Send + 'static> TopicHandle<Request<Q, R>> {
    /// Publishes a question and waits for the first answer, at most for `limit` in all.
    ///
    /// # Ordering
    /// The question keeps its turn with the other envelopes of the topic, as in [`TopicHandle::publish`];
    /// answers do not: two questions may be answered in any order.
    ///
    /// A question that is still in an inbox when its time is over has [expired](Headers::expires): a
    /// receiver, a service or an attached actor does not get it any more.
    ///
    /// # Errors
    /// When there is no subscription, no inbox takes the question in time, all consumers that got it drop it without an
    /// answer, or the time is over.
    ///
    /// # Cancel safety
    /// If the future is dropped while it waits, the question may still be answered; the answer is dropped.
    pub async fn ask(&self, question: Q, limit: Duration) -> Result<R, AskError> {
        let (request, answer) = Request::new(question);
        let clock = self.0.hub().clock();
        let expires = clock.exact_now() + limit;
        let publish = self.publish_with(Headers::new().expires(expires), request);
        ask::ask(publish, answer, clock, expires).await
    }
}

impl<T> Clone for TopicHandle<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for TopicHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TopicHandle").field(&self.0.name).finish()
    }
}
