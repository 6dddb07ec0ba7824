//! The store file of a runtime that opened it by its path, with the bound for simultaneous upkeep.

use std::path::PathBuf;
use std::sync::Arc;

use millrun_persistence::RedbJournal;
use tokio::sync::Semaphore;

/// How many backups, exports and verifications run at once; others wait.
const UPKEEP_RUNNING_MAX: usize = 1;

/// The file that a runtime opened by its path.
#[derive(Debug)]
pub(crate) struct OwnStore {
    pub(crate) journal: Arc<RedbJournal>,
    /// As it was given.
    pub(crate) path: PathBuf,
    /// One permit for each upkeep that may run.
    pub(crate) running: Semaphore,
}

impl OwnStore {
    pub(crate) fn new(journal: Arc<RedbJournal>, path: PathBuf) -> Self {
        Self {
            journal,
            path,
            running: Semaphore::new(UPKEEP_RUNNING_MAX),
        }
    }
}
