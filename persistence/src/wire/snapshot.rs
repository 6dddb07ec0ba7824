//! Format version 1 of a stored snapshot: the folded state of a live run.
//!
//! ```text
//!   key: run (u128)
//!
//!   0       4          8      12
//!   ├───────┼──────────┼──────┼──────────┐
//!   │version│ sequence │ crc  │ state    │
//!   └───────┴──────────┴──────┴──────────┘
//! ```
//!
//! Numbers are little-endian; `crc` is crc32c over the run, the eight bytes before it, and the state. A
//! row that does not decode is no snapshot: the history is always enough.

use bytes::Bytes;
use millrun_core::{RunId, Sequence};

use crate::record::Snapshot;

const HEADER_BYTES: usize = 12;
const VERSION: u32 = 1;

pub(crate) fn row(snapshot: &Snapshot) -> Vec<u8> {
    let sequence = u32::try_from(snapshot.sequence.get()).expect("a run has less than 2^32 records");
    let mut row = Vec::with_capacity(HEADER_BYTES + snapshot.bytes.len());
    row.extend_from_slice(&VERSION.to_le_bytes());
    row.extend_from_slice(&sequence.to_le_bytes());
    let crc = checksum(snapshot.run, &row, &snapshot.bytes);
    row.extend_from_slice(&crc.to_le_bytes());
    row.extend_from_slice(&snapshot.bytes);
    row
}

/// The snapshot in a row; `None` if it holds none of this run.
pub(crate) fn read(run: RunId, row: &[u8]) -> Option<Snapshot> {
    let (header, state) = row.split_first_chunk::<HEADER_BYTES>()?;
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    (checksum(run, &header[..8], state) == word(8) && word(0) == VERSION).then(|| Snapshot {
        run,
        sequence: Sequence::new(u64::from(word(4))),
        bytes: Bytes::copy_from_slice(state),
    })
}

/// Makes the checksum of a row hold, for fuzzers; false if there is no room for one.
#[cfg(feature = "fuzz")]
pub(crate) fn reseal(run: RunId, row: &mut [u8]) -> bool {
    if row.len() < HEADER_BYTES {
        return false;
    }
    let crc = checksum(run, &row[..8], &row[HEADER_BYTES..]);
    row[8..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    true
}

fn checksum(run: RunId, header: &[u8], state: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&run.bits().to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, header), state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrun_core::{Partition, Timestamp};

    #[test]
    fn a_snapshot_reads_back_and_any_damage_makes_it_none() {
        let run = |number| RunId::new(Partition::from_index(1).unwrap(), Timestamp::EPOCH, number);
        let snapshot = Snapshot {
            run: run(1),
            sequence: Sequence::new(7),
            bytes: Bytes::from_static(b"folded"),
        };
        let stored = row(&snapshot);
        assert_eq!(read(run(1), &stored), Some(snapshot));
        assert_eq!(read(run(2), &stored), None);
        for at in 0..stored.len() {
            let mut bad = stored.clone();
            bad[at] ^= 4;
            assert_eq!(read(run(1), &bad), None, "byte {at}");
            assert_eq!(read(run(1), &stored[..at]), None, "{at} bytes");
        }
    }
}
