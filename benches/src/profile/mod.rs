//! Where the time of a benchmark program goes: a flame graph, with nothing but perf.
//!
//! ```text
//!   perf record ── bench-SUITE ARGS ──► stacks ──► perf script ──► tree of calls ──► SVG
//!   (at a fixed rate, with a copy of each stack)                    by thread
//! ```
//!
//! A stack is found by its copy and the program's unwind tables, so that the program is the one that
//! is measured otherwise, without frame pointers. Functions that the compiler has put into their
//! callers count for those: to resolve them takes perf minutes. Waiting has no samples.

mod drawing;
mod stacks;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::{BenchError, Output, Table, store_in};

use drawing::drawing;
use stacks::Stacks;

/// Samples per second of processor time; odd, so as not to keep step with what happens regularly.
const FREQUENCY: &str = "499";
/// How much of each stack is copied, in bytes.
const STACKS: &str = "dwarf,16384";
/// Then perf ends the program: half a minute of two busy processors.
const DATA_BYTES_MAX: u64 = 1 << 30;
/// Functions in the table.
const FUNCTIONS: usize = 15;

/// A flame graph that was written.
#[derive(Debug)]
pub struct Profile {
    /// Where it is.
    pub path: PathBuf,
    /// The functions with the most samples of their own.
    pub table: Table,
    /// Whether there were more samples than perf keeps, so that it shows the beginning only.
    pub is_cut: bool,
    /// How the program ended. Where it is cut, perf has ended it.
    pub ended: ExitStatus,
}

/// Runs `program` under perf and draws `flame-SUITE.svg` beside the results. The program's own results
/// go to a folder of their own, `profiled`, since sampling slows it down. A program that fails, or has
/// more samples than perf keeps, is drawn as far as it came.
///
/// # Errors
/// When perf is missing or may not sample.
pub fn profile(
    suite: &str,
    program: &Path,
    arguments: &[OsString],
    output: &Output,
) -> Result<Profile, BenchError> {
    // Gone with its folder, also after Ctrl-C: it may be large.
    let scratch = store_in(output.folder())?;
    let data = scratch.path().join("perf.data");
    let mut record = Command::new("perf");
    record
        .args(["record", "--quiet", "--event", "cpu-clock", "--freq", FREQUENCY])
        .args(["--call-graph", STACKS])
        .arg(format!("--max-size={DATA_BYTES_MAX}B"))
        .arg("--output")
        .arg(&data)
        .arg("--")
        .arg(program)
        .args(arguments);
    let has_folder =
        |argument: &OsString| argument == "--out" || argument.as_encoded_bytes().starts_with(b"--out=");
    if !arguments.iter().any(has_folder) {
        record.arg("--out").arg(output.folder().join("profiled"));
    }
    let ended = record.status().map_err(missing)?;
    let data_bytes = fs::metadata(&data).map_or(0, |file| file.len());
    if data_bytes == 0 {
        let why = "it could not sample, or the program failed: see above. Where sampling is not allowed: \
                   sudo sysctl kernel.perf_event_paranoid=2";
        return Err(BenchError::failed("perf record", why));
    }
    let mut script = Command::new("perf");
    script
        .args(["script", "--no-inline", "--fields", "comm,ip,sym,dso", "--input"])
        .arg(&data)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let script = script.output().map_err(missing)?;
    if !script.status.success() {
        return Err(BenchError::failed("perf script", "it could not read the samples"));
    }
    let stacks = Stacks::of(&String::from_utf8_lossy(&script.stdout));
    if stacks.count() == 0 {
        let why = format!("it has no samples of the program, which ended with {ended}");
        return Err(BenchError::failed("perf", why));
    }
    let title = format!(
        "bench-{suite}: processor time by thread and call, {} samples",
        stacks.count()
    );
    Ok(Profile {
        path: output.write_text(&format!("flame-{suite}.svg"), &drawing(&title, &stacks))?,
        table: table(&stacks),
        is_cut: data_bytes >= DATA_BYTES_MAX,
        ended,
    })
}

fn missing(error: std::io::Error) -> BenchError {
    BenchError::failed(
        "perf",
        format!("{error}; it comes with the package linux-perf or linux-tools"),
    )
}

fn table(stacks: &Stacks) -> Table {
    let mut table = Table::new(
        "Functions with the most samples of their own",
        1,
        ["function", "samples", "share"],
    );
    for (name, own) in stacks.busiest().into_iter().take(FUNCTIONS) {
        let share = 100.0 * own as f64 / stacks.count() as f64;
        table.line([shortened(name), own.to_string(), format!("{share:.1}%")]);
    }
    table
}

/// Names of generic functions can be as long as a page.
fn shortened(name: &str) -> String {
    const LETTERS_MAX: usize = 90;
    match name.char_indices().nth(LETTERS_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
