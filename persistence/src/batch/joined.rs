//! A batch that is joined from several callers' batches, for an [`Appender`](crate::appender::Appender).

use std::ops::Range;

use super::{Batch, TurnSpan};
use crate::wire::v1;

impl Batch {
    /// Appends a copy of all turns of another batch.
    pub(crate) fn join(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        let is_to_be_sealed = self.is_sealed && !other.is_sealed;
        for span in &other.turns {
            let (start, end) = (start + span.start, start + span.end);
            let digest = if is_to_be_sealed {
                v1::seal_all(&mut self.bytes[start..end])
            } else {
                span.digest
            };
            self.turns.push(TurnSpan {
                start,
                end,
                digest,
                ..*span
            });
        }
        self.joined += 1;
    }

    /// Removes these turns: all that one caller has joined.
    pub(crate) fn cut(&mut self, turns: Range<usize>) {
        self.joined = self.joined.saturating_sub(1);
        let spans = self.turns.get(turns.clone()).unwrap_or_default();
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else {
            return;
        };
        let bytes = first.start..last.end;
        let gone = bytes.len();
        self.bytes.drain(bytes);
        self.turns.drain(turns.clone());
        for span in &mut self.turns[turns.start..] {
            span.start -= gone;
            span.end -= gone;
        }
    }

    /// Frees memory if the batch has more than twice what this number of turns and bytes needs.
    pub(crate) fn shrink(&mut self, turns: usize, bytes: usize) {
        if self.bytes.capacity() > 2 * bytes {
            self.bytes.shrink_to(bytes);
        }
        if self.turns.capacity() > 2 * turns {
            self.turns.shrink_to(turns);
        }
    }

    /// How many turns and bytes fit into its memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> (usize, usize) {
        (self.turns.capacity(), self.bytes.capacity())
    }
}
