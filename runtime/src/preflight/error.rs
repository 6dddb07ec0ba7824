//! Why the code was not tried.

use millrun_core::SpawnError;

use crate::{OpenError, RunError, StopCause};

/// Why a [preflight](crate::RuntimeBuilder::preflight) has no report. Code that does not fit is not such an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreflightError {
    /// The store cannot be read, or the registered code is refused. If a process has the store open, make a
    /// [backup](crate::store::StoreHandle::backup), and try the code on that.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The builder was made without a file: a preflight needs a store that is opened by its path, or a backup.
    #[error(
        "a preflight reads the file of a store: make the builder with `Runtime::open(path)`, of a backup if a process has the store"
    )]
    NoFile,
    /// A field of the configuration is out of its range.
    #[error("`{field}` {problem}")]
    Config {
        /// The field.
        field: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
    /// The runs cannot be listed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The operating system refused a thread.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Too many replays did not end: workflow code loops without awaiting anything.
    #[error(
        "{len} replays did not end in their time, of {workflow} among others: its code loops without awaiting anything"
    )]
    Endless {
        /// How many.
        len: usize,
        /// The workflow of one of them.
        workflow: String,
    },
    /// The store was closed meanwhile.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}
