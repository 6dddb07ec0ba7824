//! Format version 1 of a piece: one row of the log table.
//!
//! ```text
//!   key: log position of the first frame (u64)
//!
//!   0       4      8       12     16
//!   ├───────┼──────┼───────┼──────┼───────┬───────┬─────┐
//!   │version│ len  │ count │ crc  │ frame │ frame │ ... │
//!   └───────┴──────┴───────┴──────┴───────┴───────┴─────┘
//!     4       4      4       4      ├──────── len ──────┤
//! ```
//!
//! Numbers are little-endian; `crc` is crc32c over the twelve bytes before it. The log position
//! counts bytes of frames only, so the next piece's key is this one's plus `len`: a missing piece
//! is a gap.

/// Bytes before the first frame.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes that the storage adds to a row; a row is just under a power of two with them.
const ROW_OVERHEAD: usize = 32;
const PAGE_BYTES: usize = 4_096;
/// Rows are cut at 128 KiB, unless a single frame is larger.
const PAGES_LOG2_MAX: u32 = 5;
const VERSION: u32 = 1;

/// Why bytes are not a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PieceError {
    #[error("the piece is shorter than its header")]
    Short,
    #[error("the checksum of the piece's header does not match")]
    Checksum,
    #[error("the piece has version {version}, which this release does not know")]
    Version { version: u32 },
    #[error("the piece has {have} bytes of frames, its header says {said}")]
    Length { have: usize, said: usize },
}

/// Writes the header of a piece with `len` bytes in `count` frames.
pub(crate) fn header(len: u32, count: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..4].copy_from_slice(&VERSION.to_le_bytes());
    bytes[4..8].copy_from_slice(&len.to_le_bytes());
    bytes[8..12].copy_from_slice(&count.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..12]);
    bytes[12..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The frames of a piece, and how many there should be.
pub(crate) fn read(row: &[u8]) -> Result<(&[u8], u32), PieceError> {
    let (header, frames) = row.split_first_chunk().ok_or(PieceError::Short)?;
    let (said, count) = read_header(header)?;
    if said != frames.len() {
        return Err(PieceError::Length {
            have: frames.len(),
            said,
        });
    }
    Ok((frames, count))
}

/// The number of bytes of frames and of frames in a piece.
pub(crate) fn read_header(header: &[u8; HEADER_BYTES]) -> Result<(usize, u32), PieceError> {
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if crc32c::crc32c(&header[..12]) != word(12) {
        return Err(PieceError::Checksum);
    }
    if word(0) != VERSION {
        return Err(PieceError::Version { version: word(0) });
    }
    let said = usize::try_from(word(4)).expect("a usize holds a u32 here");
    Ok((said, word(8)))
}

/// Whether these bytes may be a header.
pub(crate) fn may_begin(bytes: &[u8]) -> bool {
    bytes.starts_with(&VERSION.to_le_bytes())
}

/// The frames of a piece, whatever its header says: each has its own checksum.
pub(crate) fn frames(row: &[u8]) -> &[u8] {
    row.get(HEADER_BYTES..).unwrap_or_default()
}

/// How many bytes of frames the next piece should have at most, when `rest` are left: a size that
/// fills its pages, so that little of the file is waste.
pub(crate) fn target(rest: usize) -> usize {
    let overhead = ROW_OVERHEAD + HEADER_BYTES;
    let fits = |log2: u32| (PAGE_BYTES << log2) - overhead;
    for log2 in (0..=PAGES_LOG2_MAX).rev() {
        let fit = fits(log2);
        if rest >= fit {
            return fit;
        }
        // Nearly a full row of this size: one row is cheaper than three.
        if log2 > 0 && rest >= fit / 4 * 3 {
            return fit;
        }
    }
    fits(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_damage_is_noticed() {
        let mut row = header(3, 1).to_vec();
        row.extend_from_slice(b"abc");
        assert_eq!(read(&row), Ok((&b"abc"[..], 1)));
        for at in 0..HEADER_BYTES {
            let mut bad = row.clone();
            bad[at] ^= 0x10;
            assert!(read(&bad).is_err(), "byte {at}");
        }
        assert_eq!(read(&row[..18]), Err(PieceError::Length { have: 2, said: 3 }));
        assert_eq!(read(&row[..7]), Err(PieceError::Short));
    }

    #[test]
    fn pieces_stay_just_under_powers_of_two() {
        assert_eq!(target(10_000_000), 131_072 - 48);
        assert_eq!(target(131_072), 131_072 - 48);
        assert_eq!(target(100_000), 131_072 - 48);
        assert_eq!(target(70_000), 65_536 - 48);
        assert_eq!(target(5_000), 4_096 - 48);
        assert_eq!(target(7_000), 8_192 - 48);
        assert_eq!(target(148), 4_096 - 48);
    }
}
