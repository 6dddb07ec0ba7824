//! How long do the Fibonacci workloads take that other engines publish?
//!
//! One workflow calls an activity that computes a Fibonacci number the slow way, many times, in
//! sequence or at once; the activity is a Rust function, or a native process. Each call is a
//! durable step: `fsync` rows sync before every acknowledgement, `relaxed` rows at least every
//! 100 ms. What takes seconds is measured once, the rest in several rounds; `--quick` leaves it out.

use std::process::ExitCode;

use clap::Parser;
use millrun_benches::workflows::{Effort, Runner, fibo};
use millrun_benches::{
    BenchError, CommonArguments, Measured, Program, ThreadArguments, end_with_parent, exit,
};

/// Fibonacci activities, in sequence and in parallel, beside published figures of others.
///
/// In full it takes some minutes, and says beforehand how many. Workloads of which one run is likely to
/// take three seconds or more (such as those of Fibo(38)) are measured in one run each; the others in five rounds of four runs, the
/// first of which does not count. `--rounds` is for both. `--quick` leaves the long ones out.
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
        end_with_parent();
        println!("{}", fibo::fibonacci(n));
        return ExitCode::SUCCESS;
    }
    exit(run(arguments))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let mut program = Program::begin("fibo", &arguments.common)?;
    let threads = arguments.threads.threads();
    let mut effort = Effort::of(&arguments.common, threads);
    effort.repeats = if arguments.common.quick { 1 } else { 3 };
    let cases = fibo::suite(arguments.common.quick, threads);
    let runner = Runner::new(effort, program.output());
    let Measured { mut rows, failures } = runner.run(&cases, arguments.common.only.as_deref());
    program.leave_out(failures);
    let tables = [fibo::table(&rows)];
    if !rows.is_empty() {
        rows.extend(fibo::published());
    }
    let charts = fibo::charts(&rows);
    program.finish(&rows, &tables, &charts)
}
