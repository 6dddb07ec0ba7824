//! Samples cases, interleaved, each on a store of its own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrun::host::{HostConfig, TokioHost};
use millrun::store::Durability;
use millrun::{Runtime, RuntimeBuilder};

use super::case::{Drive, Effort};
use super::floor::Floor;
use super::{Case, bare_commits, registered};
use crate::runs::{Row, Sample, Saturation, Store, saturate};
use crate::scale::failed;
use crate::{BenchError, Measured, Output, Progress, Turns, each_interleaved, store_in, workers};

/// How often a relaxed store is synced.
const RELAXED_WINDOW: Duration = Duration::from_millis(100);

/// Samples cases.
#[derive(Debug)]
pub struct Runner<'a> {
    effort: Effort,
    output: &'a Output,
}

impl<'a> Runner<'a> {
    /// Stores go beside the results, which are on the disk that is to be measured.
    #[must_use]
    pub fn new(effort: Effort, output: &'a Output) -> Self {
        Self { effort, output }
    }

    /// Says how long it will take, and runs all cases whose workload contains `only`, interleaved. A
    /// case that fails, or gives a wrong result, has no row; the others do.
    #[must_use]
    pub fn run(&self, cases: &[Case], only: Option<&str>) -> Measured<Row> {
        let cases: Vec<&Case> = cases
            .iter()
            .filter(|case| only.is_none_or(|only| case.workload.contains(only)))
            .collect();
        let turns: Vec<Turns> = cases.iter().map(|case| case.turns(&self.effort)).collect();
        let samples: usize = turns.iter().map(|turns| turns.samples()).sum();
        if samples > 0 {
            let time: Duration = cases.iter().map(|case| case.time(&self.effort)).sum();
            println!(
                "{} cases, {samples} samples: about {}",
                cases.len(),
                minutes(time)
            );
        }
        let progress = Progress::ticking(samples as u64);
        let outcomes = each_interleaved(&turns, |place| {
            progress.running(cases[place].name());
            let sample = self.sample(cases[place]);
            progress.step();
            sample
        });
        progress.finish();
        let mut measured = Measured::default();
        for (case, outcome) in cases.iter().zip(outcomes) {
            let level = case.level(self.effort.threads);
            measured.keep(case.name(), outcome.map(|samples| Row::new(&level, &samples)));
        }
        measured
    }

    fn sample(&self, case: &Case) -> Result<Sample, BenchError> {
        let store = store_in(self.output.folder())?;
        let path = store.path().join("store.redb");
        if let Drive::Commits(in_a_row) = case.drive {
            let times = bare_commits(&path, self.effort.commits(in_a_row))?;
            let in_rows = times.chunks_exact(usize::try_from(in_a_row).unwrap_or(usize::MAX));
            let sums: Vec<Duration> = in_rows.map(|row| row.iter().sum()).collect();
            return Ok(Sample::of(&sums));
        }
        workers(self.effort.threads)?.block_on(async {
            if let Drive::Floor = case.drive {
                return self.floor(case, store.path()).await;
            }
            let builder = builder(case.store, path);
            let runtime = registered(builder).start().await.map_err(failed)?;
            let sample = self.drive(&runtime, case).await;
            let ended = runtime.shutdown().await;
            // What failed first says more than that it does not shut down then.
            let sample = sample?;
            ended.map_err(failed)?;
            Ok(sample)
        })
    }

    fn load(&self, case: &Case) -> Saturation {
        Saturation {
            concurrency: case.concurrency,
            warm_up: self.effort.warm_up_of(case.concurrency),
            measured: self.effort.measured_of(case.concurrency),
            runs_max: u64::MAX,
        }
    }

    async fn floor(&self, case: &Case, folder: &Path) -> Result<Sample, BenchError> {
        let owner = TokioHost::spawn(HostConfig::default()).await.map_err(failed)?;
        let floor = Floor::open(case.store, folder, &owner.host()).await?;
        let door = floor.door();
        let sample = saturate(self.load(case), move |number| door.clone().run_once(number)).await;
        let ended = floor.close();
        let sample = sample?;
        ended?;
        Ok(sample)
    }

    async fn drive(&self, runtime: &Runtime, case: &Case) -> Result<Sample, BenchError> {
        let load = self.load(case);
        let on = runtime.clone();
        match case.drive.clone() {
            Drive::Commits(_) | Drive::Floor => Ok(Sample::of(&[])),
            Drive::Loop(operation) => operation.saturate(on, load).await,
            Drive::Count(operation, runs) => {
                let load = Saturation {
                    warm_up: Duration::ZERO,
                    measured: Duration::from_secs(600),
                    runs_max: runs,
                    ..load
                };
                operation.saturate(on, load).await
            }
            Drive::OneByOne(operation) => {
                let (repeats, first) = case.repeats(&self.effort);
                let mut times = Vec::new();
                for number in 0..repeats {
                    let started = Instant::now();
                    operation.once(on.clone(), number).await?;
                    times.push(started.elapsed());
                }
                // The first ones also fill caches.
                Ok(Sample::of(&times[first..]))
            }
        }
    }
}

fn builder(store: Store, path: PathBuf) -> RuntimeBuilder {
    let with = |durability| Runtime::open(path).configure(|config| config.journal.durability = durability);
    match store {
        Store::Durable => with(Durability::Durable),
        Store::Relaxed => with(Durability::Eventual {
            window: RELAXED_WINDOW,
        }),
        Store::Unsynced => with(Durability::Volatile),
        Store::Volatile => Runtime::volatile(),
    }
}

/// As a person would say it.
fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..100 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_in_seconds_or_minutes() {
        let said = [0, 99, 100, 600].map(|seconds| minutes(Duration::from_secs(seconds)));
        assert_eq!(said, ["0 s", "99 s", "2 min", "10 min"]);
    }
}
