//! How many durable workflows per second, and how long does one take?
//!
//! Every start and every result is synced to the disk before it is acknowledged, except in the
//! rows that say otherwise. `--quick` takes less than a minute.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use clap::Parser;
use millrun_benches::workflows::{Effort, Suite, tables};
use millrun_benches::{Bars, BenchError, Machine, Output, Verdict};

/// Durable workflows: throughput at 32 and 1,024 at a time, latency of long ones.
#[derive(Debug, Parser)]
struct Arguments {
    /// Fewer and shorter samples: less than a minute.
    #[arg(long)]
    quick: bool,
    /// Samples per workload.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Worker threads of the async runtime; by default one per core.
    #[arg(long, env = "MILLRUN_WORKER_THREADS", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Only workloads whose name contains this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Where results and stores go, in place of target/bench. It should be on a real disk.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-workflows: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let started = Instant::now();
    let output = Output::open(arguments.out)?;
    let bars = Bars::load()?;
    let threads = match arguments.threads {
        Some(threads) => threads.into(),
        None => thread::available_parallelism().map_or(1, Into::into),
    };
    let mut effort = if arguments.quick {
        Effort::quick(threads)
    } else {
        Effort::full(threads)
    };
    if let Some(rounds) = arguments.rounds {
        effort.rounds = rounds.into();
    }

    let machine = Machine::current();
    println!(
        "{machine}\nworker threads: {threads}, stores in {}",
        output.folder().display()
    );
    let rows = Suite::new(effort, output.folder()).run(arguments.only.as_deref())?;
    for table in tables(&rows) {
        print!("{table}");
    }
    let verdicts = bars.judge("workflows", &rows)?;
    let path = output.write("workflows", &machine, &rows, &verdicts)?;
    if !verdicts.is_empty() {
        print!("{}", Verdict::table(&verdicts));
    }
    println!(
        "\n{:.0} s; rows: {}",
        started.elapsed().as_secs_f64(),
        path.display()
    );
    Ok(())
}
