//! The server as the journal sees it: the questions to it, and how they may fail. The journal knows no SQL, so a simulated
//! server can replace a real one.
//!
//! Calls wait for the answer, on the threads of the journal. After [`ServerTrouble::Lost`] the session is dropped, and
//! another one is opened.

use std::time::Duration;

use bytes::Bytes;
use millrun_core::{Epoch, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::{
    FinishedHead, FinishedRun, FinishedSearch, NodeKey, NodeTerms, NodesSeen, Snapshot, StoredTopicRow,
    TopicNumber, TopicRowOutline, UnreadMail,
};
use tokio::sync::Notify;

use crate::heads::LiveHead;
use crate::outcome::Move;
use crate::retained::FrontRun;
use crate::rows::FlushRows;

/// Opens sessions.
pub(crate) trait Server: Send + Sync {
    /// A session that writes, for an opening that has the store already.
    fn writer(&self) -> Result<Box<dyn WriterSession>, ServerTrouble>;

    /// A session that reads; if `must_be_ours`, on the writer's server.
    fn reader(&self, must_be_ours: bool) -> Result<Box<dyn ReaderSession>, ServerTrouble>;

    /// A session for nodes, on the writer's server.
    fn nodes(&self) -> Result<Box<dyn NodesSession>, ServerTrouble>;

    /// A session for mail, on the writer's server.
    fn mail(&self) -> Result<Box<dyn MailSession>, ServerTrouble>;
}

/// The result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flushed {
    /// Whether the term was the present one.
    pub(crate) has_term: bool,
    /// Whether the marker was where it had to be, and so everything is written.
    pub(crate) has_moved: bool,
    /// The server's time.
    pub(crate) now: Timestamp,
    /// The number of finished runs that other nodes retain, and their bytes.
    pub(crate) others: (u64, u64),
}

/// The holder of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldPartition {
    pub(crate) partition: Partition,
    /// Whether this opening has it, and whether any opening has.
    pub(crate) is_ours: bool,
    pub(crate) is_held: bool,
    /// Its latest epoch.
    pub(crate) epoch: Epoch,
}

/// The last turn of a live run, and the bytes of all its turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredHead {
    pub(crate) run: RunId,
    /// `None` if the turn is missing.
    pub(crate) head: Option<LiveHead>,
    pub(crate) is_damaged: bool,
}

/// For each partition that has any: the number of its retained finished runs, and their bytes.
pub(crate) type RetainedCounts = Vec<(Partition, (u64, u64))>;

/// What has to be known of partitions before anything is appended to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredPartitions {
    pub(crate) live: Vec<StoredHead>,
    pub(crate) finished: RetainedCounts,
}

/// A connection for the nodes of a store.
pub(crate) trait NodesSession: Send {
    /// Whether the writer has connected anew since this session was opened.
    fn is_outdated(&self) -> bool;

    /// Announces this to the other nodes.
    fn announce(&mut self, terms: NodeTerms) -> Result<(), ServerTrouble>;

    /// All nodes and what they own.
    fn look(&mut self) -> Result<NodesSeen, ServerTrouble>;

    /// The time of the server.
    fn time(&mut self) -> Result<Timestamp, ServerTrouble>;

    /// Declares a node dead: it writes nothing any more when this returns. A flush of the node that is under way is waited
    /// for, for a bounded time.
    fn declare_dead(&mut self, node: &NodeKey) -> Result<(), ServerTrouble>;
}

/// A connection that reads mail, and sends and receives notifications.
pub(crate) trait MailSession: Send {
    /// Whether the writer has connected anew since this session was opened.
    fn is_outdated(&self) -> bool;

    /// Mail for this node, and for those of these partitions that it has.
    fn unread(&mut self, wanted: &WantedMail) -> Result<Vec<UnreadMail>, ServerTrouble>;

    /// The latest epochs of partitions.
    fn epochs(&mut self, partitions: &[Partition]) -> Result<Vec<(Partition, Epoch)>, ServerTrouble>;

    /// Notifies the other nodes that there is mail.
    fn tell(&mut self) -> Result<(), ServerTrouble>;

    /// Waits until another node notifies, `wake` wakes, or the time is over. Returns what was notified.
    fn wait(&mut self, wake: &Notify, wait_max: Duration) -> ToldByNodes;
}

/// The notifications of other nodes since the last wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToldByNodes {
    /// There is mail.
    pub(crate) has_mail: bool,
    /// A node has left.
    pub(crate) has_left: bool,
}

/// Which mail is to be read.
#[derive(Clone, Debug)]
pub(crate) struct WantedMail {
    pub(crate) partitions: Vec<Partition>,
    pub(crate) except: Vec<u64>,
    pub(crate) len_max: usize,
    pub(crate) bytes_max: usize,
}

/// A connection that writes.
pub(crate) trait WriterSession: Send {
    /// Writes the rows, all or none: one statement.
    fn flush(&mut self, moved: Move, rows: &FlushRows) -> Result<Flushed, ServerTrouble>;

    /// Takes partitions for this node, all or none; it moves the marker as a flush does.
    fn hold(&mut self, moved: Move, partitions: &[Partition]) -> Result<Flushed, ServerTrouble>;

    /// The holders of partitions.
    fn held(&mut self, partitions: &[Partition]) -> Result<Vec<HeldPartition>, ServerTrouble>;

    /// Gives back everything that this node has. It writes nothing any more.
    fn leave(&mut self) -> Result<(), ServerTrouble>;

    /// From now on, the answer to a flush means that the flush and all before it are synced.
    fn sync(&mut self) -> Result<(), ServerTrouble>;

    /// Raises the term, if this opening has the store. Waits for a flush under way.
    fn raise_term(&mut self) -> Result<Option<i64>, ServerTrouble>;

    /// The place of the marker.
    fn marker(&mut self) -> Result<Option<i64>, ServerTrouble>;

    /// The earliest rows of a topic behind this record, at most `len_max`.
    fn topic_front(
        &mut self,
        topic: TopicNumber,
        behind: Sequence,
        len_max: usize,
    ) -> Result<Vec<TopicRowOutline>, ServerTrouble>;

    /// The earliest retained finished runs from this number on, at most `len_max`; only those of `partitions`, if these are
    /// given.
    fn earliest(
        &mut self,
        from: u64,
        len_max: usize,
        partitions: Option<&[Partition]>,
    ) -> Result<Vec<FrontRun>, ServerTrouble>;
}

/// The stored turns of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredTurns {
    /// Some of its turns, with the sequence of its last record.
    Known {
        last: u64,
        turns: Vec<StoredTurn>,
    },
    /// It has finished, and was dropped.
    Expired,
    Unknown,
}

/// A turn, as the bytes of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredTurn {
    /// The sequence of its last record.
    pub(crate) last: u64,
    pub(crate) frames: Bytes,
}

/// The latest finished run of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredFinished {
    Retained(FinishedRun),
    Expired(RunId),
    Unknown,
}

/// A page of finished runs, the latest closed first.
#[derive(Clone, Debug, Default)]
pub(crate) struct FinishedPage {
    pub(crate) runs: Vec<FinishedHead>,
    pub(crate) next: Option<RunId>,
}

/// Receives the turns of live runs, run by run.
pub(crate) type EachTurn<'a> = &'a mut dyn FnMut(RunId, Bytes);

/// A connection that reads. Each call sees the state of one moment.
pub(crate) trait ReaderSession: Send {
    /// Whether the writer has connected anew since this session was opened, perhaps to another server.
    fn is_outdated(&self) -> bool;

    /// Turns of a run, from the one that holds the record behind `after`: as many as fit `bytes_max`, and at least one if
    /// there are any.
    fn turns(&mut self, run: RunId, after: u64, bytes_max: u64) -> Result<StoredTurns, ServerTrouble>;

    /// Bytes of all turns of a run.
    fn run_bytes(&mut self, run: RunId) -> Result<u64, ServerTrouble>;

    fn snapshot(&mut self, run: RunId) -> Result<Option<Snapshot>, ServerTrouble>;

    /// For each instance the latest finished run, in the order of `ids`.
    fn finished(&mut self, ids: &[String]) -> Result<Vec<StoredFinished>, ServerTrouble>;

    /// Retained runs behind the given one, the earliest closed first.
    fn list_finished(
        &mut self,
        after: Option<RunId>,
        len_max: usize,
    ) -> Result<Vec<FinishedRun>, ServerTrouble>;

    fn find_finished(
        &mut self,
        search: &FinishedSearch,
        len_max: usize,
    ) -> Result<FinishedPage, ServerTrouble>;

    /// Rows of a topic, from the one that holds the record behind `after`: as many as fit `bytes_max`, and at least one if
    /// there are any.
    fn topic_rows(
        &mut self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: u64,
    ) -> Result<Vec<StoredTopicRow>, ServerTrouble>;

    /// The record before the first row of a topic that ends at this time or later.
    fn topic_at(&mut self, topic: TopicNumber, time: Timestamp) -> Result<Option<Sequence>, ServerTrouble>;

    /// The heads of the live runs of these partitions, and their retained counts.
    fn partitions(&mut self, partitions: &[Partition]) -> Result<StoredPartitions, ServerTrouble>;

    /// The retained counts of partitions.
    fn retained(&mut self, partitions: &[Partition]) -> Result<RetainedCounts, ServerTrouble>;

    /// The turns of the live runs of these partitions behind the run `after`, in the order of runs and sequences.
    fn live_turns(
        &mut self,
        partitions: &[u16],
        after: Option<RunId>,
        each: EachTurn<'_>,
    ) -> Result<(), ServerTrouble>;
}

/// Why a server did not perform a statement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServerTrouble {
    /// There is no connection any more, or no answer: the statement may have been performed or not.
    #[error("the connection to the database was lost: {0}")]
    Lost(String),
    /// Nothing was done; the server may do it at another time: it is full, or starting, say.
    #[error("the database refuses for now: {0}")]
    Refused(String),
    /// A row with this key exists already; nothing was done.
    #[error("{0}")]
    Duplicate(String),
    /// Nothing was done, and trying again would not help.
    #[error("the database refuses: {0}")]
    Failed(String),
}
