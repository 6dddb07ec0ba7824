//! Format version 1 of the settled index of finished runs: three kinds of rows.
//!
//! ```text
//!   0       2      4       8        16       20     24
//!   ├───────┼──────┼───────┼────────┼────────┼──────┼───────┬───────┬─────┐
//!   │version│ kind │ count │ number │ unused │ crc  │ item  │ item  │ ... │
//!   └───────┴──────┴───────┴────────┴────────┴──────┴───────┴───────┴─────┘
//!
//!   closed     items of 60 bytes: finished runs, consecutive in the order of closing; of version 2
//!   index      items of 12 bytes: hash ─► number, sorted by hash
//!   manifest   its fields, then items of 40 bytes: the sorted runs there are
//! ```
//!
//! Finished runs are numbered in the order in which they closed. `number` is that of the first item (closed), or the one that
//! the tags of an index row count from. Numbers are little-endian; `crc` is crc32c over everything but itself. All of this is
//! derived from the log: if one row does not decode, all of them are deleted and rebuilt.
//!
//! Rows of finished runs have version 2 since they hold the kind of each run's last record, in the highest byte of the size
//! of its records. In rows of version 1, which can still be read, that byte is zero.

use std::num::NonZeroU8;

use millrun_core::{RunId, Sequence, Timestamp};

use crate::finished::{Finished, IdHash, Place};

const HEADER_BYTES: usize = 24;
const CRC_AT: usize = 20;
const VERSION: u16 = 1;
/// The version in which rows of finished runs are written.
const CLOSED_VERSION: u16 = 2;
/// In rows of finished runs, the size of a run's records has this number of bits, and the kind of its last record is above
/// them.
const SIZE_BITS: u32 = 56;
const SIZE_MAX: u64 = (1 << SIZE_BITS) - 1;
const CLOSED_BYTES: usize = 60;
const PAIR_BYTES: usize = 12;
const FIELDS_BYTES: usize = 48;
const SEGMENT_BYTES: usize = 40;

/// How many items a row holds: its pages are full then, with the 32 bytes that redb adds.
pub(crate) const CLOSED_PER_ROW: usize = (8_192 - 32 - HEADER_BYTES) / CLOSED_BYTES;
/// As [`CLOSED_PER_ROW`], for the index.
pub(crate) const PAIRS_PER_ROW: usize = (16_384 - 32 - HEADER_BYTES) / PAIR_BYTES;

/// Marks a pair whose hash is that of a run; else it is that of an instance id.
const RUN_TAG: u32 = 1 << 31;

/// Why bytes are not a row of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettledError {
    #[error("the row is cut short")]
    Short,
    #[error("the row's checksum does not match")]
    Checksum,
    #[error("the row is of another kind or version")]
    Kind,
    #[error("a value in the row makes no sense")]
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowKind {
    Closed = 1,
    Index = 2,
    Manifest = 3,
}

impl RowKind {
    /// The version of rows of this kind, as they are written.
    fn version(self) -> u16 {
        match self {
            Self::Closed => CLOSED_VERSION,
            Self::Index | Self::Manifest => VERSION,
        }
    }
}

/// One way to find a finished run: by the hash of its id, or of its instance's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    pub(crate) hash: u64,
    tag: u32,
}

impl Pair {
    /// A pair that leads from the run itself to its number, `relative` to the row's.
    pub(crate) fn of_run(run: RunId, relative: u32) -> Self {
        Self {
            hash: run_hash(run),
            tag: relative | RUN_TAG,
        }
    }

    /// A pair that leads from the instance's id to the run's number.
    pub(crate) fn of_id(id: IdHash, relative: u32) -> Self {
        Self {
            hash: id.bits(),
            tag: relative,
        }
    }

    pub(crate) fn is_run(self) -> bool {
        self.tag & RUN_TAG != 0
    }

    pub(crate) fn relative(self) -> u32 {
        self.tag & !RUN_TAG
    }

    /// The same pair, counted from a number that is smaller by `shift`.
    pub(crate) fn shifted(self, shift: u32) -> Self {
        Self {
            hash: self.hash,
            tag: self.tag + shift,
        }
    }
}

/// How many runs one sorted run may span, so that a tag can hold each of them.
pub(crate) const SPAN_MAX: u64 = RUN_TAG as u64 - 1;

/// The hash by which a run is found.
pub(crate) fn run_hash(run: RunId) -> u64 {
    IdHash::of_bytes(&run.bits().to_le_bytes()).bits()
}

/// What is settled, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Runs whose closing turn begins before this log position are settled, or were dropped.
    pub(crate) position: u64,
    /// The number of the earliest run that is retained.
    pub(crate) first: u64,
    /// One more than the number of the last settled run.
    pub(crate) end: u64,
    /// Size of the records of settled runs that are retained.
    pub(crate) bytes: u64,
    /// The number of the next sorted run.
    pub(crate) next_segment: u64,
    /// Runs below this number are archived, if there is an archive.
    pub(crate) archived: u64,
    pub(crate) segments: Vec<SegmentEntry>,
}

/// A sorted run, as the manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEntry {
    pub(crate) id: u64,
    /// The number that tags count from.
    pub(crate) base: u64,
    /// One more than the last number in it.
    pub(crate) end: u64,
    pub(crate) pairs: u64,
    pub(crate) rows: u32,
    /// How often it was merged.
    pub(crate) level: u32,
}

/// The size of a run's records, with the kind of the last one above it; zero if the kind is not known.
fn sized(finished: &Finished<Place>) -> u64 {
    let bytes = finished.bytes.min(SIZE_MAX);
    bytes | u64::from(finished.kind.map_or(0, NonZeroU8::get)) << SIZE_BITS
}

/// A row of finished runs that closed one after the other, the first with this number.
pub(crate) fn closed_row(number: u64, runs: &[Finished<Place>]) -> Vec<u8> {
    let mut row = begin(RowKind::Closed, number, runs.len(), runs.len() * CLOSED_BYTES);
    for finished in runs {
        let head = u32::try_from(finished.head.get()).expect("a frame holds 32 bits of sequence");
        row.extend_from_slice(&finished.run.bits().to_le_bytes());
        row.extend_from_slice(&finished.id.bits().to_le_bytes());
        row.extend_from_slice(&finished.closed_at.as_micros().to_le_bytes());
        row.extend_from_slice(&head.to_le_bytes());
        row.extend_from_slice(&sized(finished).to_le_bytes());
        row.extend_from_slice(&finished.place.first.to_le_bytes());
        row.extend_from_slice(&finished.place.last.to_le_bytes());
    }
    seal(row)
}

/// The number of the first run in a row, and all runs of it.
pub(crate) fn read_closed(row: &[u8]) -> Result<(u64, Vec<Finished<Place>>), SettledError> {
    let (number, count, items) = open(row, RowKind::Closed)?;
    if items.len() != count * CLOSED_BYTES {
        return Err(SettledError::Short);
    }
    let has_kinds = u16::from_le_bytes(array(row, 0)) == CLOSED_VERSION;
    let runs = items.chunks_exact(CLOSED_BYTES).map(|item| {
        let run = RunId::from_bits(u128::from_le_bytes(array(item, 0))).ok_or(SettledError::Value)?;
        let id = IdHash::from_bits(word(item, 16));
        let sized = word(item, 36);
        let kind = u8::try_from(sized >> SIZE_BITS).expect("eight bits are left");
        if kind != 0 && !has_kinds {
            return Err(SettledError::Value);
        }
        let bytes = sized & SIZE_MAX;
        Ok(Finished {
            run,
            id,
            closed_at: Timestamp::from_micros(word(item, 24)),
            head: Sequence::new(u64::from(u32::from_le_bytes(array(item, 32)))),
            kind: NonZeroU8::new(kind),
            bytes,
            place: Place {
                first: word(item, 44),
                last: word(item, 52),
                bytes,
                id,
            },
        })
    });
    Ok((number, runs.collect::<Result<_, _>>()?))
}

/// A row of sorted pairs, whose tags count from `number`.
pub(crate) fn index_row(number: u64, pairs: &[Pair]) -> Vec<u8> {
    let mut row = begin(RowKind::Index, number, pairs.len(), pairs.len() * PAIR_BYTES);
    for pair in pairs {
        row.extend_from_slice(&pair.hash.to_le_bytes());
        row.extend_from_slice(&pair.tag.to_le_bytes());
    }
    seal(row)
}

/// The number that tags count from, and the pairs.
pub(crate) fn read_index(row: &[u8]) -> Result<(u64, Vec<Pair>), SettledError> {
    let (number, count, items) = open(row, RowKind::Index)?;
    if items.len() != count * PAIR_BYTES {
        return Err(SettledError::Short);
    }
    let pairs: Vec<_> = items.chunks_exact(PAIR_BYTES).map(pair).collect();
    if pairs.is_sorted() {
        Ok((number, pairs))
    } else {
        Err(SettledError::Value)
    }
}

/// The number that tags count from, and the pairs with this hash. Most of the row is only read for the checksum: a filter
/// that said "may be" is wrong more often than not.
pub(crate) fn find_index(row: &[u8], hash: u64) -> Result<(u64, Vec<Pair>), SettledError> {
    let (number, count, items) = open(row, RowKind::Index)?;
    if items.len() != count * PAIR_BYTES {
        return Err(SettledError::Short);
    }
    let item = |index: usize| &items[index * PAIR_BYTES..][..PAIR_BYTES];
    let (mut from, mut to) = (0, count);
    while from < to {
        let middle = from.midpoint(to);
        if word(item(middle), 0) < hash {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    let equal = (from..count).map(|index| pair(item(index)));
    Ok((number, equal.take_while(|pair| pair.hash == hash).collect()))
}

fn pair(item: &[u8]) -> Pair {
    Pair {
        hash: word(item, 0),
        tag: u32::from_le_bytes(array(item, 8)),
    }
}

pub(crate) fn manifest_row(manifest: &Manifest) -> Vec<u8> {
    let segments = &manifest.segments;
    let len = FIELDS_BYTES + segments.len() * SEGMENT_BYTES;
    let mut row = begin(RowKind::Manifest, 0, segments.len(), len);
    let fields = [
        manifest.position,
        manifest.first,
        manifest.end,
        manifest.bytes,
        manifest.next_segment,
        manifest.archived,
    ];
    for field in fields {
        row.extend_from_slice(&field.to_le_bytes());
    }
    for segment in segments {
        for field in [segment.id, segment.base, segment.end, segment.pairs] {
            row.extend_from_slice(&field.to_le_bytes());
        }
        row.extend_from_slice(&segment.rows.to_le_bytes());
        row.extend_from_slice(&segment.level.to_le_bytes());
    }
    seal(row)
}

pub(crate) fn read_manifest(row: &[u8]) -> Result<Manifest, SettledError> {
    let (number, count, items) = open(row, RowKind::Manifest)?;
    if number != 0 {
        return Err(SettledError::Value);
    }
    let (fields, items) = items.split_at_checked(FIELDS_BYTES).ok_or(SettledError::Short)?;
    if items.len() != count * SEGMENT_BYTES {
        return Err(SettledError::Short);
    }
    let segments = items.chunks_exact(SEGMENT_BYTES).map(|item| SegmentEntry {
        id: word(item, 0),
        base: word(item, 8),
        end: word(item, 16),
        pairs: word(item, 24),
        rows: u32::from_le_bytes(array(item, 32)),
        level: u32::from_le_bytes(array(item, 36)),
    });
    Ok(Manifest {
        position: word(fields, 0),
        first: word(fields, 8),
        end: word(fields, 16),
        bytes: word(fields, 24),
        next_segment: word(fields, 32),
        archived: word(fields, 40),
        segments: segments.collect(),
    })
}

fn begin(kind: RowKind, number: u64, count: usize, len: usize) -> Vec<u8> {
    let mut row = Vec::with_capacity(HEADER_BYTES + len);
    let count = u32::try_from(count).expect("a row has few items");
    row.extend_from_slice(&kind.version().to_le_bytes());
    row.extend_from_slice(&(kind as u16).to_le_bytes());
    row.extend_from_slice(&count.to_le_bytes());
    row.extend_from_slice(&number.to_le_bytes());
    row.extend_from_slice(&[0; HEADER_BYTES - 16]);
    row
}

fn seal(mut row: Vec<u8>) -> Vec<u8> {
    let crc = checksum(&row);
    row[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    row
}

fn checksum(row: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&row[..CRC_AT]), &row[HEADER_BYTES..])
}

/// Checks a row; returns its number, its count, and what follows the header.
fn open(row: &[u8], kind: RowKind) -> Result<(u64, usize, &[u8]), SettledError> {
    if row.len() < HEADER_BYTES {
        return Err(SettledError::Short);
    }
    if checksum(row) != u32::from_le_bytes(array(row, CRC_AT)) {
        return Err(SettledError::Checksum);
    }
    let (version, found) = (
        u16::from_le_bytes(array(row, 0)),
        u16::from_le_bytes(array(row, 2)),
    );
    let is_read = version == VERSION || version == kind.version();
    if !is_read || found != kind as u16 {
        return Err(SettledError::Kind);
    }
    if array::<4>(row, 16) != [0; 4] {
        return Err(SettledError::Value);
    }
    let count = usize::try_from(u32::from_le_bytes(array(row, 4))).map_err(|_| SettledError::Value)?;
    // So that no multiplication with it overflows.
    if count > row.len() {
        return Err(SettledError::Short);
    }
    Ok((word(row, 8), count, &row[HEADER_BYTES..]))
}

/// Makes the checksum of a row hold, for fuzzers; false if there is no room for one.
#[cfg(feature = "fuzz")]
pub(crate) fn reseal(row: &mut [u8]) -> bool {
    if row.len() < HEADER_BYTES {
        return false;
    }
    let crc = checksum(row);
    row[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    true
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("a slice of N bytes fits an array of N")
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrun_core::Partition;

    fn finished(number: u64) -> Finished<Place> {
        let partition = Partition::from_index(7).unwrap();
        let id = IdHash::of(&format!("id-{number}"));
        Finished {
            run: RunId::new(partition, Timestamp::from_micros(9_000), number),
            id,
            closed_at: Timestamp::from_micros(10_000 + number),
            head: Sequence::new(4),
            kind: NonZeroU8::new(u8::try_from(number % 8 * 30).unwrap()),
            bytes: 500 + number,
            place: Place {
                first: 100 * number,
                last: 100 * number + 50,
                bytes: 500 + number,
                id,
            },
        }
    }

    fn manifest() -> Manifest {
        Manifest {
            position: 1,
            first: 2,
            end: 3,
            bytes: 4,
            next_segment: 5,
            archived: 12,
            segments: vec![SegmentEntry {
                id: 6,
                base: 7,
                end: 8,
                pairs: 9,
                rows: 10,
                level: 11,
            }],
        }
    }

    #[test]
    fn each_kind_of_row_reads_back_and_fills_its_pages() {
        let runs: Vec<_> = (0..CLOSED_PER_ROW as u64).map(finished).collect();
        let row = closed_row(40, &runs);
        assert_eq!(read_closed(&row), Ok((40, runs)));
        assert!(row.len() + 32 <= 8_192 && row.len() + 32 + CLOSED_BYTES > 8_192);

        let mut pairs: Vec<_> = (0..u32::try_from(PAIRS_PER_ROW).unwrap())
            .map(|number| Pair::of_id(IdHash::of(&number.to_string()), number))
            .collect();
        pairs.sort_unstable();
        let row = index_row(41, &pairs);
        assert_eq!(read_index(&row), Ok((41, pairs)));
        assert!(row.len() + 32 <= 16_384 && row.len() + 32 + PAIR_BYTES > 16_384);

        assert_eq!(read_manifest(&manifest_row(&manifest())), Ok(manifest()));
    }

    #[test]
    fn a_row_of_the_first_version_reads_back_without_kinds() {
        let mut runs = vec![finished(1), finished(2)];
        for run in &mut runs {
            run.kind = None;
        }
        let mut row = closed_row(40, &runs);
        row[..2].copy_from_slice(&VERSION.to_le_bytes());
        assert_eq!(read_closed(&seal(row)), Ok((40, runs)));
        let mut row = closed_row(40, &[finished(1)]);
        row[..2].copy_from_slice(&VERSION.to_le_bytes());
        assert_eq!(read_closed(&seal(row)), Err(SettledError::Value));
    }

    #[test]
    fn each_flipped_bit_and_each_prefix_is_an_error() {
        let rows = [
            closed_row(1, &[finished(1), finished(2)]),
            index_row(1, &[Pair::of_id(IdHash::of("a"), 3)]),
            manifest_row(&manifest()),
        ];
        let is_sound =
            |row: &[u8]| read_closed(row).is_ok() || read_index(row).is_ok() || read_manifest(row).is_ok();
        for row in rows {
            for at in 0..row.len() {
                let mut bad = row.clone();
                bad[at] ^= 1 << (at % 8);
                assert!(!is_sound(&bad), "byte {at}");
                assert!(!is_sound(&row[..at]), "{at} bytes");
            }
        }
    }

    #[test]
    fn a_search_in_a_row_finds_what_reading_it_finds() {
        let mut pairs: Vec<_> = (0..300)
            .map(|number| Pair::of_id(IdHash::from_bits(u64::from(number) / 3 * 10), number))
            .collect();
        pairs.sort_unstable();
        let row = index_row(41, &pairs);
        for hash in (0..1_020).chain([u64::MAX]) {
            let expected: Vec<_> = pairs.iter().filter(|pair| pair.hash == hash).copied().collect();
            assert_eq!(find_index(&row, hash), Ok((41, expected)), "hash {hash}");
        }
        assert_eq!(find_index(&index_row(1, &[]), 5), Ok((1, vec![])));
        for at in 0..row.len() {
            let mut bad = row.clone();
            bad[at] ^= 1;
            assert!(find_index(&bad, 50).is_err(), "byte {at}");
        }
        assert_eq!(
            find_index(&closed_row(1, &[finished(1)]), 5),
            Err(SettledError::Kind)
        );
    }

    #[test]
    fn pairs_say_whose_hash_it_is() {
        let run = finished(1).run;
        let pair = Pair::of_run(run, 5).shifted(10);
        assert_eq!(
            (pair.is_run(), pair.relative(), pair.hash),
            (true, 15, run_hash(run))
        );
        assert!(!Pair::of_id(IdHash::of("a"), 5).is_run());
    }
}
