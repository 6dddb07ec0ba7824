//! Format version 1 of a topic's record.
//!
//! ```text
//!   0      4      8           10      11   12     20
//!   ├──────┼──────┼───────────┼───────┼────┼──────┼──────┬──────┐
//!   │ crc  │ len  │ partition │version│flag│ time │  id  │ body │
//!   └──────┴──────┴───────────┴───────┴────┴──────┴──────┴──────┘
//!     4      4        2           1     1     8    0 or 16
//! ```
//!
//! All numbers are little-endian. `len` counts the whole frame; `crc` is crc32c over everything from `len` on. `time` is in
//! microseconds since the Unix epoch. The record's place in its topic is in its row, see [`topic_row`](super::topic_row).

use std::ops::Range;

use millrun_core::{Partition, Timestamp};

/// Bytes before the id.
pub(crate) const HEADER_BYTES: usize = 20;
const ID_BYTES: usize = 16;
const VERSION: u8 = 1;
const HAS_ID: u8 = 1;

const LEN: usize = 4;
const PARTITION: usize = 8;
const VERSION_AT: usize = 10;
const FLAGS: usize = 11;
const TIME: usize = 12;

/// A decoded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicFrame {
    pub(crate) partition: Partition,
    pub(crate) time: Timestamp,
    pub(crate) id: Option<u128>,
    /// Where the body is in the frame.
    pub(crate) body: Range<usize>,
    /// Length of the whole frame.
    pub(crate) len: usize,
}

/// Why bytes are not the record of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TopicFrameError {
    #[error("the record ends after {have} bytes")]
    Short { have: usize },
    #[error("the checksum of the record does not match")]
    Checksum,
    #[error("the record has version {version}, which this release does not know")]
    Version { version: u8 },
    #[error("the record's header contradicts itself")]
    Header,
    #[error("there are {found} records where {said} should be")]
    Count { found: u32, said: u32 },
}

/// Appends a frame with this body, which is given in pieces, to `buffer`.
pub(crate) fn put(
    buffer: &mut Vec<u8>,
    partition: Partition,
    time: Timestamp,
    id: Option<u128>,
    body: &[&[u8]],
) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; PARTITION]);
    buffer.extend_from_slice(&partition.index().to_le_bytes());
    buffer.extend_from_slice(&[VERSION, u8::from(id.is_some())]);
    buffer.extend_from_slice(&time.as_micros().to_le_bytes());
    if let Some(id) = id {
        buffer.extend_from_slice(&id.to_le_bytes());
    }
    for piece in body {
        buffer.extend_from_slice(piece);
    }
    let frame = &mut buffer[start..];
    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    frame[LEN..PARTITION].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c::crc32c(&frame[LEN..]);
    frame[..LEN].copy_from_slice(&crc.to_le_bytes());
}

/// The frame at the start of `bytes`, with a checked checksum.
pub(crate) fn read_checked(bytes: &[u8]) -> Result<TopicFrame, TopicFrameError> {
    let frame = read(bytes)?;
    let crc = u32::from_le_bytes(number(bytes, 0));
    if crc32c::crc32c(&bytes[LEN..frame.len]) == crc {
        Ok(frame)
    } else {
        Err(TopicFrameError::Checksum)
    }
}

/// The frame at the start of `bytes`; its checksum is not checked.
pub(crate) fn read(bytes: &[u8]) -> Result<TopicFrame, TopicFrameError> {
    let short = TopicFrameError::Short { have: bytes.len() };
    if bytes.len() < HEADER_BYTES {
        return Err(short);
    }
    let len = usize::try_from(u32::from_le_bytes(number(bytes, LEN))).map_err(|_| short)?;
    let flags = bytes[FLAGS];
    let body = HEADER_BYTES + if flags & HAS_ID == 0 { 0 } else { ID_BYTES };
    if bytes[VERSION_AT] != VERSION {
        return Err(TopicFrameError::Version {
            version: bytes[VERSION_AT],
        });
    }
    if len < body || flags & !HAS_ID != 0 {
        return Err(TopicFrameError::Header);
    }
    if bytes.len() < len {
        return Err(short);
    }
    let partition = u16::from_le_bytes(number(bytes, PARTITION));
    Ok(TopicFrame {
        partition: Partition::from_index(partition).ok_or(TopicFrameError::Header)?,
        time: Timestamp::from_micros(u64::from_le_bytes(number(bytes, TIME))),
        id: (flags & HAS_ID != 0).then(|| u128::from_le_bytes(number(bytes, HEADER_BYTES))),
        body: body..len,
        len,
    })
}

/// Sets the checksums of the frames in `bytes`, by the lengths that they state, as if a writer had made them.
#[cfg(feature = "fuzz")]
pub(crate) fn reseal(mut bytes: &mut [u8]) {
    while let Ok(frame) = read(bytes) {
        let (whole, rest) = bytes.split_at_mut(frame.len);
        let crc = crc32c::crc32c(&whole[LEN..]);
        whole[..LEN].copy_from_slice(&crc.to_le_bytes());
        bytes = rest;
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes as asked for")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(id: Option<u128>) -> Vec<u8> {
        let partition = Partition::from_index(700).unwrap();
        let mut bytes = Vec::new();
        put(
            &mut bytes,
            partition,
            Timestamp::from_micros(5),
            id,
            &[b"he", b"llo"],
        );
        bytes
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for (id, len) in [(None, 25), (Some(1 << 100), 41)] {
            let mut bytes = framed(id);
            bytes.extend_from_slice(b"and more");
            let frame = read_checked(&bytes).unwrap();
            assert_eq!((frame.len, frame.id, frame.partition.index()), (len, id, 700));
            assert_eq!((frame.time.as_micros(), &bytes[frame.body]), (5, &b"hello"[..]));
        }
    }

    #[test]
    fn each_changed_byte_and_each_cut_is_noticed() {
        let whole = framed(Some(9));
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            assert!(read_checked(&bad).is_err(), "byte {at}");
            assert!(read_checked(&whole[..at]).is_err(), "cut at {at}");
        }
    }
}
