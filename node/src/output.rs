//! What the program writes: results to standard output, words for a person to standard error.
//!
//! `println!` panics when its reader is gone or its disk is full. Here a result that cannot be
//! written is an error of the command, and a word that cannot be written is dropped.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use crate::path_bytes::PathBytes;

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("standard output cannot be written")]
pub(crate) struct OutputError(#[from] io::Error);

impl OutputError {
    /// Whether the reader has closed its end, as `| head -n 1` does.
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Writes a line of the command's result, and flushes it: a disk that is full says so now.
///
/// # Errors
/// When standard output is closed, or its disk refuses.
pub(crate) fn tell(line: impl fmt::Display) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Writes bytes of the command's result without a line feed behind them, and flushes them.
///
/// # Errors
/// As [`tell`].
pub(crate) fn write(bytes: &[u8]) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

/// Writes a line for a person to standard error. Without a reader it is dropped.
pub(crate) fn note(line: impl fmt::Display) {
    writeln!(io::stderr(), "{line}").ok();
}

/// A path as a person may see it: on one line, without control characters, and not longer than the
/// screen. See [`PathBytes`].
pub(crate) fn shown(path: &Path) -> PathBytes {
    PathBytes::from(path)
}
