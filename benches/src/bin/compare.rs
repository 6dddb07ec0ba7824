//! Compares two folders of results and names what moved by more than the noise.
//!
//! Ends with failure if something became slower.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use millrun_benches::report::{SuiteResult, compare};
use millrun_benches::{BenchError, Table, approximate, exit};

/// What moved between two runs of the benchmarks on one machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// The folder with the earlier results.
    before: PathBuf,
    /// The folder with the later results.
    after: PathBuf,
    /// Smaller changes of the median than this share are never named.
    #[arg(long, default_value_t = 0.05)]
    tolerance: f64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(is_slower) if is_slower => ExitCode::FAILURE,
        outcome => exit(outcome.map(drop)),
    }
}

fn run(arguments: &Arguments) -> Result<bool, BenchError> {
    let before = SuiteResult::load_all(&arguments.before)?;
    let after = SuiteResult::load_all(&arguments.after)?;
    let (changes, compared) = compare(&before, &after, arguments.tolerance);
    let mut table = Table::new(
        "Moved by more than the noise",
        1,
        ["row", "before/s", "after/s", "ratio"],
    );
    for change in &changes {
        table.line([
            change.name.clone(),
            approximate(change.before),
            approximate(change.after),
            format!("{:.2}x", change.ratio()),
        ]);
    }
    if !changes.is_empty() {
        print!("{table}");
    }
    println!("{compared} rows compared, {} moved", changes.len());
    Ok(changes.iter().any(|change| change.ratio() < 1.0))
}
