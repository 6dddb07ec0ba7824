//! Runs every workload, interleaved with the bare commit.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrun::{Runtime, Workflow};
use tokio::runtime::Builder;

use super::row::Workload;
use super::{
    FIVE_TASKS, ONE_STEP, PARALLEL, Row, SEQUENCE, Sample, Saturation, Store, THREE_STEPS, bare_commits,
    registered, saturate, sum_of_parallel,
};
use crate::{BenchError, Progress, interleaved};

const SEQUENCE_STEPS: u64 = 40;
const PARALLEL_CALLS: u64 = 1_000;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Samples per workload, besides one that is thrown away.
    pub rounds: usize,
    /// How long a closed loop runs before it counts.
    pub warm_up: Duration,
    /// How long it counts.
    pub measured: Duration,
    /// How often a workload that is timed by itself runs per sample.
    pub repeats: u64,
    /// Worker threads of the async runtime.
    pub threads: usize,
}

impl Effort {
    /// Some minutes.
    #[must_use]
    pub fn full(threads: usize) -> Self {
        Self {
            rounds: 5,
            warm_up: Duration::from_millis(500),
            measured: Duration::from_secs(3),
            repeats: 30,
            threads,
        }
    }

    /// Less than a minute.
    #[must_use]
    pub fn quick(threads: usize) -> Self {
        Self {
            rounds: 3,
            warm_up: Duration::from_millis(200),
            measured: Duration::from_millis(800),
            repeats: 10,
            threads,
        }
    }
}

/// One run of the suite, with its stores in a folder of its own.
#[derive(Debug)]
pub struct Suite {
    effort: Effort,
    folder: PathBuf,
}

/// How a workload is run.
#[derive(Clone, Copy)]
enum Drive {
    /// One-row commits with redb alone.
    Floor,
    /// A closed loop of these runs; `expected` is what each must give.
    Loop(Workflow<u64, u64>, fn(u64) -> u64),
    /// One run after the other, each with this input and this result.
    OneByOne(Workflow<u64, u64>, u64, u64),
}

impl Suite {
    /// Stores go to `folder`, which must be on the disk that is to be measured.
    #[must_use]
    pub fn new(effort: Effort, folder: &Path) -> Self {
        Self {
            effort,
            folder: folder.to_owned(),
        }
    }

    /// Runs all workloads whose name contains `only`.
    ///
    /// # Errors
    /// When a run gives a wrong result, or anything fails.
    pub fn run(&self, only: Option<&str>) -> Result<Vec<Row>, BenchError> {
        let mut workloads = workloads();
        workloads.retain(|(workload, _)| only.is_none_or(|only| workload.name.contains(only)));
        let progress = Progress::new(((self.effort.rounds + 1) * workloads.len()) as u64);
        let samples = interleaved(workloads.len(), self.effort.rounds, |place| {
            let (workload, drive) = workloads[place];
            progress.running(format!(
                "{}, {}, {} at a time",
                workload.name,
                workload.store.name(),
                workload.concurrency
            ));
            let sample = self.sample(workload, drive);
            progress.step();
            sample
        })?;
        progress.finish();
        Ok(workloads
            .iter()
            .zip(&samples)
            .filter_map(|((workload, _), samples)| Row::new(*workload, self.effort.threads, samples))
            .collect())
    }

    fn sample(&self, workload: Workload, drive: Drive) -> Result<Sample, BenchError> {
        let store = tempfile::tempdir_in(&self.folder).map_err(|source| BenchError::File {
            path: self.folder.clone(),
            source,
        })?;
        let path = store.path().join("store.redb");
        if let Drive::Floor = drive {
            return bare_commits(&path, self.effort.repeats * 20).map(|times| Sample::of(&times));
        }
        let threads = Builder::new_multi_thread()
            .worker_threads(self.effort.threads)
            .enable_all()
            .build()
            .map_err(BenchError::Runtime)?;
        threads.block_on(async {
            let builder = match workload.store {
                Store::Durable => Runtime::open(path),
                Store::Volatile => Runtime::volatile(),
            };
            let failed = |error: &dyn std::fmt::Display| BenchError::failed("millrun", error);
            let runtime = registered(builder)
                .start()
                .await
                .map_err(|error| failed(&error))?;
            let sample = self.drive(&runtime, workload, drive).await;
            runtime.shutdown().await.map_err(|error| failed(&error))?;
            sample
        })
    }

    async fn drive(&self, runtime: &Runtime, workload: Workload, drive: Drive) -> Result<Sample, BenchError> {
        match drive {
            Drive::Floor => Ok(Sample::of(&[])),
            Drive::Loop(workflow, expected) => {
                let load = Saturation {
                    concurrency: workload.concurrency,
                    warm_up: self.effort.warm_up,
                    measured: self.effort.measured,
                };
                let runtime = runtime.clone();
                saturate(load, move |number| {
                    let runtime = runtime.clone();
                    async move { run_once(&runtime, workflow, number, number, expected(number)).await }
                })
                .await
            }
            Drive::OneByOne(workflow, input, expected) => {
                let mut times = Vec::new();
                for number in 0..=self.effort.repeats {
                    let started = Instant::now();
                    run_once(runtime, workflow, number, input, expected).await?;
                    times.push(started.elapsed());
                }
                // The first one also opened files and filled caches.
                Ok(Sample::of(&times[1..]))
            }
        }
    }
}

async fn run_once(
    runtime: &Runtime,
    workflow: Workflow<u64, u64>,
    number: u64,
    input: u64,
    expected: u64,
) -> Result<(), BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("millrun", error);
    let run = runtime
        .start(workflow, &format!("run-{number}"), input)
        .await
        .map_err(|error| failed(&error))?;
    let result = run.result().await.map_err(|error| failed(&error))?;
    if result == expected {
        Ok(())
    } else {
        Err(BenchError::Wrong {
            contestant: "millrun".into(),
            what: format!(
                "{} of {input} gave {result}, expected {expected}",
                workflow.name()
            ),
        })
    }
}

fn workloads() -> Vec<(Workload, Drive)> {
    let of = |name, steps, store, concurrency| Workload {
        engine: "millrun",
        name,
        steps,
        store,
        concurrency,
    };
    let one_step = Drive::Loop(ONE_STEP, |number| number + 1);
    let three_steps = Drive::Loop(THREE_STEPS, |number| number + 3);
    let five_tasks = Drive::Loop(FIVE_TASKS, |number| 3 * number + 7);
    let sequence = Drive::OneByOne(SEQUENCE, SEQUENCE_STEPS, SEQUENCE_STEPS);
    let parallel = Drive::OneByOne(PARALLEL, PARALLEL_CALLS, sum_of_parallel(PARALLEL_CALLS));
    let floor = Workload {
        engine: "redb",
        name: "one-row commit",
        steps: 0,
        store: Store::Durable,
        concurrency: 1,
    };
    vec![
        (floor, Drive::Floor),
        (of("one-step", 1, Store::Durable, 32), one_step),
        (of("one-step", 1, Store::Durable, 1_024), one_step),
        (of("three-step", 3, Store::Durable, 32), three_steps),
        (of("three-step", 3, Store::Durable, 1_024), three_steps),
        (of("five-task", 5, Store::Durable, 1_024), five_tasks),
        (of("40 in sequence", SEQUENCE_STEPS, Store::Durable, 1), sequence),
        (
            of("1,000 in parallel", PARALLEL_CALLS, Store::Durable, 1),
            parallel,
        ),
        (of("one-step", 1, Store::Volatile, 1_024), one_step),
    ]
}
