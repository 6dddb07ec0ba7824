//! One function per decoder of stored bytes, for fuzzers (feature `fuzz`).
//!
//! Each takes any bytes and panics only if a decoder breaks its contract: it must return a value or an error, must not read
//! beyond its input, and must decode what was encoded. The functions run under a coverage-guided fuzzer, and in this crate's
//! tests on mutations of its golden files.

use bytes::Bytes;
use millrun_core::{RunId, Sequence};

use crate::record::Trimmed;
use crate::redb::{scan_any, walk_row};
use crate::scan;
use crate::topics::{TopicChunk, TopicNumber};
use crate::wire::{
    inventory, kept_head, ndjson, piece, settled as rows, snapshot, superblock, topic_frame, topic_row, v1,
};

/// A name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 13] = [
    ("salvage", salvage),
    ("frame", frame),
    ("piece", piece_header),
    ("superblock", first_page),
    ("row", row),
    ("history", history),
    ("sealed", sealed),
    ("settled", settled),
    ("snapshot", stored_snapshot),
    ("second", second),
    ("line", line),
    ("records", records),
    ("topic", topic),
];

/// A damaged file, as a salvage reads it: the walk comes to an end, only moves forward, and does not panic. The file begins
/// with its first page, so all that is found lies after that.
pub fn salvage(bytes: &[u8]) {
    scan_any(bytes);
    let first_page = vec![0; superblock::BYTES];
    scan_any(&[&first_page, bytes].concat());
}

/// One frame: if it decodes, sealing it again gives the same bytes.
pub fn frame(bytes: &[u8]) {
    let Ok(frame) = v1::read(bytes) else { return };
    assert!(frame.len <= bytes.len() && frame.body.len() <= frame.len);
    let header = v1::FrameHeader {
        run: frame.run,
        sequence: frame.sequence,
        time: frame.time,
        kind: frame.kind,
    };
    let mut again = Vec::new();
    v1::begin(&mut again, &header, frame.id, frame.flags);
    if let Some(kept) = frame.kept {
        v1::put_kept(&mut again, kept);
    }
    again.extend_from_slice(frame.body);
    v1::end(&mut again, 0);
    v1::seal(&mut again);
    v1::set_back(&mut again, frame.back);
    assert_eq!(
        again,
        bytes[..frame.len],
        "a frame that decodes encodes to the same bytes"
    );
}

/// The header of a row.
pub fn piece_header(bytes: &[u8]) {
    if let Ok((frames, _)) = piece::read(bytes) {
        assert_eq!(frames.len() + piece::HEADER_BYTES, bytes.len());
    }
}

/// The first page of a file.
pub fn first_page(bytes: &[u8]) {
    let mut page = [0; superblock::BYTES];
    let len = bytes.len().min(page.len());
    page[..len].copy_from_slice(&bytes[..len]);
    if let Ok(found) = superblock::decode(&page) {
        assert_eq!(page[..36], superblock::encode_as(found)[..36]);
    }
}

/// A whole row: what is found in it comes in order and does not overlap; an error of the row itself comes last.
pub fn row(bytes: &[u8]) {
    let (mut behind, mut is_over) = (0, false);
    walk_row(0, bytes, &mut |position, found| {
        assert!(!is_over, "nothing follows what is wrong with the row");
        match found {
            Ok((frame, whole)) => {
                assert!(position >= behind && frame.len == whole.len());
                behind = position + frame.len as u64;
                assert!(behind <= bytes.len() as u64);
            }
            Err(_) => is_over = position == 0 && behind > 0,
        }
    });
}

/// The frames of one run.
pub fn history(bytes: &[u8]) {
    let Ok(frame) = v1::read(bytes) else { return };
    if let Ok(history) = scan::history(frame.run, &[(0, bytes::Bytes::copy_from_slice(bytes))]) {
        let first = history.trimmed.map_or(1, |trimmed| trimmed.before.get());
        assert!(
            (first..)
                .zip(&history.records)
                .all(|(number, record)| record.sequence.get() == number)
        );
    }
    // It must return for every input, whatever the result.
    scan::last_turn(bytes);
}

/// Tests the code behind the checksums: the input is cut into frames and rows whose lengths and checksums are then made
/// valid, as if a broken writer had written them.
///
/// Each frame is a length (u16, little-endian) and that many bytes, header included.
pub fn sealed(mut bytes: &[u8]) {
    let (mut frames, mut count) = (Vec::new(), 0);
    while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
        let len = usize::from(u16::from_le_bytes(*len)).min(rest.len());
        let start = frames.len();
        frames.extend_from_slice(&rest[..len]);
        let padded = frames.len().max(start + v1::HEADER_BYTES);
        frames.resize(padded, 0);
        v1::end(&mut frames[start..], 0);
        v1::seal(&mut frames[start..]);
        count += 1;
        bytes = &rest[len..];
    }
    let len = u32::try_from(frames.len()).expect("inputs of a fuzzer are small");
    let mut whole = piece::header(len, count).to_vec();
    whole.extend_from_slice(&frames);
    piece_header(&whole);
    row(&whole);
    let mut rest = &frames[..];
    while !rest.is_empty() {
        frame(rest);
        history(rest);
        rest = &rest[v1::len(rest)..];
    }
}

/// A row of the settled index, unchanged and with a valid checksum.
pub fn settled(bytes: &[u8]) {
    settled_row(bytes);
    let mut whole = bytes.to_vec();
    if rows::reseal(&mut whole) {
        settled_row(&whole);
    }
}

fn settled_row(row: &[u8]) {
    if let Ok((number, runs)) = rows::read_closed(row) {
        let again = rows::closed_row(number, &runs);
        assert_eq!(rows::read_closed(&again), Ok((number, runs)));
    }
    if let Ok((number, pairs)) = rows::read_index(row) {
        let again = rows::index_row(number, &pairs);
        assert_eq!(rows::read_index(&again), Ok((number, pairs)));
    }
    if let Ok(manifest) = rows::read_manifest(row) {
        let again = rows::manifest_row(&manifest);
        assert_eq!(rows::read_manifest(&again), Ok(manifest));
    }
}

/// A stored snapshot: its run (u128, little-endian), then its row, unchanged and with a valid checksum.
pub fn stored_snapshot(bytes: &[u8]) {
    let Some((run, row)) = bytes.split_first_chunk::<16>() else {
        return;
    };
    let Some(run) = RunId::from_bits(u128::from_le_bytes(*run)) else {
        return;
    };
    let mut whole = row.to_vec();
    let is_whole = snapshot::reseal(run, &mut whole);
    for row in [row, &whole] {
        if let Some(found) = snapshot::read(run, row) {
            assert_eq!(snapshot::row(&found), row);
        }
    }
    let is_known = row.get(..4) == Some(&1_u32.to_le_bytes());
    assert_eq!(snapshot::read(run, &whole).is_some(), is_whole && is_known);
}

/// A row that repeats what is stored elsewhere, unchanged and with a valid checksum: an inventory, or a run (u128,
/// little-endian) and its kept head.
pub fn second(bytes: &[u8]) {
    let mut whole = bytes.to_vec();
    inventory::reseal(&mut whole);
    for row in [bytes, &whole] {
        let Ok(found) = inventory::read(row) else { continue };
        let again = inventory::rows(found.from, found.end, found.low, &found.turns);
        // A long one would be cut.
        if let [(_, again)] = &again[..] {
            assert_eq!(inventory::read(again), Ok(found));
        }
    }
    if let Some((run, row)) = bytes.split_first_chunk::<16>()
        && let Some(run) = RunId::from_bits(u128::from_le_bytes(*run))
        && let Some(head) = kept_head::read(run, row)
    {
        assert_eq!(kept_head::row(run, head)[..], *row);
    }
}

/// A line of an exported store, and its first line.
pub fn line(bytes: &[u8]) {
    ndjson::read_header(bytes).ok();
    let Ok(found) = ndjson::read(bytes) else { return };
    let mut again = Vec::new();
    let kept = found.kept.clone().map(Bytes::from);
    let trimmed = kept.map(|kept| Trimmed::new(found.record.sequence, kept));
    let first = found.id.as_deref().map(|id| (id, trimmed.as_ref()));
    ndjson::put(&mut again, found.run, first, &found.record);
    assert_eq!(ndjson::read(&again), Ok(found));
}

/// A row of a topic's records: the topic (u32), the number of the first record (u64), both little-endian, then the row,
/// unchanged and with valid checksums.
pub fn records(bytes: &[u8]) {
    let Some((number, first, row)) = keyed(bytes) else {
        return;
    };
    let mut whole = row.to_vec();
    topic_row::reseal_header(&mut whole, number, first);
    if let Some(frames) = whole.get_mut(topic_row::HEADER_BYTES..) {
        topic_frame::reseal(frames);
    }
    for row in [row, &whole] {
        let Ok(header) = topic_row::read_header(row, number, first) else {
            continue;
        };
        let mut again = vec![0; topic_row::HEADER_BYTES];
        topic_row::put_header(&mut again, number, first, header);
        let frames = Bytes::copy_from_slice(&row[topic_row::HEADER_BYTES..]);
        let Ok(chunk) = TopicChunk::checked(Sequence::new(first), header.len, frames) else {
            continue;
        };
        let mut found = 0;
        for record in chunk.records() {
            assert_eq!(
                record.sequence.get(),
                first + found,
                "records have numbers without gaps"
            );
            let (partition, time, body) = (record.partition, record.time, &record.body[..]);
            topic_frame::put(&mut again, partition, time, record.id, &[body]);
            found += 1;
        }
        assert_eq!(found, u64::from(header.len));
        assert_eq!(chunk.last().get(), first + found - 1);
        assert_eq!(again, row, "a row that decodes encodes to the same bytes");
    }
}

/// The row with the name of a topic, or a row of ids: the topic (u32), the number of the first id (u64), both little-endian,
/// then the row, unchanged and with a valid checksum.
pub fn topic(bytes: &[u8]) {
    let Some((number, first, row)) = keyed(bytes) else {
        return;
    };
    let (mut named, mut listed) = (row.to_vec(), row.to_vec());
    topic_row::reseal_end(&mut named, number, 0);
    topic_row::reseal_end(&mut listed, TopicNumber::new(0), first);
    for row in [row, &named] {
        if let Ok(stored) = topic_row::read_topic(number, row) {
            assert_eq!(topic_row::topic(number, &stored), row);
        }
    }
    for row in [row, &listed] {
        if let Ok(ids) = topic_row::read_ids(first, row) {
            let ids: Vec<_> = ids.collect();
            assert_eq!(topic_row::ids(first, &ids), row);
        }
    }
}

/// A topic, a number and what follows.
fn keyed(bytes: &[u8]) -> Option<(TopicNumber, u64, &[u8])> {
    let (topic, rest) = bytes.split_first_chunk()?;
    let (first, row) = rest.split_first_chunk()?;
    let topic = TopicNumber::new(u32::from_le_bytes(*topic));
    Some((topic, u64::from_le_bytes(*first), row))
}
