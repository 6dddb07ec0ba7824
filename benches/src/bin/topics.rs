//! How many records a second does a durable topic take, how soon has a reader one, and how fast does it catch up?
//!
//! Every record is synced before its publish is answered. The journal's own appends run in the same rounds: what a topic
//! costs is read beside them. `--quick` takes about a minute.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millrun_benches::http::table;
use millrun_benches::topics::{Effort, Subject, measure};
use millrun_benches::{
    BenchError, CommonArguments, Program, ThreadArguments, end_after, end_with_parent, exit,
};

/// Durable topics: publishes, readers that wait, that catch up, and that are stuck, and runs that wait.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Measures one sample in this process and says it as JSON: what the others ask.
    #[arg(long, value_name = "SUBJECT", requires_all = ["records", "out"])]
    apart: Option<Subject>,
    /// How many records such a sample has.
    #[arg(long, requires = "apart")]
    records: Option<u64>,
    /// The program of benches/peers/jetstream: publishes to NATS JetStream run in the same rounds then. It needs nats-server.
    #[arg(long, env = "MILLRUN_BENCH_JETSTREAM", value_name = "PROGRAM")]
    jetstream: Option<PathBuf>,
}

/// A process of its own that takes longer does not end.
const CHILD_TIME_MAX: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let threads = arguments.threads.threads();
    if let (Some(subject), Some(records), Some(folder)) =
        (arguments.apart, arguments.records, &arguments.common.out)
    {
        end_with_parent();
        end_after(CHILD_TIME_MAX);
        let apart = subject.measure(records, folder, threads)?;
        println!("{}", serde_json::to_string(&apart)?);
        return Ok(());
    }
    let mut program = Program::begin("topics", &arguments.common)?;
    let is_quick = arguments.common.quick;
    let effort = Effort {
        threads,
        rounds: arguments
            .common
            .rounds
            .map_or(if is_quick { 3 } else { 5 }, usize::from),
        lasts: Duration::from_millis(if is_quick { 1_000 } else { 3_000 }),
        acknowledge: if is_quick { 200_000 } else { 2_000_000 },
        trigger: if is_quick { 100_000 } else { 500_000 },
        decide: if is_quick { 100_000 } else { 500_000 },
        stuck: if is_quick { 200_000 } else { 10_000_000 },
        waiting: if is_quick { 100_000 } else { 1_000_000 },
        jetstream: arguments.jetstream.clone(),
        catch_up: if is_quick {
            vec![200_000]
        } else {
            vec![1_000_000, 10_000_000]
        },
    };
    let measured = measure(
        &effort,
        program.output().folder(),
        arguments.common.only.as_deref(),
    );
    program.leave_out(measured.failures);
    if effort.jetstream.is_none() {
        println!(
            "NATS JetStream was not run: it needs nats-server and benches/peers/jetstream, see `just bench-topics`"
        );
    }
    let table = table("Durable topics, records of 100 bytes, fsync", &measured.rows);
    program.finish(&measured.rows, &[table], &[])
}
