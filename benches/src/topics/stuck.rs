//! A reader that has a page in hand and does not read on: what does it cost those that publish and read meanwhile?

use std::path::Path;
use std::time::Duration;

use millrun::topics::{ReadFrom, TopicReader};

use super::apart::Apart;
use super::publishing::publish;
use super::records::{open, wrong};
use crate::http::Summary;
use crate::scale::{failed, unless_stopped};
use crate::{BenchError, resident_bytes, store_in, workers};

/// The record behind which nothing comes.
const END: &str = "end";

/// Publishes for so long in a store of its own, with a reader that keeps up, and with one that does not read on if
/// `is_beside_a_stuck_one`. The memory is that of this process at the end.
pub(super) fn publish_beside(
    is_beside_a_stuck_one: bool,
    folder: &Path,
    lasts: Duration,
    threads: usize,
) -> Result<Apart, BenchError> {
    let store = store_in(folder)?;
    workers(threads)?.block_on(async {
        let (runtime, topic) = open(store.path()).await?;
        let keeping_up = topic.read(ReadFrom::Beginning).await.map_err(failed)?;
        let keeping_up = tokio::spawn(read_to_the_end(keeping_up, 0));
        let mut stuck = None;
        if is_beside_a_stuck_one {
            stuck = Some(topic.read(ReadFrom::Beginning).await.map_err(failed)?);
        }
        // There has to be a page for it to take in hand.
        publish(&topic, lasts / 8, Duration::ZERO).await?;
        if let Some(stuck) = &mut stuck {
            stuck.next().await.map_err(failed)?;
        }
        let sample = publish(&topic, lasts, lasts / 8).await?;
        let last = topic.publish(&END.to_owned()).await.map_err(failed)?;
        let last = last.sequence().get();
        let read = unless_stopped(&runtime, keeping_up).await?.map_err(failed)??;
        let resident_bytes = resident_bytes().unwrap_or(0);
        if read != last {
            return Err(wrong(format!("{read} of {last} records came")));
        }
        // It was not forgotten: all that it had left is still there.
        if let Some(stuck) = stuck {
            let read = unless_stopped(&runtime, read_to_the_end(stuck, 1)).await??;
            if read != last {
                return Err(wrong(format!(
                    "{read} of {last} records came to the one that was stuck"
                )));
            }
        }
        drop(topic);
        runtime.shutdown().await.map_err(failed)?;
        Ok(Apart {
            summary: Summary::from(&sample),
            resident_bytes,
        })
    })
}

/// How many records there are up to the last, with the `read` that the reader has given.
async fn read_to_the_end(mut reader: TopicReader<String>, mut read: u64) -> Result<u64, BenchError> {
    loop {
        let record = reader.next().await.map_err(failed)?;
        read += 1;
        if record.token().sequence().get() != read {
            return Err(wrong(format!(
                "record {} came in place of {read}",
                record.token().sequence()
            )));
        }
        if record.payload() == END {
            return Ok(read);
        }
    }
}
