//! How many durable workflows per second, and how long does one take?
//!
//! Then what a loop of short runs does not show: memory of those that wait, recovery after a kill,
//! replay, signals, timers. Every start and every result is synced to the disk before it is
//! acknowledged, except in the rows that say otherwise. `--quick` takes less than a minute.

use std::process::ExitCode;

use clap::Parser;
use millrun_benches::figures::{self, Figure, Subject};
use millrun_benches::runs::{Row, charts, table};
use millrun_benches::workflows::{Effort, Runner, suite};
use millrun_benches::{BenchError, CommonArguments, Program, Progress, ThreadArguments, exit};
use serde::Serialize;

/// Durable workflows: throughput at 32 and 1,024 at a time, latency of long ones, memory, recovery.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Measures one figure in this process, which may be killed for it, and prints it as JSON.
    #[arg(long, value_name = "NAME", requires = "out")]
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

fn main() -> ExitCode {
    exit(run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let threads = arguments.threads.threads();
    let level = |subject: Subject| arguments.level.unwrap_or(subject.level(arguments.common.quick));
    if let (Some(subject), Some(folder)) = (arguments.figure, &arguments.common.out) {
        return subject.measure(level(subject), folder, threads);
    }
    let program = Program::begin("workflows", &arguments.common)?;
    let only = arguments.common.only.as_deref();
    let effort = Effort::of(&arguments.common, threads);
    let rows = Runner::new(effort, program.output()).run(&suite(), only)?;
    let wanted: Vec<_> = Subject::ALL
        .into_iter()
        .filter(|subject| only.is_none_or(|only| subject.name().contains(only)))
        .collect();
    let progress = Progress::new(wanted.len() as u64);
    let mut figures = Vec::new();
    for subject in wanted {
        progress.running(subject.name());
        figures.extend(subject.measure_apart(level(subject), program.output().folder(), threads)?);
        progress.step();
    }
    progress.finish();
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
