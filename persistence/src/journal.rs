//! The storage port: atomic batches in, ordered records out.
//!
//! ```text
//!   enqueue ──► conditions ──► open buffer ──► commit ──► high watermark ──► bells
//!                  │ refused turns                │
//!                  ▼ (named, nothing else         ▼ history · finished · recover
//!                     is touched)                   read what is durable · snapshot · resolve
//! ```
//!
//! It has two halves. The methods of [`Journal`] itself never wait for a disk: a shard calls them on its turn. Methods that
//! may wait are in [`Reads`], and are called on threads that may block.
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
/// Turns are checked, applied and made durable in the order in which they are enqueued, by any number of threads: what
/// survives a crash is a prefix of that order, and it holds every turn at or below any watermark that was ever reported.
///
/// # Failure
/// The first failure stops a journal for good (see [`JournalFailure`]). Durable records can still be read as far as the disk
/// allows; reopening the store recovers all of them.
pub trait Journal: Reads + fmt::Debug + 'static {
    /// An empty batch whose turns have at most `turn_bytes_max` bytes, frames included, in the form that costs this journal
    /// the least work. Every journal takes every batch; a batch from a journal without a disk has no checksums, and another
    /// journal sets them in a copy as it takes it.
    fn batch(&self, turn_bytes_max: usize) -> Batch {
        Batch::with_turn_bytes_max(turn_bytes_max)
    }

    /// Checks each turn's conditions (the run's head, queued turns included, and the epoch) and queues the turns whose
    /// conditions hold, in order. Never waits for the disk. A refused turn affects no turn of another run, except those
    /// [tied](Batch::tie_last) to it and those of its [group](Batch::group).
    ///
    /// A group is taken as a whole or not at all: if one of its turns is refused, the turns whose conditions hold are refused
    /// as [`TurnRefused::ReadAgain`]; otherwise all become durable in one commit. A run with a damaged record blocks every
    /// group that holds a turn of it; what other runs recorded together with the damaged record stays.
    ///
    /// A refusal says that the owner's view of the run is wrong, and all that it has decided for the run since then rests on
    /// that view. So after any refusal but [`TurnRefused::AlreadyAppended`] the live run takes no turn at all: later turns,
    /// in this batch and in later ones, are refused as [`TurnRefused::ReadAgain`], whether or not their heads happen to fit,
    /// until the owner says that it has [read the run again](Self::read_again) or its partition is [claimed](Self::claim)
    /// anew. After [`TurnRefused::Fenced`] no mark is needed: nothing is taken under that epoch any more, and the run
    /// continues under its present owner.
    ///
    /// A batch that is larger than the whole buffer is taken alone, when the buffer is empty.
    ///
    /// # Errors
    /// [`EnqueueError::Full`]: nothing was taken; every watching bell rings when there is room. [`EnqueueError::Failed`]: the
    /// journal takes no more batches.
    fn enqueue(&self, batch: &Batch) -> Result<Enqueued, EnqueueError>;

    /// As [`enqueue`](Self::enqueue), for a caller that holds a lock meanwhile: the bells ring when the [`Ringing`] is
    /// dropped, which the caller does after it has released the lock. A bell may run any code, and that code may take the
    /// lock.
    ///
    /// By default the bells ring before this returns. The code that they call must then not gather into an appender at once.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    fn enqueue_and_ring_later(&self, batch: &Batch) -> Result<(Enqueued, Ringing), EnqueueError> {
        Ok((self.enqueue(batch)?, Ringing::default()))
    }

    /// The owner of a run's partition has dropped all that it had decided for a run whose turn was refused, and begins again
    /// with what it reads. From now on the run's turns are checked by their own conditions alone; nothing changes for a run
    /// that had no refused turn.
    ///
    /// Returns the sequence number of the run's last record, queued turns included. A read is up to date when it ends with
    /// that record; this is so at the latest once any batch (also an empty one) that was enqueued after this call is durable.
    ///
    /// # Ordering
    /// Batches that were enqueued before this call are checked as if it had not happened, later ones with it.
    ///
    /// # Errors
    /// The errors with which a turn of the run under this epoch is refused: [`TurnRefused::Fenced`],
    /// [`TurnRefused::NotLive`], [`TurnRefused::Quarantined`]. Nothing is changed then.
    fn read_again(&self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused>;

    /// Every batch whose offset is at most this is durable (in the sense of the configured
    /// [`Durability`](crate::Durability)). Offsets count batches since the journal was opened.
    fn high_watermark(&self) -> Offset;

    /// The offset that must be durable before an answer without a turn of its own may be sent: the answer to a question about
    /// a run, say, or a refusal. `queued` is the offset of the answering part's last batch, on which the answer may rest.
    /// Never waits; bells ring as for a batch of this offset.
    ///
    /// A journal whose owners are all in this process returns `queued`: an owner that has lost partitions is told before
    /// anybody else gets them. A journal over a store that several processes share queues a check that this process still
    /// owns its claimed partitions, and returns the offset of that: so no process answers for partitions that now have
    /// another owner. A batch's offset includes the same check.
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

    /// Rings `bell` after each advance of the watermark, when there is room again after [`EnqueueError::Full`], and after a
    /// failure. There may be many watchers; each is kept as long as the journal, so a restarted part keeps the bell it had.
    fn watch(&self, bell: Bell);

    /// Claims partitions that are free, or that the claimant's [owner](crate::Owner) has. Never waits: the claimant's bell
    /// rings when the answer is in its [news](Claimant::take_news): an epoch and a report for each partition, or a refusal
    /// that has changed nothing.
    ///
    /// From this call on, turns under earlier epochs of the partitions are refused, and a run that had to be [read
    /// again](Self::read_again) takes turns under the new one. When the answer comes, all that was queued for the partitions
    /// before the call is durable, and the claim's folds have got the records of live runs among it. Damage is not skipped
    /// silently: a run with a damaged record is kept from the folds and named in the report.
    ///
    /// Each epoch is higher than any earlier one of its partition. Epochs also grow each time a store is opened: those of a
    /// later opening come [after](Epoch::since) every epoch that was granted before.
    ///
    /// A journal may read and fold within this call if that needs no disk.
    fn claim(&self, claim: Claim);

    /// As [`claim`](Self::claim), but also takes partitions of other owners: they are told of the loss, and no turn is taken
    /// under their epochs any more.
    fn take_from(&self, claim: Claim);

    /// Releases the partitions in the list that this claimant owns: no turn is taken under their epochs any more, and any
    /// owner may claim them. Queued turns stay queued. The claimant gets no news about it.
    fn release(&self, claimant: &Claimant, partitions: &[Partition]);

    /// Fences the owners of these partitions without making the caller their owner: any owner may claim them. Returns one
    /// epoch for all of them, higher than every earlier epoch of each, under which turns are taken until an owner claims
    /// them.
    ///
    /// It is for tools and tests that are the only user of a journal; it reads nothing.
    ///
    /// # Errors
    /// When the journal has failed.
    fn take_over(&self, partitions: &[Partition]) -> Result<Epoch, JournalFailure>;

    /// What the journal knows without disk access about the latest retained finished run of this instance, for callers on a
    /// thread that must not block. Never waits.
    ///
    /// An answer other than [`Glance::Ask`] is that of [`Reads::finished`] at some moment during the call, also after a
    /// failure of the journal: it only rests on durable data. A journal may always answer `Ask`, as this default does; a
    /// closed journal answers `Ask` too, and the read then fails because it is closed.
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

    /// Whether records of this run are known to be damaged, so that its state cannot be known. Never waits; a journal that
    /// finds damage while it reads remembers it.
    fn is_quarantined(&self, run: RunId) -> bool {
        let _ = run;
        false
    }

    /// Stores the folded state of a live run, in place of an earlier one. It becomes durable with one of the next commits,
    /// and not before the turns that are folded into it; the journal does not report when, since a snapshot may be lost at
    /// any time. It is deleted when its run closes.
    ///
    /// # Errors
    /// See [`SnapshotRefused`]. The earlier snapshot is then kept.
    fn put_snapshot(&self, snapshot: Snapshot) -> Result<(), SnapshotRefused>;

    /// Deletes the snapshot of a run, if there is one, with one of the next commits.
    ///
    /// # Errors
    /// When the journal has failed.
    fn delete_snapshot(&self, run: RunId) -> Result<(), JournalFailure>;

    /// Makes the journal do all upkeep that is due at `now`, and returns at once: `done` rings when it is finished, and
    /// [`upkept`](Self::upkept) has the result. Without this call a journal does its upkeep in small steps as it writes.
    ///
    /// When it has finished without an error, all that was queued before the call is durable, runs that
    /// [retention](crate::Retention) does not keep at that moment are dropped, an archive has all that it must get of trimmed
    /// and dropped runs, and a journal that keeps an index of finished runs or dead records has merged and freed all that it
    /// otherwise would in small steps. `now` counts like the time of a turn: a journal that does not trust every clock trusts
    /// this one no further. What is dropped stays dropped when the store is opened again.
    ///
    /// The journal takes turns meanwhile. As long as new turns make as much upkeep due as is done, the upkeep does not end.
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

    /// The result of an [upkeep](Self::upkeep); `None` while it is under way. If several upkeeps were asked for meanwhile,
    /// all end with the last one.
    fn upkept(&self, number: UpkeepNumber) -> Option<Result<(), UpkeepUndone>>;

    /// The journal's topics; `None`, as by default, if it keeps none: then no caller may add [records of
    /// topics](Batch::topic_record) to its batches.
    fn topics(&self) -> Option<&dyn TopicStreams> {
        None
    }

    /// The other processes that have the store open, if several may; `None`, as by default, for a store that this process has
    /// to itself. In the first case [`stats`](Self::stats) and retention are only about the partitions that this process
    /// owns; otherwise everything is about the whole store.
    fn nodes(&self) -> Option<&dyn SharedStore> {
        None
    }

    /// Counts and sizes, exact at some moment during the call.
    fn stats(&self) -> Stats;

    /// Begins to close: what is queued will be flushed, and no further batch is taken. Returns at once; bells ring when
    /// [`is_closed`](Self::is_closed) has become true.
    fn begin_close(&self);

    /// Whether the journal has been closed and has released its file.
    fn is_closed(&self) -> bool;

    /// Flushes what is queued, refuses everything from then on, and waits for the writer to end. On a host that runs all
    /// parts on the calling thread, use [`begin_close`](Self::begin_close) and let the writer take its turns instead.
    ///
    /// # Errors
    /// When the journal had failed, or fails while it flushes.
    fn close(&self) -> Result<(), JournalFailure>;
}

/// The operations of a [`Journal`] that may wait for the disk: for threads that may block, never for the turn of a shard.
///
/// A read returns what is durable at some moment during the call, or later. The calls are independent: several threads may
/// read at a time, and none waits for another.
pub trait Reads: Send + Sync {
    /// The durable records of one run, live or finished and retained, in order.
    ///
    /// # Errors
    /// When the run is not known, has been dropped, is too long to be read at once, a record of it is
    /// damaged, or the journal was closed.
    fn history(&self, run: RunId) -> Result<History, ReadError>;

    /// The durable records of one run after the record `after` (zero for the beginning): as many as have `bytes_max` bytes in
    /// all, and at least one if there is any. A gap among them, or between them and `after`, is damage.
    ///
    /// Memory is bounded by the page, 8 bytes for each turn after `after`, and the stored rows in which the page begins and
    /// ends: some tens of KiB each, or a whole turn, or all that left the log at once.
    ///
    /// # Errors
    /// As [`history`](Self::history), without its bound on the length.
    fn history_page(&self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError>;

    /// Whether the turns of a batch whose append has an unknown outcome are durable: for a caller that was cut off between
    /// the enqueue and the watermark, usually by a crash. Asked of the journal that was opened after that, each answer is
    /// final; asked of the journal that took the batch, queued turns are [`Resolved::Absent`] until they are durable.
    ///
    /// It also answers for a turn that closed its run, which [`TurnRefused::AlreadyAppended`](crate::TurnRefused) cannot.
    ///
    /// The turns of a [group](Batch::group) prove each other: where one is [`Resolved::Appended`], so are those that cannot
    /// be told by themselves. Where one is absent or in conflict, none was appended, and the group may be appended if all are
    /// absent.
    ///
    /// # Errors
    /// When a record that must be read is damaged, or the journal was closed.
    fn resolve(&self, batch: &Batch) -> Result<Vec<Resolved>, ReadError> {
        resolve::resolve(self, batch)
    }

    /// The latest durable snapshot of a live run. A damaged snapshot counts as none: the history is always enough. What has
    /// happened since is the [page](Self::history_page) after its sequence.
    ///
    /// # Errors
    /// When the journal was closed.
    fn snapshot(&self, run: RunId) -> Result<Option<Snapshot>, ReadError>;

    /// Several reads in one call: like as many calls of [`history`](Self::history), [`history_page`](Self::history_page),
    /// [`snapshot`](Self::snapshot) and [`finished`](Self::finished), with less work where a journal can share some. Each
    /// result, errors too, is given to `each` with its index in `wanted`.
    ///
    /// In all, at most about `bytes_max` bytes of records and snapshots are read. A read that would exceed the rest of that
    /// budget is skipped: `each` is not called for it, and later reads are done all the same. Read it by itself, or in a
    /// later call. A journal that does not know sizes beforehand may read up to the budget and one record more to find out,
    /// but never the rest of a long history. Finished runs have no bytes and are not skipped.
    ///
    /// This is for many small reads. A long one delays those after it in the same call.
    ///
    /// # Ordering
    /// `each` is called in the order of `wanted`, as soon as a read is done: the read that is under way is always the first
    /// that was neither reported nor skipped. `each` may call the journal.
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

    /// Up to `limit` retained finished runs, the earliest closed first, starting after the run `after` (or at the beginning,
    /// also if `after` is no longer retained). A run that is known to be damaged is skipped;
    /// [`find_finished`](Self::find_finished) counts those.
    ///
    /// # Errors
    /// As [`finished`](Self::finished).
    fn list_finished(&self, after: Option<RunId>, limit: usize) -> Result<Vec<FinishedRun>, ReadError>;

    /// Up to `len_max` retained finished runs that match the search, the latest closed first, as far as they are known
    /// without their records. A call examines a bounded number of runs, and says where the next call [goes
    /// on](FinishedFound::next): with the same search, and that as its [`before`](FinishedSearch::before).
    ///
    /// If `before` is a run that is not retained any more, there are no runs before it.
    ///
    /// This default suits a journal with few runs: it lists them all, and reads the last record of each that matches by its
    /// times.
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
    /// When the journal was closed, or its index cannot be read. A run whose own records cannot be read is skipped and
    /// [counted](FinishedFound::unreadable); runs that are known to be damaged, live ones among them, are counted by the
    /// search that begins with the latest.
    fn find_finished(&self, search: &FinishedSearch, len_max: usize) -> Result<FinishedFound, ReadError> {
        search::by_listing(self, search, len_max)
    }

    /// Hands every durable record of the live runs to one of `lanes`, in order within each run. The records of a run all go
    /// to lane `run.partition().index() % lanes.len()`. Call it once, before the first [`enqueue`](Journal::enqueue).
    ///
    /// With more than one lane, each lane is called on its own thread, all within this call.
    /// `progress` is called a few times a second at most.
    ///
    /// Damage is not skipped silently: of a run with a damaged record, nothing from that record on is handed out, and the
    /// report names the run.
    ///
    /// # Errors
    /// When the log as a whole cannot be read.
    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError>;
}

/// What a journal [knows](Journal::glance) without disk access of the finished runs of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Glance {
    /// The latest retained one.
    Found(FinishedRun),
    /// There was a finished run, and it is not retained any more: the case of [`ReadError::Expired`].
    Expired(RunId),
    /// There is none.
    Absent,
    /// Not known without the disk: ask [`Reads::finished`].
    Ask,
}

/// Bells that ring when this is dropped.
#[derive(Debug, Default)]
#[must_use = "the bells ring when it is dropped"]
pub struct Ringing(Vec<Bell>);

impl Ringing {
    /// A value that rings these bells when it is dropped.
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
    /// Once the watermark has reached this, all accepted turns are durable, and so are the turns that were
    /// [`TurnRefused::AlreadyAppended`].
    pub offset: Offset,
    /// The turns that were not accepted, in the order of the batch.
    pub refused: Vec<RefusedTurn>,
    /// The outcome of each of the batch's [records of topics](Batch::topic_record), in their order; empty if a journal [keeps
    /// no topics](Journal::topics).
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
    /// Bytes of the log that were read: from the first record of a live run on. What comes before was read and checked when
    /// the store was opened.
    pub bytes: u64,
    /// Time from opening the file to the end of the recovery.
    pub elapsed: Duration,
    /// Whether the file had to be repaired because the last process did not close it.
    pub is_repaired: bool,
    /// Whether the index of finished runs was damaged and is being rebuilt from the log.
    pub is_index_rebuilt: bool,
    /// Runs that are left out because one of their records is damaged, with the error.
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
    /// Bytes that the compaction under way, or the last one, has written so far; it ends at the latest when about as many as
    /// there are live bytes have been written.
    pub compacted_bytes: u64,
    /// Finished runs that were archived since the journal was opened.
    pub archived_runs: u64,
    /// Trimmed parts of runs that were archived since the journal was opened.
    pub archived_parts: u64,
    /// Trimmed parts of runs that are kept until they are archived, at 80 bytes of memory each.
    pub held_parts: u64,
    /// The last attempt to write the archive failed, so nothing is dropped.
    pub is_archive_failing: bool,
    /// The disk is full: a commit waits for room, and its callers wait too, for at most
    /// [`disk_full_wait_max`](crate::StoreConfig::disk_full_wait_max).
    pub is_disk_full: bool,
    /// Rows that retention needs, or rows that would be dropped, cannot be read: retention has stopped, and the log grows,
    /// until the store is opened again.
    pub is_retention_stopped: bool,
    /// Topics whose records are kept.
    pub topics: u64,
    /// Bytes of their records.
    pub topic_bytes: u64,
    /// Time the last commit took.
    pub last_commit: Duration,
}
