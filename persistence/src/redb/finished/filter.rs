//! A filter that tells of a hash whether it is surely not in a sorted run, or may be.
//!
//! A Bloom filter whose bits for one hash all lie in one cache line (Putze, Sanders, Singler: "Cache-, Hash- and
//! Space-Efficient Bloom Filters", 2007): one cache miss per question. With seven probes, 22 bits per hash answer "may be"
//! for about two in ten thousand that are not there, 16 bits for one in a thousand, and 10 for one in a hundred. There are
//! about a dozen sorted runs to ask.

const PROBES: u32 = 7;
const WORDS_PER_BLOCK: usize = 8;
const BITS_PER_BLOCK: usize = 64 * WORDS_PER_BLOCK;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunFilter {
    blocks: Vec<FilterBlock>,
}

/// Aligned, so that it is one cache line and not parts of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct FilterBlock([u64; WORDS_PER_BLOCK]);

/// A hash to be looked for in many filters: where its bits are in a block is worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought {
    /// Picks the block.
    upper: u64,
    bits: FilterBlock,
}

impl Sought {
    pub(crate) fn new(hash: u64) -> Self {
        let mut block = FilterBlock::default();
        for bit in bits(hash) {
            block.0[bit / 64] |= 1 << (bit % 64);
        }
        Self {
            upper: hash >> 32,
            bits: block,
        }
    }
}

impl RunFilter {
    /// A filter that is to hold this many hashes, with this number of bits for each.
    pub(crate) fn with_capacity(hashes: usize, bits_per_hash: usize) -> Self {
        let blocks = (hashes * bits_per_hash).div_ceil(BITS_PER_BLOCK).max(1);
        Self {
            blocks: vec![FilterBlock::default(); blocks],
        }
    }

    pub(crate) fn insert(&mut self, hash: u64) {
        let index = self.block(hash >> 32);
        let FilterBlock(words) = &mut self.blocks[index];
        for bit in bits(hash) {
            words[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Combines all bits before it decides: a caller that asks many filters, and nearly always gets a no, then waits for
    /// their memory in parallel and not one after the other.
    pub(crate) fn may_contain(&self, sought: &Sought) -> bool {
        let FilterBlock(words) = &self.blocks[self.block(sought.upper)];
        let missing = words.iter().zip(&sought.bits.0).map(|(word, bits)| !word & bits);
        missing.fold(0, |all, missing| all | missing) == 0
    }

    /// Memory held.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.blocks.capacity() * BITS_PER_BLOCK / 8) as u64
    }

    /// The upper half of a hash picks the block.
    fn block(&self, upper: u64) -> usize {
        let product = upper * self.blocks.len() as u64;
        usize::try_from(product >> 32).expect("it is less than the number of blocks")
    }
}

/// The bits of a hash within its block, from its lower half.
fn bits(hash: u64) -> impl Iterator<Item = usize> {
    // Multiplying spreads the 32 bits over 63, nine for each probe.
    let mut mixed = (hash & 0xffff_ffff).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 32;
    (0..PROBES).map(move |probe| usize::try_from((mixed >> (9 * probe)) & 511).expect("nine bits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finished::IdHash;

    fn hash(number: u32, set: &str) -> u64 {
        IdHash::of(&format!("{set}-{number}")).bits()
    }

    #[test]
    fn what_was_inserted_is_never_denied_and_the_rest_nearly_always() {
        for (len, bits, wrong_max) in [
            (1, 22, 0),
            (100, 22, 10),
            (20_000, 22, 10),
            (20_000, 16, 30),
            (20_000, 10, 200),
        ] {
            let mut filter = RunFilter::with_capacity(len, bits);
            let len = u32::try_from(len).unwrap();
            (0..len).for_each(|number| filter.insert(hash(number, "in")));
            assert!((0..len).all(|number| filter.may_contain(&Sought::new(hash(number, "in")))));
            let wrong = (0..10_000)
                .filter(|number| filter.may_contain(&Sought::new(hash(*number, "out"))))
                .count();
            assert!(wrong <= wrong_max, "{wrong} of 10,000 with {len} inserted");
        }
    }

    #[test]
    fn it_takes_as_many_bits_per_hash_as_are_asked_for() {
        assert_eq!(RunFilter::with_capacity(32_000, 16).memory_bytes(), 64_000);
    }
}
