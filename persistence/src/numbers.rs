//! From hashes to numbers: where each of very many runs stands in a list.
//!
//! ```text
//!   hash:   [ upper half: which part │ lower half: the tag ]
//!   marks:  [ – │ m │ m │ – │ – │ m │ … ]     a byte of each tag, at its home or behind it
//!   slots:  [ – │ tag, number │ tag, number │ – │ – │ tag, number │ … ]
//! ```
//!
//! Nine bytes for each. Whether there is a number under a hash at all is mostly said by the marks: there
//! is none for nearly every instance that is started, and a byte for each of millions fits into a cache
//! that all cores share, where eight do not. A part grows by itself, in the order in which it stands, so
//! that nobody waits until millions have been moved.
//!
//! Invariants: a mark is zero where a slot is free, and more slots than a third are; between a tag's home
//! and the place where it stands no slot is free. What a number stands for is not known here: whoever looks
//! for one says which it is among those of one tag.
//!
//! Left out: giving memory back, which whoever removes many will need again.

#[derive(Debug)]
pub(crate) struct Numbers {
    parts: Vec<Part>,
}

/// As many slots as a power of two says.
#[derive(Clone, Debug, Default)]
struct Part {
    marks: Vec<u8>,
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tag: u32,
    number: u32,
}

const SLOTS_LEN_MIN: usize = 8;

impl Numbers {
    /// None, in so many parts.
    pub(crate) fn in_parts(parts: usize) -> Self {
        Self {
            parts: vec![Part::default(); parts.max(1)],
        }
    }

    /// The number under a hash that is the one looked for.
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let part = &self.parts[self.part(hash)];
        let at = part.find(lower(hash), is_it).ok()?;
        Some(part.slots[at].number)
    }

    /// Puts a number in the place of the one that it takes over from, if there is any.
    pub(crate) fn put(&mut self, hash: u64, number: u32, takes_over: impl Fn(u32) -> bool) {
        let (index, tag) = (self.part(hash), lower(hash));
        let part = &mut self.parts[index];
        part.make_room();
        let at = match part.find(tag, takes_over) {
            Ok(at) => at,
            Err(free) => {
                part.len += 1;
                part.marks[free] = mark(tag);
                free
            }
        };
        part.slots[at] = Slot { tag, number };
    }

    /// Takes out exactly this number, if it stands under this hash.
    pub(crate) fn remove(&mut self, hash: u64, number: u32) {
        let index = self.part(hash);
        let part = &mut self.parts[index];
        if let Ok(at) = part.find(lower(hash), |other| other == number) {
            part.free(at);
        }
    }

    /// Takes out all, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        for part in &mut self.parts {
            part.marks.fill(0);
            part.len = 0;
        }
    }

    /// Something of the memory where this hash would stand. Whoever asks that of many before the first of
    /// them is put waits for the memory of all at once, and not for each in turn.
    pub(crate) fn fetch(&self, hash: u64) -> u32 {
        let part = &self.parts[self.part(hash)];
        let home = part.home(lower(hash));
        match (part.marks.get(home), part.slots.get(home)) {
            (Some(mark), Some(slot)) => u32::from(*mark) ^ slot.number,
            _ => 0,
        }
    }

    /// Memory held.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let slots: usize = self.parts.iter().map(|part| part.slots.capacity()).sum();
        (slots * (size_of::<Slot>() + 1) + self.parts.capacity() * size_of::<Part>()) as u64
    }

    /// The upper half of a hash picks the part.
    fn part(&self, hash: u64) -> usize {
        let product = (hash >> 32) * self.parts.len() as u64;
        usize::try_from(product >> 32).expect("it is less than the number of parts")
    }
}

impl Part {
    /// Where a tag's slots begin: tags stand nearly in order.
    fn home(&self, tag: u32) -> usize {
        let product = u64::from(tag) * self.marks.len() as u64;
        usize::try_from(product >> 32).expect("it is less than the number of slots")
    }

    /// Where the one looked for stands, or else the free slot behind those it could be. Where there are no
    /// slots, none is free either.
    fn find(&self, tag: u32, is_it: impl Fn(u32) -> bool) -> Result<usize, usize> {
        let (marks, sought) = (&self.marks[..], mark(tag));
        let mut at = self.home(tag);
        while let Some(mark) = marks.get(at).copied() {
            if mark == 0 {
                break;
            }
            if mark == sought {
                let slot = self.slots[at];
                if slot.tag == tag && is_it(slot.number) {
                    return Ok(at);
                }
            }
            at = (at + 1) & (marks.len() - 1);
        }
        Err(at)
    }

    /// Room for one more.
    fn make_room(&mut self) {
        if 8 * (self.len + 1) <= 5 * self.marks.len() {
            return;
        }
        let len = (2 * self.marks.len()).max(SLOTS_LEN_MIN);
        let marks = std::mem::replace(&mut self.marks, vec![0; len]);
        let slots = std::mem::replace(&mut self.slots, vec![Slot::default(); len]);
        for (_, slot) in marks.into_iter().zip(slots).filter(|(mark, _)| *mark != 0) {
            if let Err(free) = self.find(slot.tag, |_| false) {
                self.marks[free] = mark(slot.tag);
                self.slots[free] = slot;
            }
        }
    }

    /// Makes a slot free; those behind it that are not at home move up.
    fn free(&mut self, at: usize) {
        let mask = self.marks.len() - 1;
        let (mut hole, mut next) = (at, (at + 1) & mask);
        while self.marks[next] != 0 {
            let from_home = next.wrapping_sub(self.home(self.slots[next].tag)) & mask;
            if from_home >= next.wrapping_sub(hole) & mask {
                self.marks[hole] = self.marks[next];
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.marks[hole] = 0;
        self.len -= 1;
    }
}

/// A byte of a tag that says nothing of its home, and is never zero.
fn mark(tag: u32) -> u8 {
    let [lowest, ..] = tag.to_le_bytes();
    lowest | 1
}

/// The lower half of a number: among fewer than 2^32 that follow each other, it tells which one it is.
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
    fn what_is_put_is_found_until_it_is_removed_whatever_tags_are_alike() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for parts in [1, 3, 16] {
            let mut numbers = Numbers::in_parts(parts);
            // By name; which name a number stands for is known by the list of names.
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            let mut names = Vec::new();
            // Few hashes for many names, some at the end of a part, so that they go round.
            let hash_of = |name: u64| (name % 7) << 61 | (name % 5) << 29 | (0xfff_ff00 * (name % 2));
            for step in 0..20_000 {
                let (name, is_full) = (random(300), step / 4_000 % 2 == 0);
                let number = u32::try_from(names.len()).unwrap();
                let is_it = |number: u32| names[number as usize] == name;
                match model.get(&name) {
                    None if !is_full => {}
                    Some(number) if !is_full || random(4) == 0 => {
                        numbers.remove(hash_of(name), u32::MAX);
                        numbers.remove(hash_of(name), *number);
                        model.remove(&name);
                    }
                    None | Some(_) => {
                        numbers.put(hash_of(name), number, is_it);
                        model.insert(name, number);
                        names.push(name);
                    }
                }
                let sought = random(300);
                assert_eq!(
                    numbers.find(hash_of(sought), |number| names[number as usize] == sought),
                    model.get(&sought).copied()
                );
                let len: usize = numbers.parts.iter().map(|part| part.len).sum();
                assert_eq!(len, model.len());
            }
            numbers.clear();
            assert!((0..7).all(|name| numbers.find(hash_of(name), |_| true).is_none()));
        }
    }

    #[test]
    fn each_of_very_many_is_found_near_its_home() {
        let mut numbers = Numbers::in_parts(4);
        let hash_of = |number: u64| xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes());
        for number in 0..100_000 {
            numbers.put(hash_of(number), lower(number), |_| false);
        }
        for number in 0..100_000 {
            let is_it = |other| other == lower(number);
            assert_eq!(numbers.find(hash_of(number), is_it), Some(lower(number)));
        }
        for part in &numbers.parts {
            let mut from_home = 0;
            for (at, slot) in part
                .slots
                .iter()
                .enumerate()
                .filter(|(at, _)| part.marks[*at] != 0)
            {
                from_home = from_home.max(at.wrapping_sub(part.home(slot.tag)) & (part.slots.len() - 1));
            }
            assert!(from_home < 64);
        }
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
