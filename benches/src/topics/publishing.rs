//! Many publishers, each waiting until its record is durable before it publishes the next.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrun::topics::DurableTopicHandle;

use super::records::{keys, open, record_of};
use crate::runs::{Sample, Saturation, saturate};
use crate::scale::failed;
use crate::{BenchError, workers};

/// How many publish at a time, where many do.
pub(super) const PUBLISHERS: usize = 1_024;
/// Records that a store is filled with in one go.
const FILLED_AT_ONCE: u64 = 1_000_000;

/// Publishes to a store in this folder, on a tokio runtime of its own.
pub(super) fn publish_for(folder: &Path, lasts: Duration, threads: usize) -> Result<Sample, BenchError> {
    workers(threads)?.block_on(async {
        let (runtime, topic) = open(folder).await?;
        // As long as the journal's appenders, which nothing warms up.
        let sample = publish(&topic, lasts, Duration::ZERO).await;
        let ended = runtime.shutdown().await;
        let sample = sample?;
        ended.map_err(failed)?;
        Ok(sample)
    })
}

/// Publishes one record again and again, each time with another key.
pub(super) async fn publish(
    topic: &DurableTopicHandle<String>,
    lasts: Duration,
    warm_up: Duration,
) -> Result<Sample, BenchError> {
    let load = Saturation {
        concurrency: PUBLISHERS,
        warm_up,
        measured: lasts,
        runs_max: u64::MAX,
    };
    let source = Arc::new((topic.clone(), keys(), record_of(0)));
    saturate(load, move |number| {
        let source = Arc::clone(&source);
        async move {
            let (topic, keys, record) = &*source;
            publish_one(topic, record, keys, number).await
        }
    })
    .await
}

/// Fills a store in this folder with the records of the numbers below `records`.
pub(super) fn fill(folder: &Path, records: u64, threads: usize) -> Result<(), BenchError> {
    workers(threads)?.block_on(async {
        let (runtime, topic) = open(folder).await?;
        let source = Arc::new((topic, keys()));
        let mut filled = 0;
        while filled < records {
            let first = filled;
            let source = Arc::clone(&source);
            let load = Saturation {
                concurrency: PUBLISHERS,
                warm_up: Duration::ZERO,
                measured: Duration::from_secs(3_600),
                runs_max: FILLED_AT_ONCE.min(records - first),
            };
            filled += load.runs_max;
            saturate(load, move |number| {
                let source = Arc::clone(&source);
                async move {
                    let (topic, keys) = &*source;
                    let number = first + number;
                    publish_one(topic, &record_of(number), keys, number).await
                }
            })
            .await?;
        }
        runtime.shutdown().await.map(drop).map_err(failed)
    })
}

async fn publish_one(
    topic: &DurableTopicHandle<String>,
    record: &String,
    keys: &[String],
    number: u64,
) -> Result<(), BenchError> {
    let place = usize::try_from(number % keys.len() as u64).map_err(failed)?;
    let publish = topic.publish(record).key(&keys[place]);
    publish.await.map(drop).map_err(failed)
}
