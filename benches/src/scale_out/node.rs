//! Nodes of one store, one of which is killed with its runs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use millrun::{Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::PostgresServer;

use super::server::{failed, schema};
use crate::{BenchError, workers};

/// As short as a node may have it, and half of it.
const LEASE: Duration = Duration::from_secs(2);
/// How often it is looked what the node owns.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A node takes longer for nothing that it does here.
const TIME_MAX: Duration = Duration::from_secs(120);
const READY: &str = "ready";
/// How many runs are asked whether they live behind a takeover.
const ASKED: u64 = 200;

const WAIT: Workflow<(), u64> = Workflow::named("bench.wait");
const GO: Signal<u64> = Signal::named("bench.go");

async fn wait(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    Ok(cx.receive(GO).await?)
}

fn node(url: &str, name: &str) -> RuntimeBuilder {
    Runtime::open(format!("{url}&node={name}"))
        .register(WAIT, wait)
        .configure(|config| config.lease = LEASE)
}

fn id(number: u64) -> String {
    format!("run-{number}")
}

/// Runs a node until it is killed. The node starts `runs` runs that wait for a signal, and prints a line when they are started.
///
/// # Errors
/// When it cannot.
pub fn serve(url: &str, runs: u64, threads: usize) -> Result<(), BenchError> {
    workers(threads)?.block_on(async {
        let runtime = node(url, "first").start().await.map_err(failed)?;
        let mut starting = tokio::task::JoinSet::new();
        for first in 0..16 {
            let runtime = runtime.clone();
            starting.spawn(async move {
                for number in (first..runs).step_by(16) {
                    runtime.start(WAIT, &id(number), ()).await?;
                }
                Ok::<_, millrun::StartError>(())
            });
        }
        while let Some(started) = starting.join_next().await {
            started.map_err(failed)?.map_err(failed)?;
        }
        println!("{READY}");
        Err(failed(runtime.stopped().await))
    })
}

/// The process of such a node.
struct Other(Child);

impl Other {
    fn started(url: &str, runs: u64) -> Result<Self, BenchError> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["--node", url, "--runs", &runs.to_string(), "--threads", "1"]);
        let mut other = Self(command.stdout(Stdio::piped()).spawn().map_err(failed)?);
        let told = other.0.stdout.take().map(BufReader::new);
        let ready = told.and_then(|told| told.lines().next());
        match ready {
            Some(Ok(line)) if line == READY => Ok(other),
            _ => Err(failed("the other node does not start")),
        }
    }

    fn kill(&mut self) -> Result<(), BenchError> {
        self.0.kill().map_err(failed)?;
        self.0.wait().map_err(failed).map(drop)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have been killed before.
        self.kill().ok();
    }
}

/// How long it takes until a node has all the runs of another one, half of `runs` about, which is killed.
pub(super) fn takeover(server: &PostgresServer, runs: u64, threads: usize) -> Result<Duration, BenchError> {
    workers(threads)?.block_on(async {
        let url = server.url(&schema());
        let mut other = Other::started(&url, runs)?;
        let runtime = node(&url, "second").start().await.map_err(failed)?;
        let owns = || runtime.partitions().owned().len();
        let until = async |is_so: &dyn Fn(usize) -> bool| {
            let began = Instant::now();
            while !is_so(owns()) {
                if let Some(cause) = runtime.stop_cause() {
                    return Err(failed(cause));
                }
                if began.elapsed() > TIME_MAX {
                    return Err(failed(format!(
                        "after {TIME_MAX:?} it owns {} partitions",
                        owns()
                    )));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Ok(())
        };
        until(&|owned| owned == 512).await?;
        other.kill()?;
        let killed = Instant::now();
        until(&|owned| owned == 1_024).await?;
        let took = killed.elapsed();
        // The runs are there, and go on.
        for number in (0..runs).step_by(usize::try_from(runs / ASKED).map_err(failed)?.max(1)) {
            let run = runtime.attach(WAIT, &id(number)).map_err(failed)?;
            run.signal(GO, number).await.map_err(failed)?;
            if run.result().await.map_err(failed)? != number {
                return Err(failed("a run gave another's result"));
            }
        }
        runtime.shutdown().await.map_err(failed)?;
        Ok(took)
    })
}
