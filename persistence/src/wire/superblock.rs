//! The first page of a store's file: who we are, in which format. Written once, at creation.
//!
//! ```text
//!   0                16       20           24       32      36            4096
//!   ├────────────────┼────────┼────────────┼────────┼───────┼─────────────┼──────────
//!   │ "millrun journal\n" │ format │ partitions │ store  │ crc   │ zeros       │ redb ...
//!   └────────────────┴────────┴────────────┴────────┴───────┴─────────────┴──────────
//!     16               4        4            8        4
//! ```
//!
//! It stands before everything that redb writes, so that a foreign file or one of a later release
//! is refused before anything touches it. Numbers are little-endian; `store` is a random number
//! that tells stores apart; `crc` is crc32c over the 32 bytes before it.

use millrun_core::Partition;

/// Where redb's own file begins.
pub(crate) const BYTES: usize = 4_096;
/// The newest format this release reads, and the one it writes.
pub(crate) const FORMAT: u32 = 1;

const MAGIC: &[u8; 16] = b"millrun journal\n";
const USED: usize = 36;

/// Why the first page is not one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuperblockError {
    Foreign,
    Checksum,
    Newer { format: u32 },
    Partitions { found: u32 },
}

pub(crate) fn encode(store: u64) -> [u8; BYTES] {
    let mut page = [0; BYTES];
    page[..16].copy_from_slice(MAGIC);
    page[16..20].copy_from_slice(&FORMAT.to_le_bytes());
    page[20..24].copy_from_slice(&u32::from(Partition::COUNT).to_le_bytes());
    page[24..32].copy_from_slice(&store.to_le_bytes());
    let crc = crc32c::crc32c(&page[..32]);
    page[32..USED].copy_from_slice(&crc.to_le_bytes());
    page
}

/// Checks the first page; returns the number of the store.
pub(crate) fn decode(page: &[u8; BYTES]) -> Result<u64, SuperblockError> {
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
    if page[..16] != *MAGIC {
        // A file of ours whose first page was lost begins with zeros.
        let is_lost = page.iter().all(|byte| *byte == 0);
        return Err(if is_lost {
            SuperblockError::Checksum
        } else {
            SuperblockError::Foreign
        });
    }
    if crc32c::crc32c(&page[..32]) != word(32) {
        return Err(SuperblockError::Checksum);
    }
    if word(16) != FORMAT {
        return Err(SuperblockError::Newer { format: word(16) });
    }
    if word(20) != u32::from(Partition::COUNT) {
        return Err(SuperblockError::Partitions { found: word(20) });
    }
    Ok(u64::from_le_bytes(page[24..32].try_into().expect("eight bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_page_reads_back() {
        assert_eq!(decode(&encode(77)), Ok(77));
    }

    #[test]
    fn damage_a_foreign_file_and_a_later_format_are_told_apart() {
        assert_eq!(decode(&[0; BYTES]), Err(SuperblockError::Checksum));
        assert_eq!(decode(&[7; BYTES]), Err(SuperblockError::Foreign));
        let mut page = encode(1);
        page[25] ^= 1;
        assert_eq!(decode(&page), Err(SuperblockError::Checksum));
        let mut page = encode(1);
        page[16] = 2;
        let crc = crc32c::crc32c(&page[..32]);
        page[32..USED].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&page), Err(SuperblockError::Newer { format: 2 }));
    }
}
