//! Someone who writes the history of one run.

use std::convert::Infallible;

use millrun_core::{Epoch, InstanceId, Offset, RunId, Sequence, Timestamp};

use super::Subject;
use crate::batch::{Batch, GroupWriter, TurnHeader, TurnWriter};
use crate::error::{TurnError, TurnRefused};
use crate::journal::Journal;
use crate::record::{History, Trimmed};

/// Writes the turns of one run and knows what it has written.
#[derive(Clone, Debug)]
pub struct Author {
    /// The id of its instance.
    pub id: InstanceId,
    /// Its run.
    pub run: RunId,
    /// The sequence number of the last record it has written.
    pub head: Sequence,
    /// The epoch under which it writes.
    pub epoch: Epoch,
    /// The time of its next turn.
    pub time: Timestamp,
    /// The bodies of all records that it has written.
    pub written: Vec<Vec<u8>>,
    /// Of how many of them its run was trimmed.
    pub trimmed: usize,
}

impl Author {
    /// Takes over the partition of `id`, for a run with the number `unique`.
    ///
    /// # Panics
    /// When the id is not one, or the journal has failed.
    pub fn new(journal: &impl Journal, id: &str, unique: u64) -> Self {
        let id = InstanceId::new(id).expect("the suite uses sound ids");
        let epoch = journal
            .take_over(&[id.partition()])
            .expect("an open journal gives an epoch");
        let time = Timestamp::from_micros(1_700_000_000_000_000 + unique);
        let run = RunId::new(id.partition(), time, unique);
        Self {
            id,
            run,
            head: Sequence::ZERO,
            epoch,
            time,
            written: Vec::new(),
            trimmed: 0,
        }
    }

    /// Puts a turn with these bodies into `batch`; returns its index.
    ///
    /// # Panics
    /// When the batch refuses it.
    pub fn put(&mut self, batch: &mut Batch, bodies: &[&[u8]], closes: bool) -> usize {
        let turn = batch.turn(self.header());
        Self::write(turn, bodies, closes).expect("the turn is sound");
        self.note(bodies);
        batch.turns() - 1
    }

    /// Puts a turn with these bodies into a group.
    ///
    /// # Panics
    /// When the group refuses it.
    pub fn put_grouped(&mut self, group: &mut GroupWriter<'_>, bodies: &[&[u8]], closes: bool) {
        let turn = group.turn(self.header());
        Self::write(turn, bodies, closes).expect("the turn is sound");
        self.note(bodies);
    }

    /// Puts a turn into `batch` that trims its run of all that was written before; returns its index. What it
    /// carries in their place is [`kept`](Self::kept).
    ///
    /// # Panics
    /// When the batch refuses it.
    pub fn put_trimming(&mut self, batch: &mut Batch, bodies: &[&[u8]]) -> usize {
        self.trimmed = self.written.len();
        let kept = self.kept();
        let mut turn = batch.turn(self.header());
        turn.trim(&self.id, &kept);
        Self::write(turn, bodies, false).expect("the turn is sound");
        self.note(bodies);
        batch.turns() - 1
    }

    /// What stands in the place of the records that its run was trimmed of.
    #[must_use]
    pub fn kept(&self) -> Vec<u8> {
        format!("{} records of {}", self.trimmed, self.id).into_bytes()
    }

    /// The bodies of the records that its run was not trimmed of.
    #[must_use]
    pub fn left(&self) -> &[Vec<u8>] {
        self.written.get(self.trimmed..).unwrap_or_default()
    }

    /// Of its next turn.
    fn header(&self) -> TurnHeader<'_> {
        TurnHeader {
            run: self.run,
            head: self.head,
            epoch: self.epoch,
            time: self.time,
            opens: (self.head == Sequence::ZERO).then_some(&self.id),
        }
    }

    fn write(mut turn: TurnWriter<'_>, bodies: &[&[u8]], closes: bool) -> Result<usize, TurnError> {
        for (kind, body) in (1..).zip(bodies) {
            let encode = |buffer: &mut Vec<u8>| {
                buffer.extend_from_slice(body);
                Ok::<_, Infallible>(())
            };
            turn.record(kind, encode).expect("the encoder cannot fail");
        }
        turn.finish(closes)
    }

    /// Remembers what it has written.
    fn note(&mut self, bodies: &[&[u8]]) {
        self.head = Sequence::new(self.head.get() + bodies.len() as u64);
        self.written.extend(bodies.iter().map(|body| body.to_vec()));
    }

    /// A batch with one turn of these bodies.
    pub fn batch(&mut self, bodies: &[&[u8]], closes: bool) -> Batch {
        let mut batch = Batch::new();
        self.put(&mut batch, bodies, closes);
        batch
    }

    /// Appends one turn that must be accepted, and returns when it is durable.
    ///
    /// # Panics
    /// When it is refused.
    pub fn append<S: Subject>(
        &mut self,
        subject: &S,
        journal: &S::Journal,
        bodies: &[&[u8]],
        closes: bool,
    ) -> Offset {
        let batch = self.batch(bodies, closes);
        let offset = accepted(journal, &batch);
        subject.settle(journal, offset);
        assert!(
            journal.high_watermark() >= offset,
            "the watermark reaches the offset: {:?}",
            journal.failure()
        );
        offset
    }

    /// Appends a turn that trims its run and must be accepted, and returns when it is durable.
    ///
    /// # Panics
    /// When it is refused.
    pub fn append_trimming<S: Subject>(
        &mut self,
        subject: &S,
        journal: &S::Journal,
        bodies: &[&[u8]],
    ) -> Offset {
        let mut batch = Batch::new();
        self.put_trimming(&mut batch, bodies);
        let offset = accepted(journal, &batch);
        subject.settle(journal, offset);
        offset
    }

    /// The journal must give back exactly what was written, and its run was not trimmed of.
    ///
    /// # Panics
    /// When it does not.
    pub fn assert_history(&self, journal: &impl Journal) -> History {
        let history = journal.history(self.run).expect("the run has durable records");
        let bodies: Vec<_> = history
            .records
            .iter()
            .map(|record| record.body.to_vec())
            .collect();
        assert_eq!(bodies, self.left(), "the history of {}", self.id);
        let sequences: Vec<_> = history
            .records
            .iter()
            .map(|record| record.sequence.get())
            .collect();
        let before = self.trimmed as u64;
        let expected: Vec<_> = (before + 1..=self.written.len() as u64).collect();
        assert_eq!(sequences, expected, "sequences go on and have no gaps");
        let trimmed = (before > 0).then(|| Trimmed::new(Sequence::new(before + 1), self.kept().into()));
        assert_eq!(history.trimmed, trimmed, "what {} was trimmed of", self.id);
        assert_eq!((&history.id, history.run), (&self.id, self.run));
        history
    }
}

/// Enqueues a batch all of whose turns must be accepted.
pub(super) fn accepted(journal: &impl Journal, batch: &Batch) -> Offset {
    let enqueued = journal.enqueue(batch).expect("the batch is taken");
    assert_eq!(enqueued.refused, [], "all turns are accepted");
    enqueued.offset
}

/// Enqueues a batch with a single turn that must be refused.
pub(super) fn refused(journal: &impl Journal, batch: &Batch) -> TurnRefused {
    let mut enqueued = journal.enqueue(batch).expect("the batch is taken");
    assert_eq!(enqueued.refused.len(), 1, "one turn is refused");
    enqueued.refused.remove(0).error
}
