//! Instances that wait for a signal: what they weigh, and how long one that is on disk takes to wake.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrun::{Runtime, Workflow};
use tokio::task::JoinSet;

use super::Figure;
use super::definitions::{GO, WAITING, registered};
use crate::runs::Sample;
use crate::scale::failed;
use crate::workflows::bare_commits;
use crate::{BenchError, resident_bytes, store_in, workers};

pub(super) const NAME: &str = "waiting instances";
/// What bars judge, by these names.
pub(super) const RESIDENT: &str = "resident memory of the process";
pub(super) const WAKE: &str = "wake of an unloaded one, p50, less a bare commit";

/// Clients that start the instances.
const CLIENTS: u64 = 1_024;
/// How many of them are woken and timed, one by one.
const WAKES: u64 = 200;
/// Bare commits before, and as many after.
const COMMITS: u64 = 300;

/// `level` instances with the default configuration: memory of this process while they wait, then
/// some of those that were unloaded first are woken.
pub(super) fn measure(folder: &Path, level: u64, threads: usize) -> Result<Vec<Figure>, BenchError> {
    let store = store_in(folder)?;
    let commit_us = |name| {
        let commits = Sample::of(&bare_commits(&store.path().join(name), COMMITS)?);
        Ok::<_, BenchError>(commits.nanos.value_at_quantile(0.5) as f64 / 1e3)
    };
    let commit_before_us = commit_us("before.redb")?;
    let before = resident_bytes().unwrap_or(0);
    let (resident, hot, per_s, wakes) = workers(threads)?.block_on(async {
        let path = store.path().join("store.redb");
        // At most a tenth stays in memory, as it is with a million by default.
        let hot_len_max = usize::try_from(level / 10).map_err(failed)?;
        let builder = Runtime::open(path).configure(|config| {
            config.hot_len_max = config.hot_len_max.min(hot_len_max);
        });
        let runtime = registered(builder).start().await.map_err(failed)?;
        let started = Instant::now();
        start_all(&runtime, WAITING, level).await?;
        let per_s = level as f64 / started.elapsed().as_secs_f64();
        let (resident, hot) = (resident_bytes(), runtime.stats().hot);
        let wakes = wake_unloaded(&runtime).await?;
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>((resident, hot, per_s, wakes))
    })?;
    // The disk may have been busy at either time; the lower one is the stricter one.
    let commit_us = commit_before_us.min(commit_us("after.redb")?);
    let wake_us = |quantile: f64| wakes.nanos.value_at_quantile(quantile) as f64 / 1e3;
    let figure = |what, value, unit| Figure::new(NAME, level, what, value, unit);
    let mut figures = vec![
        figure("started", per_s, "instances/s"),
        figure("of them with their code in memory", hot as f64, "instances"),
    ];
    if let Some(resident) = resident {
        let own = resident.saturating_sub(before) as f64 / level as f64;
        figures.push(figure(RESIDENT, resident as f64, "bytes"));
        figures.push(figure("more than before, for each instance", own, "bytes"));
    }
    figures.extend([
        figure("wake of an unloaded one, p50", wake_us(0.5), "us"),
        figure("wake of an unloaded one, p99", wake_us(0.99), "us"),
        figure("a bare commit, p50", commit_us, "us"),
        figure(WAKE, wake_us(0.5) - commit_us, "us"),
    ]);
    Ok(figures)
}

/// Starts `level` instances of a workflow, many at a time.
pub(super) async fn start_all(
    runtime: &Runtime,
    workflow: Workflow<(), u64>,
    level: u64,
) -> Result<(), BenchError> {
    let numbers = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (runtime, numbers) = (runtime.clone(), Arc::clone(&numbers));
        clients.spawn(async move {
            loop {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                if number >= level {
                    return Ok::<_, BenchError>(());
                }
                let id = format!("w-{number}");
                runtime.start(workflow, &id, ()).await.map_err(failed)?;
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.map_err(failed)??;
    }
    Ok(())
}

/// From sending the signal to having the result: its history is read and replayed, the signal and
/// the end are committed.
async fn wake_unloaded(runtime: &Runtime) -> Result<Sample, BenchError> {
    let loads = runtime.stats().loads;
    let mut times: Vec<Duration> = Vec::new();
    for number in 0..WAKES {
        let run = runtime.attach(WAITING, &format!("w-{number}")).map_err(failed)?;
        let started = Instant::now();
        run.signal(GO, number).await.map_err(failed)?;
        let result = run.result().await.map_err(failed)?;
        times.push(started.elapsed());
        if result != number {
            return Err(wrong(format!("instance {number} gave {result}")));
        }
    }
    let loads = runtime.stats().loads - loads;
    if loads == WAKES {
        return Ok(Sample::of(&times));
    }
    Err(wrong(format!("{loads} of {WAKES} were unloaded")))
}

fn wrong(what: String) -> BenchError {
    BenchError::Wrong {
        contestant: "millrun".into(),
        what,
    }
}
