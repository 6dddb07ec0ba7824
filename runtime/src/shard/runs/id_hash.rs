//! The hash of an instance's id, with a secret: clients choose ids, and must not be able to choose many that collide. It is
//! much cheaper than the standard library's hash.

use std::hash::BuildHasher;
use std::{fmt, hash};

/// See the [module](self).
pub(in crate::shard) struct IdHasher(ahash::RandomState);

impl Default for IdHasher {
    /// With a random secret.
    fn default() -> Self {
        let secret = hash::RandomState::new();
        let [a, b, c, d] = [0_u8, 1, 2, 3].map(|part| secret.hash_one(part));
        Self(ahash::RandomState::with_seeds(a, b, c, d))
    }
}

impl fmt::Debug for IdHasher {
    /// Does not print the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdHasher")
    }
}

impl IdHasher {
    pub(in crate::shard) fn hash(&self, id: &str) -> u64 {
        self.0.hash_one(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hasher_has_a_secret_of_its_own_and_keeps_to_it() {
        let (one, other) = (IdHasher::default(), IdHasher::default());
        assert_eq!(one.hash("order-1"), one.hash("order-1"));
        assert_ne!(one.hash("order-1"), other.hash("order-1"));
    }
}
