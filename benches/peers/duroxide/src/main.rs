//! How fast is duroxide on the workloads of `bench-workflows`?
//!
//! Twice: with its default options, and polling as fast as it can be told to. Its SQLite store
//! survives a killed process but does not sync each commit, so the machine losing power may lose
//! acknowledged work; rows say `no sync`. A client learns of a result by polling the store.
//! `--quick` leaves out 1,024 at a time.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus};
use millrun_benches::runs::{Level, Row, Sample, Saturation, Store, saturate, table};
use millrun_benches::{BenchError, CommonArguments, Program, Progress, ThreadArguments, exit};
use tokio::runtime::Builder;

const RUN_LIMIT: Duration = Duration::from_secs(120);
/// A sample is this many runs per client: a time would be too short for the slowest workload, or
/// too long for the rest.
const RUNS_PER_CLIENT: u64 = 4;

/// duroxide on the workloads of bench-workflows.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
}

/// One workload: its orchestration, its input, and what must come out.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    orchestration: &'static str,
    steps: u64,
    input: u64,
    expected: u64,
    concurrency: usize,
}

const fn workload(
    name: &'static str,
    orchestration: &'static str,
    steps: u64,
    (input, expected): (u64, u64),
    concurrency: usize,
) -> Workload {
    Workload {
        name,
        orchestration,
        steps,
        input,
        expected,
        concurrency,
    }
}

const WORKLOADS: [Workload; 8] = [
    workload("one-step", "chain-1", 1, (1, 2), 32),
    workload("three-step", "chain-3", 3, (1, 4), 32),
    workload("five-task", "five", 5, (1, 10), 32),
    workload("one-step", "chain-1", 1, (1, 2), 1_024),
    workload("three-step", "chain-3", 3, (1, 4), 1_024),
    workload("five-task", "five", 5, (1, 10), 1_024),
    workload("40 in sequence", "sequence", 40, (40, 40), 1),
    workload("1,000 in parallel", "parallel", 1_000, (1_000, 500_500), 1),
];

fn main() -> ExitCode {
    exit(run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let program = Program::begin("peers-duroxide", &arguments.common)?;
    let threads = arguments.threads.threads();
    let rounds = arguments
        .common
        .rounds
        .unwrap_or(if arguments.common.quick { 1 } else { 3 });
    let level_max = if arguments.common.quick { 32 } else { usize::MAX };
    let only = arguments.common.only.as_deref();
    let engines: [(&str, RuntimeOptions); 2] = [
        ("duroxide", RuntimeOptions::default()),
        ("duroxide, tuned", tuned(threads)),
    ];
    let progress = Progress::new((engines.len() * WORKLOADS.len() * usize::from(rounds)) as u64);
    let mut rows = Vec::new();
    for (engine, options) in engines {
        for workload in WORKLOADS.iter().filter(|workload| {
            workload.concurrency <= level_max && only.is_none_or(|only| workload.name.contains(only))
        }) {
            let mut samples = Vec::new();
            for _ in 0..rounds {
                progress.running(format!(
                    "{engine}, {}, {} at a time",
                    workload.name, workload.concurrency
                ));
                samples.push(sample(
                    *workload,
                    options.clone(),
                    threads,
                    program.output().folder(),
                )?);
                progress.step();
            }
            let level = Level {
                engine: engine.into(),
                workload: workload.name.into(),
                steps: workload.steps,
                store: Store::Unsynced,
                concurrency: workload.concurrency,
                threads,
            };
            rows.extend(Row::new(&level, &samples));
        }
    }
    progress.finish();
    let tables = [table("duroxide 0.1.32, SQLite", &rows)];
    program.finish(&rows, &tables, &[])
}

/// The shortest polling interval it accepts, and as many dispatchers as threads.
fn tuned(threads: usize) -> RuntimeOptions {
    RuntimeOptions {
        dispatcher_min_poll_interval: Duration::from_millis(1),
        orchestration_concurrency: threads,
        worker_concurrency: threads,
        ..RuntimeOptions::default()
    }
}

fn sample(
    workload: Workload,
    options: RuntimeOptions,
    threads: usize,
    folder: &Path,
) -> Result<Sample, BenchError> {
    let store = tempfile::tempdir_in(folder).map_err(|source| BenchError::File {
        path: folder.to_owned(),
        source,
    })?;
    let url = format!("sqlite:{}?mode=rwc", store.path().join("store.db").display());
    let tokio = Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(BenchError::Runtime)?;
    tokio.block_on(async {
        let provider = Arc::new(SqliteProvider::new(&url, None).await.map_err(failed)?);
        let runtime =
            Runtime::start_with_options(provider.clone(), activities(), orchestrations(), options).await;
        let client = Arc::new(Client::new(provider));
        let sample = if workload.concurrency == 1 {
            one_by_one(&client, workload).await
        } else {
            let load = Saturation {
                concurrency: workload.concurrency,
                warm_up: Duration::ZERO,
                measured: RUN_LIMIT,
                runs_max: RUNS_PER_CLIENT * workload.concurrency as u64,
            };
            saturate(load, move |number| {
                let client = Arc::clone(&client);
                async move { run_once(&client, workload, number).await }
            })
            .await
        };
        runtime.shutdown(None).await;
        sample
    })
}

async fn one_by_one(client: &Client, workload: Workload) -> Result<Sample, BenchError> {
    let started = Instant::now();
    run_once(client, workload, 0).await?;
    Ok(Sample::of(&[started.elapsed()]))
}

async fn run_once(client: &Client, workload: Workload, number: u64) -> Result<(), BenchError> {
    let id = format!("run-{number}");
    let input = workload.input.to_string();
    client
        .start_orchestration(&id, workload.orchestration, input)
        .await
        .map_err(failed)?;
    match client
        .wait_for_orchestration(&id, RUN_LIMIT)
        .await
        .map_err(failed)?
    {
        OrchestrationStatus::Completed { output, .. } if output == workload.expected.to_string() => Ok(()),
        other => Err(BenchError::Wrong {
            contestant: "duroxide".into(),
            what: format!(
                "{} ended as {other:?}, expected {}",
                workload.name, workload.expected
            ),
        }),
    }
}

fn failed(error: impl Error) -> BenchError {
    BenchError::failed("duroxide", error)
}

fn activities() -> ActivityRegistry {
    let add_one = |_: ActivityContext, number: String| async move { Ok((parsed(&number)? + 1).to_string()) };
    ActivityRegistry::builder().register("add-one", add_one).build()
}

fn orchestrations() -> OrchestrationRegistry {
    OrchestrationRegistry::builder()
        .register("chain-1", |cx: OrchestrationContext, input: String| {
            chain(cx, input, 1)
        })
        .register("chain-3", |cx: OrchestrationContext, input: String| {
            chain(cx, input, 3)
        })
        .register("sequence", |cx: OrchestrationContext, input: String| async move {
            let steps = parsed(&input)?;
            chain(cx, "0".into(), steps).await
        })
        .register("five", |cx: OrchestrationContext, input: String| async move {
            let split = cx.schedule_activity("add-one", input).await?;
            let parts = (0..3)
                .map(|_| cx.schedule_activity("add-one", split.clone()))
                .collect();
            let merged = sum(cx.join(parts).await)?;
            cx.schedule_activity("add-one", merged.to_string()).await
        })
        .register("parallel", |cx: OrchestrationContext, input: String| async move {
            let calls = parsed(&input)?;
            let parts = (0..calls)
                .map(|number| cx.schedule_activity("add-one", number.to_string()))
                .collect();
            Ok(sum(cx.join(parts).await)?.to_string())
        })
        .build()
}

async fn chain(cx: OrchestrationContext, mut number: String, steps: u64) -> Result<String, String> {
    for _ in 0..steps {
        number = cx.schedule_activity("add-one", number).await?;
    }
    Ok(number)
}

fn sum(parts: Vec<Result<String, String>>) -> Result<u64, String> {
    let mut sum = 0;
    for part in parts {
        sum += parsed(&part?)?;
    }
    Ok(sum)
}

fn parsed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|error| format!("{text:?} is no number: {error}"))
}
