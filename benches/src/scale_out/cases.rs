//! What is measured, and how long.

use std::path::Path;
use std::time::{Duration, Instant};

use millrun::Runtime;
use millrun_testkit::PostgresServer;

use super::server::{failed, schema, started};
use super::{bare, draining, idle, node};
use crate::http::{Row, Summary};
use crate::runs::{Sample, Saturation, saturate};
use crate::workflows::{ONE_STEP, SEQUENCE, registered};
use crate::{BenchError, Measured, Progress, interleaved, store_in, workers};

/// The groups of rows.
const ONE: &str = "one step";
const IN_SEQUENCE: &str = "40 in sequence";
const IDLE: &str = "idle";
const RESTART: &str = "restart";
const TAKEOVER: &str = "takeover";
const STOP: &str = "graceful stop";
/// Who did it.
const ON_POSTGRES: &str = "millrun on PostgreSQL";
const ON_REDB: &str = "millrun, one file";
const BARE: &str = "bare fenced statements";
const BARE_41: &str = "41 bare fenced statements";
const STATEMENTS: &str = "statements";
const CPU: &str = "CPU time, microseconds";

const STEPS: u64 = 40;
/// A run of as many steps begins with the first, and has a turn behind each.
const TURNS: usize = 41;
const CONCURRENCIES: [usize; 2] = [1_024, 32];
/// Callers while the server is killed.
const CALLERS: usize = 32;

/// How much of it.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Worker threads.
    pub threads: usize,
    /// Measured samples of each.
    pub rounds: usize,
    /// How long one takes, behind a warm-up of a third of it.
    pub lasts: Duration,
    /// How often 40 steps are done, and as many statements.
    pub sequences: usize,
    /// How long an idle node is watched.
    pub idle: Duration,
    /// How many runs two nodes have, one of which is killed.
    pub live_runs: u64,
    /// How many runs they have, one of which is shut down.
    pub drained_runs: u64,
}

/// Measures what has `only` in its name. What fails has no row; the others have.
#[must_use]
pub fn measure(effort: &Effort, folder: &Path, only: Option<&str>) -> Measured<Row> {
    let mut measured = Measured::default();
    let progress = Progress::ticking(0);
    let mut server = match started() {
        Ok(server) => server,
        Err(error) => {
            measured.keep("a server of PostgreSQL", Err::<[Row; 0], _>(error));
            return measured;
        }
    };
    let mut keep = |group: &str, measure: &mut dyn FnMut() -> Result<Vec<Row>, BenchError>| {
        if only.is_none_or(|only| group.contains(only)) {
            progress.running(group);
            measured.keep(group, measure());
        }
    };
    for at_a_time in CONCURRENCIES {
        keep(ONE, &mut || one_step(&server, at_a_time, effort, folder));
    }
    keep(IN_SEQUENCE, &mut || in_sequence(&server, effort));
    keep(IDLE, &mut || {
        let cost = idle::idle(&server, effort.idle)?;
        let cpu_us = cost.cpu.as_secs_f64() * 1e6;
        Ok(vec![
            rated(IDLE, STATEMENTS, cost.statements),
            rated(IDLE, CPU, cpu_us),
        ])
    });
    keep(TAKEOVER, &mut || {
        let times = (0..effort.rounds)
            .map(|_| node::takeover(&server, effort.live_runs, effort.threads))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(vec![timed(TAKEOVER, effort.live_runs, &times)])
    });
    keep(STOP, &mut || {
        let times = (0..effort.rounds)
            .map(|_| draining::stop(&server, effort.drained_runs, effort.threads))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(vec![timed(STOP, effort.drained_runs, &times)])
    });
    keep(RESTART, &mut || {
        let times = (0..effort.rounds)
            .map(|_| restart(&mut server, effort))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(vec![timed(RESTART, CALLERS as u64, &times)])
    });
    progress.finish();
    measured
}

/// So much a second.
fn rated(group: &str, mode: &str, per_s: f64) -> Row {
    Row {
        median_per_s: Some(per_s),
        range_per_s: Some((per_s, per_s)),
        ..Row::empty(group, mode, 1)
    }
}

/// Times, of which the longest counts too.
fn timed(group: &str, concurrency: u64, times: &[Duration]) -> Row {
    let sample = Summary::from(&Sample::of(times));
    Row {
        p50_us: Some(sample.p50_us),
        p99_us: Some(sample.p99_us),
        ..Row::empty(group, ON_POSTGRES, concurrency)
    }
}

fn one_step(
    server: &PostgresServer,
    at_a_time: usize,
    effort: &Effort,
    folder: &Path,
) -> Result<Vec<Row>, BenchError> {
    let load = Saturation {
        concurrency: at_a_time,
        warm_up: effort.lasts / 3,
        measured: effort.lasts,
        runs_max: u64::MAX,
    };
    let contestants = [BARE, ON_POSTGRES, ON_REDB];
    let samples = interleaved(contestants.len(), effort.rounds, |place| {
        let sample = match contestants[place] {
            BARE => bare::one_step(server, at_a_time, effort.lasts),
            ON_POSTGRES => workers(effort.threads)?.block_on(async {
                let schema = schema();
                let sample = run(&server.url(&schema), load).await?;
                bare::look_at_turns(server, &schema).await?;
                Ok(sample)
            }),
            _ => {
                let store = store_in(folder)?;
                let path = store.path().join("store.redb");
                let path = path
                    .to_str()
                    .ok_or_else(|| failed("the folder has no name in UTF-8"))?;
                workers(effort.threads)?.block_on(run(path, load))
            }
        };
        sample.map(|sample| Summary::from(&sample))
    })?;
    let rows = contestants.iter().zip(samples);
    Ok(rows
        .map(|(mode, samples)| Row::new(ONE, mode, at_a_time as u64, &samples))
        .collect())
}

/// Runs of one step, each waited for.
async fn run(store: &str, load: Saturation) -> Result<Sample, BenchError> {
    let runtime = registered(Runtime::open(store)).start().await.map_err(failed)?;
    let on = runtime.clone();
    let sample = saturate(load, move |number| {
        let runtime = on.clone();
        async move {
            let start = runtime.start(ONE_STEP, &format!("run-{number}"), number);
            let result = start.await.map_err(failed)?.result().await.map_err(failed)?;
            match result == number + 1 {
                true => Ok(()),
                false => Err(failed(format!("run {number} gave {result}"))),
            }
        }
    })
    .await;
    let ended = runtime.shutdown().await;
    let sample = sample?;
    ended.map_err(failed)?;
    Ok(sample)
}

fn in_sequence(server: &PostgresServer, effort: &Effort) -> Result<Vec<Row>, BenchError> {
    let contestants = [BARE_41, ON_POSTGRES];
    let samples = interleaved(contestants.len(), effort.rounds, |place| {
        let sample = match contestants[place] {
            BARE_41 => bare::in_sequence(server, TURNS, effort.sequences),
            _ => workers(effort.threads)?.block_on(sequence(&server.url(&schema()), effort.sequences)),
        };
        sample.map(|sample| Summary::from(&sample))
    })?;
    let rows = contestants.iter().zip(samples);
    Ok(rows
        .map(|(mode, samples)| Row::new(IN_SEQUENCE, mode, 1, &samples))
        .collect())
}

/// Runs of 40 steps, one after the other.
async fn sequence(store: &str, times: usize) -> Result<Sample, BenchError> {
    let runtime = registered(Runtime::open(store)).start().await.map_err(failed)?;
    let mut took = Vec::new();
    for number in 0..times {
        let began = Instant::now();
        let run = runtime.start(SEQUENCE, &format!("run-{number}"), STEPS);
        let result = run.await.map_err(failed)?.result().await.map_err(failed)?;
        took.push(began.elapsed());
        if result != STEPS {
            return Err(failed(format!("run {number} gave {result}")));
        }
    }
    runtime.shutdown().await.map_err(failed)?;
    Ok(Sample::of(&took))
}

/// Kills the server under load and starts it: how long until a run ends, from when it takes connections.
fn restart(server: &mut PostgresServer, effort: &Effort) -> Result<Duration, BenchError> {
    let tokio = workers(effort.threads)?;
    let runtime = tokio.block_on(async {
        let url = format!("{}&node=one", server.url(&schema()));
        registered(Runtime::open(url)).start().await.map_err(failed)
    })?;
    let on = runtime.clone();
    let load = Saturation {
        concurrency: CALLERS,
        warm_up: Duration::ZERO,
        measured: Duration::from_secs(3_600),
        runs_max: u64::MAX,
    };
    let loaded = tokio.spawn(saturate(load, move |number| {
        let runtime = on.clone();
        async move {
            let run = runtime.start(ONE_STEP, &format!("run-{number}"), number);
            let run = run.await.map_err(failed)?;
            run.result().await.map(drop).map_err(failed)
        }
    }));
    let finished = || runtime.stats().finished;
    let goes_on = |behind: u64| {
        tokio.block_on(async {
            while finished() <= behind {
                if let Some(cause) = runtime.stop_cause() {
                    return Err(failed(cause));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        })
    };
    goes_on(CALLERS as u64)?;
    server.kill().map_err(failed)?;
    // Nothing ends from here on until the server is back.
    std::thread::sleep(Duration::from_millis(200));
    let before = finished();
    server.start().map_err(failed)?;
    let accepts = Instant::now();
    goes_on(before)?;
    let took = accepts.elapsed();
    loaded.abort();
    tokio.block_on(runtime.shutdown()).map_err(failed)?;
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bars;

    /// A bar whose row has another name than it looks for judges nothing, and nobody would see it.
    #[test]
    fn each_bar_finds_its_rows() {
        let of = |group, mode, level| Row::new(group, mode, level, &[Summary::default()]);
        let mut rows = Vec::new();
        for at_a_time in CONCURRENCIES {
            rows.extend([BARE, ON_POSTGRES, ON_REDB].map(|mode| of(ONE, mode, at_a_time as u64)));
        }
        rows.extend([
            of(IN_SEQUENCE, BARE_41, 1),
            of(IN_SEQUENCE, ON_POSTGRES, 1),
            rated(IDLE, STATEMENTS, 1.0),
            rated(IDLE, CPU, 1.0),
            timed(TAKEOVER, 40_000, &[Duration::from_secs(1)]),
            timed(STOP, 20_000, &[Duration::from_secs(1)]),
            timed(RESTART, 32, &[Duration::from_secs(1)]),
        ]);
        assert_eq!(Bars::load().unwrap().judge("scale-out", &rows).unwrap().len(), 8);
    }
}
