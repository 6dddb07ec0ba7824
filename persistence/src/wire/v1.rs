//! Format version 1 of a record's frame.
//!
//! ```text
//!   0        8      12     16      17     18      19      20         24       40      48
//!   ├────────┼──────┼──────┼───────┼──────┼───────┼───────┼──────────┼────────┼───────┼────┬──────┐
//!   │ back   │ crc  │ len  │version│ kind │ flags │id_len │ sequence │ run    │ time  │ id │ body │
//!   └────────┴──────┴──────┴───────┴──────┴───────┴───────┴──────────┴────────┴───────┴────┴──────┘
//!     8        4      4      1       1      1       1       4          16       8      0-255
//! ```
//!
//! All numbers are little-endian. `len` counts the whole frame. `crc` is crc32c over everything from `len` on. `back` is the
//! log position of the run's previous turn, set in the first record of a turn: it is a hint, checked against what is found
//! there, and it is outside the checksum so that a frame can be sealed before its place in the log is known. `id` is only in
//! the first record of a run. `time` is in microseconds since the Unix epoch.
//!
//! In stores of format 3 a record may trim its run: it is the first of its turn, has the id like a run's first record, and
//! its body begins with the length (u32) of what is kept of the earlier records, followed by that.

use millrun_core::{RunId, Sequence, Timestamp};

/// The version written into each frame.
pub(crate) const VERSION: u8 = 1;
/// Bytes before the id.
pub(crate) const HEADER_BYTES: usize = 48;
/// No previous turn.
pub(crate) const NO_BACK: u64 = u64::MAX;
/// The greatest sequence number that a frame can hold.
pub(crate) const SEQUENCE_MAX: u64 = u32::MAX as u64;

const BACK: usize = 0;
const CRC: usize = 8;
const LEN: usize = 12;
const VERSION_AT: usize = 16;
const KIND: usize = 17;
const FLAGS: usize = 18;
const ID_LEN: usize = 19;
const SEQUENCE: usize = 20;
const RUN: usize = 24;
const TIME: usize = 40;

/// The frame is the first remaining one of its run, and carries the instance's id.
pub(crate) const OPENS: u8 = 1;
/// The frame is the last of its run.
pub(crate) const CLOSES: u8 = 2;
/// The frame is the first of its turn.
pub(crate) const TURN_FIRST: u8 = 4;
/// The frame is the last of its turn.
pub(crate) const TURN_LAST: u8 = 8;
/// The frame replaces all earlier records of its run, and carries what is kept of them.
pub(crate) const TRIMS: u8 = 16;
const FLAGS_KNOWN: u8 = OPENS | CLOSES | TURN_FIRST | TURN_LAST | TRIMS;
/// Bytes of the length of what is kept.
const KEPT_LEN_BYTES: usize = 4;

/// The contents of a frame's header, besides lengths and checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHeader {
    pub(crate) run: RunId,
    pub(crate) sequence: Sequence,
    pub(crate) time: Timestamp,
    pub(crate) kind: u8,
}

/// One decoded frame, borrowed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) back: u64,
    pub(crate) checksum: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) run: RunId,
    pub(crate) sequence: Sequence,
    pub(crate) time: Timestamp,
    pub(crate) id: Option<&'a str>,
    /// What is kept of the records before it, if it trims its run.
    pub(crate) kept: Option<&'a [u8]>,
    pub(crate) body: &'a [u8],
    /// Length of the whole frame.
    pub(crate) len: usize,
}

impl Frame<'_> {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the frame ends after {have} of {need} bytes")]
    Short { have: usize, need: usize },
    #[error("the frame says that it has {len} bytes, fewer than its header")]
    Length { len: usize },
    #[error("the checksum of the frame does not match")]
    Checksum,
    #[error("the frame has version {version}, which this release does not know")]
    Version { version: u8 },
    #[error("the frame's header contradicts itself")]
    Header,
}

/// Starts a frame at the end of `buffer` and returns where. The caller appends the body, then calls [`end`] and, unless the
/// frame stays in memory, [`seal`].
pub(crate) fn begin(buffer: &mut Vec<u8>, header: &FrameHeader, id: Option<&str>, flags: u8) -> usize {
    let start = buffer.len();
    let mut bytes = [0; HEADER_BYTES];
    put(&mut bytes, BACK, &NO_BACK.to_le_bytes());
    bytes[VERSION_AT] = VERSION;
    bytes[KIND] = header.kind;
    bytes[FLAGS] = flags;
    let id_len = id.map_or(0, str::len);
    bytes[ID_LEN] = u8::try_from(id_len).expect("an instance id has at most 255 bytes");
    let sequence = u32::try_from(header.sequence.get()).expect("the writer checked the sequence");
    put(&mut bytes, SEQUENCE, &sequence.to_le_bytes());
    put(&mut bytes, RUN, &header.run.bits().to_le_bytes());
    put(&mut bytes, TIME, &header.time.as_micros().to_le_bytes());
    buffer.extend_from_slice(&bytes);
    if let Some(id) = id {
        buffer.extend_from_slice(id.as_bytes());
    }
    start
}

/// Appends what is kept of the records before a frame to `buffer`, where its body begins.
pub(crate) fn put_kept(buffer: &mut Vec<u8>, kept: &[u8]) {
    let len = u32::try_from(kept.len()).unwrap_or(u32::MAX);
    buffer.extend_from_slice(&len.to_le_bytes());
    buffer.extend_from_slice(kept);
}

/// The length of the frame at the start of `bytes`, which was sealed here or has been checked.
pub(crate) fn len(bytes: &[u8]) -> usize {
    let len = bytes[LEN..LEN + 4].try_into().expect("four bytes fit four");
    usize::try_from(u32::from_le_bytes(len)).expect("a usize holds a u32 here")
}

/// Completes the frame that fills `frame`, except for its checksum: adds `flags`, and sets the length.
pub(crate) fn end(frame: &mut [u8], flags: u8) {
    let len = u32::try_from(frame.len()).expect("the writer checked the size");
    put(frame, LEN, &len.to_le_bytes());
    frame[FLAGS] |= flags;
}

/// Sets the checksum of the frame that fills `frame` and is otherwise complete; returns it.
pub(crate) fn seal(frame: &mut [u8]) -> u32 {
    let crc = crc32c::crc32c(&frame[LEN..]);
    put(frame, CRC, &crc.to_le_bytes());
    crc
}

/// Seals the frames of one or several turns, which the caller itself has encoded; returns the [digest] of all of them.
pub(crate) fn seal_all(mut frames: &mut [u8]) -> u32 {
    let mut all = 0;
    while !frames.is_empty() {
        let (frame, rest) = frames.split_at_mut(len(frames));
        all = digest(all, seal(frame));
        frames = rest;
    }
    all
}

/// Whether two turns, the second encoded by the caller itself, are the same, except for what is not known when a frame ends:
/// its checksum and its place.
pub(crate) fn are_same(turn: &[u8], mut other: &[u8]) -> bool {
    let mut at = 0;
    while !other.is_empty() {
        let (frame, rest) = other.split_at(len(other));
        if turn.get(at + LEN..at + frame.len()) != Some(&frame[LEN..]) {
            return false;
        }
        at += frame.len();
        other = rest;
    }
    at == turn.len()
}

/// Adds the checksum of the next frame of a turn to the turn's digest, which distinguishes turns of one run, as `FxHasher`
/// would, in 32 bits. A digest begins at zero and is never stored.
pub(crate) fn digest(before: u32, checksum: u32) -> u32 {
    (before.rotate_left(5) ^ checksum).wrapping_mul(0x9e37_79b9)
}

/// Changes the run and time of the frame at the start of `frame`; it must be sealed again.
#[cfg(feature = "floor")]
pub(crate) fn set_run(frame: &mut [u8], run: RunId, time: Timestamp) {
    put(frame, RUN, &run.bits().to_le_bytes());
    put(frame, TIME, &time.as_micros().to_le_bytes());
}

/// Sets the back-pointer of the frame at the start of `frame`.
pub(crate) fn set_back(frame: &mut [u8], position: u64) {
    put(frame, BACK, &position.to_le_bytes());
}

/// The back-pointer of the frame at the start of `frame`, unchecked.
pub(crate) fn back(frame: &[u8]) -> Option<u64> {
    let bytes = frame.get(BACK..BACK + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The instance id in the frame at the start of `bytes`, which was sealed here or has been checked.
pub(crate) fn id_bytes(bytes: &[u8]) -> &[u8] {
    &bytes[HEADER_BYTES..HEADER_BYTES + usize::from(bytes[ID_LEN])]
}

/// Reads the run and the length of the frame at the start of `bytes` without checking it: enough to skip frames of other
/// runs.
pub(crate) fn peek(bytes: &[u8]) -> Result<(u128, usize), FrameError> {
    let header = header(bytes)?;
    Ok((u128::from_le_bytes(array(header, RUN)), length(bytes, header)?))
}

/// Whether it is worth computing the checksum of a frame that may begin with this header: most bytes that are no frame have a
/// value here that a header never has.
pub(crate) fn may_begin(header: &[u8]) -> bool {
    let flags = header[FLAGS];
    let has_id = header[ID_LEN] > 0;
    header[VERSION_AT] == VERSION
        && flags & !FLAGS_KNOWN == 0
        && (flags & OPENS != 0) == has_id
        && len(header) >= HEADER_BYTES + usize::from(header[ID_LEN])
}

/// The part of a frame that does not depend on its place.
pub(crate) fn comparable(frame: &[u8]) -> &[u8] {
    frame.get(CRC..).unwrap_or_default()
}

/// Whether the bytes are a frame with nothing but its length damaged.
pub(crate) fn is_sound_but_for_its_length(frame: &[u8]) -> bool {
    let (Ok(header), Ok(len)) = (header(frame), u32::try_from(frame.len())) else {
        return false;
    };
    let crc = crc32c::crc32c(&len.to_le_bytes());
    crc32c::crc32c_append(crc, &frame[LEN + 4..]) == u32::from_le_bytes(array(header, CRC))
}

/// The contents of a damaged frame's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guess {
    pub(crate) run: Option<RunId>,
    pub(crate) sequence: u32,
    /// [`NO_BACK`] unless it seems to begin a turn.
    pub(crate) back: u64,
}

/// Reads a header that may be damaged.
pub(crate) fn guess(bytes: &[u8]) -> Option<Guess> {
    let header = header(bytes).ok()?;
    Some(Guess {
        run: RunId::from_bits(u128::from_le_bytes(array(header, RUN))),
        sequence: u32::from_le_bytes(array(header, SEQUENCE)),
        back: u64::from_le_bytes(array(header, BACK)),
    })
}

/// Reads and checks the frame at the start of `bytes`, and ignores what follows.
pub(crate) fn read(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let header = header(bytes)?;
    let len = length(bytes, header)?;
    if crc32c::crc32c(&bytes[LEN..len]) != u32::from_le_bytes(array(header, CRC)) {
        return Err(FrameError::Checksum);
    }
    decode(bytes, header, len)
}

/// As [`read`], for a frame that was made in this process: its checksum may be missing, and is not checked.
pub(crate) fn parse(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let header = header(bytes)?;
    decode(bytes, header, length(bytes, header)?)
}

/// Decodes a frame of `len` bytes with a valid checksum, so that anything invalid in it was written by another version.
fn decode<'a>(bytes: &'a [u8], header: &[u8; HEADER_BYTES], len: usize) -> Result<Frame<'a>, FrameError> {
    if header[VERSION_AT] != VERSION {
        return Err(FrameError::Version {
            version: header[VERSION_AT],
        });
    }
    let flags = header[FLAGS];
    let id_len = usize::from(header[ID_LEN]);
    let run = RunId::from_bits(u128::from_le_bytes(array(header, RUN))).ok_or(FrameError::Header)?;
    let opens = flags & OPENS != 0;
    if flags & !FLAGS_KNOWN != 0 || opens != (id_len > 0) || HEADER_BYTES + id_len > len {
        return Err(FrameError::Header);
    }
    let id =
        std::str::from_utf8(&bytes[HEADER_BYTES..HEADER_BYTES + id_len]).map_err(|_| FrameError::Header)?;
    let body = &bytes[HEADER_BYTES + id_len..len];
    let (kept, body) = if flags & TRIMS == 0 {
        (None, body)
    } else {
        let (kept, body) = split_kept(header, body).ok_or(FrameError::Header)?;
        (Some(kept), body)
    };
    Ok(Frame {
        back: u64::from_le_bytes(array(header, BACK)),
        checksum: u32::from_le_bytes(array(header, CRC)),
        kind: header[KIND],
        flags,
        run,
        sequence: Sequence::new(u64::from(u32::from_le_bytes(array(header, SEQUENCE)))),
        time: Timestamp::from_micros(u64::from_le_bytes(array(header, TIME))),
        id: opens.then_some(id),
        kept,
        body,
        len,
    })
}

/// What is kept, and the body after it, of a record with this header that trims its run.
fn split_kept<'a>(header: &[u8; HEADER_BYTES], body: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let is_first = header[FLAGS] & (OPENS | TURN_FIRST) == OPENS | TURN_FIRST;
    if !is_first || sequence(header) < 2 {
        return None;
    }
    let (len, rest) = body.split_first_chunk::<KEPT_LEN_BYTES>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

/// The sequence in the header of the frame at the start of `bytes`, which was made here or has been checked.
pub(crate) fn sequence(bytes: &[u8]) -> u64 {
    let sequence = bytes[SEQUENCE..SEQUENCE + 4].try_into();
    u64::from(u32::from_le_bytes(sequence.expect("four bytes fit four")))
}

/// The kind in the header of the frame at the start of `bytes`, which was made here or has been checked.
pub(crate) fn kind(bytes: &[u8]) -> u8 {
    bytes[KIND]
}

/// The back-pointer of the frame that fills `bytes`, and the instance id if it has one, whatever its checksum is.
pub(crate) fn hints(bytes: &[u8]) -> Option<(u64, Option<&str>)> {
    let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
    let body = HEADER_BYTES + usize::from(header[ID_LEN]);
    let id = bytes
        .get(HEADER_BYTES..body)
        .and_then(|id| std::str::from_utf8(id).ok());
    Some((u64::from_le_bytes(array(header, BACK)), id))
}

/// The frame that fills `bytes`, with its length corrected; `None` if that does not make it valid.
pub(crate) fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let len = u32::try_from(bytes.len())
        .ok()
        .filter(|_| bytes.len() >= HEADER_BYTES)?;
    let mut mended = bytes.to_vec();
    put(&mut mended, LEN, &len.to_le_bytes());
    read(&mended).is_ok().then_some(mended)
}

fn header(bytes: &[u8]) -> Result<&[u8; HEADER_BYTES], FrameError> {
    bytes.first_chunk().ok_or(FrameError::Short {
        have: bytes.len(),
        need: HEADER_BYTES,
    })
}

fn length(bytes: &[u8], header: &[u8; HEADER_BYTES]) -> Result<usize, FrameError> {
    let len = usize::try_from(u32::from_le_bytes(array(header, LEN))).unwrap_or(usize::MAX);
    if len < HEADER_BYTES {
        Err(FrameError::Length { len })
    } else if len > bytes.len() {
        Err(FrameError::Short {
            have: bytes.len(),
            need: len,
        })
    } else {
        Ok(len)
    }
}

fn array<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    header[at..at + N]
        .try_into()
        .expect("a slice of N bytes fits an array of N")
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrun_core::Partition;

    fn framed(id: Option<&str>, body: &[u8]) -> Vec<u8> {
        let run = RunId::new(
            Partition::from_index(3).unwrap(),
            Timestamp::from_micros(5_000),
            9,
        );
        let header = FrameHeader {
            run,
            sequence: Sequence::new(7),
            time: Timestamp::from_micros(11),
            kind: 4,
        };
        let mut bytes = Vec::new();
        let opens = if id.is_some() { OPENS } else { 0 };
        begin(&mut bytes, &header, id, opens | TURN_FIRST);
        bytes.extend_from_slice(body);
        end(&mut bytes, TURN_LAST);
        seal(&mut bytes);
        bytes
    }

    #[test]
    fn a_frame_reads_back_as_it_was_written() {
        let mut bytes = framed(Some("order-42"), b"body");
        set_back(&mut bytes, 77);
        let frame = read(&bytes).unwrap();
        assert_eq!((frame.back, back(&bytes)), (77, Some(77)));
        assert_eq!(
            (frame.id, frame.body, frame.kind),
            (Some("order-42"), &b"body"[..], 4)
        );
        assert_eq!(
            (frame.sequence, frame.time),
            (Sequence::new(7), Timestamp::from_micros(11))
        );
        assert_eq!(frame.flags, OPENS | TURN_FIRST | TURN_LAST);
        assert_eq!(frame.len, bytes.len());
        assert_eq!(peek(&bytes), Ok((frame.run.bits(), bytes.len())));
    }

    #[test]
    fn each_flipped_bit_outside_the_back_pointer_is_noticed() {
        let bytes = framed(Some("a"), b"xyz");
        for at in CRC..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert!(read(&bad).is_err(), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn turns_are_the_same_whatever_their_checksums_and_places_are() {
        let turn = [framed(Some("order-42"), b"body"), framed(None, b"xyz")].concat();
        assert!(are_same(&turn, &turn));
        for at in 0..turn.len() {
            let mut other = turn.clone();
            other[at] ^= 1;
            let first = framed(Some("order-42"), b"body").len();
            let is_left_out = at < LEN || (first..first + LEN).contains(&at);
            assert_eq!(are_same(&other, &turn), is_left_out, "byte {at}");
            assert!(!are_same(&turn[..at], &turn), "{at} bytes");
        }
        assert!(!are_same(&[&turn[..], &turn[..]].concat(), &turn));
        let mut again = turn.clone();
        again[CRC] ^= 1;
        seal_all(&mut again);
        assert_eq!(again, turn);
    }

    #[test]
    fn each_prefix_of_a_frame_is_an_error() {
        let bytes = framed(None, b"xyz");
        for len in 0..bytes.len() {
            assert!(
                matches!(read(&bytes[..len]), Err(FrameError::Short { .. })),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn a_frame_of_a_later_version_is_told_from_damage() {
        let mut bytes = framed(None, b"");
        bytes[VERSION_AT] = VERSION + 1;
        seal(&mut bytes);
        assert_eq!(read(&bytes), Err(FrameError::Version { version: VERSION + 1 }));
    }
}
