//! The place of a reader in the tail of a stream.

use std::collections::VecDeque;

use millrun_workflow::Payload;

use super::position::StreamPosition;
use super::reader::StreamItem;
use super::tail::{StreamTail, TailItem};
use crate::operating::Lost;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct StreamCursor {
    /// The life of the stream.
    life: u64,
    /// Items from `next` on that were taken and not returned yet.
    in_hand: VecDeque<TailItem>,
    /// The number of the item that is returned next.
    next: u64,
    /// The position in another life of the stream behind which it was opened; set until the loss is reported.
    unknown_since: Option<StreamPosition>,
}

impl StreamCursor {
    /// Begins behind a position, or with the stream's very first item. A position before the first item of another life
    /// counts as none: a reader with such a position has read nothing, or nothing since it was told of a loss. The content of
    /// that life is not reported.
    pub(super) fn new(life: u64, tail: &StreamTail, behind: Option<StreamPosition>) -> Self {
        let is_known = |position: &StreamPosition| position.life == life && position.number < tail.end();
        let (next, unknown_since) = match behind {
            None | Some(StreamPosition { number: 0, .. }) => (1, None),
            Some(position) if is_known(&position) => (position.number + 1, None),
            Some(position) => (1, Some(position)),
        };
        Self {
            life,
            in_hand: VecDeque::new(),
            next,
            unknown_since,
        }
    }

    /// The position behind which the next item is.
    pub(super) fn position(&self) -> StreamPosition {
        let here = StreamPosition {
            life: self.life,
            number: self.next - 1,
        };
        // A position in this stream's life would mean that nothing is missing before it.
        self.unknown_since.unwrap_or(here)
    }

    pub(super) fn has_in_hand(&self) -> bool {
        !self.in_hand.is_empty()
    }

    /// The next of the items in hand.
    pub(super) fn take_in_hand(&mut self) -> Option<StreamItem<Payload>> {
        let item = self.in_hand.pop_front()?;
        self.next += 1;
        Some(match item {
            TailItem::Began(attempt) => StreamItem::Began(attempt),
            TailItem::Chunk(attempt, payload) => StreamItem::Chunk(attempt, payload),
            TailItem::Ended(attempt, end) => StreamItem::Ended(attempt, end),
        })
    }

    /// Takes items in hand, or returns how many are missing before the next one. Nothing must be in hand.
    pub(super) fn look(&mut self, tail: &StreamTail) -> Option<Lost> {
        let missed = tail.first().saturating_sub(self.next);
        self.next += missed;
        if self.unknown_since.take().is_some() {
            return Some(Lost::Unknown);
        }
        if missed > 0 {
            return Some(Lost::Counted(missed));
        }
        tail.copy_from(self.next, &mut self.in_hand);
        None
    }
}

#[cfg(test)]
mod tests {
    use millrun_workflow::OperationId;
    use proptest::prelude::*;

    use super::super::attempt::StreamAttempt;
    use super::*;

    const LIFE: u64 = 7;
    const LEN_MAX: usize = 5;
    const BYTES_MAX: usize = 64;

    fn attempt() -> StreamAttempt {
        StreamAttempt {
            operation: OperationId::new(1),
            attempt: 1,
        }
    }

    /// An action on a stream and its reader.
    #[derive(Clone, Debug)]
    enum Act {
        /// A chunk with a text of this number of bytes is sent.
        Send(usize),
        /// The reader reads.
        Read,
        /// The reader is opened again behind its position.
        Resume,
        /// The reader is opened behind its position in another life of the stream, which has the same items.
        Move,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            6 => (0_usize..40).prop_map(Act::Send),
            4 => Just(Act::Read),
            1 => Just(Act::Resume),
            1 => Just(Act::Move),
        ]
    }

    /// The first number that a list with items of these sizes still keeps, within its bounds.
    fn first_kept(sizes: &[usize]) -> usize {
        let mut first = sizes.len().saturating_sub(LEN_MAX);
        let fits = |first: usize| sizes[first..].iter().sum::<usize>() <= BYTES_MAX;
        while first + 1 < sizes.len() && !fits(first) {
            first += 1;
        }
        first
    }

    fn read(cursor: &mut StreamCursor, tail: &StreamTail) -> Option<StreamItem<Payload>> {
        if !cursor.has_in_hand()
            && let Some(lost) = cursor.look(tail)
        {
            return Some(StreamItem::Missed(lost));
        }
        cursor.take_in_hand()
    }

    proptest! {
        #[test]
        fn a_reader_gives_what_a_list_of_all_items_gives(acts in prop::collection::vec(act(), 0..120)) {
            let mut tail = StreamTail::new(LEN_MAX, BYTES_MAX);
            let mut life = LIFE;
            let mut cursor = StreamCursor::new(life, &tail, None);
            // What was sent; what the reader took in hand; the number of items returned; whether it has moved.
            let (mut sizes, mut sent): (Vec<usize>, Vec<Payload>) = (Vec::new(), Vec::new());
            let (mut held_until, mut given, mut has_moved) = (0, 0, false);
            for act in acts {
                match act {
                    Act::Send(bytes) => {
                        let payload = Payload::encode(&"x".repeat(bytes)).unwrap();
                        sizes.push(payload.len());
                        sent.push(payload.clone());
                        tail.push(TailItem::Chunk(attempt(), payload));
                    }
                    Act::Read => {
                        let first = first_kept(&sizes);
                        let expected = if given < held_until {
                            given += 1;
                            Some(StreamItem::Chunk(attempt(), sent[given - 1].clone()))
                        } else if std::mem::take(&mut has_moved) {
                            given = given.max(first);
                            Some(StreamItem::Missed(Lost::Unknown))
                        } else if given < first {
                            let missed = (first - given) as u64;
                            given = first;
                            Some(StreamItem::Missed(Lost::Counted(missed)))
                        } else if given < sent.len() {
                            held_until = sent.len();
                            given += 1;
                            Some(StreamItem::Chunk(attempt(), sent[given - 1].clone()))
                        } else {
                            None
                        };
                        prop_assert_eq!(read(&mut cursor, &tail), expected);
                    }
                    Act::Resume => {
                        let position = cursor.position().to_string().parse().unwrap();
                        cursor = StreamCursor::new(life, &tail, Some(position));
                        held_until = 0;
                        if has_moved {
                            given = 0;
                        }
                    }
                    Act::Move => {
                        life += 1;
                        // A reader that has not reported the previous loss reports both at once.
                        has_moved |= given > 0;
                        cursor = StreamCursor::new(life, &tail, Some(cursor.position()));
                        (held_until, given) = (0, 0);
                    }
                }
            }
        }
    }
}
