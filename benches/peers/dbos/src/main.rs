//! How fast is DBOS Transact for Rust on the workloads of `bench-workflows`?
//!
//! It keeps its state in PostgreSQL and has no other store. The server is the one that
//! `MILLRUN_BENCH_POSTGRES` names (a URL without a database); `with-postgres` beside this package starts one
//! on the folder of results, which syncs each commit, and stops it afterwards. Each sample has a new database.
//!
//! Twice: with its default options, and with fifty connections in place of ten. A run's caller awaits it in
//! the process that runs it, without polling. `--quick` leaves out 1,024 at a time.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dbos::{Config, DBOS, RunOptions, WorkflowRef, step};
use millrun_benches::runs::{Sample, Setting, Shape, Store, Workload, measure_peer, saturate};
use millrun_benches::{BenchError, exit, workers};

/// As in `Cargo.toml`.
const VERSION: &str = "0.5.0";
/// Where the server is.
const SERVER: &str = "MILLRUN_BENCH_POSTGRES";
const CONNECTIONS_DEFAULT: u32 = 10;
const CONNECTIONS_TUNED: u32 = 50;

/// Numbers the databases of this process.
static DATABASES: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    let setting = |name, connections: u32| Setting {
        name,
        store: Store::Durable,
        options: connections,
    };
    let settings = [
        setting("DBOS", CONNECTIONS_DEFAULT),
        setting("DBOS, 50 connections", CONNECTIONS_TUNED),
    ];
    exit(server().and_then(|_| measure_peer("peers-dbos", ("DBOS, PostgreSQL", VERSION), &settings, sample)))
}

fn server() -> Result<String, BenchError> {
    std::env::var(SERVER).map_err(|_| {
        let cause =
            format!("it needs PostgreSQL: run it by benches/peers/dbos/with-postgres, or set {SERVER}");
        BenchError::failed("DBOS", cause)
    })
}

/// A URL of the server's, with a database of its own.
fn database() -> Result<String, BenchError> {
    let server = server()?;
    let number = DATABASES.fetch_add(1, Ordering::Relaxed);
    let name = format!("/bench_{}_{number}", std::process::id());
    Ok(match server.split_once('?') {
        Some((server, rest)) => format!("{}{name}?{rest}", server.trim_end_matches('/')),
        None => format!("{}{name}", server.trim_end_matches('/')),
    })
}

fn sample(connections: &u32, workload: &Workload, _: &Path, threads: usize) -> Result<Sample, BenchError> {
    workers(threads)?.block_on(async {
        let config = Config {
            max_connections: *connections,
            app_version: Some("1".into()),
            ..Config::new("bench", database()?)
        };
        let dbos = DBOS::new(config);
        let workflow = Arc::new(registered(&dbos, workload.shape)?);
        dbos.launch().await.map_err(failed)?;
        let workload = *workload;
        let sample = if workload.concurrency == 1 {
            let started = Instant::now();
            let outcome = run_once(&workflow, &workload, 0).await;
            outcome.map(|()| Sample::of(&[started.elapsed()]))
        } else {
            saturate(workload.load(), move |number| {
                let workflow = Arc::clone(&workflow);
                async move { run_once(&workflow, &workload, number).await }
            })
            .await
        };
        dbos.shutdown().await;
        sample
    })
}

fn registered(dbos: &DBOS, shape: Shape) -> Result<WorkflowRef<(u64, u64), u64>, BenchError> {
    match shape {
        Shape::Chain(_) => dbos.register_workflow("chain", chain),
        Shape::FiveTasks => dbos.register_workflow("five", five),
        Shape::Parallel(_) => dbos.register_workflow("parallel", parallel),
    }
    .map_err(failed)
}

async fn run_once(
    workflow: &WorkflowRef<(u64, u64), u64>,
    workload: &Workload,
    number: u64,
) -> Result<(), BenchError> {
    let input = match workload.shape {
        Shape::Chain(count) | Shape::Parallel(count) => (workload.input, count),
        Shape::FiveTasks => (workload.input, 0),
    };
    let id = format!("run-{number}");
    let options = RunOptions {
        workflow_id: Some(&id),
        ..RunOptions::default()
    };
    let result = workflow.run_with(input, options).await.map_err(failed)?;
    workload.check("DBOS", Some(result))
}

fn failed(error: impl Display) -> BenchError {
    BenchError::failed("DBOS", error)
}

async fn chain((mut number, steps): (u64, u64)) -> dbos::Result<u64> {
    for _ in 0..steps {
        number = step("add-one", || add_one(number)).await?;
    }
    Ok(number)
}

async fn five((number, _): (u64, u64)) -> dbos::Result<u64> {
    let split = step("add-one", || add_one(number)).await?;
    let parts = (0..3).map(|_| step("add-one", || add_one(split)));
    let merged = join_all(parts).await.into_iter().sum::<dbos::Result<u64>>()?;
    step("add-one", || add_one(merged)).await
}

async fn parallel((_, calls): (u64, u64)) -> dbos::Result<u64> {
    let parts = (0..calls).map(|number| step("add-one", move || add_one(number)));
    join_all(parts).await.into_iter().sum()
}

/// Builds all calls before any is polled, as the order of their ids asks.
async fn join_all<F: IntoFuture>(calls: impl Iterator<Item = F>) -> Vec<F::Output> {
    let calls: Vec<_> = calls.map(IntoFuture::into_future).collect();
    futures_util::future::join_all(calls).await
}

async fn add_one(number: u64) -> dbos::Result<u64> {
    Ok(number + 1)
}
