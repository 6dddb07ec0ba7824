//! What producers, readers and the writer share: the open buffer, the conditions, the watermark.
//!
//! ```text
//!   producers ──► open piece ──(writer seals it)──► sealed piece ──commit──► durable
//!                     ▲                                     │
//!                     └───────────── buffer reused ◄────────┘
//! ```
//!
//! One lock guards all of it; it is never held during disk access, and no other lock of ours is taken while it is held. A
//! reader takes its moment of the store under it, so that both agree on what is settled.

use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Bell, Epoch, Offset, Partition, RunId, Sequence, Timestamp};

use rustc_hash::{FxHashMap, FxHashSet};

use super::commit::held::HeldTrims;
use super::commit::queued::{Piece, RingAt, TrimTurn, UNLISTED_BYTES_MAX, UNLISTED_LEN_MAX, Unlisted};
use super::commit::snapshots::Snapshots;
use super::commit::unwritten::{self, UnwrittenRows, UnwrittenRuns};
use super::finished::finished_runs::{self, FinishedRuns};
use super::opening::claim_queue::ClaimQueue;
use super::opening::rebuild::Rebuilt;
use super::opening::recover::{Runs, Trims, WantedRuns};
use super::records::damaged::Damaged;
use super::records::lanes::LogSpan;
use super::topics::{FoundTopics, RedbTopics, SealedChunk, TopicsCommitted};
use crate::batch::{Batch, TurnSpan};
use crate::claim::{Claim, ClaimRefused, Claimant};
use crate::conditions::{Conditions, Head, narrow, rests_on_refused};
use crate::config::{Durability, JournalConfig};
use crate::error::{EnqueueError, JournalFailure, SnapshotRefused, TurnRefused};
use crate::finished::{Finished, IdHash, Place};
use crate::heads::Heads;
use crate::journal::{Enqueued, RefusedTurn, Ringing, Stats};
use crate::record::Snapshot;
use crate::scan;
use crate::topics::TopicAppend;
use crate::upkeep::Upkeeps;
use crate::wire::inventory::Listed;
use crate::wire::v1;

#[derive(Debug)]
pub(crate) struct JournalState {
    batch_bytes_max: usize,
    batch_len_max: usize,
    pub(super) conditions: Conditions<Place>,
    pub(crate) claims: ClaimQueue,
    /// The offset up to which everything is in the store.
    pub(crate) written: Offset,
    /// The highest epoch whose takeovers the store counts, queued ones included.
    counted: Epoch,
    pub(crate) finished: FinishedRuns,
    /// Set where turns are acknowledged before they are written.
    unwritten: Option<UnwrittenRuns>,
    pub(crate) damaged: Damaged,
    pub(crate) snapshots: Snapshots,
    pub(super) topics: RedbTopics,
    pub(crate) open: Piece,
    sealed: Option<Arc<Piece>>,
    /// A buffer to use again.
    spare: Vec<u8>,
    spare_finishing: Vec<Finished<Place>>,
    unlisted: Unlisted,
    pub(crate) ring_at: RingAt,
    /// A producer got `Full` since the last commit.
    pub(crate) was_full: bool,
    pub(crate) is_closing: bool,
    /// A compaction was asked for.
    pub(crate) is_compacting: bool,
    pub(crate) compactions: u64,
    pub(crate) archived_runs: u64,
    pub(crate) is_archive_failing: bool,
    pub(crate) failure: Option<JournalFailure>,
    pub(crate) watchers: Vec<Bell>,
    pub(crate) upkeeps: Upkeeps,
    /// An upkeep waits for the archive: it must be written now, also after a failure.
    pub(crate) is_archive_asked: bool,
    /// Bytes of live runs.
    live_bytes: u64,
    /// Bytes of turns outside of the log.
    pub(crate) kept_bytes: u64,
    /// Where the log begins.
    pub(crate) low: u64,
    /// Runs that are not retained any more, or were trimmed, and whose kept turns can be removed.
    pub(crate) gone: Vec<RunId>,
    /// Where in the log the turns begin that trimmed runs, as far as they are durable: the records of those runs before are
    /// dead.
    trims: Trims,
    held: HeldTrims,
    /// A damaged row is at the log's beginning.
    pub(crate) is_settling_blocked: bool,
    commits: u64,
    turns: u64,
    bytes: u64,
    last_commit: Duration,
}

/// The last turn of a run that has closed.
fn last_turn_of(finished: &Finished<Place>) -> Listed {
    Listed {
        position: finished.place.last,
        run: finished.run,
        last: narrow(finished.head),
        closes: true,
        id: finished.id,
        first: finished.place.first,
    }
}

impl JournalState {
    /// `gone` are the dropped runs that have kept turns, `snapshots` the runs that have a snapshot.
    pub(crate) fn new(
        config: &JournalConfig,
        epoch: Epoch,
        rebuilt: Rebuilt,
        closed: FinishedRuns,
        gone: Vec<RunId>,
        snapshots: impl IntoIterator<Item = RunId>,
        topics: FoundTopics,
    ) -> Self {
        let mut conditions = Conditions::new(epoch, config.turn_bytes_max);
        let mut live_bytes = 0;
        let mut unlisted = Unlisted {
            from: rebuilt.listed_to,
            ..Unlisted::default()
        };
        let waiting = closed.waiting.list(0);
        let waiting = waiting.filter(|finished| finished.place.last >= rebuilt.listed_to);
        unlisted.closed.extend(waiting.map(last_turn_of));
        for (run, live) in rebuilt.live.iter().flat_map(Heads::iter) {
            live_bytes += live.place.bytes;
            if live.place.last >= rebuilt.listed_to {
                unlisted.live.push(run);
            }
            conditions.restore(run, live.turn, live.place);
        }
        let (stored, removed) = snapshots
            .into_iter()
            .partition(|run| conditions.head(*run).is_some());
        let snapshots = Snapshots::new(config.snapshot_bytes_max, stored, removed);
        Self {
            batch_bytes_max: config.batch_bytes_max,
            batch_len_max: config.batch_len_max,
            conditions,
            claims: ClaimQueue::default(),
            written: Offset::ZERO,
            counted: epoch,
            finished: closed,
            unwritten: (config.durability != Durability::Durable).then(UnwrittenRuns::default),
            damaged: rebuilt.damaged,
            snapshots,
            topics: RedbTopics::new(config, topics),
            open: Piece {
                start: rebuilt.end,
                ..Piece::default()
            },
            sealed: None,
            spare: Vec::new(),
            spare_finishing: Vec::new(),
            unlisted,
            ring_at: RingAt::NEVER,
            was_full: false,
            is_closing: false,
            is_compacting: false,
            compactions: 0,
            archived_runs: 0,
            is_archive_failing: false,
            failure: None,
            watchers: Vec::new(),
            upkeeps: Upkeeps::default(),
            is_archive_asked: false,
            live_bytes,
            kept_bytes: rebuilt.kept_bytes,
            low: rebuilt.low,
            gone,
            trims: rebuilt.trims,
            held: HeldTrims::default(),
            is_settling_blocked: false,
            commits: 0,
            turns: 0,
            bytes: 0,
            last_commit: Duration::ZERO,
        }
    }

    /// Adds a sealed batch to the open piece. Returns whether to ring the writer.
    pub(crate) fn enqueue(&mut self, batch: &Batch) -> Result<(Enqueued, bool), EnqueueError> {
        self.check_open()?;
        let queued_len = self.open.turns + self.topics.table.queued_len;
        let has_room = self.queued_bytes() + batch.bytes() <= self.batch_bytes_max
            && queued_len + batch.turns() + batch.topic_records() <= self.batch_len_max;
        if !has_room && queued_len > 0 {
            self.was_full = true;
            return Err(EnqueueError::Full);
        }
        let bytes = self.open.bytes.len();
        let mut refused = Vec::new();
        let (spans, mut index) = (batch.spans(), 0);
        while let Some(turn) = spans.get(index) {
            if turn.group > 1 {
                index = self.enqueue_group(batch, index, &mut refused);
                continue;
            }
            if rests_on_refused(turn, index, &refused) {
                let error = TurnRefused::ReadAgain;
                refused.push(RefusedTurn { turn: index, error });
            } else if let Err(error) = self.admit(turn, batch.frames(turn)) {
                refused.push(RefusedTurn { turn: index, error });
            }
            index += 1;
        }
        let taken = batch.spans().len() - refused.len();
        let (topic_appends, appended) = self.append_to_topics(batch, &refused);
        if taken > 0 || appended {
            self.open.turns += taken;
            self.live_bytes += (self.open.bytes.len() - bytes) as u64;
            self.open.batches += batch.callers();
            self.open.offset = self.open.offset.next();
        }
        let offset = self.open.offset;
        let enqueued = Enqueued {
            offset,
            refused,
            topic_appends,
        };
        Ok((enqueued, self.rings()))
    }

    /// Takes the records of topics of a batch, of which these turns were refused. Returns whether any was taken.
    #[inline]
    fn append_to_topics(&mut self, batch: &Batch, refused: &[RefusedTurn]) -> (Vec<TopicAppend>, bool) {
        let Some(records) = batch.topics() else {
            return (Vec::new(), false);
        };
        let queued = self.topics.table.queued_len;
        let owners = &self.conditions.owners;
        let appends = self.topics.table.append(records, refused, owners);
        (appends, self.topics.table.queued_len > queued)
    }

    /// Bytes that wait for the next commit.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.open.bytes.len() + self.topics.table.queued_bytes
    }

    /// Records of topics that are being committed.
    pub(super) fn sealed_topics(&self) -> impl Iterator<Item = &SealedChunk> + '_ {
        let sealed = self.sealed.iter().filter_map(|sealed| sealed.topics.as_deref());
        sealed.flat_map(|writes| &writes.chunks)
    }

    /// Takes the group that begins with this turn, or refuses it as a whole; returns the index of the next turn.
    #[cold]
    fn enqueue_group(&mut self, batch: &Batch, first: usize, refused: &mut Vec<RefusedTurn>) -> usize {
        let group = batch.group_at(first);
        let turns = &batch.spans()[group.clone()];
        let errors = if rests_on_refused(&turns[0], first, refused) {
            Some(vec![TurnRefused::ReadAgain; turns.len()])
        } else {
            let is_last = |turn: &TurnSpan, head: &Head<Place>| head.digest == turn.digest;
            let is_damaged = |run| self.damaged.has(run);
            self.conditions.refuse_group(turns, is_damaged, is_last)
        };
        if let Some(errors) = errors {
            let errors = group.clone().zip(errors);
            refused.extend(errors.map(|(turn, error)| RefusedTurn { turn, error }));
            return group.end;
        }
        for (index, turn) in group.clone().zip(turns) {
            if let Err(error) = self.admit(turn, batch.frames(turn)) {
                refused.push(RefusedTurn { turn: index, error });
            }
        }
        group.end
    }

    fn admit(&mut self, turn: &TurnSpan, frames: &[u8]) -> Result<(), TurnRefused> {
        if self.damaged.has(turn.run) {
            return Err(TurnRefused::Quarantined);
        }
        let open = &mut self.open;
        let position = open.end();
        let mut back = v1::NO_BACK;
        let trims = &mut open.trims;
        let put = |place: &mut Place| {
            if turn.opens {
                place.first = position;
                place.id = scan::id_hash(frames);
            } else {
                back = place.last;
                if turn.trims {
                    trims.push(TrimTurn {
                        run: turn.run,
                        position,
                        before: *place,
                    });
                    (place.first, place.bytes) = (position, 0);
                }
            }
            place.last = position;
            place.bytes += frames.len() as u64;
        };
        let is_last = |head: &Head<Place>| head.digest == turn.digest;
        let closed = self.conditions.admit(turn, put, is_last)?;
        let at = open.bytes.len();
        open.bytes.extend_from_slice(frames);
        v1::set_back(&mut open.bytes[at..], back);
        if let Some(place) = closed {
            let finished = Finished {
                run: turn.run,
                id: place.id,
                closed_at: turn.time,
                head: turn.last,
                kind: NonZeroU8::new(turn.last_kind),
                bytes: place.bytes,
                place,
            };
            self.unlisted.closed.push(last_turn_of(&finished));
            open.finishing.push(finished);
            if let Some(unwritten) = &mut self.unwritten {
                unwritten.add(finished);
            }
        } else if back < self.unlisted.from || turn.opens {
            self.unlisted.live.push(turn.run);
        }
        Ok(())
    }

    /// See [`Journal::read_again`](crate::Journal::read_again).
    pub(crate) fn read_again(&mut self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused> {
        if self.damaged.runs.contains_key(&run) {
            return Err(TurnRefused::Quarantined);
        }
        self.conditions.read_again(run, epoch)
    }

    /// Takes a snapshot of a live run for the next commit.
    pub(crate) fn put_snapshot(&mut self, snapshot: Snapshot) -> Result<(), SnapshotRefused> {
        self.check_open()?;
        let head = self
            .conditions
            .head(snapshot.run)
            .ok_or(SnapshotRefused::NotLive)?;
        let head = Sequence::new(u64::from(head.last));
        if snapshot.sequence > head {
            return Err(SnapshotRefused::Ahead { head });
        }
        let (bytes, max) = (snapshot.bytes.len(), self.snapshots.bytes_max());
        if bytes > max {
            return Err(SnapshotRefused::TooLarge { bytes, max });
        }
        if self.snapshots.put(snapshot) {
            Ok(())
        } else {
            self.was_full = true;
            Err(SnapshotRefused::Full)
        }
    }

    /// Whether turns and snapshots are still taken.
    pub(crate) fn check_open(&self) -> Result<(), JournalFailure> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None if self.is_closing => Err(JournalFailure::closed()),
            None => Ok(()),
        }
    }

    /// Whether turns wait to be listed in the log's inventory.
    pub(crate) fn has_unlisted(&self) -> bool {
        self.unlisted.len() > 0
    }

    /// The last turns of those of `runs` that are live and have had none from the log position `end` on; the others are
    /// listed with their later turns.
    pub(crate) fn list(&self, runs: &[RunId], end: u64, listed: &mut Vec<Listed>) {
        let heads = runs
            .iter()
            .filter_map(|run| Some((*run, self.conditions.head(*run)?)));
        let heads = heads.filter(|(_, head)| head.place.last < end);
        listed.extend(heads.map(|(run, head)| Listed {
            position: head.place.last,
            run,
            last: head.last,
            closes: false,
            id: head.place.id,
            first: head.place.first,
        }));
    }

    /// Hands the open piece to the writer and opens the next one, at this elapsed time.
    pub(crate) fn seal(&mut self, elapsed: Duration) -> Arc<Piece> {
        for closed in &mut self.open.finishing {
            closed.closed_at = self.finished.age.see(closed.closed_at, elapsed);
        }
        self.open.topics = self.topics.seal(&mut self.finished.age, elapsed);
        self.open.aged = self.finished.age.next_to_store();
        self.open.trims_archived = self.held.next_to_store();
        let finishing = self.open.finishing.iter().map(|closed| closed.run);
        let trimmed = self.open.trims.iter().map(|trim| trim.run);
        self.open.snapshots = self.snapshots.seal(finishing.chain(trimmed));
        self.open.low = self.low;
        let end = self.open.end();
        let is_long = end.saturating_sub(self.unlisted.from) >= UNLISTED_BYTES_MAX;
        if self.has_unlisted() && (is_long || self.is_closing || self.unlisted.len() >= UNLISTED_LEN_MAX) {
            let next = Unlisted {
                from: end,
                ..Unlisted::default()
            };
            self.open.unlisted = Some(std::mem::replace(&mut self.unlisted, next));
        }
        let next = Piece {
            start: end,
            bytes: std::mem::take(&mut self.spare),
            offset: self.open.offset,
            finishing: std::mem::take(&mut self.spare_finishing),
            ..Piece::default()
        };
        let sealed = Arc::new(std::mem::replace(&mut self.open, next));
        self.sealed = Some(Arc::clone(&sealed));
        self.ring_at = RingAt::NEVER;
        self.was_full = false;
        sealed
    }

    /// Notes that the sealed piece is durable. Returns the time for which retention must be applied, if any run has closed.
    pub(in crate::redb) fn committed(
        &mut self,
        piece: Arc<Piece>,
        topics: &TopicsCommitted,
        took: Duration,
    ) -> Option<Timestamp> {
        self.sealed = None;
        if let Some(writes) = &piece.topics {
            self.topics.committed(writes, topics);
            self.bytes += writes.bytes();
        }
        self.written = piece.offset;
        self.commits += 1;
        self.turns += piece.turns as u64;
        self.bytes += piece.bytes.len() as u64;
        self.last_commit = took;
        for trim in &piece.trims {
            self.trims.insert(trim.run, trim.position);
            if !self.held.hold(trim) {
                self.let_go(trim);
            }
        }
        for closed in &piece.finishing {
            self.live_bytes -= closed.bytes;
            self.finished.waiting.add(*closed);
            if let Some(unwritten) = &mut self.unwritten {
                unwritten.remove(closed);
            }
        }
        let trimmed_at = piece.finishing.last().map(|_| self.finished.age.now());
        // A reader may hold the piece for a moment; then its memory is not reused.
        if let Ok(piece) = Arc::try_unwrap(piece) {
            (self.spare, self.spare_finishing) = (piece.bytes, piece.finishing);
            self.spare.clear();
            self.spare_finishing.clear();
            self.spare.shrink_to(self.batch_bytes_max);
        }
        trimmed_at
    }

    /// From now on trimmed records are kept until they are archived; everything below the position `archived` of the log is.
    /// `found` are the turns in the log that have trimmed runs and whose trimmed records are all still there.
    pub(super) fn archive_trims(&mut self, archived: u64, found: &[TrimTurn]) {
        self.held = HeldTrims::archiving(archived);
        for trim in found {
            if self.held.hold(trim) {
                self.live_bytes += trim.before.bytes;
            }
        }
    }

    /// The trims that wait for the archive.
    pub(super) fn held(&self) -> &HeldTrims {
        &self.held
    }

    /// The first of the [held](Self::held) trims are archived, except the damaged ones. Damaged data are not given up:
    /// nothing is removed from the log any more until the store is repaired. The run continues after it.
    pub(super) fn archived_trims(&mut self, archived: &[TrimTurn], damaged: &[TrimTurn]) {
        self.held.release(archived.len(), damaged.len());
        if !damaged.is_empty() {
            self.block_settling();
        }
        for trim in archived {
            self.let_go(trim);
        }
    }

    /// The records that a run was trimmed of are not needed any more.
    fn let_go(&mut self, trim: &TrimTurn) {
        self.live_bytes -= trim.before.bytes;
        if trim.before.first < self.low {
            self.gone.push(trim.run);
        }
    }

    /// Drops the finished runs that retention does not keep, as far as they are known.
    pub(crate) fn trim(&mut self, now: Timestamp) -> finished_runs::TrimStep {
        let (low, gone) = (self.low, &mut self.gone);
        self.finished.trim(now, |dropped| {
            if dropped.place.first < low {
                gone.push(dropped.run);
            }
        })
    }

    /// Whether the archive must get something before it may be dropped.
    pub(super) fn is_archive_due(&self) -> bool {
        self.finished.is_archive_wanted || !self.held.is_empty()
    }

    /// Notes that the log now begins at `low`.
    pub(super) fn begins_at(&mut self, low: u64) {
        self.low = low;
        self.trims.retain(|_, position| *position >= low);
    }

    /// For those of these runs that were trimmed in the log: the place before which nothing is needed any more.
    pub(super) fn trimmed(&self, runs: &FxHashSet<RunId>) -> FxHashMap<RunId, u64> {
        let trims = runs.iter().filter_map(|run| Some((*run, *self.trims.get(run)?)));
        let mut trims: FxHashMap<_, _> = trims.collect();
        self.held.keep(&mut trims);
        trims
    }

    /// The wanted records of these runs: all except those that they were trimmed of.
    pub(super) fn wanted(&self, runs: Runs) -> WantedRuns {
        let trims = self.trims.iter().filter(|(run, _)| runs.contains(run));
        WantedRuns {
            trims: trims.map(|(run, position)| (*run, *position)).collect(),
            runs,
        }
    }

    /// Gives a claim its partitions, under new epochs.
    pub(super) fn own(
        &mut self,
        claim: &Claim,
        takes: bool,
    ) -> Result<(Vec<(Partition, Epoch)>, Ringing), ClaimRefused> {
        let taken = if takes {
            self.conditions.owners.take(claim)
        } else {
            self.conditions.owners.claim(claim)?
        };
        self.conditions.trust(claim.partitions());
        self.count_takeovers();
        Ok(taken)
    }

    /// Gives the partitions a new epoch, and no owner. Returns whether to ring the writer.
    pub(crate) fn take_over(&mut self, partitions: &[Partition]) -> (Epoch, Ringing, bool) {
        let (epoch, told) = self.conditions.owners.take_over(partitions);
        self.conditions.trust(partitions);
        self.count_takeovers();
        (epoch, told, self.rings())
    }

    pub(super) fn release(&mut self, claimant: &Claimant, partitions: &[Partition]) {
        self.conditions.owners.release(claimant, partitions);
    }

    /// The store counts every taking of a partition but the first of an opening as an opening: if a partition was taken more
    /// often than was counted, this is written with the next commit.
    fn count_takeovers(&mut self) {
        let newest = self.conditions.owners.newest();
        if newest.takeover() <= self.counted.takeover().max(1) {
            return;
        }
        self.counted = newest;
        self.open.opens = Some(u64::from(newest.opening()) + u64::from(newest.takeover()) - 1);
        self.open.batches += 1;
        self.open.offset = self.open.offset.next();
    }

    /// Has the changed rows of topics written with the next commit, also when nothing else is queued. Returns the offset at
    /// which they are durable, and whether to ring the writer.
    pub(super) fn queue_change_of_topics(&mut self) -> (Offset, bool) {
        self.open.batches += 1;
        self.open.offset = self.open.offset.next();
        (self.open.offset, self.rings())
    }

    fn rings(&self) -> bool {
        self.open.len() >= self.ring_at.turns || self.queued_bytes() >= self.ring_at.bytes
    }

    /// The runs that are live.
    pub(crate) fn live(&self) -> Runs {
        self.conditions.heads().iter().map(|(run, _)| run).collect()
    }

    /// The live runs of those partitions that are still owned under these epochs.
    pub(super) fn live_of(&self, given: &[(Partition, Epoch)]) -> Runs {
        let mut is_wanted = vec![false; usize::from(Partition::COUNT)];
        for (partition, epoch) in given {
            let is_owned = self.conditions.owners.check(*partition, *epoch).is_ok();
            is_wanted[usize::from(partition.index())] = is_owned;
        }
        let heads = self.conditions.heads().iter().map(|(run, _)| run);
        heads
            .filter(|run| is_wanted[usize::from(run.partition().index())])
            .collect()
    }

    /// Where the records of live runs are, in a moment of the store whose log begins at `low`: a commit that the state does
    /// not know of yet may have moved its beginning.
    pub(crate) fn live_span(&self, low: u64) -> LogSpan {
        let heads = self.conditions.heads().iter();
        self.span(heads.map(|(_, head)| head.place.first).min(), low)
    }

    /// As [`live_span`](Self::live_span), of some live runs.
    pub(super) fn span_of(&self, runs: impl Iterator<Item = RunId>, low: u64) -> LogSpan {
        let heads = runs.filter_map(|run| self.conditions.head(run));
        self.span(heads.map(|head| head.place.first).min(), low)
    }

    /// Everything from a first record on.
    fn span(&self, first: Option<u64>, low: u64) -> LogSpan {
        let end = self.durable_end();
        let first = first.unwrap_or(end);
        LogSpan {
            has_kept: first < low,
            has_second: false,
            from: first.max(low).min(end),
            end,
        }
    }

    pub(crate) fn is_live(&self, run: RunId) -> bool {
        self.conditions.head(run).is_some()
    }

    /// Where the durable part of the log ends.
    pub(crate) fn durable_end(&self) -> u64 {
        self.sealed
            .as_ref()
            .map_or(self.open.start, |sealed| sealed.start)
    }

    /// Where the readable part of the log ends: all that is acknowledged comes before.
    pub(crate) fn readable_end(&self) -> u64 {
        match self.unwritten {
            Some(_) => self.open.end(),
            None => self.durable_end(),
        }
    }

    /// The latest finished run of an instance that is acknowledged and not written.
    pub(crate) fn unwritten_of(&self, id: IdHash) -> Option<&Finished<Place>> {
        self.unwritten.as_ref()?.latest(id)
    }

    /// The turns of the run at this place that are acknowledged and not written.
    pub(crate) fn unwritten_rows(&self, place: &Place) -> UnwrittenRows {
        if self.unwritten.is_none() || place.last < self.durable_end() {
            return Vec::new();
        }
        let sealed = self.sealed.iter().map(|sealed| &**sealed);
        let pieces: Vec<_> = sealed.chain([&self.open]).collect();
        unwritten::rows_of(place, &pieces)
    }

    /// Where the run's readable records are; `None` if it has none, or is settled.
    pub(crate) fn readable_place(&self, run: RunId) -> Option<Place> {
        let live = self.conditions.head(run).map(|head| &head.place);
        if let Some(unwritten) = &self.unwritten {
            let finished = || unwritten.run(run).or_else(|| self.finished.waiting.run(run));
            return live
                .or_else(|| finished().map(|finished| &finished.place))
                .copied();
        }
        let place = live
            .or_else(|| self.finishing(run))
            .or_else(|| self.finished.waiting.run(run).map(|finished| &finished.place))?;
        let place = self.before_trim(run).unwrap_or(place);
        let mut last = place.last;
        while last != v1::NO_BACK && last >= self.durable_end() {
            let sealed = self.sealed.as_ref().and_then(|sealed| sealed.at(last));
            last = v1::back(sealed.or_else(|| self.open.at(last))?)?;
        }
        (last != v1::NO_BACK).then_some(Place { last, ..*place })
    }

    /// The place of a run before its first queued turn that trims it.
    fn before_trim(&self, run: RunId) -> Option<&Place> {
        let sealed = self.sealed.iter().flat_map(|sealed| &sealed.trims);
        sealed
            .chain(&self.open.trims)
            .find(|trim| trim.run == run)
            .map(|trim| &trim.before)
    }

    /// The place of a run that closes in a queued batch.
    fn finishing(&self, run: RunId) -> Option<&Place> {
        let sealed = self.sealed.iter().flat_map(|sealed| &sealed.finishing);
        sealed
            .chain(&self.open.finishing)
            .find(|closed| closed.run == run)
            .map(|closed| &closed.place)
    }

    /// By how much the dead part of the log exceeds what may stay: `slack` bytes and half as much as is needed.
    pub(crate) fn excess(&self, slack: u64) -> u64 {
        let needed = (self.live_bytes + self.finished.bytes()).saturating_sub(self.kept_bytes);
        self.durable_end()
            .saturating_sub(self.low)
            .saturating_sub(needed + needed / 2 + slack)
    }

    /// Nothing is removed from the log any more: a row at its beginning is damaged, or it is not known what of it is needed.
    pub(crate) fn block_settling(&mut self) {
        self.is_settling_blocked = true;
        tracing::error!(
            position = self.low,
            "the log cannot be shortened: what stands at its beginning is damaged; it grows until the store is mended"
        );
    }

    /// Whether the run is live, waits to be settled, or is quarantined.
    pub(crate) fn is_unsettled(&self, run: RunId) -> bool {
        self.conditions.head(run).is_some()
            || self.finished.waiting.run(run).is_some()
            || self.damaged.has(run)
    }

    /// The runs that close in queued batches.
    pub(crate) fn finishing_runs(&self) -> Runs {
        let sealed = self.sealed.iter().flat_map(|sealed| &sealed.finishing);
        sealed
            .chain(&self.open.finishing)
            .map(|closed| closed.run)
            .collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let queued = self.queued_bytes() + self.sealed.as_ref().map_or(0, |sealed| sealed.bytes.len());
        Stats {
            live_runs: self.conditions.heads().len() as u64,
            finished_runs: self.finished.len(),
            dropped_runs: self.finished.dropped(),
            live_bytes: self.live_bytes + self.finished.bytes(),
            log_bytes: self.durable_end().saturating_sub(self.low) + self.kept_bytes,
            queued_bytes: queued as u64,
            index_bytes: self.conditions.memory_bytes()
                + self.finished.memory_bytes()
                + self.snapshots.memory_bytes()
                + self.topics.table.ids.memory_bytes(),
            commits: self.commits,
            turns: self.turns,
            bytes: self.bytes,
            compactions: self.compactions,
            is_compacting: self.is_compacting,
            archived_runs: self.archived_runs,
            archived_parts: self.held.archived_parts(),
            held_parts: self.held.len() as u64,
            is_archive_failing: self.is_archive_failing,
            is_retention_stopped: self.is_settling_blocked
                || self.finished.is_blocked()
                || self.topics.is_blocked(),
            topics: self.topics.table.named_len() as u64,
            topic_bytes: self.topics.table.bytes(),
            last_commit: self.last_commit,
            ..Stats::default()
        }
    }
}
