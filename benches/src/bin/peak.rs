//! How does throughput grow with the number of workflows at a time, and where does it end?
//!
//! A workflow of two activities, in memory and durable (`fsync` before every acknowledgement),
//! from 1 to 65,536 at a time. Build with `--features mimalloc` for the other allocator; rows
//! name theirs, and whichever comes second prints both beside each other.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millrun_benches::report::{SuiteResult, allocators};
use millrun_benches::runs::table;
use millrun_benches::workflows::{Effort, Runner, peak};
use millrun_benches::{ALLOCATOR, BenchError, CommonArguments, Measured, Program, ThreadArguments, exit};

/// A sweep over concurrency, with latency per level.
///
/// It says beforehand how long it will take: levels, times two stores, times rounds and one, times
/// seconds. A level that fails is named and has no row; the others do.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
    /// How long each level is measured, in seconds; by default longer the more run at a time.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// The levels.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    levels: Option<Vec<u32>>,
}

fn main() -> ExitCode {
    exit(run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let suite = if ALLOCATOR == "mimalloc" {
        "peak-mimalloc"
    } else {
        "peak"
    };
    let mut program = Program::begin(suite, &arguments.common)?;
    let mut effort = Effort::of(&arguments.common, arguments.threads.threads());
    if let Some(seconds) = arguments.seconds {
        effort.measured = Duration::from_secs(seconds.into());
        effort.per_client = Duration::ZERO;
    }
    let levels = arguments
        .levels
        .unwrap_or_else(|| peak::levels(arguments.common.quick));
    let runner = Runner::new(effort, program.output());
    let Measured { rows, failures } = runner.run(&peak::suite(&levels), arguments.common.only.as_deref());
    program.leave_out(failures);
    let charts = peak::charts(suite, &rows);
    let tables = [
        table("Two activities, by runs at a time", &rows),
        peak::alone(&rows),
    ];
    let folder = program.output().folder().to_owned();
    let outcome = program.finish(&rows, &tables, &charts);
    if let Some(beside) = allocators(&SuiteResult::load_all(&folder)?) {
        print!("{}", beside.table());
    }
    outcome
}
