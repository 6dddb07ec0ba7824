//! What a journal returns: records, histories, finished runs.

use bytes::Bytes;
use millrun_core::{InstanceId, RunId, Sequence, Timestamp};

/// One record, borrowed from the bytes that it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Whose record it is.
    pub run: RunId,
    /// Its place in the run's history.
    pub sequence: Sequence,
    /// As the writer gave it.
    pub kind: u8,
    /// When its turn was taken.
    pub time: Timestamp,
    /// The instance's id, in the first record of a run, and in a record with which the run was trimmed.
    pub opens: Option<&'a str>,
    /// What is [kept](Trimmed::kept) of the records before this one, if the run was trimmed here.
    pub kept: Option<&'a [u8]>,
    /// Whether it is the last record of its run.
    pub closes: bool,
    /// As the writer encoded it.
    pub body: &'a [u8],
}

impl RecordView<'_> {
    /// The owned form.
    #[must_use]
    pub fn to_record(&self) -> Record {
        Record {
            sequence: self.sequence,
            kind: self.kind,
            time: self.time,
            closes: self.closes,
            body: Bytes::copy_from_slice(self.body),
        }
    }
}

/// One record of a [`History`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the run's history.
    pub sequence: Sequence,
    /// As the writer gave it.
    pub kind: u8,
    /// When its turn was taken.
    pub time: Timestamp,
    /// Whether it is the last record of its run.
    pub closes: bool,
    /// As the writer encoded it.
    pub body: Bytes,
}

impl Record {
    /// Whether it equals this record of a [turn](crate::TurnView) that is appended once more.
    #[must_use]
    pub fn is_same_as(&self, other: &RecordView<'_>) -> bool {
        (self.sequence, self.kind, self.time, self.closes)
            == (other.sequence, other.kind, other.time, other.closes)
            && self.body == other.body
    }
}

/// What replaces the records that a run was [trimmed](crate::TurnWriter::trim) of: all records before the record
/// [`before`](Self::before).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trimmed {
    /// The first remaining record: the first of the turn that has trimmed the run.
    pub before: Sequence,
    /// What that turn carries in place of all records before it, as the run's owner encoded it.
    pub kept: Bytes,
}

impl Trimmed {
    /// For a run whose first remaining record is `before`, and carries `kept`.
    #[must_use]
    pub fn new(before: Sequence, kept: Bytes) -> Self {
        Self { before, kept }
    }
}

/// The durable records of one run, without gaps: from sequence 1, or from the first record of the turn that trimmed the run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// Whose history it is.
    pub run: RunId,
    /// The id of the run's instance.
    pub id: InstanceId,
    /// All records, never empty.
    pub records: Vec<Record>,
    /// What replaces the trimmed records; `None` if the run was not trimmed.
    pub trimmed: Option<Trimmed>,
}

impl History {
    /// The whole history of a run.
    #[must_use]
    pub fn new(run: RunId, id: InstanceId, records: Vec<Record>, trimmed: Option<Trimmed>) -> Self {
        Self {
            run,
            id,
            records,
            trimmed,
        }
    }

    /// The sequence number of the last record.
    #[must_use]
    pub fn head(&self) -> Sequence {
        self.records
            .last()
            .map_or(Sequence::ZERO, |record| record.sequence)
    }

    /// Whether the run has finished.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.records.last().is_some_and(|record| record.closes)
    }
}

/// Some consecutive records of one run, see
/// [`Reads::history_page`](crate::Reads::history_page).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryPage {
    /// The records, in order and without gaps.
    pub records: Vec<Record>,
    /// The sequence number of the run's last durable record.
    pub head: Sequence,
    /// What replaces the trimmed records, if the page begins with the first remaining record: records between the one that
    /// was asked for and that one no longer exist.
    pub trimmed: Option<Trimmed>,
    /// The id of the run's instance, if the page begins with the first remaining record.
    pub id: Option<InstanceId>,
}

impl HistoryPage {
    /// A page of these consecutive records of a run whose last durable record is `head`.
    #[must_use]
    pub fn new(records: Vec<Record>, head: Sequence) -> Self {
        Self {
            records,
            head,
            trimmed: None,
            id: None,
        }
    }

    /// The same page, for one that begins with the first remaining record of a run of the instance `id`: `trimmed` is what
    /// replaces the records before, if the run was trimmed.
    #[must_use]
    pub fn with_beginning(self, id: InstanceId, trimmed: Option<Trimmed>) -> Self {
        let id = Some(id);
        Self { id, trimmed, ..self }
    }

    /// Whether the page ends with the run's last record.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.records
            .last()
            .is_none_or(|record| record.sequence == self.head)
    }
}

/// The state of a live run after one of its records, folded and encoded by its owner.
///
/// It saves reading the records up to there. It can always be rebuilt from the history, so it may be lost or deleted at any
/// time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Whose state it is.
    pub run: RunId,
    /// The last record that is folded into it.
    pub sequence: Sequence,
    /// As the owner encoded it.
    pub bytes: Bytes,
}

/// A finished run that is still retained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishedRun {
    /// The run.
    pub run: RunId,
    /// The id of its instance.
    pub id: InstanceId,
    /// The time of its last turn.
    pub closed_at: Timestamp,
    /// The sequence number of its last record.
    pub head: Sequence,
}

impl FinishedRun {
    /// The run of the instance `id` that finished at `closed_at` with the record `head`.
    #[must_use]
    pub fn new(run: RunId, id: InstanceId, closed_at: Timestamp, head: Sequence) -> Self {
        Self {
            run,
            id,
            closed_at,
            head,
        }
    }
}
