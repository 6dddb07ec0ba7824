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

/// A durable topic of a runtime, to publish to and to read. A cheap clone, which keeps the runtime alive.
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

/// The state of a durable topic at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurableTopicSummary {
    /// Its name.
    pub name: String,
    /// How long its records stay.
    pub retention: TopicRetention,
    /// The number of the first record that is left, or will be the next.
    pub first: u64,
    /// The number of the last record; `first` minus one if there is none.
    pub last: u64,
    /// Bytes of the records from `first` to `last`.
    pub bytes: u64,
}

impl Runtime {
    /// The handle to a durable topic that is [registered](crate::RuntimeBuilder::durable_topic) with the builder.
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
    /// If the topic is not registered with the builder, or was registered in another way.
    pub fn durable_topic<T: 'static>(
        &self,
        topic: DurableTopic<T>,
    ) -> Result<DurableTopicHandle<T>, DurableTopicError> {
        let known = self.inner().shared.durable.known(topic)?;
        Ok(DurableTopicHandle::of(self.inner(), known, topic.topic().name()))
    }

    /// The state of this runtime's durable topics, in the order of their names.
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

    /// Prepares a publish, which is made when it is awaited, and completes when the record is durable.
    pub fn publish(&self, value: &T) -> PublishRecord<'_>
    where
        T: Serialize,
    {
        PublishRecord::new(&self.inner, self.known, value)
    }

    /// Opens a reader that begins at this place.
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
