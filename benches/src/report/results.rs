//! What a folder of results holds.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{BenchError, Failure, Machine, Verdict};

/// What else a suite writes beside its rows.
const BESIDE_ROWS: [&str; 3] = ["-bars", "-failed", "-machine"];

/// What one suite wrote.
#[derive(Clone, Debug)]
pub struct SuiteResult {
    /// The suite.
    pub name: String,
    /// Where and when it ran.
    pub machine: Option<Machine>,
    /// Its rows.
    pub rows: Vec<Map<String, Value>>,
    /// What it says of its bars.
    pub verdicts: Vec<Verdict>,
    /// What it could not measure.
    pub failures: Vec<Failure>,
    /// Its charts: file name and SVG text.
    pub charts: Vec<(String, String)>,
}

impl SuiteResult {
    /// Reads all suites of a folder, by name.
    ///
    /// # Errors
    /// When the folder or a file cannot be read, or is not what a suite writes.
    pub fn load_all(folder: &Path) -> Result<Vec<Self>, BenchError> {
        let files = files(folder)?;
        let mut suites: Vec<Self> = Vec::new();
        for name in suite_names(&files) {
            let path = &folder.join(format!("{name}.json"));
            suites.push(Self {
                machine: read_if_there(&folder.join(format!("{name}-machine.json")))?,
                rows: read(path)?,
                verdicts: read_if_there(&folder.join(format!("{name}-bars.json")))?.unwrap_or_default(),
                failures: read_if_there(&folder.join(format!("{name}-failed.json")))?.unwrap_or_default(),
                charts: Vec::new(),
                name: name.to_owned(),
            });
        }
        suites.sort_by(|left, right| left.name.cmp(&right.name));
        for suite in &mut suites {
            for (name, path) in charts_among(&files, &suite.name) {
                let svg = fs::read_to_string(path).map_err(|source| file_error(path, source))?;
                suite.charts.push((format!("{name}.svg"), svg));
            }
        }
        Ok(suites)
    }
}

/// The charts in `folder` that are a suite's: their names, and where they are.
pub(crate) fn charts_of(suite: &str, folder: &Path) -> Result<Vec<(String, PathBuf)>, BenchError> {
    let files = files(folder)?;
    let charts = charts_among(&files, suite);
    Ok(charts
        .map(|(name, path)| (name.to_owned(), path.clone()))
        .collect())
}

/// `peak-latency.svg` belongs to the suite `peak`, but `peak-mimalloc.svg` to `peak-mimalloc`.
fn charts_among<'a>(files: &'a [PathBuf], suite: &'a str) -> impl Iterator<Item = (&'a str, &'a PathBuf)> {
    let begins = |name: &str, suite: &str| {
        let rest = name.strip_prefix(suite);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let is_of_a_longer_one =
        move |name: &str| suite_names(files).any(|other| other.len() > suite.len() && begins(name, other));
    with_extension(files, "svg")
        .filter_map(|path| Some((stem(path)?, path)))
        .filter(move |(name, _)| begins(name, suite) && !is_of_a_longer_one(name))
}

fn suite_names(files: &[PathBuf]) -> impl Iterator<Item = &str> {
    with_extension(files, "json")
        .filter_map(|path| stem(path))
        .filter(|name| BESIDE_ROWS.iter().all(|what| !name.ends_with(what)))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).map_err(|source| file_error(folder, source))?;
    for entry in entries {
        files.push(entry.map_err(|source| file_error(folder, source))?.path());
    }
    files.sort();
    Ok(files)
}

fn with_extension<'a>(files: &'a [PathBuf], extension: &str) -> impl Iterator<Item = &'a PathBuf> {
    files
        .iter()
        .filter(move |path| path.extension().is_some_and(|found| found == extension))
}

fn stem(path: &Path) -> Option<&str> {
    path.file_stem()?.to_str()
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, BenchError> {
    let text = fs::read_to_string(path).map_err(|source| file_error(path, source))?;
    serde_json::from_str(&text).map_err(|error| file_error(path, std::io::Error::other(error)))
}

fn read_if_there<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, BenchError> {
    if path.exists() {
        read(path).map(Some)
    } else {
        Ok(None)
    }
}

fn file_error(path: &Path, source: std::io::Error) -> BenchError {
    BenchError::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_belongs_to_the_suite_with_the_longest_name_that_begins_it() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["peak.json", "peak-mimalloc.json", "peak-bars.json"] {
            fs::write(folder.path().join(name), "[]").unwrap();
        }
        for name in ["peak.svg", "peak-mimalloc.svg", "stray.svg"] {
            fs::write(folder.path().join(name), "<svg/>").unwrap();
        }
        let suites = SuiteResult::load_all(folder.path()).unwrap();
        let charts: Vec<_> = suites
            .iter()
            .map(|suite| {
                (
                    suite.name.as_str(),
                    suite.charts.iter().map(|(name, _)| name.as_str()).collect(),
                )
            })
            .collect::<Vec<(_, Vec<_>)>>();
        assert_eq!(
            charts,
            [
                ("peak", vec!["peak.svg"]),
                ("peak-mimalloc", vec!["peak-mimalloc.svg"])
            ]
        );
    }

    #[test]
    fn a_file_that_is_no_result_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a2a.json"), "{").unwrap();
        let error = SuiteResult::load_all(folder.path()).unwrap_err();
        assert!(error.to_string().contains("a2a.json"), "{error}");
    }
}
