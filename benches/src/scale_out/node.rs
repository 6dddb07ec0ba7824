//! Nodes of one store, one of which is killed with its runs, or shut down.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use millrun::{Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::PostgresServer;

use super::draining::{self, BegunSteps};
use super::server::{failed, schema};
use crate::{BenchError, workers};

/// As short as a node may have it, and half of it.
const LEASE: Duration = Duration::from_secs(2);
/// How often it is looked what the node owns.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A node takes longer for nothing that it does here.
const TIME_MAX: Duration = Duration::from_secs(120);
pub(super) const READY: &str = "ready";
/// How many runs are asked whether they live behind a takeover.
const ASKED: u64 = 200;

/// How many tasks start runs.
const STARTERS: usize = 16;

const WAIT: Workflow<(), u64> = Workflow::named("bench.wait");
const GO: Signal<u64> = Signal::named("bench.go");

async fn wait(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    Ok(cx.receive(GO).await?)
}

pub(super) fn node(url: &str, name: &str) -> RuntimeBuilder {
    Runtime::open(format!("{url}&node={name}"))
        .register(WAIT, wait)
        .configure(|config| config.lease = LEASE)
}

fn id(number: u64) -> String {
    format!("run-{number}")
}

/// Starts runs that wait for a signal.
async fn start_waiting(runtime: &Runtime, runs: u64) -> Result<(), BenchError> {
    let mut starting = tokio::task::JoinSet::new();
    for first in (0..).take(STARTERS) {
        let runtime = runtime.clone();
        starting.spawn(async move {
            for number in (first..runs).step_by(STARTERS) {
                runtime.start(WAIT, &id(number), ()).await?;
            }
            Ok::<_, millrun::StartError>(())
        });
    }
    while let Some(started) = starting.join_next().await {
        started.map_err(failed)?.map_err(failed)?;
    }
    Ok(())
}

/// Runs a node that starts `runs` runs, which wait for a signal, and prints a line when they are started. It runs until it is
/// killed; or, if it `drains`, is given runs that work, is shut down when a line comes, and prints what they have done.
///
/// # Errors
/// When it cannot.
pub fn serve(url: &str, runs: u64, threads: usize, drains: bool) -> Result<(), BenchError> {
    workers(threads)?.block_on(async {
        if !drains {
            let runtime = node(url, "first").start().await.map_err(failed)?;
            start_waiting(&runtime, runs).await?;
            println!("{READY}");
            return Err(failed(runtime.stopped().await));
        }
        let ledger = BegunSteps::new();
        let runtime = ledger
            .register(node(url, "first"))
            .start()
            .await
            .map_err(failed)?;
        start_waiting(&runtime, runs).await?;
        draining::serve(&runtime, &ledger).await
    })
}

/// The process of such a node.
pub(super) struct Other {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    pub(super) fn started(url: &str, runs: u64, arguments: &[&str]) -> Result<Self, BenchError> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["--node", url, "--runs", &runs.to_string(), "--threads", "1"]);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().map_err(failed)?;
        let told = process.stdout.take().ok_or_else(|| failed("it tells nothing"))?;
        let lines = BufReader::new(told).lines();
        let mut other = Self { process, lines };
        match other.told()?.as_deref() {
            Some(READY) => Ok(other),
            _ => Err(failed("the other node does not start")),
        }
    }

    /// The next line that it prints; `None` if it has ended.
    pub(super) fn told(&mut self) -> Result<Option<String>, BenchError> {
        self.lines.next().transpose().map_err(failed)
    }

    /// Has it shut down.
    pub(super) fn stop(&mut self) -> Result<(), BenchError> {
        let mut way = self
            .process
            .stdin
            .take()
            .ok_or_else(|| failed("it hears nothing"))?;
        writeln!(way).map_err(failed)
    }

    fn kill(&mut self) -> Result<(), BenchError> {
        self.process.kill().map_err(failed)?;
        self.process.wait().map_err(failed).map(drop)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have been killed before.
        self.kill().ok();
    }
}

/// Waits until a condition holds for a node, which goes on as long.
pub(super) async fn until(runtime: &Runtime, what: &str, is_so: impl Fn() -> bool) -> Result<(), BenchError> {
    let began = Instant::now();
    while !is_so() {
        if let Some(cause) = runtime.stop_cause() {
            return Err(failed(cause));
        }
        if began.elapsed() > TIME_MAX {
            let owned = runtime.partitions().owned().len();
            return Err(failed(format!(
                "{what} took more than {TIME_MAX:?}; it owns {owned} partitions"
            )));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// How long it takes until a node has all the runs of another one, half of `runs` about, which is killed.
pub(super) fn takeover(server: &PostgresServer, runs: u64, threads: usize) -> Result<Duration, BenchError> {
    workers(threads)?.block_on(async {
        let url = server.url(&schema());
        let mut other = Other::started(&url, runs, &[])?;
        let runtime = node(&url, "second").start().await.map_err(failed)?;
        let owns = || runtime.partitions().owned().len();
        until(&runtime, "an even share", || owns() == 512).await?;
        other.kill()?;
        let killed = Instant::now();
        until(&runtime, "a takeover", || owns() == 1_024).await?;
        let took = killed.elapsed();
        ask_some(&runtime, runs).await?;
        runtime.shutdown().await.map_err(failed)?;
        Ok(took)
    })
}

/// Some of the runs that wait are there, and go on.
pub(super) async fn ask_some(runtime: &Runtime, runs: u64) -> Result<(), BenchError> {
    for number in (0..runs).step_by(usize::try_from(runs / ASKED).map_err(failed)?.max(1)) {
        let run = runtime.attach(WAIT, &id(number)).map_err(failed)?;
        run.signal(GO, number).await.map_err(failed)?;
        if run.result().await.map_err(failed)? != number {
            return Err(failed("a run gave another's result"));
        }
    }
    Ok(())
}
