//! One run with a long history: what a step costs late in it, and what its replay costs.

use std::path::Path;
use std::time::Instant;

use super::definitions::{GO, LONG};
use super::{Row, failed, open, unless_stopped};
use crate::{BenchError, store_in, workers};

/// Runs `steps` steps in sequence, closes the store, and wakes the run after opening it again.
///
/// # Errors
/// When anything fails, or the run's result is wrong.
pub fn history(folder: &Path, steps: u64, threads: usize) -> Result<Row, BenchError> {
    let store = store_in(folder)?;
    let elapsed = workers(threads)?.block_on(async {
        let runtime = open(&store).start().await.map_err(failed)?;
        let started = Instant::now();
        let run = runtime.start(LONG, "long", steps).await.map_err(failed)?;
        let all_steps = async {
            while runtime.stats().attempts < steps || runtime.stats().attempts_running > 0 {
                tokio::task::yield_now().await;
            }
        };
        unless_stopped(&runtime, all_steps).await?;
        let elapsed = started.elapsed();
        drop(run);
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>(elapsed)
    })?;
    let (reopened, woken) = workers(threads)?.block_on(async {
        let started = Instant::now();
        let runtime = open(&store).start().await.map_err(failed)?;
        let reopened = started.elapsed();
        let run = runtime.attach(LONG, "long").map_err(failed)?;
        let started = Instant::now();
        run.signal(GO, 7).await.map_err(failed)?;
        let result = run.result().await.map_err(failed)?;
        let woken = started.elapsed();
        runtime.shutdown().await.map_err(failed)?;
        if result == steps + 7 {
            return Ok((reopened, woken));
        }
        Err(BenchError::Wrong {
            contestant: "millrun".into(),
            what: format!("{steps} steps and 7 gave {result}"),
        })
    })?;
    Ok(Row {
        p50_us: Some(woken.as_secs_f64() * 1e6),
        reopen_us: Some(reopened.as_secs_f64() * 1e6),
        ..Row::new(
            "history",
            "steps of one run",
            steps,
            steps as f64 / elapsed.as_secs_f64(),
        )
    })
}
