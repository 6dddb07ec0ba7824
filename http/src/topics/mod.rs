//! Topics that a program exposes for publishing and tailing.
//!
//! ```text
//!   publisher ──► topic ──► inbox, which drops its oldest ──► pump ──► ring ──┬─► tail of a client
//!                             one per tailed topic, while it is listened to   └─► tail of a client
//! ```
//!
//! A listener never delays a publisher: messages that the pump does not take in time are dropped and counted, and so are
//! messages that have left the ring before a client has read them. Both are reported as a gap. A topic without listeners has
//! no inbox here, and so costs its publishers nothing.
//!
//! None of that is needed for topics whose records the journal keeps: see `durable/`.

mod durable;
mod error;
mod exposed;
mod pump;
mod ring;
mod tail;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use millrun::topics::{DurableTopicError, DurableTopicTimes, TopicLookError};
use millrun::{DurableTopic, Runtime, Topic};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use crate::view::{Json, durable_topic, list, object};

pub(crate) use durable::{
    CarriesRecords, RecordSaid, delete_topic, purge_topic, record_tail, records_page, send_back,
    subscriptions_page,
};
pub(crate) use tail::tail;

pub use durable::RECORDS_BYTES_MAX;
pub use error::ExposeError;
pub use ring::{RING_BYTES_MAX, RING_LEN_MAX};

use durable::TypedRecords;
use exposed::Typed;
pub(crate) use pump::Tail;

/// The exposed topics. A cheap clone, whose tails are shared.
#[derive(Clone, Default)]
pub(crate) struct Topics(BTreeMap<&'static str, ExposedTopic>);

/// An exposed topic.
#[derive(Clone)]
pub(crate) enum ExposedTopic {
    /// In memory.
    Volatile(Arc<Tail>),
    /// The journal keeps its records.
    Durable(Arc<dyn CarriesRecords>),
}

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Topics {
    /// Exposes a topic.
    pub(crate) fn expose<T>(&mut self, runtime: &Runtime, topic: Topic<T>) -> Result<(), ExposeError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let name = topic.name();
        if runtime
            .durable_topics()
            .iter()
            .any(|durable| durable.name == name)
        {
            return Err(ExposeError::Durable { name });
        }
        let carried = Typed::<T>::new(runtime, topic)?;
        let tail = Tail::new(Box::new(carried), runtime.host().random());
        self.0.insert(name, ExposedTopic::Volatile(Arc::new(tail)));
        Ok(())
    }

    /// Exposes a durable topic.
    pub(crate) fn expose_durable<T>(
        &mut self,
        runtime: &Runtime,
        topic: DurableTopic<T>,
    ) -> Result<(), DurableTopicError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let carried = TypedRecords::<T>::new(runtime, topic)?;
        let exposed = ExposedTopic::Durable(Arc::new(carried));
        self.0.insert(topic.topic().name(), exposed);
        Ok(())
    }

    /// The topic of this name.
    pub(crate) fn get(&self, name: &str) -> Result<&ExposedTopic, Problem> {
        let exposed = self.0.get(name);
        exposed.ok_or_else(|| Problem::new("no-topic", format!("no topic {name:?} is exposed")))
    }

    /// The durable topic of this name.
    pub(crate) fn durable(&self, name: &str) -> Result<&dyn CarriesRecords, Problem> {
        match self.get(name)? {
            ExposedTopic::Durable(topic) => Ok(topic.as_ref()),
            ExposedTopic::Volatile(_) => Err(not_durable(name)),
        }
    }

    /// Refuses a topic in memory.
    pub(crate) fn refuse_volatile(&self, name: &str) -> Result<(), Problem> {
        match self.0.get(name) {
            Some(ExposedTopic::Volatile(_)) => Err(not_durable(name)),
            Some(ExposedTopic::Durable(_)) | None => Ok(()),
        }
    }

    /// The exposed topics in memory, and the state of each durable one. A topic that the caller may not read is treated as
    /// one that is not exposed.
    pub(crate) async fn told(
        &self,
        runtime: &Runtime,
        may_read: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Json, Problem> {
        let volatile = self.0.iter().filter_map(|(name, exposed)| match exposed {
            ExposedTopic::Volatile(tail) if may_read(name) => Some((*name, tail.carried())),
            ExposedTopic::Volatile(_) | ExposedTopic::Durable(_) => None,
        });
        let topics = list(volatile, |(name, carried)| {
            object([
                ("name", name.into()),
                ("payload", carried.type_name().into()),
                ("published", carried.published().into()),
            ])
        });
        let mut durable = Vec::new();
        for summary in runtime.durable_topics() {
            let payload = match self.0.get(summary.name.as_str()) {
                Some(ExposedTopic::Durable(topic)) if may_read(&summary.name) => Some(topic.type_name()),
                Some(ExposedTopic::Durable(_) | ExposedTopic::Volatile(_)) | None => None,
            };
            let times = match runtime.durable_topic_times(&summary.name).await {
                Err(TopicLookError::Read(_)) => DurableTopicTimes::default(),
                times => times?,
            };
            durable.push(durable_topic(&summary, times, payload));
        }
        Ok(object([("topics", topics), ("durable", Json::List(durable))]))
    }
}

fn not_durable(name: &str) -> Problem {
    Problem::new("not-durable", format!("{name:?} is not declared durable"))
}
