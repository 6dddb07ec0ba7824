//! A node that is shut down while its runs work: how soon these go on elsewhere, and whether an attempt is made twice.
//!
//! Each node notes what it begins. The one that is shut down prints it when it has ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use millrun::{
    Activity, ActivityContext, ActivityError, InstanceId, Runtime, RuntimeBuilder, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_testkit::PostgresServer;

use super::node::{Other, READY, ask_some, node, until};
use super::server::{failed, schema};
use crate::{BenchError, workers};

/// Runs that work all the time, on both nodes.
const WORKING: u64 = 128;
/// How long each of their attempts takes.
const ATTEMPT: Duration = Duration::from_millis(100);
/// How long they work before the stop, and on the node that is left behind it.
const WORKED: Duration = Duration::from_secs(2);
const DONE: &str = "done";

const WORK: Workflow<u64, ()> = Workflow::named("bench.work");
const STEP: Activity<(u64, u64), ()> = Activity::named("bench.step");

/// Makes one step behind the other.
async fn work(cx: WorkflowContext, run: u64) -> Result<(), WorkflowError> {
    for number in 0..u64::MAX {
        cx.call(STEP, (run, number)).await?;
    }
    Ok(())
}

fn id(run: u64) -> String {
    format!("working-{run}")
}

/// How often each step of each run was begun.
type Begun = BTreeMap<(u64, u64), u64>;

/// What a node has begun.
pub(super) struct BegunSteps(Mutex<Begun>);

impl BegunSteps {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    fn lock(&self) -> MutexGuard<'_, Begun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_begun_any(&self, run: u64) -> bool {
        self.lock().range((run, 0)..=(run, u64::MAX)).next().is_some()
    }

    pub(super) fn register(self: &Arc<Self>, builder: RuntimeBuilder) -> RuntimeBuilder {
        let ledger = Arc::clone(self);
        let step = move |_: ActivityContext, step: (u64, u64)| {
            let ledger = Arc::clone(&ledger);
            async move {
                *ledger.lock().entry(step).or_default() += 1;
                tokio::time::sleep(ATTEMPT).await;
                Ok::<_, ActivityError>(())
            }
        };
        builder.register(WORK, work).register(STEP, step)
    }
}

/// Starts the runs that work, on the nodes that own their partitions: a partition that is handed over later drains nothing.
async fn start_working(runtime: &Runtime) -> Result<(), BenchError> {
    for run in 0..WORKING {
        runtime.start(WORK, &id(run), run).await.map_err(failed)?;
    }
    Ok(())
}

/// Is shut down when a line comes, and prints what was begun.
pub(super) async fn serve(runtime: &Runtime, ledger: &BegunSteps) -> Result<(), BenchError> {
    println!("{READY}");
    let line = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    line.await.map_err(failed)?.map_err(failed)?;
    let report = runtime.shutdown().await.map_err(failed)?;
    if report.activities_cut > 0 || !report.left_behind.is_empty() {
        return Err(failed(format!("something was cut short: {report:?}")));
    }
    for ((run, number), times) in &*ledger.lock() {
        println!("{run} {number} {times}");
    }
    println!("{DONE}");
    Ok(())
}

/// What the other node prints of its ledger.
fn read_ledger(other: &mut Other) -> Result<Begun, BenchError> {
    let mut begun = Begun::new();
    loop {
        let line = other.told()?.ok_or_else(|| failed("the other node has failed"))?;
        if line == DONE {
            return Ok(begun);
        }
        let numbers = line.split(' ').map(str::parse::<u64>);
        match numbers.collect::<Result<Vec<_>, _>>().map_err(failed)?[..] {
            [run, number, times] => begun.insert((run, number), times),
            _ => return Err(failed(format!("this is no entry: {line}"))),
        };
    }
}

/// Each step was begun once, on either node, and none is missing.
fn check(begun: &Begun) -> Result<(), BenchError> {
    let mut next = BTreeMap::new();
    for ((run, number), times) in begun {
        let expected = next.entry(*run).or_insert(0);
        if number != expected {
            return Err(failed(format!("step {expected} of run {run} is missing")));
        }
        if *times != 1 {
            return Err(failed(format!(
                "step {number} of run {run} was begun {times} times"
            )));
        }
        *expected += 1;
    }
    Ok(())
}

/// How long it takes from when a node is told to shut down, with half of `runs` about and runs that work, until the other has
/// all of them and each run that works has begun a step there.
pub(super) fn stop(server: &PostgresServer, runs: u64, threads: usize) -> Result<Duration, BenchError> {
    workers(threads)?.block_on(async {
        let url = server.url(&schema());
        let mut other = Other::started(&url, runs, &["--drains"])?;
        let ledger = BegunSteps::new();
        let builder = ledger.register(node(&url, "second"));
        let runtime = builder.start().await.map_err(failed)?;
        let owned = || runtime.partitions().owned();
        until(&runtime, "an even share", || owned().len() == 512).await?;
        start_working(&runtime).await?;
        tokio::time::sleep(WORKED).await;
        let mine = owned();
        let mut moving = Vec::new();
        for run in 0..WORKING {
            let partition = InstanceId::new(&id(run)).map_err(failed)?.partition();
            if mine.binary_search(&partition).is_err() && !ledger.has_begun_any(run) {
                moving.push(run);
            }
        }
        other.stop()?;
        let told = Instant::now();
        until(&runtime, "a graceful stop", || {
            owned().len() == 1_024 && moving.iter().all(|run| ledger.has_begun_any(*run))
        })
        .await?;
        let took = told.elapsed();
        let mut begun = read_ledger(&mut other)?;
        tokio::time::sleep(WORKED).await;
        ask_some(&runtime, runs).await?;
        runtime.shutdown().await.map_err(failed)?;
        for (step, times) in &*ledger.lock() {
            *begun.entry(*step).or_default() += times;
        }
        check(&begun)?;
        Ok(took)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_was_begun_twice_or_never_is_found() {
        let begun = |steps: &[(u64, u64, u64)]| {
            let steps = steps.iter().map(|(run, number, times)| ((*run, *number), *times));
            check(&steps.collect())
        };
        assert!(begun(&[(0, 0, 1), (0, 1, 1), (3, 0, 1)]).is_ok());
        assert!(begun(&[(0, 0, 1), (0, 1, 2)]).is_err());
        assert!(begun(&[(0, 0, 1), (0, 2, 1)]).is_err());
    }
}
