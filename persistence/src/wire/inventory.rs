//! Format version 2 of an inventory: which turns begin in a stretch of the log.
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
//!   entry:  0      4      8     24     32
//!           ├──────┼──────┼─────┼──────┤    `at`: position of the turn minus `from` in 30 bits,
//!           │ at   │ last │ run │ id   │    the run closes (bit 31) or opens (bit 30) with it;
//!           └──────┴──────┴─────┴──────┘    `id`: only where it opens, a hash of the instance's id
//!             4      4      16    8
//! ```
//!
//! Numbers are little-endian; `len` counts the whole row, `crc` is crc32c over everything behind itself.
//! `last` is the sequence of the turn's last record, `low` where the log began when the row was written.
//!
//! The frames say the same. Said twice, in pages of different tables, it is not lost with one of them: a
//! turn that stands here and not in the log is missing, and it is known whose it was.

use millrun_core::RunId;

use crate::finished::IdHash;

/// What a row begins with.
pub(crate) const MAGIC: &[u8; 8] = b"millturn";
/// Bytes before the first entry.
pub(crate) const HEADER_BYTES: usize = 40;
/// Bytes of an entry, at most.
pub(crate) const ENTRY_BYTES_MAX: usize = 32;
/// Rows are cut at this size.
pub(crate) const ROW_BYTES_MAX: usize = 32 << 10;
const ENTRY_BYTES_MIN: usize = 24;
const CRC: usize = 8;
const LEN: usize = 12;
const CLOSES: u32 = 1 << 31;
const OPENS: u32 = 1 << 30;
const AT_MAX: u64 = (OPENS - 1) as u64;

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
    /// The instance, if the run begins with it.
    pub(crate) opens: Option<IdHash>,
}

/// A stretch of the log, with the turns that begin in it, in order.
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

/// The rows that list `turns`, which are all that begin in the log from `from` to `end`, each with its
/// key.
pub(crate) fn rows(mut from: u64, end: u64, low: u64, turns: &[Listed]) -> Vec<(u64, Vec<u8>)> {
    let mut rows = Vec::with_capacity(1);
    let mut rest = turns;
    while !rest.is_empty() {
        let mut row = vec![0; HEADER_BYTES];
        row.reserve((rest.len() * ENTRY_BYTES_MAX).min(ROW_BYTES_MAX));
        let mut count = 0;
        for turn in rest {
            let at = turn.position.saturating_sub(from);
            if row.len() + ENTRY_BYTES_MAX > ROW_BYTES_MAX || (at > AT_MAX && count > 0) {
                break;
            }
            // The stretch of a turn that begins so far behind the one before begins with it.
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
    let at = u32::try_from(at).expect("it is at most 2^30");
    let closes = if turn.closes { CLOSES } else { 0 };
    let opens = if turn.opens.is_some() { OPENS } else { 0 };
    row.extend_from_slice(&(at | closes | opens).to_le_bytes());
    row.extend_from_slice(&turn.last.to_le_bytes());
    row.extend_from_slice(&turn.run.bits().to_le_bytes());
    if let Some(id) = turn.opens {
        row.extend_from_slice(&id.bits().to_le_bytes());
    }
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

/// Reads and checks the row at the start of `bytes`. What follows it is not looked at.
pub(crate) fn read(bytes: &[u8]) -> Result<Inventory, InventoryError> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(InventoryError::Short)?;
    let long = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let len = usize::try_from(word(header, LEN)).expect("a usize holds a u32 here");
    let entries = bytes.get(HEADER_BYTES..len).ok_or(InventoryError::Short)?;
    if header[..CRC] != *MAGIC || crc32c::crc32c(&bytes[LEN..len]) != word(header, CRC) {
        return Err(InventoryError::Checksum);
    }
    let (from, end, low) = (long(16), long(24), long(32));
    let mut turns = Vec::with_capacity(entries.len() / ENTRY_BYTES_MIN);
    let mut rest = entries;
    let mut behind = from;
    while !rest.is_empty() {
        let turn = entry(&mut rest, from)?;
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

fn entry(rest: &mut &[u8], from: u64) -> Result<Listed, InventoryError> {
    let (entry, mut behind) = rest
        .split_first_chunk::<ENTRY_BYTES_MIN>()
        .ok_or(InventoryError::Entries)?;
    let at = word(entry, 0);
    let mut opens = None;
    if at & OPENS != 0 {
        let (id, after) = behind.split_first_chunk().ok_or(InventoryError::Entries)?;
        opens = Some(IdHash::from_bits(u64::from_le_bytes(*id)));
        behind = after;
    }
    let run = u128::from_le_bytes(entry[8..24].try_into().expect("sixteen bytes"));
    *rest = behind;
    Ok(Listed {
        position: from
            .checked_add(u64::from(at) & AT_MAX)
            .ok_or(InventoryError::Entries)?,
        run: RunId::from_bits(run).ok_or(InventoryError::Entries)?,
        last: word(entry, 4),
        closes: at & CLOSES != 0,
        opens,
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
            opens: (number % 2 == 0).then_some(IdHash::from_bits(number << 40)),
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

    /// Many turns, and turns of a gigabyte: an entry has 30 bits for its place.
    #[test]
    fn a_long_stretch_is_cut_into_rows_that_follow_each_other() {
        let many = (0..5_000).map(|number| 10 + number * 150);
        let far = (1..4).map(|number| 1_000_000 + number * (3 << 29));
        let turns = turns(many.chain(far));
        let rows = rows(10, 9_000_000_000, 0, &turns);
        let (mut found, mut behind) = (Vec::new(), 10);
        for (key, row) in &rows {
            assert!(row.len() <= ROW_BYTES_MAX);
            let inventory = read(row).unwrap();
            assert_eq!(inventory.from, *key);
            assert!(inventory.from >= behind);
            behind = inventory.end;
            found.extend(inventory.turns);
        }
        assert_eq!((found, behind), (turns, 9_000_000_000));
        assert!(rows.len() >= 7, "{} rows", rows.len());
    }
}
