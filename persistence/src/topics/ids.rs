//! The ids by which a repeated record of a topic is recognised.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::TopicNumber;
use crate::wire::topic_row::StoredId;

/// The ids that were appended last, of all topics together. They are numbered in the order in which they were taken;
/// unreadable numbers are left out.
#[derive(Debug)]
pub(crate) struct IdWindow {
    /// The latest record with an id, and the number of the id.
    known: FxHashMap<(TopicNumber, u128), (u64, u64)>,
    order: VecDeque<(u64, (TopicNumber, u128))>,
    /// The number of the next id.
    next: u64,
    len_max: usize,
    /// The queued ids, to be stored with the next commit.
    queued: Vec<StoredId>,
}

impl IdWindow {
    pub(crate) fn new(len_max: usize) -> Self {
        Self {
            known: FxHashMap::default(),
            order: VecDeque::new(),
            next: 0,
            len_max,
            queued: Vec::new(),
        }
    }

    /// The record that was appended with this id.
    pub(crate) fn sequence(&self, topic: TopicNumber, id: u128) -> Option<u64> {
        self.known.get(&(topic, id)).map(|(sequence, _)| *sequence)
    }

    /// Remembers an id that is not known yet.
    pub(crate) fn add(&mut self, stored: StoredId) {
        if self.len_max == 0 {
            return;
        }
        self.remember(self.next, stored);
        self.queued.push(stored);
    }

    /// Adds the stored ids with the numbers from `first` on. They come in order.
    pub(crate) fn restore(&mut self, first: u64, ids: impl Iterator<Item = StoredId>) {
        for (number, stored) in (first..).zip(ids) {
            self.remember(number, stored);
        }
    }

    fn remember(&mut self, number: u64, stored: StoredId) {
        let key = (stored.topic, stored.id);
        self.known.insert(key, (stored.sequence, number));
        self.order.push_back((number, key));
        self.next = number + 1;
        while self.order.len() > self.len_max {
            let Some((oldest, key)) = self.order.pop_front() else {
                break;
            };
            // It may have been appended again later.
            if self.known.get(&key).is_some_and(|(_, number)| *number == oldest) {
                self.known.remove(&key);
            }
        }
    }

    /// All that are remembered, the earliest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = StoredId> + '_ {
        self.order.iter().filter_map(|(_, (topic, id))| {
            Some(StoredId {
                topic: *topic,
                id: *id,
                sequence: self.sequence(*topic, *id)?,
            })
        })
    }

    /// Takes the ids to be stored, with the number of the first; and the number below which none is remembered.
    pub(crate) fn seal(&mut self) -> (u64, Vec<StoredId>, u64) {
        let queued = std::mem::take(&mut self.queued);
        let low = self.order.front().map_or(self.next, |(number, _)| *number);
        (self.next - queued.len() as u64, queued, low)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        // A key and its sequence in the map, with the map's empty places, and a key in the order.
        self.order.len() as u64 * (2 * 48 + 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(id: u128) -> StoredId {
        StoredId {
            topic: TopicNumber::new(1),
            id,
            sequence: 10 + u64::try_from(id).unwrap(),
        }
    }

    #[test]
    fn the_latest_ids_are_known_and_found_again_by_what_was_stored() {
        let mut window = IdWindow::new(3);
        for id in 0..5 {
            window.add(stored(id));
        }
        let (first, queued, low) = window.seal();
        assert_eq!((first, queued.len(), low), (0, 5, 2));
        let mut again = IdWindow::new(3);
        again.restore(first, queued.into_iter());
        for window in [&window, &again] {
            let known = [0, 1, 2, 3, 4].map(|id| window.sequence(TopicNumber::new(1), id));
            assert_eq!(known, [None, None, Some(12), Some(13), Some(14)]);
            assert_eq!(window.sequence(TopicNumber::new(2), 4), None);
        }
        assert_eq!(again.seal(), (5, Vec::new(), 2));
    }

    #[test]
    fn what_cannot_be_read_of_them_moves_no_number() {
        let mut window = IdWindow::new(100);
        window.restore(0, (0..10).map(stored));
        // Ten of them are damaged.
        window.restore(20, (20..30).map(stored));
        window.add(stored(30));
        let (first, queued, low) = window.seal();
        assert_eq!((first, queued, low), (30, vec![stored(30)], 0));
        assert_eq!(window.sequence(TopicNumber::new(1), 25), Some(35));
    }

    #[test]
    fn an_id_that_stands_there_twice_is_forgotten_with_the_later_one() {
        let mut window = IdWindow::new(3);
        window.restore(0, [1, 2, 1, 3].into_iter().map(stored));
        assert_eq!(window.sequence(TopicNumber::new(1), 1), Some(11));
        window.add(stored(4));
        window.add(stored(5));
        assert_eq!(window.sequence(TopicNumber::new(1), 1), None);
    }
}
