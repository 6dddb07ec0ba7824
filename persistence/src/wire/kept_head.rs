//! Format version 2 of a kept head: up to which record the turns of a run were moved out of the log.
//!
//! ```text
//!   key: run (u128)
//!
//!   0       8      12     16     24
//!   ├───────┼──────┼──────┼──────┤
//!   │ magic │ crc  │ last │ id   │
//!   └───────┴──────┴──────┴──────┘
//!     8       4      4      8
//! ```
//!
//! Numbers are little-endian; `crc` is crc32c over the run and the twelve bytes after `crc`. `last` is the sequence of the
//! last record that was moved, `id` a hash of the instance's id; zero if that was not known. A run has a kept head until the
//! turn that closes it is moved too: from then on the index of finished runs has the same data.

use millrun_core::RunId;

use crate::finished::IdHash;

/// The first bytes of a row.
pub(crate) const MAGIC: &[u8; 8] = b"millkept";
/// Size of a row.
pub(crate) const BYTES: usize = 24;

/// Up to which record the kept turns of a run reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptHead {
    /// The sequence of the last record.
    pub(crate) last: u32,
    pub(crate) id: IdHash,
}

pub(crate) fn row(run: RunId, head: KeptHead) -> [u8; BYTES] {
    let mut row = [0; BYTES];
    row[..8].copy_from_slice(MAGIC);
    row[12..16].copy_from_slice(&head.last.to_le_bytes());
    row[16..].copy_from_slice(&head.id.bits().to_le_bytes());
    let crc = checksum(run, &row);
    row[8..12].copy_from_slice(&crc.to_le_bytes());
    row
}

/// The contents of a row; `None` if it is damaged, or another run's.
pub(crate) fn read(run: RunId, row: &[u8]) -> Option<KeptHead> {
    let row: &[u8; BYTES] = row.try_into().ok()?;
    let word = |at: usize| u32::from_le_bytes(row[at..at + 4].try_into().expect("four bytes"));
    let id = u64::from_le_bytes(row[16..].try_into().expect("eight bytes"));
    (row[..8] == *MAGIC && checksum(run, row) == word(8)).then(|| KeptHead {
        last: word(12),
        id: IdHash::from_bits(id),
    })
}

fn checksum(run: RunId, row: &[u8; BYTES]) -> u32 {
    let crc = crc32c::crc32c(&run.bits().to_le_bytes());
    crc32c::crc32c_append(crc, &row[12..])
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, Timestamp};

    use super::*;

    #[test]
    fn a_head_reads_back_and_any_damage_makes_it_none() {
        let run = |number| RunId::new(Partition::from_index(1).unwrap(), Timestamp::EPOCH, number);
        let head = KeptHead {
            last: 77,
            id: IdHash::of("order-42"),
        };
        let stored = row(run(1), head);
        assert_eq!(read(run(1), &stored), Some(head));
        assert_eq!(read(run(2), &stored), None);
        for at in 0..stored.len() {
            let mut bad = stored;
            bad[at] ^= 4;
            assert_eq!(read(run(1), &bad), None, "byte {at}");
            assert_eq!(read(run(1), &stored[..at]), None, "{at} bytes");
        }
    }
}
