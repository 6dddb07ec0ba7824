//! Result files: `target/bench/<suite>.json`, `<suite>-bars.json` and `<suite>-machine.json`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{BenchError, Machine, Verdict};

/// A folder for results.
#[derive(Clone, Debug)]
pub struct Output(PathBuf);

impl Output {
    /// `folder`, or `target/bench` of this workspace; it is created if absent.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn open(folder: Option<PathBuf>) -> Result<Self, BenchError> {
        let folder = folder.unwrap_or_else(|| {
            let package = Path::new(env!("CARGO_MANIFEST_DIR"));
            package.parent().unwrap_or(package).join("target").join("bench")
        });
        match fs::create_dir_all(&folder) {
            Ok(()) => Ok(Self(folder)),
            Err(source) => Err(BenchError::File { path: folder, source }),
        }
    }

    /// Where the results go.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Writes the rows of a suite, the verdicts on its bars, and where they were measured.
    /// Gives the path of the rows.
    ///
    /// # Errors
    /// When a row cannot be encoded or a file cannot be written.
    pub fn write(
        &self,
        suite: &str,
        machine: &Machine,
        rows: &[impl Serialize],
        verdicts: &[Verdict],
    ) -> Result<PathBuf, BenchError> {
        self.write_one(&format!("{suite}-machine.json"), machine)?;
        self.write_one(&format!("{suite}-bars.json"), verdicts)?;
        self.write_one(&format!("{suite}.json"), rows)
    }

    fn write_one(&self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<PathBuf, BenchError> {
        let path = self.0.join(name);
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        match fs::write(&path, text) {
            Ok(()) => Ok(path),
            Err(source) => Err(BenchError::File { path, source }),
        }
    }
}
