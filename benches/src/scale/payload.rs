//! Runs that carry a payload through one activity.

use std::path::Path;
use std::time::Duration;

use super::definitions::CARRY;
use super::{Row, failed, open};
use crate::runs::{Saturation, saturate};
use crate::workflows::run_once;
use crate::{BenchError, store_in, workers};

const CONCURRENCY: usize = 32;

/// Measures runs whose input has `bytes` bytes, for `measured`.
///
/// # Errors
/// When anything fails, or a result is wrong.
pub fn payload(folder: &Path, bytes: u64, threads: usize, measured: Duration) -> Result<Row, BenchError> {
    let store = store_in(folder)?;
    let length = usize::try_from(bytes).map_err(failed)?;
    let sample = workers(threads)?.block_on(async {
        let runtime = open(&store).start().await.map_err(failed)?;
        let load = Saturation {
            concurrency: CONCURRENCY,
            warm_up: measured / 4,
            measured,
            runs_max: u64::MAX,
        };
        let on = runtime.clone();
        let sample = saturate(load, move |number| {
            run_once(on.clone(), CARRY, number, "m".repeat(length), bytes)
        })
        .await?;
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>(sample)
    })?;
    let micros = |quantile: f64| sample.nanos.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Row {
        p50_us: Some(micros(0.5)),
        p99_us: Some(micros(0.99)),
        ..Row::new("payload", "bytes of input", bytes, sample.per_s())
    })
}
