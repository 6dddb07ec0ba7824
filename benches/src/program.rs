//! What every benchmark program does before and after its workload.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use serde::Serialize;

use tokio::runtime::{Builder, Runtime};

use crate::{Bars, BenchError, Chart, Failure, Machine, Output, Table, Verdict, free_bytes};

const MB: u64 = 1_000_000;
/// The stores of the suite that needs most, at their largest.
const FULL_BYTES: u64 = 8_000 * MB;
const QUICK_BYTES: u64 = 1_000 * MB;

/// Arguments of every program.
#[derive(Clone, Debug, clap::Args)]
pub struct CommonArguments {
    /// Fewer and shorter samples: about a minute, or less.
    #[arg(long)]
    pub quick: bool,
    /// Samples of each measurement, in place of the suite's own number.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,
    /// Only what has this in its name; the files of results then hold nothing else.
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

/// An async runtime with `threads` worker threads.
///
/// # Errors
/// When the system has no threads left.
pub fn workers(threads: usize) -> Result<Runtime, BenchError> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(BenchError::Runtime)
}

/// One run of a benchmark program.
#[derive(Debug)]
pub struct Program {
    suite: &'static str,
    started: Instant,
    machine: Machine,
    output: Output,
    bars: Bars,
    only: Option<String>,
    failures: Vec<Failure>,
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
            only: arguments.only.clone(),
            failures: Vec::new(),
        };
        println!("{}", program.machine);
        program.warn_of_a_full_disk(arguments.quick);
        Ok(program)
    }

    fn warn_of_a_full_disk(&self, is_quick: bool) {
        let folder = self.output.folder();
        let wanted = if is_quick { QUICK_BYTES } else { FULL_BYTES };
        if let Some(free) = free_bytes(folder).filter(|free| *free < wanted) {
            eprintln!(
                "warning: {} MB are free in {}, and stores may take {} MB; --out FOLDER puts them elsewhere",
                free / MB,
                folder.display(),
                wanted / MB
            );
        }
    }

    /// The folder for results, and for stores.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Takes note of what could not be measured.
    pub fn leave_out(&mut self, failures: impl IntoIterator<Item = Failure>) {
        self.failures.extend(failures);
    }

    /// Prints the tables, what failed, and what the rows say of the bars, those that do not hold
    /// last; writes all that, and charts.
    ///
    /// # Errors
    /// When something cannot be encoded or written; [`BenchError::Nothing`], before anything is
    /// written, if there is no row; [`BenchError::Incomplete`], after everything is, if some failed.
    pub fn finish(
        self,
        rows: &[impl Serialize],
        tables: &[Table],
        charts: &[(String, Chart)],
    ) -> Result<(), BenchError> {
        if rows.is_empty() && self.failures.is_empty() {
            return Err(BenchError::Nothing(match self.only {
                Some(only) => format!("nothing has {only:?} in its name; nothing was measured or written"),
                None => "nothing was measured or written".into(),
            }));
        }
        for table in tables.iter().filter(|table| !table.is_empty()) {
            print!("{table}");
        }
        print_failures(&self.failures);
        let verdicts = self.bars.judge(self.suite, rows)?;
        let path = self
            .output
            .write(self.suite, &self.machine, rows, &verdicts, &self.failures)?;
        self.output.write_charts(self.suite, charts)?;
        if !verdicts.is_empty() {
            print!("{}", Verdict::table(&verdicts));
        }
        let seconds = self.started.elapsed().as_secs_f64();
        println!("\n{seconds:.0} s; rows: {}", path.display());
        match self.failures.len() {
            0 => Ok(()),
            failed => Err(BenchError::Incomplete { failed }),
        }
    }
}

/// One by one, since reasons are longer than the cells of a table.
fn print_failures(failures: &[Failure]) {
    if !failures.is_empty() {
        println!("\nFailed, and without a row");
    }
    for Failure { what, why } in failures {
        println!("- {what}: {why}");
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
