//! The server as the journal sees it: what is asked of it, and how it may fail. The journal knows no SQL; a simulated server
//! can stand in the place of a real one.
//!
//! Calls wait for the answer, on the threads of the journal. After [`ServerTrouble::Lost`] a session is dropped, and another is
//! opened.

use bytes::Bytes;
use millrun_core::{RunId, Sequence, Timestamp};
use millrun_persistence::{
    FinishedHead, FinishedRun, FinishedSearch, Snapshot, StoredTopicRow, TopicNumber, TopicRowOutline,
};

use crate::outcome::Move;
use crate::retained::FrontRun;
use crate::rows::FlushRows;

/// Opens sessions.
pub(crate) trait Server: Send + Sync {
    /// A session that writes, for an opening that has the store already.
    fn writer(&self) -> Result<Box<dyn WriterSession>, ServerTrouble>;

    /// A session that reads; of the server that the writer writes to if it `must_be_ours`.
    fn reader(&self, must_be_ours: bool) -> Result<Box<dyn ReaderSession>, ServerTrouble>;
}

/// What became of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flushed {
    /// The term was the present one.
    pub(crate) has_term: bool,
    /// The marker was where it had to be, and everything is written.
    pub(crate) has_moved: bool,
    /// The time of the server.
    pub(crate) now: Timestamp,
}

/// A connection that writes.
pub(crate) trait WriterSession: Send {
    /// Writes the rows, all or none: one statement.
    fn flush(&mut self, moved: Move, rows: &FlushRows) -> Result<Flushed, ServerTrouble>;

    /// From now on an answer to a flush says that it has been synced, with all flushes before it.
    fn sync(&mut self) -> Result<(), ServerTrouble>;

    /// Raises the term, if this opening has the store; waits for a flush that is under way.
    fn raise_term(&mut self) -> Result<Option<i64>, ServerTrouble>;

    /// Where the marker is.
    fn marker(&mut self) -> Result<Option<i64>, ServerTrouble>;

    /// The earliest rows of a topic behind this record, at most `len_max`.
    fn topic_front(
        &mut self,
        topic: TopicNumber,
        behind: Sequence,
        len_max: usize,
    ) -> Result<Vec<TopicRowOutline>, ServerTrouble>;

    /// The earliest finished runs from this number on, at most `len_max`.
    fn earliest(&mut self, from: u64, len_max: usize) -> Result<Vec<FrontRun>, ServerTrouble>;
}

/// What is stored of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredTurns {
    /// Some of its turns, and the sequence of its last record.
    Known {
        last: u64,
        turns: Vec<StoredTurn>,
    },
    /// It has finished, and was dropped.
    Expired,
    Unknown,
}

/// A turn, in the bytes of its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredTurn {
    /// The sequence of its last record.
    pub(crate) last: u64,
    pub(crate) frames: Bytes,
}

/// What is known of the latest run of an instance that has finished.
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

/// A connection that reads. Each call sees one moment.
pub(crate) trait ReaderSession: Send {
    /// Whether the writer has connected anew since this session was opened: it may have found another server.
    fn is_outdated(&self) -> bool;

    /// Turns of a run from the one on that holds the record behind `after`: as many as have `bytes_max` bytes, and one at
    /// least if there are any.
    fn turns(&mut self, run: RunId, after: u64, bytes_max: u64) -> Result<StoredTurns, ServerTrouble>;

    /// Bytes of all turns of a run.
    fn run_bytes(&mut self, run: RunId) -> Result<u64, ServerTrouble>;

    fn snapshot(&mut self, run: RunId) -> Result<Option<Snapshot>, ServerTrouble>;

    /// Of each instance the latest run that has finished, in their order.
    fn finished(&mut self, ids: &[String]) -> Result<Vec<StoredFinished>, ServerTrouble>;

    /// Retained runs behind this one, the earliest closed first.
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

    /// Rows of a topic from the one on that holds the record behind `after`: as many as have `bytes_max` bytes, and one at
    /// least if there are any.
    fn topic_rows(
        &mut self,
        topic: TopicNumber,
        after: Sequence,
        bytes_max: u64,
    ) -> Result<Vec<StoredTopicRow>, ServerTrouble>;

    /// The record before the first row of a topic that ends at this time or later.
    fn topic_at(&mut self, topic: TopicNumber, time: Timestamp) -> Result<Option<Sequence>, ServerTrouble>;

    /// The turns of the live runs of these partitions behind the run `after`, in the order of runs and sequences.
    fn live_turns(
        &mut self,
        partitions: &[u16],
        after: Option<RunId>,
        each: EachTurn<'_>,
    ) -> Result<(), ServerTrouble>;
}

/// Why a server did not do what it was asked to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServerTrouble {
    /// There is no connection any more, or no answer: whether it was done is not known.
    #[error("the connection to the database was lost: {0}")]
    Lost(String),
    /// The server has done nothing, and may do it at another time: it is full, or starting, say.
    #[error("the database refuses for now: {0}")]
    Refused(String),
    /// A row with this key is there already; nothing was done.
    #[error("{0}")]
    Duplicate(String),
    /// The server has done nothing and will not.
    #[error("the database refuses: {0}")]
    Failed(String),
}
