//! Result files: `target/bench/<suite>.json`, `<suite>-bars.json`, `<suite>-machine.json` and, if
//! something failed, `<suite>-failed.json`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

use crate::report::charts_of;
use crate::{BenchError, Chart, Failure, Machine, Verdict};

/// A folder for results.
#[derive(Clone, Debug)]
pub struct Output(PathBuf);

impl Output {
    /// `folder`, or `target/bench` of this workspace; it is created if absent. Whether it can be
    /// written to is found out now, rather than when minutes have been measured.
    ///
    /// # Errors
    /// When it cannot be created or written to.
    pub fn open(folder: Option<PathBuf>) -> Result<Self, BenchError> {
        let folder = folder.unwrap_or_else(|| {
            let package = Path::new(env!("CARGO_MANIFEST_DIR"));
            package.parent().unwrap_or(package).join("target").join("bench")
        });
        let is_writable = fs::create_dir_all(&folder)
            .and_then(|()| NamedTempFile::new_in(&folder)?.write_all(b"a folder for results"));
        match is_writable {
            Ok(()) => Ok(Self(folder)),
            Err(source) => Err(BenchError::File { path: folder, source }),
        }
    }

    /// Where the results go.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Writes the rows of a suite, the verdicts on its bars, where they were measured, and what
    /// failed. Gives the path of the rows.
    ///
    /// # Errors
    /// When a row cannot be encoded or a file cannot be written.
    pub fn write(
        &self,
        suite: &str,
        machine: &Machine,
        rows: &[impl Serialize],
        verdicts: &[Verdict],
        failures: &[Failure],
    ) -> Result<PathBuf, BenchError> {
        let failed = format!("{suite}-failed.json");
        if failures.is_empty() {
            self.remove(&failed)?;
        } else {
            self.write_one(&failed, failures)?;
        }
        self.write_one(&format!("{suite}-machine.json"), machine)?;
        self.write_one(&format!("{suite}-bars.json"), verdicts)?;
        self.write_one(&format!("{suite}.json"), rows)
    }

    /// Writes the charts of a suite, and removes those of its earlier runs that it has not now: they
    /// would stand beside rows that they do not show.
    ///
    /// # Errors
    /// When a chart cannot be drawn, written or removed.
    pub fn write_charts(&self, suite: &str, charts: &[(String, Chart)]) -> Result<(), BenchError> {
        for (name, chart) in charts {
            self.write_text(&format!("{name}.svg"), &chart.svg()?)?;
        }
        for (name, _) in charts_of(suite, &self.0)? {
            if charts.iter().all(|(drawn, _)| *drawn != name) {
                self.remove(&format!("{name}.svg"))?;
            }
        }
        Ok(())
    }

    fn write_one(&self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<PathBuf, BenchError> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        self.write_text(name, &text)
    }

    /// Writes a file, all of it or none: what was there before stays if the disk is full.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_text(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let path = self.0.join(name);
        let written = NamedTempFile::new_in(&self.0).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            allow_reading(&file)?;
            file.persist(&path)?;
            Ok(())
        });
        match written {
            Ok(()) => Ok(path),
            Err(source) => Err(BenchError::File { path, source }),
        }
    }

    fn remove(&self, name: &str) -> Result<(), BenchError> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(BenchError::File { path, source }),
            _ => Ok(()),
        }
    }
}

/// A temporary file is its owner's alone; a result is for everyone.
#[cfg(unix)]
fn allow_reading(file: &NamedTempFile) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn allow_reading(_file: &NamedTempFile) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, LineChart};

    fn chart(name: &str) -> (String, Chart) {
        let mut chart = LineChart::new(name, Axis::Linear("s"), Axis::Linear("runs"));
        chart.line("millrun", [(1.0, 2.0), (2.0, 3.0)]);
        (name.into(), chart.into())
    }

    #[test]
    fn charts_that_a_suite_no_longer_draws_go_and_those_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let output = Output::open(Some(folder.path().to_owned())).unwrap();
        let others = [
            "peak.json",
            "peak-mimalloc.json",
            "peak-mimalloc-latency.svg",
            "peaks.svg",
        ];
        for name in others {
            output.write_text(name, "[]").unwrap();
        }
        output
            .write_charts("peak", &[chart("peak"), chart("peak-latency")])
            .unwrap();
        output.write_charts("peak", &[chart("peak")]).unwrap();
        let text = fs::read_to_string(folder.path().join("peak.svg")).unwrap();
        assert!(
            text.starts_with("<svg") && text.trim_end().ends_with("</svg>"),
            "{text}"
        );
        assert!(!folder.path().join("peak-latency.svg").exists());
        for name in others {
            assert!(folder.path().join(name).exists(), "{name}");
        }
    }
}
