//! Turns the results of all suites into one HTML page and one Markdown file beside them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use millrun_benches::report::{SuiteResult, allocators, engines, html, markdown};
use millrun_benches::{BenchError, Output, exit};

/// Reads what the benchmarks wrote, and writes report.html and report.md; prints what several programs
/// measured of the same.
#[derive(Debug, Parser)]
struct Arguments {
    /// The folder with the results, in place of target/bench.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit(run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let output = Output::open(arguments.out)?;
    let suites = SuiteResult::load_all(output.folder())?;
    if suites.is_empty() {
        let folder = output.folder().display();
        return Err(BenchError::Nothing(format!(
            "no results in {folder}: run a benchmark first"
        )));
    }
    for beside in [engines(&suites), allocators(&suites)].into_iter().flatten() {
        print!("{}", beside.table());
    }
    for (name, text) in [("report.html", html(&suites)), ("report.md", markdown(&suites))] {
        println!("{}", output.write_text(name, &text)?.display());
    }
    Ok(())
}
