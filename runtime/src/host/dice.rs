//! Random numbers, fast and shared.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014) over
/// an atomic counter: many threads draw from one sequence without a lock, and no number comes
/// twice within 2^64 draws.
#[derive(Debug)]
pub(super) struct Dice(AtomicU64);

impl Dice {
    /// Seeded by the operating system, through the keys of the standard library's hash maps.
    pub(super) fn from_os() -> Self {
        Self(AtomicU64::new(RandomState::new().build_hasher().finish()))
    }

    /// The next number. Not for cryptography.
    pub(super) fn roll(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_sequence_is_the_published_one() {
        // First outputs for seed 1234567 of the reference implementation.
        let dice = Dice(AtomicU64::new(1_234_567));
        assert_eq!(dice.roll(), 6_457_827_717_110_365_317);
        assert_eq!(dice.roll(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn two_hosts_roll_differently() {
        let rolls: HashSet<u64> = (0..64).map(|_| Dice::from_os().roll()).collect();
        assert_eq!(rolls.len(), 64);
    }
}
