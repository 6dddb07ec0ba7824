//! The errors of redb, and its panics.
//!
//! Invariants: a file is opened, and every transaction begins and ends, inside of [`guarded`], so that a damaged file gives a
//! [`JournalFailure`], however redb notices the damage; redb's error types are not used outside of this folder.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{FailureKind, JournalFailure};
use crate::redb::file::loss::FileLoss;

/// Runs a call into redb. A damaged file can make redb panic where it trusts what it reads; that is an error of the file, not
/// of this process.
pub(in crate::redb) fn guarded<T>(run: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, JournalFailure> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.map_err(|error| failure(&error)),
        Err(panic) => {
            let message = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(JournalFailure::new(
                FailureKind::Corrupted,
                format!("redb panicked: {message}"),
            ))
        }
    }
}

fn failure(error: &redb::Error) -> JournalFailure {
    let loss = match error {
        redb::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref::<FileLoss>()),
        _ => None,
    };
    if let Some(loss) = loss {
        return loss.into();
    }
    let kind = match error {
        // redb's error for a file that does not begin like a redb file.
        redb::Error::Io(error) if error.kind() == ErrorKind::InvalidData => FailureKind::Corrupted,
        redb::Error::Io(error) => FailureKind::Io(error.kind()),
        redb::Error::PreviousIo => FailureKind::Io(std::io::ErrorKind::Other),
        redb::Error::DatabaseClosed => FailureKind::Closed,
        _ => FailureKind::Corrupted,
    };
    JournalFailure::new(kind, error.to_string())
}
