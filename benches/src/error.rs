//! What can go wrong while measuring.

use std::path::PathBuf;
use std::time::Duration;

/// Why a benchmark gave no figure. A wrong result is never turned into a row.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A contestant delivered something other than what was sent.
    #[error("{contestant} delivered wrongly: {what}")]
    Wrong {
        /// Who.
        contestant: String,
        /// What was expected and what came.
        what: String,
    },
    /// A contestant did not finish a sample in time.
    #[error("{contestant} did not finish within {limit:?}")]
    Stuck {
        /// Who.
        contestant: String,
        /// How long it was given.
        limit: Duration,
    },
    /// A contestant refused to start, to accept, or to stop.
    #[error("{contestant} failed: {cause}")]
    Failed {
        /// Who.
        contestant: String,
        /// What it said.
        cause: String,
    },
    /// A result file could not be written or read.
    #[error("could not use {}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is nothing to measure, or nothing to report: nothing was written.
    #[error("{0}")]
    Nothing(String),
    /// Some measurements failed. The rest was written.
    #[error("{failed} of the measurements failed and have no row; the rest was written")]
    Incomplete {
        /// How many.
        failed: usize,
    },
    /// `bars.toml` does not have the expected shape.
    #[error("bars.toml: {0}")]
    Bars(String),
    /// A row cannot be expressed as JSON.
    #[error("could not encode a row")]
    Encode(#[from] serde_json::Error),
    /// The async runtime could not be started.
    #[error("could not start an async runtime")]
    Runtime(#[source] std::io::Error),
}

impl BenchError {
    /// A contestant's own error, named.
    pub fn failed(contestant: &str, cause: impl std::fmt::Display) -> Self {
        Self::Failed {
            contestant: contestant.to_owned(),
            cause: cause.to_string(),
        }
    }
}
