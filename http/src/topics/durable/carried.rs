//! A durable topic of any type, used by name and with JSON.

use std::any::type_name;
use std::pin::Pin;

use millrun::topics::{
    DurablePublishError, DurableRecord, DurableTopicError, DurableTopicHandle, PublishedRecord, ReadFrom,
    ReadFromError, RecordToken, TopicReadError, TopicReader,
};
use millrun::workflow::TraceContext;
use millrun::{DurableTopic, Payload, PayloadError, RunError, Runtime};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// A running operation.
pub(super) type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A publish that completes when the record is durable.
pub(crate) type RecordBeingPublished = Doing<'static, Result<PublishedRecord, DurablePublishError>>;

/// A record, or the reason why there is none at its place.
pub(super) type EncodedRead = Result<DurableRecord<Payload>, TopicReadError>;

/// The texts of a record beside its value.
#[derive(Debug, Default)]
pub(crate) struct RecordSaid {
    pub(crate) key: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) correlation: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) trace: Option<TraceContext>,
}

/// A durable topic whose values can be written as JSON and read from it.
pub(crate) trait CarriesRecords: Send + Sync {
    /// The type of its values, as Rust names it.
    fn type_name(&self) -> &'static str;
    /// Publishes a value of its type.
    fn publish(&self, said: RecordSaid, value: &Payload) -> Result<RecordBeingPublished, PayloadError>;
    /// Opens a reader.
    fn read(&self, from: ReadFrom) -> Doing<'_, Result<Box<dyn ReadsRecords>, ReadFromError>>;
}

/// A reader of a durable topic. It returns records as they are in the journal, so that fields which the type does not know
/// are shown.
pub(crate) trait ReadsRecords: Send {
    /// Waits for the next record.
    fn next(&mut self) -> Doing<'_, EncodedRead>;
    /// The next record, if it exists already.
    fn next_now(&mut self) -> Doing<'_, Option<EncodedRead>>;
    /// The record behind which the next read continues.
    fn position(&self) -> Option<RecordToken>;
}

/// A durable topic of values of this type.
pub(crate) struct TypedRecords<T>(DurableTopicHandle<T>);

impl<T: 'static> TypedRecords<T> {
    pub(crate) fn new(runtime: &Runtime, topic: DurableTopic<T>) -> Result<Self, DurableTopicError> {
        runtime.durable_topic(topic).map(Self)
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> CarriesRecords for TypedRecords<T> {
    fn type_name(&self) -> &'static str {
        type_name::<T>()
    }

    fn publish(&self, said: RecordSaid, value: &Payload) -> Result<RecordBeingPublished, PayloadError> {
        let value: T = value.decode()?;
        let topic = self.0.clone();
        Ok(Box::pin(async move {
            let mut publish = topic.publish(&value);
            if let Some(key) = &said.key {
                publish = publish.key(key);
            }
            if let Some(id) = &said.id {
                publish = publish.id(id);
            }
            if let Some(correlation) = &said.correlation {
                publish = publish.correlation(correlation);
            }
            if let Some(content_type) = &said.content_type {
                publish = publish.content_type(content_type);
            }
            if let Some(trace) = said.trace {
                publish = publish.traced(trace);
            }
            publish.await
        }))
    }

    fn read(&self, from: ReadFrom) -> Doing<'_, Result<Box<dyn ReadsRecords>, ReadFromError>> {
        Box::pin(async move {
            let reader = self.0.read(from).await?;
            Ok(Box::new(reader) as Box<dyn ReadsRecords>)
        })
    }
}

impl<T: 'static> ReadsRecords for TopicReader<T> {
    fn next(&mut self) -> Doing<'_, EncodedRead> {
        Box::pin(self.next_encoded())
    }

    fn next_now(&mut self) -> Doing<'_, Option<EncodedRead>> {
        Box::pin(async { self.next_encoded_now().await.transpose() })
    }

    fn position(&self) -> Option<RecordToken> {
        Self::position(self)
    }
}

impl From<DurablePublishError> for Problem {
    fn from(error: DurablePublishError) -> Self {
        let told = error.to_string();
        match error {
            DurablePublishError::Payload(_) => Self::new("payload", told),
            DurablePublishError::TooLarge { .. } => Self::new("too-large", told),
            DurablePublishError::TextTooLong { .. } => Self::new("invalid-body", told),
            DurablePublishError::Moved { .. } => Self::new("moved", told).retryable(),
            DurablePublishError::UnknownTopic => Self::new("no-topic", told),
            DurablePublishError::Stopped(cause) => RunError::Stopped(cause).into(),
            _ => Self::new("unknown", told),
        }
    }
}

impl From<ReadFromError> for Problem {
    fn from(error: ReadFromError) -> Self {
        let told = error.to_string();
        match error {
            ReadFromError::OtherStore => Self::new("other-store", told),
            ReadFromError::OtherTopic => Self::new("other-topic", told),
            ReadFromError::NotYet { .. } => Self::new("record-not-yet", told),
            ReadFromError::Read(source) => Self::new("read", format!("{told}: {source}")),
            ReadFromError::Deleted => Self::new("no-topic", told),
            ReadFromError::Stopped(cause) => RunError::Stopped(cause).into(),
            _ => Self::new("unknown", told),
        }
    }
}
