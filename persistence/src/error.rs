//! Errors, one enum per family of operation.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use millrun_core::{Epoch, RunId, Sequence, SpawnError};

use crate::topics::TopicNumber;

/// Why a turn could not be put into a batch. The batch is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The turn, together with the earlier turns of its [group](crate::Batch::group), is larger than the batch's
    /// `turn_bytes_max`.
    #[error("the turn has {bytes} bytes, at most {max} are allowed")]
    TooLarge {
        /// Size in bytes; a lower bound if encoding was stopped half-way.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The turn has no records.
    #[error("the turn has no records")]
    Empty,
    /// The run would have more than 2^32 − 1 records.
    #[error("the run has too many records")]
    TooManyRecords,
    /// A turn must trim its run before its first record, and may neither open nor close the run.
    #[error("a turn trims its run before its first record, and neither opens nor closes the run")]
    TrimMismatch,
    /// A turn opens its run exactly when the run's head is zero.
    #[error("a turn must carry the instance id if it is the first of its run, and only then")]
    OpensMismatch,
    /// The instance id belongs to another partition than the run.
    #[error("the instance id and the run belong to different partitions")]
    WrongPartition,
    /// A turn of the group was begun and not finished, so none of its turns is there.
    #[error("a turn of the group was not finished")]
    GroupNotWhole,
    /// A record of a topic belongs to a turn that the batch does not have.
    #[error("the batch has no turn of this index, so no record of a topic can go with it")]
    NoSuchTurn,
    /// A group may have only one turn of each run.
    #[error("the group has two turns of run {run}")]
    RunTwice {
        /// The run.
        run: RunId,
    },
}

/// Why a journal refused a turn. Of the batch's other turns, only those of its [group](crate::Batch::group), and those
/// [tied](crate::Batch::tie_last) to it, were refused with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TurnRefused {
    /// Another owner has the partition. The writer of this turn has been replaced and should stop.
    #[error("the partition is owned under epoch {current}")]
    Fenced {
        /// The partition's epoch.
        current: Epoch,
    },
    /// The run's last record has another sequence number than the turn expected.
    #[error("the run is at sequence {head}")]
    Conflict {
        /// The run's last sequence number, queued turns included.
        head: Sequence,
    },
    /// The run's last turn is this very turn: it was appended before. Once the offset of this append is durable, the turn is
    /// durable too.
    #[error("the turn has been appended before")]
    AlreadyAppended,
    /// The run has no live records here: it never started, has finished, or was deleted.
    #[error("the run is not live")]
    NotLive,
    /// An earlier turn of the run was refused, or a turn of its [group](crate::Batch::group), or the turn that this one is
    /// [tied](crate::Batch::tie_last) to. So the owner's view of the run is wrong: drop what was decided for the run, call
    /// [`Journal::read_again`](crate::Journal::read_again), and read the run.
    #[error(
        "an earlier turn of the run, or one that goes with this, was refused: the run is to be read again"
    )]
    ReadAgain,
    /// A record of the run is damaged, so the run takes no more turns.
    #[error("the run is quarantined: a record of it is damaged")]
    Quarantined,
    /// The turn, or its whole [group](crate::Batch::group), is larger than the journal's `turn_bytes_max`.
    #[error("the turn has {bytes} bytes, at most {max} are allowed")]
    TooLarge {
        /// Size of the turn, or of its group, in bytes.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

/// Why a journal does not keep the records of a topic. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicRefused {
    /// A name must have 1 to 255 bytes.
    #[error("the name of a topic has 1 to 255 bytes, this has {bytes}")]
    Name {
        /// Size of the name in bytes.
        bytes: usize,
    },
    /// Retention must keep at least one record.
    #[error(
        "the retention of a topic must keep a record at least: neither len_max nor bytes_max may be zero"
    )]
    Retention,
    /// There are as many topics as [`topics_len_max`](crate::JournalConfig::topics_len_max) allows, those of
    /// earlier openings included.
    #[error("there are {max} topics already, as many as topics_len_max allows")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// The store has used all numbers for topics, also those of deleted topics and subscriptions: use a new store.
    #[error("the store has given {max} topics a number, deleted ones included, and has no more")]
    NumbersUsed {
        /// The limit.
        max: u32,
    },
    /// The journal does not know the name, and has a topic whose name is lost: it may be this one. Topics with known names
    /// are not affected.
    #[error(
        "the row with the name of {topic} is missing or damaged, so that {name:?} may be that one: restore a backup of the store"
    )]
    NameLost {
        /// The topic whose name is lost.
        topic: TopicNumber,
        /// The name that was asked for.
        name: String,
    },
    /// The journal has failed or was closed.
    #[error(transparent)]
    Failed(#[from] JournalFailure),
}

/// Why a topic was not purged, deleted or renamed. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicChangeRefused {
    /// There is no topic of this number, or it was deleted.
    #[error("{topic} is not known")]
    Unknown {
        /// The topic.
        topic: TopicNumber,
    },
    /// The new name is not valid for a topic, or another topic has it.
    #[error("the name {name:?} is not one that a topic may take")]
    Name {
        /// The name.
        name: String,
    },
    /// A deleted topic with the new name had records with higher numbers than the topic that shall get the name.
    #[error(
        "a deleted topic {name:?} had records up to number {deleted}, and the topic that is to get its name has {last}"
    )]
    Numbers {
        /// The new name.
        name: String,
        /// The last record of the deleted topic.
        deleted: u64,
        /// The last record of the topic.
        last: u64,
    },
    /// All numbers have been given out.
    #[error("all {max} numbers of topics are used")]
    NumbersUsed {
        /// How many numbers there are.
        max: u32,
    },
    /// Records of the topic are queued and not durable yet. Call again later.
    #[error("records of {topic} are not durable yet")]
    Queued {
        /// The topic.
        topic: TopicNumber,
    },
    /// This journal does not change topics in this way.
    #[error("this journal does not change topics in this way")]
    Unsupported,
    /// The journal has failed or was closed.
    #[error(transparent)]
    Failed(#[from] JournalFailure),
}

/// Why a batch was not taken at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The journal's buffer is full. Try again when a watching bell rings.
    #[error("the journal's buffer is full")]
    Full,
    /// A batch with records of topics is not gathered with others: nothing was taken. Append it by itself.
    #[error("a batch with records of topics is not gathered with others: append it by itself")]
    NotGathered,
    /// The journal has failed or was closed; it takes no more batches.
    #[error(transparent)]
    Failed(#[from] JournalFailure),
}

impl EnqueueError {
    /// Whether the same batch may be taken later by the same journal.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Full)
    }
}

/// Why a journal stopped for good. A cheap clone.
///
/// Turns that were not durable by then may or may not be there when the store is opened again.
#[derive(Clone)]
pub struct JournalFailure(Arc<Failure>);

#[derive(Debug)]
struct Failure {
    kind: FailureKind,
    message: String,
}

/// What stopped a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// A read, write or sync failed, with this kind of error. The journal does not try the disk again: reopen the store when
    /// the cause is fixed.
    Io(io::ErrorKind),
    /// The store's own structures are damaged.
    Corrupted,
    /// There is no file at the store's path any more: the file or its folder was deleted or moved. Nothing was acknowledged
    /// after that was noticed. Move the file back, or restore a backup, and open it.
    FileGone,
    /// The file at the store's path is not the one that was opened. Put the store's own file back, or restore a backup, and
    /// open it.
    FileReplaced,
    /// Another program has shortened the file. Restore a backup, or salvage the rest of the file.
    FileTruncated,
    /// The journal was closed by its owner.
    Closed,
    /// Another process has opened the store that this process had open: no turn of this process is taken any more. Make sure
    /// that only one process has it open. For a store that several processes share: the other nodes have declared this one
    /// dead because it wrote nothing for too long; start it again.
    Fenced,
    /// The store is not as this process left it: the latest acknowledged turns are missing, as when a database has failed
    /// over to a replica that was behind. Bring back the server that has them, or accept the loss by opening the store again:
    /// it is consistent as of an earlier moment.
    RolledBack,
    /// The writer panicked or was stopped from outside: this is a bug, please report it.
    WriterLost,
}

impl JournalFailure {
    /// A failure of this kind; `message` says what happened, in lower case and without a full stop.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Failure {
            kind,
            message: message.into(),
        }))
    }

    /// The failure of a journal that its owner has closed.
    #[must_use]
    pub fn closed() -> Self {
        Self::new(FailureKind::Closed, "the journal is closed")
    }

    /// What stopped the journal.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.0.kind
    }
}

impl fmt::Debug for JournalFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for JournalFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for JournalFailure {}

impl PartialEq for JournalFailure {
    fn eq(&self, other: &Self) -> bool {
        self.0.kind == other.0.kind && self.0.message == other.0.message
    }
}

impl Eq for JournalFailure {}

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The journal holds no durable record of this run.
    #[error("run {run} is not known here")]
    UnknownRun {
        /// The run asked for.
        run: RunId,
    },
    /// The run has finished, and retention has dropped its records. Its instance's id is free. Reported only for the runs
    /// that were dropped last, see [`Retention::expired_len_max`](crate::Retention).
    #[error("run {run} has finished and is not retained any more")]
    Expired {
        /// The run asked for, or the last one of the instance asked for.
        run: RunId,
    },
    /// The history is larger than `history_bytes_max`: read it in pages, with
    /// [`Reads::history_page`](crate::Reads::history_page).
    #[error("the history of run {run} has {bytes} bytes, at most {max} are read at once")]
    TooLong {
        /// The run asked for.
        run: RunId,
        /// Size of its records in bytes.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// A record is damaged. Other runs are not affected.
    #[error("a record{} at log position {position} is damaged: {cause}", of_run(.run.as_ref()))]
    Damaged {
        /// The run that the record belongs to, if known.
        run: Option<RunId>,
        /// Where in the log.
        position: u64,
        /// What is wrong with it.
        cause: String,
    },
    /// The journal has no topic of this number.
    #[error("there is no {topic} here")]
    UnknownTopic {
        /// The topic asked for.
        topic: TopicNumber,
    },
    /// Records of a topic cannot be read: one of them, or the index of them, is damaged. Other records are not affected.
    #[error("the records of {topic} behind {after}, up to {until}, cannot be read: {cause}")]
    TopicDamaged {
        /// The topic.
        topic: TopicNumber,
        /// The record after which they come.
        after: Sequence,
        /// The last of them; reading can go on after it.
        until: Sequence,
        /// What is wrong with them.
        cause: String,
    },
    /// The journal has failed or was closed.
    #[error(transparent)]
    Failed(#[from] JournalFailure),
}

/// Why a snapshot was not taken. No data is lost by that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotRefused {
    /// Only live runs have snapshots.
    #[error("the run is not live")]
    NotLive,
    /// The run has no record with this number yet.
    #[error("the run is at sequence {head}")]
    Ahead {
        /// The run's last sequence number, queued turns included.
        head: Sequence,
    },
    /// The snapshot alone is larger than `snapshot_bytes_max`.
    #[error("the snapshot has {bytes} bytes, at most {max} are allowed")]
    TooLarge {
        /// Size of the snapshot in bytes.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Too many bytes of snapshots wait for a commit. Try again when a watching bell rings.
    #[error("too many snapshots wait for a commit")]
    Full,
    /// The journal has failed or was closed.
    #[error(transparent)]
    Failed(#[from] JournalFailure),
}

fn of_run(run: Option<&RunId>) -> String {
    run.map_or_else(String::new, |run| format!(" of run {run}"))
}

/// Why a store could not be opened. The file is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process, or another journal in this one, has the store open.
    #[error("{path} is open elsewhere: stop that process first")]
    AlreadyOpen {
        /// The store's file.
        path: PathBuf,
    },
    /// The file is not a millrun store.
    #[error("{path} is not a millrun store: choose another path, nothing was changed")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The store was written by a later release.
    #[error(
        "{path} has format {found}, this release reads up to {supported}: use a newer release, nothing was changed"
    )]
    NewerFormat {
        /// The store's file.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format this release reads.
        supported: u32,
    },
    /// The store's structures are damaged. Restore a backup, or make a new store of its undamaged contents with
    /// [`salvage`](crate::salvage).
    #[error(
        "{path} is damaged ({cause}): restore a backup, or make a new store of what is whole in it with `millrun salvage`"
    )]
    Corrupted {
        /// The store's file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
    /// The value of a configuration field makes no sense.
    #[error("{field} {problem}")]
    Config {
        /// The field of [`JournalConfig`](crate::JournalConfig) or [`StoreConfig`](crate::StoreConfig).
        field: &'static str,
        /// What is wrong with its value.
        problem: String,
    },
    /// The disk gave an error.
    #[error("{path} could not be opened")]
    Io {
        /// The store's file.
        path: PathBuf,
        /// The error of the disk.
        #[source]
        source: io::Error,
    },
    /// The host did not start a thread for the writer.
    #[error("the writer could not be started")]
    Spawn(#[from] SpawnError),
}
