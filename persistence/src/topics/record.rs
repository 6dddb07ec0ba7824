//! Records of a topic as they are read: in chunks that share the bytes in which they were written.

use bytes::Bytes;
use millrun_core::{Partition, Sequence, Timestamp};

use crate::wire::topic_frame::{self, TopicFrame, TopicFrameError};

/// A record of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRecord {
    /// The number of the record within its topic.
    pub sequence: Sequence,
    /// The partition that it belongs to.
    pub partition: Partition,
    /// When it was appended, by the clock of its writer.
    pub time: Timestamp,
    /// The id by which a repeated append of the record is recognised.
    pub id: Option<u128>,
    /// The bytes that the writer wrote: a slice of the record's chunk, which stays in memory as long as the slice.
    pub body: Bytes,
}

/// Some consecutive records of a topic. A cheap clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicChunk {
    first: Sequence,
    len: u32,
    /// Checked, or made in this process.
    frames: Bytes,
}

impl TopicChunk {
    /// A chunk of these records: the first gets the sequence `first`, the others the next ones. For journals that keep
    /// records in their own form. `None` if there are no records.
    #[must_use]
    pub fn of<'a>(first: Sequence, records: impl IntoIterator<Item = &'a TopicRecord>) -> Option<Self> {
        let (mut frames, mut len) = (Vec::new(), 0);
        for record in records {
            topic_frame::put(
                &mut frames,
                record.partition,
                record.time,
                record.id,
                &[&record.body],
            );
            len += 1;
        }
        (len > 0).then(|| frame_chunk(first, len, frames.into()))
    }

    /// The sequence of its first record.
    #[must_use]
    pub fn first(&self) -> Sequence {
        self.first
    }

    /// The sequence of its last record.
    #[must_use]
    pub fn last(&self) -> Sequence {
        Sequence::new(self.first.get() + u64::from(self.len) - 1)
    }

    /// Its records as they are stored.
    #[cfg(test)]
    pub(crate) fn frames(&self) -> &Bytes {
        &self.frames
    }

    /// Size of its records in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// The rest of it after a record up to which all are purged; `None` if nothing is left. A purge may end within a chunk.
    pub(crate) fn behind(self, dropped: u64) -> Option<Self> {
        if self.first.get() > dropped {
            return Some(self);
        }
        let gone = dropped - self.first.get() + 1;
        let len = u64::from(self.len).checked_sub(gone).filter(|len| *len > 0)?;
        let mut records = self.records();
        records.nth(usize::try_from(gone - 1).ok()?)?;
        Some(frame_chunk(records.next, u32::try_from(len).ok()?, records.left))
    }

    /// Its records, in order.
    pub fn records(&self) -> TopicRecords {
        TopicRecords {
            next: self.first,
            left: self.frames.clone(),
        }
    }
}

/// A chunk of `len` frames, at least one; they were made in this process, or checked.
pub(crate) fn frame_chunk(first: Sequence, len: u32, frames: Bytes) -> TopicChunk {
    debug_assert!(len > 0 && !frames.is_empty(), "a chunk has a record");
    TopicChunk { first, len, frames }
}

impl TopicChunk {
    /// Checks frames that were read, and makes a chunk from them.
    pub(crate) fn checked(first: Sequence, len: u32, frames: Bytes) -> Result<Self, TopicFrameError> {
        let (mut rest, mut found) = (&frames[..], 0);
        while !rest.is_empty() {
            let frame = topic_frame::read_checked(rest)?;
            rest = &rest[frame.len..];
            found += 1;
        }
        if found == 0 || found != len {
            return Err(TopicFrameError::Count { found, said: len });
        }
        Ok(frame_chunk(first, len, frames))
    }
}

/// The chunks of a page without the purged records, as far as these are in its first chunk.
pub(crate) fn without_purged(mut chunks: Vec<TopicChunk>, dropped: u64) -> Vec<TopicChunk> {
    if chunks.first().is_some_and(|first| first.first.get() <= dropped) {
        chunks = chunks
            .into_iter()
            .filter_map(|chunk| chunk.behind(dropped))
            .collect();
    }
    chunks
}

/// Iterates over the records of a [`TopicChunk`].
#[derive(Clone, Debug)]
pub struct TopicRecords {
    next: Sequence,
    left: Bytes,
}

impl TopicRecords {
    fn frame(&self) -> Option<TopicFrame> {
        // A frame that cannot be parsed would have been found when the chunk was made.
        topic_frame::read(&self.left).ok()
    }
}

impl Iterator for TopicRecords {
    type Item = TopicRecord;

    fn next(&mut self) -> Option<TopicRecord> {
        if self.left.is_empty() {
            return None;
        }
        let frame = self.frame()?;
        let record = TopicRecord {
            sequence: self.next,
            partition: frame.partition,
            time: frame.time,
            id: frame.id,
            body: self.left.slice(frame.body),
        };
        self.left = self.left.split_off(frame.len);
        self.next = self.next.next();
        Some(record)
    }

    /// Skips records without decoding them.
    fn nth(&mut self, n: usize) -> Option<TopicRecord> {
        for _ in 0..n {
            let frame = self.frame()?;
            self.left = self.left.split_off(frame.len);
            self.next = self.next.next();
        }
        self.next()
    }
}

/// The records of a topic after a given one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicPage {
    /// The sequence after which it was read.
    pub after: Sequence,
    /// How many records behind `after` retention had dropped before they were read.
    pub dropped: u64,
    /// Chunks that follow each other without a gap; the first may begin with records that were not asked for.
    pub chunks: Vec<TopicChunk>,
}

impl TopicPage {
    /// The sequence of its last record, after which the next page begins; if it has none, `after` or the last record that was
    /// dropped.
    #[must_use]
    pub fn last(&self) -> Sequence {
        let dropped = Sequence::new(self.after.get() + self.dropped);
        self.chunks.last().map_or(dropped, TopicChunk::last)
    }

    /// The records behind `after`, in order.
    pub fn records(&self) -> impl Iterator<Item = TopicRecord> + '_ {
        self.chunks.iter().flat_map(|chunk| {
            let passed = (self.after.get() + 1).saturating_sub(chunk.first.get());
            let passed = usize::try_from(passed.min(u64::from(chunk.len))).unwrap_or(usize::MAX);
            let mut records = chunk.records();
            if passed > 0 {
                records.nth(passed - 1);
            }
            records
        })
    }
}
