//! What is measured, and how long.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrun::{EntityHandle, Runtime};

use super::definitions::{ADD, COUNTER, Counter, ONE_STEP, SUM, TAKE, TICK, registered};
use crate::http::{Row, Summary};
use crate::runs::{Sample, Saturation, saturate};
use crate::scale::failed;
use crate::{BenchError, Measured, Progress, interleaved, store_in, workers};

/// How many ask at a time.
const CALLERS: usize = 1_024;
const KEYS: usize = 10_000;
/// One row of each.
const LOADS: [(&str, Load); 4] = [
    ("commands over 10,000 keys", Load::ManyKeys),
    ("commands to one key", Load::OneKey),
    ("signals to one run", Load::Signals),
    ("one-step runs", Load::Runs),
];
const MILLRUN: &str = "millrun";

/// How much of it.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Worker threads.
    pub threads: usize,
    /// Measured samples of each.
    pub rounds: usize,
    /// How long one takes, behind a warm-up of a third of it.
    pub lasts: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Load {
    ManyKeys,
    OneKey,
    Signals,
    Runs,
}

/// Measures what has `only` in its name. What fails has no row; the others have.
#[must_use]
pub fn measure(effort: &Effort, folder: &Path, only: Option<&str>) -> Measured<Row> {
    let wanted = |(group, _): &&(&str, Load)| only.is_none_or(|only| group.contains(only));
    let loads: Vec<_> = LOADS.iter().filter(wanted).collect();
    let progress = Progress::ticking(0);
    progress.running("entities");
    let mut measured = Measured::default();
    let samples = interleaved(loads.len(), effort.rounds, |place| {
        let store = store_in(folder)?;
        one(loads[place].1, store.path(), effort).map(|sample| Summary::from(&sample))
    });
    let rows = samples.map(|samples| {
        let of = loads.iter().zip(samples);
        of.map(|((group, _), samples)| Row::new(group, MILLRUN, CALLERS as u64, &samples))
            .collect::<Vec<_>>()
    });
    measured.keep("entities", rows);
    progress.finish();
    measured
}

/// One sample, in a store in this folder.
fn one(load: Load, folder: &Path, effort: &Effort) -> Result<Sample, BenchError> {
    workers(effort.threads)?.block_on(async {
        let builder = registered(Runtime::open(folder.join("store.redb")));
        let runtime = builder.start().await.map_err(failed)?;
        let sample = match load {
            Load::ManyKeys => command(&runtime, KEYS, effort).await,
            Load::OneKey => command(&runtime, 1, effort).await,
            Load::Signals => signal(&runtime, effort).await,
            Load::Runs => run(&runtime, effort).await,
        };
        let ended = runtime.shutdown().await;
        let sample = sample?;
        ended.map_err(failed)?;
        Ok(sample)
    })
}

fn saturation(effort: &Effort) -> Saturation {
    Saturation {
        concurrency: CALLERS,
        warm_up: effort.lasts / 3,
        measured: effort.lasts,
        runs_max: u64::MAX,
    }
}

/// Commands the counters of `keys` keys in turn, and looks whether each command was performed.
async fn command(runtime: &Runtime, keys: usize, effort: &Effort) -> Result<Sample, BenchError> {
    let counters: Vec<EntityHandle<Counter>> = (0..keys)
        .map(|number| runtime.entity(COUNTER, &format!("key-{number}")))
        .collect();
    let source = Arc::new((counters, std::sync::atomic::AtomicU64::new(0)));
    let shared = Arc::clone(&source);
    let sample = saturate(saturation(effort), move |number| {
        let shared = Arc::clone(&shared);
        async move {
            let (counters, performed) = &*shared;
            let place = usize::try_from(number).map_err(failed)? % counters.len();
            counters[place].call(ADD, 1).await.map_err(failed)?;
            performed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(())
        }
    })
    .await?;
    let (counters, performed) = &*source;
    let mut sum = 0;
    for counter in counters {
        sum += counter.read(SUM, ()).await.map_err(failed)?;
    }
    let performed = performed.load(std::sync::atomic::Ordering::Relaxed);
    // What was under way when the time was up may be counted by the entities alone.
    if (performed..=performed + CALLERS as u64).contains(&sum) {
        return Ok(sample);
    }
    Err(BenchError::Wrong {
        contestant: MILLRUN.into(),
        what: format!("{performed} commands were answered, and {sum} performed"),
    })
}

async fn signal(runtime: &Runtime, effort: &Effort) -> Result<Sample, BenchError> {
    let run = runtime.start(TAKE, "take", ()).await.map_err(failed)?;
    saturate(saturation(effort), move |_| {
        let run = run.clone();
        async move { run.signal(TICK, 1).await.map_err(failed) }
    })
    .await
}

async fn run(runtime: &Runtime, effort: &Effort) -> Result<Sample, BenchError> {
    let runtime = runtime.clone();
    saturate(saturation(effort), move |number| {
        let runtime = runtime.clone();
        async move {
            let run = runtime.start(ONE_STEP, &format!("run-{number}"), number);
            run.await
                .map_err(failed)?
                .result()
                .await
                .map(drop)
                .map_err(failed)
        }
    })
    .await
}
