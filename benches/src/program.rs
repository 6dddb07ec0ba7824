//! What every benchmark program does before and after its workload.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use serde::Serialize;

use crate::{Bars, BenchError, Chart, Machine, Output, Table, Verdict};

/// Arguments of every program.
#[derive(Clone, Debug, clap::Args)]
pub struct CommonArguments {
    /// Fewer and shorter samples: less than a minute.
    #[arg(long)]
    pub quick: bool,
    /// Samples of each measurement.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,
    /// Only what has this in its name.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Where results and stores go, in place of target/bench. It should be on a real disk.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// Arguments of programs that choose their number of threads.
#[derive(Clone, Debug, clap::Args)]
pub struct ThreadArguments {
    /// Worker threads of the async runtime; by default one per core.
    #[arg(long, env = "MILLRUN_WORKER_THREADS", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

impl ThreadArguments {
    /// The number asked for, or that of the cores.
    #[must_use]
    pub fn threads(&self) -> usize {
        match self.threads {
            Some(threads) => threads.into(),
            None => thread::available_parallelism().map_or(1, Into::into),
        }
    }
}

/// One run of a benchmark program.
#[derive(Debug)]
pub struct Program {
    suite: &'static str,
    started: Instant,
    machine: Machine,
    output: Output,
    bars: Bars,
}

impl Program {
    /// Opens the folder for results, reads the bars, and says where this runs.
    ///
    /// # Errors
    /// When the folder cannot be used or `bars.toml` is malformed.
    pub fn begin(suite: &'static str, arguments: &CommonArguments) -> Result<Self, BenchError> {
        let program = Self {
            suite,
            started: Instant::now(),
            machine: Machine::current(),
            output: Output::open(arguments.out.clone())?,
            bars: Bars::load()?,
        };
        println!("{}", program.machine);
        Ok(program)
    }

    /// The folder for results, and for stores.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Prints the tables and what the rows say of the bars, those that do not hold last; writes
    /// rows, verdicts and charts.
    ///
    /// # Errors
    /// When something cannot be encoded or written.
    pub fn finish(
        self,
        rows: &[impl Serialize],
        tables: &[Table],
        charts: &[(String, Chart)],
    ) -> Result<(), BenchError> {
        for table in tables.iter().filter(|table| !table.is_empty()) {
            print!("{table}");
        }
        let verdicts = self.bars.judge(self.suite, rows)?;
        let path = self.output.write(self.suite, &self.machine, rows, &verdicts)?;
        for (name, chart) in charts {
            chart.write(&self.output.folder().join(format!("{name}.svg")))?;
        }
        if !verdicts.is_empty() {
            print!("{}", Verdict::table(&verdicts));
        }
        let seconds = self.started.elapsed().as_secs_f64();
        println!("\n{seconds:.0} s; rows: {}", path.display());
        Ok(())
    }
}

/// What a program returns; an error goes to standard error with all its causes.
#[must_use]
pub fn exit(outcome: Result<(), BenchError>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    eprintln!("error: {error}");
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        eprintln!("  because {error}");
        cause = error.source();
    }
    ExitCode::FAILURE
}
