//! From hashes to numbers: where each of very many runs stands in a list.
//!
//! ```text
//!   hash:   [ upper half: which part │ lower half: the tag ]
//!   parts:  [ table of (tag, number) │ table of (tag, number) │ … ]     each grows by itself
//! ```
//!
//! Nine bytes for each place of a table: 10 to 21 bytes for each number while all are kept, and 13 to 28 where as many are
//! removed as are added. One table of millions of numbers would be moved all at once when it grows; here only one part moves
//! at a time, and the others stay where they are.
//!
//! This module does not know what a number stands for: a caller that looks for a number says which one it is among those with
//! the same tag, and a caller that adds one says which numbers are kept. Other numbers are not removed one by one: they stay
//! where they are and never match, until their part is full. The tags let a table grow without asking the caller.
//!
//! Left out: freeing memory; a table that has shrunk usually grows again.

use hashbrown::HashTable;

#[derive(Debug)]
pub(crate) struct Numbers {
    parts: Vec<HashTable<NumberSlot>>,
    /// The numbers of a part while it is rebuilt.
    kept: Vec<NumberSlot>,
}

#[derive(Clone, Copy, Debug)]
struct NumberSlot {
    tag: u32,
    number: u32,
}

impl Numbers {
    /// An empty table, in `parts` parts.
    pub(crate) fn in_parts(parts: usize) -> Self {
        Self {
            parts: vec![HashTable::new(); parts.max(1)],
            kept: Vec::new(),
        }
    }

    /// The number under a hash for which `is_it` holds.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = lower(hash);
        let is_it = |slot: &NumberSlot| slot.tag == tag && is_it(slot.number);
        let found = self.parts[self.part(hash)].find(spread(tag), is_it)?;
        Some(found.number)
    }

    /// Adds a number, in place of the one that it supersedes, if there is one. Numbers that are not kept may be removed.
    pub(crate) fn put(
        &mut self,
        hash: u64,
        number: u32,
        takes_over: impl Fn(u32) -> bool,
        is_kept: impl Fn(u32) -> bool,
    ) {
        let (index, tag) = (self.part(hash), lower(hash));
        let part = &mut self.parts[index];
        if part.len() == part.capacity() {
            renew(part, &mut self.kept, is_kept);
        }
        let is_it = |slot: &NumberSlot| slot.tag == tag && takes_over(slot.number);
        match part.find_mut(spread(tag), is_it) {
            Some(slot) => slot.number = number,
            None => {
                let slot = NumberSlot { tag, number };
                part.insert_unique(spread(tag), slot, |slot| spread(slot.tag));
            }
        }
    }

    /// Memory held.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let tables: usize = self.parts.iter().map(HashTable::allocation_size).sum();
        let parts = self.parts.capacity() * size_of::<HashTable<NumberSlot>>();
        (tables + parts + self.kept.capacity() * size_of::<NumberSlot>()) as u64
    }

    /// The upper half of a hash picks the part.
    fn part(&self, hash: u64) -> usize {
        let product = (hash >> 32) * self.parts.len() as u64;
        usize::try_from(product >> 32).expect("it is less than the number of parts")
    }
}

/// Removes the numbers that are not kept from a full table, and gives it more room if most are kept.
fn renew(part: &mut HashTable<NumberSlot>, kept: &mut Vec<NumberSlot>, is_kept: impl Fn(u32) -> bool) {
    let len_max = part.capacity() / 4 * 3;
    kept.extend(part.drain().filter(|slot| is_kept(slot.number)));
    if kept.len() > len_max {
        part.reserve(2 * kept.len(), |slot| spread(slot.tag));
    }
    for slot in kept.drain(..) {
        part.insert_unique(spread(slot.tag), slot, |slot| spread(slot.tag));
    }
}

/// The table's hash of a tag; the table uses the lowest and the highest bits.
fn spread(tag: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(tag)
}

/// The lower half of a number: among fewer than 2^32 consecutive numbers it identifies one.
pub(crate) fn lower(number: u64) -> u32 {
    u32::try_from(number & 0xffff_ffff).expect("32 bits")
}

/// The number, from `first` on, that has this lower half.
pub(crate) fn widened(first: u64, lower_half: u32) -> u64 {
    first + u64::from(lower_half.wrapping_sub(lower(first)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_is_put_is_found_until_it_is_let_go_whatever_tags_are_alike() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for parts in [1, 3, 16] {
            let mut numbers = Numbers::in_parts(parts);
            // The number of each name; a list of names knows which name a number stands for.
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            let mut names = Vec::new();
            // Few hashes for many names.
            let hash_of = |name: u64| (name % 7) << 61 | (name % 5) << 29 | (0xfff_ff00 * (name % 2));
            for step in 0..20_000 {
                let (name, is_full) = (random(300), step / 4_000 % 2 == 0);
                let number = u32::try_from(names.len()).unwrap();
                let is_it = |number: u32| names[number as usize] == name;
                if is_full || model.contains_key(&name) && random(4) > 0 {
                    let is_kept = |number: u32| model.get(&names[number as usize]) == Some(&number);
                    numbers.put(
                        hash_of(name),
                        number,
                        |other| is_kept(other) && is_it(other),
                        is_kept,
                    );
                    model.insert(name, number);
                    names.push(name);
                } else {
                    model.remove(&name);
                }
                let sought = random(300);
                let is_sought =
                    |number: u32| names[number as usize] == sought && model.get(&sought) == Some(&number);
                assert_eq!(
                    numbers.find(hash_of(sought), is_sought),
                    model.get(&sought).copied()
                );
            }
        }
    }

    #[test]
    fn only_one_part_grows_at_a_time_and_all_hold_about_as_many() {
        let mut numbers = Numbers::in_parts(16);
        let hash_of = |number: u64| xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes());
        let sizes = |numbers: &Numbers| -> Vec<usize> {
            let sizes = numbers.parts.iter().map(HashTable::allocation_size);
            sizes.collect()
        };
        let mut before = sizes(&numbers);
        for number in 0..100_000 {
            numbers.put(hash_of(number), lower(number), |_| false, |_| true);
            let after = sizes(&numbers);
            let grown = before
                .iter()
                .zip(&after)
                .filter(|(before, after)| before != after);
            assert!(grown.count() <= 1, "at {number}");
            before = after;
        }
        for number in 0..100_000 {
            let is_it = |other| other == lower(number);
            assert_eq!(numbers.find(hash_of(number), is_it), Some(lower(number)));
        }
        let lens = numbers.parts.iter().map(HashTable::len);
        assert!(lens.max() < Some(2 * 100_000 / 16));
    }

    #[test]
    fn memory_stays_as_it_is_where_as_many_are_let_go_as_are_put() {
        let len = 80_000_u64;
        let mut numbers = Numbers::in_parts(16);
        let hash_of = |number: u64| xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes());
        for number in 0..10 * len {
            let earliest = number.saturating_sub(len);
            let is_kept = |half: u32| u64::from(half) >= earliest;
            numbers.put(hash_of(number), lower(number), |_| false, is_kept);
        }
        // Of 8,192 places in a part, 5,000 are kept.
        assert!(numbers.memory_bytes() < 16 * len, "{}", numbers.memory_bytes());
    }

    #[test]
    fn a_number_is_known_by_its_lower_half() {
        for first in [0, 5, u64::from(u32::MAX) - 1, 1 << 32, (7 << 32) + 3] {
            for number in first..first + 5 {
                assert_eq!(widened(first, lower(number)), number);
            }
        }
    }
}
