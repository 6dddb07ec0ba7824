//! The hash of an instance's id, with a secret.
//!
//! Ids are chosen by strangers, who must not be able to choose many that fall together. The id is
//! taken as numbers of eight bytes, each is multiplied with a secret one of its own, and the upper half
//! of the sum is the hash (multilinear hashing, which is strongly universal): two ids that were chosen
//! without knowing the secret have the same hash with a probability of 2^-64. A short id costs two
//! multiplications, a seventh of a SipHash.

use std::hash::{BuildHasher, RandomState};

use millrun_core::InstanceId;

/// Numbers that the longest id has, its length included.
const WORDS_MAX: usize = 1 + InstanceId::BYTES_MAX.div_ceil(8);

/// See the [module](self).
pub(super) struct IdHasher {
    offset: u128,
    factors: [u128; WORDS_MAX],
}

impl Default for IdHasher {
    /// With a secret that nobody else has.
    fn default() -> Self {
        let secret = RandomState::new();
        let number = |index: usize| {
            let half = |side: u8| u128::from(secret.hash_one((index, side)));
            half(0) << 64 | half(1)
        };
        Self {
            offset: number(WORDS_MAX),
            factors: std::array::from_fn(number),
        }
    }
}

impl std::fmt::Debug for IdHasher {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdHasher")
    }
}

impl IdHasher {
    /// The hash of an id, which has at most [`InstanceId::BYTES_MAX`] bytes: what is behind them does not
    /// count.
    pub(super) fn hash(&self, id: &str) -> u64 {
        let bytes = id.as_bytes();
        let mut factors = self.factors.iter();
        let mut sum = self.offset;
        let mut add = |word: u64| {
            if let Some(factor) = factors.next() {
                sum = sum.wrapping_add(factor.wrapping_mul(u128::from(word)));
            }
        };
        add(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            add(last_word(bytes));
        }
        (sum >> 64) as u64
    }
}

/// The last bytes, up to eight: together with the length they say which. Those that were counted
/// already do no harm.
fn last_word(bytes: &[u8]) -> u64 {
    let half = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
    if let Some(last) = bytes.last_chunk() {
        return u64::from_le_bytes(*last);
    }
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => half(first) << 32 | half(last),
        _ => bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_byte_and_the_length_count() {
        let hasher = IdHasher::default();
        let mut hashes = HashSet::new();
        let mut ids = 0;
        for len in 0..=InstanceId::BYTES_MAX {
            let id = "a".repeat(len);
            assert!(hashes.insert(hasher.hash(&id)), "{len} bytes");
            for at in 0..len {
                let mut other = id.clone();
                other.replace_range(at..=at, "b");
                assert!(hashes.insert(hasher.hash(&other)), "byte {at} of {len}");
                ids += 1;
            }
        }
        assert_eq!(ids, 255 * 256 / 2);
        assert!(hashes.insert(hasher.hash("\0")) && hashes.insert(hasher.hash("\0\0")));
    }

    #[test]
    fn each_hasher_has_a_secret_of_its_own_and_keeps_to_it() {
        let (one, other) = (IdHasher::default(), IdHasher::default());
        assert_eq!(one.hash("order-1"), one.hash("order-1"));
        assert_ne!(one.hash("order-1"), other.hash("order-1"));
    }

    #[test]
    fn ids_that_differ_in_a_number_spread_over_the_places_of_a_table() {
        let hasher = IdHasher::default();
        let mut places = vec![0_u32; 256];
        for number in 0..25_600 {
            let hash = hasher.hash(&format!("order-{number}"));
            places[usize::try_from(hash % 256).unwrap()] += 1;
        }
        // A hundred each on average: a place far out of that is as good as impossible.
        assert!(places.iter().all(|ids| (30..220).contains(ids)), "{places:?}");
    }
}
