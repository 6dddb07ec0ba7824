//! The output streams of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrun_core::RunId;

use crate::inner::Inner;
use crate::{RunError, RunHandle, UntypedHandle};

/// An output stream of a run, as [`RunHandle::streams`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputStreamSummary {
    /// Its name.
    pub name: String,
    /// Whether it is a [durable](crate::ActivityContext::durable_stream) one.
    pub is_durable: bool,
    /// Whether an attempt has begun to send to it in this process and has not ended.
    pub is_sent_to: bool,
}

impl<O, E> RunHandle<O, E> {
    /// The output streams to which the run's activities have sent, by name: those in memory that are kept in this process,
    /// and the [durable](crate::ActivityContext::durable_stream) ones. The run is the one that [`stream`](Self::stream)
    /// follows.
    ///
    /// This looks through all known streams of all runs, at most [`streams_len_max`](crate::RuntimeConfig::streams_len_max)
    /// and [`durable_streams_len_max`](crate::RuntimeConfig::durable_streams_len_max).
    ///
    /// # Errors
    /// As [`describe`](Self::describe), for a handle that does not know its run.
    pub async fn streams(&self) -> Result<Vec<OutputStreamSummary>, RunError> {
        let run = match self.run_id() {
            Some(run) => run,
            None => self.describe().await?.run,
        };
        Ok(self.inner().output_streams(run))
    }
}

impl UntypedHandle {
    /// As [`RunHandle::streams`].
    ///
    /// # Errors
    /// See there.
    pub async fn streams(&self) -> Result<Vec<OutputStreamSummary>, RunError> {
        self.handle().streams().await
    }
}

impl Inner {
    fn output_streams(&self, run: RunId) -> Vec<OutputStreamSummary> {
        let mut all: BTreeMap<Arc<str>, OutputStreamSummary> = BTreeMap::new();
        for name in self.shared.outputs.of_run(run) {
            let summary = OutputStreamSummary {
                name: name.to_string(),
                is_durable: true,
                is_sent_to: false,
            };
            all.insert(name, summary);
        }
        for stream in self.shared.streams.of_run(run) {
            let log = stream.log();
            // Only a reader waits for it, and nothing was sent yet.
            if log.is_none() && !stream.is_volatile() {
                continue;
            }
            let is_durable = log.is_some();
            let is_sent_to = log.map_or_else(|| stream.lock().is_sent_to(), |log| log.is_sent_to());
            let name = &stream.key.1;
            let summary = OutputStreamSummary {
                name: name.to_string(),
                is_durable,
                is_sent_to,
            };
            all.insert(Arc::clone(name), summary);
        }
        all.into_values().collect()
    }
}
