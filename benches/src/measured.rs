//! What a suite has measured so far, and what it could not: a failure loses no row but its own.

use std::error::Error;

use serde::{Deserialize, Serialize};

use crate::BenchError;

/// What was to be measured, and why it was not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

impl Failure {
    /// With all causes of the error, in one line.
    #[must_use]
    pub fn new(what: impl Into<String>, error: &BenchError) -> Self {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            why.push_str(&format!(": {error}"));
            cause = error.source();
        }
        Self {
            what: what.into(),
            why: why.lines().collect::<Vec<_>>().join(" "),
        }
    }
}

/// Rows, and what has none.
#[derive(Clone, Debug)]
pub struct Measured<R> {
    /// In the order in which they were kept.
    pub rows: Vec<R>,
    /// The same.
    pub failures: Vec<Failure>,
}

impl<R> Default for Measured<R> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            failures: Vec::new(),
        }
    }
}

impl<R> Measured<R> {
    /// Keeps the rows of what was measured, or why there are none.
    pub fn keep(
        &mut self,
        what: impl Into<String>,
        outcome: Result<impl IntoIterator<Item = R>, BenchError>,
    ) {
        match outcome {
            Ok(rows) => self.rows.extend(rows),
            Err(error) => self.failures.push(Failure::new(what, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_kept_with_its_causes_beside_the_rows_of_the_others() {
        let mut measured = Measured::default();
        measured.keep("one", Ok([1, 2]));
        let source = std::io::Error::other("no space left");
        let path = "store.redb".into();
        measured.keep("two", Err::<[i32; 0], _>(BenchError::File { path, source }));
        measured.keep("three", Ok([3]));
        assert_eq!(measured.rows, [1, 2, 3]);
        assert_eq!(measured.failures[0].what, "two");
        assert_eq!(
            measured.failures[0].why,
            "could not use store.redb: no space left"
        );
    }
}
