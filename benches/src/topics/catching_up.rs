//! A reader from the beginning of a topic that is on disk: how fast does it catch up, in how much memory, and does it miss
//! anything of what is published meanwhile?

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use millrun::topics::{DurableTopicHandle, ReadFrom};

use super::apart::Apart;
use super::records::{number_of, open, record_of, wrong};
use crate::http::Summary;
use crate::scale::failed;
use crate::{BenchError, resident_bytes, workers};

/// After this number of records memory is looked at.
const LOOKED_EVERY: u64 = 16_384;
/// How many records are published when the reader has caught up.
const LIVE: u64 = 1_000;
/// The record behind which nothing comes.
const END: &str = "end";

/// Reads `records` records of the store in this folder, which has those of all numbers below, while one publisher adds
/// further ones; then goes on with those. The memory is that by which this process grew meanwhile, at its most.
pub(super) fn catch_up(folder: &Path, records: u64, threads: usize) -> Result<Apart, BenchError> {
    workers(threads)?.block_on(async {
        let (runtime, topic) = open(folder).await?;
        let resident = || resident_bytes().unwrap_or(0);
        let before = resident();
        let mut most = before;
        let has_caught_up = Arc::new(AtomicBool::new(false));
        let publishing = tokio::spawn(publish_on(topic.clone(), records, Arc::clone(&has_caught_up)));
        let started = Instant::now();
        let mut reader = topic.read(ReadFrom::Beginning).await.map_err(failed)?;
        let mut sum: u128 = 0;
        for place in 1..=records {
            let record = reader.next().await.map_err(failed)?;
            let sequence = record.token().sequence().get();
            let number = number_of(record.payload()).filter(|_| sequence == place);
            let Some(number) = number else {
                return Err(wrong(format!("record {sequence} came in place of {place}")));
            };
            sum += u128::from(number);
            if place % LOOKED_EVERY == 0 {
                most = most.max(resident());
            }
        }
        let took = started.elapsed();
        // Publishers were many, so numbers have no order; but each was there once.
        let all = u128::from(records);
        if sum != all * (all - 1) / 2 {
            return Err(wrong(format!("the numbers of {records} records make {sum}")));
        }
        has_caught_up.store(true, Ordering::Relaxed);
        let mut expected = records;
        loop {
            let record = reader.next().await.map_err(failed)?;
            if record.payload() == END {
                break;
            }
            if number_of(record.payload()) != Some(expected)
                || record.token().sequence().get() != expected + 1
            {
                return Err(wrong(format!(
                    "{:?} came in place of record {expected}",
                    record.payload()
                )));
            }
            expected += 1;
        }
        let most = most.max(resident());
        let published = publishing.await.map_err(failed)??;
        if published != expected {
            return Err(wrong(format!("{expected} records of {published} came")));
        }
        drop((reader, topic));
        runtime.shutdown().await.map_err(failed)?;
        Ok(Apart {
            summary: Summary {
                per_s: records as f64 / took.as_secs_f64(),
                ..Summary::default()
            },
            resident_bytes: most.saturating_sub(before),
        })
    })
}

/// Publishes one record after the other, [`LIVE`] more when the reader has caught up, and the end. Gives how many there are
/// before the end.
async fn publish_on(
    topic: DurableTopicHandle<String>,
    mut number: u64,
    has_caught_up: Arc<AtomicBool>,
) -> Result<u64, BenchError> {
    let mut left = LIVE;
    while left > 0 {
        topic.publish(&record_of(number)).await.map_err(failed)?;
        number += 1;
        left -= u64::from(has_caught_up.load(Ordering::Relaxed));
    }
    topic.publish(&END.to_owned()).await.map_err(failed)?;
    Ok(number)
}
