//! A journal in one file, on redb.
//!
//! ```text
//!   RedbJournal ──► JournalShared { JournalState (open buffer, conditions, finished runs), watermark }
//!        │ reads                       ▲
//!        ▼                             │ seals, commits, publishes
//!      Store (redb) ◄───────────── Writer (a part on its own thread)
//!        │
//!        ▼
//!   Disk: Roomy ─► ZeroAhead ─► FileDisk
//! ```
//!
//! Modules, each of which uses those before it: `file` (everything below redb), `database` (redb's tables), `records` (the
//! log), `finished` (the index of finished runs), `topics` (records of topics), `commit` (the writer), `opening`. One
//! dependency points back: `database` writes the [`Piece`](commit::queued::Piece) that `commit` seals and the step of the
//! index that `finished` prepares. `salvage` and `transfer` read and write files that no journal has open.
//!
//! Invariants: the log is the truth, and everything else is rebuilt from it; only the writer writes; redb's types are not
//! used outside of this folder.

pub(crate) mod commit;
mod config;
pub(crate) mod database;
pub(crate) mod file;
mod finished;
mod journal;
pub(crate) mod opening;
mod reading;
mod records;
mod salvage;
mod shared;
mod state;
mod topics;
mod transfer;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

pub use self::config::{Archive, RedbConfig, StoreConfig};
use self::database::moment::StoreMoment;
use self::database::store::Store;
#[cfg(feature = "floor")]
pub(crate) use self::database::tables::LOG_TABLE;
pub use self::file::disk::{Disk, FileDisk};
pub use self::file::loss::FileLoss;
pub use self::file::overlay::READ_ONLY_BYTES_MAX;
#[cfg(feature = "fuzz")]
pub(crate) use self::records::frames::walk as walk_row;
#[cfg(feature = "fuzz")]
pub(crate) use self::salvage::scan_any;
pub use self::salvage::{
    NotWhole, SalvageError, SalvageOptions, SalvageProgress, SalvageReport, WithoutOwner, salvage,
};
use self::shared::JournalShared;
use self::state::JournalState;
pub use self::transfer::{Exported, ImportError, Imported, import};
pub use self::upkeep::{BackupError, Compacted, Verified, compact};
use crate::error::JournalFailure;

/// A [`Journal`](crate::Journal) in one file.
///
/// Dropping it begins to close it; [`close`](crate::Journal::close) also waits, and returns whether that succeeded.
#[derive(Debug)]
pub struct RedbJournal {
    shared: Arc<JournalShared>,
    opened: Opened,
}

/// What opening found.
#[derive(Clone, Copy, Debug)]
struct Opened {
    at: Duration,
    is_repaired: bool,
    is_index_rebuilt: bool,
    /// The number of the store.
    number: u64,
}

impl RedbJournal {
    /// The store, unless the journal was closed.
    fn reader(&self) -> Result<Arc<Store>, JournalFailure> {
        self.shared.store()
    }

    /// A value from the state, and a moment of the store that fits it.
    fn moment<T>(&self, read: impl FnOnce(&JournalState) -> T) -> Result<(T, StoreMoment), JournalFailure> {
        let store = self.reader()?;
        let state = self.shared.lock();
        let moment = store.moment()?;
        Ok((read(&state), moment))
    }

    /// The same, for a value that depends on where the log begins in that moment: the moment may be one commit ahead.
    fn moment_from<T>(
        &self,
        read: impl FnOnce(&JournalState, u64) -> T,
    ) -> Result<(T, StoreMoment), JournalFailure> {
        let store = self.reader()?;
        let state = self.shared.lock();
        let moment = store.moment()?;
        let low = moment.opened()?.low;
        Ok((read(&state, low), moment))
    }
}

impl Drop for RedbJournal {
    fn drop(&mut self) {
        self.shared.begin_close();
    }
}
