//! Many publishers, each waiting until its record is durable before it publishes the next.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrun::topics::DurableTopicHandle;
use tokio::task::JoinSet;

use super::records::{keys, open, record_of};
use crate::runs::{Sample, Saturation, saturate};
use crate::scale::failed;
use crate::{BenchError, workers};

/// How many publish at a time, where many do.
pub(super) const PUBLISHERS: usize = 1_024;

/// Publishes one record again and again, each time with another key, to a store in this folder, on a tokio runtime of its
/// own.
pub(super) fn publish_for(folder: &Path, lasts: Duration, threads: usize) -> Result<Sample, BenchError> {
    workers(threads)?.block_on(async {
        let (runtime, topic) = open(folder).await?;
        let load = Saturation {
            concurrency: PUBLISHERS,
            // As the journal's appenders, which nothing warms up.
            warm_up: Duration::ZERO,
            measured: lasts,
            runs_max: u64::MAX,
        };
        let source = Arc::new((topic, keys(), record_of(0)));
        let sample = saturate(load, move |number| {
            let source = Arc::clone(&source);
            async move {
                let (topic, keys, record) = &*source;
                let place = usize::try_from(number % keys.len() as u64).map_err(failed)?;
                let publish = topic.publish(record).key(&keys[place]);
                publish.await.map(drop).map_err(failed)
            }
        })
        .await;
        let ended = runtime.shutdown().await;
        let sample = sample?;
        ended.map_err(failed)?;
        Ok(sample)
    })
}

/// Publishes the records of the numbers below `records`, each once, with as many keys in turn. Gives how long it took.
pub(super) async fn publish_all(
    topic: &DurableTopicHandle<String>,
    records: u64,
    keys: u64,
) -> Result<Duration, BenchError> {
    let started = Instant::now();
    let mut publishers = JoinSet::new();
    for first in 0..PUBLISHERS as u64 {
        let topic = topic.clone();
        publishers.spawn(async move {
            for number in (first..records).step_by(PUBLISHERS) {
                let (record, key) = (record_of(number), format!("key-{}", number % keys));
                topic.publish(&record).key(&key).await.map_err(failed)?;
            }
            Ok::<_, BenchError>(())
        });
    }
    while let Some(publisher) = publishers.join_next().await {
        publisher.map_err(failed)??;
    }
    Ok(started.elapsed())
}

/// Fills a store in this folder with the records of the numbers below `records`, with as many keys in turn.
pub(super) fn fill(folder: &Path, records: u64, keys: u64, threads: usize) -> Result<(), BenchError> {
    workers(threads)?.block_on(async {
        let (runtime, topic) = open(folder).await?;
        publish_all(&topic, records, keys).await?;
        drop(topic);
        runtime.shutdown().await.map(drop).map_err(failed)
    })
}
