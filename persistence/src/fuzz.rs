//! One function per decoder of stored bytes, for fuzzers (feature `fuzz`).
//!
//! Each takes any bytes and panics only if a decoder breaks its word: it must give a value or an
//! error, must not read beyond what it was given, and must give back what was encoded. They run
//! under a coverage-guided fuzzer, and in this crate's tests on mutations of its golden files.

use crate::redb::walk_row;
use crate::scan;
use crate::wire::{piece, superblock, v1};

/// A name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 5] = [
    ("frame", frame),
    ("piece", piece_header),
    ("superblock", first_page),
    ("row", row),
    ("history", history),
];

/// One frame: what decodes is sealed anew to the same bytes.
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
    again.extend_from_slice(frame.body);
    v1::seal(&mut again, 0);
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
    if let Ok(store) = superblock::decode(&page) {
        assert_eq!(page[..36], superblock::encode(store)[..36]);
    }
}

/// A whole row: every byte of it belongs to one frame or to one stretch of damage.
pub fn row(bytes: &[u8]) {
    let mut last = 0;
    walk_row(0, bytes, &mut |position, _| {
        assert!(position >= last);
        last = position;
    });
}

/// The frames of one run.
pub fn history(bytes: &[u8]) {
    let Ok(frame) = v1::read(bytes) else { return };
    if let Ok(history) = scan::history(frame.run, &[(0, bytes::Bytes::copy_from_slice(bytes))]) {
        assert!(
            (1..)
                .zip(&history.records)
                .all(|(number, record)| record.sequence.get() == number)
        );
    }
    // Total, whatever comes out of it.
    scan::last_turn(bytes);
}
