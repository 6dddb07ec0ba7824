//! How many durable workflows per second, and how long does one take?
//!
//! Every start and every result is synced to the disk before it is acknowledged, except in the
//! rows that say otherwise. `--quick` takes less than a minute.

use std::process::ExitCode;

use clap::Parser;
use millrun_benches::runs::{charts, table};
use millrun_benches::workflows::{Effort, Runner, suite};
use millrun_benches::{BenchError, CommonArguments, Program, ThreadArguments, exit};

/// Durable workflows: throughput at 32 and 1,024 at a time, latency of long ones.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
}

fn main() -> ExitCode {
    exit(run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let program = Program::begin("workflows", &arguments.common)?;
    let effort = Effort::of(&arguments.common, arguments.threads.threads());
    let rows = Runner::new(effort, program.output()).run(&suite(), arguments.common.only.as_deref())?;
    let tables = [table("Workflows, start to result", &rows)];
    program.finish(&rows, &tables, &charts("workflows", "Workflows", &rows))
}
