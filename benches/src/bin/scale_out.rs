//! How fast is a node on PostgreSQL beside the statements that it cannot do without, and what do failures cost?
//!
//! A server of PostgreSQL is made for it, on the same cores, and every commit synced. `--quick` takes about a minute and a half.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millrun_benches::http::table;
use millrun_benches::scale_out::{Effort, measure, serve};
use millrun_benches::{BenchError, CommonArguments, Program, ThreadArguments, end_with_parent, exit};

/// Nodes on PostgreSQL: runs, beside bare statements; an idle node; a server and a node that are killed, and one that is shut down.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Is a node of this store, with runs that wait, until it is killed: what the others ask.
    #[arg(long, value_name = "URL", requires = "runs")]
    node: Option<String>,
    /// How many runs such a node starts.
    #[arg(long, requires = "node")]
    runs: Option<u64>,
    /// Such a node is given runs that work, and is shut down when a line comes.
    #[arg(long, requires = "node")]
    drains: bool,
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let threads = arguments.threads.threads();
    if let (Some(url), Some(runs)) = (&arguments.node, arguments.runs) {
        end_with_parent();
        return serve(url, runs, threads, arguments.drains);
    }
    let mut program = Program::begin("scale-out", &arguments.common)?;
    let is_quick = arguments.common.quick;
    let effort = Effort {
        threads,
        rounds: arguments
            .common
            .rounds
            .map_or(if is_quick { 1 } else { 5 }, usize::from),
        lasts: Duration::from_millis(if is_quick { 1_500 } else { 5_000 }),
        sequences: if is_quick { 10 } else { 50 },
        idle: Duration::from_secs(if is_quick { 5 } else { 30 }),
        live_runs: 40_000,
        drained_runs: 20_000,
    };
    let measured = measure(
        &effort,
        program.output().folder(),
        arguments.common.only.as_deref(),
    );
    program.leave_out(measured.failures);
    let table = table(
        "Nodes on PostgreSQL, the server on the same cores, fsync",
        &measured.rows,
    );
    program.finish(&measured.rows, &[table], &[])
}
