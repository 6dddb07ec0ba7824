//! A run for each key that loops: it is signalled with each record of its key, decides, and publishes to another topic.

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::topics::ReadFrom;
use millrun::{DurableTopic, Runtime, Signal, Topic, Workflow, WorkflowContext, WorkflowError};

use super::records::{RECORDS, number_of, wrong};
use crate::http::Summary;
use crate::scale::{failed, unless_stopped};
use crate::{BenchError, workers};

/// What the runs of keys decide, for ever.
const DECIDE: Workflow<(), ()> = Workflow::named("bench.decide");
const ARRIVED: Signal<u64> = Signal::named("bench.arrived");
/// Twice the number of the record.
const DECIDED: DurableTopic<u64> = Topic::named("bench.decided")
    .durable()
    .bytes_max(u64::MAX)
    .len_max(u64::MAX);
/// After how many records the code begins again from its state.
const CHECKPOINT_EVERY: u64 = 128;
/// How often it is looked whether all is decided.
const LOOK_EVERY: Duration = Duration::from_millis(1);

async fn decide(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    let mut decided: u64 = cx.checkpointed().transpose()?.unwrap_or(0);
    loop {
        let number = cx.receive(ARRIVED).await?;
        cx.publish(DECIDED, number * 2).await?;
        decided += 1;
        if decided.is_multiple_of(CHECKPOINT_EVERY) {
            return Ok(cx.checkpoint(&decided).await?);
        }
    }
}

/// Decides on each record of the numbers below `records` of the store in this folder: until the last decision is durable.
pub(super) fn decide_all(folder: &Path, records: u64, threads: usize) -> Result<Summary, BenchError> {
    workers(threads)?.block_on(async {
        let builder = Runtime::open(folder.join("store.redb"))
            .durable_topic(RECORDS)
            .durable_topic(DECIDED)
            .register(DECIDE, decide);
        let runtime = builder.start().await.map_err(failed)?;
        let topic = runtime.durable_topic(RECORDS).map_err(failed)?;
        let decided = runtime.durable_topic(DECIDED).map_err(failed)?;
        let started = Instant::now();
        let trigger = topic.trigger("decide");
        let trigger = trigger.start_with_signal(DECIDE, ARRIVED, |record| {
            let number = number_of(record.payload()).unwrap_or(u64::MAX);
            (record.key().unwrap_or_default().to_owned(), (), number)
        });
        let trigger = trigger.await.map_err(failed)?;
        let len = || {
            let all = runtime.durable_topics();
            let decided = all.iter().find(|topic| topic.name == "bench.decided");
            decided.map_or(0, |topic| topic.last)
        };
        let all_decided = async {
            while len() < records || trigger.handled() < records {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        unless_stopped(&runtime, all_decided).await?;
        let took = started.elapsed();
        let mut reader = decided.read(ReadFrom::Beginning).await.map_err(failed)?;
        let mut sum: u128 = 0;
        for _ in 0..records {
            let next = unless_stopped(&runtime, reader.next()).await?;
            sum += u128::from(*next.map_err(failed)?.payload());
        }
        let (len, all, refused) = (len(), u128::from(records), trigger.refused());
        drop((trigger, topic, decided, reader));
        runtime.shutdown().await.map_err(failed)?;
        if len != records || sum != all * (all - 1) || refused != 0 {
            return Err(wrong(format!(
                "of {records} records {len} were decided, {refused} were refused, and the numbers make {sum}"
            )));
        }
        Ok(Summary {
            per_s: records as f64 / took.as_secs_f64(),
            ..Summary::default()
        })
    })
}
