//! A workload at one level, and how it is sampled.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrun::{Durability, Runtime, RuntimeBuilder, Workflow};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Builder;

use super::{bare_commits, registered};
use crate::runs::{Level, Row, Sample, Saturation, Store, saturate};
use crate::{BenchError, CommonArguments, Output, Progress, interleaved};

/// How often a relaxed store is synced.
const RELAXED_WINDOW: Duration = Duration::from_millis(100);

type Running = Pin<Box<dyn Future<Output = Result<(), BenchError>> + Send>>;
/// Starts one run, waits for its result and checks it.
type Operation = Arc<dyn Fn(Runtime, u64) -> Running + Send + Sync>;

/// One workload at one level.
#[derive(Clone)]
pub struct Case {
    /// What runs.
    pub workload: String,
    /// Activities in one run.
    pub steps: u64,
    /// Where its history goes.
    pub store: Store,
    /// Runs at a time.
    pub concurrency: usize,
    drive: Drive,
}

#[derive(Clone)]
enum Drive {
    /// So many one-row commits in a row with redb alone.
    Floor(u64),
    /// A closed loop for a time.
    Loop(Operation),
    /// A closed loop for a number of runs.
    Count(Operation, u64),
    /// One run after the other, each timed.
    OneByOne(Operation),
}

impl Case {
    /// The price that no durable step can avoid: `in_a_row` commits of one row with redb alone, timed
    /// together, since what a run of many steps waits for is the sum of its commits, slow ones too.
    #[must_use]
    pub fn floor(in_a_row: u64) -> Self {
        Self {
            workload: match in_a_row {
                1 => "one-row commit".into(),
                _ => format!("{in_a_row} one-row commits"),
            },
            steps: 0,
            store: Store::Durable,
            concurrency: 1,
            drive: Drive::Floor(in_a_row),
        }
    }

    /// A workflow of `steps` activities that gets its number and must give `expected(number)`.
    /// With a concurrency of one its runs are timed one by one, otherwise in a closed loop.
    #[must_use]
    pub fn numbered(
        name: &str,
        workflow: Workflow<u64, u64>,
        steps: u64,
        expected: fn(u64) -> u64,
        store: Store,
        concurrency: usize,
    ) -> Self {
        let operation: Operation = Arc::new(move |runtime, number| {
            Box::pin(run_once(runtime, workflow, number, number, expected(number)))
        });
        Self {
            workload: name.into(),
            steps,
            store,
            concurrency,
            drive: if concurrency == 1 {
                Drive::OneByOne(operation)
            } else {
                Drive::Loop(operation)
            },
        }
    }

    /// A workflow that always gets the same input, run after run.
    #[must_use]
    pub fn repeated<I>(
        name: &str,
        workflow: Workflow<I, u64>,
        steps: u64,
        (input, expected): (I, u64),
        store: Store,
    ) -> Self
    where
        I: Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static,
    {
        let operation: Operation = Arc::new(move |runtime, number| {
            Box::pin(run_once(runtime, workflow, number, input.clone(), expected))
        });
        Self {
            workload: name.into(),
            steps,
            store,
            concurrency: 1,
            drive: Drive::OneByOne(operation),
        }
    }

    /// The same, but a sample is this many runs rather than a time.
    #[must_use]
    pub fn times(mut self, runs: u64) -> Self {
        self.drive = match self.drive {
            Drive::Loop(operation) | Drive::OneByOne(operation) => Drive::Count(operation, runs),
            other @ (Drive::Floor(_) | Drive::Count(..)) => other,
        };
        self
    }

    fn level(&self, threads: usize) -> Level {
        Level {
            engine: match self.drive {
                Drive::Floor(_) => "redb".into(),
                Drive::Loop(_) | Drive::Count(..) | Drive::OneByOne(_) => "millrun".into(),
            },
            workload: self.workload.clone(),
            steps: self.steps,
            store: self.store,
            concurrency: self.concurrency,
            threads,
        }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("workload", &self.workload)
            .field("store", &self.store)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Samples per case, besides one that is thrown away.
    pub rounds: usize,
    /// How long a closed loop runs before it counts.
    pub warm_up: Duration,
    /// How long it counts,
    pub measured: Duration,
    /// but at least so long for each client.
    pub per_client: Duration,
    /// How often a case that is timed run by run runs per sample.
    pub repeats: u64,
    /// Worker threads of the async runtime.
    pub threads: usize,
}

impl Effort {
    /// Some minutes, or less than one with `--quick`.
    #[must_use]
    pub fn of(arguments: &CommonArguments, threads: usize) -> Self {
        let (rounds, warm_up_ms, measured_ms, repeats) = if arguments.quick {
            (3, 200, 800, 10)
        } else {
            (5, 500, 3_000, 30)
        };
        Self {
            rounds: arguments.rounds.map_or(rounds, usize::from),
            warm_up: Duration::from_millis(warm_up_ms),
            measured: Duration::from_millis(measured_ms),
            per_client: Duration::from_micros(150),
            repeats,
            threads,
        }
    }
}

/// Samples cases, each on a store of its own.
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

    /// Runs all cases whose workload contains `only`, interleaved.
    ///
    /// # Errors
    /// When a run gives a wrong result, or anything fails.
    pub fn run(&self, cases: &[Case], only: Option<&str>) -> Result<Vec<Row>, BenchError> {
        let cases: Vec<&Case> = cases
            .iter()
            .filter(|case| only.is_none_or(|only| case.workload.contains(only)))
            .collect();
        let progress = Progress::new(((self.effort.rounds + 1) * cases.len()) as u64);
        let samples = interleaved(cases.len(), self.effort.rounds, |place| {
            let Case {
                workload,
                store,
                concurrency,
                ..
            } = cases[place];
            progress.running(format!("{workload}, {}, {concurrency} at a time", store.name()));
            let sample = self.sample(cases[place]);
            progress.step();
            sample
        })?;
        progress.finish();
        let rows = cases.iter().zip(&samples);
        Ok(rows
            .filter_map(|(case, samples)| Row::new(&case.level(self.effort.threads), samples))
            .collect())
    }

    fn sample(&self, case: &Case) -> Result<Sample, BenchError> {
        let folder = self.output.folder();
        let store = tempfile::tempdir_in(folder).map_err(|source| BenchError::File {
            path: folder.to_owned(),
            source,
        })?;
        let path = store.path().join("store.redb");
        if let Drive::Floor(in_a_row) = case.drive {
            let times = bare_commits(
                &path,
                (self.effort.repeats * 20).max(self.effort.repeats * in_a_row),
            )?;
            let in_rows = times.chunks_exact(usize::try_from(in_a_row).unwrap_or(usize::MAX));
            return Ok(Sample::of(
                &in_rows.map(|row| row.iter().sum()).collect::<Vec<Duration>>(),
            ));
        }
        let threads = Builder::new_multi_thread()
            .worker_threads(self.effort.threads)
            .enable_all()
            .build()
            .map_err(BenchError::Runtime)?;
        threads.block_on(async {
            let builder = builder(case.store, path);
            let runtime = registered(builder).start().await.map_err(failed)?;
            let sample = self.drive(&runtime, case).await;
            runtime.shutdown().await.map_err(failed)?;
            sample
        })
    }

    async fn drive(&self, runtime: &Runtime, case: &Case) -> Result<Sample, BenchError> {
        // Long enough that each client completes a few, however many there are.
        let few = self.effort.per_client * u32::try_from(case.concurrency).unwrap_or(u32::MAX);
        let load = Saturation {
            concurrency: case.concurrency,
            warm_up: self.effort.warm_up.max(few / 2),
            measured: self.effort.measured.max(few),
            runs_max: u64::MAX,
        };
        let on = runtime.clone();
        match case.drive.clone() {
            Drive::Floor(_) => Ok(Sample::of(&[])),
            Drive::Loop(operation) => saturate(load, move |number| operation(on.clone(), number)).await,
            Drive::Count(operation, runs) => {
                let load = Saturation {
                    warm_up: Duration::ZERO,
                    measured: Duration::from_secs(600),
                    runs_max: runs,
                    ..load
                };
                saturate(load, move |number| operation(on.clone(), number)).await
            }
            Drive::OneByOne(operation) => {
                let mut times = Vec::new();
                for number in 0..=self.effort.repeats {
                    let started = Instant::now();
                    operation(on.clone(), number).await?;
                    times.push(started.elapsed());
                }
                // The first one also filled caches.
                Ok(Sample::of(&times[1..]))
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

async fn run_once<I: Serialize + fmt::Debug + Clone>(
    runtime: Runtime,
    workflow: Workflow<I, u64>,
    number: u64,
    input: I,
    expected: u64,
) -> Result<(), BenchError> {
    let run = runtime
        .start(workflow, &format!("run-{number}"), input.clone())
        .await
        .map_err(failed)?;
    let result = run.result().await.map_err(failed)?;
    if result == expected {
        return Ok(());
    }
    Err(BenchError::Wrong {
        contestant: "millrun".into(),
        what: format!(
            "{} of {input:?} gave {result}, expected {expected}",
            workflow.name()
        ),
    })
}

fn failed(error: impl fmt::Display) -> BenchError {
    BenchError::failed("millrun", error)
}
