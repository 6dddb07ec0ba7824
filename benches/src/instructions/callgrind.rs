//! Counting with valgrind's callgrind, and comparing with what was counted before.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::HotPath;
use crate::{BenchError, Table, grouped};

const KNOWN: &str = include_str!("../../instructions.toml");
/// How often a path is counted at most.
const COUNTS_MAX: u32 = 6;

/// What is known, from `instructions.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    /// How much a count may differ, as a share of it.
    tolerance: f64,
    path: Vec<KnownPath>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownPath {
    name: String,
    instructions: f64,
}

impl Known {
    fn load() -> Result<Self, BenchError> {
        toml::from_str(KNOWN).map_err(|error| BenchError::failed("instructions.toml", error))
    }
}

/// One path, counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The path.
    pub path: String,
    /// Instructions of one operation.
    pub instructions_used: f64,
    /// What `instructions.toml` says.
    pub known_used: f64,
    /// The one over the other: above one is more.
    pub ratio_used: f64,
}

/// Whether there is a valgrind.
#[must_use]
pub fn is_installed() -> bool {
    let mut command = Command::new("valgrind");
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Counts the instructions of one operation: what more of them cost more, each.
///
/// A path that comes out above what it may is counted anew, and its lowest count stands: how threads take
/// turns, and whether an activity passes for quick, is up to the load and not to the code.
///
/// # Errors
/// When valgrind or the path fails.
pub fn measure(path: HotPath, folder: &Path) -> Result<Row, BenchError> {
    let Known {
        tolerance,
        path: known,
    } = Known::load()?;
    let known = known.iter().find(|known| known.name == path.name());
    let known = known.map(|known| known.instructions).ok_or_else(|| {
        BenchError::failed("instructions.toml", format!("it does not know {:?}", path.name()))
    })?;
    let (fewer, more) = path.operations();
    let mut lowest = f64::INFINITY;
    for _ in 0..COUNTS_MAX {
        let counted = (count(path, more, folder)? - count(path, fewer, folder)?) as f64;
        lowest = lowest.min(counted / (more - fewer) as f64);
        if lowest <= known * (1.0 + tolerance) {
            break;
        }
    }
    Ok(Row {
        path: path.name().to_owned(),
        instructions_used: lowest,
        known_used: known,
        ratio_used: lowest / known,
    })
}

/// Instructions of a whole process that takes the path `operations` times.
fn count(path: HotPath, operations: u64, folder: &Path) -> Result<i64, BenchError> {
    let text = run(path, operations, folder)?;
    total(&text).ok_or_else(|| BenchError::failed("valgrind", "it wrote no totals"))
}

/// What callgrind writes about a whole process that takes the path `operations` times.
pub(super) fn run(path: HotPath, operations: u64, folder: &Path) -> Result<String, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("valgrind", error);
    let value = path.to_possible_value();
    let name = value
        .as_ref()
        .map_or_else(|| path.name(), |value| value.get_name());
    let out = folder.join(format!("callgrind-{name}.out"));
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["--measure", name, "--operations", &operations.to_string()])
        .output()
        .map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr).trim()));
    }
    std::fs::read_to_string(&out).map_err(|source| BenchError::File { path: out, source })
}

/// The count of all instructions in what callgrind wrote.
fn total(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What is to be done about the counts: nothing, or why they are refused.
///
/// # Errors
/// When a path takes more instructions than it may.
pub fn judge(rows: &[Row]) -> Result<Vec<String>, BenchError> {
    let tolerance = Known::load()?.tolerance;
    let mut remarks = Vec::new();
    for row in rows {
        let remark = format!(
            "{}: {} instructions, {} known",
            row.path,
            grouped(row.instructions_used),
            grouped(row.known_used)
        );
        if row.ratio_used > 1.0 + tolerance {
            return Err(BenchError::failed(
                "the guard",
                format!(
                    "{remark}: more than {:.0}% above. Look with callgrind_annotate, or change instructions.toml \
                     and say why",
                    tolerance * 100.0
                ),
            ));
        }
        if row.ratio_used < 1.0 - tolerance {
            remarks.push(format!(
                "{remark}: better; lower it in instructions.toml to keep it so"
            ));
        }
    }
    Ok(remarks)
}

/// One line per path.
#[must_use]
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(
        "Instructions of one operation, counted by callgrind",
        1,
        ["path", "instructions", "known", "ratio"],
    );
    for row in rows {
        table.line([
            row.path.clone(),
            grouped(row.instructions_used),
            grouped(row.known_used),
            format!("{:.3}", row.ratio_used),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio_used: f64) -> Row {
        Row {
            path: "append".into(),
            instructions_used: 1_000.0 * ratio_used,
            known_used: 1_000.0,
            ratio_used,
        }
    }

    #[test]
    fn more_is_refused_less_is_remarked_and_the_tolerance_is_kept() {
        let tolerance = Known::load().unwrap().tolerance;
        assert!(judge(&[row(1.0), row(1.0 + 0.9 * tolerance)]).unwrap().is_empty());
        assert_eq!(judge(&[row(1.0 - 2.0 * tolerance)]).unwrap().len(), 1);
        assert!(judge(&[row(1.0), row(1.0 + 2.0 * tolerance)]).is_err());
    }

    #[test]
    fn every_path_has_a_known_count() {
        let known = Known::load().unwrap();
        for path in HotPath::COUNTED {
            assert!(
                known.path.iter().any(|known| known.name == path.name()),
                "{path:?}"
            );
        }
    }

    #[test]
    fn the_total_of_callgrind_is_found() {
        assert_eq!(
            total("version: 1\nfn=(1) x\n16 3\n\ntotals: 123456\n"),
            Some(123_456)
        );
        assert_eq!(total("version: 1\n"), None);
    }
}
