//! Format version 2 of an inventory: the last turns of runs in a stretch of the log.
//!
//! ```text
//!   key: log position at which the stretch begins (u64)
//!
//!   0       8      12     16      24      32      40
//!   ├───────┼──────┼──────┼───────┼───────┼───────┼───────┬───────┬─────┐
//!   │ magic │ crc  │ len  │ from  │ end   │ low   │ entry │ entry │ ... │
//!   └───────┴──────┴──────┴───────┴───────┴───────┴───────┴───────┴─────┘
//!     8       4      4      8       8       8
//!
//!   entry:  0      4      8     24     32     40
//!           ├──────┼──────┼─────┼──────┼──────┤    `at`: position of the turn minus `from` in 31 bits,
//!           │ at   │ last │ run │ id   │ first│            and bit 31 if the run closes with it;
//!           └──────┴──────┴─────┴──────┴──────┘    `last`: the sequence of the turn's last record;
//!             4      4      16    8      8         `id`: a hash of the instance's id;
//!                                                  `first`: where the run's first turn begins, or began
//! ```
//!
//! Numbers are little-endian; `len` counts the whole row, `crc` is crc32c over everything behind itself.
//! `low` is where the log began when the row was written.
//!
//! The frames have the same data. Stored twice, in pages of different tables, they are not lost with one of them: if a listed
//! turn is not in the log, it is missing, and its run is known. Of each run only the last turn in a stretch is listed, and
//! none if the run continued after the stretch: a later listed turn can only be reached through the earlier ones.

use millrun_core::RunId;

use crate::finished::IdHash;

/// The first bytes of a row.
pub(crate) const MAGIC: &[u8; 8] = b"millturn";
/// Bytes before the first entry.
pub(crate) const HEADER_BYTES: usize = 40;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 40;
/// Rows are cut at this size: with what the storage adds they fill their pages.
pub(crate) const ROW_BYTES_MAX: usize = (16 << 10) - 32;
const CRC: usize = 8;
const LEN: usize = 12;
const CLOSES: u32 = 1 << 31;
const AT_MAX: u64 = (CLOSES - 1) as u64;

/// A turn of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Where its first frame begins.
    pub(crate) position: u64,
    pub(crate) run: RunId,
    /// The sequence of its last record.
    pub(crate) last: u32,
    /// Whether the run ends with it.
    pub(crate) closes: bool,
    /// The run's instance.
    pub(crate) id: IdHash,
    /// Where the run's first turn begins, or began before it was moved.
    pub(crate) first: u64,
}

/// A stretch of the log, with the last turns of runs in it, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inventory {
    pub(crate) from: u64,
    pub(crate) end: u64,
    /// Where the log began when this was written.
    pub(crate) low: u64,
    pub(crate) turns: Vec<Listed>,
}

/// Why bytes are not an inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InventoryError {
    #[error("the inventory is shorter than it says")]
    Short,
    #[error("the checksum of the inventory does not match")]
    Checksum,
    #[error("the inventory contradicts itself")]
    Entries,
}

/// Sorts turns as they are listed: in the order of the log.
pub(crate) fn in_order(mut turns: Vec<Listed>) -> Vec<Listed> {
    turns.sort_unstable_by_key(|turn| turn.position);
    turns
}

/// The rows that list `turns`, which are in this order in the log from `from` to `end`, each with its key.
pub(crate) fn rows(mut from: u64, end: u64, low: u64, turns: &[Listed]) -> Vec<(u64, Vec<u8>)> {
    let mut rows = Vec::with_capacity(1);
    let mut rest = turns;
    while !rest.is_empty() {
        let mut row = vec![0; HEADER_BYTES];
        row.reserve((rest.len() * ENTRY_BYTES).min(ROW_BYTES_MAX));
        let mut count = 0;
        for turn in rest {
            let at = turn.position.saturating_sub(from);
            if row.len() + ENTRY_BYTES > ROW_BYTES_MAX || (at > AT_MAX && count > 0) {
                break;
            }
            // A turn that begins too far after the one before gets a new stretch.
            if at > AT_MAX {
                from = turn.position;
            }
            put(&mut row, turn, turn.position - from);
            count += 1;
        }
        rest = &rest[count..];
        let row_end = rest.first().map_or(end, |next| next.position);
        seal(&mut row, from, row_end, low);
        rows.push((from, row));
        from = row_end;
    }
    rows
}

fn put(row: &mut Vec<u8>, turn: &Listed, at: u64) {
    let at = u32::try_from(at).expect("it is below 2^31");
    let closes = if turn.closes { CLOSES } else { 0 };
    let mut entry = [0; ENTRY_BYTES];
    entry[..4].copy_from_slice(&(at | closes).to_le_bytes());
    entry[4..8].copy_from_slice(&turn.last.to_le_bytes());
    entry[8..24].copy_from_slice(&turn.run.bits().to_le_bytes());
    entry[24..32].copy_from_slice(&turn.id.bits().to_le_bytes());
    entry[32..].copy_from_slice(&turn.first.to_le_bytes());
    row.extend_from_slice(&entry);
}

fn seal(row: &mut [u8], from: u64, end: u64, low: u64) {
    let len = u32::try_from(row.len()).expect("a row is small");
    row[..CRC].copy_from_slice(MAGIC);
    row[LEN..16].copy_from_slice(&len.to_le_bytes());
    row[16..24].copy_from_slice(&from.to_le_bytes());
    row[24..32].copy_from_slice(&end.to_le_bytes());
    row[32..HEADER_BYTES].copy_from_slice(&low.to_le_bytes());
    let crc = crc32c::crc32c(&row[LEN..]);
    row[CRC..LEN].copy_from_slice(&crc.to_le_bytes());
}

/// Makes the checksum of a row hold, for fuzzers.
#[cfg(feature = "fuzz")]
pub(crate) fn reseal(row: &mut [u8]) {
    if row.len() >= HEADER_BYTES {
        let long = |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().expect("eight bytes"));
        let (from, end, low) = (long(16), long(24), long(32));
        seal(row, from, end, low);
    }
}

/// Reads and checks the row at the start of `bytes`, and ignores what follows.
pub(crate) fn read(bytes: &[u8]) -> Result<Inventory, InventoryError> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(InventoryError::Short)?;
    let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let len = usize::try_from(word(header, LEN)).expect("a usize holds a u32 here");
    let entries = bytes.get(HEADER_BYTES..len).ok_or(InventoryError::Short)?;
    if header[..CRC] != *MAGIC || crc32c::crc32c(&bytes[LEN..len]) != word(header, CRC) {
        return Err(InventoryError::Checksum);
    }
    let (from, end, low) = (long(16), long(24), long(32));
    let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(InventoryError::Entries);
    }
    let mut turns = Vec::with_capacity(entries.len());
    let mut behind = from;
    for found in entries {
        let turn = entry(found, from)?;
        if turn.position < behind || turn.position >= end {
            return Err(InventoryError::Entries);
        }
        behind = turn.position + 1;
        turns.push(turn);
    }
    Ok(Inventory {
        from,
        end,
        low,
        turns,
    })
}

fn entry(entry: &[u8; ENTRY_BYTES], from: u64) -> Result<Listed, InventoryError> {
    let long = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight bytes"));
    let at = word(entry, 0);
    let run = u128::from_le_bytes(entry[8..24].try_into().expect("sixteen bytes"));
    let position = from.checked_add(u64::from(at) & AT_MAX);
    Ok(Listed {
        position: position.ok_or(InventoryError::Entries)?,
        run: RunId::from_bits(run).ok_or(InventoryError::Entries)?,
        last: word(entry, 4),
        closes: at & CLOSES != 0,
        id: IdHash::from_bits(long(24)),
        first: long(32),
    })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, Timestamp};

    use super::*;

    fn turns(positions: impl IntoIterator<Item = u64>) -> Vec<Listed> {
        let turn = |(number, position): (u64, u64)| Listed {
            position,
            run: RunId::new(Partition::from_index(3).unwrap(), Timestamp::EPOCH, number),
            last: u32::try_from(number).unwrap() + 1,
            closes: number % 3 == 0,
            id: IdHash::from_bits(number << 40),
            first: number * 7,
        };
        (0..).zip(positions).map(turn).collect()
    }

    #[test]
    fn an_inventory_reads_back_and_each_flipped_bit_is_noticed() {
        let turns = turns([100, 250, 300, 301]);
        let rows = rows(100, 420, 64, &turns);
        let [(key, row)] = &rows[..] else {
            panic!("one row")
        };
        let found = read(row).unwrap();
        assert_eq!((*key, found.from, found.end, found.low), (100, 100, 420, 64));
        assert_eq!(found.turns, turns);
        for at in 0..row.len() {
            for bit in 0..8 {
                let mut bad = row.clone();
                bad[at] ^= 1 << bit;
                assert!(read(&bad).is_err(), "byte {at} bit {bit}");
            }
            assert!(read(&row[..at]).is_err(), "{at} bytes");
        }
    }

    /// Many turns, and turns of a gigabyte: an entry has 31 bits for its place.
    #[test]
    fn a_long_stretch_is_cut_into_rows_that_follow_each_other() {
        let many = (0..5_000).map(|number| 10 + number * 150);
        let far = (1..4).map(|number| 1_000_000 + number * (3 << 30));
        let turns = turns(many.chain(far));
        let rows = rows(10, 19_000_000_000, 0, &turns);
        let (mut found, mut behind) = (Vec::new(), 10);
        for (key, row) in &rows {
            assert!(row.len() <= ROW_BYTES_MAX);
            let inventory = read(row).unwrap();
            assert_eq!(inventory.from, *key);
            assert!(inventory.from >= behind);
            behind = inventory.end;
            found.extend(inventory.turns);
        }
        assert_eq!((found, behind), (turns, 19_000_000_000));
        assert!(rows.len() >= 7, "{} rows", rows.len());
    }
}
