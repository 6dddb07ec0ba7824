//! One-step runs by worker threads, with as many shards.

use std::path::Path;
use std::time::Duration;

use super::definitions::ONE_STEP;
use super::{Row, failed, open};
use crate::runs::{Saturation, saturate};
use crate::workflows::run_once;
use crate::{BenchError, store_in, workers};

const CONCURRENCY: usize = 1_024;

/// Measures with `threads` worker threads and as many shards, for `measured`.
///
/// # Errors
/// When anything fails, or a result is wrong.
pub fn threads(folder: &Path, threads: usize, measured: Duration) -> Result<Row, BenchError> {
    let store = store_in(folder)?;
    let sample = workers(threads)?.block_on(async {
        let runtime = open(&store)
            .configure(|config| config.shards_len = threads)
            .start()
            .await
            .map_err(failed)?;
        let load = Saturation {
            concurrency: CONCURRENCY,
            warm_up: measured / 4,
            measured,
            runs_max: u64::MAX,
        };
        let on = runtime.clone();
        let sample = saturate(load, move |number| {
            run_once(on.clone(), ONE_STEP, number, number, number + 1)
        })
        .await?;
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>(sample)
    })?;
    let micros = |quantile: f64| sample.nanos.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Row {
        p50_us: Some(micros(0.5)),
        p99_us: Some(micros(0.99)),
        ..Row::new(
            "threads",
            "worker threads and shards",
            threads as u64,
            sample.per_s(),
        )
    })
}
