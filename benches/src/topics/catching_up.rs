//! A reader from the beginning of a topic that is on disk: how fast does it catch up, and in how much memory?

use std::path::Path;
use std::time::Instant;

use millrun::topics::ReadFrom;

use super::apart::Apart;
use super::records::{number_of, open, wrong};
use crate::http::Summary;
use crate::scale::failed;
use crate::{BenchError, resident_bytes, workers};

/// After this number of records memory is looked at.
const LOOKED_EVERY: u64 = 16_384;

/// Reads `records` records of the store in this folder, which has those of all numbers below. The memory is that by
/// which this process grew meanwhile, at its most.
pub(super) fn catch_up(folder: &Path, records: u64, threads: usize) -> Result<Apart, BenchError> {
    workers(threads)?.block_on(async {
        let (runtime, topic) = open(folder).await?;
        let resident = || resident_bytes().unwrap_or(0);
        let before = resident();
        let mut most = before;
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
        let most = most.max(resident());
        drop((reader, topic));
        runtime.shutdown().await.map_err(failed)?;
        // Publishers were many, so numbers have no order; but each was there once.
        let all = u128::from(records);
        if sum != all * (all - 1) / 2 {
            return Err(wrong(format!("the numbers of {records} records make {sum}")));
        }
        Ok(Apart {
            summary: Summary {
                per_s: records as f64 / took.as_secs_f64(),
                ..Summary::default()
            },
            resident_bytes: most.saturating_sub(before),
        })
    })
}
