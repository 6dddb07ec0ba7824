//! Where and with what a figure was measured. A number without this is not a number.

use std::fmt;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The allocator this program was built with.
pub const ALLOCATOR: &str = if cfg!(feature = "mimalloc") {
    "mimalloc"
} else {
    "system"
};

const LOCK_FILE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock"));

/// The machine, the build and the moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's own name.
    pub processor: String,
    /// How many threads may run at once.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Operating system and kernel release.
    pub system: String,
    /// The compiler.
    pub rustc: String,
    /// `release`, or `debug`, whose figures mean nothing.
    pub profile: String,
    /// `system` or `mimalloc`.
    pub allocator: String,
    /// The commit of the working tree, with `+` if files differ from it.
    pub commit: String,
    /// Seconds since 1970.
    pub taken_at_s: u64,
}

impl Machine {
    /// Asks the operating system and git. What neither knows is `unknown`.
    #[must_use]
    pub fn current() -> Self {
        Self {
            processor: line_of("/proc/cpuinfo", "model name"),
            cores: thread::available_parallelism().map_or(1, Into::into),
            memory_mib: line_of("/proc/meminfo", "MemTotal")
                .trim_end_matches(" kB")
                .parse::<u64>()
                .map_or(0, |kib| kib / 1_024),
            system: format!(
                "{} {}",
                std::env::consts::OS,
                fs::read_to_string("/proc/sys/kernel/osrelease")
                    .map_or_else(|_| "unknown".into(), |release| release.trim().to_owned())
            ),
            rustc: env!("BENCH_RUSTC").into(),
            profile: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            }
            .into(),
            allocator: ALLOCATOR.into(),
            commit: commit(),
            taken_at_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, {} cores, {} MiB, {}",
            self.processor, self.cores, self.memory_mib, self.system
        )?;
        write!(
            f,
            "{}, {} build, {} allocator, commit {}",
            self.rustc, self.profile, self.allocator, self.commit
        )
    }
}

/// The version of a package that this program was built with, from the lock file.
#[must_use]
pub fn locked_version(package: &str) -> String {
    let wanted = format!("name = \"{package}\"");
    let mut lines = LOCK_FILE.lines();
    lines
        .find(|line| *line == wanted)
        .and_then(|_| lines.next())
        .and_then(|line| line.strip_prefix("version = \""))
        .map_or_else(|| "unknown".into(), |rest| rest.trim_end_matches('"').to_owned())
}

/// The value behind `name:` in a file of `/proc`.
fn line_of(path: &str, name: &str) -> String {
    fs::read_to_string(path)
        .ok()
        .and_then(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown".into())
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-C", env!("CARGO_MANIFEST_DIR")])
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    match git(&["rev-parse", "--short=12", "HEAD"]) {
        None => "unknown".into(),
        Some(commit) => match git(&["status", "--porcelain"]) {
            Some(changes) if changes.is_empty() => commit,
            _ => format!("{commit}+"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_knows_what_is_compared() {
        for package in ["maiko", "actix", "ractor", "kameo", "tokio"] {
            assert_ne!(locked_version(package), "unknown", "{package}");
        }
        assert_eq!(locked_version("no-such-package"), "unknown");
    }
}
