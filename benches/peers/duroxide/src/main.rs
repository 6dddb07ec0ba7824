//! How fast is duroxide on the workloads of `bench-workflows`?
//!
//! Twice: with its default options, and with those that were fastest among some dozen that were tried:
//! for a single run one dispatcher of each kind that polls every millisecond; for dozens eight of each,
//! every 50 ms, since those that poll more often keep each other from the database; for a thousand four
//! of each, every 100 ms (with other settings some of the runs fail). Its SQLite store
//! survives a killed process but does not sync each commit, so the machine losing power may lose
//! acknowledged work; rows say `no sync`. A client learns of a result by polling the store.
//! `--quick` leaves out 1,024 at a time.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus};
use millrun_benches::runs::{Sample, Setting, Shape, Store, Workload, measure_peer, saturate};
use millrun_benches::{BenchError, exit, store_in, workers};

/// As in `Cargo.toml`.
const VERSION: &str = "0.1.32";
const RUN_LIMIT: Duration = Duration::from_secs(300);
const MANY_MAX: usize = 128;

/// How it is run.
#[derive(Clone, Debug)]
struct Options {
    one: RuntimeOptions,
    /// Where some dozens run at a time.
    many: RuntimeOptions,
    /// Where it is more than [`MANY_MAX`].
    crowd: RuntimeOptions,
}

fn main() -> ExitCode {
    let setting = |name, [one, many, crowd]: [RuntimeOptions; 3]| Setting {
        name,
        store: Store::Unsynced,
        options: Options { one, many, crowd },
    };
    let settings = [
        setting("duroxide", [quiet(), quiet(), quiet()]),
        setting("duroxide, tuned", [tuned(1, 1), tuned(50, 8), tuned(100, 4)]),
    ];
    exit(measure_peer(
        "peers-duroxide",
        ("duroxide, SQLite", VERSION),
        &settings,
        sample,
    ))
}

/// Without a log, which would otherwise go to where the tables go, and take time.
fn quiet() -> RuntimeOptions {
    let mut options = RuntimeOptions::default();
    options.observability.log_level = "off,duroxide=off".into();
    options
}

/// Polling every `poll_ms`, with `dispatchers` dispatchers of each kind.
fn tuned(poll_ms: u64, dispatchers: usize) -> RuntimeOptions {
    RuntimeOptions {
        dispatcher_min_poll_interval: Duration::from_millis(poll_ms),
        orchestration_concurrency: dispatchers,
        worker_concurrency: dispatchers,
        ..quiet()
    }
}

fn sample(
    options: &Options,
    workload: &Workload,
    folder: &Path,
    threads: usize,
) -> Result<Sample, BenchError> {
    let store = store_in(folder)?;
    let url = format!("sqlite:{}?mode=rwc", store.path().join("store.db").display());
    let options = match workload.concurrency {
        1 => &options.one,
        2..=MANY_MAX => &options.many,
        _ => &options.crowd,
    };
    workers(threads)?.block_on(async {
        let provider = Arc::new(SqliteProvider::new(&url, None).await.map_err(failed)?);
        let runtime =
            Runtime::start_with_options(provider.clone(), activities(), orchestrations(), options.clone())
                .await;
        let client = Arc::new(Client::new(provider));
        let workload = *workload;
        let sample = if workload.concurrency == 1 {
            let started = Instant::now();
            let outcome = run_once(&client, &workload, 0).await;
            outcome.map(|()| Sample::of(&[started.elapsed()]))
        } else {
            saturate(workload.load(), move |number| {
                let client = Arc::clone(&client);
                async move { run_once(&client, &workload, number).await }
            })
            .await
        };
        runtime.shutdown(None).await;
        sample
    })
}

async fn run_once(client: &Client, workload: &Workload, number: u64) -> Result<(), BenchError> {
    let id = format!("run-{number}");
    let (orchestration, input) = match workload.shape {
        Shape::Chain(steps) => ("chain", format!("{} {steps}", workload.input)),
        Shape::FiveTasks => ("five", workload.input.to_string()),
        Shape::Parallel(calls) => ("parallel", calls.to_string()),
    };
    client
        .start_orchestration(&id, orchestration, input)
        .await
        .map_err(failed)?;
    match client
        .wait_for_orchestration(&id, RUN_LIMIT)
        .await
        .map_err(failed)?
    {
        OrchestrationStatus::Completed { output, .. } => workload.check("duroxide", output.parse().ok()),
        other => Err(BenchError::failed(
            "duroxide",
            format!("{} ended as {other:?}", workload.name),
        )),
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
        .register("chain", |cx: OrchestrationContext, input: String| async move {
            let (mut number, steps) = input.split_once(' ').ok_or("two numbers are needed")?;
            let mut result;
            for _ in 0..parsed(steps)? {
                result = cx.schedule_activity("add-one", number.to_owned()).await?;
                number = &result;
            }
            Ok(number.to_owned())
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
