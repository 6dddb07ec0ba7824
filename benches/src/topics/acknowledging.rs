//! One consumer of a durable subscription that acknowledges each record: how many a second?

use std::path::Path;
use std::time::Instant;

use super::records::{number_of, open, wrong};
use crate::http::Summary;
use crate::scale::{failed, unless_stopped};
use crate::{BenchError, workers};

/// Consumes the records of the numbers below `records` of the store in this folder, in a subscription of this name: until the
/// last acknowledgement is kept.
pub(super) fn acknowledge(
    folder: &Path,
    name: &str,
    records: u64,
    threads: usize,
) -> Result<Summary, BenchError> {
    workers(threads)?.block_on(async {
        let (runtime, topic) = open(folder).await?;
        // On a worker, as a program's tasks are.
        let name = name.to_owned();
        let consuming = tokio::spawn(async move {
            let subscription = topic.subscribe(&name).await.map_err(failed)?;
            let started = Instant::now();
            let (mut sum, mut saved) = (0_u128, None);
            for _ in 0..records {
                let delivery = subscription.next().await.map_err(failed)?;
                let number = number_of(delivery.payload());
                sum += u128::from(number.ok_or_else(|| wrong("a record has no number".into()))?);
                saved = Some(delivery.ack().map_err(failed)?);
            }
            if let Some(saved) = saved {
                saved.await.map_err(failed)?;
            }
            let took = started.elapsed();
            let lag = subscription.status().lag;
            let all = u128::from(records);
            if sum != all * (all - 1) / 2 || lag != 0 {
                return Err(wrong(format!(
                    "the numbers of {records} records make {sum}, {lag} are left"
                )));
            }
            Ok::<_, BenchError>(took)
        });
        let took = unless_stopped(&runtime, consuming).await?.map_err(failed)??;
        runtime.shutdown().await.map_err(failed)?;
        Ok(Summary {
            per_s: records as f64 / took.as_secs_f64(),
            ..Summary::default()
        })
    })
}
