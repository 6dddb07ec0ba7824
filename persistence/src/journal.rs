//! The storage port: atomic batches in, ordered records out.
//!
//! ```text
//!   enqueue ──► conditions ──► open buffer ──► commit ──► high watermark ──► bells
//!                  │ refused turns                │
//!                  ▼ (named, nothing else         ▼ history · finished · recover
//!                     is touched)                   read what is durable · snapshot · resolve
//! ```
//!
//! It has two halves. What [`Journal`] itself has never waits for a disk: a shard calls it on its turn. What may wait is
//! in [`Reads`], which is called on threads that may be held up.
//!
//! Left out on purpose: the meaning of records (their kind and body are opaque), and waiting
//! (a caller watches with a [`Bell`]).

use std::fmt;
use std::time::Duration;

use millrun_core::{Bell, Epoch, InstanceId, Offset, Partition, RunId, Sequence, Timestamp};

use crate::batch::Batch;
use crate::claim::{Claim, Claimant};
use crate::error::{EnqueueError, JournalFailure, ReadError, SnapshotRefused, TurnRefused};
use crate::nodes::SharedStore;
use crate::record::{FinishedRun, History, HistoryPage, RecordView, Snapshot};
use crate::resolve::{self, Resolved};
use crate::search::{self, FinishedFound, FinishedSearch};
use crate::together::{self, EachRead, ToRead};
use crate::topics::{TopicAppend, TopicStreams};
use crate::upkeep::{UpkeepNumber, UpkeepUndone};

/// Where turns become durable. One journal is one store.
///
/// # Ordering
/// Turns are checked and applied in the order in which they are enqueued, by whichever threads;
/// they become durable in that order too: what survives a crash is a prefix of it that holds
/// every turn at or below a watermark that anybody has seen.
///
/// # Failure
/// The first failure stops a journal for good (see [`JournalFailure`]). What was durable can
/// still be read as far as the disk allows; reopening the store recovers all of it.
pub trait Journal: Reads + fmt::Debug + 'static {
    /// An empty batch whose turns have at most `turn_bytes_max` bytes, frames included: made as this
    /// journal takes it with the least work. Every journal takes every batch; one that was made by a
    /// journal without a disk has no checksums, and another sets them in a copy as it takes it.
    fn batch(&self, turn_bytes_max: usize) -> Batch {
        Batch::with_turn_bytes_max(turn_bytes_max)
    }

    /// Checks each turn's conditions (the run's head, queued turns included, and the epoch) and
    /// queues those that hold, in order. Never waits for the disk. A refused turn touches no turn of
    /// another run, but for one that is [tied](Batch::tie_last) to it and those of its [group](Batch::group).
    ///
    /// A group is taken as a whole or not at all: if one of its turns is refused, those whose conditions hold are
    /// refused as [`TurnRefused::ReadAgain`], and all become durable in one commit otherwise. A damaged record of a
    /// run keeps the groups that hold a turn of it from being taken; what other runs recorded together with the
    /// damaged one stays.
    ///
    /// A refusal says that the owner takes the run for something that it is not, and all that it has
    /// decided for the run since then rests on that. So after any refusal but
    /// [`TurnRefused::AlreadyAppended`] the live run takes no turn at all: those behind the refused one, in
    /// this batch and in later ones, are refused as [`TurnRefused::ReadAgain`], whether their heads happen
    /// to fit or not, until the owner says that it has [read the run again](Self::read_again) or its
    /// partition is [claimed](Self::claim) anew. After [`TurnRefused::Fenced`] this needs no mark:
    /// nothing is taken under that epoch any more, and the run goes on under the present owner's.
    ///
    /// A batch that is larger than the whole buffer is taken alone, when the buffer is empty.
    ///
    /// # Errors
    /// [`EnqueueError::Full`]: nothing was taken, and every watching bell rings when there is room.
    /// [`EnqueueError::Failed`]: the journal takes nothing any more.
    fn enqueue(&self, batch: &Batch) -> Result<Enqueued, EnqueueError>;

    /// As [`enqueue`](Self::enqueue), for a caller that holds a lock meanwhile: the bells are rung when the
    /// [`Ringing`] is dropped, which is done once the lock is free. A bell may call anybody's code, and
    /// that code may want the lock.
    ///
    /// Unless a journal says otherwise they ring before this returns. Then whom they call must not
    /// gather into an appender on the spot.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    fn enqueue_and_ring_later(&self, batch: &Batch) -> Result<(Enqueued, Ringing), EnqueueError> {
        Ok((self.enqueue(batch)?, Ringing::default()))
    }

    /// The owner of a run's partition has dropped whatever it had decided for a run of which a turn was
    /// refused, and begins again with what it reads. From now on the run's turns are judged by
    /// their own conditions alone; nothing changes for a run of which none was refused.
    ///
    /// Gives the sequence number of the run's last record, queued turns included. What is read is up to
    /// date when it ends there, at the latest once the offset is durable of any batch (an empty one too)
    /// that was enqueued after this.
    ///
    /// # Ordering
    /// Batches that were enqueued before this are judged without it, later ones with it.
    ///
    /// # Errors
    /// As a turn of the run under this epoch is refused: [`TurnRefused::Fenced`],
    /// [`TurnRefused::NotLive`], [`TurnRefused::Quarantined`]. Nothing is changed then.
    fn read_again(&self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused>;

    /// Every batch whose offset is at most this is durable (in the sense of the configured
    /// [`Durability`](crate::Durability)). Offsets count batches since the journal was opened.
    fn high_watermark(&self) -> Offset;

    /// The offset that an answer must wait for which rests on no turn of its own: to a question about a run, say,
    /// or a refusal. `queued` is the offset that the one who answers got for its last batch: what the answer
    /// tells may rest on that. Never waits; bells ring as for a batch of this offset.
    ///
    /// A journal whose owners are all in this process gives `queued` back: an owner that has lost partitions is told
    /// before anybody else has them. A journal over a store that several processes share queues a check that this
    /// one still owns what it has claimed, and gives the offset of that: so nobody answers from what has another
    /// owner by now. The offset of a batch says as much by itself.
    ///
    /// ```
    /// # use millrun_core::Offset;
    /// # use millrun_persistence::{Batch, Journal, JournalConfig, MemoryJournal};
    /// let journal = MemoryJournal::new(JournalConfig::default())?;
    /// let queued = journal.enqueue(&Batch::new())?.offset;
    /// assert!(journal.confirm(queued) <= journal.high_watermark());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn confirm(&self, queued: Offset) -> Offset {
        queued
    }

    /// What stopped the journal, if anything did. Once set, it stays.
    fn failure(&self) -> Option<JournalFailure>;

    /// Rings `bell` after each advance of the watermark, when there is room again after
    /// [`EnqueueError::Full`], and after a failure. There may be many watchers; each is kept as
    /// long as the journal, so a part that is restarted watches on with the bell it had.
    fn watch(&self, bell: Bell);

    /// Claims partitions that are free, or that the claimant's [owner](crate::Owner) has. Never waits: the
    /// claimant's bell rings when the answer is among its [news](Claimant::take_news), an epoch and a report for
    /// each partition, or a refusal, which has changed nothing.
    ///
    /// From this call on turns under earlier epochs of the partitions are refused, and a run that was to be
    /// [read again](Self::read_again) takes turns under the new one. All that was queued for the partitions
    /// before it is durable when the answer comes, and has been handed to the claim's folds as far as it is
    /// of live runs. Damage is not skipped silently: a run with a damaged record is kept from the folds and named
    /// in the report.
    ///
    /// Each epoch is higher than any that its partition has had. Epochs also grow each time a store is opened:
    /// those of a later opening are [behind](Epoch::since) each one that was answered.
    ///
    /// A journal may read and fold within this call if that needs no disk.
    fn claim(&self, claim: Claim);

    /// As [`claim`](Self::claim), also what other owners have: they are told of the loss, and nothing is taken
    /// any more under the epochs that they have been given.
    fn take_from(&self, claim: Claim);

    /// Gives back those of the partitions that this claimant owns: nothing is taken any more under their epochs,
    /// and any owner may claim them. What was queued before stays queued. A claimant that owns nothing of it is
    /// not told.
    fn release(&self, claimant: &Claimant, partitions: &[Partition]);

    /// Fences the owners of these partitions without taking their place: any owner may claim them. Gives one epoch for
    /// all, higher than any before of each of them, under which turns are taken until another does.
    ///
    /// It is meant for tools and tests that are alone with a journal, and reads nothing.
    ///
    /// # Errors
    /// When the journal has failed.
    fn take_over(&self, partitions: &[Partition]) -> Result<Epoch, JournalFailure>;

    /// What can be said of the latest retained finished run of this instance without access to a disk: for those
    /// who decide on a thread that nothing may hold up. Never waits.
    ///
    /// An answer but [`Glance::Ask`] is that of [`Reads::finished`] at some moment during the call, also behind a failure of
    /// the journal: nothing that has not become durable is seen. A journal may always ask, as one does that says nothing else
    /// here; one that is closed asks, and what is asked says that it is closed.
    ///
    /// ```
    /// # use millrun_core::InstanceId;
    /// # use millrun_persistence::{Glance, Journal, JournalConfig, MemoryJournal};
    /// let journal = MemoryJournal::new(JournalConfig::default())?;
    /// assert_eq!(journal.glance(&InstanceId::new("order-42")?), Glance::Absent);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn glance(&self, id: &InstanceId) -> Glance {
        let _ = id;
        Glance::Ask
    }

    /// Whether records of this run are known to be damaged, so that nobody can say what it waits for. Never waits; a
    /// journal that finds damage as it reads knows it from then on.
    fn is_quarantined(&self, run: RunId) -> bool {
        let _ = run;
        false
    }

    /// Keeps the folded state of a live run, in place of an earlier one. It becomes durable with one
    /// of the next commits, and not before the turns that it has folded; nobody is told when, since a
    /// snapshot may be lost at any time. It is deleted when its run closes.
    ///
    /// # Errors
    /// See [`SnapshotRefused`]. The earlier snapshot then stays.
    fn put_snapshot(&self, snapshot: Snapshot) -> Result<(), SnapshotRefused>;

    /// Deletes the snapshot of a run, if there is one, with one of the next commits.
    ///
    /// # Errors
    /// When the journal has failed.
    fn delete_snapshot(&self, run: RunId) -> Result<(), JournalFailure>;

    /// Has the journal do all upkeep that is due at `now`, and returns at once: `done` rings when it is finished, and
    /// [`upkept`](Self::upkept) tells what came of it. Journals do this by and by as they write, each a share; after an
    /// upkeep it is exact.
    ///
    /// When it is finished without an error, all that was queued before the call is durable, what [retention](crate::Retention)
    /// does not keep at that moment is dropped, of runs that are trimmed and dropped an archive has what it is to get
    /// first, and a journal that keeps an index of finished runs or dead records has merged and given back what it would have
    /// by and by. `now` counts as the time of a turn does: a journal that does not believe every clock believes this one as
    /// far as a turn's. What is dropped stays so if the store is opened again.
    ///
    /// Turns are taken meanwhile. As long as turns make as much due as is done, an upkeep goes on.
    ///
    /// ```
    /// # use millrun_core::{Bell, Timestamp};
    /// # use millrun_persistence::{Journal, JournalConfig, MemoryJournal};
    /// let journal = MemoryJournal::new(JournalConfig::default())?;
    /// let number = journal.upkeep(Timestamp::from_micros(1_700_000_000_000_000), Bell::new());
    /// assert_eq!(journal.upkept(number), Some(Ok(())), "this journal is done at once");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn upkeep(&self, now: Timestamp, done: Bell) -> UpkeepNumber;

    /// What came of an [upkeep](Self::upkeep); `None` as long as it is under way. Of several that were asked for
    /// meanwhile, the last one's end is that of all.
    fn upkept(&self, number: UpkeepNumber) -> Option<Result<(), UpkeepUndone>>;

    /// What the journal has of topics; `None`, as by default, if it keeps none: then nobody adds
    /// [records of topics](Batch::topic_record) to its batches.
    fn topics(&self) -> Option<&dyn TopicStreams> {
        None
    }

    /// The other processes that have the store open, if it is one that several may have; `None`, as by default, for a
    /// store that this process has to itself. Then all that the journal tells is of the whole store; otherwise
    /// [`stats`](Self::stats) and retention are of the partitions that this process owns.
    fn nodes(&self) -> Option<&dyn SharedStore> {
        None
    }

    /// Counts and sizes, exact at some moment during the call.
    fn stats(&self) -> Stats;

    /// Begins to close: what is queued will be flushed, and nothing more is taken. Returns at
    /// once; bells ring when [`is_closed`](Self::is_closed) has become true.
    fn begin_close(&self);

    /// Whether the journal has been closed and has let go of its file.
    fn is_closed(&self) -> bool;

    /// Flushes what is queued, refuses everything from then on, and waits for the writer to end.
    /// On a host that drives all parts on the calling thread, use
    /// [`begin_close`](Self::begin_close) and let the writer take its turns instead.
    ///
    /// # Errors
    /// When the journal had failed, or fails while it flushes.
    fn close(&self) -> Result<(), JournalFailure>;
}

/// What may wait for the disk of a [`Journal`]: meant for threads that may be held up, never for the turn of a part that
/// decides.
///
/// What is read is what is durable at some moment during the call, or later than that. Each call is on its own:
/// several threads may read at a time, and none waits for another.
pub trait Reads: Send + Sync {
    /// The durable records of one run, live or finished and retained, in order.
    ///
    /// # Errors
    /// When the run is not known, has been dropped, is too long to be read at once, a record of it is
    /// damaged, or the journal was closed.
    fn history(&self, run: RunId) -> Result<History, ReadError>;

    /// The durable records of one run behind the record `after` (zero for the beginning): as many as
    /// have `bytes_max` bytes in all, and at least one if there is any. A gap among them, or between
    /// them and `after`, is damage.
    ///
    /// Memory is bounded by the page, 8 bytes for each turn behind `after`, and the stored rows in which
    /// the page begins and ends: some tens of KiB each, or a whole turn, or all that left the log at once.
    ///
    /// # Errors
    /// As [`history`](Self::history), but for the length.
    fn history_page(&self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError>;

    /// Whether the turns of a batch, whose append has an unknown outcome, are durable: for a caller that
    /// was cut off between enqueueing it and the watermark, usually by a crash. Asked of the
    /// journal that was opened after that, each answer is final; asked of the journal that took the
    /// batch, queued turns are [`Resolved::Absent`] until they are durable.
    ///
    /// It says the same of a turn that closed its run, which
    /// [`TurnRefused::AlreadyAppended`](crate::TurnRefused) cannot.
    ///
    /// The turns of a [group](Batch::group) vouch for each other: where one is [`Resolved::Appended`], those that
    /// cannot be told by themselves are too. Where one is absent or in conflict, none was appended, and the group
    /// may be appended if all are absent.
    ///
    /// # Errors
    /// When a record that must be read is damaged, or the journal was closed.
    fn resolve(&self, batch: &Batch) -> Result<Vec<Resolved>, ReadError> {
        resolve::resolve(self, batch)
    }

    /// The latest durable snapshot of a live run. A damaged one is none: its history is
    /// always enough. What has happened since is the [page](Self::history_page) behind its sequence.
    ///
    /// # Errors
    /// When the journal was closed.
    fn snapshot(&self, run: RunId) -> Result<Option<Snapshot>, ReadError>;

    /// Several reads in one call: as many calls of [`history`](Self::history), [`history_page`](Self::history_page),
    /// [`snapshot`](Self::snapshot) and [`finished`](Self::finished), for less work where a journal can share some. What
    /// each comes to, an error too, is told to `each` with its place in `wanted`.
    ///
    /// Records and snapshots of about `bytes_max` bytes are read in all, at most. A read that would exceed what is left
    /// of that is passed over: `each` is not called for it, and those behind it are read all the same. It is read by
    /// itself, then, or in a later call. A journal that does not know sizes beforehand may read as much and a record
    /// more to find that out, but never the rest of a long history. Finished runs have no bytes and are not passed over.
    ///
    /// This is for many small reads. One that takes long holds up those behind it in the same call.
    ///
    /// # Ordering
    /// `each` is called in the order of `wanted`, as soon as a read is done: one that takes long is the first that was
    /// neither told nor passed over. It may call the journal.
    ///
    /// ```
    /// # use millrun_core::InstanceId;
    /// # use millrun_persistence::{JournalConfig, MemoryJournal, Reads, ToRead, WasRead};
    /// let journal = MemoryJournal::new(JournalConfig::default())?;
    /// let wanted = ["order-1", "order-2"].map(|id| InstanceId::new(id).map(ToRead::Finished));
    /// let wanted = wanted.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// let mut told = Vec::new();
    /// journal.read_together(&wanted, 1 << 20, &mut |index, was_read| told.push((index, was_read)));
    /// assert_eq!(told, [(0, Ok(WasRead::Finished(None))), (1, Ok(WasRead::Finished(None)))]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn read_together(&self, wanted: &[ToRead], bytes_max: usize, each: EachRead<'_>) {
        together::one_by_one(self, wanted, bytes_max, each);
    }

    /// The latest retained finished run of this instance; `None` if there is none (any more).
    ///
    /// # Errors
    /// When a record that must be read is damaged, or the journal was closed.
    fn finished(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError>;

    /// Up to `limit` retained finished runs, the earliest closed first, beginning behind the
    /// run `after` (or at the beginning, also if `after` is no longer retained). One that is known to be damaged is passed
    /// over; [`find_finished`](Self::find_finished) counts those.
    ///
    /// # Errors
    /// As [`finished`](Self::finished).
    fn list_finished(&self, after: Option<RunId>, limit: usize) -> Result<Vec<FinishedRun>, ReadError>;

    /// Up to `len_max` retained finished runs that are looked for, the latest closed first, as far as they are known
    /// without their records. It examines a bounded number of runs, and says where the next call
    /// [goes on](FinishedFound::next): with the same search, and that as its [`before`](FinishedSearch::before).
    ///
    /// A run that is not retained any more, and no other, has no runs before it.
    ///
    /// What this default does suits a journal of few runs: it lists them all, and reads the last record of each that is
    /// looked for by its times.
    ///
    /// ```
    /// # use millrun_persistence::{FinishedSearch, JournalConfig, MemoryJournal, Reads};
    /// let journal = MemoryJournal::new(JournalConfig::default())?;
    /// let mut search = FinishedSearch::new();
    /// search.kinds = [4].into_iter().collect();
    /// loop {
    ///     let found = journal.find_finished(&search, 100)?;
    ///     for finished in &found.runs {
    ///         println!("{} ended at {:?}", finished.run, finished.closed_at);
    ///     }
    ///     search.before = found.next;
    ///     if search.before.is_none() {
    ///         break;
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the journal was closed, or its index cannot be read. A run whose own records cannot be
    /// read is passed over and [counted](FinishedFound::unreadable); those that are known to be damaged, live ones among
    /// them, are counted by the search that begins with the latest.
    fn find_finished(&self, search: &FinishedSearch, len_max: usize) -> Result<FinishedFound, ReadError> {
        search::by_listing(self, search, len_max)
    }

    /// Hands every durable record of the runs that are live to one of `lanes`, in order within
    /// each run. The records of a run all go to lane `run.partition().index() % lanes.len()`.
    /// Meant to be called once, before the first [`enqueue`](Journal::enqueue).
    ///
    /// With more than one lane, each lane is called on its own thread, all within this call.
    /// `progress` is called a few times a second at most.
    ///
    /// Damage is not skipped silently: a run with a damaged record is left out from there on and
    /// named in the report.
    ///
    /// # Errors
    /// When the log as a whole cannot be read.
    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError>;
}

/// What a journal [knows](Journal::glance) of the finished runs of an instance without access to a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Glance {
    /// The latest that is retained.
    Found(FinishedRun),
    /// There was one, and it is not retained any more: what [`ReadError::Expired`] says.
    Expired(RunId),
    /// There is none.
    Absent,
    /// The disk knows: [`Reads::finished`] tells.
    Ask,
}

/// Bells that ring when this is dropped.
#[derive(Debug, Default)]
#[must_use = "the bells ring when it is dropped"]
pub struct Ringing(Vec<Bell>);

impl Ringing {
    /// Rings these when it is dropped.
    pub fn of(bells: Vec<Bell>) -> Self {
        Self(bells)
    }

    /// Rings the other's as well.
    pub fn add(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }
}

impl Drop for Ringing {
    fn drop(&mut self) {
        for bell in &self.0 {
            bell.ring();
        }
    }
}

/// Receives the records of a share of the live runs during [`Reads::recover`].
pub type Lane<'a> = &'a mut (dyn FnMut(RecordView<'_>) + Send);

/// What became of a batch when it was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a refused turn is named here and nowhere else"]
pub struct Enqueued {
    /// Once the watermark has reached this, all accepted turns are durable, and so are the turns
    /// that were [`TurnRefused::AlreadyAppended`].
    pub offset: Offset,
    /// The turns that were not accepted, in the order of the batch.
    pub refused: Vec<RefusedTurn>,
    /// What became of the batch's [records of topics](Batch::topic_record), in their order; none where a journal
    /// [keeps no topics](Journal::topics).
    pub topic_appends: Vec<TopicAppend>,
}

/// A turn that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedTurn {
    /// Index of the turn in its batch.
    pub turn: usize,
    /// Why it was refused.
    pub error: TurnRefused,
}

/// How far a recovery has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the log looked at so far.
    pub bytes_done: u64,
    /// Bytes of the log in all.
    pub bytes_total: u64,
    /// Records handed to lanes so far.
    pub records: u64,
}

/// What a recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Runs whose records were handed out.
    pub live_runs: u64,
    /// Finished runs that are retained.
    pub finished_runs: u64,
    /// Records handed out.
    pub records: u64,
    /// Bytes of the log that were looked at: from the first record of a live run on. What stands
    /// before was read and checked when the store was opened.
    pub bytes: u64,
    /// Time from opening the file to the end of the recovery.
    pub elapsed: Duration,
    /// Whether the file had to be repaired because the last process did not close it.
    pub is_repaired: bool,
    /// Whether the index of finished runs was damaged, and is written anew from the log.
    pub is_index_rebuilt: bool,
    /// Runs that are left out because a record of theirs is damaged, with what is wrong.
    pub damaged: Vec<ReadError>,
}

/// Counts and sizes of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Runs that have started and not finished.
    pub live_runs: u64,
    /// Finished runs that are retained.
    pub finished_runs: u64,
    /// Finished runs that retention has dropped since the journal was opened.
    pub dropped_runs: u64,
    /// Bytes of the log that belong to live or retained runs.
    pub live_bytes: u64,
    /// Bytes of the log in all.
    pub log_bytes: u64,
    /// Size of the file; zero where there is none.
    pub file_bytes: u64,
    /// Bytes queued and not durable yet.
    pub queued_bytes: u64,
    /// Memory held by the heads of live runs and the index of finished ones, estimated.
    pub index_bytes: u64,
    /// Commits since the journal was opened.
    pub commits: u64,
    /// Turns made durable since the journal was opened.
    pub turns: u64,
    /// Bytes of records made durable since the journal was opened.
    pub bytes: u64,
    /// How often the file was compacted since the journal was opened.
    pub compactions: u64,
    /// Whether the file is being compacted just now.
    pub is_compacting: bool,
    /// Bytes that the compaction under way, or the last one, has written so far; it ends when about
    /// as many as are live have been written, or before.
    pub compacted_bytes: u64,
    /// Finished runs that were archived since the journal was opened.
    pub archived_runs: u64,
    /// Parts of runs that they were trimmed of, and that were archived since the journal was opened.
    pub archived_parts: u64,
    /// Parts of runs that they were trimmed of and that stay until they are archived, at 80 bytes of memory each.
    pub held_parts: u64,
    /// The archive could not be written when it was tried last, so nothing is dropped.
    pub is_archive_failing: bool,
    /// The disk is full: a commit waits for room, and its callers wait too, for at most
    /// [`disk_full_wait_max`](crate::StoreConfig::disk_full_wait_max).
    pub is_disk_full: bool,
    /// Rows that say what may be dropped, or that would be dropped, cannot be read: retention has
    /// stopped, and the log grows, until the store is opened again.
    pub is_retention_stopped: bool,
    /// Topics of which records are kept.
    pub topics: u64,
    /// Bytes of their records.
    pub topic_bytes: u64,
    /// Time the last commit took.
    pub last_commit: Duration,
}
