//! A topic of any type, used by name and with JSON.

use std::any::type_name;
use std::pin::Pin;
use std::task::{Context, Poll};

use millrun::broker::{
    Broker, Envelope, Headers, Overflow, PublishError, Published, Receiver, SubscribeError,
    SubscriptionConfig, TopicError, TopicHandle,
};
use millrun::{Payload, PayloadError, Runtime, Topic};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ring::MESSAGE_BYTES_MAX;
use crate::Redaction;
use crate::problem::Problem;
use crate::view::{Json, object};

/// A publish that waits for room.
pub(crate) type Publishing = Pin<Box<dyn Future<Output = Result<Published, Problem>> + Send>>;

/// A topic whose values can be written as JSON and read from it.
pub(crate) trait Carries: Send + Sync {
    /// The type of its values, as Rust names it.
    fn type_name(&self) -> &'static str;
    /// How many envelopes were published to it.
    fn published(&self) -> u64;
    /// Publishes a value, which may have to wait for room.
    fn publish(&self, headers: Headers, value: &Payload) -> Result<Publishing, PayloadError>;
    /// Listens to it.
    fn listen(&self) -> Result<Box<dyn Listens>, SubscribeError>;
}

/// An inbox at a topic.
pub(crate) trait Listens: Send {
    /// The next envelope as JSON; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>>;
    /// How many envelopes were dropped since it listens.
    fn dropped(&self) -> u64;
}

/// A topic of values of this type.
pub(super) struct Typed<T> {
    broker: Broker,
    topic: TopicHandle<T>,
}

impl<T: Send + Sync + 'static> Typed<T> {
    pub(super) fn new(runtime: &Runtime, topic: Topic<T>) -> Result<Self, TopicError> {
        let broker = runtime.broker().clone();
        let topic = broker.topic(topic.name())?;
        Ok(Self { broker, topic })
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Carries for Typed<T> {
    fn type_name(&self) -> &'static str {
        type_name::<T>()
    }

    fn published(&self) -> u64 {
        self.topic.published()
    }

    fn publish(&self, headers: Headers, value: &Payload) -> Result<Publishing, PayloadError> {
        let value: T = value.decode()?;
        let topic = self.topic.clone();
        Ok(Box::pin(async move {
            topic.publish_with(headers, value).await.map_err(refused)
        }))
    }

    fn listen(&self) -> Result<Box<dyn Listens>, SubscribeError> {
        let config = SubscriptionConfig {
            name: "millrun-http tail".to_owned(),
            overflow: Overflow::DropOldest,
            ..SubscriptionConfig::default()
        };
        let inbox = self.broker.subscribe::<T>(self.topic.name().as_str(), config)?;
        Ok(Box::new(inbox.into_receiver()))
    }
}

impl<T: Serialize + Send + Sync + 'static> Listens for Receiver<Envelope<T>> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        self.poll_recv(cx)
            .map(|envelope| envelope.map(|envelope| message(&envelope)))
    }

    fn dropped(&self) -> u64 {
        self.inbox().subscription_stats().dropped
    }
}

/// An envelope as JSON. Each tail hides fields by itself.
fn message<T: Serialize>(envelope: &Envelope<T>) -> String {
    let told = |value: Json| {
        object([
            ("envelope", envelope.id().to_string().into()),
            ("at_us", envelope.time().into()),
            ("key", envelope.key().into()),
            ("cause", envelope.run_cause().into()),
            ("trace", envelope.trace().into()),
            ("payload", value),
        ])
        .to_text(&Redaction::default())
    };
    let unreadable = |why: String| told(object([("unreadable", why.into())]));
    let text = match Payload::encode(envelope.payload()) {
        Ok(payload) => told((&payload).into()),
        Err(error) => unreadable(error.to_string()),
    };
    match text.len() > MESSAGE_BYTES_MAX {
        true => unreadable(format!(
            "as JSON it has {} bytes, of which {MESSAGE_BYTES_MAX} are shown at most",
            text.len()
        )),
        false => text,
    }
}

fn refused<T>(error: PublishError<T>) -> Problem {
    let code = match error {
        PublishError::Closed(_) => "stopped",
        _ => "topic-full",
    };
    Problem::new(code, error.to_string()).retryable()
}
