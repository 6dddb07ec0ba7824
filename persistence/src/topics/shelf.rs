//! Consecutive chunks of a topic in memory.

use std::collections::VecDeque;

use millrun_core::{Sequence, Timestamp};

use super::record::TopicChunk;

/// The latest chunks of a topic, each with the time of its last record: without a gap among them, and up to the last record.
#[derive(Debug, Default)]
pub(crate) struct TopicShelf {
    chunks: VecDeque<(TopicChunk, Timestamp)>,
}

impl TopicShelf {
    /// Adds the chunk behind the last.
    pub(crate) fn push(&mut self, chunk: TopicChunk, last: Timestamp) {
        debug_assert!(
            self.chunks
                .back()
                .is_none_or(|(before, _)| before.last().next() == chunk.first()),
            "chunks follow each other"
        );
        self.chunks.push_back((chunk, last));
    }

    pub(crate) fn first(&self) -> Option<(&TopicChunk, Timestamp)> {
        self.chunks.front().map(|(chunk, last)| (chunk, *last))
    }

    pub(crate) fn pop_first(&mut self) -> Option<TopicChunk> {
        self.chunks.pop_front().map(|(chunk, _)| chunk)
    }

    /// All chunks, the first one first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TopicChunk, Timestamp)> + '_ {
        self.chunks.iter().map(|(chunk, last)| (chunk, *last))
    }

    /// Whole chunks from the one that holds the record after `after`, of about `bytes_max` bytes and at least one; `None` if
    /// that record comes before them. The records up to `end` are asked for.
    pub(crate) fn page(&self, after: Sequence, end: Sequence, bytes_max: usize) -> Option<Vec<TopicChunk>> {
        if after >= end {
            return Some(Vec::new());
        }
        let wanted = after.next();
        if self
            .chunks
            .front()
            .is_none_or(|(first, _)| first.first() > wanted)
        {
            return None;
        }
        let from = self.chunks.partition_point(|(chunk, _)| chunk.last() < wanted);
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (chunk, _) in self.chunks.range(from..) {
            if !page.is_empty() && bytes + chunk.bytes() > bytes_max {
                break;
            }
            bytes += chunk.bytes();
            page.push(chunk.clone());
        }
        Some(page)
    }
}
