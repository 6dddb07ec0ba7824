//! What a test can read from a world: calls, histories, signals, publishes, and waits.

use std::time::Duration;

use millrun::history::{Event, RecordedEvent, Sequence};
use millrun::operating::{InstanceDescription, Why};
use millrun::{Activity, InstanceId, Payload, PublishTarget, RunError, RunId, Runtime, Signal, Timestamp};
use serde::de::DeserializeOwned;

use super::recorder::AttemptSeen;
use super::world::World;

/// The most live runs, and finished runs, that are searched.
const RUNS_LEN_MAX: usize = 100_000;
/// How many events are read at a time.
const PAGE_LEN: usize = 1_000;

/// The events of all runs, with their instances.
type AllEvents = Vec<(InstanceId, RecordedEvent)>;

impl World {
    /// The inputs of this activity: one for each call, however many attempts it took and crashes came between, in the order
    /// in which the first attempts began. The activity may be mocked or real.
    ///
    /// # Panics
    /// If an input is not of the activity's type.
    #[must_use]
    pub fn calls<I: DeserializeOwned, O, E>(&self, activity: Activity<I, O, E>) -> Vec<I> {
        let mut keys = Vec::new();
        let mut calls = Vec::new();
        for attempt in self.attempts(activity) {
            if !keys.contains(&attempt.idempotency_key) {
                keys.push(attempt.idempotency_key);
                calls.push(attempt.input);
            }
        }
        calls
    }

    /// Each attempt of this activity, in the order in which they began, over all crashes: as a service outside of the process
    /// would have seen them.
    ///
    /// # Panics
    /// If an input is not of the activity's type.
    #[must_use]
    pub fn attempts<I: DeserializeOwned, O, E>(&self, activity: Activity<I, O, E>) -> Vec<AttemptSeen<I>> {
        self.recorder().attempts(activity)
    }

    /// The history of the latest run of this instance, as far as it is durable.
    ///
    /// # Panics
    /// If there is no such instance, or its history cannot be read.
    #[must_use]
    pub fn history(&self, id: &str) -> Vec<RecordedEvent> {
        let history = self.live(async |runtime| {
            let run = runtime.attach_untyped(id).expect("it is an instance id");
            let run = run.describe().await?.run;
            events(&runtime, run).await
        });
        history.unwrap_or_else(|error| panic!("{id} has no history: {error}"))
    }

    /// The names of the events of the latest run of this instance: `Started`, `ActivityScheduled`, and so on.
    ///
    /// # Panics
    /// As [`history`](World::history).
    #[must_use]
    pub fn event_labels(&self, id: &str) -> Vec<&'static str> {
        let history = self.history(id);
        history.iter().map(|recorded| recorded.event.label()).collect()
    }

    /// The signals of this name in the histories of runs, from any sender, in the order of their times, with the instances
    /// that got them.
    ///
    /// # Panics
    /// If a value is not of the signal's type, or a history cannot be read.
    #[must_use]
    pub fn signals<T: DeserializeOwned>(&self, signal: Signal<T>) -> Vec<(InstanceId, T)> {
        let mut signals = Vec::new();
        for (id, recorded) in self.all_events() {
            let values = match &recorded.event {
                Event::SignalReceived { name, value, .. } | Event::RunSignalReceived { name, value, .. } => {
                    vec![(name, value)]
                }
                // The signal that the run was started with, and those that it has from a run that it continues, are in this
                // event.
                Event::Started(started) => match &started.origin {
                    Some(origin) if origin.continued.is_none() => {
                        origin.signals.iter().map(|(name, value)| (name, value)).collect()
                    }
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            };
            for (name, value) in values {
                if &**name == signal.name() {
                    signals.push((id.clone(), decoded(value, signal.name())));
                }
            }
        }
        signals
    }

    /// What runs have decided to publish to this topic, in the order of the times.
    ///
    /// # Panics
    /// If a value is not of the topic's type, or a history cannot be read.
    #[must_use]
    pub fn publishes<P: PublishTarget>(&self, topic: P) -> Vec<P::Payload>
    where
        P::Payload: DeserializeOwned,
    {
        let mut values = Vec::new();
        for (_, recorded) in self.all_events() {
            if let Event::PublishScheduled(scheduled) = &recorded.event
                && &*scheduled.topic == topic.name()
            {
                values.push(decoded(&scheduled.value, topic.name()));
            }
        }
        values
    }

    /// What this instance does and waits for, once everything that is ready has run, without any time passing. It is brought
    /// into memory if it is not there.
    ///
    /// # Panics
    /// If there is no such instance.
    #[must_use]
    pub fn describe(&self, id: &str) -> InstanceDescription {
        self.advance(Duration::ZERO);
        let described = self.live(async |runtime| {
            let run = runtime.attach_untyped(id).expect("it is an instance id");
            run.describe_awake().await
        });
        described.unwrap_or_else(|error| panic!("{id} cannot be described: {error}"))
    }

    /// Why this instance does not go on, once everything that is ready has run, without any time passing; as text, a tree of
    /// what it waits for.
    ///
    /// # Panics
    /// If there is no such instance.
    #[must_use]
    pub fn why(&self, id: &str) -> Why {
        self.advance(Duration::ZERO);
        let why = self.live(async |runtime| {
            let run = runtime.attach_untyped(id).expect("it is an instance id");
            run.why_awake().await
        });
        why.unwrap_or_else(|error| panic!("{id} cannot be described: {error}"))
    }

    /// Asserts that this instance waits for a signal of this name when all is done that is ready, without any time passing.
    ///
    /// # Panics
    /// If it does not. The message says what it waits for.
    #[track_caller]
    pub fn assert_awaits<T>(&self, id: &str, signal: Signal<T>) {
        let name = signal.name();
        if !self.describe(id).awaits(name) {
            panic!("{id} does not wait for the signal {name}:\n{}", self.why(id));
        }
    }

    /// All events of all runs, in the order of their times; those of one time by the order in which the runs have ended.
    fn all_events(&self) -> AllEvents {
        let mut all = self
            .live(async |runtime| all_events(&runtime).await)
            .unwrap_or_else(|error| panic!("the histories cannot be read: {error}"));
        all.sort_by_key(|(_, recorded)| recorded.at);
        all
    }
}

async fn all_events(runtime: &Runtime) -> Result<AllEvents, RunError> {
    let live = runtime.list(None, RUNS_LEN_MAX).await?;
    let finished = runtime.list_finished(None, RUNS_LEN_MAX).await?;
    let live = live.into_iter().map(|summary| (summary.id, summary.run));
    let finished = finished.into_iter().map(|finished| (finished.id, finished.run));
    let mut all = Vec::new();
    for (id, run) in finished.chain(live) {
        let events = events(runtime, run).await?.into_iter();
        all.extend(events.map(|recorded| (id.clone(), recorded)));
    }
    Ok(all)
}

async fn events(runtime: &Runtime, run: RunId) -> Result<Vec<RecordedEvent>, RunError> {
    let (mut events, mut after) = (Vec::new(), Some(Sequence::ZERO));
    while let Some(behind) = after {
        let page = runtime.history(run, behind, PAGE_LEN).await?;
        after = page.next();
        events.extend(page.events);
    }
    Ok(events)
}

fn decoded<T: DeserializeOwned>(value: &Payload, name: &str) -> T {
    let value = value.decode();
    value.unwrap_or_else(|error| panic!("a value of {name} is not of its type: {error}"))
}

/// What each live run waits for, as text.
pub(super) async fn waits(runtime: &Runtime, len_max: usize) -> String {
    let Ok(live) = runtime.list(None, len_max).await else {
        return String::new();
    };
    let mut told = String::new();
    for summary in live {
        let Ok(run) = runtime.attach_untyped(summary.id.as_str()) else {
            continue;
        };
        if let Ok(why) = run.why_awake().await {
            told.push_str(&format!("{why}\n"));
        }
    }
    told
}

/// How much later one time is than another, as it is told.
pub(super) fn since(start: Timestamp, now: Timestamp) -> String {
    format!("{:?}", now.saturating_since(start))
}
