//! A batch: framed turns, ready to be queued.
//!
//! ```text
//!   bytes  │ frame frame │ frame │ frame frame frame │      built by one owner, outside any lock;
//!   turns  │ turn 0      │ turn 1│ turn 2            │      the journal copies what it accepts
//! ```
//!
//! A checksum guards what is read back from a disk. A journal that has none gives out
//! [batches](crate::Journal::batch) whose frames have none either; where such a batch meets a disk all
//! the same, [`Batch::sealed`] sets them.
//!
//! Invariants: the bytes are exactly the frames of the finished turns, in order; every frame is
//! complete, and sealed unless the batch leaves that out; a turn that was not finished leaves no trace.

mod group;
#[cfg(feature = "appender")]
mod joined;
mod topic_records;
mod turn_view;

use std::borrow::Cow;

use millrun_core::{Epoch, InstanceId, RunId, Sequence, Timestamp};

pub(crate) use self::group::bytes as bytes_of;
pub use self::group::{GroupView, GroupWriter};
pub(crate) use self::topic_records::{BatchTopics, TopicRecordSpan};
pub use self::topic_records::{TopicRecordHeader, TopicRecordView};
pub use self::turn_view::{TurnRecords, TurnView};
use crate::error::TurnError;
use crate::mail::MailStep;
use crate::wire::v1;

/// The greatest size of one turn unless configured otherwise: 16 MiB.
pub const TURN_BYTES_MAX_DEFAULT: usize = 16 << 20;

/// A reusable buffer of framed turns. Each turn is all or nothing, and so is each [group](Self::group) of them.
///
/// ```
/// use std::convert::Infallible;
/// use millrun_core::{Epoch, InstanceId, RunId, Sequence, Timestamp};
/// use millrun_persistence::{Batch, TurnHeader};
///
/// let id = InstanceId::new("order-42")?;
/// let now = Timestamp::from_micros(1_700_000_000_000_000);
/// let run = RunId::new(id.partition(), now, 1);
/// let mut batch = Batch::new();
/// let mut turn = batch.turn(TurnHeader {
///     run, head: Sequence::ZERO, epoch: Epoch::new(1), time: now, opens: Some(&id),
/// });
/// turn.record(1, |body| { body.extend_from_slice(b"started"); Ok::<_, Infallible>(()) })?;
/// turn.finish(false)?;
/// assert_eq!(batch.turns(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    turns: Vec<TurnSpan>,
    turn_bytes_max: usize,
    /// Whether all frames are sealed, and the digests of turns are set.
    is_sealed: bool,
    /// How many batches were joined to this one.
    joined: usize,
    /// Records of topics, if it has had any.
    topics: Option<Box<BatchTopics>>,
    /// How many there are, and of how many bytes: most batches have none, and are not to look.
    topics_len: usize,
    topics_bytes: usize,
    /// What becomes of mail between nodes with it.
    pub(crate) mail: Vec<MailStep>,
}

/// Where a finished turn stands, and under which conditions it may be appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnSpan {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) run: RunId,
    pub(crate) head: Sequence,
    pub(crate) last: Sequence,
    pub(crate) epoch: Epoch,
    pub(crate) time: Timestamp,
    /// Of the checksums of its frames, if they are set.
    pub(crate) digest: u32,
    pub(crate) opens: bool,
    /// All records of the run before it go once it is durable.
    pub(crate) trims: bool,
    pub(crate) closes: bool,
    /// The kind of its last record.
    pub(crate) last_kind: u8,
    /// It is refused if the turn before it is.
    pub(crate) is_tied: bool,
    /// How many turns of its group stand from this one on; zero for a turn by itself.
    pub(crate) group: u32,
}

impl Batch {
    /// An empty batch whose turns have at most [`TURN_BYTES_MAX_DEFAULT`] bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::with_turn_bytes_max(TURN_BYTES_MAX_DEFAULT)
    }

    /// An empty batch whose turns have at most `turn_bytes_max` bytes, frames included.
    #[must_use]
    pub fn with_turn_bytes_max(turn_bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            turns: Vec::new(),
            turn_bytes_max: turn_bytes_max.min(u32::MAX as usize),
            is_sealed: true,
            joined: 0,
            topics: None,
            topics_len: 0,
            topics_bytes: 0,
            mail: Vec::new(),
        }
    }

    /// As [`with_turn_bytes_max`](Self::with_turn_bytes_max), for a journal that needs no checksums.
    pub(crate) fn unsealed(turn_bytes_max: usize) -> Self {
        Self {
            is_sealed: false,
            ..Self::with_turn_bytes_max(turn_bytes_max)
        }
    }

    /// The same batch with all checksums: a journal without a disk makes batches that have none, and one that stores
    /// [frames](TurnView::frames) sets them as it takes such a batch.
    #[must_use]
    pub fn sealed(&self) -> Cow<'_, Self> {
        if self.is_sealed {
            return Cow::Borrowed(self);
        }
        let mut sealed = self.clone();
        for turn in &mut sealed.turns {
            turn.digest = v1::seal_all(&mut sealed.bytes[turn.start..turn.end]);
        }
        sealed.is_sealed = true;
        Cow::Owned(sealed)
    }

    /// Removes all turns, records of topics and what becomes of mail, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.turns.clear();
        self.joined = 0;
        self.mail.clear();
        if self.topics_len > 0 {
            self.clear_topics();
        }
    }

    /// Whether no turn has been finished, and there is no record of a topic and nothing about mail.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.topics_len == 0 && self.mail.is_empty()
    }

    /// How many turns have been finished.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Size of the finished turns and the records of topics in bytes, as they will be stored.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.topics_bytes
    }

    /// The finished turn with this index: one that was [refused](crate::RefusedTurn), say. `None` if there are not
    /// that many.
    #[must_use]
    pub fn turn_at(&self, turn: usize) -> Option<TurnView<'_>> {
        let span = self.turns.get(turn)?;
        Some(TurnView::new(span, self.frames(span)))
    }

    /// The finished turns, in order: what a journal takes.
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use millrun_core::{Epoch, InstanceId, RunId, Sequence, Timestamp};
    /// # use millrun_persistence::{Batch, TurnHeader};
    /// # let id = InstanceId::new("order-42")?;
    /// # let time = Timestamp::from_micros(1_700_000_000_000_000);
    /// # let run = RunId::new(id.partition(), time, 1);
    /// # let (head, epoch, opens) = (Sequence::ZERO, Epoch::new(1), Some(&id));
    /// # let mut batch = Batch::new();
    /// # let mut turn = batch.turn(TurnHeader { run, head, epoch, time, opens });
    /// # turn.record(1, |body| { body.extend_from_slice(b"started"); Ok::<_, Infallible>(()) })?;
    /// # turn.finish(false)?;
    /// for turn in batch.iter() {
    ///     assert_eq!((turn.run(), turn.opens()), (run, Some("order-42")));
    ///     let bodies: Vec<_> = turn.records().map(|record| record.body).collect();
    ///     assert_eq!(bodies, [b"started"]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = TurnView<'_>> + DoubleEndedIterator + '_ {
        self.turns
            .iter()
            .map(|span| TurnView::new(span, self.frames(span)))
    }

    /// Ties the last finished turn to the one before it in this batch, of another run: it rests on that one,
    /// and is refused as [`TurnRefused::ReadAgain`](crate::TurnRefused::ReadAgain) if that one is refused
    /// other than as already appended. The two become durable in one commit: a store that is opened behind a crash has
    /// both, or the first of them not either. Does nothing if there is none before it. The last [group](Self::group)
    /// is tied as a whole to the turn before it.
    pub fn tie_last(&mut self) {
        let first = self.first_of_last_group();
        if first > 0
            && let Some(turn) = self.turns.get_mut(first)
        {
            turn.is_tied = true;
        }
    }

    /// Starts a turn. Unless it is [finished](TurnWriter::finish), it leaves no trace.
    pub fn turn<'b>(&'b mut self, header: TurnHeader<'_>) -> TurnWriter<'b> {
        let start = self.bytes.len();
        self.turn_in_group(header, start)
    }

    /// As [`turn`](Self::turn), of a group whose bytes begin at `group_start`.
    fn turn_in_group<'b>(&'b mut self, header: TurnHeader<'_>, group_start: usize) -> TurnWriter<'b> {
        let start = self.bytes.len();
        TurnWriter {
            batch: self,
            start,
            group_start,
            run: header.run,
            head: header.head,
            epoch: header.epoch,
            time: header.time,
            opens: header.opens.cloned(),
            kept: None,
            is_beginning: false,
            records: 0,
            open: start,
            end: start,
            digest: 0,
            problem: None,
            is_finished: false,
        }
    }

    /// Of how many callers it holds turns.
    pub(crate) fn callers(&self) -> usize {
        self.joined.max(1)
    }

    pub(crate) fn spans(&self) -> &[TurnSpan] {
        &self.turns
    }

    pub(crate) fn frames(&self, span: &TurnSpan) -> &[u8] {
        &self.bytes[span.start..span.end]
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

/// Whose turn it is and under which conditions it may be appended.
#[derive(Clone, Copy, Debug)]
pub struct TurnHeader<'a> {
    /// The run that took the turn.
    pub run: RunId,
    /// The sequence number of the run's last record before this turn; zero if there is none.
    pub head: Sequence,
    /// The epoch under which the writer owns the run's partition.
    pub epoch: Epoch,
    /// When the turn was taken.
    pub time: Timestamp,
    /// The id of the run's instance, if and only if this turn is the run's first. It is stored
    /// once, in the first record.
    pub opens: Option<&'a InstanceId>,
}

/// Writes one turn into a [`Batch`].
///
/// Dropped without [`finish`](Self::finish), it takes its records back.
#[derive(Debug)]
#[must_use = "a turn that is not finished is taken back"]
pub struct TurnWriter<'b> {
    batch: &'b mut Batch,
    start: usize,
    /// Where its group begins, which is bounded as one turn; a turn by itself is its own group.
    group_start: usize,
    run: RunId,
    head: Sequence,
    epoch: Epoch,
    time: Timestamp,
    opens: Option<InstanceId>,
    /// What takes the place of all records before the turn, if it trims its run.
    kept: Option<Box<[u8]>>,
    /// It trims a run of which nothing else is there.
    is_beginning: bool,
    records: u64,
    /// Where the last record's frame begins, which is completed when it is known whether another follows.
    open: usize,
    /// Where the last record ends: what stands behind it is left from an encoder that panicked.
    end: usize,
    /// Of the checksums of those before it.
    digest: u32,
    problem: Option<TurnError>,
    is_finished: bool,
}

impl TurnWriter<'_> {
    /// The turn trims its run: once it is durable, all records before it are gone, and `kept` is handed out
    /// with the turn's first record in their place (see [`Trimmed`](crate::Trimmed)). `kept` counts to the size
    /// of the turn. Sequence numbers go on as before.
    ///
    /// It is said before the first record, with the id of the run's instance, and of a turn that neither
    /// opens nor closes its run; otherwise [`finish`](Self::finish) gives [`TurnError::TrimMismatch`].
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use millrun_core::{Epoch, InstanceId, RunId, Sequence, Timestamp};
    /// # use millrun_persistence::{Batch, TurnHeader};
    /// # let id = InstanceId::new("order-42")?;
    /// # let time = Timestamp::from_micros(1_700_000_000_000_000);
    /// # let run = RunId::new(id.partition(), time, 1);
    /// # let mut batch = Batch::new();
    /// let (head, epoch) = (Sequence::new(1_000), Epoch::new(1));
    /// let mut turn = batch.turn(TurnHeader { run, head, epoch, time, opens: None });
    /// turn.trim(&id, b"the fold of a thousand records");
    /// turn.record(9, |body| { body.extend_from_slice(b"checkpoint"); Ok::<_, Infallible>(()) })?;
    /// turn.finish(false)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trim(&mut self, id: &InstanceId, kept: &[u8]) {
        if self.records > 0 || self.opens.is_some() {
            self.problem.get_or_insert(TurnError::TrimMismatch);
            return;
        }
        self.opens = Some(id.clone());
        self.kept = Some(kept.into());
    }

    /// As [`trim`](Self::trim), of a run of which there is nothing yet: it comes from another store.
    pub(crate) fn begin_trimmed(&mut self, kept: &[u8]) {
        self.kept = Some(kept.into());
        self.is_beginning = true;
    }

    /// Appends one record. `kind` is not interpreted; `body` encodes the record straight into the
    /// buffer it is given, behind what is there already, and must only append.
    ///
    /// Once the turn is larger than allowed, further bodies are not encoded, and
    /// [`finish`](Self::finish) says so.
    ///
    /// # Errors
    /// What `body` gives. The record is taken back; the turn may go on or be dropped.
    ///
    /// # Panics
    /// When `body` does, which takes the record back too, and when it has removed bytes that were there
    /// before it: then the turn must be dropped and the batch cleared; [`finish`](Self::finish) panics.
    pub fn record<E>(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        self.record_at(self.time, kind, body)
    }

    /// As [`record`](Self::record), of a record that is older than the turn: of a run that begins with records of another.
    /// The turn keeps its own time, which is that of the run's end if it closes the run.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    ///
    /// # Panics
    /// As [`record`](Self::record).
    pub fn record_at<E>(
        &mut self,
        time: Timestamp,
        kind: u8,
        body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.problem.is_some() {
            return Ok(());
        }
        let number = self.head.get().saturating_add(self.records + 1);
        if number > v1::SEQUENCE_MAX {
            self.problem = Some(TurnError::TooManyRecords);
            return Ok(());
        }
        let header = v1::FrameHeader {
            run: self.run,
            sequence: Sequence::new(number),
            time,
            kind,
        };
        self.take_back();
        let (id, flags) = match (&self.opens, self.records) {
            (Some(id), 0) => (Some(id.as_str()), v1::OPENS | v1::TURN_FIRST),
            (_, 0) => (None, v1::TURN_FIRST),
            _ => (None, 0),
        };
        let bytes = &mut self.batch.bytes;
        let frame = v1::begin(bytes, &header, id, flags);
        if self.records == 0
            && let Some(kept) = &self.kept
        {
            v1::end(&mut bytes[frame..], v1::TRIMS);
            v1::put_kept(bytes, kept);
        }
        let body_start = bytes.len();
        let outcome = body(bytes);
        assert!(
            bytes.len() >= body_start,
            "the encoder removed bytes that were not its own"
        );
        if outcome.is_err() {
            bytes.truncate(frame);
            return outcome;
        }
        let turn_bytes = bytes.len() - self.group_start;
        if turn_bytes > self.batch.turn_bytes_max {
            self.problem = Some(TurnError::TooLarge {
                bytes: turn_bytes,
                max: self.batch.turn_bytes_max,
            });
            bytes.truncate(self.start);
            self.end = self.start;
            return Ok(());
        }
        self.end = bytes.len();
        if self.records > 0 {
            self.end_frame(frame, 0);
        }
        self.open = frame;
        self.records += 1;
        Ok(())
    }

    /// Ends the turn. `closes` says that the run has finished with it. Returns the turn's index
    /// in the batch, by which a refusal will name it.
    ///
    /// # Errors
    /// When the turn is empty, too large, or its header contradicts itself; the batch is then as
    /// it was before the turn.
    ///
    /// # Panics
    /// When an encoder has removed bytes that were not its own.
    pub fn finish(mut self, closes: bool) -> Result<usize, TurnError> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        if self.records == 0 {
            return Err(TurnError::Empty);
        }
        let trims = self.kept.is_some();
        if trims && ((closes && !self.is_beginning) || self.head == Sequence::ZERO) {
            return Err(TurnError::TrimMismatch);
        }
        if self.opens.is_some() != (trims || self.head == Sequence::ZERO) {
            return Err(TurnError::OpensMismatch);
        }
        if self
            .opens
            .as_ref()
            .is_some_and(|id| id.partition() != self.run.partition())
        {
            return Err(TurnError::WrongPartition);
        }
        self.take_back();
        self.end_frame(self.end, v1::TURN_LAST | if closes { v1::CLOSES } else { 0 });
        let index = self.batch.turns.len();
        self.batch.turns.push(TurnSpan {
            start: self.start,
            end: self.end,
            run: self.run,
            head: self.head,
            last: Sequence::new(self.head.get() + self.records),
            epoch: self.epoch,
            time: self.time,
            digest: self.digest,
            opens: self.opens.is_some() && (!trims || self.is_beginning),
            trims,
            closes,
            last_kind: v1::kind(&self.batch.bytes[self.open..]),
            is_tied: false,
            group: 0,
        });
        self.is_finished = true;
        Ok(index)
    }

    /// Takes back what an encoder that panicked has left.
    fn take_back(&mut self) {
        let bytes = &mut self.batch.bytes;
        assert!(
            bytes.len() >= self.end,
            "an encoder removed bytes that were not its own"
        );
        bytes.truncate(self.end);
    }

    /// Completes the last record's frame, which ends at `end`.
    fn end_frame(&mut self, end: usize, flags: u8) {
        let frame = &mut self.batch.bytes[self.open..end];
        v1::end(frame, flags);
        if self.batch.is_sealed {
            self.digest = v1::digest(self.digest, v1::seal(frame));
        }
    }
}

impl Drop for TurnWriter<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.batch.bytes.truncate(self.start);
        }
    }
}

#[cfg(test)]
mod tests;
