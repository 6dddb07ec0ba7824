//! Compares two folders of results and names what moved by more than the noise.
//!
//! Ends with failure if something became worse, or fails now and did not before.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use millrun_benches::report::{SuiteResult, Tolerance, compare};
use millrun_benches::{BenchError, Failure, Machine, Table, approximate, exit};

/// What moved between two runs of the benchmarks on one machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// The folder with the earlier results.
    before: PathBuf,
    /// The folder with the later results.
    after: PathBuf,
    /// Smaller changes than this share are never named.
    #[arg(long, default_value_t = 0.05)]
    tolerance: f64,
    /// The same for what was measured once, and so has no range of samples.
    #[arg(long, default_value_t = 0.3)]
    tolerance_once: f64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(is_worse) if is_worse => ExitCode::FAILURE,
        outcome => exit(outcome.map(drop)),
    }
}

fn results(folder: &Path) -> Result<Vec<SuiteResult>, BenchError> {
    let suites = SuiteResult::load_all(folder)?;
    if suites.is_empty() {
        return Err(BenchError::Nothing(format!("no results in {}", folder.display())));
    }
    Ok(suites)
}

/// What was measured elsewhere, or otherwise built, moves without a change of the code.
fn note_another_machine(before: Option<&SuiteResult>, after: &SuiteResult) {
    let (Some(old), Some(new)) = (before.and_then(|old| old.machine.as_ref()), &after.machine) else {
        return;
    };
    let what = |machine: &Machine| {
        let Machine {
            processor,
            cores,
            system,
            rustc,
            profile,
            ..
        } = machine;
        format!("{processor}, {cores} cores, {system}, {rustc}, {profile} build")
    };
    let (old, new) = (what(old), what(new));
    if old != new {
        println!("note: {} was measured on {old}, and then on {new}", after.name);
    }
}

fn run(arguments: &Arguments) -> Result<bool, BenchError> {
    let before = results(&arguments.before)?;
    let after = results(&arguments.after)?;
    let tolerance = Tolerance {
        sampled: arguments.tolerance,
        once: arguments.tolerance_once,
    };
    for suite in &after {
        note_another_machine(before.iter().find(|old| old.name == suite.name), suite);
    }
    let comparison = compare(&before, &after, tolerance);
    let mut table = Table::new(
        "Moved by more than the noise, the largest loss first",
        1,
        ["what", "unit", "before", "after", "times as good"],
    );
    for change in &comparison.changes {
        table.line([
            change.name.clone(),
            change.unit.clone(),
            approximate(change.before),
            approximate(change.after),
            format!("{:.2}x", change.gain()),
        ]);
    }
    if !table.is_empty() {
        print!("{table}");
    }
    println!(
        "{} results compared, {} moved; {} rows in one of the folders only",
        comparison.compared,
        comparison.changes.len(),
        comparison.alone
    );
    for Failure { what, why } in &comparison.failures {
        println!("fails now: {what}: {why}");
    }
    let is_slower = comparison.changes.iter().any(|change| change.gain() < 1.0);
    Ok(is_slower || !comparison.failures.is_empty())
}
