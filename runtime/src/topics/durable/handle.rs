//! The handle to a durable topic.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use millrun_persistence::TopicRetention;
use millrun_workflow::DurableTopic;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::declared::{DurableTopicError, KnownTopic};
use super::publish::PublishRecord;
use super::reader::{ReadFrom, ReadFromError, TopicReader};
use crate::Runtime;
use crate::inner::Inner;

/// A durable topic of a runtime: publishes to it and reads it. A cheap clone, which keeps the runtime alive.
pub struct DurableTopicHandle<T> {
    pub(super) inner: Arc<Inner>,
    pub(super) known: KnownTopic,
    pub(super) name: &'static str,
    payload: PhantomData<fn(T) -> T>,
}

impl<T> Clone for DurableTopicHandle<T> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            known: self.known,
            name: self.name,
            payload: PhantomData,
        }
    }
}

impl<T> fmt::Debug for DurableTopicHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DurableTopicHandle").field(&self.known).finish()
    }
}

/// What there is of a durable topic, at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurableTopicSummary {
    /// Its name.
    pub name: String,
    /// How long its records stay.
    pub retention: TopicRetention,
    /// The number of the first record that is there, or will be.
    pub first: u64,
    /// The number of the last record; the one before `first` if there is none.
    pub last: u64,
    /// Bytes of the records from `first` to `last`.
    pub bytes: u64,
}

impl Runtime {
    /// The handle to a durable topic that the builder [was told of](crate::RuntimeBuilder::durable_topic).
    ///
    /// ```
    /// use millrun::topics::ReadFrom;
    /// use millrun::{DurableTopic, Runtime, Topic};
    ///
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().durable_topic(PLACED).start().await?;
    /// let placed = runtime.durable_topic(PLACED)?;
    /// let published = placed.publish(&7).key("order-7").id("event-1").await?;
    /// let again = placed.publish(&7).key("order-7").id("event-1").await?;
    /// assert!(again.is_repeat() && again.token() == published.token());
    ///
    /// let mut reader = placed.read(ReadFrom::Beginning).await?;
    /// let record = reader.next().await?;
    /// assert_eq!((record.payload(), record.key()), (&7, Some("order-7")));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the builder was not told of it, or told something else of it.
    pub fn durable_topic<T: 'static>(
        &self,
        topic: DurableTopic<T>,
    ) -> Result<DurableTopicHandle<T>, DurableTopicError> {
        let known = self.inner().shared.durable.known(topic)?;
        Ok(DurableTopicHandle::of(self.inner(), known, topic.topic().name()))
    }

    /// The durable topics of this runtime, in the order of their names: what is kept of each.
    #[must_use]
    pub fn durable_topics(&self) -> Vec<DurableTopicSummary> {
        let shared = &self.inner().shared;
        let Some(streams) = shared.journal.topics() else {
            return Vec::new();
        };
        let summaries = shared
            .durable
            .iter()
            .filter_map(|(_, number)| streams.summary(number));
        summaries
            .map(|summary| DurableTopicSummary {
                name: summary.name,
                retention: summary.retention,
                first: summary.first.get(),
                last: summary.last.get(),
                bytes: summary.bytes,
            })
            .collect()
    }
}

impl<T> DurableTopicHandle<T> {
    /// The handle to a topic that is known to carry records of this type.
    pub(super) fn of(inner: &Arc<Inner>, known: KnownTopic, name: &'static str) -> Self {
        Self {
            inner: Arc::clone(inner),
            known,
            name,
            payload: PhantomData,
        }
    }

    /// Describes a publish, which is made when it is awaited: it ends when the record is durable.
    pub fn publish(&self, value: &T) -> PublishRecord<'_>
    where
        T: Serialize,
    {
        PublishRecord::new(&self.inner, self.known, value)
    }

    /// Opens a reader, which begins there.
    ///
    /// # Errors
    /// See [`ReadFromError`].
    pub async fn read(&self, from: ReadFrom) -> Result<TopicReader<T>, ReadFromError>
    where
        T: DeserializeOwned,
    {
        TopicReader::open(Arc::clone(&self.inner), self.known, from).await
    }
}
