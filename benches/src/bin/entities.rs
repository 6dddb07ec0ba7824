//! How many commands a second do entities perform, over 10,000 keys and to one?
//!
//! Every command is synced before it is answered. Signals to one run and runs of one step run in the same rounds, so that
//! what an entity costs is read beside them. `--quick` takes about half a minute.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millrun_benches::entities::{Effort, measure};
use millrun_benches::http::table;
use millrun_benches::{BenchError, CommonArguments, Program, ThreadArguments, exit};

/// Entities: commands over many keys, and to one.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let mut program = Program::begin("entities", &arguments.common)?;
    let is_quick = arguments.common.quick;
    let effort = Effort {
        threads: arguments.threads.threads(),
        rounds: arguments
            .common
            .rounds
            .map_or(if is_quick { 3 } else { 5 }, usize::from),
        lasts: Duration::from_millis(if is_quick { 1_500 } else { 4_000 }),
    };
    let measured = measure(
        &effort,
        program.output().folder(),
        arguments.common.only.as_deref(),
    );
    program.leave_out(measured.failures);
    let table = table("Entities, 1,024 callers, fsync", &measured.rows);
    program.finish(&measured.rows, &[table], &[])
}
