//! Finding runs among very many: how long a page takes, and what it costs other callers of the shards.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millrun::operating::{RunSearch, RunStatus};
use millrun::{OnConflict, Runtime};

use super::definitions::{ENDING, WAITING};
use super::waiting::{CLIENTS, start_all};
use super::{Row, failed, open, resident_bytes};
use crate::runs::Sample;
use crate::{BenchError, store_in, workers};

/// Runs in a page.
const PAGE_LEN: usize = 100;
/// How many pages are timed of each kind of filter.
const PAGES: usize = 50;
/// How many runs of all are parked, and how many have failed, the first of all.
const SELDOM: u64 = 10;

/// Pages among `instances` live ones: one row for filters of several kinds, one for those that are parked.
///
/// # Errors
/// When anything fails, or a page has not what it must have.
pub fn finding_live(folder: &Path, instances: u64, threads: usize) -> Result<Vec<Row>, BenchError> {
    let store = store_in(folder)?;
    workers(threads)?.block_on(async {
        let runtime = open(&store).start().await.map_err(failed)?;
        start_all(&runtime, instances).await?;
        for number in (0..SELDOM).map(|place| place * (instances / SELDOM)) {
            let run = runtime.attach(WAITING, &format!("w-{number}")).map_err(failed)?;
            run.pause("for the benchmark").await.map_err(failed)?;
        }
        let one = format!("w-{}", instances / 3);
        let filters = [
            RunSearch::new(),
            RunSearch::new().workflow(WAITING.name()),
            RunSearch::new().status(RunStatus::Running),
            RunSearch::new().id_prefix("w-7"),
            // All are looked at, and one is found.
            RunSearch::new().id_prefix(&one),
            RunSearch::new().workflow("scale.none"),
        ];
        let is_over = Arc::new(AtomicBool::new(false));
        let asking = tokio::spawn(ask_meanwhile(runtime.clone(), instances, Arc::clone(&is_over)));
        let started = Instant::now();
        let mut times = Vec::new();
        for filter in &filters {
            let mut after = None;
            for _ in 0..PAGES {
                let began = Instant::now();
                let page = runtime.find(filter, after, PAGE_LEN).await.map_err(failed)?;
                times.push(began.elapsed());
                after = page.next;
            }
        }
        let per_s = times.len() as f64 / started.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        let (_, meanwhile) = micros(&asking.await.map_err(failed)??);
        let resident = resident_bytes();
        let parked = time_pages(&runtime, &RunSearch::new().status(RunStatus::Paused)).await?;
        runtime.shutdown().await.map_err(failed)?;
        let times = Sample::of(&times);
        let (p50, p99) = micros(&times);
        let (parked_p50, parked_p99) = micros(&parked);
        Ok(vec![
            Row {
                p50_us: Some(p50),
                p99_us: Some(p99),
                meanwhile_p99_us: Some(meanwhile),
                resident_bytes_used: resident.map(|bytes| bytes as f64),
                ..Row::new("finding", "live instances", instances, per_s)
            },
            Row {
                p50_us: Some(parked_p50),
                p99_us: Some(parked_p99),
                ..Row::new("finding parked", "live instances", instances, 1e6 / parked_p50)
            },
        ])
    })
}

/// Pages of the few that failed, the earliest of all, among `runs` finished ones.
///
/// # Errors
/// As [`finding_live`].
pub fn finding_failed(folder: &Path, runs: u64, threads: usize) -> Result<Vec<Row>, BenchError> {
    let store = store_in(folder)?;
    workers(threads)?.block_on(async {
        let keep_all = |config: &mut millrun::RuntimeConfig| {
            config.journal.retention.len_max = usize::MAX;
            config.journal.retention.bytes_max = u64::MAX;
        };
        let runtime = open(&store).configure(keep_all).start().await.map_err(failed)?;
        end_some(&runtime, 0, SELDOM).await?;
        end_some(&runtime, SELDOM, runs).await?;
        let times = time_pages(&runtime, &RunSearch::new().status(RunStatus::Failed)).await?;
        let resident = resident_bytes();
        runtime.shutdown().await.map_err(failed)?;
        let (p50, p99) = micros(&times);
        let file = std::fs::metadata(store.path().join("store.redb")).map(|file| file.len() as f64);
        Ok(vec![Row {
            p50_us: Some(p50),
            p99_us: Some(p99),
            resident_bytes_used: resident.map(|bytes| bytes as f64),
            file_bytes_used: file.ok(),
            ..Row::new("finding failed", "finished runs", runs, 1e6 / p50)
        }])
    })
}

/// Runs that end with their first turn; the first few fail.
async fn end_some(runtime: &Runtime, from: u64, to: u64) -> Result<(), BenchError> {
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS as u64 {
        let runtime = runtime.clone();
        clients.spawn(async move {
            for number in (from + client..to).step_by(CLIENTS) {
                let run = runtime.start(ENDING, &format!("e-{number}"), number >= SELDOM);
                run.await.map_err(failed)?;
            }
            Ok::<_, BenchError>(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client.map_err(failed)??;
    }
    Ok(())
}

/// The first page of a filter again and again; it must have the few that there are.
async fn time_pages(runtime: &Runtime, filter: &RunSearch) -> Result<Sample, BenchError> {
    let mut times = Vec::new();
    for _ in 0..PAGES {
        let began = Instant::now();
        let page = runtime.find(filter, None, PAGE_LEN).await.map_err(failed)?;
        times.push(began.elapsed());
        if page.runs.len() as u64 != SELDOM {
            return Err(BenchError::Wrong {
                contestant: "millrun".into(),
                what: format!("{} runs found, expected {SELDOM}", page.runs.len()),
            });
        }
    }
    Ok(Sample::of(&times))
}

/// Asks a shard for one run after the other: each answer takes as long as the turn that is under way, and its own.
async fn ask_meanwhile(
    runtime: Runtime,
    instances: u64,
    is_over: Arc<AtomicBool>,
) -> Result<Sample, BenchError> {
    let mut times: Vec<Duration> = Vec::new();
    for number in (0..instances).cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let began = Instant::now();
        let start = runtime.start(WAITING, &format!("w-{number}"), ());
        start.on_conflict(OnConflict::Attach).await.map_err(failed)?;
        times.push(began.elapsed());
    }
    Ok(Sample::of(&times))
}

fn micros(sample: &Sample) -> (f64, f64) {
    let micros = |quantile: f64| sample.nanos.value_at_quantile(quantile) as f64 / 1e3;
    (micros(0.5), micros(0.99))
}
