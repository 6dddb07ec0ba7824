//! Rebuilds the state of runs from the store: heads, finished runs, damage.
//!
//! ```text
//!   kept turns, then the log:
//!   (none) ── first record ──► live ── closes ──► finished
//!     │                         │
//!     │                         └── gap, damage, ──► quarantined (named, left out, kept on disk)
//!     │                             or a turn that the inventory lists and the log has not
//!     └── a later record ──► the rest of a run that was dropped, or quarantined if its previous
//!                            turn should still be there
//!
//!   anything ── a record that trims the run ──► live, from there on
//! ```
//!
//! What a run was trimmed of is dead, even if it is damaged. It may still be in the log, and among the kept turns as long as
//! the run's first remaining turn has not been moved there.
//!
//! Settled finished runs are not collected: the index says where they are.

use std::num::NonZeroU8;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun_core::{InstanceId, RunId, Sequence};
use rustc_hash::{FxHashMap, FxHashSet};

use super::recover::Trims;
use crate::error::{JournalFailure, ReadError};
use crate::finished::{Finished, IdHash, Place};
use crate::fold::{Fold, NoFold};
use crate::heads::{self, Heads};
use crate::journal::Progress;
use crate::redb::commit::queued::TrimTurn;
use crate::redb::database::moment::{OpenedCount, StoreMoment};
use crate::redb::records::damaged::Damaged;
use crate::redb::records::frames::{self, Damage};
use crate::redb::records::lanes::{LogSpan, each_row};
use crate::redb::records::listing::LogListing;
use crate::redb::records::row::{FrameSource, Row};
use crate::scan::{self, LastTurn};
use crate::wire::inventory::Listed;
use crate::wire::v1::{self, Frame};
use crate::wire::{kept_head, piece};

/// A live run as far as it has been read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LiveRun {
    pub(crate) turn: LastTurn,
    pub(crate) place: Place,
}

/// Everything that a store holds about runs.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    /// The live runs, in as many parts as there were lanes.
    pub(crate) live: Vec<Heads<LiveRun>>,
    /// The finished runs that are not settled, in the order in which they closed.
    pub(crate) closed: Vec<Finished<Place>>,
    /// Runs that are settled, or were dropped, and that have turns kept outside of the log.
    pub(crate) kept: FxHashSet<RunId>,
    /// Runs that were trimmed in the log, and that may have dead turns kept outside of it.
    pub(crate) superseded: Vec<RunId>,
    /// The turns that have trimmed runs and whose trimmed records are all still there, in the order of the log.
    pub(crate) trim_turns: Vec<TrimTurn>,
    /// Where in the log runs were trimmed.
    pub(crate) trims: Trims,
    /// The first remaining records of runs that were trimmed.
    pub(crate) trimmed: Vec<(RunId, Sequence)>,
    /// Bytes of turns that are kept outside of the log.
    pub(crate) kept_bytes: u64,
    pub(crate) damaged: Damaged,
    /// How many records there are.
    pub(crate) records: u64,
    /// Where the log begins,
    pub(crate) low: u64,
    /// and where it ends.
    pub(crate) end: u64,
    /// Where the inventory ends: runs with later turns must be listed. The log's end if some of those are damaged: if listed,
    /// they would look undamaged from then on.
    pub(crate) listed_to: u64,
}

/// What need not be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownFinished {
    Nothing,
    /// Runs whose closing turn begins before this position, or was moved out of the log.
    Before(u64),
    Everything,
}

/// What one lane has read of its own runs.
struct RebuildShare<'a> {
    fold: &'a mut dyn Fold,
    /// The run of the last frame, with its number: the records of a turn are adjacent.
    latest: Option<(RunId, u32)>,
    low: u64,
    known: KnownFinished,
    kept: FxHashSet<RunId>,
    kept_bytes: u64,
    live: Heads<LiveRun>,
    /// Runs that closed, with the place of their last record: `None` if it was moved.
    closed: Vec<(Option<u64>, Finished<Place>)>,
    /// Runs that were dropped, or trimmed, of which the log still has a remainder, with the last record of that: a frame that
    /// does not follow it is no remainder.
    rests: FxHashMap<RunId, u64>,
    superseded: Vec<RunId>,
    trim_turns: Vec<TrimTurn>,
    /// The records that have trimmed runs, with their places in the log.
    trims: FxHashMap<RunId, (Option<u64>, Sequence)>,
    damaged: Damaged,
    /// Damage for which it must still be found out which runs it may concern.
    strays: Vec<Damage>,
    listing: LogListing,
    /// The run whose turn has begun and not ended.
    unended: Option<RunId>,
    records: u64,
}

/// Reads everything, on `lanes` threads.
pub(crate) fn rebuild(
    moment: &StoreMoment,
    known: KnownFinished,
    lanes: usize,
) -> Result<Rebuilt, JournalFailure> {
    let mut nothing: Vec<_> = (0..lanes.max(1)).map(|_| NoFold).collect();
    let mut folds: Vec<_> = nothing.iter_mut().map(|fold| fold as &mut dyn Fold).collect();
    rebuild_folding(moment, known, &mut folds, &mut |_| {})
}

/// Reads everything, with one thread for each of `folds` (at least one), which get the records of their runs. `progress` is
/// called with each row.
pub(crate) fn rebuild_folding(
    moment: &StoreMoment,
    known: KnownFinished,
    folds: &mut [&mut dyn Fold],
    progress: &mut dyn FnMut(Progress),
) -> Result<Rebuilt, JournalFailure> {
    let OpenedCount { low, .. } = moment.opened()?;
    let bytes_total = moment.log_end()?.saturating_sub(low);
    let folds = folds.iter_mut().map(|fold| &mut **fold);
    let mut shares: Vec<_> = folds.map(|fold| RebuildShare::new(low, known, fold)).collect();
    let records = AtomicU64::new(0);
    let feed = |share: &mut RebuildShare<'_>, row: &Row<'_>| {
        let before = share.records;
        match row.source {
            FrameSource::KeptHead(run) => return share.kept_head(row, run),
            FrameSource::Inventory(position) => return share.inventory(row, position),
            FrameSource::Kept(_) | FrameSource::Log(_) => {}
        }
        frames::walk_share(row, &mut |position, found| match found {
            Ok((frame, _)) => {
                let is_kept = matches!(row.source, FrameSource::Kept(_));
                share.frame((!is_kept).then_some(position), &frame);
            }
            Err(damage) => share.damage(damage, row.source.run()),
        });
        records.fetch_add(share.records - before, Ordering::Relaxed);
    };
    let mut end = low;
    let mut gaps = Vec::new();
    let whole = LogSpan {
        has_kept: true,
        has_second: true,
        from: low,
        end: u64::MAX,
    };
    each_row(moment, whole, &mut shares, &feed, &mut |source, row| {
        let FrameSource::Log(position) = source else {
            return;
        };
        if position != end {
            let cause = format!("the log goes on at {position}: a piece is missing");
            gaps.push(Damage {
                run: None,
                position: end,
                end: position,
                seems: None,
                cause,
            });
        }
        end = position + row.len().saturating_sub(piece::HEADER_BYTES) as u64;
        let bytes_done = end.saturating_sub(low);
        // The lanes are some rows behind: the end is reported when they have reached it.
        if bytes_done < bytes_total {
            progress(Progress {
                bytes_done,
                bytes_total,
                records: records.load(Ordering::Relaxed),
            });
        }
    })?;
    progress(Progress {
        bytes_done: bytes_total,
        bytes_total,
        records: records.into_inner(),
    });
    Ok(merge(shares, gaps, (low, end)))
}

/// Merges the results of the lanes; finished runs in the order in which they closed.
fn merge(mut shares: Vec<RebuildShare<'_>>, mut strays: Vec<Damage>, (low, end): (u64, u64)) -> Rebuilt {
    for share in &mut shares {
        share.finish();
        strays.append(&mut share.strays);
    }
    let listed_to = shares.iter().map(|share| share.listing.end()).max().unwrap_or(0);
    let mut rebuilt = Rebuilt {
        live: Vec::with_capacity(shares.len()),
        closed: Vec::new(),
        kept: FxHashSet::default(),
        superseded: Vec::new(),
        trim_turns: Vec::new(),
        trims: Trims::default(),
        trimmed: Vec::new(),
        kept_bytes: 0,
        damaged: Damaged::default(),
        records: 0,
        low,
        // A listed part of the log is never overwritten, even if it is lost.
        end: end.max(listed_to),
        listed_to: listed_to.max(low),
    };
    let is_sound = |stray: &Damage| stray.end.max(stray.position + 1) <= listed_to;
    if !strays.iter().all(is_sound) {
        rebuilt.listed_to = rebuilt.end;
    }
    attribute(&mut shares, &mut rebuilt.damaged, strays);
    let mut closed = Vec::new();
    for mut share in shares {
        rebuilt.live.push(share.live);
        rebuilt.damaged.extend(share.damaged);
        rebuilt.records += share.records;
        rebuilt.kept.extend(share.kept);
        rebuilt.superseded.append(&mut share.superseded);
        rebuilt.trim_turns.append(&mut share.trim_turns);
        for (run, (position, sequence)) in share.trims {
            rebuilt.trims.extend(position.map(|position| (run, position)));
            rebuilt.trimmed.push((run, sequence));
        }
        rebuilt.kept_bytes += share.kept_bytes;
        closed.append(&mut share.closed);
    }
    // Moved runs closed before everything in the log; among them the order is by time.
    rebuilt.trim_turns.sort_unstable_by_key(|trim| trim.position);
    closed.sort_unstable_by_key(|(position, finished)| (*position, finished.closed_at, finished.run));
    rebuilt.closed = closed.into_iter().map(|(_, finished)| finished).collect();
    rebuilt
}

/// Attributes damage to the runs whose records it has hit, or may have hit: all live runs that had their last turn before it,
/// unless the damage is a single frame that says more.
fn attribute(shares: &mut [RebuildShare<'_>], damaged: &mut Damaged, strays: Vec<Damage>) {
    for stray in strays {
        let (position, part) = (stray.position, stray.position..stray.end);
        let is_listed = shares.iter().any(|share| share.listing.covers(&part));
        let (seems, run) = (stray.seems.clone(), stray.run);
        // A run that is named by a damaged header need not exist.
        let error = Damage { run: None, ..stray }.into_error();
        if part.is_empty() || is_listed {
            // A run that has lost something is in the report already.
            let is_named = shares.iter().any(|share| share.damaged.names(position));
            if !is_named {
                damaged.places.push(error);
            }
            continue;
        }
        let Some(seems) = seems else {
            for share in &mut *shares {
                share.quarantine_where(&error, |live| live.place.last < position);
            }
            damaged.unknown.push((None, error.clone()));
            damaged.places.push(error);
            continue;
        };
        let mut found = 0;
        if seems.back != v1::NO_BACK {
            for share in &mut *shares {
                let low = share.low;
                found += share.quarantine_where(&error, |live| {
                    live.place.last == seems.back || (seems.back < low && live.place.last < low)
                });
            }
        }
        if found > 0 {
            continue;
        }
        // It may be the first record of a run, of which nothing else is left.
        let of_run = run.map(RunId::partition);
        let of_id = seems.id.as_ref().map(InstanceId::partition);
        if let (Some(run), Some(id)) = (run, seems.id)
            && of_id == of_run
        {
            // The report does not name the run: its number may be what is damaged.
            damaged.quarantine(run, error.clone(), Some(IdHash::of(id.as_str())));
        } else {
            damaged.places.push(error.clone());
        }
        let partitions = [of_run, of_id].into_iter().flatten();
        damaged
            .unknown
            .extend(partitions.map(|partition| (Some(partition), error.clone())));
    }
}

/// The same damage, as an error of this run.
fn of(run: RunId, error: &ReadError) -> ReadError {
    match error {
        ReadError::Damaged { position, cause, .. } => scan::damaged(run, *position, cause),
        other => other.clone(),
    }
}

impl<'a> RebuildShare<'a> {
    fn new(low: u64, known: KnownFinished, fold: &'a mut dyn Fold) -> Self {
        Self {
            fold,
            latest: None,
            low,
            known,
            kept: FxHashSet::default(),
            kept_bytes: 0,
            live: Heads::default(),
            closed: Vec::new(),
            rests: FxHashMap::default(),
            superseded: Vec::new(),
            trim_turns: Vec::new(),
            trims: FxHashMap::default(),
            damaged: Damaged::default(),
            strays: Vec::new(),
            listing: LogListing::default(),
            unended: None,
            records: 0,
        }
    }

    /// Adds the next frame: at a position of the log, or kept outside of it.
    fn frame(&mut self, position: Option<u64>, frame: &Frame<'_>) {
        let begins = frame.has(v1::TURN_FIRST);
        if let Some(run) = self.unended.take_if(|run| begins || *run != frame.run) {
            self.torn(run);
        }
        if let Some(position) = position.filter(|_| begins) {
            let mut lost = Vec::new();
            self.listing.begins(position, frame, &mut lost);
            self.lost(lost);
            if let Some(turn) = self.listing.turn()
                && self.damaged.has(turn.run)
            {
                // The run's first record may be the damaged one.
                self.damaged.is_of(turn.run, turn.id);
            }
        }
        self.unended = Some(frame.run);
        self.take_in(position, frame);
        if frame.has(v1::TURN_LAST) {
            self.unended = None;
            if position.is_some() {
                let mut lost = Vec::new();
                self.listing.ends(frame, &mut lost);
                self.lost(lost);
            }
        }
    }

    fn take_in(&mut self, position: Option<u64>, frame: &Frame<'_>) {
        self.records += 1;
        if position.is_none() {
            self.kept_bytes += frame.len as u64;
        }
        let known = match self.latest {
            Some((run, number)) if run == frame.run => Some(number),
            _ => self.live.find(frame.run),
        };
        if let Some(number) = known {
            if self.live.at(number).1.fits(frame) {
                return self.take(number, position, frame);
            }
        } else if self.damaged.has(frame.run) && !frame.has(v1::TRIMS) {
            if frame.has(v1::CLOSES) {
                self.damaged.closes(frame.run, position.unwrap_or(0));
            }
            return;
        } else if frame.has(v1::OPENS) && frame.sequence.get() == 1 {
            let number = self.live.add(frame.run, LiveRun::default());
            return self.take(number, position, frame);
        } else if !frame.has(v1::TRIMS) && self.is_rest(frame) {
            return;
        }
        if frame.has(v1::TRIMS) {
            return self.begin_anew(known, position, frame);
        }
        let number = known.unwrap_or_else(|| self.live.add(frame.run, LiveRun::default()));
        let expected = self.live.at(number).1.turn.last + 1;
        let cause = format!("expected sequence {expected}, found {}", frame.sequence);
        let error = scan::damaged(frame.run, position.unwrap_or(self.low), &cause);
        self.quarantine(number, error);
        if frame.has(v1::CLOSES) {
            self.damaged.closes(frame.run, position.unwrap_or(0));
        }
    }

    /// Adds a record that trims its run.
    fn begin_anew(&mut self, known: Option<u32>, position: Option<u64>, frame: &Frame<'_>) {
        let run = frame.run;
        match (known.map(|number| self.remove(number).place), position) {
            (Some(before), Some(position)) => self.trim_turns.push(TrimTurn {
                run,
                position,
                before,
            }),
            // It is not known how many records were trimmed.
            (None, position) if self.damaged.forgive(run) && position.is_some() => self.superseded.push(run),
            (_, _) => {}
        }
        self.rests.remove(&run);
        self.trims.insert(run, (position, frame.sequence));
        let number = self.live.add(run, LiveRun::default());
        self.take(number, position, frame);
    }

    /// Adds the next record of a known run.
    fn take(&mut self, number: u32, position: Option<u64>, frame: &Frame<'_>) {
        self.live.at_mut(number).1.push(position, frame);
        self.latest = Some((frame.run, number));
        if frame.has(v1::CLOSES) {
            self.close(number, position, frame);
        } else {
            self.fold.record(heads::index_of(number), scan::view(frame));
        }
    }

    /// Removes a run that has ended, or whose records must not be used.
    fn remove(&mut self, number: u32) -> LiveRun {
        self.latest = None;
        self.fold.forget(heads::index_of(number));
        self.live.remove(number)
    }

    /// Moves a run whose last record was read to the finished ones.
    fn close(&mut self, number: u32, position: Option<u64>, frame: &Frame<'_>) {
        let LiveRun { place, .. } = self.remove(number);
        let is_known = match self.known {
            KnownFinished::Nothing => false,
            KnownFinished::Before(known) => position.is_none() || place.last < known,
            KnownFinished::Everything => true,
        };
        if is_known {
            if place.first < self.low {
                self.kept.insert(frame.run);
            }
            return;
        }
        let finished = Finished {
            run: frame.run,
            id: place.id,
            closed_at: frame.time,
            head: frame.sequence,
            kind: NonZeroU8::new(frame.kind),
            bytes: place.bytes,
            place,
        };
        self.closed.push((position, finished));
    }

    /// Whether a frame in the middle of an unknown run is the remainder of a run that was dropped, or trimmed: then its
    /// previous turn was before the log's present beginning, or it follows such a remainder itself.
    fn is_rest(&mut self, frame: &Frame<'_>) -> bool {
        let sequence = frame.sequence.get();
        let begins = frame.has(v1::TURN_FIRST) && frame.back < self.low;
        let last = self.rests.get_mut(&frame.run);
        if let Some(last) = last.filter(|last| begins || **last + 1 == sequence) {
            *last = sequence;
            return true;
        }
        if begins {
            self.rests.insert(frame.run, sequence);
        }
        begins
    }

    /// Notes damage, in a row that only holds the run `of`, if one is given.
    fn damage(&mut self, damage: Damage, of: Option<RunId>) {
        if let Some(run) = of.filter(|of| damage.run == Some(*of)) {
            return match self.live.find(run) {
                Some(number) => self.quarantine(number, damage.into_error()),
                None => self.damaged.quarantine(run, damage.into_error(), None),
            };
        }
        // A header that cannot be trusted may name a run that does not exist: only a known run is quarantined for it. If the
        // damage is a single frame, no other run is hit; if it is more, others may have lost records too.
        let Some(number) = damage.run.and_then(|run| self.live.find(run)) else {
            return self.strays.push(damage);
        };
        self.quarantine(number, damage.clone().into_error());
        if damage.seems.is_none() {
            self.strays.push(damage);
        }
    }

    /// Removes a live run because of damage.
    fn quarantine(&mut self, number: u32, error: ReadError) {
        let (run, live) = self.live.at(number);
        let id = live.place.id;
        self.remove(number);
        self.damaged.quarantine(run, error, Some(id));
    }

    /// Removes all live runs for which `is_hit` holds, and returns how many.
    fn quarantine_where(&mut self, error: &ReadError, is_hit: impl Fn(&LiveRun) -> bool) -> usize {
        let hit = self.live.iter().filter(|(_, live)| is_hit(live));
        let hit: Vec<_> = hit.map(|(run, _)| run).collect();
        for run in &hit {
            if let Some(number) = self.live.find(*run) {
                self.quarantine(number, of(*run, error));
            }
        }
        hit.len()
    }

    /// Listed turns are not where they should be.
    fn lost(&mut self, turns: Vec<Listed>) {
        for turn in turns {
            if turn.position < self.low {
                continue;
            }
            let cause = format!("the turn up to record {} is missing or damaged", turn.last);
            let error = scan::damaged(turn.run, turn.position, &cause);
            match self.live.find(turn.run) {
                Some(number) => self.quarantine(number, error),
                // The remainder of a dropped run has no beginning.
                None if turn.first < self.low && !self.damaged.has(turn.run) => {}
                None => self.damaged.quarantine(turn.run, error, Some(turn.id)),
            }
            if turn.closes {
                self.damaged.closes(turn.run, turn.position);
            }
        }
    }

    /// The run's last turn has no end.
    fn torn(&mut self, run: RunId) {
        if let Some(number) = self.live.find(run) {
            let position = self.live.at(number).1.place.last;
            let error = scan::damaged(run, position, &"the end of its turn is missing or damaged");
            self.quarantine(number, error);
        }
    }

    /// Compares how far the kept turns of a run should reach with what was read; all of them have been read.
    fn kept_head(&mut self, row: &Row<'_>, run: RunId) {
        if !row.is_mine(None) {
            return;
        }
        let Some(head) = kept_head::read(run, row.bytes) else {
            // The turns that it describes have been read and look undamaged.
            let error = scan::damaged(
                run,
                0,
                &"the row that says how far its kept turns reach is damaged",
            );
            return self.damaged.places.push(error);
        };
        let cause = format!(
            "its kept turns reach to record {}, and some are missing",
            head.last
        );
        let error = scan::damaged(run, 0, &cause);
        match self.live.find(run) {
            Some(number) if self.live.at(number).1.turn.last == head.last => {}
            Some(number) => self.quarantine(number, error),
            None => self.damaged.quarantine(run, error, Some(head.id)),
        }
    }

    /// Adds the list of turns that should be in the log from `position` on.
    fn inventory(&mut self, row: &Row<'_>, position: u64) {
        let taken = self.listing.add(row.bytes, &|run| row.is_mine(Some(run)));
        if let Err(error) = taken
            && row.is_first()
        {
            self.damaged.places.push(ReadError::Damaged {
                run: None,
                position,
                cause: error.to_string(),
            });
        }
    }

    /// Everything has been read.
    fn finish(&mut self) {
        if let Some(run) = self.unended.take() {
            self.torn(run);
        }
        let mut lost = Vec::new();
        self.listing.finish(&mut lost);
        self.lost(lost);
    }
}

impl LiveRun {
    /// Whether the frame is the run's next.
    fn fits(&self, frame: &Frame<'_>) -> bool {
        frame.sequence.get() == u64::from(self.turn.last) + 1 && !frame.has(v1::OPENS)
    }

    fn push(&mut self, position: Option<u64>, frame: &Frame<'_>) {
        let place = &mut self.place;
        if let Some(id) = frame.id {
            place.id = IdHash::of(id);
            place.first = position.unwrap_or(0);
        }
        place.bytes += frame.len as u64;
        match position {
            Some(position) if frame.has(v1::TURN_FIRST) => place.last = position,
            Some(_) | None => {}
        }
        self.turn.push(frame);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::Arc;

    use millrun_core::{Epoch, InstanceId, Sequence, Timestamp};

    use super::*;
    use crate::batch::{Batch, TurnHeader};
    use crate::redb::commit::queued::Piece;
    use crate::redb::database::store::Store;
    use crate::redb::file::disk::FileDisk;

    /// Thirty runs of several turns in a store of ten commits; every third one closes.
    fn store(folder: &tempfile::TempDir) -> Store {
        let disk = FileDisk::create(&folder.path().join("store")).unwrap();
        let store = Store::open(Arc::new(disk), 1 << 20).unwrap();
        store.count_open().unwrap();
        let mut end = 0;
        for turn in 0..10 {
            let mut batch = Batch::new();
            for number in 0..30 {
                let id = InstanceId::new(&format!("run-{number}")).unwrap();
                let time = Timestamp::from_micros(1_000 + turn);
                let header = TurnHeader {
                    run: RunId::new(id.partition(), Timestamp::EPOCH, number),
                    head: Sequence::new(turn),
                    epoch: Epoch::new(1),
                    time,
                    opens: (turn == 0).then_some(&id),
                };
                let mut writer = batch.turn(header);
                let encode = |body: &mut Vec<u8>| {
                    body.resize(body.len() + 300, 1);
                    Ok::<_, Infallible>(())
                };
                writer.record(1, encode).unwrap();
                writer.finish(turn == 9 && number % 3 == 0).unwrap();
            }
            let frames: Vec<u8> = batch
                .spans()
                .iter()
                .flat_map(|turn| batch.frames(turn).to_vec())
                .collect();
            let piece = Piece {
                start: end,
                bytes: frames.clone(),
                ..Piece::default()
            };
            store.commit(&piece, None).unwrap();
            end += frames.len() as u64;
        }
        store
    }

    #[test]
    fn any_number_of_lanes_finds_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        let read = |lanes| {
            let found = rebuild(&store.moment().unwrap(), KnownFinished::Nothing, lanes).unwrap();
            let heads: BTreeMap<_, _> = found
                .live
                .iter()
                .flat_map(Heads::iter)
                .map(|(run, live)| (run, (live.turn, live.place.last)))
                .collect();
            let finished: Vec<_> = found.closed.iter().map(|finished| finished.run).collect();
            assert!(found.damaged.list().is_empty());
            (heads, finished, found.records, found.end)
        };
        let one = read(1);
        assert_eq!((one.0.len(), one.1.len(), one.2), (20, 10, 300));
        for lanes in 2..=5 {
            assert_eq!(read(lanes), one, "{lanes} lanes");
        }
    }
}
