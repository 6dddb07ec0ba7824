//! The latest items of a stream, numbered without gaps.

use std::collections::VecDeque;

use millrun_workflow::Payload;

use super::attempt::{AttemptEnd, StreamAttempt};

/// How many items a reader takes at once, and about how many bytes.
const TAKEN_LEN_MAX: usize = 256;
const TAKEN_BYTES_MAX: usize = 64 << 10;

/// One item of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TailItem {
    Began(StreamAttempt),
    Chunk(StreamAttempt, Payload),
    Ended(StreamAttempt, AttemptEnd),
}

impl TailItem {
    fn bytes(&self) -> usize {
        match self {
            Self::Chunk(_, payload) => payload.len(),
            Self::Began(_) | Self::Ended(..) => 0,
        }
    }
}

/// Its items have the numbers from `first` on.
#[derive(Debug)]
pub(super) struct StreamTail {
    items: VecDeque<TailItem>,
    first: u64,
    bytes: usize,
    len_max: usize,
    bytes_max: usize,
}

impl StreamTail {
    pub(super) fn new(len_max: usize, bytes_max: usize) -> Self {
        Self {
            items: VecDeque::new(),
            first: 1,
            bytes: 0,
            len_max,
            bytes_max,
        }
    }

    /// The number of the next item.
    pub(super) fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// The number of the earliest item that is left, or will be next.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Adds an item, and drops the earliest ones without room. The last one always has room.
    pub(super) fn push(&mut self, item: TailItem) {
        self.bytes += item.bytes();
        self.items.push_back(item);
        while self.items.len() > self.len_max || (self.bytes > self.bytes_max && self.items.len() > 1) {
            let Some(dropped) = self.items.pop_front() else {
                return;
            };
            self.bytes -= dropped.bytes();
            self.first += 1;
        }
    }

    /// Copies items from this number on, up to a bound, into a reader's hand.
    pub(super) fn copy_from(&self, number: u64, into: &mut VecDeque<TailItem>) {
        let skipped = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut bytes = 0;
        for item in self.items.iter().skip(skipped).take(TAKEN_LEN_MAX) {
            bytes += item.bytes();
            into.push_back(item.clone());
            if bytes >= TAKEN_BYTES_MAX {
                return;
            }
        }
    }
}
