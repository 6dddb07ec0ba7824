//! The topics that workflows of a runtime publish to: the way of a value from a history to its topic.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use millrun_broker::{Broker, Filter, Headers, PublishError, TopicError, TopicName};
use millrun_core::{Cause, TraceContext};
use millrun_workflow::{Name, PublishOutcome, PublishScheduled, RecordTexts, Topic};
use serde::de::DeserializeOwned;

type Publishing = Pin<Box<dyn Future<Output = Result<PublishOutcome, String>> + Send>>;

type Begin =
    dyn Fn(&PublishScheduled, Cause, Option<TraceContext>) -> Result<Publishing, String> + Send + Sync;

type Connect = dyn Fn(&Broker) -> Result<Arc<Begin>, TopicError> + Send + Sync;

/// Publishes values of histories to a topic of the broker. A cheap clone.
#[derive(Clone)]
pub(crate) struct Publisher {
    pub(crate) name: &'static str,
    connect: Arc<Connect>,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Publisher").field(&self.name).finish()
    }
}

impl Publisher {
    pub(crate) fn new<T: DeserializeOwned + Send + Sync + 'static>(topic: Topic<T>) -> Self {
        let name = topic.name();
        Self {
            name,
            connect: Arc::new(move |broker| connect::<T>(broker, name)),
        }
    }
}

fn connect<T: DeserializeOwned + Send + Sync + 'static>(
    broker: &Broker,
    name: &str,
) -> Result<Arc<Begin>, TopicError> {
    let topic = broker.topic::<T>(name)?;
    let begin = move |scheduled: &PublishScheduled,
                      cause: Cause,
                      trace: Option<TraceContext>|
          -> Result<Publishing, String> {
        let key = key_of(scheduled.texts.as_deref())?;
        let value: T = scheduled.value.decode().map_err(|error| error.to_string())?;
        let topic = topic.clone();
        let key = key.map_or_else(|| cause.to_string(), ToOwned::to_owned);
        let mut headers = Headers::new().key(key).caused_by_run(cause);
        if let Some(trace) = trace {
            headers = headers.trace(trace);
        }
        Ok(Box::pin(async move {
            let published = topic.publish_with(headers, value).await;
            if let Err(PublishError::Closed(_)) = published {
                // The runtime stops. No subscription has the value, and the next process decides about it.
                return std::future::pending().await;
            }
            published
                .map(|_| PublishOutcome::Taken)
                .map_err(|error| error.to_string())
        }))
    };
    Ok(Arc::new(begin))
}

/// The key of an envelope that a run publishes. Envelopes have no correlation and no content type: a run that sets these
/// expects a durable topic, so its publish is refused.
fn key_of(texts: Option<&RecordTexts>) -> Result<Option<&str>, String> {
    let Some(texts) = texts else {
        return Ok(None);
    };
    for (field, text) in [
        ("correlation", &texts.correlation),
        ("content type", &texts.content_type),
    ] {
        if text.is_some() {
            return Err(format!(
                "the topic is in memory, and only records of durable topics have a {field}"
            ));
        }
    }
    Ok(texts.key.as_deref())
}

type ConnectNamed = dyn Fn(&Broker, &str) -> Result<Arc<Begin>, TopicError> + Send + Sync;

/// Publishes values to the topics that a filter selects, whose names are only known at the publish. A cheap clone.
#[derive(Clone)]
pub(crate) struct NamedPublisher {
    filter: &'static str,
    connect: Arc<ConnectNamed>,
}

impl fmt::Debug for NamedPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedPublisher").field(&self.filter).finish()
    }
}

impl NamedPublisher {
    pub(crate) fn new<T: DeserializeOwned + Send + Sync + 'static>(filter: &'static str) -> Self {
        Self {
            filter,
            connect: Arc::new(|broker, name| connect::<T>(broker, name)),
        }
    }
}

/// The topics that workflows of a runtime publish to.
pub(crate) struct Topics {
    by_name: BTreeMap<&'static str, Arc<Begin>>,
    /// Filters for topics that are named at run time. The first that matches counts.
    by_filter: Vec<(Filter, Arc<ConnectNamed>)>,
    broker: Broker,
}

/// The name of a topic, and how to publish to it; or an error.
type Found<'a> = (Name, Result<Cow<'a, Arc<Begin>>, String>);

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.by_name.keys())
            .entries(self.by_filter.iter().map(|(filter, _)| filter))
            .finish()
    }
}

impl Topics {
    pub(crate) fn connect(
        publishers: Vec<Publisher>,
        named: Vec<NamedPublisher>,
        broker: &Broker,
    ) -> Result<Self, (&'static str, String)> {
        let mut by_name = BTreeMap::new();
        for publisher in publishers {
            let begin = (publisher.connect)(broker).map_err(|error| (publisher.name, error.to_string()))?;
            by_name.insert(publisher.name, begin);
        }
        let mut by_filter = Vec::with_capacity(named.len());
        for NamedPublisher { filter, connect } in named {
            let parsed = Filter::new(filter).map_err(|error| (filter, error.to_string()))?;
            by_filter.push((parsed, connect));
        }
        Ok(Self {
            by_name,
            by_filter,
            broker: broker.clone(),
        })
    }

    /// The names of the topics, and the filters of those that are named at run time, each in order.
    pub(crate) fn names_and_filters(&self) -> (Vec<String>, Vec<String>) {
        let names = self.by_name.keys().map(|name| (*name).to_owned()).collect();
        let filters = self.by_filter.iter();
        let mut filters: Vec<_> = filters.map(|(filter, _)| filter.as_str().to_owned()).collect();
        filters.sort_unstable();
        (names, filters)
    }

    /// The topic of this name, if the runtime has it or knows its type by a filter.
    pub(crate) fn get(&self, name: &str) -> Option<Found<'_>> {
        if let Some((name, begin)) = self.by_name.get_key_value(name) {
            return Some((Cow::Borrowed(name), Ok(Cow::Borrowed(begin))));
        }
        if self.by_filter.is_empty() {
            return None;
        }
        let found = match TopicName::new(name) {
            Ok(topic) => {
                let mut filters = self.by_filter.iter();
                let (_, connect) = filters.find(|(filter, _)| filter.matches(&topic))?;
                let begin = connect(&self.broker, name).map(Cow::Owned);
                begin.map_err(|error| error.to_string())
            }
            // No runtime will ever have such a topic.
            Err(error) => Err(error.to_string()),
        };
        Some((Cow::Owned(name.to_owned()), found))
    }

    /// Whether a publish to this topic is decided here, and does not wait for another runtime.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
            || !self.by_filter.is_empty()
                && TopicName::new(name).map_or(true, |topic| {
                    self.by_filter.iter().any(|(filter, _)| filter.matches(&topic))
                })
    }
}
