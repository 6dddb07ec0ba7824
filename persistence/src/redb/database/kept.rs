//! Turns that were moved out of the log because their runs live longer than their part of the log.
//!
//! ```text
//!   out of the log ──► the last piece of the run, while both fit into one
//!                 └──► else a new piece:   kept (the first of a run), kept2, kept2, ...
//! ```
//!
//! Invariants: the rows of a run together are its turns in order without gaps; they are removed together, also when a turn
//! trims the run. A row that cannot be read is not overwritten.
//!
//! Left out: which turns are moved, and when; see `settle`.

use std::ops::RangeInclusive;

use millrun_core::RunId;
use redb::{ReadableTable, WriteTransaction};

use super::guard::guarded;
use super::moment::StoreMoment;
use super::slice::{Slice, lay_out};
use super::tables::{KEPT, KEPT_HEADS, KEPT_MORE};
use crate::error::JournalFailure;
use crate::finished::IdHash;
use crate::scan;
use crate::wire::kept_head::{self, KeptHead};
use crate::wire::{piece, v1};

/// Kept turns of a run are added to its last row while that row has at most this many bytes: so the turns of a long-lived run
/// are not all written again each time. Turns that are moved together are one row, however large.
pub(crate) const KEPT_PIECE_BYTES: usize = (32 << 10) - 32;

/// The key of a row of turns that were moved out of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptKey {
    pub(in crate::redb) run: u128,
    /// The sequence of its first record, unless it is the run's first row.
    pub(in crate::redb) more: Option<u64>,
}

impl KeptKey {
    /// The run whose turns they are; `None` if the key is not a run's.
    pub(crate) fn run(self) -> Option<RunId> {
        RunId::from_bits(self.run)
    }
}

impl StoreMoment {
    /// The turns of a run that were moved out of the log, as rows in order: from the row that holds the record with the
    /// sequence `from`, as many as have `bytes` bytes, and at least one. Empty if nothing was moved, or if that record was
    /// not.
    pub(crate) fn kept(&self, run: RunId, from: u64, bytes: usize) -> Result<Vec<Vec<u8>>, JournalFailure> {
        guarded(|| {
            let more = self.transaction.open_table(KEPT_MORE)?;
            let begin = more.range((run.bits(), 0)..=(run.bits(), from))?.next_back();
            let begin = begin.transpose()?.map(|(key, _)| key.value().1);
            let (mut rows, mut total) = (Vec::new(), 0);
            if begin.is_none()
                && let Some(row) = self.transaction.open_table(KEPT)?.get(run.bits())?
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
            let more = self.transaction.open_table(KEPT_MORE)?;
            if let Some(row) = more.range(all_of(run))?.next_back() {
                return Ok(Some(row?.1.value().to_vec()));
            }
            let kept = self.transaction.open_table(KEPT)?;
            Ok(kept.get(run.bits())?.map(|row| row.value().to_vec()))
        })
    }

    /// Calls `visit` with each row of turns that were moved out of the log, those of a run in order,
    /// until it says `false`.
    pub(crate) fn kept_rows(
        &self,
        visit: &mut dyn FnMut(KeptKey, &[u8]) -> bool,
    ) -> Result<(), JournalFailure> {
        guarded(|| {
            let more = self.transaction.open_table(KEPT_MORE)?;
            let kept = self.transaction.open_table(KEPT)?;
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
}

/// The keys of all rows of a run except the first.
fn all_of(run: RunId) -> RangeInclusive<(u128, u64)> {
    (run.bits(), 0)..=(run.bits(), u64::MAX)
}

/// Removes the kept turns that are not needed any more, and adds those that leave the log. Returns how many bytes were
/// removed.
pub(in crate::redb) fn put(txn: &WriteTransaction, slice: &Slice) -> Result<u64, redb::Error> {
    let (mut kept, mut more) = (txn.open_table(KEPT)?, txn.open_table(KEPT_MORE)?);
    let mut heads = txn.open_table(KEPT_HEADS)?;
    let mut removed = 0;
    for run in &slice.gone {
        removed += remove(*run, (&mut kept, &mut more, &mut heads))?;
    }
    for (run, frames) in &slice.moved {
        if v1::read(frames).is_ok_and(|first| first.has(v1::TRIMS)) {
            removed += remove(*run, (&mut kept, &mut more, &mut heads))?;
        }
        let last = more.range(all_of(*run))?.next_back().transpose()?;
        let last = last.map(|(key, row)| (key.value(), row.value().to_vec()));
        let (key, row) = match last {
            Some((key, row)) => (Some(key), Some(row)),
            None => (None, kept.get(run.bits())?.map(|row| row.value().to_vec())),
        };
        // A row that cannot be read is left unchanged: the error is reported when the run is read, and none of the row's
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
        let has_before = row.is_some();
        let mut piece = Vec::new();
        lay_out(&mut piece, &[before, frames], number as usize + count(frames));
        match key {
            None => kept.insert(run.bits(), piece.as_slice()).map(drop)?,
            Some(key) => more.insert(key, piece.as_slice()).map(drop)?,
        }
        put_head(&mut heads, *run, frames, has_before)?;
    }
    Ok(removed)
}

/// The tables of kept turns.
type KeptTables<'a, 'txn> = (
    &'a mut redb::Table<'txn, u128, &'static [u8]>,
    &'a mut redb::Table<'txn, (u128, u64), &'static [u8]>,
    &'a mut redb::Table<'txn, u128, &'static [u8]>,
);

/// Removes all kept turns of a run, and returns their size.
fn remove(run: RunId, (kept, more, heads): KeptTables<'_, '_>) -> Result<u64, redb::Error> {
    let bytes = |row: &[u8]| row.len().saturating_sub(piece::HEADER_BYTES) as u64;
    let mut removed = 0;
    if let Some(row) = kept.remove(run.bits())? {
        removed += bytes(row.value());
    }
    for row in more.extract_from_if(all_of(run), |_, _| true)? {
        removed += bytes(row?.1.value());
    }
    heads.remove(run.bits())?;
    Ok(removed)
}

/// Stores up to which record the kept turns of a run reach, now that `frames` are the last of them.
fn put_head(
    heads: &mut redb::Table<'_, u128, &'static [u8]>,
    run: RunId,
    frames: &[u8],
    has_before: bool,
) -> Result<(), redb::Error> {
    let Some((first, last)) = scan::ends(frames) else {
        return Ok(());
    };
    if last.has(v1::CLOSES) {
        if has_before {
            heads.remove(run.bits())?;
        }
        return Ok(());
    }
    let id = match first.id {
        Some(id) => IdHash::of(id),
        None => {
            let before = heads.get(run.bits())?;
            let before = before.and_then(|row| kept_head::read(run, row.value()));
            before.map_or_else(IdHash::default, |head| head.id)
        }
    };
    let last = u32::try_from(last.sequence.get()).expect("a frame holds 32 bits of sequence");
    heads.insert(run.bits(), kept_head::row(run, KeptHead { last, id }).as_slice())?;
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use millrun_core::{Epoch, InstanceId, Sequence, Timestamp};

    use super::*;
    use crate::batch::{Batch, TurnHeader};
    use crate::redb::commit::queued::Piece;
    use crate::redb::database::store::Store;
    use crate::redb::file::disk::FileDisk;

    /// A run of two hundred turns that leave the log one by one: each row holds some of them, and a full row is not written
    /// again.
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
            store.commit(&Piece::default(), Some(&slice)).unwrap();
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
        let removed = store.commit(&Piece::default(), Some(&slice));
        assert_eq!(removed.unwrap(), whole.len() as u64);
        let moment = store.moment().unwrap();
        assert_eq!(moment.kept(run, 0, usize::MAX).unwrap(), Vec::<Vec<u8>>::new());
        moment.kept_rows(&mut |_, _| panic!("a row is left")).unwrap();
    }
}
