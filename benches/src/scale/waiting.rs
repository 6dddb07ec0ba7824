//! Instances that wait for a signal: what they weigh, how fast one wakes, how fast all are back
//! after the store is opened again.

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::Runtime;
use tokio::task::JoinSet;

use super::definitions::{GO, WAITING};
use super::{Row, failed, open, resident_bytes};
use crate::runs::Sample;
use crate::{BenchError, store_in, workers};

/// Clients that start the instances.
pub(super) const CLIENTS: usize = 1_024;
/// How many of them are woken and timed, one by one.
const WAKES: u64 = 200;

/// Measures `instances` waiting ones. Memory is that of this process, so each level should have a
/// process of its own.
///
/// # Errors
/// When anything fails.
pub fn waiting(folder: &Path, instances: u64, threads: usize) -> Result<Row, BenchError> {
    let store = store_in(folder)?;
    let (per_s, resident, wakes) = workers(threads)?.block_on(async {
        let runtime = open(&store).start().await.map_err(failed)?;
        let started = Instant::now();
        start_all(&runtime, instances).await?;
        let per_s = instances as f64 / started.elapsed().as_secs_f64();
        let resident = resident_bytes();
        let wakes = wake_some(&runtime, instances).await?;
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>((per_s, resident, wakes))
    })?;
    let reopened = workers(threads)?.block_on(async {
        let runtime = open(&store).start().await.map_err(failed)?;
        let report = runtime.startup_report();
        let (live, elapsed) = (report.live, report.elapsed);
        runtime.shutdown().await.map_err(failed)?;
        let expected = instances - WAKES.min(instances);
        if live == expected {
            return Ok(elapsed);
        }
        Err(BenchError::Wrong {
            contestant: "millrun".into(),
            what: format!("{live} instances are back, expected {expected}"),
        })
    })?;
    let file = std::fs::metadata(store.path().join("store.redb")).map(|file| file.len() as f64);
    let micros = |quantile: f64| wakes.nanos.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Row {
        p50_us: Some(micros(0.5)),
        p99_us: Some(micros(0.99)),
        reopen_us: Some(reopened.as_secs_f64() * 1e6),
        resident_bytes_used: resident.map(|bytes| bytes as f64),
        file_bytes_used: file.ok(),
        ..Row::new("waiting", "instances", instances, per_s)
    })
}

pub(super) async fn start_all(runtime: &Runtime, instances: u64) -> Result<(), BenchError> {
    let mut clients = JoinSet::new();
    for client in 0..(CLIENTS as u64).min(instances) {
        let runtime = runtime.clone();
        clients.spawn(async move {
            for number in (client..instances).step_by(CLIENTS) {
                runtime
                    .start(WAITING, &format!("w-{number}"), ())
                    .await
                    .map_err(failed)?;
            }
            Ok::<_, BenchError>(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client.map_err(failed)??;
    }
    Ok(())
}

/// From sending the signal to having the result: two commits, and for an unloaded instance its
/// replay.
async fn wake_some(runtime: &Runtime, instances: u64) -> Result<Sample, BenchError> {
    let mut times: Vec<Duration> = Vec::new();
    let wakes = WAKES.min(instances);
    for number in (0..wakes).map(|wake| wake * (instances / wakes)) {
        let run = runtime.attach(WAITING, &format!("w-{number}")).map_err(failed)?;
        let started = Instant::now();
        run.signal(GO, number).await.map_err(failed)?;
        let result = run.result().await.map_err(failed)?;
        times.push(started.elapsed());
        if result != number {
            return Err(BenchError::Wrong {
                contestant: "millrun".into(),
                what: format!("instance {number} gave {result}"),
            });
        }
    }
    Ok(Sample::of(&times))
}
