//! A record that starts a run of one step, beside a caller that starts it.

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::Runtime;

use super::records::{RECORDS, number_of, wrong};
use crate::http::Summary;
use crate::runs::{Saturation, saturate};
use crate::scale::{failed, unless_stopped};
use crate::workflows::{ONE_STEP, registered};
use crate::{BenchError, workers};

/// How often it is looked whether all runs have ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Runs that callers have at a time.
pub(super) const AT_A_TIME: usize = 1_024;

/// One run for each record of the numbers below `records` of the store in this folder: until the last has ended.
pub(super) fn trigger(folder: &Path, records: u64, threads: usize) -> Result<Summary, BenchError> {
    workers(threads)?.block_on(async {
        let builder = registered(Runtime::open(folder.join("store.redb"))).durable_topic(RECORDS);
        let runtime = builder.start().await.map_err(failed)?;
        let topic = runtime.durable_topic(RECORDS).map_err(failed)?;
        let started = Instant::now();
        let trigger = topic.trigger("steps");
        let trigger = trigger.start(ONE_STEP, |record| {
            let number = number_of(record.payload()).unwrap_or(u64::MAX);
            (format!("run-{number}"), number)
        });
        let trigger = trigger.await.map_err(failed)?;
        let all_ended = async {
            while runtime.stats().finished < records || trigger.handled() < records {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        unless_stopped(&runtime, all_ended).await?;
        let took = started.elapsed();
        let (stats, refused) = (runtime.stats(), trigger.refused());
        drop((trigger, topic));
        runtime.shutdown().await.map_err(failed)?;
        if stats.finished != records || stats.started != records || refused != 0 {
            return Err(wrong(format!(
                "of {records} records {} runs were started, {} have ended, {refused} were refused",
                stats.started, stats.finished
            )));
        }
        Ok(Summary {
            per_s: records as f64 / took.as_secs_f64(),
            ..Summary::default()
        })
    })
}

/// As many runs, which callers start and wait for, in a store in this folder.
pub(super) fn start(folder: &Path, runs: u64, threads: usize) -> Result<Summary, BenchError> {
    workers(threads)?.block_on(async {
        let builder = registered(Runtime::open(folder.join("store.redb")));
        let runtime = builder.start().await.map_err(failed)?;
        let load = Saturation {
            concurrency: AT_A_TIME,
            warm_up: Duration::ZERO,
            measured: Duration::from_secs(3_600),
            runs_max: runs,
        };
        let on = runtime.clone();
        let sample = saturate(load, move |number| {
            let runtime = on.clone();
            async move {
                let start = runtime.start(ONE_STEP, &format!("run-{number}"), number);
                let result = start.await.map_err(failed)?.result().await.map_err(failed)?;
                match result == number + 1 {
                    true => Ok(()),
                    false => Err(wrong(format!("run {number} gave {result}"))),
                }
            }
        })
        .await;
        let ended = runtime.shutdown().await;
        let sample = sample?;
        ended.map_err(failed)?;
        Ok(Summary::from(&sample))
    })
}
