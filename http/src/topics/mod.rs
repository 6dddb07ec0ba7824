//! Topics that a program exposes: published to, and tailed.
//!
//! ```text
//!   publisher ──► topic ──► inbox, which drops its oldest ──► pump ──► ring ──┬─► tail of a client
//!                             one per tailed topic, while it is listened to   └─► tail of a client
//! ```
//!
//! Nobody who listens holds up a publisher: what the pump does not get to in time is dropped and counted, and so is
//! what a client does not get to before it leaves the ring. Both are told as a gap. A topic that nobody listens to
//! has no inbox here, and so costs its publishers nothing.

mod exposed;
mod pump;
mod ring;
mod tail;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use millrun::broker::TopicError;
use millrun::{Runtime, Topic};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use crate::view::{Json, list, object};

pub(crate) use tail::tail;

pub use ring::{RING_BYTES_MAX, RING_LEN_MAX};

use exposed::Typed;
use pump::Tail;

/// The topics that are exposed. A cheap clone, whose tails are shared.
#[derive(Clone, Default)]
pub(crate) struct Topics(BTreeMap<&'static str, Arc<Tail>>);

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Topics {
    /// Exposes a topic.
    pub(crate) fn expose<T>(&mut self, runtime: &Runtime, topic: Topic<T>) -> Result<(), TopicError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let carried = Typed::<T>::new(runtime, topic)?;
        let tail = Tail::new(Box::new(carried), runtime.host().random());
        self.0.insert(topic.name(), Arc::new(tail));
        Ok(())
    }

    /// The topic of this name.
    pub(crate) fn get(&self, name: &str) -> Result<&Arc<Tail>, Problem> {
        let exposed = self.0.get(name);
        exposed.ok_or_else(|| Problem::new("no-topic", format!("no topic {name:?} is exposed")))
    }

    /// What there is.
    pub(crate) fn told(&self) -> Json {
        let topics = list(&self.0, |(name, tail)| {
            object([
                ("name", (*name).into()),
                ("payload", tail.carried().type_name().into()),
                ("published", tail.carried().published().into()),
            ])
        });
        object([("topics", topics)])
    }
}
