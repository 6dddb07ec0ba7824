//! An operator's operations on durable topics: purging records, deleting topics, removing subscriptions and releasing their
//! keys.
//!
//! ```text
//!   name ─► number in the journal ─► purge, delete ─► watermark ─► answer
//!                                          └─► open subscriptions are told
//! ```
//!
//! Invariants: an answered operation is durable. A deletion removes the topic and what its subscriptions have kept in one
//! commit.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use millrun_core::{Offset, Sequence};
use millrun_persistence::{JournalFailure, TopicChangeRefused, TopicStreams, TopicSummary};

use super::subscription::{SubscriptionLost, kept_before, release_held_key};
use super::token::RecordToken;
use crate::inner::Inner;
use crate::{Runtime, StopCause};

/// The prefix of the names of the runtime's own topics.
const OWN: &str = "millrun.";

/// Which records of a durable topic are purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeBefore {
    /// All that are durable when the purge is made.
    Now,
    /// Those before the record with this number.
    Number(u64),
    /// Those before the record of this token.
    Record(RecordToken),
}

/// The result of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicPurged {
    /// How many records it has dropped.
    pub count: u64,
    /// The number of the first record that is left, or will be the next.
    pub first: u64,
}

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicDeleted {
    /// How many records the topic had.
    pub count: u64,
    /// How many durable subscriptions were deleted with it.
    pub subscriptions: u64,
}

/// Why an operation on a durable topic or a subscription was not performed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopicManageError {
    /// The store has no durable topic of this name.
    #[error("the store has no durable topic {name:?}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The topic has no durable subscription of this name.
    #[error("the topic {topic:?} has no durable subscription {name:?}")]
    NoSubscription {
        /// The name of the topic.
        topic: String,
        /// The name of the subscription.
        name: String,
    },
    /// What the subscription has kept cannot be read.
    #[error("what the subscription has kept cannot be read: {problem}")]
    Unreadable {
        /// What is wrong.
        problem: String,
    },
    /// The subscription has ended here.
    #[error(transparent)]
    Lost(SubscriptionLost),
    /// The token belongs to a record in another store.
    #[error("the token is of a record in another store")]
    OtherStore,
    /// The token belongs to a record of another topic, or of a deleted topic that had this name.
    #[error("the token is of a record of another topic, or of a deleted one of this name")]
    OtherTopic,
    /// The journal supports neither purges nor deletions of topics.
    #[error("the journal of this runtime neither purges nor deletes topics")]
    Unsupported,
    /// The journal has failed. Whether anything was done is not known.
    #[error("the journal has failed")]
    Failed(#[source] JournalFailure),
    /// The runtime has stopped. Whether anything was done is not known.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

impl From<SubscriptionLost> for TopicManageError {
    fn from(lost: SubscriptionLost) -> Self {
        match lost {
            SubscriptionLost::Stopped(cause) => Self::Stopped(cause),
            lost => Self::Lost(lost),
        }
    }
}

impl Runtime {
    /// Drops records of a durable topic, even if its retention would keep them; durable when this returns. It may be any
    /// topic of the store, also one that is not registered with the builder.
    ///
    /// Readers, subscriptions and waiting runs never get a purged record: readers and subscriptions are told how many they
    /// have missed, as after a drop by [retention](crate::topics::TopicRetention). Records that a reader or a subscription
    /// has in hand are still delivered. Record numbers continue, and ids of purged records are remembered as before. Space is
    /// freed as the store writes, and at once by [`StoreHandle::upkeep`](crate::store::StoreHandle::upkeep).
    ///
    /// ```
    /// use millrun::topics::PurgeBefore;
    /// use millrun::{DurableTopic, Runtime, Topic};
    ///
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().durable_topic(PLACED).start().await?;
    /// let placed = runtime.durable_topic(PLACED)?;
    /// for number in 1..=5 {
    ///     placed.publish(&number).await?;
    /// }
    /// let purged = runtime.purge_durable_topic("orders.placed", PurgeBefore::Number(4)).await?;
    /// assert_eq!((purged.count, purged.first), (3, 4));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`TopicManageError`]. Nothing is changed, unless the error says that this is unknown.
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, the purge may or may not be durable. It can be repeated.
    pub async fn purge_durable_topic(
        &self,
        name: &str,
        before: PurgeBefore,
    ) -> Result<TopicPurged, TopicManageError> {
        let inner = self.inner();
        let (streams, topic) = inner.topic_to_manage(name)?;
        let through = match before {
            PurgeBefore::Now => topic.last,
            PurgeBefore::Number(number) => Sequence::new(number.saturating_sub(1)),
            PurgeBefore::Record(token) if token.store() != streams.store_number() => {
                return Err(TopicManageError::OtherStore);
            }
            PurgeBefore::Record(token) if token.topic() != topic.number => {
                return Err(TopicManageError::OtherTopic);
            }
            PurgeBefore::Record(token) => Sequence::new(token.sequence().get().saturating_sub(1)),
        };
        let purged = streams.purge(topic.number, through);
        let purged = purged.map_err(|refused| inner.not_managed(refused, name))?;
        inner.until_durable(purged.offset).await?;
        Ok(TopicPurged {
            count: purged.count,
            first: purged.first.get(),
        })
    }

    /// Deletes a durable topic: its records, what its subscriptions have kept, and its name, in one commit; durable when this
    /// returns. It no longer counts for [`topics_len_max`](crate::store::JournalConfig::topics_len_max). It may be any topic
    /// of the store, also one that is not registered with the builder: that is how to delete a topic that no program declares
    /// any more.
    ///
    /// If the topic is in use here, publishers get [`UnknownTopic`](crate::topics::DurablePublishError::UnknownTopic), a run
    /// that publishes is told that it is refused, readers get [`Deleted`](crate::topics::TopicReadError::Deleted) after what
    /// they have in hand, and subscriptions and triggers are lost as [`Deleted`](crate::topics::SubscriptionLost::Deleted). A
    /// run that waits for a record keeps waiting, until it gives up or a later opening declares the topic anew.
    ///
    /// The next runtime with this topic declares it anew. Tokens of the deleted topic are refused there as those of another
    /// topic, and record numbers continue, so that no number names two records.
    ///
    /// # Errors
    /// See [`TopicManageError`]. Nothing is changed, unless the error says that this is unknown.
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, the topic is deleted completely or not at all.
    pub async fn delete_durable_topic(&self, name: &str) -> Result<TopicDeleted, TopicManageError> {
        let inner = self.inner();
        let (streams, topic) = inner.topic_to_manage(name)?;
        let subscriptions = &inner.shared.durable.subscriptions;
        // No subscription is opened meanwhile, which would be left behind.
        let opening = subscriptions.opening.lock().await;
        let before = kept_before(name);
        let all = streams.list();
        let kept: Vec<_> = all.iter().filter(|kept| kept.name.starts_with(&before)).collect();
        let mut numbers = vec![topic.number];
        numbers.extend(kept.iter().map(|kept| kept.number));
        let offset = streams.delete(&numbers);
        let offset = offset.map_err(|refused| inner.not_managed(refused, name))?;
        inner.shared.durable.delete(topic.number);
        subscriptions.lose_where(|shared| shared.is_of(topic.number));
        drop(opening);
        inner.until_durable(offset).await?;
        Ok(TopicDeleted {
            count: topic.last.get() + 1 - topic.first.get(),
            subscriptions: kept.iter().filter(|kept| has_record(kept)).count() as u64,
        })
    }

    /// Removes a durable subscription: what it has kept, and its name; durable when this returns. It no longer counts for
    /// [`topics_len_max`](crate::store::JournalConfig::topics_len_max). If it is open here, its consumers and its trigger are
    /// [lost](crate::topics::SubscriptionLost::Deleted). A subscription of this name that is opened later is new, and begins
    /// where its opening says.
    ///
    /// # Errors
    /// See [`TopicManageError`]. Nothing is changed, unless the error says that this is unknown.
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, the subscription may or may not be removed. It can be repeated.
    pub async fn remove_durable_subscription(&self, topic: &str, name: &str) -> Result<(), TopicManageError> {
        let inner = self.inner();
        let (streams, _) = inner.topic_to_manage(topic)?;
        let subscriptions = &inner.shared.durable.subscriptions;
        let opening = subscriptions.opening.lock().await;
        let kept_name = format!("{}{name}", kept_before(topic));
        let mut all = streams.list().into_iter();
        let kept = all.find(|kept| kept.name == kept_name);
        let kept = kept.ok_or_else(|| TopicManageError::NoSubscription {
            topic: topic.to_owned(),
            name: name.to_owned(),
        })?;
        let offset = streams.delete(&[kept.number]);
        let offset = offset.map_err(|refused| inner.not_managed(refused, topic))?;
        subscriptions.lose_where(|shared| shared.is_kept_in(kept.number));
        drop(opening);
        inner.until_durable(offset).await
    }

    /// Releases a key that a durable subscription [holds](crate::topics::SubscribeRecords::hold_key_when_undelivered) behind
    /// an undelivered record, as [sending the record back](crate::topics::DurableTopicHandle::send_back) does; the
    /// undelivered record stays where it is. Durable when this returns, whether a consumer has the subscription open or not.
    /// Returns whether the key was held.
    ///
    /// # Errors
    /// See [`TopicManageError`]. Nothing is changed, unless the error says that this is unknown.
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, the key may or may not be released. It can be repeated.
    pub async fn release_held_key(
        &self,
        topic: &str,
        subscription: &str,
        key: &str,
    ) -> Result<bool, TopicManageError> {
        let inner = self.inner();
        inner.topic_to_manage(topic)?;
        release_held_key(inner, (topic, subscription), key).await
    }
}

fn has_record(topic: &TopicSummary) -> bool {
    topic.last >= topic.first
}

impl Inner {
    /// A topic of the store, if an operator may change it.
    fn topic_to_manage(&self, name: &str) -> Result<(&dyn TopicStreams, TopicSummary), TopicManageError> {
        if let Some(cause) = self.settled_cause() {
            return Err(cause.into());
        }
        let unknown = || TopicManageError::Unknown {
            name: name.to_owned(),
        };
        let streams = self.shared.journal.topics().ok_or_else(unknown)?;
        let mut named = streams.list().into_iter().filter(|topic| topic.name == name);
        // The runtime's own topics are removed together with what they belong to.
        let topic = named
            .next()
            .filter(|_| !name.is_empty() && !name.starts_with(OWN));
        Ok((streams, topic.ok_or_else(unknown)?))
    }

    pub(super) fn not_managed(&self, refused: TopicChangeRefused, name: &str) -> TopicManageError {
        match refused {
            TopicChangeRefused::Unknown { .. } => TopicManageError::Unknown {
                name: name.to_owned(),
            },
            TopicChangeRefused::Failed(failure) => self.failed(failure),
            _ => TopicManageError::Unsupported,
        }
    }

    fn failed(&self, failure: JournalFailure) -> TopicManageError {
        match self.settled_cause() {
            Some(cause) => cause.into(),
            None if self.stop.is_closing() => StopCause::Shutdown.into(),
            None => TopicManageError::Failed(failure),
        }
    }

    /// Waits until the operation with this offset is durable.
    pub(super) async fn until_durable(&self, offset: Offset) -> Result<(), TopicManageError> {
        let journal = &self.shared.journal;
        let news = self.shared.durable.news_of(journal);
        loop {
            // Listed before it looks, so that no change is missed.
            let mut waiting = news.wait();
            if journal.high_watermark() >= offset {
                return Ok(());
            }
            if let Some(failure) = journal.failure() {
                return Err(self.failed(failure));
            }
            let mut stopped = Box::pin(self.stop.stopped());
            let mut told = pin!(waiting.told());
            let cause = poll_fn(|cx| match told.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => stopped.as_mut().poll(cx).map(Some),
            });
            if let Some(cause) = cause.await {
                return Err(cause.into());
            }
        }
    }
}
