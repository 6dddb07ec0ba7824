//! The file: its tables in redb. This module does not know what a turn is.
//!
//! ```text
//!   Piece ┐                                 ┌─► log, meta, snapshots
//!           ├─► commit: one transaction, sync ┤
//!   Slice   ┘                                 └─► kept turns, index
//!
//!   moment ─► what is read
//! ```
//!
//! Invariants: a commit is one transaction with one sync; redb's types are used only here and in `tables`, `guard`, `moment`,
//! `kept` and `backend`.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use millrun_core::Timestamp;
use redb::{Database, ReadableTable, WriteTransaction};

use super::guard::guarded;
use super::kept::{self, KeptKey};
use super::moment::{OpenedCount, StoreMoment};
use super::slice::{Slice, cut, lay_out};
use super::tables::{
    AGED, CLOSED, INDEX, INVENTORY, KEPT, KEPT_HEADS, KEPT_MORE, LOG, LOW, MANIFEST, META, OPENS, SNAPSHOTS,
    TOPIC_IDS, TOPIC_RECORDS, TOPICS, TRIMS_ARCHIVED,
};
use super::topics;
use crate::error::{FailureKind, JournalFailure};
use crate::redb::commit::queued::Piece;
use crate::redb::file::backend::Backend;
use crate::redb::file::disk::Disk;
use crate::redb::file::room::{Room, Roomy};
use crate::redb::finished::settler::IndexStep;
use crate::redb::topics::TopicsCommitted;
use crate::wire::inventory::{self, Listed};
use crate::wire::superblock::{self, Superblock};

/// Smaller files are read on the calling thread.
const PARALLEL_BYTES_MIN: u64 = 64 << 20;
const LANES_MAX: usize = 4;

/// An open file.
pub(crate) struct Store {
    db: Database,
    disk: Arc<dyn Disk>,
    room: Arc<Room>,
    written: Arc<AtomicU64>,
    /// Each existing moment of the store holds a clone of this.
    kept_moments: Arc<()>,
    /// The store's number, from its first page.
    pub(crate) number: u64,
    /// The first page, if its format is older than the one that this release writes.
    earlier: Mutex<Option<Superblock>>,
    /// Whether the file had not been closed by its last user.
    pub(crate) is_repaired: bool,
}

/// Rows on their way from one store to another.
#[derive(Debug, Default)]
pub(crate) struct CopiedRows {
    pub(crate) log: Vec<(u64, Vec<u8>)>,
    pub(crate) kept: Vec<(KeptKey, Vec<u8>)>,
    pub(crate) inventory: Vec<(u64, Vec<u8>)>,
    pub(crate) kept_heads: Vec<(u128, Vec<u8>)>,
    pub(crate) topic_records: Vec<((u32, u64), Vec<u8>)>,
    pub(crate) topics: Vec<(u32, Vec<u8>)>,
    pub(crate) topic_ids: Vec<(u64, Vec<u8>)>,
}

/// What a commit has done, besides what it was told to.
#[derive(Debug, Default)]
pub(in crate::redb) struct Committed {
    /// Bytes of kept turns that were removed.
    pub(in crate::redb) kept_removed: u64,
    pub(in crate::redb) topics: TopicsCommitted,
}

impl Store {
    /// Opens redb's file behind the first page, which has been checked; creates it if there is
    /// nothing behind the first page.
    pub(crate) fn open(disk: Arc<dyn Disk>, cache_bytes_max: usize) -> Result<Self, JournalFailure> {
        let repaired = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&repaired);
        let written = Arc::new(AtomicU64::new(0));
        let room = Arc::<Room>::default();
        let disk: Arc<dyn Disk> = Arc::new(Roomy::new(disk, Arc::clone(&room)));
        let backend = Backend(Arc::clone(&disk), Arc::clone(&written));
        let db = guarded(|| {
            Ok(Database::builder()
                .set_cache_size(cache_bytes_max)
                .set_repair_callback(move |_| flag.store(true, Ordering::Relaxed))
                .create_with_backend(backend)?)
        })?;
        Ok(Self {
            db,
            disk,
            room,
            written,
            kept_moments: Arc::default(),
            number: 0,
            earlier: Mutex::new(None),
            is_repaired: repaired.load(Ordering::Relaxed),
        })
    }

    /// The store with what its first page says.
    pub(crate) fn of(mut self, superblock: Superblock) -> Self {
        self.number = superblock.store;
        self.earlier = Mutex::new((superblock.format < superblock::FORMAT).then_some(superblock));
        self
    }

    /// Whether an earlier release wrote the store and this one has not committed to it yet.
    pub(crate) fn is_of_earlier_format(&self) -> bool {
        self.earlier().is_some()
    }

    /// The format of the store, as its first page says.
    pub(crate) fn format(&self) -> u32 {
        self.earlier()
            .as_ref()
            .map_or(superblock::FORMAT, |earlier| earlier.format)
    }

    fn earlier(&self) -> MutexGuard<'_, Option<Superblock>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes this release's format into the first page, before anything is written that an earlier release does not know.
    fn upgrade(&self) -> Result<(), redb::Error> {
        let mut earlier = self.earlier();
        if let Some(Superblock { store, .. }) = *earlier {
            self.disk.write(0, &superblock::encode(store))?;
            self.disk.sync()?;
            *earlier = None;
        }
        Ok(())
    }

    /// Counts this opening; durable when this returns. Creates the tables of a new store.
    pub(crate) fn count_open(&self) -> Result<u64, JournalFailure> {
        guarded(|| {
            let txn = self.db.begin_write()?;
            let opens = {
                let mut meta = txn.open_table(META)?;
                let before = meta.get(OPENS)?.map_or(0, |opens| opens.value());
                let opens = before.saturating_add(1);
                meta.insert(OPENS, opens)?;
                txn.open_table(LOG)?;
                txn.open_table(KEPT)?;
                txn.open_table(KEPT_MORE)?;
                txn.open_table(KEPT_HEADS)?;
                for table in [CLOSED, INDEX, MANIFEST, INVENTORY] {
                    txn.open_table(table)?;
                }
                txn.open_table(SNAPSHOTS)?;
                txn.open_table(TOPICS)?;
                txn.open_table(TOPIC_RECORDS)?;
                txn.open_table(TOPIC_IDS)?;
                opens
            };
            txn.commit()?;
            Ok(opens)
        })
    }

    /// Deletes the index of finished runs, so that it is rebuilt.
    pub(crate) fn forget_index(&self) -> Result<(), JournalFailure> {
        guarded(|| {
            let txn = self.db.begin_write()?;
            for table in [CLOSED, INDEX, MANIFEST] {
                txn.delete_table(table)?;
                txn.open_table(table)?;
            }
            txn.commit()?;
            Ok(())
        })
    }

    /// Makes the frames of a piece durable as the log's next bytes, with everything that belongs to the piece, and a slice of
    /// settling. Returns how many bytes of kept turns were removed with the slice.
    #[cfg(test)]
    pub(crate) fn commit(&self, piece: &Piece, slice: Option<&Slice>) -> Result<u64, JournalFailure> {
        Ok(self.commit_listing(piece, &[], slice)?.kept_removed)
    }

    /// As [`commit`](Self::commit); `listed` are the last turns of the runs that are to be listed with the
    /// piece, in the order of the log.
    pub(in crate::redb) fn commit_listing(
        &self,
        piece: &Piece,
        listed: &[Listed],
        slice: Option<&Slice>,
    ) -> Result<Committed, JournalFailure> {
        let (position, frames, snapshots) = (piece.start, &piece.bytes, &piece.snapshots);
        guarded(|| {
            self.upgrade()?;
            let txn = self.db.begin_write()?;
            let mut committed = Committed::default();
            {
                let mut log = txn.open_table(LOG)?;
                let (mut at, mut row) = (0, Vec::new());
                while at < frames.len() {
                    let (len, count) = cut(&frames[at..]);
                    lay_out(&mut row, &[&frames[at..at + len]], count);
                    log.insert(position + at as u64, row.as_slice())?;
                    at += len;
                }
                for key in slice.iter().flat_map(|slice| &slice.rows) {
                    log.remove(key)?;
                }
            }
            if !snapshots.put.is_empty() || !snapshots.removed.is_empty() {
                let mut table = txn.open_table(SNAPSHOTS)?;
                for run in &snapshots.removed {
                    table.remove(run.bits())?;
                }
                for (run, row) in &snapshots.put {
                    table.insert(run.bits(), row.as_slice())?;
                }
            }
            if let Some(aged) = piece.aged {
                txn.open_table(META)?.insert(AGED, aged.as_micros())?;
            }
            if let Some(archived) = piece.trims_archived {
                txn.open_table(META)?.insert(TRIMS_ARCHIVED, archived)?;
            }
            if let Some(opens) = piece.opens {
                txn.open_table(META)?.insert(OPENS, opens)?;
            }
            put_inventory(&txn, piece, listed, slice)?;
            if let Some(slice) = slice {
                committed.kept_removed = kept::put(&txn, slice)?;
                txn.open_table(META)?.insert(LOW, slice.low)?;
                put_index(&txn, &slice.index)?;
            }
            if let Some(writes) = &piece.topics {
                committed.topics = topics::put(&txn, writes)?;
            }
            txn.commit()?;
            Ok(committed)
        })
    }

    /// The store as it is now. The moment pins pages of the file: keep it for a short time only.
    pub(crate) fn moment(&self) -> Result<StoreMoment, JournalFailure> {
        StoreMoment::of(&self.db, Arc::clone(&self.kept_moments))
    }

    /// Whether a reader still holds a moment of the store: then it cannot be compacted.
    pub(crate) fn is_being_read(&self) -> bool {
        Arc::strong_count(&self.kept_moments) > 1
    }

    /// Adds rows unchanged, and sets where the log begins and how often the store was opened.
    pub(crate) fn put(&self, rows: &CopiedRows, opened: OpenedCount) -> Result<(), JournalFailure> {
        guarded(|| {
            let txn = self.db.begin_write()?;
            {
                let mut meta = txn.open_table(META)?;
                meta.insert(OPENS, opened.opens)?;
                meta.insert(LOW, opened.low)?;
                let (mut log, mut kept) = (txn.open_table(LOG)?, txn.open_table(KEPT)?);
                let mut more = txn.open_table(KEPT_MORE)?;
                for (position, row) in &rows.log {
                    log.insert(position, row.as_slice())?;
                }
                for (key, row) in &rows.kept {
                    match key.more {
                        None => kept.insert(key.run, row.as_slice())?,
                        Some(first) => more.insert((key.run, first), row.as_slice())?,
                    };
                }
                let mut inventory = txn.open_table(INVENTORY)?;
                for (position, row) in &rows.inventory {
                    inventory.insert(position, row.as_slice())?;
                }
                let mut heads = txn.open_table(KEPT_HEADS)?;
                for (run, row) in &rows.kept_heads {
                    heads.insert(run, row.as_slice())?;
                }
                let mut records = txn.open_table(TOPIC_RECORDS)?;
                for (key, row) in &rows.topic_records {
                    records.insert(key, row.as_slice())?;
                }
                let mut topics = txn.open_table(TOPICS)?;
                for (number, row) in &rows.topics {
                    topics.insert(number, row.as_slice())?;
                }
                let mut ids = txn.open_table(TOPIC_IDS)?;
                for (first, row) in &rows.topic_ids {
                    ids.insert(first, row.as_slice())?;
                }
            }
            txn.commit()?;
            Ok(())
        })
    }

    /// Stores the time that the ages of finished runs are measured by.
    pub(crate) fn put_aged(&self, aged: Timestamp) -> Result<(), JournalFailure> {
        guarded(|| {
            let txn = self.db.begin_write()?;
            txn.open_table(META)?.insert(AGED, aged.as_micros())?;
            txn.commit()?;
            Ok(())
        })
    }

    /// Moves data from the end of the file into free space before it, and shortens the file.
    pub(crate) fn compact(&mut self) -> Result<(), JournalFailure> {
        guarded(|| {
            self.db.compact()?;
            Ok(())
        })
    }

    /// How many threads are worth using to read the file.
    pub(crate) fn lanes(&self) -> usize {
        if self.file_bytes() < PARALLEL_BYTES_MIN {
            return 1;
        }
        thread::available_parallelism().map_or(1, |threads| threads.get().min(LANES_MAX))
    }

    /// The disk, and how many bytes redb has written to it so far.
    pub(crate) fn meter(&self) -> (Weak<dyn Disk>, Arc<AtomicU64>) {
        (Arc::downgrade(&self.disk), Arc::clone(&self.written))
    }

    /// Whether and how long the store waits for room on its disk.
    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    /// Whether the file can be taken away from the store.
    pub(crate) fn can_be_lost(&self) -> bool {
        self.disk.can_be_lost()
    }

    /// An error if the file was taken away from the store.
    pub(crate) fn check_file(&self) -> Result<(), JournalFailure> {
        match self.disk.loss() {
            Ok(None) => Ok(()),
            Ok(Some(loss)) => Err((&loss).into()),
            Err(error) => Err(JournalFailure::new(
                FailureKind::Io(error.kind()),
                error.to_string(),
            )),
        }
    }

    /// Size of the file in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.disk.len().unwrap_or(0)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("disk", &self.disk)
            .finish_non_exhaustive()
    }
}

/// Lists the turns of a piece that are due, and deletes the list of those that have left the log.
fn put_inventory(
    txn: &WriteTransaction,
    piece: &Piece,
    listed: &[Listed],
    slice: Option<&Slice>,
) -> Result<(), redb::Error> {
    let low = slice.map_or(piece.low, |slice| slice.low);
    let has_left = slice.is_some_and(|slice| !slice.rows.is_empty());
    if piece.unlisted.is_none() && !has_left {
        return Ok(());
    }
    let mut table = txn.open_table(INVENTORY)?;
    if let Some(unlisted) = &piece.unlisted {
        for (from, row) in inventory::rows(unlisted.from, piece.end(), low, listed) {
            table.insert(from, row.as_slice())?;
        }
    }
    if has_left {
        let mut left = Vec::new();
        for row in table.range(..=low)? {
            left.push(row?.0.value());
        }
        // The last of them may list turns after the log's new beginning.
        left.pop();
        for from in left {
            table.remove(from)?;
        }
    }
    Ok(())
}

/// Writes a step of the index.
fn put_index(txn: &WriteTransaction, step: &IndexStep) -> Result<(), redb::Error> {
    if !step.closed.is_empty() || !step.closed_removed.is_empty() {
        let mut closed = txn.open_table(CLOSED)?;
        for key in &step.closed_removed {
            closed.remove(key)?;
        }
        for (key, row) in &step.closed {
            closed.insert(key, row.as_slice())?;
        }
    }
    if !step.index.is_empty() || !step.index_removed.is_empty() {
        let mut index = txn.open_table(INDEX)?;
        for key in &step.index_removed {
            index.remove(key)?;
        }
        for (key, row) in &step.index {
            index.insert(key, row.as_slice())?;
        }
    }
    txn.open_table(MANIFEST)?.insert(0, step.manifest.as_slice())?;
    Ok(())
}
