//! A finished turn of a batch as a journal reads it: its conditions, and its records.
//!
//! The frames were made in this process, so they are parsed without a look at their checksums: the batch of a journal without
//! a disk has none.

use std::iter::FusedIterator;

use millrun_core::{Epoch, RunId, Sequence, Timestamp};

use super::TurnSpan;
use crate::record::RecordView;
use crate::wire::v1;

/// A finished turn of a [`Batch`](super::Batch): the conditions under which a journal takes it, and its
/// records. Made by [`Batch::iter`](super::Batch::iter) and [`Batch::turn_at`](super::Batch::turn_at).
#[derive(Clone, Copy, Debug)]
pub struct TurnView<'a> {
    span: &'a TurnSpan,
    frames: &'a [u8],
}

impl<'a> TurnView<'a> {
    pub(super) fn new(span: &'a TurnSpan, frames: &'a [u8]) -> Self {
        Self { span, frames }
    }

    /// The run that took the turn.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.span.run
    }

    /// The sequence number of the run's last record before this turn; zero if the turn opens the run.
    #[must_use]
    pub fn head(&self) -> Sequence {
        self.span.head
    }

    /// The sequence number of the turn's last record.
    #[must_use]
    pub fn last(&self) -> Sequence {
        self.span.last
    }

    /// The epoch under which the writer owns the run's partition.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.span.epoch
    }

    /// When the turn was taken.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.span.time
    }

    /// The id of the run's instance, if the turn is the run's first.
    #[must_use]
    pub fn opens(&self) -> Option<&'a str> {
        if self.span.trims {
            return None;
        }
        self.records().next()?.opens
    }

    /// What replaces all records of the run before the turn, if the turn [trims](super::TurnWriter::trim) its run: once the
    /// turn is durable, those records are not returned any more.
    #[must_use]
    pub fn trims(&self) -> Option<&'a [u8]> {
        if !self.span.trims {
            return None;
        }
        self.records().next()?.kept
    }

    /// Whether the run has finished with this turn.
    #[must_use]
    pub fn closes(&self) -> bool {
        self.span.closes
    }

    /// Whether the turn is refused, as [`TurnRefused::ReadAgain`](crate::TurnRefused::ReadAgain), if the turn
    /// before it in its batch is refused other than as already appended.
    #[must_use]
    pub fn is_tied(&self) -> bool {
        self.span.is_tied
    }

    /// Size of the turn in bytes, frames included: what a journal's `turn_bytes_max` bounds, whatever form
    /// the journal stores it in.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// The turn as the journals of this crate store it, for one that stores the same bytes elsewhere: see
    /// [`frames`](crate::frames). With checksums only if its batch is [sealed](super::Batch::sealed).
    #[must_use]
    pub fn frames(&self) -> &'a [u8] {
        self.frames
    }

    /// The records, in order; at least one.
    #[must_use]
    pub fn records(&self) -> TurnRecords<'a> {
        TurnRecords { frames: self.frames }
    }
}

/// The records of one turn, see [`TurnView::records`].
#[derive(Clone, Debug)]
pub struct TurnRecords<'a> {
    frames: &'a [u8],
}

impl<'a> Iterator for TurnRecords<'a> {
    type Item = RecordView<'a>;

    fn next(&mut self) -> Option<RecordView<'a>> {
        if self.frames.is_empty() {
            return None;
        }
        let frame = v1::parse(self.frames).expect("a batch holds whole frames that it has made itself");
        self.frames = &self.frames[frame.len..];
        Some(RecordView {
            run: frame.run,
            sequence: frame.sequence,
            kind: frame.kind,
            time: frame.time,
            opens: frame.id,
            kept: frame.kept,
            closes: frame.has(v1::CLOSES),
            body: frame.body,
        })
    }
}

impl FusedIterator for TurnRecords<'_> {}
