//! The file: two tables in redb, and nothing that knows what a turn is.
//!
//! ```text
//!   meta   "opens" ─► how often the store has been opened (u64)
//!   log    position ─► piece (see `wire::piece`), without gaps
//! ```
//!
//! Invariants: a commit is one transaction with one sync; nothing is read through a guard that
//! outlives the call (an open guard pins pages and grows the file); redb's types stay in here.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::backend::Backend;
use super::disk::Disk;
use crate::error::{FailureKind, JournalFailure};
use crate::wire::{piece, v1};

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("millrun.meta");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("millrun.log");
const OPENS: &str = "opens";

/// An open file.
pub(crate) struct Store {
    db: Database,
    disk: Arc<dyn Disk>,
    /// Whether the file had not been closed by its last user.
    pub(crate) is_repaired: bool,
}

impl Store {
    /// Opens redb's file behind the first page, which has been checked; creates it if there is
    /// nothing behind the first page.
    pub(crate) fn open(disk: Arc<dyn Disk>, cache_bytes_max: usize) -> Result<Self, JournalFailure> {
        let repaired = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&repaired);
        let backend = Backend(Arc::clone(&disk));
        let db = guarded(|| {
            Ok(Database::builder()
                .set_cache_size(cache_bytes_max)
                .set_repair_callback(move |_| flag.store(true, Ordering::Relaxed))
                .create_with_backend(backend)?)
        })?;
        Ok(Self {
            db,
            disk,
            is_repaired: repaired.load(Ordering::Relaxed),
        })
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
                opens
            };
            txn.commit()?;
            Ok(opens)
        })
    }

    /// Makes `frames` durable as the log's next bytes.
    pub(crate) fn commit(&self, position: u64, frames: &[u8]) -> Result<(), JournalFailure> {
        guarded(|| {
            let txn = self.db.begin_write()?;
            {
                let mut log = txn.open_table(LOG)?;
                let mut at = 0;
                while at < frames.len() {
                    let (len, count) = cut(&frames[at..]);
                    let bytes = &frames[at..at + len];
                    let mut row = log.insert_reserve(position + at as u64, piece::HEADER_BYTES + len)?;
                    let (header, body) = row.as_mut().split_at_mut(piece::HEADER_BYTES);
                    header.copy_from_slice(&piece::header(narrow(len), narrow(count)));
                    body.copy_from_slice(bytes);
                    at += len;
                }
            }
            txn.commit()?;
            Ok(())
        })
    }

    /// Calls `visit` with each row of the log that may hold something at or behind `from`, in
    /// order, until it says `false`.
    pub(crate) fn rows(
        &self,
        from: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), JournalFailure> {
        guarded(|| {
            let log = self.db.begin_read()?.open_table(LOG)?;
            let first = match log.range(..=from)?.next_back() {
                Some(row) => row?.0.value(),
                None => from,
            };
            for row in log.range(first..)? {
                let (position, bytes) = row?;
                if !visit(position.value(), bytes.value()) {
                    break;
                }
            }
            Ok(())
        })
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

/// Length and number of the frames that make up the next piece.
fn cut(frames: &[u8]) -> (usize, usize) {
    let target = piece::target(frames.len());
    let (mut len, mut count) = (0, 0);
    while len < frames.len() {
        let next = v1::len(&frames[len..]);
        if count > 0 && len + next > target {
            break;
        }
        len += next;
        count += 1;
    }
    (len, count)
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("a piece is one frame below 4 GiB, or far smaller")
}

/// Runs something of redb's. A damaged file can make redb panic where it trusts what it reads;
/// that is an error of the file, not of this process.
fn guarded<T>(run: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, JournalFailure> {
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
    let kind = match error {
        redb::Error::Io(error) => FailureKind::Io(error.kind()),
        redb::Error::PreviousIo => FailureKind::Io(std::io::ErrorKind::Other),
        redb::Error::DatabaseClosed => FailureKind::Closed,
        _ => FailureKind::Corrupted,
    };
    JournalFailure::new(kind, error.to_string())
}
