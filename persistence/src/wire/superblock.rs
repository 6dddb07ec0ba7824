//! The first page of a store's file: a mark that it is one, and its format. Written at creation, and once more when a store
//! of an earlier format is first written to.
//!
//! ```text
//!   0                16       20           24       32      36            4096
//!   ├────────────────┼────────┼────────────┼────────┼───────┼─────────────┼──────────
//!   │ "millrun journal\n" │ format │ partitions │ store  │ crc   │ zeros       │ redb ...
//!   └────────────────┴────────┴────────────┴────────┴───────┴─────────────┴──────────
//!     16               4        4            8        4
//! ```
//!
//! It comes before everything that redb writes, so that a foreign file or one of a later release is refused before anything
//! changes it. Numbers are little-endian; `store` is a random number that distinguishes stores; `crc` is crc32c over the 32
//! bytes before it. All of it is in one sector, which is written completely or not at all.
//!
//! While a store is being created, its first page only says so, and is durable before anything is written after it. The page
//! above replaces it last. So an interrupted creation can be told from a store whose first page was lost.
//!
//! | format | what is new |
//! |---|---|
//! | 1 | |
//! | 2 | inventories of the log's turns, heads of kept runs (`wire::inventory`, `wire::kept_head`) |
//! | 3 | records that trim their run (`wire::v1`) |
//! | 4 | records of topics (`wire::topic_row`) |
//!
//! A store of an earlier format gets the present format with its next commit. A release that knows only format 1 would append
//! turns that no inventory lists; one that knows only format 2 would take a trimmed run for damaged, or for the rest of a
//! dropped one; and one that knows only format 3 would leave topics out of its backups.

use millrun_core::Partition;

/// Where redb's own file begins.
pub(crate) const BYTES: usize = 4_096;
/// The newest format this release reads, and the one it writes.
pub(crate) const FORMAT: u32 = 4;
/// The oldest format this release reads.
const FORMAT_MIN: u32 = 1;

const MAGIC: &[u8; 16] = b"millrun journal\n";
/// The first bytes of a store that is being created; zeros follow.
pub(crate) const UNFINISHED: &[u8; 16] = b"millrun is made\n";
const USED: usize = 36;

/// Why a page is not a store's first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuperblockError {
    /// The store was being created, and holds nothing yet.
    Unfinished,
    Foreign,
    Checksum,
    Newer {
        format: u32,
    },
    Partitions {
        found: u32,
    },
}

/// The contents of the first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) format: u32,
    /// The number of the store.
    pub(crate) store: u64,
}

pub(crate) fn encode(store: u64) -> [u8; BYTES] {
    encode_as(Superblock {
        format: FORMAT,
        store,
    })
}

/// The first page of a store of this format.
pub(crate) fn encode_as(superblock: Superblock) -> [u8; BYTES] {
    let Superblock { format, store } = superblock;
    let mut page = [0; BYTES];
    page[..16].copy_from_slice(MAGIC);
    page[16..20].copy_from_slice(&format.to_le_bytes());
    page[20..24].copy_from_slice(&u32::from(Partition::COUNT).to_le_bytes());
    page[24..32].copy_from_slice(&store.to_le_bytes());
    let crc = crc32c::crc32c(&page[..32]);
    page[32..USED].copy_from_slice(&crc.to_le_bytes());
    page
}

/// Checks the first page.
pub(crate) fn decode(page: &[u8; BYTES]) -> Result<Superblock, SuperblockError> {
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
    if page[..16] == *UNFINISHED && page[16..].iter().all(|byte| *byte == 0) {
        return Err(SuperblockError::Unfinished);
    }
    if page[..16] != *MAGIC {
        // A store whose first page was lost begins with zeros.
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
    let format = word(16);
    if format > FORMAT {
        return Err(SuperblockError::Newer { format });
    }
    if format < FORMAT_MIN {
        return Err(SuperblockError::Foreign);
    }
    if word(20) != u32::from(Partition::COUNT) {
        return Err(SuperblockError::Partitions { found: word(20) });
    }
    Ok(Superblock {
        format,
        store: u64::from_le_bytes(page[24..32].try_into().expect("eight bytes")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_page_reads_back() {
        for format in FORMAT_MIN..=FORMAT {
            let superblock = Superblock { format, store: 77 };
            assert_eq!(decode(&encode_as(superblock)), Ok(superblock));
        }
        assert_eq!(decode(&encode(77)).map(|page| page.format), Ok(FORMAT));
    }

    #[test]
    fn damage_a_foreign_file_and_a_later_format_are_told_apart() {
        assert_eq!(decode(&[0; BYTES]), Err(SuperblockError::Checksum));
        assert_eq!(decode(&[7; BYTES]), Err(SuperblockError::Foreign));
        let mut page = [0; BYTES];
        page[..16].copy_from_slice(UNFINISHED);
        assert_eq!(decode(&page), Err(SuperblockError::Unfinished));
        let mut page = encode(1);
        page[25] ^= 1;
        assert_eq!(decode(&page), Err(SuperblockError::Checksum));
        let of = |format| encode_as(Superblock { format, store: 1 });
        let format = FORMAT + 1;
        assert_eq!(decode(&of(format)), Err(SuperblockError::Newer { format }));
        assert_eq!(decode(&of(0)), Err(SuperblockError::Foreign));
    }
}
