//! How many durable workflows per second, and how long does one take?
//!
//! Then what a loop of short runs does not show: memory of those that wait, recovery after a kill,
//! replay, signals, timers. Every start and every result is synced to the disk before it is
//! acknowledged, except in the rows that say otherwise. `--quick` takes less than a minute.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millrun_benches::figures::{self, Figure, Subject};
use millrun_benches::runs::{Row, charts, table};
use millrun_benches::workflows::{Effort, Runner, suite};
use millrun_benches::{
    BenchError, CommonArguments, Measured, Output, Program, Progress, ThreadArguments, end_after,
    end_with_parent, exit,
};
use serde::Serialize;

/// Durable workflows: throughput at 32 and 1,024 at a time, latency of long ones, memory, recovery.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Measures one figure in this process, which may be killed for it, and prints it as JSON.
    #[arg(long, value_name = "NAME")]
    figure: Option<Subject>,
    /// How much of it; otherwise as much as its bar wants, or less with `--quick`.
    #[arg(long, value_name = "N")]
    level: Option<u64>,
}

/// A line of `workflows.json`.
#[derive(Serialize)]
#[serde(untagged)]
enum Line {
    Row(Row),
    Figure(Figure),
}

/// What is measured in a process of its own takes seconds or minutes; after so long it does not end.
const CHILD_TIME_MAX: Duration = Duration::from_secs(1_800);

fn main() -> ExitCode {
    exit(run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let threads = arguments.threads.threads();
    let level = |subject: Subject| arguments.level.unwrap_or(subject.level(arguments.common.quick));
    if let Some(subject) = arguments.figure {
        end_with_parent();
        end_after(CHILD_TIME_MAX);
        let output = Output::open(arguments.common.out.clone())?;
        return subject.measure(level(subject), output.folder(), threads);
    }
    let mut program = Program::begin("workflows", &arguments.common)?;
    let only = arguments.common.only.as_deref();
    let effort = Effort::of(&arguments.common, threads);
    let Measured { rows, failures } = Runner::new(effort, program.output()).run(&suite(), only);
    program.leave_out(failures);
    let wanted: Vec<_> = Subject::ALL
        .into_iter()
        .filter(|subject| only.is_none_or(|only| subject.name().contains(only)))
        .collect();
    let progress = Progress::ticking(wanted.len() as u64);
    let mut figures = Measured::default();
    for subject in wanted {
        progress.running(subject.name());
        let outcome = subject.measure_apart(level(subject), program.output().folder(), threads);
        figures.keep(subject.name(), outcome);
        progress.step();
    }
    progress.finish();
    program.leave_out(figures.failures);
    let figures = figures.rows;
    let tables = [
        table("Workflows, start to result", &rows),
        figures::table(&figures),
    ];
    let charts = charts("workflows", "Workflows", &rows);
    let lines: Vec<_> = rows
        .into_iter()
        .map(Line::Row)
        .chain(figures.into_iter().map(Line::Figure))
        .collect();
    program.finish(&lines, &tables, &charts)
}
