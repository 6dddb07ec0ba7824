//! How fast is durare on the workloads of `bench-workflows`?
//!
//! Twice, on its SQLite store: as it connects by itself, five connections and no sync of each commit (`no
//! sync`: the machine losing power may lose acknowledged work); and over a pool of one connection that syncs
//! each commit, so that nobody waits for SQLite's lock. A client awaits the task of its run, without polling.
//! `--quick` leaves out 1,024 at a time.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use durare::{DurableContext, DurableEngine, Error, SqliteProvider, WorkflowOptions};
use millrun_benches::runs::{Sample, Setting, Shape, Store, Workload, measure_peer, saturate};
use millrun_benches::{BenchError, exit, store_in, workers};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

/// As in `Cargo.toml`.
const VERSION: &str = "0.5.0";
/// What is left over of a run is given this long to end.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);

/// How its store is opened.
#[derive(Clone, Copy, Debug)]
enum Pool {
    /// By itself.
    Own,
    /// One connection that syncs each commit.
    Synced,
}

fn main() -> ExitCode {
    let setting = |name, store, options| Setting { name, store, options };
    let settings = [
        setting("durare", Store::Unsynced, Pool::Own),
        setting("durare, one connection, synced", Store::Durable, Pool::Synced),
    ];
    exit(measure_peer(
        "peers-durare",
        ("durare, SQLite", VERSION),
        &settings,
        sample,
    ))
}

async fn provider(pool: Pool, path: &Path) -> Result<SqliteProvider, BenchError> {
    match pool {
        Pool::Own => {
            let url = format!("sqlite:{}?mode=rwc", path.display());
            SqliteProvider::connect(&url).await.map_err(failed)
        }
        Pool::Synced => {
            let options = SqliteConnectOptions::new()
                .filename(path)
                .create_if_missing(true)
                .foreign_keys(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full);
            let pool = SqlitePoolOptions::new().max_connections(1);
            // A thousand clients wait for the one connection in turn.
            let pool = pool.acquire_timeout(Duration::from_secs(600));
            let pool = pool.connect_with(options).await.map_err(failed)?;
            Ok(SqliteProvider::from_pool(pool))
        }
    }
}

fn sample(pool: &Pool, workload: &Workload, folder: &Path, threads: usize) -> Result<Sample, BenchError> {
    let store = store_in(folder)?;
    let path = store.path().join("store.db");
    workers(threads)?.block_on(async {
        let provider = provider(*pool, &path).await?;
        let mut builder = DurableEngine::builder(Arc::new(provider));
        builder
            .register("chain", chain)
            .register("five", five)
            .register("parallel", parallel);
        let engine = Arc::new(builder.build().await.map_err(failed)?);
        let workload = *workload;
        let sample = if workload.concurrency == 1 {
            let started = Instant::now();
            let outcome = run_once(&engine, &workload, 0).await;
            outcome.map(|()| Sample::of(&[started.elapsed()]))
        } else {
            let on = Arc::clone(&engine);
            saturate(workload.load(), move |number| {
                let engine = Arc::clone(&on);
                async move { run_once(&engine, &workload, number).await }
            })
            .await
        };
        engine.shutdown(SHUTDOWN_MAX).await.map_err(failed)?;
        sample
    })
}

async fn run_once(engine: &DurableEngine, workload: &Workload, number: u64) -> Result<(), BenchError> {
    let (name, input) = match workload.shape {
        Shape::Chain(steps) => ("chain", (workload.input, steps)),
        Shape::FiveTasks => ("five", (workload.input, 0)),
        Shape::Parallel(calls) => ("parallel", (workload.input, calls)),
    };
    let options = WorkflowOptions::with_id(format!("run-{number}"));
    let run = engine
        .start::<(u64, u64), u64>(name, input, options)
        .await
        .map_err(failed)?;
    let result = run.await.map_err(failed)?;
    workload.check("durare", Some(result))
}

fn failed(error: impl Display) -> BenchError {
    BenchError::failed("durare", error)
}

async fn chain(cx: DurableContext, (mut number, steps): (u64, u64)) -> durare::Result<u64> {
    for _ in 0..steps {
        number = cx.step("add-one", || add_one(number)).await?;
    }
    Ok(number)
}

async fn five(cx: DurableContext, (number, _): (u64, u64)) -> durare::Result<u64> {
    let split = cx.step("add-one", || add_one(number)).await?;
    let parts = (0..3).map(|_| cx.step("add-one", move || add_one(split)));
    let merged = join_all(parts).await.into_iter().sum::<durare::Result<u64>>()?;
    cx.step("add-one", || add_one(merged)).await
}

async fn parallel(cx: DurableContext, (_, calls): (u64, u64)) -> durare::Result<u64> {
    let parts = (0..calls).map(|number| cx.step("add-one", move || add_one(number)));
    join_all(parts).await.into_iter().sum()
}

/// Builds all calls before any is polled, as the order of their positions asks.
async fn join_all<F: IntoFuture>(calls: impl Iterator<Item = F>) -> Vec<F::Output> {
    let calls: Vec<_> = calls.map(IntoFuture::into_future).collect();
    futures_util::future::join_all(calls).await
}

async fn add_one(number: u64) -> Result<u64, Error> {
    Ok(number + 1)
}
