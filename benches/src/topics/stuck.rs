//! A subscription whose consumer has a record in hand and does not answer: what does it cost those that publish and read
//! meanwhile?

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::topics::{ReadFrom, TopicReader};

use super::apart::Apart;
use super::publishing::publish_all;
use super::records::{KEYS, open, wrong};
use crate::http::Summary;
use crate::scale::{failed, unless_stopped};
use crate::{BenchError, resident_bytes, store_in, workers};

/// Its lease does not end.
const LEASE: Duration = Duration::from_secs(3_600);
/// How many records of the stuck subscription are looked at in the end.
const LOOKED_AT: u64 = 1_024;

/// Publishes `records` records in a store of its own until a reader that keeps up has had all, beside a subscription that is
/// stuck if `is_beside_a_stuck_one`. The memory is that of this process then.
pub(super) fn publish_beside(
    is_beside_a_stuck_one: bool,
    folder: &Path,
    records: u64,
    threads: usize,
) -> Result<Apart, BenchError> {
    let store = store_in(folder)?;
    workers(threads)?.block_on(async {
        let (runtime, topic) = open(store.path()).await?;
        let keeping_up = topic.read(ReadFrom::Beginning).await.map_err(failed)?;
        let keeping_up = tokio::spawn(read_all(keeping_up, records + 1));
        // There has to be a record for it to take in hand.
        publish_all(&topic, 1, 1).await?;
        let mut stuck = None;
        if is_beside_a_stuck_one {
            let subscription = topic.subscribe("stuck").lease(LEASE).await.map_err(failed)?;
            let delivery = subscription.next().await.map_err(failed)?;
            stuck = Some((subscription, delivery));
        }
        let started = Instant::now();
        publish_all(&topic, records, KEYS).await?;
        unless_stopped(&runtime, keeping_up).await?.map_err(failed)??;
        let took = started.elapsed();
        let resident_bytes = resident_bytes().unwrap_or(0);
        // It was not forgotten: what it had left is still there.
        if let Some((subscription, delivery)) = stuck {
            delivery.ack().map_err(failed)?;
            for place in 2..=LOOKED_AT.min(records) {
                let next = unless_stopped(&runtime, subscription.next()).await?;
                let delivery = next.map_err(failed)?;
                let sequence = delivery.record().token().sequence().get();
                if sequence != place {
                    return Err(wrong(format!("record {sequence} came in place of {place}")));
                }
                delivery.ack().map_err(failed)?;
            }
        }
        drop(topic);
        runtime.shutdown().await.map_err(failed)?;
        Ok(Apart {
            summary: Summary {
                per_s: records as f64 / took.as_secs_f64(),
                ..Summary::default()
            },
            resident_bytes,
        })
    })
}

/// Reads `records` records, which must follow each other.
async fn read_all(mut reader: TopicReader<String>, records: u64) -> Result<(), BenchError> {
    for place in 1..=records {
        let record = reader.next().await.map_err(failed)?;
        let sequence = record.token().sequence().get();
        if sequence != place {
            return Err(wrong(format!("record {sequence} came in place of {place}")));
        }
    }
    Ok(())
}
