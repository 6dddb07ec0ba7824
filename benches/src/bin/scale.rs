//! How does the cost of durable workflows grow?
//!
//! With waiting instances, schedules, the length of one history, checkpoints of one run, the size of the journal, worker threads,
//! payload size, and time under load. Everything is synced before it is acknowledged. Without
//! `--quick` this takes about three minutes, and as many more as `--minutes` says.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use millrun_benches::scale::{
    Row, charts, checkpoints, finding_failed, finding_live, history, journal, payload, preflight, schedules,
    sustained, tables, threads, waiting,
};
use millrun_benches::{
    BenchError, CommonArguments, Measured, Program, Progress, ThreadArguments, end_after, end_with_parent,
    exit,
};
use serde::de::DeserializeOwned;

/// Scaling curves of durable workflows.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
    /// How long the sustained run lasts, in minutes.
    #[arg(long, default_value_t = 5)]
    minutes: u64,
    /// Measures this many waiting instances, prints the row and ends: each level gets a process of
    /// its own, since its memory is measured.
    #[arg(long, value_name = "N")]
    waiting_level: Option<u64>,
    /// As `--waiting-level`: the number of schedules, of which a tenth are due in one second.
    #[arg(long, value_name = "N")]
    schedules_level: Option<u64>,
    /// As `--waiting-level`: the number of live runs that a preflight tries.
    #[arg(long, value_name = "N")]
    preflight_level: Option<u64>,
    /// As `--waiting-level`: the number of live runs among which some are found.
    #[arg(long, value_name = "N")]
    finding_live: Option<u64>,
    /// As `--waiting-level`: the number of finished runs among which the failed ones are found.
    #[arg(long, value_name = "N")]
    finding_failed: Option<u64>,
}

/// The levels of each curve.
struct Levels {
    instances: &'static [u64],
    schedules: &'static [u64],
    preflight: &'static [u64],
    found: &'static [u64],
    steps: &'static [u64],
    payloads: &'static [u64],
    checkpoints: &'static [u64],
    /// How far the journal is filled.
    events: u64,
    measured: Duration,
    periods: u64,
    period: Duration,
}

const QUICK: Levels = Levels {
    instances: &[1_000, 10_000],
    schedules: &[10_000],
    preflight: &[1_000],
    found: &[10_000],
    steps: &[10, 1_000],
    payloads: &[0, 1_024, 65_536],
    checkpoints: &[50_000, 200_000],
    events: 1_000_000,
    measured: Duration::from_secs(1),
    periods: 3,
    period: Duration::from_secs(2),
};

const FULL: Levels = Levels {
    instances: &[1_000, 10_000, 100_000, 1_000_000],
    schedules: &[10_000, 100_000],
    preflight: &[10_000, 100_000],
    found: &[10_000, 100_000, 1_000_000],
    steps: &[10, 100, 1_000, 10_000, 100_000],
    payloads: &[0, 100, 1_024, 16_384, 262_144, 1_048_000],
    checkpoints: &[1_000_000, 2_000_000, 5_000_000, 10_000_000],
    events: 20_000_000,
    measured: Duration::from_secs(3),
    periods: 0,
    period: Duration::from_secs(60),
};

/// What is measured in a process of its own takes seconds or minutes; after so long it does not end.
const CHILD_TIME_MAX: Duration = Duration::from_secs(1_800);

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let workers = arguments.threads.threads();
    if let (Some(level), Some(folder)) = (arguments.waiting_level, &arguments.common.out) {
        end_with_parent();
        end_after(CHILD_TIME_MAX);
        println!("{}", serde_json::to_string(&waiting(folder, level, workers)?)?);
        return Ok(());
    }
    if let (Some(level), Some(folder)) = (arguments.schedules_level, &arguments.common.out) {
        end_with_parent();
        end_after(CHILD_TIME_MAX);
        println!("{}", serde_json::to_string(&schedules(folder, level, workers)?)?);
        return Ok(());
    }
    if let (Some(level), Some(folder)) = (arguments.preflight_level, &arguments.common.out) {
        end_with_parent();
        end_after(CHILD_TIME_MAX);
        println!("{}", serde_json::to_string(&preflight(folder, level, workers)?)?);
        return Ok(());
    }
    if let Some(folder) = &arguments.common.out
        && (arguments.finding_live.is_some() || arguments.finding_failed.is_some())
    {
        end_with_parent();
        end_after(CHILD_TIME_MAX);
        let mut rows = Vec::new();
        if let Some(level) = arguments.finding_live {
            rows.extend(finding_live(folder, level, workers)?);
        }
        if let Some(level) = arguments.finding_failed {
            rows.extend(finding_failed(folder, level, workers)?);
        }
        println!("{}", serde_json::to_string(&rows)?);
        return Ok(());
    }
    let mut program = Program::begin("scale", &arguments.common)?;
    let folder = program.output().folder();
    let levels = if arguments.common.quick { QUICK } else { FULL };
    let periods = if arguments.common.quick {
        levels.periods
    } else {
        arguments.minutes
    };
    let wanted = |curve: &str| {
        arguments
            .common
            .only
            .as_deref()
            .is_none_or(|only| curve.contains(only))
    };
    let progress = Progress::ticking(0);
    let mut measured = Measured::default();
    let mut point = |what: String, measure: &dyn Fn() -> Result<Row, BenchError>| {
        progress.running(&what);
        measured.keep(what, measure().map(Some));
    };
    if wanted("waiting") {
        for level in levels.instances {
            let what = format!("{level} waiting instances");
            point(what, &|| apart(folder, "--waiting-level", *level, workers));
        }
    }
    if wanted("schedules") {
        for level in levels.schedules {
            let what = format!("{level} schedules, a tenth of them due in one second");
            point(what, &|| apart(folder, "--schedules-level", *level, workers));
        }
    }
    if wanted("preflight") {
        for level in levels.preflight {
            let what = format!("a preflight of {level} live runs");
            point(what, &|| apart(folder, "--preflight-level", *level, workers));
        }
    }
    if wanted("history") {
        for level in levels.steps {
            point(format!("a history of {level} steps"), &|| {
                history(folder, *level, workers)
            });
        }
    }
    if wanted("threads") {
        for level in 1..=workers {
            let what = format!("{level} worker threads");
            point(what, &|| threads(folder, level, levels.measured));
        }
    }
    if wanted("payload") {
        for level in levels.payloads {
            let what = format!("payloads of {level} bytes");
            point(what, &|| payload(folder, *level, workers, levels.measured));
        }
    }
    if wanted("finding") {
        for level in levels.found {
            let what = format!("finding some of {level} live instances");
            progress.running(&what);
            measured.keep(what, apart::<Vec<Row>>(folder, "--finding-live", *level, workers));
            let finished = 2 * level;
            let what = format!("finding those that failed of {finished} finished runs");
            progress.running(&what);
            measured.keep(
                what,
                apart::<Vec<Row>>(folder, "--finding-failed", finished, workers),
            );
        }
    }
    if wanted("checkpoints") {
        let rows = checkpoints(folder, levels.checkpoints, workers, |level| {
            progress.running(format!("one run with checkpoints, {level} events"));
        });
        measured.keep("one run with checkpoints", rows);
    }
    if wanted("journal") {
        let what = format!("a journal of {} events", levels.events);
        let rows = journal(folder, levels.events, workers, |tenth| {
            progress.running(format!("{what}, {tenth}"));
        });
        measured.keep(what.clone(), rows);
    }
    if wanted("sustained") {
        let rows = sustained(folder, periods, levels.period, workers, |place| {
            progress.running(format!("sustained load, period {place} of {periods}"));
        });
        measured.keep("sustained load", rows);
    }
    progress.finish();
    let Measured { rows, failures } = measured;
    program.leave_out(failures);
    program.finish(&rows, &tables(&rows), &charts(&rows))
}

/// What such a level gives in a process of its own.
fn apart<T: DeserializeOwned>(
    folder: &Path,
    option: &str,
    level: u64,
    workers: usize,
) -> Result<T, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("bench-scale", error);
    let output = std::env::current_exe()
        .and_then(|program| {
            Command::new(program)
                .args([
                    option,
                    &level.to_string(),
                    "--threads",
                    &workers.to_string(),
                    "--out",
                ])
                .arg(folder)
                .output()
        })
        .map_err(|error| failed(&error))?;
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout)?);
    }
    Err(failed(&String::from_utf8_lossy(&output.stderr).trim()))
}
