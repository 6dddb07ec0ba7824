//! What other programs may do to an open file.

use std::path::PathBuf;

use crate::error::{FailureKind, JournalFailure};

/// Another program has taken away the file of an open store. See [`Disk::loss`](crate::Disk::loss).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileLoss {
    /// No file is at the store's path, and the file has no other name: its data are lost when it is closed.
    #[error(
        "{path} was deleted while it was open: restore a backup; what was acknowledged since then is lost with the file"
    )]
    Deleted {
        /// Where the store was opened.
        path: PathBuf,
    },
    /// No file is at the store's path; the file, or its folder, has another name now.
    #[error(
        "{path} was moved or renamed while it was open: move it back, then open the store again; what was acknowledged is in it"
    )]
    Moved {
        /// Where the store was opened.
        path: PathBuf,
    },
    /// There is another file at the store's path.
    #[error(
        "{path} was replaced by another file while it was open: put the store's own file back if it was kept, or restore a backup"
    )]
    Replaced {
        /// Where the store was opened.
        path: PathBuf,
    },
    /// The file is shorter than the store has made it.
    #[error(
        "{path} was cut from outside while it was open, from {expected} to {len} bytes: restore a backup, or salvage what is left"
    )]
    Truncated {
        /// Where the store was opened.
        path: PathBuf,
        /// Its length.
        len: u64,
        /// The length that the store has given it.
        expected: u64,
    },
}

impl From<&FileLoss> for JournalFailure {
    fn from(loss: &FileLoss) -> Self {
        let kind = match loss {
            FileLoss::Deleted { .. } | FileLoss::Moved { .. } => FailureKind::FileGone,
            FileLoss::Replaced { .. } => FailureKind::FileReplaced,
            FileLoss::Truncated { .. } => FailureKind::FileTruncated,
        };
        Self::new(kind, loss.to_string())
    }
}
