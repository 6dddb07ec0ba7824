//! The file: eight tables in redb, and nothing that knows what a turn is.
//!
//! ```text
//!   meta   "opens" ─► how often the store has been opened, and taken over while it was open
//!          "low"   ─► log position below which there are no rows any more
//!   log    position ─► piece (see `wire::piece`), without gaps
//!   kept   run ─► piece: the turns of a run that stood in the log below "low",
//!   kept2  run, sequence of the first record ─► piece: as far as they did not fit into the first
//!
//!   closed    number of the first ─► finished runs (see `wire::settled`)    ┐ derived from the log;
//!   index     sorted run and row ─► hashes and numbers                      │ may be lost and are
//!   manifest  0 ─► which sorted runs there are, and what they cover         ┘ written anew
//!   snapshots run ─► folded state (see `wire::snapshot`); may be lost
//! ```
//!
//! Invariants: a commit is one transaction with one sync; nothing is read through a guard that
//! outlives the call (an open guard pins pages and grows the file); redb's types stay in here.

use std::fmt;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use millrun_core::RunId;
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::backend::Backend;
use super::disk::Disk;
use super::settler::Step;
use super::state::Segment;
use crate::error::{FailureKind, JournalFailure};
use crate::wire::{piece, v1};

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("millrun.meta");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("millrun.log");
const KEPT: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("millrun.kept");
const KEPT_MORE: TableDefinition<'_, (u128, u64), &[u8]> = TableDefinition::new("millrun.kept.more");
const CLOSED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("millrun.closed");
const INDEX: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("millrun.index");
const MANIFEST: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("millrun.manifest");
const SNAPSHOTS: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("millrun.snapshots");
const OPENS: &str = "opens";
const LOW: &str = "low";
/// Kept turns of a run are added to the last of its pieces as long as it has no more bytes: what a run
/// that lives long has is not written again with each turn. What is moved at once is one piece, however
/// large.
pub(crate) const KEPT_PIECE_BYTES: usize = (32 << 10) - 32;
/// Smaller files are read on the calling thread.
const PARALLEL_BYTES_MIN: u64 = 64 << 20;
const LANES_MAX: usize = 4;

/// An open file.
pub(crate) struct Store {
    db: Database,
    disk: Arc<dyn Disk>,
    written: Arc<AtomicU64>,
    /// Whether the file had not been closed by its last user.
    pub(crate) is_repaired: bool,
}

/// What a store says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// How often the store has been opened, this time included, and taken over while it was open.
    pub(crate) opens: u64,
    /// Where the log begins.
    pub(crate) low: u64,
}

/// A step of settling: what leaves the log in one transaction, and what is kept of it.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    /// Where the log begins afterwards.
    pub(crate) low: u64,
    /// The keys of the rows that go.
    pub(crate) rows: Vec<u64>,
    /// The frames in them that are still needed, per run and in order.
    pub(crate) moved: Vec<(RunId, Vec<u8>)>,
    /// Runs whose kept turns are not needed any more.
    pub(crate) gone: Vec<RunId>,
    /// What is written of the index of finished runs.
    pub(crate) index: Step,
}

impl Store {
    /// Opens redb's file behind the first page, which has been checked; creates it if there is
    /// nothing behind the first page.
    pub(crate) fn open(disk: Arc<dyn Disk>, cache_bytes_max: usize) -> Result<Self, JournalFailure> {
        let repaired = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&repaired);
        let written = Arc::new(AtomicU64::new(0));
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
            written,
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
                txn.open_table(KEPT)?;
                txn.open_table(KEPT_MORE)?;
                for table in [CLOSED, INDEX, MANIFEST] {
                    txn.open_table(table)?;
                }
                txn.open_table(SNAPSHOTS)?;
                opens
            };
            txn.commit()?;
            Ok(opens)
        })
    }

    /// Throws the index of finished runs away, so that it is written anew.
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

    /// Makes the frames of a segment durable as the log's next bytes with all that goes with them,
    /// and a slice of settling. Returns how many bytes of kept turns went with the slice.
    pub(crate) fn commit(&self, segment: &Segment, slice: Option<&Slice>) -> Result<u64, JournalFailure> {
        let (position, frames, snapshots) = (segment.start, &segment.bytes, &segment.snapshots);
        guarded(|| {
            let txn = self.db.begin_write()?;
            let mut removed = 0;
            {
                let mut log = txn.open_table(LOG)?;
                let mut at = 0;
                while at < frames.len() {
                    let (len, count) = cut(&frames[at..]);
                    let bytes = &frames[at..at + len];
                    let mut row = log.insert_reserve(position + at as u64, piece::HEADER_BYTES + len)?;
                    fill(row.as_mut(), bytes, count);
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
            if let Some(opens) = segment.opens {
                txn.open_table(META)?.insert(OPENS, opens)?;
            }
            if let Some(slice) = slice {
                removed = put_kept(&txn, slice)?;
                txn.open_table(META)?.insert(LOW, slice.low)?;
                put_index(&txn, &slice.index)?;
            }
            txn.commit()?;
            Ok(removed)
        })
    }

    /// Everything as it is at this moment. It pins pages of the file: keep it for a short time.
    pub(crate) fn moment(&self) -> Result<Moment, JournalFailure> {
        guarded(|| Ok(Moment(self.db.begin_read()?)))
    }

    /// Adds rows as they are, and says where the log begins and how often the store was opened.
    pub(crate) fn put(&self, rows: &Rows, opened: Opened) -> Result<(), JournalFailure> {
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
            }
            txn.commit()?;
            Ok(())
        })
    }

    /// Moves what is at the end of the file into free space before it, and cuts the file.
    pub(crate) fn compact(&mut self) -> Result<(), JournalFailure> {
        guarded(|| {
            self.db.compact()?;
            Ok(())
        })
    }

    /// On how many threads the file is worth being read.
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

    /// Size of the file in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.disk.len().unwrap_or(0)
    }
}

/// A moment of the store that does not change.
pub(crate) struct Moment(ReadTransaction);

impl Moment {
    /// How often the store has been opened, and where its log begins.
    pub(crate) fn opened(&self) -> Result<Opened, JournalFailure> {
        guarded(|| {
            let meta = self.0.open_table(META)?;
            let number =
                |name| -> Result<u64, redb::Error> { Ok(meta.get(name)?.map_or(0, |row| row.value())) };
            Ok(Opened {
                opens: number(OPENS)?,
                low: number(LOW)?,
            })
        })
    }

    /// Where the log ends; zero if it is empty.
    pub(crate) fn log_end(&self) -> Result<u64, JournalFailure> {
        guarded(|| {
            let log = self.0.open_table(LOG)?;
            Ok(log.last()?.map_or(0, |(position, row)| {
                position.value() + row.value().len().saturating_sub(piece::HEADER_BYTES) as u64
            }))
        })
    }

    /// The turns of a run that were moved out of the log, as rows in order: from the one on that holds
    /// the record with the sequence `from`, as many as have `bytes` bytes, and one at least. None if
    /// nothing was moved, or if that record was not.
    pub(crate) fn kept(&self, run: RunId, from: u64, bytes: usize) -> Result<Vec<Vec<u8>>, JournalFailure> {
        guarded(|| {
            let more = self.0.open_table(KEPT_MORE)?;
            let begin = more.range((run.bits(), 0)..=(run.bits(), from))?.next_back();
            let begin = begin.transpose()?.map(|(key, _)| key.value().1);
            let (mut rows, mut total) = (Vec::new(), 0);
            if begin.is_none()
                && let Some(row) = self.0.open_table(KEPT)?.get(run.bits())?
            {
                total += row.value().len();
                rows.push(row.value().to_vec());
            }
            for row in more.range((run.bits(), begin.unwrap_or(0))..=(run.bits(), u64::MAX))? {
                if total >= bytes && !rows.is_empty() {
                    break;
                }
                let (_, row) = row?;
                total += row.value().len();
                rows.push(row.value().to_vec());
            }
            Ok(rows)
        })
    }

    /// The last row of the turns of a run that were moved out of the log.
    pub(crate) fn last_kept(&self, run: RunId) -> Result<Option<Vec<u8>>, JournalFailure> {
        guarded(|| {
            let more = self.0.open_table(KEPT_MORE)?;
            if let Some(row) = more.range(all_of(run))?.next_back() {
                return Ok(Some(row?.1.value().to_vec()));
            }
            let kept = self.0.open_table(KEPT)?;
            Ok(kept.get(run.bits())?.map(|row| row.value().to_vec()))
        })
    }

    /// The snapshot of a run, as a row.
    pub(crate) fn snapshot(&self, run: RunId) -> Result<Option<Vec<u8>>, JournalFailure> {
        guarded(|| {
            let table = self.0.open_table(SNAPSHOTS)?;
            Ok(table.get(run.bits())?.map(|row| row.value().to_vec()))
        })
    }

    /// The runs that have a snapshot.
    pub(crate) fn snapshots(&self) -> Result<Vec<RunId>, JournalFailure> {
        guarded(|| {
            let mut runs = Vec::new();
            for row in self.0.open_table(SNAPSHOTS)?.iter()? {
                runs.extend(RunId::from_bits(row?.0.value()));
            }
            Ok(runs)
        })
    }

    /// What is settled of finished runs, as a row; `None` if nothing is.
    pub(crate) fn manifest(&self) -> Result<Option<Vec<u8>>, JournalFailure> {
        guarded(|| {
            let table = self.0.open_table(MANIFEST)?;
            Ok(table.get(0)?.map(|row| row.value().to_vec()))
        })
    }

    /// What `read` makes of a row of the index.
    pub(crate) fn index_row<T>(
        &self,
        key: u64,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, JournalFailure> {
        guarded(|| {
            let table = self.0.open_table(INDEX)?;
            Ok(table.get(key)?.map(|row| read(row.value())))
        })
    }

    /// The row of settled runs in which this number stands, with its key.
    pub(crate) fn closed_row(&self, number: u64) -> Result<Option<(u64, Vec<u8>)>, JournalFailure> {
        guarded(|| {
            let table = self.0.open_table(CLOSED)?;
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
                for row in self.0.open_table(table)?.iter()? {
                    keys.push(row?.0.value());
                }
                Ok::<_, redb::Error>(keys)
            };
            Ok((keys(CLOSED)?, keys(INDEX)?))
        })
    }

    /// Calls `visit` with each row of turns that were moved out of the log, those of a run in order,
    /// until it says `false`.
    pub(crate) fn kept_rows(
        &self,
        visit: &mut dyn FnMut(KeptKey, &[u8]) -> bool,
    ) -> Result<(), JournalFailure> {
        guarded(|| {
            let more = self.0.open_table(KEPT_MORE)?;
            let kept = self.0.open_table(KEPT)?;
            let (mut firsts, mut more) = (kept.iter()?, more.iter()?);
            let (mut first, mut next) = (firsts.next().transpose()?, more.next().transpose()?);
            loop {
                let first_run = first.as_ref().map(|(run, _)| run.value());
                let next_key = next.as_ref().map(|(key, _)| key.value());
                let goes_on = match (first_run, next_key) {
                    (None, None) => return Ok(()),
                    (Some(run), key) if key.is_none_or(|(other, _)| run <= other) => {
                        let row = first.take();
                        first = firsts.next().transpose()?;
                        row.is_some_and(|(_, row)| visit(KeptKey { run, more: None }, row.value()))
                    }
                    (_, key) => {
                        let row = next.take();
                        next = more.next().transpose()?;
                        key.zip(row).is_some_and(|((run, first), (_, row))| {
                            let more = Some(first);
                            visit(KeptKey { run, more }, row.value())
                        })
                    }
                };
                if !goes_on {
                    return Ok(());
                }
            }
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
            let log = self.0.open_table(LOG)?;
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
}

/// Rows on their way from one store to another.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) log: Vec<(u64, Vec<u8>)>,
    pub(crate) kept: Vec<(KeptKey, Vec<u8>)>,
}

/// The key of a row of turns that were moved out of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptKey {
    run: u128,
    /// The sequence of its first record, unless it is the run's first row.
    more: Option<u64>,
}

impl KeptKey {
    /// Whose turns they are; `None` if the key is not a run's.
    pub(crate) fn run(self) -> Option<RunId> {
        RunId::from_bits(self.run)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("disk", &self.disk)
            .finish_non_exhaustive()
    }
}

/// The keys of all rows of a run but the first.
fn all_of(run: RunId) -> RangeInclusive<(u128, u64)> {
    (run.bits(), 0)..=(run.bits(), u64::MAX)
}

/// Takes away the kept turns that are not needed any more, and adds those that leave the log. Returns
/// how many bytes went.
fn put_kept(txn: &WriteTransaction, slice: &Slice) -> Result<u64, redb::Error> {
    let (mut kept, mut more) = (txn.open_table(KEPT)?, txn.open_table(KEPT_MORE)?);
    let mut removed = 0;
    let mut remove = |row: &[u8]| removed += row.len().saturating_sub(piece::HEADER_BYTES) as u64;
    for run in &slice.gone {
        if let Some(row) = kept.remove(run.bits())? {
            remove(row.value());
        }
        for row in more.extract_from_if(all_of(*run), |_, _| true)? {
            remove(row?.1.value());
        }
    }
    for (run, frames) in &slice.moved {
        let last = more.range(all_of(*run))?.next_back().transpose()?;
        let last = last.map(|(key, row)| (key.value(), row.value().to_vec()));
        let (key, row) = match last {
            Some((key, row)) => (Some(key), Some(row)),
            None => (None, kept.get(run.bits())?.map(|row| row.value().to_vec())),
        };
        // What cannot be read is left as it is: it is told when the run is read, and none of its
        // lengths is trusted here.
        let before = match &row {
            Some(row) => piece::read(row).ok(),
            None => Some((&[][..], 0)),
        };
        let fits =
            before.filter(|(before, _)| before.is_empty() || before.len() + frames.len() <= KEPT_PIECE_BYTES);
        let (key, before, number) = if let Some((before, number)) = fits {
            (key, before, number)
        } else {
            let first = v1::read(frames).map_err(|error| redb::Error::Corrupted(error.to_string()))?;
            (Some((run.bits(), first.sequence.get())), &[][..], 0)
        };
        let whole = [before, frames].concat();
        let bytes = piece::HEADER_BYTES + whole.len();
        let count = number as usize + count(frames);
        match key {
            None => fill(kept.insert_reserve(run.bits(), bytes)?.as_mut(), &whole, count),
            Some(key) => fill(more.insert_reserve(key, bytes)?.as_mut(), &whole, count),
        }
    }
    Ok(removed)
}

/// Writes a step of the index.
fn put_index(txn: &WriteTransaction, step: &Step) -> Result<(), redb::Error> {
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

/// Writes a row: header and frames.
fn fill(row: &mut [u8], frames: &[u8], count: usize) {
    let (header, body) = row.split_at_mut(piece::HEADER_BYTES);
    header.copy_from_slice(&piece::header(narrow(frames.len()), narrow(count)));
    body.copy_from_slice(frames);
}

/// How many frames there are.
fn count(mut frames: &[u8]) -> usize {
    let mut count = 0;
    while !frames.is_empty() {
        frames = &frames[v1::len(frames)..];
        count += 1;
    }
    count
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use millrun_core::{Epoch, InstanceId, Sequence, Timestamp};

    use super::*;
    use crate::batch::{Batch, TurnHeader};
    use crate::redb::disk::FileDisk;

    /// A run of two hundred turns that leave the log one by one: a row holds some of them, and none is
    /// written again with each of those that follow.
    #[test]
    fn kept_turns_are_added_to_rows_of_a_bounded_size_and_go_together() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&folder.path().join("store")).unwrap();
        let store = Store::open(Arc::new(disk), 1 << 20).unwrap();
        store.count_open().unwrap();
        let id = InstanceId::new("long").unwrap();
        let run = RunId::new(id.partition(), Timestamp::EPOCH, 1);
        let mut whole = Vec::new();
        for turn in 0..200 {
            let mut batch = Batch::new();
            let mut writer = batch.turn(TurnHeader {
                run,
                head: Sequence::new(turn),
                epoch: Epoch::new(1),
                time: Timestamp::EPOCH,
                opens: (turn == 0).then_some(&id),
            });
            let body = |bytes: &mut Vec<u8>| {
                bytes.resize(bytes.len() + 900, 7);
                Ok::<_, Infallible>(())
            };
            writer.record(1, body).unwrap();
            writer.finish(false).unwrap();
            let frames = batch.frames(&batch.spans()[0]).to_vec();
            whole.extend_from_slice(&frames);
            let slice = Slice {
                moved: vec![(run, frames)],
                ..Slice::default()
            };
            store.commit(&Segment::default(), Some(&slice)).unwrap();
        }
        let (mut found, mut rows) = (Vec::new(), 0);
        let moment = store.moment().unwrap();
        moment
            .kept_rows(&mut |_, row| {
                assert!(row.len() <= piece::HEADER_BYTES + KEPT_PIECE_BYTES);
                found.extend_from_slice(piece::read(row).unwrap().0);
                rows += 1;
                true
            })
            .unwrap();
        assert_eq!((found, rows), (whole.clone(), 6));
        for sequence in 1..=200 {
            let rows = moment.kept(run, sequence, 1).unwrap();
            let (first, last) = (piece::read(&rows[0]).unwrap().0, rows.len());
            let first = v1::read(first).unwrap().sequence.get();
            assert!(first <= sequence && sequence < first + 40 && last == 1);
        }
        drop(moment);
        let slice = Slice {
            gone: vec![run],
            ..Slice::default()
        };
        let removed = store.commit(&Segment::default(), Some(&slice));
        assert_eq!(removed.unwrap(), whole.len() as u64);
        let moment = store.moment().unwrap();
        assert_eq!(moment.kept(run, 0, usize::MAX).unwrap(), Vec::<Vec<u8>>::new());
        moment.kept_rows(&mut |_, _| panic!("a row is left")).unwrap();
    }
}
