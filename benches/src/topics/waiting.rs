//! Runs that wait for records by key: what they weigh, what they cost those that publish to other keys, and how soon the one that
//! a record is for has ended.

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::topics::DurableTopicHandle;
use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};

use super::apart::Apart;
use super::publishing::{PUBLISHERS, publish_all};
use super::records::{KEYS, RECORDS, record_of, wrong};
use crate::http::Summary;
use crate::runs::{Sample, Saturation, saturate};
use crate::scale::failed;
use crate::{BenchError, resident_bytes, store_in, workers};

/// Waits for the record whose key is the id of its instance.
const WAIT: Workflow<String, String> = Workflow::named("wait");
/// How many runs are woken and timed, one by one.
const WAKES: u64 = 200;
/// How many records are published to other keys.
const PUBLISHED: u64 = 500_000;

async fn wait(cx: WorkflowContext, key: String) -> Result<String, WorkflowError> {
    Ok(cx.receive_from(RECORDS).key(key).await?.into_payload())
}

/// Lets `runs` runs wait in a store of its own; then publishes to keys of none of them, and wakes a few. The memory is that by
/// which this process grew for the runs; the times are those from an answered publish to the result, less a publish.
pub(super) fn publish_beside_waiting(folder: &Path, runs: u64, threads: usize) -> Result<Apart, BenchError> {
    let store = store_in(folder)?;
    workers(threads)?.block_on(async {
        let builder = Runtime::open(store.path().join("store.redb"));
        let builder = builder.durable_topic(RECORDS).register(WAIT, wait);
        let runtime = builder.start().await.map_err(failed)?;
        let topic = runtime.durable_topic(RECORDS).map_err(failed)?;
        let before = resident_bytes().unwrap_or(0);
        start_all(&runtime, runs).await?;
        let resident_bytes = resident_bytes().unwrap_or(0).saturating_sub(before);
        let took = publish_all(&topic, PUBLISHED, KEYS).await?;
        let wakes = wake_some(&runtime, &topic, runs).await?;
        drop(topic);
        runtime.shutdown().await.map_err(failed)?;
        let micros = |quantile| wakes.nanos.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Apart {
            summary: Summary {
                per_s: PUBLISHED as f64 / took.as_secs_f64(),
                p50_us: micros(0.5),
                p95_us: micros(0.95),
                p99_us: micros(0.99),
            },
            resident_bytes,
        })
    })
}

fn id_of(number: u64) -> String {
    format!("run-{number}")
}

async fn start_all(runtime: &Runtime, runs: u64) -> Result<(), BenchError> {
    let load = Saturation {
        concurrency: PUBLISHERS,
        warm_up: Duration::ZERO,
        measured: Duration::from_secs(3_600),
        runs_max: runs,
    };
    let on = runtime.clone();
    let started = saturate(load, move |number| {
        let (runtime, id) = (on.clone(), id_of(number));
        async move {
            let start = runtime.start(WAIT, &id, id.clone());
            start.await.map(drop).map_err(failed)
        }
    });
    started.await.map(drop)
}

/// From a publish that is answered until the run has ended: the run is read, takes its record, ends, and that is committed. A
/// publish to no run, timed behind each, is taken off: it is such a commit.
async fn wake_some(
    runtime: &Runtime,
    topic: &DurableTopicHandle<String>,
    runs: u64,
) -> Result<Sample, BenchError> {
    let mut times = Vec::new();
    let wakes = WAKES.min(runs);
    for number in (0..wakes).map(|wake| wake * (runs / wakes)) {
        let (id, record) = (id_of(number), record_of(number));
        let run = runtime.attach(WAIT, &id).map_err(failed)?;
        topic.publish(&record).key(&id).await.map_err(failed)?;
        let published = Instant::now();
        let result = run.result().await.map_err(failed)?;
        let woken = published.elapsed();
        if result != record {
            return Err(wrong(format!("run {number} gave {result}")));
        }
        let alone = Instant::now();
        topic.publish(&record).key("nobody").await.map_err(failed)?;
        times.push(woken.saturating_sub(alone.elapsed()));
    }
    Ok(Sample::of(&times))
}
