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
//! Invariants: the log is the truth, and everything else is rebuilt from it; only the writer
//! writes; redb's names do not leave this folder.

mod age;
mod archive;
mod backend;
mod claim_queue;
mod claims;
mod config;
pub(crate) mod convoy;
mod cut_off;
mod damaged;
pub(crate) mod disk;
mod filter;
mod finished_runs;
mod frames;
mod guard;
mod held;
mod index;
mod journal;
mod kept;
mod lanes;
mod listing;
mod log;
mod loss;
mod moment;
pub(crate) mod open;
mod outline;
mod queued;
mod reading;
mod rebuild;
mod recover;
mod room;
mod row;
mod salvage;
mod searching;
mod segment;
mod settle;
mod settler;
mod shared;
pub(crate) mod slice;
mod snapshots;
mod start;
mod state;
pub(crate) mod store;
mod system;
mod tables;
mod transfer;
mod upkeep;
mod writer;
mod zero_ahead;

use std::sync::Arc;
use std::time::Duration;

pub use self::config::{Archive, RedbConfig, StoreConfig};
pub use self::disk::{Disk, FileDisk};
#[cfg(feature = "fuzz")]
pub(crate) use self::frames::walk as walk_row;
pub use self::loss::FileLoss;
use self::moment::StoreMoment;
#[cfg(feature = "fuzz")]
pub(crate) use self::salvage::scan_any;
pub use self::salvage::{
    NotWhole, SalvageError, SalvageOptions, SalvageProgress, SalvageReport, WithoutOwner, salvage,
};
use self::shared::JournalShared;
use self::state::JournalState;
use self::store::Store;
#[cfg(feature = "floor")]
pub(crate) use self::tables::LOG_TABLE;
pub use self::transfer::{Exported, ImportError, Imported, import};
pub use self::upkeep::{BackupError, Verified};
use crate::error::JournalFailure;

/// A [`Journal`](crate::Journal) in one file.
///
/// Dropping it begins to close it; [`close`](crate::Journal::close) also waits, and tells whether that
/// went well.
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
}

impl RedbJournal {
    /// The store, unless the journal was closed.
    fn reader(&self) -> Result<Arc<Store>, JournalFailure> {
        self.shared.store()
    }

    /// Something of the state, and a moment of the store that fits it.
    fn moment<T>(&self, read: impl FnOnce(&JournalState) -> T) -> Result<(T, StoreMoment), JournalFailure> {
        let store = self.reader()?;
        let state = self.shared.lock();
        let moment = store.moment()?;
        Ok((read(&state), moment))
    }

    /// The same, for what depends on where the log begins in that moment: it may be one commit ahead.
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
