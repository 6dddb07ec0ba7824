//! How many events per second does the journal make durable, and how long does one take?
//!
//! Each event is synced to the disk before it is acknowledged, except in the rows that say
//! otherwise. `--quick` takes about a minute.

use std::process::ExitCode;

use clap::Parser;
use millrun_benches::journal::{Effort, Runner, charts, tables};
use millrun_benches::{BenchError, CommonArguments, Measured, Program, ThreadArguments, exit};

/// The journal: 1 to 16,384 appenders, recovery, and a fixed pace with settling.
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
    let mut program = Program::begin("journal", &arguments.common)?;
    let effort = Effort::of(&arguments.common, arguments.threads.threads());
    let runner = Runner::new(effort, program.output());
    let Measured { rows, failures } = runner.run(arguments.common.only.as_deref());
    program.leave_out(failures);
    program.finish(&rows, &tables(&rows), &charts(&rows))
}
