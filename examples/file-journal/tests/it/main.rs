//! What the journal in a plain file promises.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod contract;
mod crash;
mod workflows;

use std::path::Path;
use std::sync::{PoisonError, RwLock};

use millrun_file_journal::FileJournal;
use millrun_persistence::{JournalConfig, StoreError};

/// Held while a process is spawned: until it executes, it has all files of this one open, and with them their locks.
static SPAWNING: RwLock<()> = RwLock::new(());

/// Opens a journal, when no process is being spawned.
fn opened(path: impl AsRef<Path>, config: JournalConfig) -> Result<FileJournal, StoreError> {
    let _nothing_spawned = SPAWNING.read().unwrap_or_else(PoisonError::into_inner);
    FileJournal::open(path.as_ref(), config)
}
