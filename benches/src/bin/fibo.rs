//! How long do the Fibonacci workloads take that other engines publish?
//!
//! One workflow calls an activity that computes a Fibonacci number the slow way, many times, in
//! sequence or at once; the activity is a Rust function, or a native process. Each call is a
//! durable step: `fsync` rows sync before every acknowledgement, `relaxed` rows at least every
//! 100 ms. `--quick` leaves out what takes minutes.

use std::process::ExitCode;

use clap::Parser;
use millrun_benches::workflows::{Effort, Runner, fibo};
use millrun_benches::{BenchError, CommonArguments, Program, ThreadArguments, exit};

/// Fibonacci activities, in sequence and in parallel, beside published figures of others.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Computes this Fibonacci number, prints it and ends: what the native activity starts.
    #[arg(long, value_name = "N")]
    compute: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(n) = arguments.compute {
        println!("{}", fibo::fibonacci(n));
        return ExitCode::SUCCESS;
    }
    exit(run(arguments))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let program = Program::begin("fibo", &arguments.common)?;
    let mut effort = Effort::of(&arguments.common, arguments.threads.threads());
    effort.repeats = if arguments.common.quick { 1 } else { 3 };
    let cases = fibo::suite(arguments.common.quick);
    let mut rows = Runner::new(effort, program.output()).run(&cases, arguments.common.only.as_deref())?;
    let tables = [fibo::table(&rows)];
    rows.extend(fibo::published());
    let charts = fibo::charts(&rows);
    program.finish(&rows, &tables, &charts)
}
