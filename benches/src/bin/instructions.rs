//! How many instructions do the hot paths take, and is that more than it was?
//!
//! Needs valgrind; without it this says so and exits with 77. Exits with 1 if a path takes more than
//! `instructions.toml` allows.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use millrun_benches::instructions::{HotPath, breakdown, is_installed, judge, measure, table, times};
use millrun_benches::{BenchError, CommonArguments, Machine, Output, Program, Progress, exit};

/// Counts the instructions of the hot paths with callgrind.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Takes one path, to be counted from outside.
    #[arg(long, value_name = "PATH", requires = "operations")]
    measure: Option<HotPath>,
    /// How often it is taken.
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// Says where the instructions of one path go, in place of judging all.
    #[arg(long, value_name = "PATH")]
    breakdown: Option<HotPath>,
    /// Says where the microseconds of a durable run go; needs perf.
    #[arg(long)]
    times: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let (Some(path), Some(operations)) = (arguments.measure, arguments.operations) {
        let output = Output::open(arguments.common.out.clone());
        return exit(output.and_then(|output| path.take(operations, output.folder())));
    }
    if arguments.times {
        return exit(tell(&arguments, |folder| times(HotPath::Durable, folder)));
    }
    if !is_installed() {
        println!("valgrind is not installed: instructions were not counted");
        return ExitCode::from(77);
    }
    exit(match arguments.breakdown {
        Some(path) => tell(&arguments, |folder| breakdown(path, folder)),
        None => run(&arguments),
    })
}

fn tell(
    arguments: &Arguments,
    what: impl FnOnce(&Path) -> Result<String, BenchError>,
) -> Result<(), BenchError> {
    let output = Output::open(arguments.common.out.clone())?;
    println!("{}\n\n{}", Machine::current(), what(output.folder())?);
    Ok(())
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let program = Program::begin("instructions", &arguments.common)?;
    let only = arguments.common.only.as_deref();
    let paths: Vec<_> = HotPath::COUNTED
        .into_iter()
        .filter(|path| only.is_none_or(|only| path.name().contains(only)))
        .collect();
    let progress = Progress::ticking(paths.len() as u64);
    let mut rows = Vec::new();
    for path in paths {
        progress.running(path.name());
        rows.push(measure(path, program.output().folder())?);
        progress.step();
    }
    progress.finish();
    program.finish(&rows, &[table(&rows)], &[])?;
    for remark in judge(&rows)? {
        println!("{remark}");
    }
    Ok(())
}
