//! The code of a program tried on the live runs of a store that it has left.

use std::path::Path;
use std::time::Instant;

use millrun::{Runtime, RuntimeBuilder};
use tokio::task::JoinSet;

use super::definitions::{GO, LONG, registered};
use super::waiting::CLIENTS;
use super::{Row, failed, open, resident_bytes};
use crate::{BenchError, StoreFolder, store_in, workers};

/// Steps of each run: with its beginning, some hundred events.
const STEPS: u64 = 50;

/// Measures a preflight over `runs` live ones. Memory is that of this process, so each level should have a process of its own.
///
/// # Errors
/// When anything fails, or the code does not fit.
pub fn preflight(folder: &Path, runs: u64, threads: usize) -> Result<Row, BenchError> {
    let store = store_in(folder)?;
    workers(threads)?.block_on(async {
        let runtime = open(&store).start().await.map_err(failed)?;
        leave(&runtime, runs).await?;
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>(())
    })?;
    let (report, elapsed, resident) = workers(threads)?.block_on(async {
        let started = Instant::now();
        let report = closed(&store).preflight();
        let report = report
            .configure(|config| config.threads = threads)
            .await
            .map_err(failed)?;
        Ok::<_, BenchError>((report, started.elapsed(), resident_bytes()))
    })?;
    if !report.is_fit() || report.runs != runs || report.events < runs * 2 * STEPS {
        return Err(BenchError::Wrong {
            contestant: "millrun".into(),
            what: format!("{report}"),
        });
    }
    Ok(Row {
        last_us: Some(elapsed.as_secs_f64() * 1e6),
        resident_bytes_used: resident.map(|bytes| bytes as f64),
        ..Row::new(
            "preflight",
            "runs",
            runs,
            report.events as f64 / elapsed.as_secs_f64(),
        )
    })
}

fn closed(store: &StoreFolder) -> RuntimeBuilder {
    registered(Runtime::open(store.path().join("store.redb")))
}

/// Starts runs that wait behind their steps.
async fn leave(runtime: &Runtime, runs: u64) -> Result<(), BenchError> {
    let mut clients = JoinSet::new();
    for client in 0..(CLIENTS as u64).min(runs) {
        let runtime = runtime.clone();
        clients.spawn(async move {
            for number in (client..runs).step_by(CLIENTS) {
                let run = runtime
                    .start(LONG, &format!("long-{number}"), STEPS)
                    .await
                    .map_err(failed)?;
                run.until_described(|run| run.awaits(GO.name()))
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
