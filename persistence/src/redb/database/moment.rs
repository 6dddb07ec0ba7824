//! Reads the file as of one moment, which does not change.
//!
//! Invariants: nothing is read through a guard that outlives the moment (an open guard pins pages and grows the file), so
//! rows are copied, or shown to the caller while they are open. A moment for many reads keeps some rows open, see
//! [`StoreMoment::share_rows`].
//!
//! Left out: reading turns that were moved out of the log, see [`kept`](super::kept); and what the rows mean.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use millrun_core::{RunId, Timestamp};
use redb::{AccessGuard, Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use super::guard::guarded;
use super::tables::{
    AGED, CLOSED, INDEX, INVENTORY, KEPT_HEADS, LOG, LOW, MANIFEST, META, OPENS, SNAPSHOTS, TRIMS_ARCHIVED,
};
use crate::error::JournalFailure;
use crate::wire::piece;

/// What a store has recorded about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenedCount {
    /// How often the store has been opened, this time included, and taken over while it was open.
    pub(crate) opens: u64,
    /// Where the log begins.
    pub(crate) low: u64,
}

/// The key of a row of the log, or of its inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogKey {
    /// The row that lists which turns are in the log from this position on.
    Inventory(u64),
    /// Turns.
    Log(u64),
}

/// How many rows of the log are shared by the reads of a moment that [shares](StoreMoment::share_rows) them.
const SHARED_ROWS_MAX: usize = 16;
/// Larger rows are not shared: they hold a single large turn.
const SHARED_ROW_BYTES_MAX: usize = 256 << 10;

/// A snapshot of the store that does not change.
pub(crate) struct StoreMoment {
    shared: Option<RefCell<SharedRows>>,
    /// Rows that are acknowledged and not written yet; in the log they come after all written ones.
    unwritten: BTreeMap<u64, Vec<u8>>,
    pub(in crate::redb) transaction: ReadTransaction,
    /// Shows the store that this moment exists. It is dropped after everything that reads.
    _kept: Arc<()>,
}

/// The rows of the log that were used last, the latest at the end. Runs that advanced together have their turns in the same
/// rows.
#[derive(Default)]
struct SharedRows(VecDeque<SharedRow>);

/// A row, and the positions of its frames.
struct SharedRow {
    positions: Range<u64>,
    row: AccessGuard<'static, &'static [u8]>,
}

impl StoreMoment {
    /// Everything as it is now.
    pub(in crate::redb) fn of(db: &Database, kept: Arc<()>) -> Result<Self, JournalFailure> {
        guarded(|| {
            Ok(Self {
                transaction: db.begin_read()?,
                _kept: kept,
                shared: None,
                unwritten: BTreeMap::new(),
            })
        })
    }

    /// From now on the last rows of the log that were read are cached for the reads that follow. They take the memory of 16
    /// rows, for as long as this moment is kept.
    pub(crate) fn share_rows(&mut self) {
        self.shared.get_or_insert_default();
    }

    /// Adds rows of the log that are acknowledged and not written. They come after those of the store.
    pub(crate) fn add_unwritten(&mut self, rows: Vec<(u64, Vec<u8>)>) {
        self.unwritten.extend(rows);
    }

    /// How often the store has been opened, and where its log begins.
    pub(crate) fn opened(&self) -> Result<OpenedCount, JournalFailure> {
        guarded(|| {
            let meta = self.transaction.open_table(META)?;
            let number =
                |name| -> Result<u64, redb::Error> { Ok(meta.get(name)?.map_or(0, |row| row.value())) };
            Ok(OpenedCount {
                opens: number(OPENS)?,
                low: number(LOW)?,
            })
        })
    }

    /// The time that the ages of finished runs are measured by, if one has been stored.
    pub(crate) fn aged(&self) -> Result<Option<Timestamp>, JournalFailure> {
        guarded(|| {
            let meta = self.transaction.open_table(META)?;
            Ok(meta.get(AGED)?.map(|row| Timestamp::from_micros(row.value())))
        })
    }

    /// The log position below which all trimmed records are archived.
    pub(crate) fn trims_archived(&self) -> Result<u64, JournalFailure> {
        guarded(|| {
            let meta = self.transaction.open_table(META)?;
            Ok(meta.get(TRIMS_ARCHIVED)?.map_or(0, |row| row.value()))
        })
    }

    /// Where the log ends; zero if it is empty.
    pub(crate) fn log_end(&self) -> Result<u64, JournalFailure> {
        guarded(|| {
            let log = self.transaction.open_table(LOG)?;
            Ok(log.last()?.map_or(0, |(position, row)| {
                position.value() + row.value().len().saturating_sub(piece::HEADER_BYTES) as u64
            }))
        })
    }

    /// The snapshot of a run, as a row.
    pub(crate) fn snapshot(&self, run: RunId) -> Result<Option<Vec<u8>>, JournalFailure> {
        guarded(|| {
            let table = self.transaction.open_table(SNAPSHOTS)?;
            Ok(table.get(run.bits())?.map(|row| row.value().to_vec()))
        })
    }

    /// The runs that have a snapshot.
    pub(crate) fn snapshots(&self) -> Result<Vec<RunId>, JournalFailure> {
        guarded(|| {
            let mut runs = Vec::new();
            for row in self.transaction.open_table(SNAPSHOTS)?.iter()? {
                runs.extend(RunId::from_bits(row?.0.value()));
            }
            Ok(runs)
        })
    }

    /// The manifest of the settled finished runs, as a row; `None` if nothing is settled.
    pub(crate) fn manifest(&self) -> Result<Option<Vec<u8>>, JournalFailure> {
        guarded(|| {
            let table = self.transaction.open_table(MANIFEST)?;
            Ok(table.get(0)?.map(|row| row.value().to_vec()))
        })
    }

    /// The result of `read` for a row of the index.
    pub(crate) fn index_row<T>(
        &self,
        key: u64,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, JournalFailure> {
        guarded(|| {
            let table = self.transaction.open_table(INDEX)?;
            Ok(table.get(key)?.map(|row| read(row.value())))
        })
    }

    /// The row of settled runs that has this number, with its key.
    pub(crate) fn closed_row(&self, number: u64) -> Result<Option<(u64, Vec<u8>)>, JournalFailure> {
        guarded(|| {
            let table = self.transaction.open_table(CLOSED)?;
            let Some(row) = table.range(..=number)?.next_back() else {
                return Ok(None);
            };
            let (key, bytes) = row?;
            Ok(Some((key.value(), bytes.value().to_vec())))
        })
    }

    /// The keys of all settled rows: of finished runs, and of the index.
    pub(crate) fn settled_keys(&self) -> Result<(Vec<u64>, Vec<u64>), JournalFailure> {
        guarded(|| {
            let keys = |table: TableDefinition<'static, u64, &'static [u8]>| {
                let mut keys = Vec::new();
                for row in self.transaction.open_table(table)?.iter()? {
                    keys.push(row?.0.value());
                }
                Ok::<_, redb::Error>(keys)
            };
            Ok((keys(CLOSED)?, keys(INDEX)?))
        })
    }

    /// Calls `visit` with the heads of all kept runs, in the order of the runs, until it says `false`.
    pub(crate) fn kept_heads(
        &self,
        visit: &mut dyn FnMut(u128, &[u8]) -> bool,
    ) -> Result<(), JournalFailure> {
        guarded(|| {
            for row in self.transaction.open_table(KEPT_HEADS)?.iter()? {
                let (run, row) = row?;
                if !visit(run.value(), row.value()) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// As [`rows`](Self::rows), with the inventory: each of its rows before the rows of the log whose turns it lists, and at
    /// the end the rows that list turns of which nothing is left.
    pub(crate) fn log_and_inventory(
        &self,
        from: u64,
        visit: &mut dyn FnMut(LogKey, &[u8]) -> bool,
    ) -> Result<(), JournalFailure> {
        guarded(|| {
            let (log, inventory) = (
                self.transaction.open_table(LOG)?,
                self.transaction.open_table(INVENTORY)?,
            );
            let mut lists = inventory.iter()?;
            let mut list = lists.next().transpose()?;
            let mut list_below = |end: u64, visit: &mut dyn FnMut(LogKey, &[u8]) -> bool| {
                while let Some((position, row)) = list.take_if(|(position, _)| position.value() < end) {
                    if !visit(LogKey::Inventory(position.value()), row.value()) {
                        return Ok(false);
                    }
                    list = lists.next().transpose()?;
                }
                Ok::<_, redb::Error>(true)
            };
            for row in log.range(from..)? {
                let (position, bytes) = row?;
                let (position, bytes) = (position.value(), bytes.value());
                let end = position + (bytes.len() as u64).max(1);
                if !list_below(end, visit)? || !visit(LogKey::Log(position), bytes) {
                    return Ok(());
                }
            }
            list_below(u64::MAX, visit)?;
            Ok(())
        })
    }

    /// Calls `visit` with each row of the log that may hold something from `from` on, in order, until it returns `false`.
    pub(crate) fn rows(
        &self,
        from: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), JournalFailure> {
        if self.unwritten.is_empty() {
            return self.written_rows(from, visit);
        }
        let first = self
            .unwritten
            .range(..=from)
            .next_back()
            .map(|(position, _)| *position);
        if first.is_none() {
            let mut goes_on = true;
            self.written_rows(from, &mut |position, row| {
                goes_on = visit(position, row);
                goes_on
            })?;
            if !goes_on {
                return Ok(());
            }
        }
        for (position, row) in self.unwritten.range(first.unwrap_or(from)..) {
            if !visit(*position, row) {
                break;
            }
        }
        Ok(())
    }

    /// As [`rows`](Self::rows), of those in the store.
    fn written_rows(
        &self,
        from: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), JournalFailure> {
        guarded(|| {
            let mut from = from;
            if let Some(shared) = &self.shared {
                let mut shared = shared.borrow_mut();
                if let Some(found) = shared.find(from) {
                    if !visit(found.positions.start, found.row.value()) {
                        return Ok(());
                    }
                    from = found.positions.end;
                }
            }
            let log = self.transaction.open_table(LOG)?;
            let mut first = from;
            if let Some(row) = log.range(..=from)?.next_back() {
                let (position, row) = row?;
                first = position.value();
                if let Some(shared) = &self.shared {
                    if !visit(first, row.value()) {
                        shared.borrow_mut().keep(first, row);
                        return Ok(());
                    }
                    first += 1;
                }
            }
            for row in log.range(first..)? {
                let (position, bytes) = row?;
                if !visit(position.value(), bytes.value()) {
                    break;
                }
            }
            Ok(())
        })
    }
}

impl SharedRows {
    /// The cached row that holds this position, if there is one.
    fn find(&mut self, position: u64) -> Option<&SharedRow> {
        let at = self.0.iter().rposition(|row| row.positions.contains(&position))?;
        let found = self.0.remove(at)?;
        self.0.push_back(found);
        self.0.back()
    }

    /// Caches a row, in place of the least recently used one.
    fn keep(&mut self, position: u64, row: AccessGuard<'static, &'static [u8]>) {
        let bytes = row.value().len();
        if bytes > SHARED_ROW_BYTES_MAX {
            return;
        }
        if self.0.len() >= SHARED_ROWS_MAX {
            self.0.pop_front();
        }
        let end = position + bytes.saturating_sub(piece::HEADER_BYTES) as u64;
        let positions = position..end;
        self.0.push_back(SharedRow { positions, row });
    }
}
