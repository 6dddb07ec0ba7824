//! How many workflows of the usual shapes complete per second, and does it scale?
//!
//! Simple (one task), parallel (five: one, three at once, one) and pipeline (three in a row),
//! durable (`fsync` before every acknowledgement), a fixed number of each.

use std::process::ExitCode;

use clap::Parser;
use millrun_benches::workflows::{Effort, Runner, patterns};
use millrun_benches::{BenchError, CommonArguments, Measured, Program, ThreadArguments, exit};

/// Simple, parallel and pipeline workflows, and how they scale.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Workflows per sample.
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,
    /// Workflows at a time.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
}

fn main() -> ExitCode {
    exit(run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let mut program = Program::begin("patterns", &arguments.common)?;
    let effort = Effort::of(&arguments.common, arguments.threads.threads());
    let cases = patterns::suite(arguments.iterations, arguments.concurrency);
    let runner = Runner::new(effort, program.output());
    let Measured { rows, failures } = runner.run(&cases, arguments.common.only.as_deref());
    program.leave_out(failures);
    let tables = patterns::tables(&rows, arguments.iterations, arguments.concurrency);
    program.finish(&rows, &tables, &patterns::charts(&rows))
}
