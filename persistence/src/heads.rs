//! What a journal knows of each live run, in one list with an index.
//!
//! ```text
//!   index ─► 17 ─┐      slots: [ run, value │ free │ run, value … ]
//!                └────────────────▲
//! ```
//!
//! A million waiting runs are a million places in this list. A hash table of the values themselves would be half empty after
//! it has grown; the index here costs four bytes a place, and the list's only empty places are those that the next runs fill.
//! A run keeps its place, so the place's number can stand for the run elsewhere.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use millrun_core::RunId;
use rustc_hash::FxBuildHasher;

#[derive(Debug)]
pub(crate) struct Heads<V> {
    /// Free slots still hold the values of their last run.
    slots: Vec<(RunId, V)>,
    free: Vec<u32>,
    index: HashTable<u32>,
}

impl<V> Default for Heads<V> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
        }
    }
}

/// The lower half of a run id is random.
fn hash_of(run: RunId) -> u64 {
    FxBuildHasher.hash_one(run)
}

/// A number is no larger than the count of runs, for which there is memory.
pub(crate) const fn index_of(number: u32) -> usize {
    number as usize
}

impl<V: Default> Heads<V> {
    /// The number of a run, which it keeps until it is removed. Numbers of removed runs are used again, so they stay below
    /// the greatest number of runs at a time.
    pub(crate) fn find(&self, run: RunId) -> Option<u32> {
        let is_it = |number: &u32| self.slots[index_of(*number)].0 == run;
        self.index.find(hash_of(run), is_it).copied()
    }

    pub(crate) fn at(&self, number: u32) -> (RunId, &V) {
        let (run, value) = &self.slots[index_of(number)];
        (*run, value)
    }

    pub(crate) fn at_mut(&mut self, number: u32) -> (RunId, &mut V) {
        let (run, value) = &mut self.slots[index_of(number)];
        (*run, value)
    }

    pub(crate) fn get(&self, run: RunId) -> Option<&V> {
        self.find(run).map(|number| self.at(number).1)
    }

    pub(crate) fn get_mut(&mut self, run: RunId) -> Option<&mut V> {
        let number = self.find(run)?;
        Some(self.at_mut(number).1)
    }

    /// Adds a run that is not in the list yet, and returns its number.
    pub(crate) fn add(&mut self, run: RunId, value: V) -> u32 {
        debug_assert!(self.find(run).is_none(), "{run} is there already");
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[index_of(number)] = (run, value);
                number
            }
            None => {
                let number = u32::try_from(self.slots.len()).expect("fewer than 2^32 runs in memory");
                self.slots.push((run, value));
                number
            }
        };
        let slots = &self.slots;
        self.index
            .insert_unique(hash_of(run), number, |number| hash_of(slots[index_of(*number)].0));
        number
    }

    /// Removes the run with this number.
    pub(crate) fn remove(&mut self, number: u32) -> V {
        let (run, value) = &mut self.slots[index_of(number)];
        let (run, value) = (*run, std::mem::take(value));
        if let Ok(found) = self
            .index
            .find_entry(hash_of(run), |candidate| *candidate == number)
        {
            found.remove();
            self.free.push(number);
        }
        value
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// All runs, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RunId, &V)> {
        self.index.iter().map(|number| self.at(*number))
    }

    /// All runs, in no particular order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (RunId, &mut V)> {
        let index = &self.index;
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(move |(at, (run, value))| {
            // The run of a free slot is not in the index, or is there with another number.
            let is_here = |number: &u32| index_of(*number) == at;
            index.find(hash_of(*run), is_here).map(|_| (*run, value))
        })
    }

    /// Memory held, estimated from the capacities.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let slots = self.slots.capacity() * size_of::<(RunId, V)>();
        let numbers = (self.free.capacity() + self.index.capacity() * 8 / 7) * size_of::<u32>();
        (slots + numbers + self.index.capacity()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use millrun_core::{Partition, Timestamp};

    use super::*;

    #[test]
    fn runs_keep_their_numbers_and_numbers_are_given_out_again() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut heads = Heads::default();
        let mut model: BTreeMap<RunId, (u32, u64)> = BTreeMap::new();
        let mut most = 0;
        for step in 0..20_000 {
            let run = RunId::new(Partition::from_index(3).unwrap(), Timestamp::EPOCH, random(200));
            match (heads.find(run), random(3)) {
                (None, 0) => {
                    let number = heads.add(run, step);
                    assert_eq!(model.insert(run, (number, step)), None);
                }
                (Some(number), 0) => {
                    assert_eq!(Some((number, heads.remove(number))), model.remove(&run));
                }
                (Some(number), 1) => {
                    *heads.at_mut(number).1 = step;
                    model.insert(run, (number, step));
                }
                _ => {}
            }
            most = most.max(model.len());
            let expected = model.get(&run);
            assert_eq!(heads.find(run), expected.map(|(number, _)| *number));
            assert_eq!(heads.get(run), expected.map(|(_, value)| value));
            assert_eq!(heads.len(), model.len());
            assert!(heads.slots.len() <= most);
        }
        let listed: BTreeMap<_, _> = heads.iter().map(|(run, value)| (run, *value)).collect();
        let expected = model.iter().map(|(run, (_, value))| (*run, *value));
        assert!(listed.into_iter().eq(expected));
    }
}
