//! Publishing to an exposed topic: in memory, waiting for room, or durably.

use std::time::Duration;

use axum::http::HeaderMap;
use millrun::broker::Headers;
use millrun::{Payload, PayloadError, Runtime};

use crate::body::{PublishBody, payload};
use crate::keys::key_of;
use crate::problem::Problem;
use crate::query::wait_or;
use crate::router::Served;
use crate::topics::{CarriesRecords, ExposedTopic, RecordSaid, Tail};
use crate::traceparent::trace_of;
use crate::view::{Json, object};
use crate::waiting::within;

/// How long a publish waits for room by default, and always for a webhook.
pub(crate) const PUBLISH_WAIT_MS: u64 = 5_000;

/// Publishes to a topic. In a topic in memory it waits for room as long as the query says; in a durable topic it waits until
/// the record is durable.
pub(crate) async fn publish(
    served: &Served,
    topic: &str,
    query: &str,
    headers: &HeaderMap,
    body: PublishBody<'_>,
) -> Result<Json, Problem> {
    let wait = wait_or(query, PUBLISH_WAIT_MS)?;
    let (value, trace) = (payload(body.value)?, trace_of(headers));
    match served.topics.get(topic)? {
        ExposedTopic::Volatile(tail) => {
            let said = [
                ("id", body.id.is_some()),
                ("correlation", body.correlation.is_some()),
                ("content_type", body.content_type.is_some()),
            ];
            if let Some((name, _)) = said.iter().find(|(_, is_there)| *is_there) {
                let detail = format!("{topic:?} is in memory: {name} is for a durable topic");
                return Err(Problem::new("invalid-body", detail));
            }
            let mut said = body.key.map(|key| Headers::new().key(key)).unwrap_or_default();
            if let Some(trace) = trace {
                said = said.trace(trace);
            }
            publish_in_memory(&served.runtime, tail, wait, said, &value).await
        }
        ExposedTopic::Durable(topic) => {
            let id = match body.id {
                Some(id) => Some(id),
                None => key_of(headers)?.map(str::to_owned),
            };
            let said = RecordSaid {
                key: body.key,
                id,
                correlation: body.correlation,
                content_type: body.content_type,
                trace,
            };
            publish_record(topic.as_ref(), said, &value).await
        }
    }
}

/// Publishes to a topic in memory, waiting at most this long for room.
pub(crate) async fn publish_in_memory(
    runtime: &Runtime,
    topic: &Tail,
    wait: Duration,
    said: Headers,
    value: &Payload,
) -> Result<Json, Problem> {
    let publishing = topic.carried().publish(said, value).map_err(unfit)?;
    match within(runtime.host().as_ref(), wait, publishing).await {
        Some(published) => {
            let published = published?;
            Ok(object([
                ("envelope", published.id.to_string().into()),
                ("delivered", published.delivered.into()),
            ]))
        }
        None => {
            let detail = format!("there was none for {} ms", wait.as_millis());
            Err(Problem::new("topic-full", detail).retryable())
        }
    }
}

/// Publishes to a durable topic, and waits until the record is durable.
pub(crate) async fn publish_record(
    topic: &dyn CarriesRecords,
    said: RecordSaid,
    value: &Payload,
) -> Result<Json, Problem> {
    let published = topic.publish(said, value).map_err(unfit)?.await?;
    Ok(object([
        ("token", published.token().to_string().into()),
        ("sequence", published.sequence().get().into()),
        ("is_repeat", published.is_repeat().into()),
    ]))
}

/// The problem for a value that does not have the topic's type.
fn unfit(error: PayloadError) -> Problem {
    Problem::new("payload", error.to_string())
}
