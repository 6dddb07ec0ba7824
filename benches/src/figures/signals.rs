//! Many clients signal one instance: how many signals a second does it take, and does it lose any?

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::Runtime;
use tokio::task::JoinSet;

use super::Figure;
use super::definitions::{COUNT, TICK, registered};
use crate::runs::Sample;
use crate::scale::failed;
use crate::{BenchError, store_in, workers};

pub(super) const NAME: &str = "signals to one instance";
/// What a bar judges, by this name.
pub(super) const TAKEN: &str = "taken per second";

/// Each sends its next signal when the last one is durable.
const CLIENTS: u64 = 256;
/// How long the instance may take after the last signal was accepted.
const LIMIT: Duration = Duration::from_secs(60);

/// `level` signals; the instance checks that each client's arrive in order, and counts them.
pub(super) fn measure(folder: &Path, level: u64, threads: usize) -> Result<Vec<Figure>, BenchError> {
    let store = store_in(folder)?;
    let per_client = level.div_ceil(CLIENTS);
    let signals = per_client * CLIENTS;
    let (elapsed, sample) = workers(threads)?.block_on(async {
        let builder = registered(Runtime::open(store.path().join("store.redb")));
        let runtime = builder.start().await.map_err(failed)?;
        let run = runtime.start(COUNT, "count", signals).await.map_err(failed)?;
        let started = Instant::now();
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let run = run.clone();
            clients.spawn(async move {
                let mut times = Vec::new();
                for before in 0..per_client {
                    let started = Instant::now();
                    run.signal(TICK, (client, before)).await.map_err(failed)?;
                    times.push(started.elapsed());
                }
                Ok::<_, BenchError>(times)
            });
        }
        let mut times = Vec::new();
        while let Some(client) = clients.join_next().await {
            times.extend(client.map_err(failed)??);
        }
        let counted = tokio::time::timeout(LIMIT, run.result()).await;
        let stuck = |_| BenchError::Stuck {
            contestant: "millrun, which lost a signal,".into(),
            limit: LIMIT,
        };
        let counted = counted.map_err(stuck)?.map_err(failed)?;
        let elapsed = started.elapsed();
        runtime.shutdown().await.map_err(failed)?;
        if counted == signals {
            return Ok((elapsed, Sample::of(&times)));
        }
        Err(BenchError::Wrong {
            contestant: "millrun".into(),
            what: format!("{signals} signals were accepted, {counted} arrived"),
        })
    })?;
    let figure = |what, value, unit| Figure::new(NAME, signals, what, value, unit);
    Ok(vec![
        figure(TAKEN, signals as f64 / elapsed.as_secs_f64(), "signals/s"),
        figure(
            "until one is durable, p50",
            sample.nanos.value_at_quantile(0.5) as f64 / 1e3,
            "us",
        ),
        figure(
            "until one is durable, p99",
            sample.nanos.value_at_quantile(0.99) as f64 / 1e3,
            "us",
        ),
    ])
}
