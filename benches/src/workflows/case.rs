//! A workload at one level, and how much of it is measured.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use millrun::{Runtime, Workflow};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::runs::{Level, Sample, Saturation, Store, saturate};
use crate::{BenchError, CommonArguments, Turns, locked_version};

/// About what a step takes while nothing else runs: a commit, or nothing but the processor. Only for
/// saying beforehand how long a suite will take.
const DURABLE_STEP: Duration = Duration::from_micros(300);
const OTHER_STEP: Duration = Duration::from_micros(20);
/// About what it takes to open and to close a store.
const OPENING: Duration = Duration::from_millis(200);

type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, BenchError>> + Send>>;

/// Starts one run, waits for its result and checks it.
pub(super) trait Operation: Send + Sync {
    fn once(&self, runtime: Runtime, number: u64) -> Boxed<()>;

    /// In a closed loop, without an allocation for each run.
    fn saturate(&self, runtime: Runtime, load: Saturation) -> Boxed<Sample>;
}

impl<F, O> Operation for F
where
    F: Fn(Runtime, u64) -> O + Clone + Send + Sync + 'static,
    O: Future<Output = Result<(), BenchError>> + Send + 'static,
{
    fn once(&self, runtime: Runtime, number: u64) -> Boxed<()> {
        Box::pin(self(runtime, number))
    }

    fn saturate(&self, runtime: Runtime, load: Saturation) -> Boxed<Sample> {
        let operation = self.clone();
        Box::pin(saturate(load, move |number| operation(runtime.clone(), number)))
    }
}

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
    pub(super) drive: Drive,
    /// About how long one run takes, where that is not for its steps to say.
    run_time: Option<Duration>,
    is_long: bool,
}

/// What a sample of a case is.
#[derive(Clone)]
pub(super) enum Drive {
    /// So many one-row commits in a row with redb alone.
    Commits(u64),
    /// The least program for one-step runs, in a closed loop for a time.
    Floor,
    /// A closed loop for a time.
    Loop(Arc<dyn Operation>),
    /// A closed loop for a number of runs.
    Count(Arc<dyn Operation>, u64),
    /// One run after the other, each timed.
    OneByOne(Arc<dyn Operation>),
}

impl Case {
    /// The price that no durable step can avoid: `in_a_row` commits of one row with redb alone, timed
    /// together, since what a run of many steps waits for is the sum of its commits, slow ones too.
    #[must_use]
    pub fn commits(in_a_row: u64) -> Self {
        Self {
            workload: match in_a_row {
                1 => "one-row commit".into(),
                _ => format!("{in_a_row} one-row commits"),
            },
            steps: 0,
            store: Store::Durable,
            concurrency: 1,
            drive: Drive::Commits(in_a_row),
            run_time: None,
            is_long: false,
        }
    }

    /// One-step runs by the least program that does their durable work.
    #[must_use]
    pub fn floor(store: Store, concurrency: usize) -> Self {
        Self {
            workload: "one-step".into(),
            steps: 1,
            store,
            concurrency,
            drive: Drive::Floor,
            run_time: None,
            is_long: false,
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
        let operation: Arc<dyn Operation> =
            Arc::new(move |runtime, number| run_once(runtime, workflow, number, number, expected(number)));
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
            run_time: None,
            is_long: false,
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
        let operation: Arc<dyn Operation> =
            Arc::new(move |runtime, number| run_once(runtime, workflow, number, input.clone(), expected));
        Self {
            workload: name.into(),
            steps,
            store,
            concurrency: 1,
            drive: Drive::OneByOne(operation),
            run_time: None,
            is_long: false,
        }
    }

    /// The same, but a sample is this many runs rather than a time.
    #[must_use]
    pub fn times(mut self, runs: u64) -> Self {
        self.drive = match self.drive {
            Drive::Loop(operation) | Drive::OneByOne(operation) => Drive::Count(operation, runs),
            other @ (Drive::Commits(_) | Drive::Floor | Drive::Count(..)) => other,
        };
        self
    }

    /// Says about how long one run takes. What takes `long` or more is measured in a single run per
    /// round, without one before that does not count, and by default in a single round.
    #[must_use]
    pub fn taking(mut self, run_time: Duration, long: Duration) -> Self {
        self.is_long = run_time >= long;
        self.run_time = Some(run_time);
        self
    }

    /// What it is called while it runs.
    #[must_use]
    pub fn name(&self) -> String {
        let Self {
            workload,
            store,
            concurrency,
            ..
        } = self;
        let of = match self.drive {
            Drive::Floor => "the floor of ",
            Drive::Commits(_) | Drive::Loop(_) | Drive::Count(..) | Drive::OneByOne(_) => "",
        };
        format!("{of}{workload}, {}, {concurrency} at a time", store.name())
    }

    /// Runs of one sample that is timed run by run, and how many of them come first and do not count.
    pub(super) fn repeats(&self, effort: &Effort) -> (u64, usize) {
        if self.is_long {
            (1, 0)
        } else {
            (effort.repeats + 1, 1)
        }
    }

    pub(super) fn turns(&self, effort: &Effort) -> Turns {
        Turns {
            is_warmed: !self.is_long,
            rounds: if self.is_long {
                effort.rounds_of_long
            } else {
                effort.rounds
            },
        }
    }

    /// About how long one sample takes.
    fn sample_time(&self, effort: &Effort) -> Duration {
        let steps = u32::try_from(self.steps).unwrap_or(u32::MAX);
        let run_time = self.run_time.unwrap_or(match self.store {
            Store::Durable => DURABLE_STEP * (steps + 1),
            Store::Relaxed | Store::Unsynced | Store::Volatile => OTHER_STEP * (steps + 1),
        });
        let times = |runs: u64| run_time.saturating_mul(u32::try_from(runs).unwrap_or(u32::MAX));
        OPENING
            + match &self.drive {
                Drive::Commits(in_a_row) => {
                    DURABLE_STEP * u32::try_from(effort.commits(*in_a_row)).unwrap_or(u32::MAX)
                }
                Drive::Loop(_) | Drive::Floor => {
                    effort.warm_up_of(self.concurrency) + effort.measured_of(self.concurrency)
                }
                Drive::Count(_, runs) => times(runs / self.concurrency.max(1) as u64),
                Drive::OneByOne(_) => times(self.repeats(effort).0),
            }
    }

    /// About how long all its samples take.
    pub(super) fn time(&self, effort: &Effort) -> Duration {
        let samples = self.turns(effort).samples();
        self.sample_time(effort) * u32::try_from(samples).unwrap_or(u32::MAX)
    }

    pub(super) fn level(&self, threads: usize) -> Level {
        let (engine, package) = match self.drive {
            Drive::Commits(_) => ("redb", "redb"),
            Drive::Floor => ("floor", "redb"),
            Drive::Loop(_) | Drive::Count(..) | Drive::OneByOne(_) => ("millrun", "millrun"),
        };
        Level {
            engine: engine.into(),
            version: locked_version(package),
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
    /// Samples of what takes long; none is thrown away.
    pub rounds_of_long: usize,
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
            rounds_of_long: arguments.rounds.map_or(1, usize::from),
            warm_up: Duration::from_millis(warm_up_ms),
            measured: Duration::from_millis(measured_ms),
            per_client: Duration::from_micros(150),
            repeats,
            threads,
        }
    }

    /// How many bare commits are timed where `in_a_row` commits count as one.
    pub(super) fn commits(&self, in_a_row: u64) -> u64 {
        self.repeats * in_a_row.max(20)
    }

    /// Long enough that each client completes a few, however many there are.
    pub(super) fn measured_of(&self, concurrency: usize) -> Duration {
        self.measured.max(self.few(concurrency))
    }

    pub(super) fn warm_up_of(&self, concurrency: usize) -> Duration {
        self.warm_up.max(self.few(concurrency) / 2)
    }

    fn few(&self, concurrency: usize) -> Duration {
        self.per_client * u32::try_from(concurrency).unwrap_or(u32::MAX)
    }
}

/// Starts a run, waits for its result, and refuses another one than is expected.
pub(crate) async fn run_once<I: Serialize>(
    runtime: Runtime,
    workflow: Workflow<I, u64>,
    number: u64,
    input: I,
    expected: u64,
) -> Result<(), BenchError> {
    let id = format!("run-{number}");
    let run = runtime.start(workflow, &id, input).await.map_err(failed)?;
    let result = run.result().await.map_err(failed)?;
    if result == expected {
        return Ok(());
    }
    Err(BenchError::Wrong {
        contestant: "millrun".into(),
        what: format!("{id} of {} gave {result}, expected {expected}", workflow.name()),
    })
}

fn failed(error: impl fmt::Display) -> BenchError {
    BenchError::failed("millrun", error)
}
