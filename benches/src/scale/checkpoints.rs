//! One run that makes checkpoints for ever: what it takes in the file and in memory, and how fast it wakes, however
//! many events it has had.

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::{RunHandle, Runtime};
use tokio::task::JoinSet;

use super::definitions::{FOR_EVER, GO};
use super::{Row, failed, open, resident_bytes};
use crate::runs::Sample;
use crate::{BenchError, StoreFolder, store_in, workers};

/// Clients that signal the run.
const CLIENTS: u64 = 256;
/// How often the store is opened again and the run woken, at each level.
const WAKES: u64 = 9;

/// Signals one run until it has had as many events as each level says, a row for each. The levels grow.
///
/// # Errors
/// When anything fails, or a signal is missing in the end.
pub fn checkpoints(
    folder: &Path,
    levels: &[u64],
    threads: usize,
    mut each: impl FnMut(u64),
) -> Result<Vec<Row>, BenchError> {
    let store = store_in(folder)?;
    let mut rows = Vec::new();
    let (mut signals, mut events) = (0, 0);
    for level in levels {
        each(*level);
        let row = workers(threads)?.block_on(async {
            // Each signal is an event, and once in a hundred a checkpoint.
            let more = level.saturating_sub(events);
            let (per_s, resident) = grow(&store, more).await?;
            signals += more;
            let (reopens, wakes) = wake(&store).await?;
            signals += WAKES;
            events = signals + signals / 100;
            let file = std::fs::metadata(store.path().join("store.redb")).map(|file| file.len() as f64);
            Ok::<_, BenchError>(Row {
                p50_us: Some(wakes.nanos.value_at_quantile(0.5) as f64 / 1e3),
                reopen_us: Some(reopens.nanos.value_at_quantile(0.5) as f64 / 1e3),
                resident_bytes_used: resident.map(|bytes| bytes as f64),
                file_bytes_used: file.ok(),
                ..Row::new("checkpoints", "events of one run", *level, per_s)
            })
        })?;
        rows.push(row);
    }
    let result = workers(threads)?.block_on(async {
        let runtime = open(&store).start().await.map_err(failed)?;
        let run = runtime.attach(FOR_EVER, "for ever").map_err(failed)?;
        run.signal(GO, 0).await.map_err(failed)?;
        let result = run.result().await.map_err(failed)?;
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>(result)
    })?;
    if result == signals {
        return Ok(rows);
    }
    Err(BenchError::Wrong {
        contestant: "millrun".into(),
        what: format!("{signals} signals came to {result}"),
    })
}

/// Signals the run so often: signals per second, and the memory of this process behind them.
async fn grow(store: &StoreFolder, more: u64) -> Result<(f64, Option<u64>), BenchError> {
    let runtime = open(store).start().await.map_err(failed)?;
    let run = at_hand(&runtime).await?;
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let run = run.clone();
        let signals = more / CLIENTS + u64::from(client < more % CLIENTS);
        clients.spawn(async move {
            for _ in 0..signals {
                run.signal(GO, 1).await.map_err(failed)?;
            }
            Ok::<_, BenchError>(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client.map_err(failed)??;
    }
    let per_s = more as f64 / started.elapsed().as_secs_f64();
    let resident = resident_bytes();
    drop(run);
    runtime.shutdown().await.map_err(failed)?;
    Ok((per_s, resident))
}

async fn at_hand(runtime: &Runtime) -> Result<RunHandle<u64, millrun::WorkflowError>, BenchError> {
    match runtime.start(FOR_EVER, "for ever", ()).await {
        Ok(run) => Ok(run),
        Err(_) => runtime.attach(FOR_EVER, "for ever").map_err(failed),
    }
}

/// Opens the store and signals the run, which is not in memory then: how long each took.
async fn wake(store: &StoreFolder) -> Result<(Sample, Sample), BenchError> {
    let (mut reopens, mut wakes) = (Vec::<Duration>::new(), Vec::<Duration>::new());
    for _ in 0..WAKES {
        let started = Instant::now();
        let runtime = open(store).start().await.map_err(failed)?;
        reopens.push(started.elapsed());
        let run = runtime.attach(FOR_EVER, "for ever").map_err(failed)?;
        let started = Instant::now();
        run.signal(GO, 1).await.map_err(failed)?;
        wakes.push(started.elapsed());
        drop(run);
        runtime.shutdown().await.map_err(failed)?;
    }
    Ok((Sample::of(&reopens), Sample::of(&wakes)))
}
