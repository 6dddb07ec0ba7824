//! The reaction to a webhook.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use millrun::broker::Headers;
use millrun::{InstanceId, Payload, RunHandle, RunId, Runtime, Signal, Topic, Workflow};
use serde::Serialize;

use crate::problem::Problem;
use crate::publish::{PUBLISH_WAIT_MS, publish_in_memory, publish_record};
use crate::starts::check_registered;
use crate::topics::{ExposedTopic, RecordSaid, Topics};
use crate::waiting::within;

/// Why a closure refuses a webhook.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RefusedWebhook(String);

impl RefusedWebhook {
    /// With this reason, which the sender is told.
    #[must_use]
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl From<serde_json::Error> for RefusedWebhook {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// What has been done; durable except for a publish.
pub(super) enum Done {
    Nothing,
    Published,
    Recorded,
    Started { id: InstanceId, run: Option<RunId> },
}

impl Done {
    fn started<O, E>(handle: &RunHandle<O, E>) -> Self {
        Self::Started {
            id: handle.id().clone(),
            run: handle.run_id(),
        }
    }
}

type Performing = Pin<Box<dyn Future<Output = Result<Done, Problem>> + Send>>;

/// The reaction to a webhook: nothing, a start, a signal, both at once, or a publish. A webhook that is sent again leads to
/// no second start and no second signal while the run is retained: its id is the instance's id, or the request name of the
/// signal, of which a run remembers the last 1,000.
#[must_use = "a reaction does nothing unless a closure returns it"]
pub struct Reaction(Box<dyn FnOnce(ReactionReach, String) -> Performing + Send>);

/// What a reaction can use.
#[derive(Clone, Debug)]
pub(super) struct ReactionReach {
    pub(super) runtime: Runtime,
    /// The topics that are exposed beside the hook.
    pub(super) topics: Topics,
}

impl fmt::Debug for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reaction")
    }
}

impl Reaction {
    fn new<F>(perform: impl FnOnce(Runtime, String) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<Done, Problem>> + Send + 'static,
    {
        Self(Box::new(|reach, webhook| {
            Box::pin(perform(reach.runtime, webhook))
        }))
    }

    /// No reaction. The webhook is still answered, so that it is not sent again.
    pub fn nothing() -> Self {
        Self::new(|_, _| async { Ok(Done::Nothing) })
    }

    /// Starts an instance; the webhook's id is the instance's.
    pub fn start<I, O, E>(workflow: Workflow<I, O, E>, input: I) -> Self
    where
        I: Serialize + Send + 'static,
        O: 'static,
        E: 'static,
    {
        Self::new(move |runtime, webhook| start(runtime, workflow, webhook, input))
    }

    /// Starts an instance with this id, or attaches to its run: for services that report one thing several times.
    pub fn start_as<I, O, E>(workflow: Workflow<I, O, E>, id: impl Into<String>, input: I) -> Self
    where
        I: Serialize + Send + 'static,
        O: 'static,
        E: 'static,
    {
        let id = id.into();
        Self::new(move |runtime, _| start(runtime, workflow, id, input))
    }

    /// Signals an instance.
    pub fn signal<I, O, E, T>(
        workflow: Workflow<I, O, E>,
        id: impl Into<String>,
        signal: Signal<T>,
        value: T,
    ) -> Self
    where
        I: 'static,
        O: 'static,
        E: 'static,
        T: Serialize + Send + 'static,
    {
        let id = id.into();
        Self::new(move |runtime, webhook| async move {
            let handle = runtime.attach(workflow, &id)?;
            handle.signal_as(signal, &webhook, value).await?;
            Ok(Done::Recorded)
        })
    }

    /// Signals an instance, and starts it with that signal if it does not live: for services that report one thing several
    /// times. A finished instance is not started again, which is a problem.
    pub fn signal_with_start<I, O, E, T>(
        workflow: Workflow<I, O, E>,
        id: impl Into<String>,
        input: I,
        signal: Signal<T>,
        value: T,
    ) -> Self
    where
        I: Serialize + Send + 'static,
        O: 'static,
        E: 'static,
        T: Serialize + Send + 'static,
    {
        let id = id.into();
        Self::new(move |runtime, webhook| async move {
            let start = runtime.start(workflow, &id, input);
            let handle = start.with_signal_as(signal, &webhook, value).await?;
            Ok(Done::started(&handle))
        })
    }

    /// Publishes to a topic, waiting at most five seconds for room; without room the webhook is answered 503, after which
    /// most senders try again. Topics are in memory and recognise no repetitions: a webhook that is sent again is published
    /// again.
    pub fn publish<T: Send + Sync + 'static>(topic: Topic<T>, value: T) -> Self {
        Self::new(move |runtime, webhook| async move {
            let topic = runtime.broker().topic::<T>(topic.name());
            let topic = topic.map_err(|error| Problem::new("topic", error.to_string()))?;
            let headers = Headers::new().key(webhook);
            let full = |detail: String| Problem::new("topic-full", detail).retryable();
            let wait = Duration::from_millis(PUBLISH_WAIT_MS);
            let publishing = topic.publish_with(headers, value);
            match within(runtime.host().as_ref(), wait, publishing).await {
                Some(Ok(_)) => Ok(Done::Published),
                Some(Err(error)) => Err(full(error.to_string())),
                None => Err(full(format!("there was no room for {PUBLISH_WAIT_MS} ms"))),
            }
        })
    }

    /// As [`start`](Self::start), or with an id as [`start_as`](Self::start_as), of the workflow with this name, with an
    /// encoded input. An input of another type than the workflow's, or a workflow that is not registered, is a problem, and
    /// starts nothing.
    pub fn start_untyped(workflow: impl Into<String>, id: Option<String>, input: Payload) -> Self {
        let workflow = workflow.into();
        Self::new(move |runtime, webhook| async move {
            let id = id.unwrap_or(webhook);
            check_registered(&runtime, &workflow)?;
            let handle = runtime.start_untyped(workflow, &id, input).await?;
            Ok(Done::Started {
                id: handle.id().clone(),
                run: handle.run_id(),
            })
        })
    }

    /// As [`signal`](Self::signal), with the signal's name and an encoded value.
    pub fn signal_untyped(id: impl Into<String>, signal: impl Into<String>, value: Payload) -> Self {
        let (id, signal) = (id.into(), signal.into());
        Self::new(move |runtime, webhook| async move {
            let handle = runtime.attach_untyped(&id)?;
            handle.signal_as(&signal, &webhook, value).await?;
            Ok(Done::Recorded)
        })
    }

    /// As [`signal_with_start`](Self::signal_with_start), with names and encoded values.
    pub fn signal_with_start_untyped(
        workflow: impl Into<String>,
        id: impl Into<String>,
        input: Payload,
        signal: impl Into<String>,
        value: Payload,
    ) -> Self {
        let (workflow, id, signal) = (workflow.into(), id.into(), signal.into());
        Self::new(move |runtime, webhook| async move {
            check_registered(&runtime, &workflow)?;
            let start = runtime.start_untyped(workflow, &id, input);
            let handle = start.with_signal_untyped_as(&signal, &webhook, value).await?;
            Ok(Done::Started {
                id: handle.id().clone(),
                run: handle.run_id(),
            })
        })
    }

    /// As [`publish`](Self::publish), to a topic that the hook's [`Console`](crate::Console) exposes, with an encoded value.
    /// Any other topic is a problem. In a durable topic the webhook's id is the record's id, so that a webhook that is sent
    /// again is published once; it is answered when the record is durable.
    pub fn publish_untyped(topic: impl Into<String>, value: Payload) -> Self {
        let topic = topic.into();
        Self(Box::new(move |reach, webhook| {
            Box::pin(async move {
                match reach.topics.get(&topic)? {
                    ExposedTopic::Volatile(topic) => {
                        let wait = Duration::from_millis(PUBLISH_WAIT_MS);
                        let said = Headers::new().key(webhook);
                        publish_in_memory(&reach.runtime, topic, wait, said, &value).await?;
                    }
                    ExposedTopic::Durable(topic) => {
                        let said = RecordSaid {
                            key: Some(webhook.clone()),
                            id: Some(webhook),
                            ..RecordSaid::default()
                        };
                        publish_record(topic.as_ref(), said, &value).await?;
                    }
                }
                Ok(Done::Published)
            })
        }))
    }

    pub(super) fn perform(self, reach: ReactionReach, webhook: String) -> Performing {
        (self.0)(reach, webhook)
    }
}

async fn start<I: Serialize, O, E>(
    runtime: Runtime,
    workflow: Workflow<I, O, E>,
    id: String,
    input: I,
) -> Result<Done, Problem> {
    let handle = runtime.start(workflow, &id, input).await?;
    Ok(Done::started(&handle))
}
