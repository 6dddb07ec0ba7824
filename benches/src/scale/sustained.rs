//! One-step runs without a pause, minute by minute: rate, latency, memory and file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::definitions::ONE_STEP;
use super::{Row, failed, open, resident_bytes};
use crate::runs::{Saturation, saturate};
use crate::workflows::run_once;
use crate::{BenchError, store_in, workers};

const CONCURRENCY: usize = 256;

/// Measures `periods` periods of this length on one store, one after the other.
///
/// # Errors
/// When anything fails, or a result is wrong.
pub fn sustained(
    folder: &Path,
    periods: u64,
    period: Duration,
    threads: usize,
    mut each: impl FnMut(u64),
) -> Result<Vec<Row>, BenchError> {
    let store = store_in(folder)?;
    workers(threads)?.block_on(async {
        let runtime = open(&store).start().await.map_err(failed)?;
        let numbers = Arc::new(AtomicU64::new(0));
        let mut rows = Vec::new();
        for place in 1..=periods {
            each(place);
            let load = Saturation {
                concurrency: CONCURRENCY,
                warm_up: Duration::ZERO,
                measured: period,
                runs_max: u64::MAX,
            };
            let (on, numbers) = (runtime.clone(), Arc::clone(&numbers));
            let sample = saturate(load, move |_| {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                run_once(on.clone(), ONE_STEP, number, number, number + 1)
            })
            .await?;
            let micros = |quantile: f64| sample.nanos.value_at_quantile(quantile) as f64 / 1e3;
            let seconds = place * period.as_secs();
            rows.push(Row {
                p50_us: Some(micros(0.5)),
                p99_us: Some(micros(0.99)),
                resident_bytes_used: resident_bytes().map(|bytes| bytes as f64),
                file_bytes_used: Some(runtime.stats().journal.file_bytes as f64),
                ..Row::new("sustained", "seconds", seconds, sample.per_s())
            });
        }
        runtime.shutdown().await.map_err(failed)?;
        Ok(rows)
    })
}
