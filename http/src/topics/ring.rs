//! The latest messages of a topic, numbered.
//!
//! Invariant: numbers only grow; a missing number is that of a dropped message.

use std::collections::VecDeque;
use std::sync::Arc;

/// How many messages of a tailed topic are kept for clients that return.
pub const RING_LEN_MAX: usize = 1_024;
/// The size of all messages in bytes, as JSON: 4 MiB.
pub const RING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The size of one message in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = RING_BYTES_MAX / 4;

/// A message of a topic: its number and its text.
pub(super) type Message = (u64, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Ring {
    messages: VecDeque<Message>,
    bytes: usize,
    /// The number of the last message, whether it is in the ring or was dropped.
    last: u64,
}

impl Ring {
    /// Adds a message, after this number of dropped ones.
    pub(super) fn push(&mut self, dropped: u64, text: String) {
        self.last += dropped + 1;
        self.bytes += text.len();
        self.messages.push_back((self.last, text.into()));
        while self.messages.len() > RING_LEN_MAX || self.bytes > RING_BYTES_MAX {
            let Some((_, text)) = self.messages.pop_front() else {
                break;
            };
            self.bytes -= text.len();
        }
    }

    /// Drops all messages, and counts as dropped also this number of messages that had no listener.
    pub(super) fn begin_anew(&mut self, unheard: u64) {
        *self = Self {
            last: self.last + unheard,
            ..Self::default()
        };
    }

    /// The number of the last message.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// The number behind which all messages of the ring are.
    pub(super) fn begins_behind(&self) -> u64 {
        self.messages.front().map_or(self.last, |(first, _)| first - 1)
    }

    /// The messages behind this number, up to a number and a size; the first may exceed the size.
    pub(super) fn after(&self, number: u64, len_max: usize, bytes_max: usize) -> Vec<Message> {
        let begin = self.messages.partition_point(|(at, _)| *at <= number);
        let mut bytes = 0;
        let messages = self
            .messages
            .range(begin..)
            .take(len_max)
            .take_while(|(_, text)| {
                let is_first = bytes == 0;
                bytes += text.len();
                is_first || bytes <= bytes_max
            });
        messages.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(ring: &Ring, after: u64, len_max: usize, bytes_max: usize) -> Vec<u64> {
        let messages = ring.after(after, len_max, bytes_max);
        messages.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn the_latest_messages_are_there_by_number_and_what_was_dropped_has_one_too() {
        let mut ring = Ring::default();
        assert!(numbers(&ring, 0, 9, 99).is_empty());
        for dropped in [0, 0, 3, 0] {
            ring.push(dropped, "text".to_owned());
        }
        assert_eq!(numbers(&ring, 0, 9, 99), [1, 2, 6, 7]);
        assert_eq!(numbers(&ring, 2, 9, 99), [6, 7]);
        assert_eq!(numbers(&ring, 4, 1, 99), [6]);
        assert_eq!(numbers(&ring, 0, 9, 8), [1, 2]);
        assert_eq!(numbers(&ring, 0, 9, 1), [1], "one is always given");
        assert!(numbers(&ring, 7, 9, 99).is_empty());
        ring.begin_anew(10);
        ring.push(0, "text".to_owned());
        assert_eq!(numbers(&ring, 0, 9, 99), [18]);
    }

    #[test]
    fn the_oldest_leave_when_there_are_too_many_or_they_are_too_large() {
        let mut ring = Ring::default();
        for _ in 0..RING_LEN_MAX + 5 {
            ring.push(0, String::new());
        }
        assert_eq!(
            (ring.after(0, usize::MAX, usize::MAX)[0].0, ring.begins_behind()),
            (6, 5)
        );
        let large = "x".repeat(MESSAGE_BYTES_MAX);
        for _ in 0..6 {
            ring.push(0, large.clone());
        }
        let kept = numbers(&ring, 0, usize::MAX, usize::MAX);
        assert_eq!(kept, (ring.last() - 3..=ring.last()).collect::<Vec<_>>());
        assert_eq!(ring.bytes, RING_BYTES_MAX);
    }
}
