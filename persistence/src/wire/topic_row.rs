//! The rows of topics that are kept: format version 1, and version 2 of the row of a topic itself.
//!
//! ```text
//!   records   key: topic (u32), sequence of the first record (u64)
//!   0       4       8          16          24      28
//!   ├───────┼───────┼──────────┼───────────┼───────┼────────┬────────┬─────┐
//!   │version│ count │  before  │   last    │  crc  │ record │ record │ ... │
//!   └───────┴───────┴──────────┴───────────┴───────┴────────┴────────┴─────┘
//!
//!   topic     key: its number (u32)
//!   ├───────┬─────────┬───────────┬─────────┬─────────┬──────┬───────┐
//!   │version│ age_max │ bytes_max │ len_max │ dropped │ name │  crc  │
//!   └───────┴─────────┴───────────┴─────────┴─────────┴──────┴───────┘
//!     4        8           8          8         8       ...     4
//!   version 2 has `unread_bytes_max`, 8 bytes, before the name
//!
//!   ids       key: number of the first of them (u64); 28 bytes each, and a crc
//!   ├───────┬──────────┬────┬─────┬───────┐
//!   │ topic │ sequence │ id │ ... │  crc  │
//!   └───────┴──────────┴────┴─────┴───────┘
//!     4          8       16           4
//! ```
//!
//! Numbers are little-endian. `before` counts the bytes of all records that the topic has had before this row; `last` is the
//! time that the store trusted when it wrote the row, in microseconds since the Unix epoch, by which records age; its `crc`
//! is crc32c over the key and the 24 bytes before it, and that of the other rows over the key and all bytes before it.
//! `dropped` is the sequence of the last record that retention has dropped, `age_max` counts microseconds. A topic that holds
//! no records back for its readers has a row of version 1, which earlier releases can read too; in a row of version 2
//! `unread_bytes_max` is not zero.

use std::time::Duration;

use millrun_core::Timestamp;

use crate::topics::{TopicNumber, TopicRetention};

/// Bytes before the first record of a row.
pub(crate) const HEADER_BYTES: usize = 28;
const VERSION: u32 = 1;
const VERSION_UNREAD: u32 = 2;
const TOPIC_BYTES_MIN: usize = 40;
const ID_BYTES: usize = 28;
const CRC_BYTES: usize = 4;

/// The header of a row of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowHeader {
    /// How many records are in it.
    pub(crate) len: u32,
    /// Bytes of the topic's records before it, dropped ones included.
    pub(crate) before: u64,
    /// The time by which its records age.
    pub(crate) last: Timestamp,
}

/// The stored data of a topic itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredTopic {
    pub(crate) name: String,
    pub(crate) retention: TopicRetention,
    /// The sequence of the last record that was dropped.
    pub(crate) dropped: u64,
}

/// An id by which a repeated record is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredId {
    pub(crate) topic: TopicNumber,
    pub(crate) id: u128,
    pub(crate) sequence: u64,
}

/// Why bytes are not the row of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TopicRowError {
    #[error("the row is shorter than its header")]
    Short,
    #[error("the checksum of the row does not match")]
    Checksum,
    #[error("the row has version {version}, which this release does not know")]
    Version { version: u32 },
    #[error("the row has no records")]
    Empty,
    #[error("the row's name is not text")]
    Name,
    #[error("the row says that nothing is held back, which one of version 1 says")]
    NothingHeld,
    #[error("the row ends within an id")]
    HalfId,
    #[error("the records of the row have no numbers: they would stand behind the last one")]
    NoNumbers,
}

/// Writes the header of a row that begins with the record `first` of `topic` into its place in `row`.
pub(crate) fn put_header(row: &mut [u8], topic: TopicNumber, first: u64, header: RowHeader) {
    row[..4].copy_from_slice(&VERSION.to_le_bytes());
    row[4..8].copy_from_slice(&header.len.to_le_bytes());
    row[8..16].copy_from_slice(&header.before.to_le_bytes());
    row[16..24].copy_from_slice(&header.last.as_micros().to_le_bytes());
    let crc = crc_of(topic, first, &row[..24]);
    row[24..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// The header of a row that begins with the record `first` of `topic`.
pub(crate) fn read_header(row: &[u8], topic: TopicNumber, first: u64) -> Result<RowHeader, TopicRowError> {
    let header: &[u8; HEADER_BYTES] = row.first_chunk().ok_or(TopicRowError::Short)?;
    if word(header, 24) != crc_of(topic, first, &header[..24]) {
        return Err(TopicRowError::Checksum);
    }
    check_version(word(header, 0))?;
    if word(header, 4) == 0 {
        return Err(TopicRowError::Empty);
    }
    // The number after the last one must exist too: a reader continues there.
    if first.checked_add(u64::from(word(header, 4))).is_none() {
        return Err(TopicRowError::NoNumbers);
    }
    Ok(RowHeader {
        len: word(header, 4),
        before: long(header, 8),
        last: Timestamp::from_micros(long(header, 16)),
    })
}

/// The row of a topic itself.
pub(crate) fn topic(number: TopicNumber, stored: &StoredTopic) -> Vec<u8> {
    let mut row = Vec::with_capacity(TOPIC_BYTES_MIN + 8 + stored.name.len());
    let unread_bytes_max = stored.retention.unread_bytes_max;
    let version = if unread_bytes_max == 0 {
        VERSION
    } else {
        VERSION_UNREAD
    };
    row.extend_from_slice(&version.to_le_bytes());
    let age_max = u64::try_from(stored.retention.age_max.as_micros()).unwrap_or(u64::MAX);
    for value in [
        age_max,
        stored.retention.bytes_max,
        stored.retention.len_max,
        stored.dropped,
    ] {
        row.extend_from_slice(&value.to_le_bytes());
    }
    if unread_bytes_max > 0 {
        row.extend_from_slice(&unread_bytes_max.to_le_bytes());
    }
    row.extend_from_slice(stored.name.as_bytes());
    let crc = crc_of(number, 0, &row);
    row.extend_from_slice(&crc.to_le_bytes());
    row
}

/// The stored data of a topic itself.
pub(crate) fn read_topic(number: TopicNumber, row: &[u8]) -> Result<StoredTopic, TopicRowError> {
    if row.len() < TOPIC_BYTES_MIN {
        return Err(TopicRowError::Short);
    }
    let (said, crc) = row.split_at(row.len() - CRC_BYTES);
    if word(crc, 0) != crc_of(number, 0, said) {
        return Err(TopicRowError::Checksum);
    }
    let (unread_bytes_max, name_at) = match word(said, 0) {
        VERSION_UNREAD if said.len() < 44 => return Err(TopicRowError::Short),
        VERSION_UNREAD if long(said, 36) == 0 => return Err(TopicRowError::NothingHeld),
        VERSION_UNREAD => (long(said, 36), 44),
        version => (0, check_version(version).map(|()| 36)?),
    };
    let age_max = match long(said, 4) {
        u64::MAX => Duration::MAX,
        micros => Duration::from_micros(micros),
    };
    let name = std::str::from_utf8(&said[name_at..]).map_err(|_| TopicRowError::Name)?;
    Ok(StoredTopic {
        name: name.to_owned(),
        retention: TopicRetention {
            age_max,
            bytes_max: long(said, 12),
            len_max: long(said, 20),
            unread_bytes_max,
        },
        dropped: long(said, 28),
    })
}

/// A row of ids, of which the first has the number `first`.
pub(crate) fn ids(first: u64, ids: &[StoredId]) -> Vec<u8> {
    let mut row = Vec::with_capacity(ids.len() * ID_BYTES + CRC_BYTES);
    for stored in ids {
        row.extend_from_slice(&stored.topic.get().to_le_bytes());
        row.extend_from_slice(&stored.sequence.to_le_bytes());
        row.extend_from_slice(&stored.id.to_le_bytes());
    }
    let crc = crc_of(TopicNumber::new(0), first, &row);
    row.extend_from_slice(&crc.to_le_bytes());
    row
}

/// The ids of a row, of which the first has the number `first`.
pub(crate) fn read_ids(first: u64, row: &[u8]) -> Result<impl Iterator<Item = StoredId> + '_, TopicRowError> {
    let at = row.len().checked_sub(CRC_BYTES).ok_or(TopicRowError::Short)?;
    let (ids, crc) = row.split_at(at);
    if word(crc, 0) != crc_of(TopicNumber::new(0), first, ids) {
        return Err(TopicRowError::Checksum);
    }
    if ids.len() % ID_BYTES != 0 {
        return Err(TopicRowError::HalfId);
    }
    Ok(ids.chunks_exact(ID_BYTES).map(|stored| StoredId {
        topic: TopicNumber::new(word(stored, 0)),
        sequence: long(stored, 4),
        id: u128::from_le_bytes(stored[12..].try_into().expect("sixteen bytes")),
    }))
}

/// Sets the checksum of a row of records, as if a writer had made it; does nothing if the row is too short for one.
#[cfg(feature = "fuzz")]
pub(crate) fn reseal_header(row: &mut [u8], topic: TopicNumber, first: u64) {
    if let Some(header) = row.first_chunk_mut::<HEADER_BYTES>() {
        let crc = crc_of(topic, first, &header[..24]);
        header[24..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Sets the checksum at the end of a row with a name (`first` is 0 then) or with ids.
#[cfg(feature = "fuzz")]
pub(crate) fn reseal_end(row: &mut [u8], topic: TopicNumber, first: u64) {
    if let Some(at) = row.len().checked_sub(CRC_BYTES) {
        let (said, end) = row.split_at_mut(at);
        end.copy_from_slice(&crc_of(topic, first, said).to_le_bytes());
    }
}

fn check_version(version: u32) -> Result<(), TopicRowError> {
    if version == VERSION {
        Ok(())
    } else {
        Err(TopicRowError::Version { version })
    }
}

fn crc_of(topic: TopicNumber, first: u64, bytes: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&topic.get().to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &first.to_le_bytes()), bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written_and_each_changed_byte_is_noticed() {
        let number = TopicNumber::new(7);
        let header = RowHeader {
            len: 3,
            before: 1 << 40,
            last: Timestamp::from_micros(9),
        };
        let mut row = vec![0; HEADER_BYTES];
        put_header(&mut row, number, 12, header);
        assert_eq!(read_header(&row, number, 12), Ok(header));
        assert_eq!(read_header(&row, number, 13), Err(TopicRowError::Checksum));
        let kept = [1, 2].map(|id| StoredId {
            topic: number,
            id: id << 90,
            sequence: 4,
        });
        let ids_row = ids(6, &kept);
        assert!(read_ids(6, &ids_row).unwrap().eq(kept));
        assert!(read_ids(7, &ids_row).is_err());
        let mut at_the_end = vec![0; HEADER_BYTES];
        put_header(&mut at_the_end, number, u64::MAX - 2, header);
        let read = read_header(&at_the_end, number, u64::MAX - 2);
        assert_eq!(read, Err(TopicRowError::NoNumbers));
        for at in 0..ids_row.len() {
            let mut bad = ids_row.clone();
            bad[at] ^= 1;
            assert!(read_ids(6, &bad).is_err(), "byte {at}");
        }
    }
    #[test]
    fn the_row_of_a_topic_is_read_as_it_was_written_and_each_changed_byte_is_noticed() {
        let number = TopicNumber::new(7);
        for unread_bytes_max in [0, 5_000] {
            let stored = StoredTopic {
                name: "orders.placed".into(),
                retention: TopicRetention {
                    unread_bytes_max,
                    ..TopicRetention::unbounded()
                },
                dropped: 4,
            };
            let row = topic(number, &stored);
            // Earlier releases can read the row of a topic that holds nothing back.
            assert_eq!(word(&row, 0), if unread_bytes_max == 0 { 1 } else { 2 });
            assert_eq!(read_topic(number, &row), Ok(stored));
            for at in 0..row.len() {
                let mut bad = row.clone();
                bad[at] ^= 1;
                assert!(read_topic(number, &bad).is_err(), "byte {at}");
                assert!(read_topic(number, &row[..at]).is_err(), "cut at {at}");
            }
        }
    }

    #[test]
    fn a_row_that_holds_nothing_back_has_one_form() {
        let number = TopicNumber::new(7);
        let sealed = |len: usize| {
            let mut row = vec![0; len];
            row[..4].copy_from_slice(&VERSION_UNREAD.to_le_bytes());
            let crc = crc_of(number, 0, &row);
            row.extend_from_slice(&crc.to_le_bytes());
            row
        };
        assert_eq!(read_topic(number, &sealed(44)), Err(TopicRowError::NothingHeld));
        assert_eq!(read_topic(number, &sealed(40)), Err(TopicRowError::Short));
    }
}
