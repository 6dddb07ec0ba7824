//! Where does the time of a benchmark program go? A flame graph; it needs perf and nothing else.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use millrun_benches::profile::profile;
use millrun_benches::{BenchError, Output, exit};

/// Runs another benchmark program under perf and draws flame-SUITE.svg.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which one: `workflows` is bench-workflows. It has to be built already.
    suite: String,
    /// What it is given, such as `--quick --only one-step`. Its results go to target/bench/profiled.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), BenchError> {
    let suite = arguments.suite.as_str();
    let program = built(suite)?;
    let drawn = profile(suite, &program, &arguments.arguments, &Output::open(None)?)?;
    print!("{}", drawn.table);
    println!("\n{}", drawn.path.display());
    if drawn.is_cut {
        println!("its beginning only: perf keeps 1 GiB of samples. --quick and --only make a run shorter");
    } else if !drawn.ended.success() {
        let why = format!("{}; the flame graph shows it until then", drawn.ended);
        return Err(BenchError::failed(&format!("bench-{suite}"), why));
    }
    Ok(())
}

/// The program of a suite, which lies beside this one.
fn built(suite: &str) -> Result<PathBuf, BenchError> {
    let own = std::env::current_exe().map_err(|error| BenchError::failed("bench-profile", error))?;
    let name = format!("bench-{suite}{}", std::env::consts::EXE_SUFFIX);
    let program = own.with_file_name(&name);
    if program.is_file() && suite != "profile" {
        return Ok(program);
    }
    let build = format!("cargo build --release -p millrun-benches --bin bench-{suite}");
    Err(BenchError::Nothing(format!(
        "there is no program {name} beside this one; if {suite:?} is a suite: {build}"
    )))
}
