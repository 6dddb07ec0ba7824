//! How much does HTTP cost, and what do its clients cost each other?
//!
//! Starts over HTTP beside axum's hello world and beside starts in the same process, at their peak, in batches and at
//! half of the peak; with readers and with clients that misbehave beside them; memory of streams. Every start is synced
//! before it is answered. Without `--quick` it takes about three minutes, and as many more as `--minutes` says.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millrun_benches::http::{Effort, Embedded, ServerKind, embedded, measure, serve, table};
use millrun_benches::{
    BenchError, CommonArguments, Program, ThreadArguments, end_after, end_with_parent, exit, raise_file_limit,
};

/// The HTTP routes under load.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
    /// How long the sustained load lasts, in minutes; with none it is left out.
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// Serves in this process until its input ends: what the others ask.
    #[arg(long, value_name = "KIND")]
    serve: Option<ServerKind>,
    #[command(flatten)]
    embedded: Embedded,
}

/// A process of its own that takes longer does not end.
const CHILD_TIME_MAX: Duration = Duration::from_secs(3_600);

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let threads = arguments.threads.threads();
    raise_file_limit();
    if let Some(folder) = &arguments.common.out {
        if let Some(kind) = arguments.serve {
            end_with_parent();
            end_after(CHILD_TIME_MAX);
            return serve(kind, folder, threads);
        }
        if let Some(clients) = arguments.embedded.embedded {
            end_with_parent();
            end_after(CHILD_TIME_MAX);
            println!("{}", embedded(arguments.embedded, clients, folder, threads)?);
            return Ok(());
        }
    }
    let mut program = Program::begin("http", &arguments.common)?;
    let is_quick = arguments.common.quick;
    let effort = Effort {
        threads,
        rounds: arguments
            .common
            .rounds
            .map_or(if is_quick { 3 } else { 7 }, usize::from),
        lasts: Duration::from_millis(if is_quick { 1_000 } else { 3_000 }),
        idle_streams: if is_quick { 1_000 } else { 5_000 },
        sustained: Duration::from_secs(arguments.minutes * 60),
    };
    let measured = measure(
        effort,
        program.output().folder(),
        arguments.common.only.as_deref(),
    )?;
    program.leave_out(measured.failures);
    let table = table("The HTTP routes under load", &measured.rows);
    program.finish(&measured.rows, &[table], &[])
}
