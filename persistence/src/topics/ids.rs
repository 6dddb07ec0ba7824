//! By which ids the latest records of all topics would be known again.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::TopicNumber;
use crate::wire::topic_row::StoredId;

/// The ids of the records that were appended last with one, of all topics together.
#[derive(Debug)]
pub(crate) struct IdWindow {
    sequences: FxHashMap<(TopicNumber, u128), u64>,
    order: VecDeque<(TopicNumber, u128)>,
    /// How many ids were taken in before the first of `order`.
    first: u64,
    len_max: usize,
    /// Those that are queued, to be stored with the next commit.
    queued: Vec<StoredId>,
}

impl IdWindow {
    pub(crate) fn new(len_max: usize) -> Self {
        Self {
            sequences: FxHashMap::default(),
            order: VecDeque::new(),
            first: 0,
            len_max,
            queued: Vec::new(),
        }
    }

    /// The record that was appended with this id.
    pub(crate) fn sequence(&self, topic: TopicNumber, id: u128) -> Option<u64> {
        self.sequences.get(&(topic, id)).copied()
    }

    /// Remembers one, which is not known.
    pub(crate) fn add(&mut self, stored: StoredId) {
        if self.len_max == 0 {
            return;
        }
        self.remember(stored);
        self.queued.push(stored);
    }

    /// Takes in what was stored of those with the numbers from `first` on. They come in order.
    pub(crate) fn restore(&mut self, first: u64, ids: impl Iterator<Item = StoredId>) {
        if self.order.is_empty() {
            self.first = first;
        }
        for stored in ids {
            self.remember(stored);
        }
    }

    fn remember(&mut self, stored: StoredId) {
        let key = (stored.topic, stored.id);
        self.sequences.insert(key, stored.sequence);
        self.order.push_back(key);
        while self.order.len() > self.len_max {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.sequences.remove(&oldest);
            self.first += 1;
        }
    }

    /// All that are remembered, the earliest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = StoredId> + '_ {
        self.order.iter().filter_map(|(topic, id)| {
            Some(StoredId {
                topic: *topic,
                id: *id,
                sequence: self.sequence(*topic, *id)?,
            })
        })
    }

    /// Takes those that are to be stored, with the number of the first; and the number before which none is remembered.
    pub(crate) fn seal(&mut self) -> (u64, Vec<StoredId>, u64) {
        let queued = std::mem::take(&mut self.queued);
        let end = self.first + self.order.len() as u64;
        (end - queued.len() as u64, queued, self.first)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        // A key and its sequence in the map, with its empty places, and a key in the order.
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
}
