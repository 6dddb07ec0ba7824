//! Where the microseconds of a durable run go: perf's samples by thread and owner.
//!
//! A sampler looks at a fixed rate at what each processor does. A sample stands for a slice of
//! processor time; waiting, for the disk or for work, has none.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;

use super::HotPath;
use super::owner::Owners;
use crate::BenchError;

/// Samples per second of processor time; odd, so as not to keep step with what happens regularly.
const FREQUENCY: u32 = 3_989;
/// How often the path is taken.
const OPERATIONS: u64 = 300_000;

/// Takes the path on a real disk under perf, and says what its processor time was spent on: a table in
/// Markdown, in microseconds for each operation.
///
/// # Errors
/// When perf is missing or may not sample, or the path fails.
pub fn times(path: HotPath, folder: &Path) -> Result<String, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::failed("perf", error);
    let data = folder.join("perf.data");
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let value = path.to_possible_value();
    let mut record = Command::new("perf");
    record
        .args([
            "record",
            "--quiet",
            "--event",
            "cpu-clock",
            "--freq",
            &FREQUENCY.to_string(),
            "--output",
        ])
        .arg(&data)
        .arg("--")
        .arg(program)
        .args(["--measure", value.as_ref().map_or("", |value| value.get_name())])
        .args(["--operations", &OPERATIONS.to_string(), "--out"])
        .arg(folder);
    output_of(&mut record)?;
    let mut report = Command::new("perf");
    report
        .args([
            "report",
            "--stdio",
            "--quiet",
            "--no-children",
            "--fields",
            "sample,comm,dso,sym",
        ])
        .args(["--field-separator", "|", "--input"])
        .arg(&data);
    let text = output_of(&mut report)?;
    std::fs::remove_file(&data).map_err(|source| BenchError::File { path: data, source })?;
    let samples = Samples::of(&text);
    if samples.0.is_empty() {
        return Err(failed(&"it has no samples"));
    }
    Ok(samples.table(path.name()))
}

fn output_of(command: &mut Command) -> Result<String, BenchError> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| BenchError::failed("perf", error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(BenchError::failed(
        "perf",
        String::from_utf8_lossy(&output.stderr).trim(),
    ))
}

/// How many samples, by owner and thread.
#[derive(Debug, Default)]
struct Samples(BTreeMap<(usize, String), u64>);

impl Samples {
    /// Lines such as ` 55 |millrun-journal|libc.so.6 |[.] malloc`.
    fn of(report: &str) -> Self {
        let mut samples = Self::default();
        for line in report.lines() {
            let mut fields = line.splitn(4, '|').map(str::trim);
            let (Some(count), Some(thread), Some(object), Some(symbol)) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let Ok(count) = count.parse::<u64>() else {
                continue;
            };
            let owner = if symbol.starts_with("[k]") || object.starts_with("[kernel") {
                Owners::KERNEL
            } else {
                Owners::of(symbol.trim_start_matches("[.] "))
            };
            *samples.0.entry((owner, thread.to_owned())).or_default() += count;
        }
        samples
    }

    fn table(&self, name: &str) -> String {
        let mut threads: BTreeMap<&str, u64> = BTreeMap::new();
        let mut owners: BTreeMap<usize, u64> = BTreeMap::new();
        for ((owner, thread), count) in &self.0 {
            *threads.entry(thread).or_default() += count;
            *owners.entry(*owner).or_default() += count;
        }
        let all: u64 = owners.values().sum();
        // Threads that do next to nothing share a column.
        let (mut busy, rest): (Vec<_>, Vec<_>) = threads.into_iter().partition(|(_, count)| count * 50 > all);
        let mut owners: Vec<_> = owners.into_iter().collect();
        busy.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        owners.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let micros = |count: u64| {
            let seconds = count as f64 / f64::from(FREQUENCY);
            format!("{:.2}", seconds * 1e6 / OPERATIONS as f64)
        };
        let mut text = format!("{name}: {} us of processor time\n\n| owner |", micros(all));
        // Writing to a string does not fail.
        for (thread, _) in &busy {
            write!(text, " {thread} |").ok();
        }
        text.push_str(" others | all, us | share |\n|---|");
        text.push_str(&"--:|".repeat(busy.len() + 3));
        text.push('\n');
        for (owner, count) in owners {
            let on = |thread: &str| self.0.get(&(owner, thread.to_owned())).copied().unwrap_or(0);
            write!(text, "| {} |", Owners::name(owner)).ok();
            for (thread, _) in &busy {
                write!(text, " {} |", micros(on(thread))).ok();
            }
            let others = rest.iter().map(|(thread, _)| on(thread)).sum();
            let share = 100.0 * count as f64 / all as f64;
            writeln!(text, " {} | {} | {share:.1}% |", micros(others), micros(count)).ok();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = " 60 |a|prog |[.] millrun::shard::Shard::flush\n \
        20 |b|[kernel.kallsyms] |[k] fsync\n \
        19 |a|libc.so.6 |[.] malloc\n \
        1 |c|libc.so.6 |[.] malloc\n\nnothing\n";

    #[test]
    fn samples_are_added_up_by_thread_and_owner() {
        let samples = Samples::of(REPORT);
        assert_eq!(samples.0.values().sum::<u64>(), 100);
        assert_eq!(samples.0[&(Owners::KERNEL, "b".to_owned())], 20);
        let table = samples.table("it");
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert!(lines[0].starts_with("| owner | a | b | others |"), "{table}");
        assert!(
            lines[2].contains("runtime: shard") && lines[2].ends_with("60.0% |"),
            "{table}"
        );
        assert_eq!(lines.len(), 5, "{table}");
    }
}
