//! One publisher and one reader: how long from a publish until the reader has the record?

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::topics::ReadFrom;
use tokio::sync::mpsc;

use super::records::{number_of, open, record_of, wrong};
use crate::runs::Sample;
use crate::scale::{failed, unless_stopped};
use crate::{BenchError, workers};

/// Publishes one record after the other, each when the reader has the one before, in a store in this folder.
pub(super) fn deliver_for(folder: &Path, lasts: Duration, threads: usize) -> Result<Sample, BenchError> {
    workers(threads)?.block_on(async {
        let (runtime, topic) = open(folder).await?;
        let mut reader = topic.read(ReadFrom::Now).await.map_err(failed)?;
        let (arrived, mut arrivals) = mpsc::unbounded_channel();
        let reading = tokio::spawn(async move {
            loop {
                let record = reader.next().await.map_err(failed)?;
                let at = Instant::now();
                if arrived.send((number_of(record.payload()), at)).is_err() {
                    return Ok::<_, BenchError>(());
                }
            }
        });
        let delivering = async {
            let (began, mut times) = (Instant::now(), Vec::new());
            for number in 0.. {
                let published = Instant::now();
                if published - began >= lasts {
                    break;
                }
                let record = record_of(number);
                topic.publish(&record).key("key").await.map_err(failed)?;
                let Some((arrived, at)) = arrivals.recv().await else {
                    return Err(failed("the reader has ended"));
                };
                if arrived != Some(number) {
                    return Err(wrong(format!(
                        "record {number} was published, {arrived:?} arrived"
                    )));
                }
                times.push(at.duration_since(published));
            }
            Ok(Sample::of(&times))
        };
        let sample = unless_stopped(&runtime, delivering).await.flatten();
        // It waits for a record that does not come.
        reading.abort();
        let ended = runtime.shutdown().await;
        let sample = sample?;
        ended.map_err(failed)?;
        Ok(sample)
    })
}
